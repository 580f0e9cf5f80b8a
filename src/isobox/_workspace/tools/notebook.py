"""Jupyter notebooks as text and images."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from isobox._workspace.tools.result import DataBlock, TextBlock
from isobox._workspace.tools.wording import clean, note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Bytes of the longest notebook that is parsed.
LONGEST: Final = 8 << 20
_LONGEST_OUTPUT: Final = 2_000
_MOST_IMAGES: Final = 10
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

Fields = Mapping[str, object]
Block = TextBlock | DataBlock


def cells_of(data: bytes) -> list[Fields] | None:
    """Return the cells of a notebook, None if it is none."""
    # SAFETY: the caller bounds the text, nothing in it is executed, and what
    # nests too deep raises.
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError):
        return None
    known = isinstance(_fields(notebook).get("cells"), list)
    return _records(_fields(notebook)["cells"]) if known else None


def shown(cells: Iterable[Fields], first: int) -> tuple[Block, ...]:
    """Return cells, numbered from `first`, with their outputs."""
    blocks: list[Block] = []
    images = 0
    for number, cell in enumerate(cells, first):
        for block in _cell(number, cell):
            images += isinstance(block, DataBlock)
            if isinstance(block, DataBlock) and images > _MOST_IMAGES:
                continue
            _append(blocks, block)
    if images > _MOST_IMAGES:
        _append(blocks, TextBlock(note(f"{images - _MOST_IMAGES} images more")))
    return tuple(blocks)


def _append(blocks: list[Block], block: Block) -> None:
    last = blocks[-1] if blocks else None
    if isinstance(block, TextBlock) and isinstance(last, TextBlock):
        blocks[-1] = TextBlock(f"{last.text}\n{block.text}")
    else:
        blocks.append(block)


def _cell(number: int, cell: Fields) -> Iterator[Block]:
    kind = cell.get("cell_type")
    counter = cell.get("execution_count")
    ran = f", In [{counter}]" if isinstance(counter, int) else ""
    yield TextBlock(note(f"cell {number}: {clean(str(kind))[:20]}{ran}"))
    yield TextBlock(clean(_text(cell.get("source"))))
    for output in _records(cell.get("outputs")):
        yield from _output(output)


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
