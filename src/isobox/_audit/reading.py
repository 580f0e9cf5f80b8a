"""Records as somebody reads them, whether or not the chain is whole."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, cast

from isobox._audit.files import Descriptor, status_of
from isobox._audit.records import LONGEST, fields_of
from isobox._audit.tail import aside_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from isobox._audit.records import Record

#: Operations without an outcome that are remembered at once.
_OPEN: Final = 10_000
_BEGINS: Final = frozenset({"intent", "question"})
_ENDS: Final = frozenset({"outcome", "answer"})


@dataclass(slots=True)
class Entry:
    """A record, and the one that tells how it ended, if there is one."""

    record: Record
    end: Record | None = None

    @property
    def op(self) -> object:
        """The operation's name, or the event's."""
        return self.record.get("op") or self.record.get("event")

    @property
    def has_failed(self) -> bool:
        """Whether it was refused, went wrong, or ended with a status but 0."""
        if self.end is None:
            return False
        if self.end.get("kind") == "answer":
            return not str(self.end.get("answer")).startswith("allow")
        status = dictionary(self.end.get("end")).get("exit_code")
        return self.end.get("ok") is not True or status not in (None, 0)


def dictionary(value: object) -> dict[str, object]:
    """Return a value that should be one, an empty one if it is none."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def files_of(path: str) -> list[str]:
    """Return the files of a log that are there, the oldest first."""
    number, aside = 1, list[str]()
    while status_of(aside_path(path, number)) is not None:
        aside.append(aside_path(path, number))
        number += 1
    return [*aside, path]


def records(paths: Iterable[str]) -> Iterator[Record]:
    """Yield what the lines of files hold; a line that is no record tells that.

    Raises:
        OSError: A file cannot be read.
    """
    for path in paths:
        descriptor = Descriptor(path, os.O_RDONLY)
        with open(descriptor.number, "rb", closefd=False) as file:
            while line := _line(file):
                yield as_record(line)


def as_record(line: bytes) -> Record:
    """Return what a line holds."""
    found = fields_of(line)
    return found or {"kind": "unreadable", "event": f"{len(line)} bytes, no record"}


def entries(found: Iterable[Record]) -> Iterator[Entry]:
    """Yield records with their outcomes, in the order in which they began."""
    waiting: OrderedDict[object, Entry] = OrderedDict()
    known: dict[object, object] = {}
    for count, record in enumerate(found):
        kind, key = record.get("kind"), _key(record)
        if kind in _ENDS and (at := known.pop(key, None)) is not None:
            waiting[at].end = record
        else:
            waiting[count] = Entry(record)
            if kind in _BEGINS:
                known[key] = count
        yield from _ready(waiting, known)
    yield from waiting.values()


def _ready(
    waiting: OrderedDict[object, Entry], known: dict[object, object]
) -> Iterator[Entry]:
    """Yield what no earlier one keeps back, and the oldest of too many."""
    while waiting:
        at = next(iter(waiting))
        entry = waiting[at]
        key = _key(entry.record)
        is_open = known.get(key) == at and entry.end is None
        if is_open and len(waiting) <= _OPEN:
            return
        if is_open:
            del known[key]
        del waiting[at]
        yield entry


def _key(record: Record) -> tuple[str, str]:
    # SAFETY: as texts, because a forged line may hold anything there.
    return str(record.get("workspace")), str(record.get("number"))


class Following:
    """Yields lines as they are appended, over files that are put aside."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = Descriptor(path, os.O_RDONLY)
        self._at = self._file.size
        self._part = b""

    def arrived(self) -> Iterator[Record]:
        """Yield the records that came since.

        Raises:
            OSError: The file cannot be read.
        """
        while True:
            there = status_of(self._path)
            yield from self._rest()
            if there is None or self._file.is_that(there):
                return
            # Nothing is appended to a file that was put aside.
            after = Descriptor(self._next(), os.O_RDONLY)
            self._file.close()
            self._file, self._at, self._part = after, 0, b""

    def _next(self) -> str:
        for file, after in pairwise(files_of(self._path)):
            there = status_of(file)
            if there is not None and self._file.is_that(there):
                return after
        return self._path

    def _rest(self) -> Iterator[Record]:
        while piece := os.pread(self._file.number, 1 << 16, self._at):
            self._at += len(piece)
            *lines, self._part = (self._part + piece).split(b"\n")
            yield from map(as_record, lines)
            if len(self._part) > LONGEST:
                yield as_record(self._part)
                self._part = b""


def _line(file: BinaryIO) -> bytes:
    return file.readline(LONGEST)
