"""What a person is shown of an operation before it happens."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import shlex
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from isobox._core.ops import (
    Apply,
    Checkpoint,
    Diff,
    Edit,
    Patch,
    Read,
    Remove,
    Scan,
    Script,
    Spawn,
    Write,
)
from isobox._core.results import PATH_ERRORS
from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from isobox._core.ops import Op
    from isobox._core.patch import FileChange
    from isobox._core.results import Change
    from isobox._core.stack import Perform

R = TypeVar("R")

#: Characters that a person is shown, and bytes of a file that are compared.
_SHOWN: Final = 16_384
_COMPARED: Final = 65_536
#: Lines between the first and the last change that are compared one by one: with
#: more, text made for it would keep the comparison busy for minutes.
_ALIGNED: Final = 400
_CONTEXT: Final = 2
#: Names below a directory that are counted.
_COUNTED: Final = 10_000
#: Seconds that the sandbox has to show what is there.
_PATIENCE: Final = 5.0


async def preview(op: Op[object], inner: Perform) -> str:
    """Return what an operation would do, as a person reads it.

    It has at most 16,384 characters, and none that could steer a terminal. What
    the sandbox does not show within 5 seconds is left out.

    Args:
        op: The operation.
        inner: Performs what is needed to compare.
    """
    return _plain(_bounded(await _of(op, inner)))


async def _of(op: Op[object], inner: Perform) -> Iterable[str]:
    match op:
        case Spawn() | Script():
            return [_command(op)]
        case Write():
            if not isinstance(op.body, bytes):
                return [f"{op.path}: content that arrives piece by piece"]
            return _diff(op.path, await _content(op.path, inner), op.body)
        case Edit():
            return (
                line
                for each in op.replacements
                for line in _diff(op.path, each.old, each.new)
            )
        case Patch():
            return (line for each in op.changes for line in _patched(each))
        case Remove():
            return [await _removed(op, inner)]
        case Apply():
            changes = await _performed(Diff(), inner)
            return () if changes is None else _applied(changes.changes, op.paths)
        case Checkpoint():
            return [op.text]
        case _:
            return ()


def _command(op: Spawn | Script) -> str:
    if isinstance(op, Spawn) and op.report:
        return f"{op.label}; each script that it is given is looked at"
    if op.script is None:
        return shlex.join(op.argv)
    return _evaluated(op.script)


def _evaluated(script: str) -> str:
    """Return what a script hands to `eval`, if it does nothing but that."""
    for end in ("", " 2>&1"):
        inner = script.removeprefix("eval ").removesuffix(end)
        with contextlib.suppress(ValueError):
            words = shlex.split(inner)
            if len(words) == 1 and script == f"eval {shlex.quote(words[0])}{end}":
                return words[0]
    return script


async def _content(path: str, inner: Perform) -> bytes:
    with anyio.move_on_after(_PATIENCE):
        stream = await _performed(Read(path=path, length=_COMPARED), inner)
        if stream is not None:
            async with stream:
                return await stream.read()
    return b""


async def _removed(op: Remove, inner: Perform) -> str:
    if not op.recursive:
        return op.path
    below = await _performed(
        Scan(path=op.path, depth=None, limit=_COUNTED, follow=False), inner
    )
    if below is None:
        return op.path
    more = " or more" if below.truncated else ""
    return f"{op.path} and what is below it: {len(below.entries)}{more} names"


async def _performed(op: Op[R], inner: Perform) -> R | None:
    # What cannot be shown must not keep the question from being asked.
    try:
        with anyio.move_on_after(_PATIENCE):
            return await inner(op)
    except IsoboxError:
        pass
    return None


def _patched(change: FileChange) -> Iterator[str]:
    moved = f" -> {change.target}" if change.target is not None else ""
    yield f"{change.kind} {change.path}{moved}"
    for hunk in change.hunks:
        yield "@@"
        yield from hunk.body


def _applied(changes: Sequence[Change], paths: tuple[str, ...] | None) -> Iterator[str]:
    for change in changes:
        if paths is None or any(_is_at(change.path, path) for path in paths):
            refused = f" (refused: {change.refused})" if change.refused else ""
            yield f"{change.change} {change.kind} {change.path}{refused}"
            yield from (change.text or "").splitlines()


def _is_at(path: str, above: str) -> bool:
    above = above.rstrip("/")
    return path == above or path.startswith(above + "/") or above in ("", ".")


def _diff(path: str, old: bytes, new: bytes) -> Iterator[str]:
    before, after = _lines(old), _lines(new)
    yield f"--- {path}"
    yield f"+++ {path}"
    if before == after and old != new:
        yield "[line ends alone differ, or what is not shown]"
    yield from _changes(before, after)
    if len(old) > _COMPARED or len(new) > _COMPARED:
        yield f"[compared as far as {_COMPARED} bytes]"


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    first, last = _shared(before, after)
    if max(len(before), len(after)) - first - last > _ALIGNED:
        yield from (f"-{line}" for line in before[first : len(before) - last])
        yield from (f"+{line}" for line in after[first : len(after) - last])
        return
    first, last = max(0, first - _CONTEXT), max(0, last - _CONTEXT)
    lines = difflib.unified_diff(
        before[first : len(before) - last],
        after[first : len(after) - last],
        n=_CONTEXT,
        lineterm="",
    )
    for line in itertools.islice(lines, 2, None):
        # Its numbers count from where the comparison began.
        yield "@@" if line.startswith("@@") else line


def _shared(one: Sequence[str], other: Sequence[str]) -> tuple[int, int]:
    """Return how many lines two texts share at the beginning, and at the end."""
    most = min(len(one), len(other))
    first = next((n for n in range(most) if one[n] != other[n]), most)
    most -= first
    last = next((n for n in range(most) if one[-1 - n] != other[-1 - n]), most)
    return first, last


def _lines(data: bytes) -> list[str]:
    return data[:_COMPARED].decode("utf-8", PATH_ERRORS).splitlines()


def _bounded(lines: Iterable[str]) -> str:
    """Return lines, no more of them than are shown."""
    found: list[str] = []
    size = 0
    for line in lines:
        found.append(line)
        size += len(line) + 1
        if size > _SHOWN + 1:
            break
    return "\n".join(found)


def _plain(text: str) -> str:
    """Return a text of which every character is one that is seen."""
    shown = "".join(_visible(text[:_SHOWN]))
    return f"{shown}\n[... there is more]" if len(text) > _SHOWN else shown


def _visible(text: str) -> Iterable[str]:
    for character in text:
        if character in "\n\t" or character.isprintable():
            yield character
        else:
            yield f"\\x{ord(character):02x}"
