"""The user's own terminal."""

from __future__ import annotations

import os
import signal
import termios
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from isobox._core.ops import WindowSize
from isobox.cli.streams import STDIN, STDOUT

if TYPE_CHECKING:
    from collections.abc import Generator

    from isobox._core.results import Process


def size() -> WindowSize:
    """Return its size, the usual one where it does not know."""
    known = os.get_terminal_size(STDOUT)
    usual = WindowSize()
    return WindowSize(known.columns or usual.columns, known.lines or usual.rows)


@contextmanager
def raw() -> Generator[None]:
    """Hand every key to the process inside; the mode is restored after."""
    before = termios.tcgetattr(STDIN)
    try:
        tty.setraw(STDIN, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


async def follow(process: Process) -> None:
    """Resize the process's terminal whenever ours is."""
    with anyio.open_signal_receiver(signal.SIGWINCH) as changes:
        async for _ in changes:
            now = size()
            await process.resize(now.columns, now.rows)
