"""How the command line ends: exit statuses, signals, messages."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn, cast

import anyio

from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

#: Exit status: the command ran out of time.
TIMED_OUT = 124
#: Exit status: isobox itself failed; the command may not have run.
FAILED = 125
#: Exit status: who read our output went away.
UNREAD = 128 + signal.SIGPIPE


class Ended(SystemExit):
    """The end of a command that was run, unlike one that was not understood."""


def complain(message: str) -> None:
    """Print a message on standard error, where nobody may read it any more."""
    with contextlib.suppress(OSError):
        print(f"isobox: {printable(message)}", file=sys.stderr)  # noqa: T201


def printable(text: str, *, kept: str = "\n") -> str:
    """Return `text` without what a terminal obeys; lines stay lines.

    SAFETY: part of a message may come from a sandbox, and an escape sequence
    would write on the user's terminal in our name.
    """
    return "".join(
        char if char.isprintable() or char in kept else ascii(char)[1:-1]
        for char in text
    )


def one_line(text: str) -> str:
    """Return `text` as `printable` does, without line breaks."""
    return printable(text, kept="")


def finish(work: Callable[[], Awaitable[int]]) -> NoReturn:
    """Run `work` and exit with its status, or with 128 + n for a signal n."""
    status, caught = anyio.run(_until_signal, work)
    if caught:
        # A thread may be stuck in a write to a pipe that nobody reads.
        os._exit(status)
    raise Ended(status)


async def _until_signal(work: Callable[[], Awaitable[int]]) -> tuple[int, bool]:
    number = 0

    async def watch() -> None:
        nonlocal number
        with anyio.open_signal_receiver(*_heard()) as signals:
            ready.set()
            async for caught in signals:
                number = int(caught)
                group.cancel_scope.cancel()

    ready = anyio.Event()
    status = FAILED
    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await ready.wait()
        status = await _answered(work)
        group.cancel_scope.cancel()
    return (128 + number, True) if number else (status, False)


def _heard() -> list[signal.Signals]:
    # A signal that our parent chose to ignore (nohup, a job in the background)
    # stays ignored.
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    return [end for end in ends if signal.getsignal(end) is not signal.SIG_IGN]


async def _answered(work: Callable[[], Awaitable[int]]) -> int:
    try:
        status = await work()
    except Exception as error:  # noqa: BLE001 - a user is owed a message
        status = _explain(_innermost(error))
    return _unread() or status


def _innermost(error: Exception) -> Exception:
    if isinstance(error, ExceptionGroup):
        return _innermost(cast("ExceptionGroup[Exception]", error).exceptions[0])
    return error


def _explain(error: Exception) -> int:
    if isinstance(error, BrokenPipeError):
        _print_no_more()
        return UNREAD
    if isinstance(error, IsoboxError | OSError):
        complain(str(error))
    else:
        complain(f"internal error, please report it: {error!r}")
    return FAILED


def _unread() -> int:
    """Write what is still ours to write; return a status if nobody takes it."""
    try:
        print(end="", flush=True)  # noqa: T201
    except OSError as error:
        _print_no_more()
        return _explain(error)
    return 0


def _print_no_more() -> None:
    """Have the interpreter's end not fail for what nobody reads (status 120)."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):
        os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
