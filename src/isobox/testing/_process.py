"""Commands of the memory sandbox: tasks that live and die like processes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from typing import TYPE_CHECKING

import anyio
from typing_extensions import override

from isobox._core.results import signal_name
from isobox.abc import Exit, Process
from isobox.errors import (
    InvalidArgumentError,
    IsoboxError,
    SandboxLostError,
    UnsupportedError,
)
from isobox.testing._pipes import Capture, Pipe, Tee

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from isobox.abc import Spawn
    from isobox.testing._pipes import Output

_HARMLESS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}


class MemoryProcess(Process):
    """One command as a task.

    `main` gets the command's three streams and returns its status.
    """

    def __init__(
        self,
        op: Spawn,
        number: int,
        main: Callable[[Pipe, Output, Output], Awaitable[int]],
        spool: Callable[[bytes], None],
    ) -> None:
        super().__init__()
        self.id = f"p{number}"
        self.pid = number
        self.line = " ".join(op.argv)
        self.stdout = self._out = Pipe()
        self.stderr = self._err = Pipe()
        self._op = op
        self._spool = spool
        self._stdin = Pipe()
        self._captures = [Capture(op.capture or 0), Capture(op.capture or 0)]
        self._signal: int | None = None
        self._timed_out = False
        self._idle_timed_out = False
        self._lost = False
        self._fed = 0
        self._started = self._last_output = time.monotonic()
        self._exit: Exit | None = None
        self._over = anyio.Event()
        if not op.stdin:
            self._stdin.end()
        self._main = asyncio.create_task(self._run(main))
        self._life = asyncio.create_task(self._supervise())

    async def _run(self, main: Callable[[Pipe, Output, Output], Awaitable[int]]) -> int:
        out, err = self._output(0, self._out), self._output(1, self._err)
        try:
            return await main(self._stdin, out, err)
        except BrokenPipeError:
            self._signal = signal.SIGPIPE
            return 0
        except (IsoboxError, ValueError, IndexError) as error:
            # A program's own failure: it reports it as any program does.
            await err.put(f"{self._op.argv[0]}: {error}\n".encode())
            return 1

    def _output(self, number: int, pipe: Pipe) -> Output:
        captured = self._op.capture is not None
        return Tee(self._captures[number] if captured else pipe, self._note)

    def _note(self, data: bytes) -> None:
        self._last_output = time.monotonic()
        self._spool(data)

    async def _supervise(self) -> None:
        while not self._main.done():
            await asyncio.wait([self._main], timeout=self._patience())
            self._check_time()
        with contextlib.suppress(asyncio.CancelledError):
            await self._main
        self._finish()

    def _patience(self) -> float | None:
        now = time.monotonic()
        ends: list[float] = []
        if self._op.timeout is not None:
            ends.append(self._started + self._op.timeout - now)
        if self._op.idle_timeout is not None:
            ends.append(self._last_output + self._op.idle_timeout - now)
        return max(0.0, min(ends)) if ends and self._signal is None else None

    def _check_time(self) -> None:
        if self._main.done() or self._signal is not None:
            return
        now, op = time.monotonic(), self._op
        if op.timeout is not None and now >= self._started + op.timeout:
            self._timed_out = True
        elif op.idle_timeout is not None and now >= self._last_output + op.idle_timeout:
            self._timed_out = self._idle_timed_out = True
        if self._timed_out:
            self._strike(signal.SIGKILL)

    def _strike(self, number: int) -> None:
        self._signal = number
        self._main.cancel()

    def _finish(self) -> None:
        code = 128 + self._signal if self._signal else self._main.result()
        captured = self._op.capture is not None
        out, err = (capture.captured() for capture in self._captures)
        self._exit = Exit(
            exit_code=code,
            signal=signal_name(self._signal) if self._signal else None,
            timed_out=self._timed_out,
            idle_timed_out=self._idle_timed_out,
            duration=time.monotonic() - self._started,
            stdout=out if captured else None,
            stderr=err if captured else None,
            spool=self._op.spool,
        )
        for pipe in (self._out, self._err):
            if self._lost:
                pipe.lose()
            pipe.end()
        self._stdin.end()
        self._over.set()
        fed = {"stdin_bytes": self._fed} if self._op.stdin else {}
        self._ended({"exit_code": code, **fed})

    @override
    async def write(self, data: bytes) -> None:
        if not self._op.stdin:
            raise InvalidArgumentError("started without stdin=True")
        self._require_found()
        try:
            await self._stdin.put(data)
            self._fed += len(data)
        finally:
            self._require_found()

    @override
    async def write_eof(self) -> None:
        self._require_found()
        self._stdin.end()

    @override
    async def wait(self) -> Exit:
        await self._over.wait()
        self._require_found()
        assert self._exit is not None  # noqa: S101 - set before the event
        return self._exit

    @override
    async def signal(self, number: int) -> None:
        self._require_found()
        if self._exit is None and number not in _HARMLESS:
            self._strike(number)

    @override
    async def kill(self) -> None:
        if self._exit is None:
            self._strike(signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await self._over.wait()

    @override
    async def resize(self, columns: int, rows: int) -> None:
        raise UnsupportedError("the memory sandbox has no terminals")

    @override
    async def aclose(self) -> None:
        await self.kill()
        await self.stdout.aclose()
        await self.stderr.aclose()

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._exit is not None

    def lose(self) -> None:
        """End it as its sandbox does when it crashes."""
        self._lost = True
        if self._exit is None:
            self._strike(signal.SIGKILL)

    def _require_found(self) -> None:
        if self._lost:
            raise SandboxLostError("the sandbox is gone")
