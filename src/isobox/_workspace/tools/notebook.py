"""Jupyter notebooks as text and images."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from isobox._workspace.tools.result import DataBlock, TextBlock
from isobox._workspace.tools.wording import MOST_SHOWN, clean, note

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Bytes of the longest notebook that is parsed.
LONGEST: Final = 8 << 20
_LONGEST_OUTPUT: Final = 2_000
_MOST_IMAGES: Final = 10
#: Outputs of one cell.
_MOST_OUTPUTS: Final = 200
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

Fields = Mapping[str, object]
Block = TextBlock | DataBlock


def cells_of(data: bytes) -> list[Fields] | None:
    """Return the cells of a notebook, None if it is none."""
    # SAFETY: the caller bounds the text, nothing in it is executed, and what
    # nests too deep raises.
    try:
        # A hook in Python lets other threads run meanwhile.
        notebook = json.loads(data, object_hook=_fields)
    except (ValueError, RecursionError):
        return None
    known = isinstance(_fields(notebook).get("cells"), list)
    return _records(_fields(notebook)["cells"]) if known else None


def shown(cells: Sequence[Fields], first: int) -> tuple[Block, ...]:
    """Return cells, numbered from `first`, with their outputs, as far as they fit."""
    page = _Page()
    for number, cell in enumerate(cells, first):
        for block in _cell(number, cell):
            page.add(block)
            if page.full:
                more = number + 1 < first + len(cells)
                return page.blocks(_cut(number, more=more))
    return page.blocks()


class _Page:
    """Collects what one result holds: so much text, so many images."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._texts: list[str] = []
        self._room = MOST_SHOWN
        self._images = 0

    @property
    def full(self) -> bool:
        """Whether some text did not fit."""
        return self._room < 0

    def add(self, block: Block) -> None:
        """Take a block, of text what there is room for."""
        if isinstance(block, TextBlock):
            self._texts.append(block.text[: self._room])
            self._room -= len(block.text)
            return
        self._images += 1
        if self._images <= _MOST_IMAGES:
            self._end_text()
            self._blocks.append(block)

    def blocks(self, *notes: str) -> tuple[Block, ...]:
        """Return all of it, with notes at the end."""
        if self._images > _MOST_IMAGES:
            notes = (*notes, note(f"{self._images - _MOST_IMAGES} images more"))
        self._texts += notes
        self._end_text()
        return tuple(self._blocks)

    def _end_text(self) -> None:
        if self._texts:
            self._blocks.append(TextBlock("\n".join(self._texts)))
            self._texts = []


def _cut(number: int, *, more: bool) -> str:
    go_on = f"; go on with offset={number + 1}" if more else ""
    return note(
        f"cell {number} is cut, a result holds {MOST_SHOWN:,} characters; see the rest "
        f"of it with Bash{go_on}"
    )


def _cell(number: int, cell: Fields) -> Iterator[Block]:
    kind = cell.get("cell_type")
    counter = cell.get("execution_count")
    ran = f", In [{counter}]" if isinstance(counter, int) else ""
    yield TextBlock(note(f"cell {number}: {clean(str(kind))[:20]}{ran}"))
    yield TextBlock(clean(_text(cell.get("source"))))
    outputs = _records(cell.get("outputs"))
    for output in outputs[:_MOST_OUTPUTS]:
        yield from _output(output)
    if len(outputs) > _MOST_OUTPUTS:
        yield TextBlock(note(f"{len(outputs) - _MOST_OUTPUTS:,} outputs more"))


def _output(output: Fields) -> Iterator[Block]:
    if output.get("output_type") == "error":
        yield _printed("error", _text(output.get("traceback"), "\n"))
        return
    if "text" in output:
        yield _printed("output", _text(output["text"]))
    data = _fields(output.get("data"))
    for media_type in _IMAGES:
        if image := _image(_text(data.get(media_type))):
            yield DataBlock(media_type, image)
            return
    if "text/plain" in data:
        yield _printed("output", _text(data["text/plain"]))


def _printed(what: str, text: str) -> TextBlock:
    text = _ESCAPE.sub("", clean(text)).removesuffix("\n")
    if len(text) > _LONGEST_OUTPUT:
        left = len(text) - _LONGEST_OUTPUT
        text = f"{text[:_LONGEST_OUTPUT]}\n{note(f'{left:,} characters more')}"
    return TextBlock(f"{note(what)}\n{text}")


def _image(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _text(value: object, separator: str = "") -> str:
    """Return what a notebook holds as a string or as a list of lines."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    lines = cast("list[object]", value)
    return separator.join(line for line in lines if isinstance(line, str))


def _fields(value: object) -> Fields:
    return cast("Fields", value) if isinstance(value, dict) else {}


def _records(value: object) -> list[Fields]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Fields", item) for item in items if isinstance(item, dict)]
