"""A walk along the records of a file, each held against the one before it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from isobox._audit.records import LONGEST, Place, Seal, Sealed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from isobox._audit.records import Record

#: What may be wrong with a line.
Fault = Literal["changed", "removed", "moved", "foreign", "torn"]

#: Bytes of an unfinished record, and of unfinished marks of it, that are skipped.
_REGION: Final = 2 * LONGEST


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
            raise _changed(number, start)
        found = self._seal.opened(line + b"\n")
        if found is None:
            raise self._torn(number, start)
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
            raise self._torn(number, start)
        raise _changed(number, start)

    def _is_mark(self, found: Sealed, region: bytearray) -> bool:
        mark = torn_mark(bytes(memoryview(region)[:-1]))
        at_its_place = self._after is None or self._problem(found) is None
        return at_its_place and found.fields.items() >= mark.items()

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

    def _torn(self, number: int, start: int) -> BrokenChainError:
        return BrokenChainError(
            "torn",
            number,
            start,
            f"{self._offset - start} bytes that are no record: whoever wrote it was "
            "stopped, or somebody changed or cut it",
        )

    def _read(self) -> bytes:
        line = self._file.readline(min(LONGEST + 1, self._size - self._offset))
        self._offset += len(line)
        self._line += 1
        return line


def _changed(number: int, start: int) -> BrokenChainError:
    message = "the record was changed, or sealed with another key"
    return BrokenChainError("changed", number, start, message)
