"""Whether an audit log is as it was written."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from isobox._audit.chain import BrokenChainError, Fault, Walk
from isobox._audit.files import Descriptor, lock, missing, status_of, unlock
from isobox._audit.head import SIZE, Head, HeadError, read_head
from isobox._audit.reading import dictionary
from isobox._audit.records import Place, Seal
from isobox._audit.tail import AHEAD, aside_path, head_path

if TYPE_CHECKING:
    from isobox._audit.chain import Link

#: What may be wrong: with a line, or with the log as a whole.
Wrong = Fault | Literal["cut", "ahead", "replaced", "missing", "head", "expected"]


_NOWHERE: Final = Place()
_WHY_AHEAD: Final = (
    "somebody added them, or put an older head there, or the machine was stopped "
    "before the head was on the disk"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was written.

    Attributes:
        wrong: What it looks like.
        file: Where.
        line: The number of the line, from 1; 0 if it is about no line.
        message: What there is to say of it.
    """

    wrong: Wrong
    file: str
    line: int
    message: str


@dataclass(slots=True)
class Report:
    """What a verification saw.

    Attributes:
        files: The files that were read, the oldest first.
        records: How many records are as they were written.
        last: The last of them.
        findings: What is wrong; nothing if it is empty.
        notes: What is not wrong, and good to know.
    """

    files: list[str] = field(default_factory=list[str])
    records: int = 0
    last: Place = _NOWHERE
    findings: list[Finding] = field(default_factory=list[Finding])
    notes: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class _Part:
    path: str
    file: Descriptor
    size: int


def verify(
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    expect: str | None = None,
) -> Report:
    """Hold every record of a log against its hash, its neighbours and the head.

    A file that was put aside has no head and is verified alone.

    Args:
        path: The file, as it was given to the sink.
        key: What it was sealed with.
        expect: The hash of a record that must be there, kept elsewhere.

    Raises:
        InvalidArgumentError: The key is too short.
        OSError: The file cannot be read.
    """
    path = os.path.abspath(path)
    return _Verification(path, Seal(key), expect).report()


class _Verification:
    def __init__(self, path: str, seal: Seal, expect: str | None) -> None:
        self._path = path
        self._seal = seal
        self._expect = expect
        self._is_there = expect is None
        self._report = Report()
        self._head: Head | None = None
        self._last: Link | None = None
        #: What is wrong with the log and does not end the reading.
        self._told: list[Finding] = []
        self._late = 0
        self._ended = False

    def report(self) -> Report:
        parts = self._parts()
        if not self._report.findings:
            self._walk(parts)
        if not self._report.findings:
            self._check_end()
        if not self._is_there and not self._report.findings:
            self._find(
                "expected", 0, f"no record has the hash {self._expect}: the log was "
                "replaced, or ended before that record"
            )  # fmt: skip
        self._report.findings += self._told
        return self._report

    # -- what there is ------------------------------------------------------

    def _parts(self) -> list[_Part]:
        """Open all files, of one moment even while others append."""
        try:
            head_file = Descriptor(head_path(self._path), os.O_RDONLY)
        except FileNotFoundError as error:
            if status_of(self._path) is None:
                raise missing(self._path) from error
            return [self._part(self._path)]
        lock(head_file.number, fcntl.LOCK_SH, head_path(self._path))
        try:
            content = os.pread(head_file.number, SIZE + 1, 0)
            return self._known_parts(content)
        finally:
            unlock(head_file.number)
            head_file.close()

    def _known_parts(self, content: bytes) -> list[_Part]:
        if not content:
            self._tell_of_an_empty_head()
        try:
            self._head = head = read_head(content, self._seal)
        except HeadError as error:
            self._find("head", 0, f"it {error}", head_path(self._path))
            return []
        paths = [aside_path(self._path, number + 1) for number in range(head.files)]
        closed = aside_path(self._path, head.files + 1)
        if head.closed and status_of(closed) is not None:
            paths.append(closed)
            if status_of(self._path) is None:
                return [*map(self._part, paths)]
        return self._present([*paths, self._path])

    def _tell_of_an_empty_head(self) -> None:
        # A file is made after its head was written; of records in it more is told.
        there = status_of(self._path)
        if there is not None and there.st_size == 0:
            self._find("head", 0, "it was emptied", head_path(self._path))
        elif there is None:
            self._report.notes.append(
                f"{head_path(self._path)} is empty, and there is no file: whoever made "
                "the log was stopped before its first record, or both were emptied"
            )

    def _present(self, paths: list[str]) -> list[_Part]:
        parts: list[_Part] = []
        for path in paths:
            try:
                parts.append(self._part(path))
            except FileNotFoundError:
                if self._head is None or self._head.seq == 0:
                    continue
                self._find("missing", 0, "the file was removed", path)
                break
        return parts

    def _part(self, path: str) -> _Part:
        file = Descriptor(path, os.O_RDONLY)
        return _Part(path, file, file.size)

    # -- its records --------------------------------------------------------

    def _walk(self, parts: list[_Part]) -> None:
        after = None if self._head is None else Place()
        for part in parts:
            self._report.files.append(part.path)
            if not self._walk_along(part, after):
                return
            after = self._report.last

    def _walk_along(self, part: _Part, after: Place | None) -> bool:
        with open(part.file.number, "rb", closefd=False) as file:
            try:
                for link in Walk(file, self._seal, after, part.size):
                    self._see(link, part)
            except BrokenChainError as broken:
                self._explain(broken, part)
        return not self._report.findings

    def _see(self, link: Link, part: _Part) -> None:
        report, place = self._report, link.record.place
        if self._last is None and self._head is None:
            self._check_begin(link, part)
        report.records += 1
        report.last = place
        self._last = link
        self._ended = _event(link) == "closed"
        self._is_there |= place.hash == self._expect
        if link.record.fields.get("kind") == "chain":
            self._tell_ahead(link, part)
        if link.skipped:
            report.notes.append(
                f"{part.path}:{link.line}: {link.skipped} bytes before it are of a "
                "process that was stopped while it wrote; they are marked as no record"
            )
        if not link.whole:
            self._find("torn", link.line, "the line has no end", part.path)
        if self._head is not None:
            self._hold_against(self._head, link, part)

    def _hold_against(self, head: Head, link: Link, part: _Part) -> None:
        place = link.record.place
        if head.seq == place.seq and head.hash != place.hash:
            self._find(
                "replaced", link.line, f"it is not the record {place.seq} that the "
                "head knows; the file was replaced", part.path
            )  # fmt: skip
        if place.seq <= head.seq or head.expects(place.hash):
            return
        if not self._late:
            self._tell(
                link, part, "it and what follows come after record "
                f"{head.seq}, the last that the head knows: {_WHY_AHEAD}"
            )  # fmt: skip
        self._late += 1

    def _tell_ahead(self, link: Link, part: _Part) -> None:
        """Tell what a writer found that went on after what the head did not expect.

        SAFETY: without a key, whoever can write to the file chose what it says.
        """
        fields = link.record.fields
        if AHEAD not in fields:
            return
        ahead = dictionary(fields[AHEAD])
        count, head = ahead.get("records"), ahead.get("head")
        if isinstance(count, int) and isinstance(head, int):
            what = f"{count} records" if count else f"{link.skipped} bytes"
            message = f"{what} before it came after record {head}, the last that the "
            self._tell(link, part, f"{message}head knew then: {_WHY_AHEAD}")
        else:
            self._tell(link, part, f"what is before it was not expected: {_WHY_AHEAD}")

    def _tell(self, link: Link, part: _Part, message: str) -> None:
        self._told.append(Finding("ahead", part.path, link.line, message))

    def _check_begin(self, link: Link, part: _Part) -> None:
        first = link.record.place.seq == 1 or link.skipped
        if not first and _event(link) != "opened":
            message = "the records before it were removed"
            self._find("removed", link.line, message, part.path)

    def _explain(self, broken: BrokenChainError, part: _Part) -> None:
        head, message = self._head, str(broken)
        wrong: Wrong = broken.fault
        ends = wrong in ("torn", "added")
        if ends and head is not None and self._report.last.seq < head.seq:
            wrong = "changed" if part.size >= head.end else "cut"
            message = f"record {self._report.last.seq + 1} was changed or cut"
        self._find(wrong, broken.line, message, part.path)

    def _check_end(self) -> None:
        head, last = self._head, self._report.last
        line = 1 if self._last is None else self._last.line + 1
        if head is None:
            self._check_alone()
        elif last.seq < head.seq:
            self._find(
                "cut", line, f"the log ends with record {last.seq} and the head knows "
                f"record {head.seq}: the end was cut off, or the file replaced"
            )  # fmt: skip

    def _check_alone(self) -> None:
        if self._ended:
            self._report.notes.append(
                "the file was put aside; the files before and after it were not read"
            )
        elif self._report.last.hash != self._expect:
            self._find(
                "head", 0, "it is missing; nothing says whether the end of the log "
                "was cut off", head_path(self._path)
            )  # fmt: skip

    def _find(
        self, wrong: Wrong, line: int, message: str, path: str | None = None
    ) -> None:
        finding = Finding(wrong, path or self._path, line, message)
        self._report.findings.append(finding)


def _event(link: Link) -> object:
    fields = link.record.fields
    return fields.get("event") if fields.get("kind") == "chain" else None
