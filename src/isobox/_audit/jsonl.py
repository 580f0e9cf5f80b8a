"""The audit file: one record a line, each sealed to the one before."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final, Literal, get_args

from isobox._audit.records import Seal
from isobox._audit.tail import Tail
from isobox._core import given
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._audit.records import Record

#: Whether each record is on the disk when `put` returns.
Sync = Literal["always", "never"]

_SMALLEST: Final = 1024


class JsonlSink:
    """Appends records to a file, one JSON object a line, chained by their hashes.

    Beside the file, `FILE.head` says which record is the last, so that what is cut
    off at the end is missed. Both have mode 0600. Several processes can share the
    file; a lock on the head orders them, and `put` waits five seconds for it.

    Args:
        path: The file; it is made if it is not there.
        key: At least 16 bytes that seal the records (HMAC-SHA-256). Without it
            (SHA-256) whoever can write to the file can make a chain of their own.
        max_bytes: A file with that many is put aside, as FILE.1, FILE.2 and so on
            in the order of their records, and the chain goes on in a new one.
        sync: `always` waits for the disk at each record, which takes milliseconds;
            with `never` a power failure can cost the last seconds.
        defer_outcomes: Outcomes of operations wait for the next record, or for the
            event loop's next turn, whichever is first. That is cheaper by nearly
            half; who reads the file before that turn does not find them, and a
            process that is killed before it leaves the intent alone.

    Raises:
        InvalidArgumentError: The key or `max_bytes` is too small, an argument is of
            another type, or `defer_outcomes` goes against `sync="always"`.
        OSError: The file cannot be opened, or is not the one that its head knows.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: bytes | None = None,
        max_bytes: int | None = None,
        sync: Sync = "never",
        defer_outcomes: bool = False,
    ) -> None:
        if not isinstance(path, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentError(f"JsonlSink: path={path!r:.200} is no path")
        if max_bytes is not None:
            given.whole("JsonlSink: max_bytes", max_bytes, _SMALLEST)
        if sync not in get_args(Sync):
            raise InvalidArgumentError(
                f'JsonlSink: sync={sync!r:.200} is not "always" or "never"'
            )
        self.defer_outcomes = given.truth("JsonlSink: defer_outcomes", defer_outcomes)
        if defer_outcomes and sync == "always":
            raise InvalidArgumentError(
                'JsonlSink: defer_outcomes=True and sync="always" contradict each '
                "other; leave one out"
            )
        # The current directory may be another one when somebody asks.
        self.path = os.path.abspath(path)
        self._seal = Seal(key)
        self._max_bytes = max_bytes
        self._syncs = sync == "always"
        self._begin()

    def put(self, record: Record, /) -> None:
        """Append the record as one line.

        Raises:
            InvalidArgumentError: It has a field `seq`, `prev` or `hash`, or is over
                16 MiB.
            ValueError: JSON cannot hold it.
            OSError: It could not be written whole, the file was cut, replaced or
                removed since the last record, or the sink is closed. Where it has
                an attribute `kept`, the line is in the file.
        """
        self.put_all((record,))

    def put_all(self, records: Sequence[Record], /) -> None:
        """Append the records, a line each; two cost little more than one.

        Raises:
            InvalidArgumentError: As `put`, of any of them; some may be kept.
            ValueError: As `put`.
            OSError: As `put`. Where it has an attribute `kept`, so many of them, the
                first ones, are in the file.
        """
        if self._process != os.getpid():
            # The child of a fork shares its parent's lock, which excludes nobody.
            self._begin()
        with self._lock:
            self._tail.append(records)

    def close(self) -> None:
        """Close the file; safe to call again."""
        with self._lock:
            self._tail.close()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._tail = Tail(
            self.path, self._seal, max_bytes=self._max_bytes, syncs=self._syncs
        )
