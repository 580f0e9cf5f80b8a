"""The Read tool: a file as numbered lines, an image, a document as text."""

from __future__ import annotations

import functools
import hashlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import anyio.to_thread
from typing_extensions import override

from isobox._core.ops import ReadLines
from isobox._workspace.tools import notebook
from isobox._workspace.tools.places import no_file
from isobox._workspace.tools.result import ToolResult
from isobox._workspace.tools.schema import FARTHEST, text, whole
from isobox._workspace.tools.session import Lines, Seen
from isobox._workspace.tools.tool import SessionTool
from isobox._workspace.tools.wording import (
    MOST_SHOWN,
    count,
    failed,
    image,
    listed,
    note,
    said,
)
from isobox.errors import PathError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._core.results import Page

MOST_LINES: Final = 2000
LINE_WIDTH: Final = 2000
_IMAGES: Final = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_PDF_SECONDS: Final = 60
_PDF_TEXT: Final = 16 << 20


@dataclass(frozen=True, kw_only=True)
class ReadArguments:
    """What Read takes."""

    file_path: str = text(
        "The file, relative to the workspace's directory or absolute."
    )
    offset: int = whole(
        "First line to show, from 1. Negative numbers count from the end: -20 shows "
        "the last 20 lines. In a notebook it counts cells.",
        default=1,
        minimum=-FARTHEST,
        maximum=FARTHEST,
    )
    limit: int = whole(
        "The most lines to show.", default=MOST_LINES, minimum=1, maximum=MOST_LINES
    )


class Read(SessionTool[ReadArguments]):
    """Shows what is in a file."""

    name: str = "Read"
    description = (
        "Show a file's lines, each after its number and a tab. Images are shown as "
        "images, notebooks as cells with outputs, PDF files as text. Lines over "
        f"{LINE_WIDTH:,} characters are cut. Encoding and line ends are told where "
        "they are not UTF-8 and LF."
    )
    read_only: ClassVar[bool] = True
    arguments = ReadArguments

    @override
    async def _perform(self, given: ReadArguments) -> ToolResult:
        if given.offset == 0:
            return failed(
                "offset is 0; lines are numbered from 1, and -1 is the last one",
                error="arguments",
            )
        path = self.session.absolute(given.file_path)
        try:
            if path.endswith(".ipynb"):
                return await self._notebook(path, given)
            return await self._page(path, given)
        except PathError as error:
            return await no_file(self.session, path, error)

    async def _page(self, path: str, given: ReadArguments) -> ToolResult:
        page = await self.workspace._do(
            ReadLines(
                path=path, start=given.offset, count=given.limit, width=LINE_WIDTH
            )
        )
        if page.media_type == "application/pdf":
            return await self._document(path, given)
        if page.media_type.startswith("image/"):
            return self._image(path, page)
        if not page.media_type.startswith("text/"):
            return failed(
                f"{self.session.shown(path)} is binary ({page.media_type}, "
                f"{count(page.entry.size, 'byte')}); look at it with Bash: file, "
                "strings, xxd",
                media_type=page.media_type,
            )
        self._remember(path, page)
        return _lines(self.session.shown(path), page, given.offset)

    def _remember(self, path: str, page: Page) -> None:
        whole = len(page.lines) == page.total and not page.clipped
        end = "\n" if page.final_newline and page.lines else ""
        self.session.note(
            path,
            Seen(page.entry.digest or "", page.newline, page.encoding),
            Lines(page.lines, end, page.entry.size) if whole else None,
        )

    def _image(self, path: str, page: Page) -> ToolResult:
        shown = self.session.shown(path)
        size = count(page.entry.size, "byte")
        if page.data is None:
            return failed(
                f"{shown} is an image of {size}, too large to be shown; make it "
                "smaller with Bash and read the copy"
            )
        if page.media_type not in _IMAGES:
            return failed(
                f"{shown} is an image of the type {page.media_type}; convert it to PNG "
                "with Bash and read the copy"
            )
        return image(page.media_type, page.data, f"{shown}: {page.media_type}, {size}")

    async def _document(self, path: str, given: ReadArguments) -> ToolResult:
        # SAFETY: a document is parsed inside the sandbox, never here.
        result = await self.workspace.run(
            ["pdftotext", "-layout", "-enc", "UTF-8", "--", path, "-"],
            timeout=_PDF_SECONDS,
            output_limit=_PDF_TEXT,
        )
        shown = self.session.shown(path)
        if result.exit_code == 127:
            return failed(
                f"{shown} is a PDF file, and pdftotext (poppler-utils) is not "
                "installed here; install it, or extract the text with Bash"
            )
        if not result.ok:
            return failed(f"{shown} could not be read as PDF: {result.stderr[-500:]}")
        return _document(shown, result.stdout, given)

    async def _notebook(self, path: str, given: ReadArguments) -> ToolResult:
        data = await self.workspace.read_bytes(path, length=notebook.LONGEST + 1)
        cells = await _cells(data)
        if cells is None:
            return await self._page(path, given)
        self.session.note(path, Seen(hashlib.sha256(data).hexdigest()))
        first = given.offset if given.offset > 0 else len(cells) + given.offset + 1
        first = max(1, first)
        chosen = cells[first - 1 : first - 1 + given.limit]
        shown = self.session.shown(path)
        if not chosen:
            return _beyond(shown, given.offset, len(cells), "cell")
        blocks = await anyio.to_thread.run_sync(notebook.shown, chosen, first)
        return ToolResult(blocks=blocks, metadata={"cells": len(cells)})


async def _cells(data: bytes) -> list[notebook.Fields] | None:
    if len(data) > notebook.LONGEST:
        return None
    # A long one would hold up all that the host does meanwhile.
    return await anyio.to_thread.run_sync(notebook.cells_of, data)


def _lines(shown: str, page: Page, offset: int) -> ToolResult:
    if not page.total:
        return said(note(f"{shown} is empty"), metadata=_facts(page))
    if not page.lines:
        return _beyond(shown, offset, page.total, "line")
    fitting = len(page.lines)
    numbered = numbered_lines(page.lines, page.first)
    if len(numbered) > MOST_SHOWN:
        fitting = _fitting(page.lines)
        numbered = numbered_lines(page.lines[:fitting], page.first)
    last = page.first + fitting - 1
    return said(
        numbered,
        _extent(page.first, last, page.total),
        _clipped(page, last),
        _oddities(page),
        metadata=_facts(page),
    )


def numbered_lines(lines: Sequence[str], first: int) -> str:
    """Return lines, each after its number and a tab."""
    pieces = [""] * (2 * len(lines))
    pieces[::2] = _numbers(first, len(lines))
    pieces[1::2] = lines
    return "".join(pieces)


@functools.lru_cache(maxsize=8)
def _numbers(first: int, count: int) -> tuple[str, ...]:
    """Return what stands before lines: the end of the one before, and a number."""
    rest = (f"\n{number:6}\t" for number in range(first + 1, first + count))
    return (f"{first:6}\t", *rest)


def _fitting(lines: Sequence[str]) -> int:
    if sum(map(len, lines)) <= MOST_SHOWN:
        return len(lines)
    ends = itertools.accumulate(map(len, lines))
    return max(1, sum(end <= MOST_SHOWN for end in ends))


def _extent(first: int, last: int, total: int) -> str:
    if first == 1 and last == total:
        return ""
    more = f"; go on with offset={last + 1}" if last < total else ""
    return note(f"lines {first:,} to {last:,} of {total:,}{more}")


def _clipped(page: Page, last: int) -> str:
    numbers = [str(number) for number in page.clipped if number <= last]
    if not numbers:
        return ""
    return note(f"cut at {LINE_WIDTH:,} characters: line {listed(numbers, 20)}")


def _oddities(page: Page) -> str:
    odd = [
        page.encoding if page.encoding != "utf-8" else "",
        {"\r\n": "CRLF line ends", "mixed": "mixed line ends"}.get(page.newline, ""),
        "" if page.final_newline else "no newline at the end",
    ]
    return note(", ".join(filter(None, odd))) if any(odd) else ""


def _facts(page: Page) -> dict[str, object]:
    return {
        "lines": page.total,
        "bytes": page.entry.size,
        "encoding": page.encoding,
        "digest": page.entry.digest,
    }


def _document(shown: str, content: str, given: ReadArguments) -> ToolResult:
    pages = content.removesuffix("\f").split("\f")
    lines = [
        line
        for number, page in enumerate(pages, 1)
        for line in (note(f"page {number}"), *page.rstrip("\n").split("\n"))
    ]
    start = given.offset - 1 if given.offset > 0 else len(lines) + given.offset
    start = max(0, start)
    chosen = lines[start : start + given.limit]
    if not chosen:
        return _beyond(shown, given.offset, len(lines), "line")
    chosen = chosen[: _fitting(chosen)]
    return said(
        numbered_lines(chosen, start + 1),
        _extent(start + 1, start + len(chosen), len(lines)),
        metadata={"pages": len(pages), "lines": len(lines)},
    )


def _beyond(shown: str, offset: int, total: int, noun: str) -> ToolResult:
    length = count(total, noun)
    return failed(f"offset={offset} is beyond the end: {shown} has {length}")
