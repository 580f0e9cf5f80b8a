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
from isobox._backends.docker.sweep import sweep
from isobox._backends.docker.tenancy import Tenancy
from isobox.abc import Provider
from isobox.errors import BackendUnavailableError, InvalidArgumentError

if TYPE_CHECKING:
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
        found, info, _ = await asyncio.gather(
            engine.image(self._options.image), engine.info(), sweep(engine)
        )
        ability = Ability.of(info)
        about = doctor.of_engine(engine.place, ability)
        if not about.ok:
            raise BackendUnavailableError(
                about.reason, fix=about.fix, backend=self.name
            )
        recipe = Recipe(spec, self._options, Image.of(found), engine.place)
        shown = Shown(recipe)
        try:
            return await _inhabited(engine, recipe, ability, shown)
        except BaseException:
            shown.release()
            raise


async def _inhabited(
    engine: Engine, recipe: Recipe, ability: Ability, shown: Shown
) -> DockerSandbox | DockerShellSandbox:
    """Reach the workspace's container with the first Python that works, or none."""
    kinds = await _kinds(engine, recipe)
    for number, kind in enumerate(kinds):
        try:
            inhabit = _shelled if kind == "none" else _guested
            made = await inhabit(kind, engine, recipe, ability, shown)
        except (NotBegunError, NoInterpreterError):
            if kind == kinds[-1]:
                raise
        else:
            for failed in kinds[:number]:
                interpreter.lack(recipe.image, failed, recipe.options.runtime)
            return made
    raise AssertionError(kinds)


async def _kinds(engine: Engine, recipe: Recipe) -> tuple[Kind, ...]:
    """Return what to try: what is in a container that is there, else any."""
    options = recipe.options
    kinds = interpreter.kinds(options.python, recipe.image, options.runtime)
    found = await look(engine, recipe) if options.named else None
    there: tuple[Kind, ...] = () if found is None else interpreter.named(found.kind)
    return there if set(there) & set(kinds) else kinds


async def _guested(
    kind: Kind, engine: Engine, recipe: Recipe, ability: Ability, shown: Shown
) -> DockerSandbox:
    python = await interpreter.get(kind, recipe.image, engine.place)
    recipe.brought = python.directory
    guest = Guest(engine, recipe, python)
    reached = await Life(engine, recipe, guest).reach()
    tenancy = Tenancy(engine, recipe, guest, reached, shown)
    await tenancy.know()
    return DockerSandbox(tenancy, ability)


async def _shelled(
    kind: Kind, engine: Engine, recipe: Recipe, ability: Ability, shown: Shown
) -> DockerShellSandbox:
    del kind
    recipe.brought = None
    shell = Shell(engine, recipe)
    reached = await Life(engine, recipe, shell).reach()
    tenancy = Tenancy(engine, recipe, shell, reached, shown)
    await tenancy.know()
    return await DockerShellSandbox.inhabit(tenancy, ability)
