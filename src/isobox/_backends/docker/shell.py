"""Containers without any Python: a shell is run for every operation."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import anyio
from typing_extensions import override

from isobox._backends.docker import diagnosis, groups
from isobox._backends.docker.engine import EngineError, part
from isobox._channel.deadline import deadline
from isobox._shell.exec import ENDED, PIECE, STDERR, STDOUT
from isobox.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._backends.docker.engine import Engine
    from isobox._backends.docker.hijack import Hijacked
    from isobox._backends.docker.recipe import Recipe
    from isobox._backends.docker.tenancy import Tenancy
    from isobox.abc import WindowSize

#: How a program ends that is killed, alone or with its container.
_KILLED: Final = 137
#: Seconds that a program may take to start.
_START: Final = 30.0
#: Seconds until the engine is asked again for what it does not know yet.
_ASK_AGAIN: Final = 0.01

#: The first process. It waits for the end of its input, which the host holds, then
#: for as long as the container may stay alone, and meanwhile reaps what others leave
#: behind. It is not of the commands' user, who could stop `cat` or hold its input.
_IDLE: Final = """
while :; do
  cat > /dev/null
  case $? in
    0) break;;
    126|127) sleep 1;;
  esac
done
[ "$1" = 0 ] || exec sleep "$1"
"""


class Shell:
    """A shell as what lives in a container."""

    kind = "none"

    def __init__(self, engine: Engine, recipe: Recipe) -> None:
        self._engine = engine
        self._recipe = recipe

    def command(self) -> list[str]:
        """Return the container's command."""
        linger = self._recipe.options.stays if self._recipe.options.named else 0
        return ["sh", "-c", _IDLE, "isobox", f"{linger:.0f}"]

    async def begin(self, stream: Hijacked, container: str, key: str) -> Execs:
        """Hold the first process's input, and with it the container.

        Raises:
            BackendUnavailableError: Commands would be in groups of the image's.
        """
        del key
        held = Execs(self._engine, container, self._recipe, stream)
        await held.refuse_groups()
        return held

    async def reach(self, container: str, key: str) -> Execs:
        """Use one that runs, and that another host may hold."""
        del key
        return Execs(self._engine, container, self._recipe, None)


class Execs:
    """Runs programs in one container.

    Args:
        engine: The engine.
        container: The container's id.
        recipe: What it is made of.
        held: The first process's input, if it is ours to hold.
    """

    def __init__(
        self, engine: Engine, container: str, recipe: Recipe, held: Hijacked | None
    ) -> None:
        self._engine = engine
        self._container = container
        self._recipe = recipe
        self._held = held
        self._tenancy: Tenancy[Execs] | None = None
        self._lock = anyio.Lock()

    async def start(
        self, argv: Sequence[str], *, tty: WindowSize | None
    ) -> ExecProcess:
        """Start a program; see `isobox._shell.exec.Exec`.

        Raises:
            SandboxLostError: The container is not there, or does not run.
        """
        size = None if tty is None else (tty.columns, tty.rows)
        try:
            exec_id, stream = await self._started(list(argv), size)
        except EngineError as error:
            if self._tenancy is None:
                why = await diagnosis.of_end(self._engine, self._container)
                raise diagnosis.lost(f"{why} ({error.message})") from error
            await self._come_back(self._tenancy)
            exec_id, stream = await self._started(list(argv), size)
        process = ExecProcess(self._engine, self._container, exec_id, stream)
        if tty is not None:
            await process.resize(tty.columns, tty.rows)
        return process

    async def _started(
        self, argv: list[str], size: tuple[int, int] | None
    ) -> tuple[str, Hijacked]:
        try:
            exec_id = await self._engine.prepare(
                self._container, argv, str(self._recipe.user), tty=size
            )
            return exec_id, await self._engine.run(exec_id, tty=size is not None)
        except BackendUnavailableError as error:
            raise diagnosis.lost(str(error)) from error

    async def refuse_groups(self) -> None:
        """Look at a program as commands are; the first process is another user's.

        Raises:
            BackendUnavailableError: It is in groups that nobody asked for.
            SandboxLostError: It does not run.
        """
        program = await self.start(["cat"], tty=None)
        try:
            async with deadline(_START):
                await program.send(b"\n")
                await program.receive()
                await groups.refuse(await program.known_pid(), self._recipe.user)
                # What has ended may have been another while it was looked at.
                await program.pid()
        except (BrokenPipeError, TimeoutError):
            raise diagnosis.lost("the image's `cat` does not run") from None
        finally:
            await program.aclose()

    def comes_back(self, tenancy: Tenancy[Execs]) -> None:
        """Let a named workspace's container be come back to when it was lost."""
        if self._recipe.options.named:
            self._tenancy = tenancy

    async def _come_back(self, tenancy: Tenancy[Execs]) -> None:
        lost = self._container
        async with self._lock:
            if self._container != lost:
                return
            await self.aclose()
            await tenancy.come_back()
            self._container, self._held = tenancy.container, tenancy.link._held
            tenancy.link = self
        tenancy.tell()

    async def aclose(self) -> None:
        """Let go of the container."""
        if self._held is not None:
            self._held.abort()


class ExecProcess(asyncio.Protocol):
    """One program that the engine runs; see `isobox._shell.exec.Running`."""

    def __init__(
        self, engine: Engine, container: str, exec_id: str, stream: Hijacked
    ) -> None:
        self._engine = engine
        self._container = container
        self._id = exec_id
        self._stream = stream
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._changed = anyio.Event()
        self._writable = anyio.Event()
        self._writable.set()
        self._over = False
        stream.on_piece = self._arrived
        stream.give(self)

    # asyncio's side.

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        self._wake()
        self._writable.set()

    @override
    def pause_writing(self) -> None:
        self._writable = anyio.Event()

    @override
    def resume_writing(self) -> None:
        self._writable.set()

    def _arrived(self, output: int, piece: bytes) -> None:
        if not self._size:
            self._wake()
        self._pieces.append((STDERR if output == STDERR else STDOUT, piece))
        self._size += len(piece)
        if self._size >= PIECE:
            self._stream.pause()

    def _wake(self) -> None:
        self._changed.set()

    # The program's.

    async def send(self, data: bytes) -> None:
        """Write all of `data`.

        Raises:
            BrokenPipeError: It reads no more.
        """
        if not self._over:
            self._stream.write(data)
            await self._writable.wait()
        if self._over:
            await self._check()
            raise BrokenPipeError

    async def send_eof(self) -> None:
        """Close its standard input."""
        self._stream.write_eof()

    async def receive(self) -> tuple[int, bytes]:
        """Return the next piece and whose it is."""
        while not self._pieces:
            if self._over:
                return ENDED, b""
            self._changed = anyio.Event()
            await self._changed.wait()
        output, piece = self._pieces.popleft()
        self._size -= len(piece)
        if self._size < PIECE:
            self._stream.resume()
        return output, piece

    async def pid(self) -> int:
        """Return its number on the engine's machine.

        Raises:
            BrokenPipeError: It does not run.
            SandboxLostError: The container is gone.
        """
        try:
            found = await self._engine.outcome(self._id)
        except (EngineError, BackendUnavailableError) as error:
            raise await self._lost() from error
        number: object = found.get("Pid")
        if found.get("Running") is not True or not isinstance(number, int):
            raise BrokenPipeError
        return number

    async def known_pid(self) -> int:
        """Return its number once the engine knows it, which may be after it prints.

        SAFETY: what is not looked at for want of a number could be in any group.

        Raises:
            BrokenPipeError: It does not run.
            SandboxLostError: The container is gone.
        """
        while not (number := await self.pid()):  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(_ASK_AGAIN)
        return number

    async def wait(self) -> int:
        """Return its status.

        Raises:
            SandboxLostError: The container is gone.
        """
        while (await self.receive())[0] != ENDED:
            pass
        try:
            found = await self._engine.outcome(self._id)
        except (EngineError, BackendUnavailableError) as error:
            raise await self._lost() from error
        code: object = found.get("ExitCode")
        if found.get("Running") is True or type(code) is not int:
            raise await self._lost()
        if code == _KILLED:
            await self._check()
        return code & 0xFF

    async def _check(self) -> None:
        """Tell what ends with its container from what ends alone.

        Raises:
            SandboxLostError: The container is gone.
        """
        try:
            state = part(await self._engine.inspect(self._container), "State")
        except (EngineError, BackendUnavailableError) as error:
            raise await self._lost() from error
        if state.get("Running") is not True:
            raise await self._lost()

    async def _lost(self) -> Exception:
        return diagnosis.lost(await diagnosis.of_end(self._engine, self._container))

    async def resize(self, columns: int, rows: int) -> None:
        """Change the size of its terminal."""
        try:
            await self._engine.resize(self._id, columns, rows)
        except EngineError:
            return  # it has ended
        except BackendUnavailableError as error:
            raise diagnosis.lost(str(error)) from error

    async def aclose(self) -> None:
        """Let go of it."""
        self._stream.abort()
