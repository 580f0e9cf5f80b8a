"""The host's own names: what /etc/hosts says."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

from isobox._core.hosts import address_of
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

PATH: Final = "/etc/hosts"
#: Bytes of it that are read: lists of hosts to be blocked have several 100,000
#: lines.
_MOST: Final = 16 << 20
#: Nanoseconds since a file's last change after which another change is seen by its
#: time: no file system that is in use has coarser ones.
_SETTLED: Final = 2_000_000_000

#: Which file it is, and when it was last changed.
_State = tuple[int, ...]
#: The addresses of each name.
_Names = dict[bytes, list[str]]

#: What the file at a path says.
_KNOWN: Final[dict[str, tuple[_State, _Names]]] = {}
#: Held by who reads it: the others want the same.
_READING: Final = threading.Lock()


def addresses(host: str) -> list[str]:
    """Return the addresses that the file gives a name, as text; often none.

    A file that cannot be read names nothing. One that has changed is read, in
    which a large one takes its time; so call it from a thread.

    Args:
        host: A name in the one form.
    """
    with _READING:
        found = known(host)
        return _read().get(host.encode("ascii"), []) if found is None else found


def known(host: str) -> list[str] | None:
    """Return what `addresses` would, where the file is as it was when it was read.

    None is for a file that was not read yet, or not since its last change.
    """
    if PATH not in _KNOWN:
        return None
    state, names = _KNOWN[PATH]
    try:
        changed = _state(os.stat(PATH)) != state
    except OSError:
        return None
    return None if changed else names.get(host.encode("ascii"), [])


def _read() -> _Names:
    """Return what the file says, and know it if its state tells of every change."""
    now = time.time_ns()
    try:
        with open(PATH, "rb") as file:
            # Before it is read: what changes meanwhile is another state.
            status = os.fstat(file.fileno())
            names = _names(file)
    except OSError:
        return {}
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    if now - changed > _SETTLED:
        _KNOWN[PATH] = _state(status), names
    return names


def _names(file: BinaryIO) -> _Names:
    found: _Names = {}
    # Lists of hosts give all the same one.
    texts: dict[bytes, str | None] = {}
    for line in _lines(file):
        address, *names = line.partition(b"#")[0].lower().split() or [b""]
        if address not in texts:
            texts[address] = _address(address)
        if (text := texts[address]) is not None:
            for name in dict.fromkeys(names):
                found.setdefault(name, []).append(text)
    return found


def _lines(file: BinaryIO) -> Iterator[bytes]:
    # Not all at once: no other thread runs while that is cut.
    left = _MOST
    while left > 0 and (line := file.readline(left)):
        left -= len(line)
        yield line


def _state(status: os.stat_result) -> _State:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _address(text: bytes) -> str | None:
    try:
        found = text.decode("ascii")
        return None if address_of(found) is None else found
    except (InvalidArgumentError, UnicodeDecodeError):
        return None
