"""Processes as the host's /proc shows them, for tests of backends."""

from __future__ import annotations

import contextlib
import os
import signal

import anyio

_PATIENCE = 10.0


async def kill_tree(pid: int) -> None:
    """Kill a process and what descends from it; all are dead on return.

    Raises:
        TimeoutError: One of them does not die.
    """
    doomed = [pid, *_descendants(pid)]
    for each in doomed:
        with contextlib.suppress(ProcessLookupError):  # it died with its parent
            os.kill(each, signal.SIGKILL)
    with anyio.fail_after(_PATIENCE):
        while any(map(_lives, doomed)):  # noqa: ASYNC110 - /proc tells no event
            await anyio.sleep(0.001)


def runs_on_host(name: str, argument: str) -> bool:
    """Whether a program called `name` runs with `argument` among its own."""
    wanted = [name.encode(), argument.encode()]
    return any(_arguments(pid)[:2] == wanted for pid in _pids())


def _descendants(pid: int) -> list[int]:
    children = _text(f"/proc/{pid}/task/{pid}/children").split()
    below = [int(child) for child in children]
    return below + [deeper for child in below for deeper in _descendants(child)]


def _lives(pid: int) -> bool:
    state = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return bool(state) and state[0] not in "ZX"


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _arguments(pid: int) -> list[bytes]:
    return _text(f"/proc/{pid}/cmdline").encode("utf-8", "surrogateescape").split(b"\0")


def _text(path: str) -> str:
    """Return a file of /proc, empty once its process is gone."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""
