"""What a record is, and how one is sealed into a chain."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from isobox.errors import InvalidArgumentError

#: A record: plain data that JSON can hold.
Record = Mapping[str, object]

#: The hash before the first record.
GENESIS: Final = "0" * 64
#: The most bytes of a line. The facts of one operation stay far below it.
LONGEST: Final = 16 << 20
#: Bytes that a key has at least; fewer can be guessed.
KEY_BYTES: Final = 16

_CHAIN: Final = frozenset({"seq", "prev", "hash"})
_HASH: Final = b',"hash":"'
_TAIL: Final = len(_HASH) + len(GENESIS) + len(b'"}\n')
_encode = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, separators=(",", ":")
).encode


class Place(NamedTuple):
    """A place in a chain: the number of a record, and its hash."""

    seq: int = 0
    hash: str = GENESIS


@dataclass(frozen=True, slots=True)
class Sealed:
    """A line whose hash is right: its place, the hash before, its fields."""

    place: Place
    prev: str
    fields: dict[str, object]


class Seal:
    """Gives lines their hashes: SHA-256, or with a key HMAC-SHA-256.

    Raises:
        InvalidArgumentError: The key is too short.
    """

    def __init__(self, key: bytes | None = None) -> None:
        if key is not None and len(key) < KEY_BYTES:
            raise InvalidArgumentError(
                f"the audit key has {len(key)} bytes; take at least {KEY_BYTES}, such "
                "as those of `openssl rand -hex 32`"
            )
        self.keyed = key is not None
        self._fresh = hashlib.sha256() if key is None else hmac.new(key, None, "sha256")

    def digest(self, data: bytes) -> str:
        """Return the hash of `data` in hex."""
        state = self._fresh.copy()
        state.update(data)
        return state.hexdigest()

    def line(self, record: Record, after: Place) -> tuple[bytes, Place]:
        """Return the line of a record that follows `after`, and its place.

        Raises:
            InvalidArgumentError: The record has a field of the chain's.
            ValueError: JSON cannot hold it, or its line is over 16 MiB.
        """
        if not record or not _CHAIN.isdisjoint(record):
            raise InvalidArgumentError(
                "a record has fields, and none of them is seq, prev or hash, which "
                "are the chain's; give them other names"
            )
        seq = after.seq + 1
        text = f'{{"seq":{seq},"prev":"{after.hash}",{_encode(record)[1:]}'
        body = text.encode("ascii")
        hashed = self.digest(body)
        line = b'%b,"hash":"%b"}\n' % (body[:-1], hashed.encode("ascii"))
        if len(line) > LONGEST:
            raise InvalidArgumentError(f"a record has more than {LONGEST} bytes")
        return line, Place(seq, hashed)

    def opened(self, line: bytes) -> Sealed | None:
        """Return what a line holds, None unless its hash is right."""
        body, hashed = line[:-_TAIL] + b"}", line[-_TAIL:]
        found = hashed[len(_HASH) : -3]
        if hashed != b'%b%b"}\n' % (_HASH, found):
            return None
        if not hmac.compare_digest(found, self.digest(body).encode()):
            return None
        return _sealed(body, found.decode())


def fields_of(line: bytes) -> dict[str, object] | None:
    """Return the fields of a line, None if it is no record.

    SAFETY: whoever can write to the file chose the line; too deep and too long
    numbers are no record.
    """
    try:
        fields: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", fields) if isinstance(fields, dict) else None


def _sealed(body: bytes, hashed: str) -> Sealed | None:
    fields = fields_of(body) or {}
    seq, prev = fields.pop("seq", None), fields.pop("prev", None)
    # A bool is an int too.
    if type(seq) is not int or not isinstance(prev, str):
        return None
    return Sealed(Place(seq, hashed), prev, fields)
