"""The host's own names: what /etc/hosts says."""

from __future__ import annotations

import os
import time
from typing import Final

from isobox._core.hosts import address_of
from isobox.errors import InvalidArgumentError

PATH: Final = "/etc/hosts"
#: Bytes of it that are read: lists of hosts to be blocked have several 100,000
#: lines, and every name that is new reads it.
_MOST: Final = 16 << 20
#: Names of which it is remembered what the file says.
_REMEMBERED: Final = 1024
#: Nanoseconds since a file's last change after which another change is seen by its
#: time: no file system that is in use has coarser ones.
_SETTLED: Final = 2_000_000_000

#: Which file it is, and when it was last changed.
_State = tuple[int, ...]

_KNOWN: Final[dict[str, tuple[_State, list[str]]]] = {}


def addresses(host: str) -> list[str]:
    """Return the addresses that the file gives a name, as text; often none.

    A file that cannot be read names nothing.

    Args:
        host: A name in the one form.
    """
    state, text = _read()
    found = _found(host.encode("ascii"), text.lower())
    if state is not None:
        if len(_KNOWN) >= _REMEMBERED:
            _KNOWN.clear()
        _KNOWN[host] = state, found
    return found


def known(host: str) -> list[str] | None:
    """Return what `addresses` would, where the file is as it was found for that.

    None is for a name that was not looked for yet, or not since the last change.
    """
    state, found = _KNOWN.get(host, (None, None))
    if state is None:
        return None
    try:
        return found if _state(os.stat(PATH)) == state else None
    except OSError:
        return None


def _found(wanted: bytes, text: bytes) -> list[str]:
    found: list[str] = []
    if wanted not in text:
        return found
    for line in text.split(b"\n"):
        address, *names = line.partition(b"#")[0].split() or [b""]
        if wanted in names and _is_address(address):
            found.append(address.decode("ascii"))
    return found


def _read() -> tuple[_State | None, bytes]:
    """Return the file's content, and its state if that tells of every change."""
    now = time.time_ns()
    try:
        with open(PATH, "rb") as file:
            # Before it is read: what changes meanwhile is another state.
            status = os.fstat(file.fileno())
            text = file.read(_MOST)
    except OSError:
        return None, b""
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    return (_state(status) if now - changed > _SETTLED else None), text


def _state(status: os.stat_result) -> _State:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _is_address(text: bytes) -> bool:
    try:
        return address_of(text.decode("ascii")) is not None
    except (InvalidArgumentError, UnicodeDecodeError):
        return False
