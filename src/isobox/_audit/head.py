"""The small file beside an audit file that says how far it goes."""

from __future__ import annotations

import json
from typing import Final, NamedTuple, cast

from isobox._audit.records import GENESIS, Place, Seal

#: Bytes of a head: less than a sector, so that it is written whole or not at all.
SIZE: Final = 384
_DOMAIN: Final = b"head\0"


class Head(NamedTuple):
    """Where the last record is, as the content of `FILE.head` says.

    Attributes:
        seq: Its number, from 1 over all files; 0 before the first.
        hash: Its hash.
        start: Where its line begins in the file that it is in.
        end: Where its line ends.
        files: How many files were put aside before that file.
        closed: It ends that file, which is about to be put aside or just was.
    """

    seq: int = 0
    hash: str = GENESIS
    start: int = 0
    end: int = 0
    files: int = 0
    closed: bool = False

    @property
    def place(self) -> Place:
        """Its place in the chain."""
        return Place(self.seq, self.hash)

    def sealed(self, seal: Seal) -> bytes:
        """Return it as the content of a file."""
        body = (
            f'{{"closed":{"true" if self.closed else "false"},"end":{self.end},'
            f'"files":{self.files},"hash":"{self.hash}",'
            f'"keyed":{"true" if seal.keyed else "false"},'
            f'"seq":{self.seq},"start":{self.start}}}'
        ).encode()
        text = b'%b,"seal":"%b"}' % (body[:-1], _mark(seal, body).encode())
        return text.ljust(SIZE - 1) + b"\n"


class HeadError(Exception):
    """The content of a head is not one; the message goes after the file's name."""


def read_head(content: bytes, seal: Seal) -> Head:
    """Return the head that a file holds; an empty one is before the first record.

    Raises:
        HeadError: It was changed, or another key sealed it.
    """
    if not content:
        return Head()
    head, keyed = _parsed(content)
    if keyed and not seal.keyed:
        raise HeadError("is sealed with a key; give the key")
    if seal.keyed and not keyed:
        raise HeadError("is not sealed with a key; somebody made it without yours")
    if head.sealed(seal) != content:
        raise HeadError("was changed, or sealed with another key")
    return head


def _parsed(content: bytes) -> tuple[Head, bool]:
    """Return what it says and whether that is keyed; not yet whether it is true."""
    try:
        fields = cast("dict[str, object]", json.loads(content))
        del fields["seal"]
        keyed = bool(fields.pop("keyed"))
        return Head(**fields), keyed  # type: ignore[arg-type] # compared as a whole
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise HeadError("is not the head of an audit file") from error


def _mark(seal: Seal, body: bytes) -> str:
    return seal.digest(_DOMAIN + body)
