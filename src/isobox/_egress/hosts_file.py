"""The host's own names: what /etc/hosts says."""

from __future__ import annotations

from typing import Final

from isobox._core.hosts import address_of
from isobox.errors import InvalidArgumentError

PATH: Final = "/etc/hosts"
#: Bytes of it that are read: lists of hosts to be blocked have several 100,000
#: lines, and every connection reads it.
_MOST: Final = 16 << 20


def addresses(host: str) -> list[str]:
    """Return the addresses that the file gives a name, as text; often none.

    A file that cannot be read names nothing.

    Args:
        host: A name in the one form.
    """
    wanted = host.encode("ascii")
    found: list[str] = []
    text = _read().lower()
    if wanted not in text:
        return found
    for line in text.split(b"\n"):
        address, *names = line.partition(b"#")[0].split() or [b""]
        if wanted in names and _is_address(address):
            found.append(address.decode("ascii"))
    return found


def _read() -> bytes:
    try:
        with open(PATH, "rb") as file:
            return file.read(_MOST)
    except OSError:
        return b""


def _is_address(text: bytes) -> bool:
    try:
        return address_of(text.decode("ascii")) is not None
    except (InvalidArgumentError, UnicodeDecodeError):
        return False
