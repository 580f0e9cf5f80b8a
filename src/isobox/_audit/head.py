"""The small file beside an audit file that says how far it goes."""

from __future__ import annotations

from typing import Final, NamedTuple

from isobox._audit.records import GENESIS, Place, Seal, fields_of

#: Bytes of a head: less than a sector, so that it is written whole or not at all.
SIZE: Final = 449
_JSON: Final = ("false", "true")


class Head(NamedTuple):
    """Where the last record is, as the content of `FILE.head` says.

    Attributes:
        seq: Its number, from 1 over all files; 0 before the first.
        hash: Its hash.
        start: Where its line begins in the file that it is in.
        end: Where its line ends.
        files: How many files were put aside before that file.
        closed: It ends that file, which is about to be put aside or just was.
        next: The hashes of the records that are being written after it, joined by
            commas: none, one or two.
    """

    seq: int = 0
    hash: str = GENESIS
    start: int = 0
    end: int = 0
    files: int = 0
    closed: bool = False
    next: str = ""

    @property
    def place(self) -> Place:
        """Its place in the chain."""
        return Place(self.seq, self.hash)

    def sealed(self, seal: Seal, following: str | None = None) -> bytes:
        """Return it as the content of a file.

        Args:
            seal: What seals it.
            following: The hashes of the records that are written next, else `next`.
        """
        seq, hashed, start, end, files, closed, expected = self
        text = (
            f'{{"seq":{seq},"hash":"{hashed}","start":{start},"end":{end},'
            f'"files":{files},"closed":{_JSON[closed]},"next":"{following or expected}"'
            f',"keyed":{_JSON[seal.keyed]}'
        )
        mark = seal.digest(f"head {text}".encode())
        return f'{text},"seal":"{mark}"}}'.ljust(SIZE - 1).encode() + b"\n"

    def expects(self, hashed: str) -> bool:
        """Whether a record with that hash is being written after it."""
        return hashed in self.next.split(",")


class HeadError(Exception):
    """The content of a head is not one; the message goes after the file's name."""


def read_head(content: bytes, seal: Seal) -> Head:
    """Return the head that a file holds; an empty one is before the first record.

    Raises:
        HeadError: It was changed, or another key sealed it.
    """
    if not content:
        return Head()
    fields = _fields(content)
    keyed = fields.get("keyed")
    if keyed is True and not seal.keyed:
        raise HeadError("is sealed with a key; give the key")
    if seal.keyed and keyed is not True:
        raise HeadError(
            "is not sealed with a key: the log was written without one (then leave out "
            "--key-file, or the variable with the key), or somebody made it without "
            "yours"
        )
    head = _head(fields)
    # As a whole: what it says is true only if nothing else could be read from it.
    if head is None or head.sealed(seal) != content:
        raise HeadError("was changed, or sealed with another key")
    return head


def _fields(content: bytes) -> dict[str, object]:
    fields = fields_of(content)
    if fields is None or "keyed" not in fields:
        raise HeadError("is not the head of an audit file")
    return fields


def _head(fields: dict[str, object]) -> Head | None:
    numbers = [fields.get(name) for name in ("seq", "start", "end", "files")]
    match [*numbers, *map(fields.get, ("hash", "closed", "next"))]:
        case [
            int(seq), int(start), int(end), int(files),
            str(hashed), bool(closed), str(following),
        ]:  # fmt: skip
            return Head(seq, hashed, start, end, files, closed, following)
        case _:
            return None
