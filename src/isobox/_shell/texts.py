"""Lines of a file, found on the host as the guest finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from isobox._core.results import Page
from isobox._guest import agent
from isobox._shell import answers
from isobox._shell.readings import opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from isobox._core.ops import ReadLines
    from isobox._core.results import ByteStream, Entry
    from isobox._shell.operators import Operators

_STRIDE: Final = 1 << 19


async def page(operators: Operators, op: ReadLines) -> Page:
    """Return the lines of a file that are asked for.

    A file of over 8 MiB is read twice: once to count its lines, and once from
    near the first that is wanted. So memory is bounded.
    """
    survey = agent.Survey()
    content: bytes | None
    content, fields = await _surveyed(operators, op, survey)
    entry = answers.entry(fields, op.path, survey.digest.hexdigest())
    media = agent.media_type_of(survey.head, bool(survey.encoding) or not survey.size)
    if not media.startswith("text/"):
        return _no_text(entry, media, content)
    first = agent.first_line(op.start, survey.total)
    lines = agent.Page(survey, first, op.count, op.width)
    if survey.size:
        await _fill(operators, op, lines, content)
    return Page(
        entry=entry,
        lines=tuple(line.encode("utf-8", "replace").decode() for line in lines.lines),
        first=first + 1,
        total=survey.total,
        clipped=tuple(lines.clipped),
        encoding=(survey.encoding if survey.size else None) or "utf-8",
        newline=survey.newline,
        final_newline=survey.final_newline,
    )


async def _surveyed(
    operators: Operators, op: ReadLines, survey: agent.Survey
) -> tuple[bytes | None, list[bytes]]:
    """Look at a whole file; returns its content if it is small."""
    reading, fields = await opened(
        operators, op.path, offset=0, length=None, op="read_lines"
    )
    pieces: list[bytes] | None = []
    async with reading:
        async for piece in _strides(reading):
            survey.add(piece)
            if pieces is not None and survey.size <= agent.LARGEST_IMAGE:
                pieces.append(piece)
            else:
                pieces = None
    survey.end()
    return None if pieces is None else b"".join(pieces), fields


async def _fill(
    operators: Operators, op: ReadLines, lines: agent.Page, content: bytes | None
) -> None:
    if content is not None:
        list(agent.fill(lines, -1, content))
        return
    at = lines.begin()
    reading, _ = await opened(
        operators,
        op.path,
        offset=at,
        length=lines.survey.size - at,
        op="read_lines",
    )
    async with reading:
        async for piece in _strides(reading):
            lines.add(piece)
            if lines.full:
                break
    lines.end()


async def _strides(reading: ByteStream) -> AsyncIterator[bytes]:
    """Yield a file in pieces of one size, so that no character is cut in two."""
    read = bytearray()
    async for piece in reading:
        read += piece
        while len(read) >= _STRIDE:
            yield bytes(read[:_STRIDE])
            del read[:_STRIDE]
    if read:
        yield bytes(read)


def _no_text(entry: Entry, media: str, content: bytes | None) -> Page:
    return Page(
        entry=entry,
        media_type=media,
        encoding="",
        newline="",
        final_newline=False,
        data=content if media.startswith("image/") else None,
    )
