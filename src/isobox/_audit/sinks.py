"""Where records go."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from isobox.errors import InvalidArgumentError

#: A record: plain data that JSON can hold.
Record = Mapping[str, object]


@runtime_checkable
class AuditSink(Protocol):
    """Takes records; when it raises, the operation does not run."""

    def put(self, record: Record, /) -> None:
        """Keep one record; it is kept when this returns."""


class MemorySink:
    """Keeps records in a list, for tests and short programs."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def put(self, record: Record, /) -> None:
        """Append the record."""
        self.records.append(record)


class JsonlSink:
    """Appends records to a file, one JSON object a line.

    The file is created with mode 0600. A record is one `write` to a descriptor
    opened with O_APPEND, so that several processes can share the file.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # The current directory may be another one when somebody asks.
        self.path = os.path.abspath(path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self.path, flags, 0o600)
        self._lock = threading.Lock()

    def put(self, record: Record, /) -> None:
        """Append the record as one line.

        Raises:
            OSError: It could not be written whole.
        """
        line = json.dumps(record, ensure_ascii=True, separators=(",", ":")) + "\n"
        data = line.encode("ascii")
        with self._lock:
            if os.write(self._descriptor, data) != len(data):
                raise OSError(f"the audit file took only part of a record: {self.path}")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def sink_for(audit: AuditSink | str | os.PathLike[str] | None) -> AuditSink | None:
    """Return the sink that an `audit` argument names."""
    if audit is None or isinstance(audit, AuditSink):
        return audit
    return JsonlSink(audit)


def refuse_within(directory: str | None, sink: AuditSink | None) -> None:
    """Refuse an audit file that the workspace's own commands could change.

    Raises:
        InvalidArgumentError: The file is in `directory`, or below it.
    """
    if directory is None or not isinstance(sink, JsonlSink):
        return
    # By identity and not by name: a directory can have several.
    if any(_is_same(above, directory) for above in Path(sink.path).resolve().parents):
        raise InvalidArgumentError(
            f"audit: {sink.path} is inside the workspace's directory, where a "
            "command could change it; name a file elsewhere"
        )


def _is_same(one: Path, other: str) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
