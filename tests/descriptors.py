"""What this process has open, and what a test has left open."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def opened() -> dict[int, tuple[int, int, int]]:
    """Return every descriptor, with what tells its file from others."""
    found = {}
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # that of the listing is closed again
            about = os.fstat(int(name))
            found[int(name)] = (about.st_dev, about.st_ino, about.st_mode)
    return found


@contextlib.contextmanager
def none_left_open() -> Iterator[None]:
    """Fail if something is open afterwards that was not.

    What is closed meanwhile is no failure: tests before may have left it to the
    garbage collector.
    """
    before = opened()
    yield
    assert opened().items() - before.items() == set()
