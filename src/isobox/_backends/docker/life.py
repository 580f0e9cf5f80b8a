"""How a container comes to be, is found again, and goes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import tarfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import anyio
import anyio.to_thread

from isobox._backends.docker import diagnosis, groups, labels
from isobox._backends.docker.arrival import Arrival
from isobox._backends.docker.engine import EngineError, part
from isobox._backends.docker.found import check_volume, look
from isobox._backends.docker.options import ROOT
from isobox._channel.channel import SilentError
from isobox.errors import (
    BackendUnavailableError,
    ConflictError,
    InvalidArgumentError,
    IsoboxError,
    SandboxLostError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from isobox._backends.docker.engine import Engine
    from isobox._backends.docker.found import Found
    from isobox._backends.docker.hijack import Hijacked
    from isobox._backends.docker.options import User
    from isobox._backends.docker.recipe import Recipe

#: Looks at a container that another host is about to start, and seconds between.
_LOOKS, _PAUSE = 100, 0.1
#: Looks at one that another host starts again.
_STARTS = 300

#: How often another host may be faster before it is one that wants it otherwise.
_TURNS = 8

#: What a container that was begun may fail with.
_Failure = EngineError | SandboxLostError | BackendUnavailableError

#: What leads to the guest in a container.
LinkT = TypeVar("LinkT")
LinkT_co = TypeVar("LinkT_co", covariant=True)


class Inhabitant(Protocol[LinkT_co]):
    """What lives in a container: it is begun once, and reached any time."""

    @property
    def kind(self) -> str:
        """What it is, for the container's labels."""
        ...

    def command(self) -> list[str]:
        """Return the container's command."""
        ...

    async def begin(self, stream: Hijacked, container: str, key: str) -> LinkT_co:
        """Tell the first process what it needs, and reach it.

        Raises:
            SandboxLostError: It did not come up.
        """
        ...

    async def reach(self, container: str, key: str) -> LinkT_co:
        """Reach one that runs.

        Raises:
            SandboxLostError: It does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Reached(Generic[LinkT]):
    """A container and the way to its guest.

    Attributes:
        container: Its id.
        link: The way.
        arrival: How it was come to.
        pid: Its first process, where the engine has told of it.
    """

    container: str
    link: LinkT
    arrival: Arrival
    pid: int | None = None


class NotBegunError(BackendUnavailableError):
    """A container was made, and what should live in it did not come up.

    Attributes:
        lasting: Whether it will not come up in another container either.
    """

    lasting = False


class Life(Generic[LinkT]):
    """One workspace's container on one engine.

    Args:
        engine: The engine.
        recipe: What the container is made of.
        inhabitant: What lives in it.
        found: The container, if somebody has just looked.
    """

    def __init__(
        self,
        engine: Engine,
        recipe: Recipe,
        inhabitant: Inhabitant[LinkT],
        found: Found | None = None,
    ) -> None:
        self._engine = engine
        self._recipe = recipe
        self._inhabitant = inhabitant
        self._found = found
        self._name = labels.container(recipe.spec.id)

    async def reach(self) -> Reached[LinkT]:
        """Return the workspace's container with a way to its guest.

        One that is there is taken if it is what the recipe says.

        Raises:
            NotBegunError: What should live in it does not come up.
            BackendUnavailableError: The engine cannot make it.
            ConflictError: Other hosts make it anew, with other options, each time.
            InvalidArgumentError: Another's container has the name.
        """
        for _ in range(_TURNS):
            with contextlib.suppress(_OvertakenError):
                return await self._reached()
            await asyncio.sleep(_PAUSE)
        raise ConflictError(
            f"other hosts make workspace {self._recipe.spec.id} anew whenever this "
            "one does: open it everywhere with the same image, limits and mounts",
            backend="docker",
        )

    async def _reached(self) -> Reached[LinkT]:
        found, self._found = self._found, None
        if found is None and self._recipe.options.named:
            found = await look(self._engine, self._recipe)
        if found is None:
            return await self._created(Arrival("created"))
        return await self._taken(found)

    # What is there.

    async def _taken(self, found: Found) -> Reached[LinkT]:
        found = await self._settled(found)
        if found.never_started:
            # Its host died before the volume was handed over.
            return await self._recreated(found, ("it never started",))
        if found.changed:
            return await self._recreated(found, found.changed)
        if found.kind != self._inhabitant.kind:
            return await self._recreated(found, ("python",))
        limited = found.limits != self._recipe.limits()
        if limited and not await self._updated(found):
            return await self._recreated(found, ("limits",))
        if found.paused:
            await self._unpaused(found)
        if not found.running:
            return await self._restarted(found)
        if found.pid is not None and not await self._shows(found.id, found.pid):
            return await self._recreated(found, ("mounts",))
        try:
            link = await self._inhabitant.reach(found.id, found.key)
        except SandboxLostError as error:
            return await self._recreated(found, (error.message,))
        if limited:
            arrival = Arrival("updated", ("limits",))
        else:
            arrival = Arrival("attached", found.trouble)
        return Reached(found.id, link, arrival, found.pid)

    async def _settled(self, found: Found) -> Found:
        """Wait for a container that another host is about to start."""
        for _ in range(_LOOKS):
            if not found.never_started:
                break
            await asyncio.sleep(_PAUSE)
            found = await look(self._engine, self._recipe) or found
        return found

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

    async def _unpaused(self, found: Found) -> None:
        try:
            await self._engine.unpause(found.id)
        except EngineError as error:
            raise _OvertakenError("another host has let it go on") from error

    async def _restarted(self, found: Found) -> Reached[LinkT]:
        try:
            async with self._turn():
                # Who holds the first process's input is not joined: that ends it.
                if not await self._is_still(found):
                    raise _OvertakenError("another host has started it")
                link = await self._begun(found.id, found.key)
        except (EngineError, SandboxLostError):
            return await self._recreated(found, found.trouble)
        return Reached(found.id, link, Arrival("restarted", found.trouble))

    async def _is_still(self, found: Found) -> bool:
        now = await look(self._engine, self._recipe)
        return now is not None and now.id == found.id and not now.running

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None]:
        """Be the only host that starts the container.

        An engine tells more than one that it was they, but gives a name to one: that
        of a container which never starts.
        """
        name = labels.turn(self._recipe.spec.id)
        try:
            made = await self._engine.create(name, self._recipe.turn())
        except EngineError as error:
            if not error.conflict:
                raise
            await self._others_turn(name)
            raise _OvertakenError("another host starts it") from error
        try:
            yield
        finally:
            # What cannot be removed now is swept later.
            with anyio.CancelScope(shield=True), contextlib.suppress(EngineError):
                await self._engine.remove(str(made.get("Id", "")))

    async def _others_turn(self, name: str) -> None:
        """Wait until another host has started it; one that died loses its turn.

        Raises:
            InvalidArgumentError: Another's container has the name.
        """
        turn = await self._turn_of(name)
        if turn is None:
            return
        for _ in range(_STARTS):
            found = await look(self._engine, self._recipe)
            if found is None or found.running:
                return
            await asyncio.sleep(_PAUSE)
        # By its id: the name may be the next host's by now.
        await self._engine.remove(turn)

    async def _turn_of(self, name: str) -> str | None:
        """Return the id of the container that is a host's turn, if it is there."""
        try:
            answer = await self._engine.inspect(name)
        except EngineError as error:
            if error.missing:
                return None
            raise
        if labels.of(answer).get(labels.TURN) != self._recipe.spec.id:
            raise InvalidArgumentError(
                f"the container {name} is not isobox's; remove or rename it"
            )
        return str(answer.get("Id", ""))

    async def _recreated(self, found: Found, why: tuple[str, ...]) -> Reached[LinkT]:
        await self._engine.remove(found.id)
        return await self._created(Arrival("recreated", why))

    # What is made.

    async def _created(self, arrival: Arrival) -> Reached[LinkT]:
        key = labels.new_key()
        container = await self._made_with_volume(key)
        try:
            link = await self._begun(container, key)
            await groups.refuse_others(self._engine, container, self._recipe.user)
        except (EngineError, SandboxLostError, BackendUnavailableError) as error:
            raise await self._failed(container, error) from error
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._undone(container)
            raise
        return Reached(container, link, arrival)

    async def _failed(self, container: str, error: _Failure) -> Exception:
        why: Exception = error
        with anyio.CancelScope(shield=True):
            why = await self._why_not_begun(container, error)
            await self._undone(container)
        return why

    async def _why_not_begun(self, container: str, error: _Failure) -> Exception:
        """Return what it means; only NotBegunError says that another Python may do."""
        try:
            if await self._is_gone(container):
                return _OvertakenError("another host has removed it")
        except BackendUnavailableError as unavailable:
            return unavailable
        if isinstance(error, BackendUnavailableError):
            return error
        if _is_silence(error):
            return BackendUnavailableError(
                f"the guest is too slow to start in the container: {error.message}",
                fix="try again when the machine has less to do",
                backend="docker",
            )
        why = _not_begun(error.message)
        # What the engine does not find in the image will not be in it tomorrow.
        why.lasting = isinstance(error, EngineError) and _is_missing(error.message)
        return why

    async def _is_gone(self, container: str) -> bool:
        try:
            state = part(await self._engine.inspect(container), "State")
        except EngineError as error:
            return error.missing
        return state.get("Dead") is True or state.get("Status") == "removing"

    async def _made_with_volume(self, key: str) -> str:
        if self._recipe.spec.workdir is not None:
            return await self._made(key)
        if self._recipe.options.named:
            await check_volume(self._engine, self._recipe)
        made, owned = await asyncio.gather(
            self._made(key), self._own_volume(), return_exceptions=True
        )
        if isinstance(made, str) and owned is None:
            return made
        with anyio.CancelScope(shield=True):
            await self._undone(made if isinstance(made, str) else None)
        raise made if isinstance(made, BaseException) else _not_owned(owned)

    async def _undone(self, container: str | None) -> None:
        if container is not None:
            await self._engine.remove(container)
        if not self._recipe.options.named:
            await self._engine.remove_volume(labels.volume(self._recipe.spec.id))

    async def _made(self, key: str) -> str:
        self._recipe.check_sources()
        kind, command = self._inhabitant.kind, self._inhabitant.command()
        config = self._recipe.config(command, key, kind)
        try:
            answer = await self._engine.create(self._name, config)
        except EngineError as error:
            if error.conflict:
                raise _OvertakenError("another host has made it") from error
            raise diagnosis.of_create(error, self._recipe.options.image) from error
        container = str(answer.get("Id", ""))
        if (left_out := diagnosis.discarded(answer)) is not None:
            await self._undone(container)
            raise left_out
        return container

    async def _own_volume(self) -> None:
        """Give the workspace's volume, which is root's at first, to its user.

        Where the root is read-only the engine changes nothing above a volume, so
        a container does it that never starts.
        """
        name = labels.hand(self._recipe.spec.id)
        hand = await self._engine.create(name, self._recipe.hand())
        container = str(hand.get("Id", ""))
        try:
            await self._engine.unpack(container, "/", _folder(self._recipe.user))
        finally:
            with anyio.CancelScope(shield=True):
                await self._engine.remove(container)

    async def _begun(self, container: str, key: str) -> LinkT:
        # Before that: to leave a container's input ends its next start as well, if the
        # engine is slow to notice.
        self._recipe.check_sources()
        # Before the start: one that runs with nobody at its input would never end.
        stream = await self._engine.attach(container)
        try:
            await self._started(container)
        except BaseException:
            stream.abort()
            raise
        return await self._told(stream, container, key)

    async def _started(self, container: str) -> None:
        if not await self._engine.start(container):
            raise _OvertakenError("another host has started it")
        await self._check_shown(container)

    async def _check_shown(self, container: str) -> None:
        """See what it shows, before anything in it is told what to run.

        Raises:
            ConflictError: Another than what was checked.
        """
        state = part(await self._engine.inspect(container), "State")
        pid: object = state.get("Pid")
        # One that has ended shows nothing to anybody.
        if not isinstance(pid, int) or pid <= 0:
            return
        try:
            check = self._recipe.check_shown
            await anyio.to_thread.run_sync(check, container, pid)
        except IsoboxError:
            with anyio.CancelScope(shield=True):
                await self._engine.remove(container)
            raise

    async def _shows(self, container: str, pid: int) -> bool:
        """Whether one that runs shows what was checked: nobody may have looked."""
        try:
            check = self._recipe.check_shown
            await anyio.to_thread.run_sync(check, container, pid)
        except ConflictError:
            return False
        return True

    async def _told(self, stream: Hijacked, container: str, key: str) -> LinkT:
        try:
            return await self._inhabitant.begin(stream, container, key)
        except BaseException:
            stream.abort()
            raise


class _OvertakenError(Exception):
    """Another host did at the same moment what this one was about to do."""


def _not_owned(error: BaseException | None) -> BaseException:
    if isinstance(error, EngineError):
        return BackendUnavailableError(
            f"the workspace's volume cannot be made: {error.message}", backend="docker"
        )
    assert error is not None  # noqa: S101 - it failed
    return error


def _is_silence(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, SilentError):
        error = error.__cause__
    return error is not None


def _is_missing(said: str) -> bool:
    return "not found" in said or "no such file" in said


def _not_begun(why: str) -> NotBegunError:
    return NotBegunError(
        f"the guest does not start in the container: {why}",
        fix=diagnosis.of_start(why),
        backend="docker",
    )


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
