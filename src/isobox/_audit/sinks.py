"""Where records go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from isobox._audit.jsonl import JsonlSink
from isobox._audit.key import key_of_environment
from isobox._audit.records import Record
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AuditSink", "JsonlSink", "MemorySink", "Record"]


@runtime_checkable
class AuditSink(Protocol):
    """Takes records; when it raises, the operation does not run."""

    def put(self, record: Record, /) -> None:
        """Keep one record; it is kept when this returns."""


class DeferringSink(AuditSink, Protocol):
    """Takes outcomes a little later, together with what comes next.

    Attributes:
        defer_outcomes: Whether it is to be used so.
    """

    defer_outcomes: bool

    def put_all(self, records: Sequence[Record], /) -> None:
        """Keep several records; they are kept when this returns.

        What it raises may say in an attribute `kept` how many of them, the first
        ones, are kept nevertheless.
        """


class MemorySink:
    """Keeps records in a list, for tests and short programs."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def put(self, record: Record, /) -> None:
        """Append the record."""
        self.records.append(record)


def sink_for(audit: AuditSink | str | os.PathLike[str] | None) -> AuditSink | None:
    """Return the sink that an `audit` argument names.

    A file is sealed with the key of the environment, if that has one.

    Raises:
        InvalidArgumentError: It is neither a file's path nor a sink.
    """
    if isinstance(audit, str | os.PathLike):
        return JsonlSink(audit, key=key_of_environment())
    sink: object = audit
    # A class has the method too, and nothing to call it on.
    if sink is None or (isinstance(sink, AuditSink) and not isinstance(sink, type)):  # pyright: ignore[reportUnnecessaryIsInstance]
        return sink
    raise InvalidArgumentError(
        f"audit={audit!r:.200} is no sink; give a file's path, or a sink such as "
        "JsonlSink(...) or MemorySink()"
    )


def refuse_within(directory: str | None, sink: AuditSink | None) -> None:
    """Refuse an audit file that the workspace's own commands could change.

    Raises:
        InvalidArgumentError: The file is in `directory`, or below it.
    """
    # One sink may hand records on to another.
    while (inner := getattr(sink, "inner", None)) is not None:
        sink = inner
    if isinstance(sink, JsonlSink):
        refuse_inside(directory, sink.path, what="audit")


def refuse_inside(directory: str | None, path: str, *, what: str) -> None:
    """Refuse a file that the workspace's own commands could change.

    Raises:
        InvalidArgumentError: The file is in `directory`, or below it.
    """
    # By identity and not by name: a directory can have several.
    parents = Path(path).resolve().parents
    if directory is not None and any(_is_same(above, directory) for above in parents):
        raise InvalidArgumentError(
            f"{what}: {path} is inside the workspace's directory, where a "
            "command could change it; name a file elsewhere"
        )


def _is_same(one: Path, other: str) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
