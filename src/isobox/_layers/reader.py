"""Has scripts read by a process that may crash, for a policy that looks inside."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import select
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from isobox._core.ops import Script, Spawn
from isobox._policy import part
from isobox._policy.shell import worker
from isobox._policy.shell.facts import Facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._core.ops import Op

#: Seconds for an answer: reading itself gives up after a third of one, and the
#: first question waits for an interpreter to start.
_PATIENCE: Final = 10.0
#: Bytes of one answer: a script has 64 KiB at most.
_LARGEST: Final = 16 << 20
#: Bytes of memory for the reading process.
_MEMORY: Final = 1 << 30

UNREAD: Final = Facts(doubts=("it could not be read",))


class Reader:
    """A process that reads scripts, started with the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: dict[str, object]) -> Facts:
        """Return the facts of a script, or that it could not be read."""
        with self._lock:
            try:
                answer = self._answered(json.dumps(question).encode() + b"\n")
                return worker.facts(json.loads(answer))
            except (OSError, ValueError):
                self._end()
                return UNREAD

    def _answered(self, question: bytes) -> bytes:
        process = self._running()
        assert process.stdin is not None  # noqa: S101 - pipes
        assert process.stdout is not None  # noqa: S101 - pipes
        process.stdin.write(question)
        process.stdin.flush()
        until = time.monotonic() + _PATIENCE
        answer = b""
        while not answer.endswith(b"\n"):
            left = until - time.monotonic()
            ready, _, _ = select.select([process.stdout], [], [], max(0, left))
            piece = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not piece or len(answer) > _LARGEST:
                raise OSError("no answer")
            answer += piece
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                [sys.executable, "-m", worker.__name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                cwd="/",
            )
            _limit(self._process.pid)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def close(self) -> None:
        """End the process; another question starts another one."""
        with self._lock:
            self._end()


class Shared:
    """One reader for every workspace of the process, while there is one."""

    def __init__(self) -> None:
        self.reader = Reader()
        self._lock = threading.Lock()
        self._users = 0

    def hold(self) -> Callable[[], None]:
        """Keep the reading process; what is returned lets it go."""
        with self._lock:
            self._users += 1
        return self._let_go

    def ask(self, question: dict[str, object]) -> Facts:
        """Return the facts of a script; no process outlives its last holder."""
        let_go = self.hold()
        try:
            return self.reader.ask(question)
        finally:
            let_go()

    def _let_go(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self.reader.close()


SHARED: Final = Shared()
atexit.register(SHARED.reader.close)


async def read(op: Op[object]) -> None:
    """Have an operation's script read, so that a policy can decide on it."""
    if isinstance(op, Spawn | Script):
        text = part.text_of(op)
        if part.known(text) is None:
            found = await anyio.to_thread.run_sync(SHARED.ask, text.plain())
            part.remember(text, found)


def _limit(pid: int) -> None:
    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, _MEMORY)):
        # macOS has no such call.
        with contextlib.suppress(AttributeError, OSError):
            resource.prlimit(pid, kind, (most, most))


def _environment() -> dict[str, str]:
    kept = ("PATH", "HOME", "PYTHONPATH", "LANG", "LC_ALL", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in kept if name in os.environ}
