"""How a container comes to be, is found again, and goes."""

from __future__ import annotations

import io
import tarfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from isobox._backends.docker import diagnosis, labels
from isobox._backends.docker.arrival import Arrival
from isobox._backends.docker.engine import EngineError, part
from isobox._backends.docker.link import Link
from isobox._backends.docker.recipe import ROOT
from isobox._guest import daemon
from isobox.errors import (
    BackendUnavailableError,
    InvalidArgumentError,
    SandboxLostError,
)

if TYPE_CHECKING:
    from isobox._backends.docker.engine import Answer, Engine
    from isobox._backends.docker.options import User
    from isobox._backends.docker.recipe import Recipe

PYTHON: Final = "python3"


@dataclass(frozen=True, slots=True)
class Found:
    """A container of a workspace, as the engine describes it."""

    id: str
    key: str
    state: Answer
    changed: tuple[str, ...]
    limits: dict[str, int]

    @property
    def paused(self) -> bool:
        return self.state.get("Paused") is True

    @property
    def running(self) -> bool:
        return self.state.get("Running") is True


@dataclass(frozen=True, slots=True)
class Reached:
    """A container and the way to its guest."""

    container: str
    link: Link
    arrival: Arrival


class Life:
    """One workspace's container on one engine."""

    def __init__(self, engine: Engine, recipe: Recipe) -> None:
        self._engine = engine
        self._recipe = recipe
        self._name = labels.container(recipe.spec.id)

    async def reach(self) -> Reached:
        """Return the workspace's container with a way to its guest.

        One that is there is taken if it is what the recipe says.

        Raises:
            BackendUnavailableError: The engine cannot make or start it.
            InvalidArgumentError: Another's container has the name.
        """
        if not self._recipe.options.named:
            return await self._created(Arrival("created"))
        found = await self._found()
        if found is None:
            return await self._created_or_found()
        return await self._taken(found)

    async def _created_or_found(self) -> Reached:
        try:
            return await self._created(Arrival("created"))
        except _NameTakenError:
            # Another host was faster.
            found = await self._found()
            if found is None:
                raise
            return await self._taken(found)

    # What is there.

    async def _found(self) -> Found | None:
        try:
            answer = await self._engine.inspect(self._name)
        except EngineError as error:
            if error.missing:
                return None
            raise diagnosis.of_create(error, self._recipe.options.image) from error
        known = labels.of(answer)
        if known.get(labels.WORKSPACE) != self._recipe.spec.id:
            raise InvalidArgumentError(
                f"the container {self._name} is not isobox's; remove or rename it, or "
                "choose another workspace_id"
            )
        return Found(
            id=str(answer.get("Id", "")),
            key=known.get(labels.KEY, ""),
            state=part(answer, "State"),
            changed=labels.changed(known, self._recipe.digests()),
            limits=_limits(part(answer, "HostConfig")),
        )

    async def _taken(self, found: Found) -> Reached:
        if found.changed:
            return await self._recreated(found, found.changed)
        limited = found.limits != self._recipe.limits()
        if limited and not await self._updated(found):
            return await self._recreated(found, ("limits",))
        why = self._trouble(found)
        if found.paused:
            await self._engine.unpause(found.id)
        if not found.running:
            return await self._restarted(found, why)
        try:
            link = await self._link(found.id, found.key)
        except SandboxLostError as error:
            return await self._recreated(found, (error.message,))
        arrival = (
            Arrival("updated", ("limits",)) if limited else Arrival("attached", why)
        )
        return Reached(found.id, link, arrival)

    @staticmethod
    def _trouble(found: Found) -> tuple[str, ...]:
        why = diagnosis.of_state(found.state)
        return () if why is None else (why,)

    async def _updated(self, found: Found) -> bool:
        """Give a container other limits; returns whether it has them."""
        wanted = self._recipe.limits()
        # The engine has no word for taking a limit away.
        if found.limits.keys() - wanted.keys():
            return False
        try:
            answer = await self._engine.update(found.id, wanted)
        except EngineError:
            return False
        return diagnosis.discarded(answer) is None

    async def _restarted(self, found: Found, why: tuple[str, ...]) -> Reached:
        try:
            link = await self._begun(found.id, found.key)
        except (EngineError, SandboxLostError):
            return await self._recreated(found, why)
        return Reached(found.id, link, Arrival("restarted", why))

    async def _recreated(self, found: Found, why: tuple[str, ...]) -> Reached:
        await self._engine.remove(found.id)
        return await self._created(Arrival("recreated", why))

    # What is made.

    async def _created(self, arrival: Arrival) -> Reached:
        key = daemon.new_key()
        container = await self._made(key)
        try:
            if self._recipe.spec.workdir is None:
                await self._own_volume()
            link = await self._begun(container, key)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self._undone(container)
            if isinstance(error, EngineError):
                raise diagnosis.of_create(error, self._recipe.options.image) from error
            if isinstance(error, SandboxLostError):
                raise BackendUnavailableError(
                    f"the guest does not start: {error.message}", backend="docker"
                ) from error
            raise
        return Reached(container, link, arrival)

    async def _undone(self, container: str) -> None:
        await self._engine.remove(container)
        if not self._recipe.options.named:
            await self._engine.remove_volume(labels.volume(self._recipe.spec.id))

    async def _made(self, key: str) -> str:
        config = self._recipe.config(daemon.loader_argv(PYTHON), key)
        try:
            answer = await self._engine.create(self._name, config)
        except EngineError as error:
            if error.conflict:
                raise _NameTakenError(
                    f"the engine has a container {self._name} already",
                    backend="docker",
                ) from error
            raise diagnosis.of_create(error, self._recipe.options.image) from error
        container = str(answer.get("Id", ""))
        if (left_out := diagnosis.discarded(answer)) is not None:
            await self._engine.remove(container)
            raise left_out
        return container

    async def _own_volume(self) -> None:
        """Give the workspace's volume, which is root's at first, to its user.

        Where the root is read-only the engine changes nothing above a volume, so
        a container does it that never starts.
        """
        hand = await self._engine.create(f"{self._name}-hand", self._recipe.hand())
        container = str(hand.get("Id", ""))
        try:
            await self._engine.unpack(container, "/", _folder(self._recipe.user))
        finally:
            with anyio.CancelScope(shield=True):
                await self._engine.remove(container)

    async def _begun(self, container: str, key: str) -> Link:
        """Start a container and give its first process the guest."""
        stream = await self._engine.attach(container)
        try:
            await self._engine.start(container)
            told = {**self._recipe.guest(), "key": key, "name": daemon.NAME}
            stream.write(daemon.program(told))
            try:
                return await self._link(container, key)
            except SandboxLostError as error:
                said = stream.complaint.decode("utf-8", "replace").strip()
                raise diagnosis.lost(f"{error.message} {said}".strip()) from error
        finally:
            stream.abort()

    async def _link(self, container: str, key: str) -> Link:
        return await Link.open(
            self._engine,
            container,
            python=PYTHON,
            user=self._recipe.user,
            key=key,
            env=self._recipe.environment(),
        )


def _limits(host: Answer) -> dict[str, int]:
    """Return the limits that a container has, as a recipe names them."""
    names = ("PidsLimit", "Memory", "MemorySwap", "NanoCpus")
    found = {name: host.get(name) for name in names}
    return {
        name: value for name, value in found.items() if type(value) is int and value > 0
    }


class _NameTakenError(BackendUnavailableError):
    """Another container has the name."""


def _folder(user: User) -> bytes:
    """Return an archive that makes the workspace's root belong to its user."""
    folder = tarfile.TarInfo(ROOT.lstrip("/"))
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    folder.mtime = time.time()
    folder.uid, folder.gid = user.uid, user.gid
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(folder)
    return archive.getvalue()
