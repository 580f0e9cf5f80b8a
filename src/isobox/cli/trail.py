"""What `isobox audit` prints of an audit file."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
from collections import OrderedDict, deque
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, cast

import anyio

from isobox._audit.files import Descriptor, missing, status_of
from isobox._audit.head import SIZE, HeadError, read_head
from isobox._audit.key import key_of_environment, key_of_file
from isobox._audit.reading import (
    Entry,
    Following,
    dictionary,
    entries,
    files_of,
    records,
)
from isobox._audit.records import Seal
from isobox._audit.tail import head_path
from isobox._audit.verify import verify
from isobox._policy.part import GROUPS
from isobox.cli.status import complain, one_line
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from isobox._audit.records import Record
    from isobox._audit.verify import Report

#: Seconds between two looks at a file that is followed.
_PAUSE: Final = 0.2
#: Operations that go on at once, as far as their ends are told with them.
_OPEN: Final = 10_000
#: Characters of a text in a table.
_WIDE: Final = 500
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
#: What records are of: operations, and events of a workspace and its log.
_OPS: Final = frozenset[str]().union(*GROUPS.values()) | {
    "initialize", "close", "budget", "container", "mcp_list", "opened", "closed", "torn"
}  # fmt: skip
#: The weakest first.
_LEVELS: Final = ("none", "partial", "strong")
_TITLES: Final = ("time", "workspace", "what", "of", "result")
_HASH: Final = re.compile("[0-9a-f]{64}")
_OTHER: Final = frozenset(
    {"seq", "prev", "hash", "time", "workspace", "backend", "number", "kind", "event"}
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records are shown: of these operations, this workspace, failed ones.

    `since` is in seconds since 1970.
    """

    ops: tuple[str, ...] = ()
    workspace: str | None = None
    failed: bool = False
    since: float = 0.0

    def has(self, entry: Entry) -> bool:
        """Whether it is one of them."""
        return (
            (not self.ops or entry.op in self.ops)
            and self.workspace in (None, entry.record.get("workspace"))
            and (not self.failed or entry.has_failed)
            and _time(entry.record) >= self.since
        )


async def show(path: str, wanted: Wanted, *, last: int, as_json: bool) -> int:
    """Print what happened.

    Raises:
        InvalidArgumentError: It is no audit log: no line of it is a record; or there
            is no such operation.
        OSError: The file cannot be read.
    """
    if status_of(path) is None:
        raise missing(os.path.abspath(path))
    seen = set[str](_OPS)
    found = _noted(entries(_of_a_log(path)), seen)
    shown = deque((entry for entry in found if wanted.has(entry)), last)
    for op in wanted.ops:
        if op not in seen:
            raise InvalidArgumentError(_no_such(op, seen))
    if as_json:
        for entry in shown:
            print(_json(entry))  # noqa: T201
    elif sys.stdout.isatty():
        _print_table(shown)
    else:
        _print_lines([_TITLES, *map(_cells, shown)])
    return 0


def _noted(found: Iterable[Entry], seen: set[str]) -> Iterator[Entry]:
    """Yield entries, and note what they are called."""
    for entry in found:
        seen.add(str(entry.op))
        yield entry


def _no_such(op: str, known: Iterable[str]) -> str:
    return f"--op {op}: no such operation; there are {', '.join(sorted(known))}"


def _of_a_log(path: str) -> Iterator[Record]:
    count, is_log = 0, False
    for record in records(files_of(path)):
        count += 1
        is_log |= "seq" in record and "hash" in record
        yield record
    if count and not is_log:
        raise InvalidArgumentError(
            f"{path}: this is no audit log; none of its {count} lines is a record"
        )


async def follow(path: str, wanted: Wanted, *, as_json: bool) -> int:
    """Print what happens, until a signal comes.

    Raises:
        OSError: The file cannot be read.
        BrokenPipeError: Nobody reads it any more.
    """
    if status_of(path) is None:
        raise missing(os.path.abspath(path))
    following = Following(path)
    for op in wanted.ops:
        if op not in _OPS:
            complain(f"warning: {_no_such(op, _OPS)}")
    complain(f"following {path}; Ctrl-C ends it")
    told = _json if as_json else line
    begun: OrderedDict[object, Record] = OrderedDict()
    while True:
        for record in following.arrived():
            entry = _joined(record, begun)
            if wanted.has(entry):
                print(told(entry), flush=True)  # noqa: T201
        await anyio.sleep(_PAUSE)


async def check(
    path: str, key_file: str | None, *, expect: str | None, as_json: bool
) -> int:
    """Print whether a log is as it was written; the status is 1 if it is not.

    Raises:
        InvalidArgumentError: `expect` is no hash.
        OSError: The file cannot be read.
    """
    if expect is not None and not _HASH.fullmatch(expect):
        raise InvalidArgumentError(f"--expect {expect}: a hash has 64 digits of 0-9a-f")
    report = verify(path, key=_key(key_file), expect=expect)
    if as_json:
        print(json.dumps({"ok": not report.findings, **asdict(report)}))  # noqa: T201
    else:
        _print_report(report)
    return 1 if report.findings else 0


async def tell_head(path: str, key_file: str | None) -> int:
    """Print the hash of the last record.

    Raises:
        InvalidArgumentError: The head was changed, or sealed with another key.
        OSError: It cannot be read.
    """
    if status_of(path) is None and status_of(head_path(path)) is None:
        raise missing(os.path.abspath(path))
    file = Descriptor(head_path(path), os.O_RDONLY)
    try:
        head = read_head(os.pread(file.number, SIZE + 1, 0), Seal(_key(key_file)))
    except HeadError as error:
        raise InvalidArgumentError(f"{head_path(path)} {error}") from error
    print(head.hash)  # noqa: T201
    return 0


def line(entry: Entry) -> str:
    """Return what there is to know of an entry, in one line."""
    return "  ".join(cell for cell in _cells(entry) if cell)


# -- what is printed --------------------------------------------------------------


def _print_table(shown: Iterable[Entry]) -> None:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(*_TITLES, box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for entry in shown:
        style = "red" if entry.has_failed else ""
        is_short = True if entry.record.get("kind") == "lifecycle" else None
        # SAFETY: as Text, in which no markup is obeyed.
        cells = [Text(cell, style, no_wrap=is_short) for cell in _cells(entry)]
        table.add_row(*cells)
    _console().print(table)


def _print_lines(rows: list[tuple[str, ...]]) -> None:
    """Print one line for each row, however long, for a pipe or a file."""
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:3]]
    for row in rows:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        print("  ".join([*padded, *filter(None, row[3:])]).rstrip())  # noqa: T201


def _console() -> Console:
    from isobox.cli.consoles import PipedConsole  # noqa: PLC0415

    return PipedConsole(highlight=False, file=sys.stdout)


def _print_report(report: Report) -> None:
    for note in report.notes:
        complain(one_line(note))
    for finding in report.findings:
        place = f"{finding.file}:{finding.line}" if finding.line else finding.file
        complain(one_line(f"{place}: {finding.wrong}: {finding.message}"))
    if not report.findings:
        files = len(report.files)
        print(  # noqa: T201
            f"{report.records} records in {files} file{'s' * (files != 1)} are as they "
            f"were written; the last has the hash {report.last.hash}"
        )


def _cells(entry: Entry) -> tuple[str, str, str, str, str]:
    """Return when, where, what, of what, and how it ended.

    SAFETY: facts come from a model and messages from a sandbox; nothing in a cell
    is obeyed by a terminal.
    """
    record = entry.record
    kind = record.get("kind")
    what = f"{kind}: {entry.op}" if kind in ("question", "chain") else str(entry.op)
    return (
        _clock(record),
        _cell(record.get("workspace", "")),
        _cell(what),
        _cell(_about(record)),
        _cell(_result(entry)),
    )


def _cell(value: object) -> str:
    text = one_line(str(value))
    return text if len(text) <= _WIDE else f"{text[:_WIDE]}..."


def _about(record: Record) -> str:
    known = dictionary(record.get("facts"))
    if isinstance(record.get("isolation"), dict):
        return _held(record)
    if "facts" not in record:
        known = {name: record[name] for name in record if name not in _OTHER}
    argv = known.get("argv")
    if isinstance(argv, list):
        return shlex.join(map(str, cast("list[object]", argv)))
    if "host" in known:
        method, target = known.get("method", ""), known.get("target", "")
        return f"{known['host']}:{known.get('port')} {method} {target}".rstrip()
    for name in ("script", "path", "paths"):
        if name in known:
            return str(known[name])
    return json.dumps(known) if known else ""


def _held(record: Record) -> str:
    """Return what isolates a workspace in a few words, the weakest first."""
    by_level: dict[str, list[str]] = {}
    for name, barrier in dictionary(record["isolation"]).items():
        level = dictionary(barrier).get("level")
        by_level.setdefault(level if level in _LEVELS else "odd", []).append(name)
    return "; ".join(
        f"{level}: {', '.join(by_level[level])}"
        for level in ("odd", *_LEVELS)
        if level in by_level
    )


def _result(entry: Entry) -> str:
    end = entry.end
    if end is None:
        begins = entry.record.get("kind") in ("intent", "question")
        return "no end is recorded" if begins else ""
    how = end.get("answer") or ("ok" if end.get("ok") is True else end.get("error"))
    parts = [str(how), f"{end.get('seconds')} s"]
    told = dictionary(end.get("end")).items()
    parts += [f"{name} {value}" for name, value in told if value is not None]
    if end.get("message"):
        parts.append(str(end["message"]))
    return ", ".join(parts)


def _json(entry: Entry) -> str:
    # ASCII only, so that no terminal obeys it.
    return json.dumps({**entry.record, "outcome": entry.end})


# -- what is asked ----------------------------------------------------------------


def _joined(record: Record, begun: OrderedDict[object, Record]) -> Entry:
    """Return a record that came, as the end of its intent if it is one."""
    key = (str(record.get("workspace")), str(record.get("number")))
    if record.get("kind") in ("outcome", "answer"):
        return Entry(begun.pop(key, record), record)
    if record.get("kind") in ("intent", "question"):
        begun[key] = record
        if len(begun) > _OPEN:
            begun.popitem(last=False)
    return Entry(record)


def _key(file: str | None) -> bytes | None:
    return key_of_environment() if file is None else key_of_file(file)


def _time(record: Record) -> float:
    moment = record.get("time")
    return float(moment) if isinstance(moment, int | float) else 0.0


def _clock(record: Record) -> str:
    try:
        clock = datetime.fromtimestamp(_time(record))
        return clock.isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return "-"


def moment(since: str | None) -> float:
    """Return the moment that a text names, in seconds since 1970.

    Raises:
        InvalidArgumentError: It names none.
    """
    if since is None:
        return 0.0
    if (ago := re.fullmatch(r"(\d{1,9})([smhd])", since, re.ASCII)) is not None:
        return time.time() - int(ago[1]) * _UNITS[ago[2]]
    try:
        return datetime.fromisoformat(since).timestamp()
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"--since {since}: write it as 2026-01-31T12:00, or 30m, 2h or 7d"
        ) from error
