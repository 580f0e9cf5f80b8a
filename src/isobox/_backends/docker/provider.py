"""The Docker backend."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
from typing_extensions import override

from isobox._backends.docker import diagnosis, doctor, interpreter, places
from isobox._backends.docker.ability import Ability
from isobox._backends.docker.engine import Engine, EngineError
from isobox._backends.docker.found import look
from isobox._backends.docker.interpreter import NoInterpreterError
from isobox._backends.docker.life import Life, NotBegunError
from isobox._backends.docker.link import Guest
from isobox._backends.docker.options import DockerOptions
from isobox._backends.docker.recipe import Image, Recipe
from isobox._backends.docker.sandbox import DockerSandbox, DockerShellSandbox
from isobox._backends.docker.shell import Shell
from isobox._backends.docker.shown import Shown
from isobox._backends.docker.sources import refuse_neighbours
from isobox._backends.docker.sweep import sweep
from isobox._backends.docker.tenancy import Tenancy
from isobox.abc import Provider
from isobox.errors import BackendUnavailableError, InvalidArgumentError

if TYPE_CHECKING:
    from asyncio import Task

    from isobox._backends.docker.found import Found
    from isobox._backends.docker.interpreter import Kind
    from isobox.abc import Availability, Sandbox, SandboxSpec


class DockerProvider(Provider):
    """Makes containers, and finds those that are there."""

    name = "docker"

    def __init__(self, options: DockerOptions | None = None) -> None:
        self._options = options or DockerOptions()

    @override
    async def probe(self) -> Availability:
        try:
            place = places.find(self._options.engine)
            engine = Engine(place)
            try:
                ability = Ability.of(await engine.info())
            finally:
                await engine.aclose()
        except (BackendUnavailableError, InvalidArgumentError, EngineError) as error:
            return doctor.of_failure(error)
        return doctor.of_engine(place, ability)

    @override
    async def create(self, spec: SandboxSpec, /) -> Sandbox:
        if not self._options.image:
            raise InvalidArgumentError(
                "the docker backend needs an image; name one that the engine has"
            )
        engine = Engine(places.find(self._options.engine))
        try:
            return await self._create(engine, spec)
        except EngineError as error:
            await engine.aclose()
            raise diagnosis.of_create(error, self._options.image) from error
        except BaseException:
            with anyio.CancelScope(shield=True):
                await engine.aclose()
            raise

    async def forget_image(self) -> None:
        """Remove the image that a workspace's fork was made of."""
        engine = Engine(places.find(self._options.engine))
        try:
            await engine.remove_image(self._options.image)
        except EngineError as error:
            raise diagnosis.of_create(error, self._options.image) from error
        finally:
            await engine.aclose()

    async def _create(self, engine: Engine, spec: SandboxSpec) -> Sandbox:
        able = asyncio.create_task(_able(engine))
        try:
            image = Image.of(await engine.image(self._options.image))
            recipe = Recipe(spec, self._options, image, engine.place)
            await refuse_neighbours(engine, [each.source for each in spec.mounts])
            shown = Shown(recipe)
            try:
                return await _inhabited(engine, recipe, able, shown)
            except BaseException:
                # Another host's container may show them.
                if not self._options.named:
                    shown.release()
                raise
        finally:
            able.cancel()
            await asyncio.gather(able, return_exceptions=True)


async def _able(engine: Engine) -> Ability:
    """Return what an engine can do.

    Raises:
        BackendUnavailableError: Not enough.
    """
    ability = Ability.of(await engine.info())
    about = doctor.of_engine(engine.place, ability)
    if not about.ok:
        raise BackendUnavailableError(about.reason, fix=about.fix, backend="docker")
    return ability


async def _inhabited(
    engine: Engine, recipe: Recipe, able: Task[Ability], shown: Shown
) -> DockerSandbox | DockerShellSandbox:
    """Reach the workspace's container with the first Python that works, or none."""
    found = await look(engine, recipe) if recipe.options.named else None
    if found is None or not found.as_wanted:
        # What runs already is come to while the engine tells what it can do, which
        # takes it long: it starts programs for that.
        await asyncio.gather(able, sweep(engine))
    kinds = _kinds(found, recipe)
    lacking: list[Kind] = []
    for kind in kinds:
        try:
            inhabit = _shelled if kind == "none" else _guested
            made = await inhabit(engine, recipe, able, shown, kind=kind, found=found)
        except (NotBegunError, NoInterpreterError) as error:
            if kind == kinds[-1]:
                raise
            if isinstance(error, NoInterpreterError) or error.lasting:
                lacking.append(kind)
            found = None
        else:
            for each in lacking:
                interpreter.lack(recipe.image, each, recipe.options.runtime)
            return made
    raise AssertionError(kinds)


def _kinds(found: Found | None, recipe: Recipe) -> tuple[Kind, ...]:
    """Return what to try: what is in a container that is there, else any."""
    options = recipe.options
    kinds = interpreter.kinds(options.python, recipe.image, options.runtime)
    there: tuple[Kind, ...] = () if found is None else interpreter.named(found.kind)
    return there if set(there) & set(kinds) else kinds


async def _guested(
    engine: Engine,
    recipe: Recipe,
    able: Task[Ability],
    shown: Shown,
    *,
    kind: Kind,
    found: Found | None,
) -> DockerSandbox:
    python = await interpreter.get(kind, recipe.image, engine.place)
    recipe.brought = python.directory
    guest = Guest(engine, recipe, python)
    reached = await Life(engine, recipe, guest, found).reach()
    try:
        ability = await able
        tenancy = Tenancy(engine, recipe, guest, reached, shown)
        await tenancy.know()
    except BaseException:
        with anyio.CancelScope(shield=True):
            await reached.link.aclose()
        raise
    return DockerSandbox(tenancy, ability)


async def _shelled(
    engine: Engine,
    recipe: Recipe,
    able: Task[Ability],
    shown: Shown,
    *,
    kind: Kind,
    found: Found | None,
) -> DockerShellSandbox:
    del kind
    ability = await able
    recipe.brought = None
    shell = Shell(engine, recipe)
    reached = await Life(engine, recipe, shell, found).reach()
    tenancy = Tenancy(engine, recipe, shell, reached, shown)
    await tenancy.know()
    return await DockerShellSandbox.inhabit(tenancy, ability)
