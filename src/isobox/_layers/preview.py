"""What a person is shown of an operation before it happens."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import json
import re
import shlex
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from isobox._core.links import elsewhere
from isobox._core.ops import (
    Apply,
    CallTool,
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
from isobox._core.paths import shown
from isobox._core.results import PATH_ERRORS
from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from isobox._core.ops import Op, Place, Replacement
    from isobox._core.patch import FileChange
    from isobox._core.results import Changes
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
#: Variables of a command that are named, and characters of each value.
_VARIABLES: Final = 32
_WORD: Final = 256
_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
#: Printable characters of which nothing is seen: fillers, variation selectors.
_UNSEEN: Final = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            *(0x16FE4, 0x1D159),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)
#: Seconds that the sandbox has to show what is there.
_PATIENCE: Final = 5.0


async def preview(
    op: Op[object], inner: Perform, redact: Callable[[str], str] = str
) -> str:
    """Return what an operation would do, as a person reads it.

    It has at most 16,384 characters, and none that could steer a terminal. What
    the sandbox does not show within 5 seconds is left out.

    Args:
        op: The operation.
        inner: Performs what is needed to compare.
        redact: Masks what nobody is to see, before anything is cut off.
    """
    lines = await _of(op, inner)
    if isinstance(op, Spawn):
        lines = itertools.chain([_around(op, redact)], lines)
    if isinstance(op, Script) and op.stands_in is not None:
        lines = itertools.chain([f"in {_word(redact(op.stands_in))}"], lines)
    if led := elsewhere(op):
        lines = itertools.chain(map(_led, led), lines)
    text, whole = _bounded(lines)
    return _plain(redact(text), whole=whole)


async def _of(op: Op[object], inner: Perform) -> Iterable[str]:
    match op:
        case Spawn() | Script():
            return [_command(op)]
        case Write() | Edit() | Patch():
            return await _changed(op, inner)
        case Remove():
            return [await _removed(op, inner)]
        case Apply():
            changes = await _performed(Diff(paths=op.paths, digest=True), inner)
            if changes is None:
                return ["[the changes could not be shown]"]
            return _applied(changes)
        case CallTool() | Checkpoint():
            return _told(op)
        case _:
            return ()


def _told(op: CallTool | Checkpoint) -> list[str]:
    if isinstance(op, Checkpoint):
        return [op.text]
    arguments = json.dumps(
        dict(op.arguments), indent=2, ensure_ascii=False, sort_keys=True, default=str
    )
    return [f"{op.server}: {op.kind} {op.tool}", *arguments.splitlines()]


async def _changed(op: Write | Edit | Patch, inner: Perform) -> Iterable[str]:
    match op:
        case Patch():
            return (line for each in op.changes for line in _patched(each))
        case Edit():
            return (
                line for each in op.replacements for line in _replaced(op.path, each)
            )
        case _ if not isinstance(op.body, bytes):
            return [
                *_manner(op),
                f"{shown(op.path)}: content that arrives piece by piece",
            ]
        case _:
            old = b"" if op.append else await _content(op.path, inner)
            return itertools.chain(_manner(op), _diff(op.path, old, op.body))


def _manner(op: Write) -> Iterator[str]:
    """Return what of a write its content does not show."""
    if op.mode is not None:
        yield f"mode {op.mode:04o}"
    if op.append:
        yield "after what is there:"


def _around(op: Spawn, redact: Callable[[str], str]) -> str:
    """Return where a command runs, as whom and with what, in one line."""
    words = ["in", _word(redact(op.cwd))]
    words += [] if op.user is None else ["as", _word(redact(op.user))]
    told = sorted(op.env.items())
    words += ["with"] if told else []
    for name, value in told[:_VARIABLES]:
        put = "(removed)" if value is None else "=" + _word(redact(value))
        words.append(_word(redact(name)) + put)
    more = len(told) - _VARIABLES
    words += [f"and {more} more variables"] if more > 0 else []
    words += [] if op.spool is None else ["printing to", _word(redact(op.spool))]
    return " ".join(words)


def _led(place: Place) -> str:
    return f"{shown(place.path)} leads to {shown(place.real)}"


def _word(text: str) -> str:
    """Return a text as one word on one line."""
    cut = text[:_WORD]
    plain = cut if _PLAIN.fullmatch(cut) else json.dumps(cut, ensure_ascii=False)
    return plain + (f"[... {len(text) - _WORD} more]" if len(text) > _WORD else "")


def _command(op: Spawn | Script) -> str:
    if isinstance(op, Spawn) and op.report:
        return f"{op.label}; each script that it is given is looked at"
    if op.script is None:
        return shlex.join(op.argv)
    return _evaluated(op.script)


def _evaluated(script: str) -> str:
    """Return what a script hands to `eval`, if it does nothing but that."""
    start = "\\builtin eval " if script.startswith("\\") else "eval "
    for end in ("", " 2>&1"):
        inner = script.removeprefix(start).removesuffix(end)
        with contextlib.suppress(ValueError):
            words = shlex.split(inner)
            if len(words) == 1 and script == f"{start}{shlex.quote(words[0])}{end}":
                return words[0]
    return script


async def _content(path: str, inner: Perform) -> bytes:
    with anyio.move_on_after(_PATIENCE), contextlib.suppress(IsoboxError):
        stream = await _performed(Read(path=path, length=_COMPARED), inner)
        if stream is not None:
            async with stream:
                return await stream.read()
    return b""


async def _removed(op: Remove, inner: Perform) -> str:
    if not op.recursive:
        return shown(op.path)
    below = await _performed(
        Scan(path=op.path, depth=None, limit=_COUNTED, follow=False), inner
    )
    if below is None:
        return shown(op.path)
    more = " or more" if below.truncated else ""
    return f"{shown(op.path)} and what is below it: {len(below.entries)}{more} names"


async def _performed(op: Op[R], inner: Perform) -> R | None:
    # What cannot be shown must not keep the question from being asked.
    try:
        with anyio.move_on_after(_PATIENCE):
            return await inner(op)
    except IsoboxError:
        pass
    return None


def _patched(change: FileChange) -> Iterator[str]:
    moved = f" -> {shown(change.target)}" if change.target is not None else ""
    yield f"{change.kind} {shown(change.path)}{moved}"
    for hunk in change.hunks:
        yield "@@"
        yield from hunk.body


def _applied(changes: Changes) -> Iterator[str]:
    # In a line each before any text: one long text must not hide the others.
    yield from map(str, changes.changes)
    if changes.truncated:
        yield "[there are more changes than were looked at]"
    for change in changes.changes:
        yield from (change.text or "").splitlines()


def _replaced(path: str, each: Replacement) -> Iterator[str]:
    if each.every:
        yield f"every occurrence in {shown(path)}:"
    yield from _diff(path, each.old, each.new)


def _diff(path: str, old: bytes, new: bytes) -> Iterator[str]:
    before, after = _lines(old), _lines(new)
    yield f"--- {shown(path)}"
    yield f"+++ {shown(path)}"
    if before == after and old != new:
        yield "[line ends alone differ, or what is not shown]"
    yield from _changes(before, after)
    # Of what is there no more was read.
    if len(old) >= _COMPARED or len(new) > _COMPARED:
        more = max(0, len(new) - _COMPARED)
        yield f"[compared as far as {_COMPARED} bytes; {more} new ones are not shown]"


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


def _bounded(lines: Iterable[str]) -> tuple[str, bool]:
    """Return lines, no more of them than are shown, and whether they are all."""
    found: list[str] = []
    size = 0
    rest = iter(lines)
    for line in rest:
        found.append(line)
        size += len(line) + 1
        if size > _SHOWN + 1:
            break
    return "\n".join(found), next(rest, None) is None


def _plain(text: str, *, whole: bool) -> str:
    """Return a text of which every character is one that is seen."""
    seen = "".join(_visible(text[:_SHOWN]))
    left = len(text) - _SHOWN
    if whole:
        return f"{seen}\n[... {left} characters more]" if left > 0 else seen
    # What is masked may be shorter than it was.
    return f"{seen}\n[... at least {max(1, left)} characters more]"


def _visible(text: str) -> Iterable[str]:
    for character in text:
        seen = character.isprintable() and character not in _UNSEEN
        if seen or character in "\n\t":
            yield character
        else:
            yield f"\\x{ord(character):02x}"
