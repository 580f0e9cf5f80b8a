"""What a person is shown of an operation before it happens."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final, TypeVar

from isobox._core.ops import (
    Apply,
    Checkpoint,
    Diff,
    Edit,
    Patch,
    Read,
    Script,
    Spawn,
    Write,
)
from isobox._core.results import PATH_ERRORS
from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from isobox._core.ops import Op
    from isobox._core.stack import Perform

R = TypeVar("R")

#: Characters that a person is shown, and bytes of a file that are compared.
_SHOWN: Final = 16_384
_COMPARED: Final = 65_536


async def preview(op: Op[object], inner: Perform) -> str:
    """Return what an operation would do, as a person reads it.

    It has at most 16,384 characters, and none that could steer a terminal.

    Args:
        op: The operation.
        inner: Performs what is needed to compare.
    """
    return _plain(await _of(op, inner))


async def _of(op: Op[object], inner: Perform) -> str:
    match op:
        case Spawn():
            return op.script if op.script is not None else " ".join(op.argv)
        case Script():
            return op.script
        case Write() if isinstance(op.body, bytes):
            return _diff(op.path, await _content(op.path, inner), op.body)
        case Edit():
            pieces = (_diff(op.path, each.old, each.new) for each in op.replacements)
            return "\n".join(pieces)
        case Patch():
            return "\n".join(_changes(op))
        case Apply():
            return str(await _performed(Diff(), inner) or "")
        case Checkpoint():
            return op.text
        case _:
            return ""


async def _content(path: str, inner: Perform) -> bytes:
    stream = await _performed(Read(path=path, length=_COMPARED), inner)
    if stream is None:
        return b""
    async with stream:
        return await stream.read()


async def _performed(op: Op[R], inner: Perform) -> R | None:
    # What cannot be shown must not keep the question from being asked.
    try:
        return await inner(op)
    except IsoboxError:
        return None


def _diff(path: str, old: bytes, new: bytes) -> str:
    lines = difflib.unified_diff(
        _lines(old), _lines(new), fromfile=path, tofile=path, n=2, lineterm=""
    )
    return "\n".join(lines)


def _lines(data: bytes) -> list[str]:
    return data[:_COMPARED].decode("utf-8", PATH_ERRORS).splitlines()


def _changes(op: Patch) -> Iterator[str]:
    for change in op.changes:
        moved = f" -> {change.target}" if change.target is not None else ""
        yield f"{change.kind} {change.path}{moved}"


def _plain(text: str) -> str:
    """Return a text of which every character is one that is seen."""
    more = f"\n[... {len(text) - _SHOWN} characters more]"
    shown = "".join(_visible(text[:_SHOWN]))
    return shown + more if len(text) > _SHOWN else shown


def _visible(text: str) -> Iterable[str]:
    for character in text:
        if character in "\n\t" or character.isprintable():
            yield character
        else:
            yield f"\\x{ord(character):02x}"
