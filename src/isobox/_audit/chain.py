"""A walk along the records of a file, each held against the one before it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from isobox._audit.records import LONGEST, Place, Seal, Sealed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from isobox._audit.records import Record

#: What may be wrong with a line.
Fault = Literal["changed", "added", "removed", "moved", "foreign", "torn"]

#: Bytes of an unfinished record, and of unfinished marks of it, that are skipped.
_REGION: Final = 2 * LONGEST
#: How a whole record ends.
_SEALED: Final = re.compile(rb',"hash":"[0-9a-f]{64}"}$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Link:
    """A record in its file.

    Attributes:
        line: The number of its line, from 1.
        start: Where the line begins.
        end: Where it ends.
        record: What it holds.
        whole: Its line has an end.
        skipped: Bytes of unfinished records before it, which it is the mark of.
    """

    line: int
    start: int
    end: int
    record: Sealed
    whole: bool = True
    skipped: int = 0


class BrokenChainError(Exception):
    """The chain does not go on; the walk ends here.

    Attributes:
        fault: What it looks like.
        line: The number of the line.
        offset: Where it begins.
    """

    def __init__(self, fault: Fault, line: int, offset: int, message: str) -> None:
        super().__init__(message)
        self.fault: Fault = fault
        self.line = line
        self.offset = offset


def torn_mark(region: bytes) -> Record:
    """Return the record that says of a region that it is no record.

    A process was stopped while it wrote; nothing of what it left is removed.
    """
    return {
        "kind": "chain",
        "event": "torn",
        "bytes": len(region),
        "sha256": hashlib.sha256(region).hexdigest(),
    }


def is_unfinished(region: bytes, after: Place | None) -> bool:
    """Whether bytes are what writers leave who are stopped, one after another.

    Each leaves a beginning of the record after `after`. NUL bytes are what a file
    system gives back that was stopped itself.
    """
    begin = b'{"seq":'
    if after is not None:
        begin = b'{"seq":%d,"prev":"%b",' % (after.seq + 1, after.hash.encode())
    first, *rest = region.split(b"\n")
    return bool(first) and all(_begins(piece, begin) for piece in (first, *rest))


def _begins(piece: bytes, begin: bytes) -> bool:
    piece = piece.rstrip(b"\0")
    if _SEALED.search(piece):
        return False
    return piece.startswith(begin) or begin.startswith(piece)


class Walk:
    """Reads lines up to a size, and yields those that follow one another.

    Args:
        file: At the beginning of a line.
        seal: What the lines were sealed with.
        after: The record before; None to begin wherever the first one says.
        size: Where the walk ends.
    """

    def __init__(
        self, file: BinaryIO, seal: Seal, after: Place | None, size: int
    ) -> None:
        self._file = file
        self._seal = seal
        self._after = after
        self._size = size
        self._line = 0
        self._offset = file.tell()

    def __iter__(self) -> Iterator[Link]:
        """Yield the records.

        Raises:
            BrokenChainError: A line is not the next record.
        """
        while line := self._read():
            yield self._next(line)

    def _next(self, line: bytes) -> Link:
        start, number = self._offset - len(line), self._line
        found = self._seal.opened(line)
        if found is not None:
            self._follows(found, number, start)
            return self._link(found, number, start)
        if not line.endswith(b"\n"):
            return self._unfinished(line, number, start)
        return self._marked(line, number, start)

    def _unfinished(self, line: bytes, number: int, start: int) -> Link:
        if self._offset < self._size:
            raise self._changed(number, start)
        found = self._seal.opened(line + b"\n")
        if found is None:
            raise self._no_record(line, number, start)
        self._follows(found, number, start)
        return self._link(found, number, start, whole=False)

    def _marked(self, first: bytes, number: int, start: int) -> Link:
        """Return the mark of what begins with `first`, which is no record."""
        region = bytearray(first)
        while line := self._read():
            whole = line.endswith(b"\n")
            found = self._seal.opened(line if whole else line + b"\n")
            if found is not None:
                if self._is_mark(found, region):
                    at = self._offset - len(line)
                    skipped = len(region) - 1
                    return self._link(found, self._line, at, whole, skipped)
                break
            region += line
            if len(region) > _REGION:
                break
        else:
            raise self._no_record(bytes(region), number, start)
        raise self._changed(number, start)

    def _is_mark(self, found: Sealed, region: bytearray) -> bool:
        unfinished = bytes(memoryview(region)[:-1])
        return (
            self._problem(found) is None
            and is_unfinished(unfinished, self._after)
            and found.fields.items() >= torn_mark(unfinished).items()
        )

    def _follows(self, found: Sealed, number: int, start: int) -> None:
        problem = self._problem(found)
        if problem is not None:
            raise BrokenChainError(problem[0], number, start, problem[1])

    def _problem(self, found: Sealed) -> tuple[Fault, str] | None:
        if self._after is None:
            return None
        expected, seq = self._after.seq + 1, found.place.seq
        if seq > expected:
            missing = f"{expected} to {seq - 1}" if seq > expected + 1 else expected
            return "removed", f"record {missing} was removed or moved from before it"
        if seq < expected:
            return "moved", f"record {seq} was repeated here, or moved"
        if found.prev != self._after.hash:
            return (
                "foreign",
                "it does not follow the record before it; one was replaced",
            )
        return None

    def _link(
        self,
        found: Sealed,
        number: int,
        start: int,
        whole: bool = True,
        skipped: int = 0,
    ) -> Link:
        self._after = found.place
        return Link(number, start, self._offset, found, whole, skipped)

    def _no_record(self, region: bytes, number: int, start: int) -> BrokenChainError:
        if is_unfinished(region, self._after):
            return BrokenChainError(
                "torn",
                number,
                start,
                f"{len(region)} bytes that are no record: whoever wrote it was "
                "stopped, or somebody changed or cut it",
            )
        if _SEALED.search(region):
            return self._changed(number, start)
        return BrokenChainError(
            "added",
            number,
            start,
            f"{len(region)} bytes that isobox did not write: no record, and none that "
            "was begun; somebody added or changed them",
        )

    def _changed(self, number: int, start: int) -> BrokenChainError:
        record = "" if self._after is None else f" {self._after.seq + 1}"
        message = (
            f"it is not record{record} as it was written: it was changed or added, or "
            "sealed with another key"
        )
        return BrokenChainError("changed", number, start, message)

    def _read(self) -> bytes:
        line = self._file.readline(min(LONGEST + 1, self._size - self._offset))
        self._offset += len(line)
        self._line += 1
        return line
