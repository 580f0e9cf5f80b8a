"""What a record is, and how one is sealed into a chain."""

from __future__ import annotations

import hashlib
import hmac
import json
import json.encoder
from collections.abc import Callable, Iterable, Mapping
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
#: Bytes that SHA-256 takes at a time.
_BLOCK: Final = 64

_CHAIN: Final = frozenset({"seq", "prev", "hash"})
_HASH: Final = b',"hash":"'
_TAIL: Final = len(_HASH) + len(GENESIS) + len(b'"}\n')


class PartlyKeptError(OSError):
    """Some records are kept, and others are not.

    Args:
        error: Why.
        kept: How many are, the first ones.
    """

    def __init__(self, error: OSError, kept: int) -> None:
        super().__init__(error.errno, error.strerror, error.filename)
        self.kept = kept


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
        InvalidArgumentError: The key is too short, or no bytes.
    """

    def __init__(self, key: bytes | None = None) -> None:
        if isinstance(key, str):
            raise InvalidArgumentError(
                "the audit key is text; give bytes, such as key.encode()"
            )
        if not isinstance(key, bytes | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentError(
                f"the audit key is of type {type(key).__name__}; give bytes"
            )
        if key is not None and len(key) < KEY_BYTES:
            raise InvalidArgumentError(
                f"the audit key has {len(key)} bytes; take at least {KEY_BYTES}, such "
                "as those of `openssl rand -hex 32`"
            )
        self.keyed = key is not None
        #: Returns the hash of bytes in hex.
        self.digest: Callable[[bytes], str] = _sha256 if key is None else _Keyed(key)

    def line(self, record: Record, after: tuple[int, str]) -> tuple[bytes, str]:
        """Return the line of a record, and its hash.

        Args:
            record: The record.
            after: The number and the hash of the one before it.

        Raises:
            InvalidArgumentError: The record has a field of the chain's.
            ValueError: JSON cannot hold it, or its line is over 16 MiB.
        """
        if not record or not _CHAIN.isdisjoint(record):
            raise InvalidArgumentError(
                "a record has fields, and none of them is seq, prev or hash, which "
                "are the chain's; give them other names"
            )
        seq, hashed = after
        text = f'{{"seq":{seq + 1},"prev":"{hashed}",{_json(record)[1:]}'.encode()
        hashed = self.digest(text)
        line = b'%b,"hash":"%b"}\n' % (text[:-1], hashed.encode())
        if len(line) > LONGEST:
            raise InvalidArgumentError(f"a record has more than {LONGEST} bytes")
        return line, hashed

    def opened(self, line: bytes) -> Sealed | None:
        """Return what a line holds, None unless its hash is right."""
        body, hashed = line[:-_TAIL] + b"}", line[-_TAIL:]
        found = hashed[len(_HASH) : -3]
        if hashed != b'%b%b"}\n' % (_HASH, found):
            return None
        if not hmac.compare_digest(found, self.digest(body).encode()):
            return None
        return _sealed(body, found.decode())


class _Keyed:
    """HMAC-SHA-256 (RFC 2104) of texts with one key.

    It is what `hmac` does, of which a copy alone takes as long as this.
    """

    def __init__(self, key: bytes) -> None:
        short = hashlib.sha256(key).digest() if len(key) > _BLOCK else key
        block = short.ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha256(bytes(each ^ 0x36 for each in block))
        self._outer = hashlib.sha256(bytes(each ^ 0x5C for each in block))

    def __call__(self, data: bytes) -> str:
        inner = self._inner.copy()
        inner.update(data)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.hexdigest()


_SHA256: Final = hashlib.sha256()


def _sha256(data: bytes) -> str:
    # To make one takes OpenSSL longer than to copy one.
    hashed = _SHA256.copy()
    hashed.update(data)
    return hashed.hexdigest()


def _encoder() -> Callable[[Record], Iterable[str]]:
    """Return what makes the JSON of a record, in pieces.

    `JSONEncoder.encode` makes an encoder anew for each text, which takes a third of
    the time that a record of an operation does.
    """
    plain = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return plain.iterencode
    text = json.encoder.encode_basestring_ascii
    encode = make(None, plain.default, text, None, ":", ",", False, False, False)
    return lambda record: encode(record, 0)


_encode: Final = _encoder()


def _json(record: Record) -> str:
    try:
        return "".join(_encode(record))
    except RecursionError:
        raise ValueError("a record holds itself, or is nested too deep") from None


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
