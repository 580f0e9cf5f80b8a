"""The end of an audit log, where records are appended."""

from __future__ import annotations

import errno
import fcntl
import itertools
import logging
import os
import time
from typing import TYPE_CHECKING, Final

from isobox._audit.chain import BrokenChainError, Walk, torn_mark
from isobox._audit.files import Descriptor, lock, missing, status_of, unlock
from isobox._audit.head import SIZE, Head, HeadError, read_head
from isobox._audit.records import LONGEST, PartlyKeptError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._audit.chain import Link
    from isobox._audit.records import Record, Seal

#: The field of a record of the chain that says what the head did not expect.
AHEAD: Final = "ahead"
_APPEND: Final = os.O_RDWR | os.O_APPEND
#: Records that are written at once: the head has room for the hashes of so many.
_TOGETHER: Final = 2
_LOG: Final = logging.getLogger("isobox.audit")


def head_path(path: str) -> str:
    """Return where the head of an audit file is."""
    return f"{path}.head"


def aside_path(path: str, number: int) -> str:
    """Return where an audit file is put aside, the first one as number 1."""
    return f"{path}.{number}"


class Tail:
    """The head and the file that it is about, as one process has them open.

    The head is told the hash of a record, then the record is written to the file,
    then the head says that it is there; so it is with two records at once. Whoever
    is killed in between leaves what the head expects, or a part of it; the next to
    append takes the records in, and marks the part. What else is after the head's
    record came from somebody else, or the machine was stopped before the head was
    on the disk: the record that goes on says so for good.
    """

    def __init__(
        self, path: str, seal: Seal, *, max_bytes: int | None, syncs: bool
    ) -> None:
        self._path = path
        self._head_path = head_path(path)
        self._seal = seal
        self._max_bytes = max_bytes
        self._syncs = syncs
        self._content: bytes | None = None
        #: How many lines of the last write are whole.
        self._whole = 0
        self._head = Head()
        #: What the disk has of it.
        self._saved = self._head
        #: Records after it that it did not expect.
        self._late = 0
        self._head_file = self._first_head()
        self._file: Descriptor
        self._take()
        try:
            self._learn()
        finally:
            unlock(self._head_file.number)

    def append(self, records: Sequence[Record]) -> None:
        """Append records, in the next file where this one is full.

        Raises:
            PartlyKeptError: Some of them are in the file, and the rest is not.
            OSError: None is, or the files are not those that were left here.
        """
        self._take()
        try:
            if self._head.closed or not self._is_as_left():
                self._learn()
            for first in range(0, len(records), _TOGETHER):
                self._append(records[first : first + _TOGETHER], first)
        finally:
            unlock(self._head_file.number)

    def close(self) -> None:
        """Close the files; safe to call again."""
        self._head_file.close()
        self._file.close()

    # -- the head -----------------------------------------------------------

    def _first_head(self) -> Descriptor:
        try:
            return Descriptor(self._head_path, os.O_RDWR)
        except FileNotFoundError:
            # It is made before the file is, so that a crash leaves no file alone.
            if status_of(self._path) and Descriptor(self._path, os.O_RDONLY).size:
                raise self._refusal(
                    f"{self._head_path} is missing, which says where it ends; put it "
                    "back, or name a new file"
                ) from None
        try:
            return Descriptor(self._head_path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError as error:
            raise missing(self._path) from error

    def _take(self) -> None:
        """Take the lock on the file that is at the head's path."""
        if self._head_file.number < 0:
            raise OSError(errno.EBADF, "the audit file is closed", self._path)
        lock(self._head_file.number, fcntl.LOCK_EX, self._head_path)
        try:
            while not self._head_file.is_that(os.lstat(self._head_path)):
                other = Descriptor(self._head_path, os.O_RDWR)
                lock(other.number, fcntl.LOCK_EX, self._head_path)
                self._head_file.close()
                self._head_file, self._content = other, None
        except BaseException:
            unlock(self._head_file.number)
            raise

    def _is_as_left(self) -> bool:
        """Whether nobody wrote to the head or the file since, or replaced it."""
        if os.pread(self._head_file.number, SIZE, 0) != self._content:
            return False
        there = status_of(self._path)
        return (
            there is not None
            and there.st_size == self._head.end
            and self._file.is_that(there)
        )

    def _learn(self) -> None:
        """Learn what others wrote since."""
        content = os.pread(self._head_file.number, SIZE, 0)
        self._content = None
        self._head = self._saved = self._newer(content)
        if not content and status_of(self._path) is None:
            # So that an empty head beside a file tells of somebody else.
            self._save(self._head)
        if self._head.closed:
            self._move_on()
        else:
            self._open(self._path)
        self._catch_up()

    def _newer(self, content: bytes) -> Head:
        try:
            head = read_head(content, self._seal)
        except HeadError as error:
            raise OSError(errno.EBADMSG, f"it {error}", self._head_path) from error
        known = self._saved
        if head.seq < known.seq or (head.seq == known.seq and head.hash != known.hash):
            raise self._refusal(f"{self._head_path} was replaced by an older one")
        return head

    def _expect(self, following: str) -> None:
        """Tell the head the hashes of what is written next, and nothing else yet."""
        self._store(self._saved.sealed(self._seal, following))

    def _save(self, head: Head) -> None:
        self._store(head.sealed(self._seal))
        self._head = self._saved = head

    def _store(self, content: bytes) -> None:
        number = self._head_file.number
        if os.pwrite(number, content, 0) != SIZE:
            raise OSError(errno.ENOSPC, "only a part was written", self._head_path)
        if self._syncs:
            os.fdatasync(number)
        self._content = content

    # -- the file -----------------------------------------------------------

    def _append(self, records: Sequence[Record], kept: int) -> None:
        """Append some of the records, of which `kept` are in the file."""
        try:
            if self._max_bytes is not None and self._head.end >= self._max_bytes:
                self._rotate()
        except OSError as error:
            raise _partly(error, kept) from None
        self._whole = 0
        try:
            self._write(records)
        except OSError as error:
            raise _partly(error, kept + self._whole) from None

    def _write(self, records: Sequence[Record], *, closes: bool = False) -> None:
        seq, hashed, _, start, files, _, _ = self._head
        lines: list[bytes] = []
        hashes: list[str] = []
        for record in records:
            line, hashed = self._seal.line(record, (seq, hashed))
            seq += 1
            lines.append(line)
            hashes.append(hashed)
        self._expect(",".join(hashes))
        self._write_lines(*lines)
        end = start + sum(map(len, lines))
        self._save(Head(seq, hashed, end - len(lines[-1]), end, files, closes))

    def _write_lines(self, *lines: bytes) -> None:
        self._content = None
        number = self._file.number
        written = os.write(number, b"".join(lines))
        ends = [*itertools.accumulate(map(len, lines))]
        self._whole = sum(end <= written for end in ends)
        if written != ends[-1]:
            raise OSError(errno.ENOSPC, "it took only part of a record", self._path)
        if self._syncs:
            os.fdatasync(number)

    def _open(self, path: str, flags: int = 0) -> None:
        """Open the file, and see that the head's record is where it says."""
        if self._head.seq == 0:
            flags = os.O_CREAT
        self._file = Descriptor(path, _APPEND | flags)
        if not self._ends(self._file):
            raise self._refusal(
                f"record {self._head.seq}, the last one, is not where it was: the file "
                "was cut, changed or replaced; see `isobox audit verify`"
            )

    def _ends(self, file: Descriptor) -> bool:
        head = self._head
        if head.end == 0:
            return True
        line = os.pread(file.number, min(head.end - head.start, LONGEST), head.start)
        sealed = self._seal.opened(line)
        return sealed is not None and sealed.place == head.place

    def _catch_up(self) -> None:
        """Take in what a process wrote that was killed before it told the head."""
        known, size, self._late = self._head, self._file.size, 0
        torn = None if size == known.end else self._walk_to(size)
        ahead = self._ahead_of(known, torn)
        # Of a new file the head tells only once a record is in it, and of records that
        # it did not expect once the record that says so is.
        if not ahead and (self._head.end or not self._head.files):
            self._save(self._head)
        if torn is not None:
            self._mark(torn, size, ahead)
        elif ahead:
            closes = self._head.closed
            event = _event("closed" if closes else "recovered")
            self._write([{**event, **ahead}], closes=closes)
        if self._head.closed:
            self._move_on()
            self._catch_up()
        elif self._head.end == 0 and self._head.files:
            self._write([_event("opened")])

    def _walk_to(self, size: int) -> int | None:
        """Take in the records before `size`; return where unfinished bytes begin."""
        with open(self._file.number, "rb", closefd=False) as file:
            file.seek(self._head.end)
            try:
                for link in Walk(file, self._seal, self._head.place, size):
                    self._take_in(link)
            except BrokenChainError as broken:
                if broken.fault == "torn":
                    return broken.offset
                raise self._refusal(
                    f"after record {self._head.seq}: {broken}; `isobox audit verify` "
                    "names the line. Find out who wrote it, then move the log and its "
                    "head away together, or remove what is not the log's"
                ) from broken
        return None

    def _take_in(self, link: Link) -> None:
        end = link.end
        if not link.whole:
            self._write_lines(b"\n")
            end += 1
        fields, place = link.record.fields, link.record.place
        expected, _, following = self._head.next.partition(",")
        if place.hash != expected:
            self._late += 1
            following = ""
        closes = (fields.get("kind"), fields.get("event")) == ("chain", "closed")
        files = self._head.files
        self._head = Head(*place, link.start, end, files, closes, following)

    def _ahead_of(self, known: Head, torn: int | None) -> Record:
        """Return what is to be said of what the head did not expect, if anything."""
        unexpected = self._late or (torn is not None and not self._head.next)
        if not unexpected:
            return {}
        _LOG.warning(
            "%s goes on after record %d, the last that its head knows; see "
            "`isobox audit verify`", self._path, known.seq
        )  # fmt: skip
        return {
            AHEAD: {
                "head": known.seq,
                "records": self._late,
                "digest": self._head.hash,
            }
        }

    def _mark(self, start: int, size: int, ahead: Record) -> None:
        region = os.pread(self._file.number, size - start, start)
        mark = {**torn_mark(region), "time": time.time(), **ahead}
        seq, files = self._head.seq + 1, self._head.files
        line, hashed = self._seal.line(mark, self._head.place)
        if not ahead:
            # Else a head that expects it would tell no longer of what it did not.
            self._expect(hashed)
        self._write_lines(b"\n" + line)
        begin = size + 1
        self._save(Head(seq, hashed, begin, begin + len(line), files))

    # -- the next file ------------------------------------------------------

    def _rotate(self) -> None:
        aside = aside_path(self._path, self._head.files + 1)
        self._refuse_taken(aside)
        self._write([_event("closed")], closes=True)
        self._move_on()
        self._catch_up()

    def _move_on(self) -> None:
        """Put the closed file aside, unless that was done, and open the next.

        Until a record is in that one, the head stays as it is: whoever finds it so
        ends up here again.
        """
        aside = aside_path(self._path, self._head.files + 1)
        if status_of(aside) is None or not self._ends(Descriptor(aside, os.O_RDONLY)):
            self._open(self._path)
            self._refuse_taken(aside)
            os.rename(self._path, aside)
        files = self._head.files + 1
        self._head = self._head._replace(start=0, end=0, files=files, closed=False)
        self._open(self._path, os.O_CREAT)

    def _refuse_taken(self, aside: str) -> None:
        if status_of(aside) is not None:
            raise OSError(
                errno.EEXIST, "a full audit file is put aside there; move it", aside
            )

    def _refusal(self, reason: str) -> OSError:
        return OSError(errno.EBADMSG, reason, self._path)


def _partly(error: OSError, kept: int) -> OSError:
    """Return an error that says how many records are in the file, if one is."""
    return PartlyKeptError(error, kept) if kept else error


def _event(event: str) -> Record:
    return {"kind": "chain", "event": event, "time": time.time()}
