"""Here-documents: where they end, and what in them a shell runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tree_sitter import Node

    from isobox._policy.shell.walk import Walk

_DELIMITER: Final = re.compile(rb"(\w[\w.-]*)|'([^'\\\n]+)'|\"([^\"$`\\\n]+)\"|\\(\w+)")
_EXPANDS: Final = re.compile(rb"(?<!\\)(?:\\\\)*(?:`|\$[A-Za-z0-9_@*#?$!({\[-])")


def document(walk: Walk, parts: dict[str, Node]) -> tuple[str | None, list[Node]]:
    """The text of a here-document if the script holds it, and its expansions."""
    start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
    delimiter = None if start is None else _DELIMITER.fullmatch(walk.text(start))
    if start is None or end is None or delimiter is None:
        walk.misread()
        return None, []
    tabs = b"\t" if "<<-" in parts else b""
    name = next(filter(None, delimiter.groups()))
    if not _ends_at_first(walk, name, tabs, (start, end)):
        walk.misread()
    body = parts.get("heredoc_body")
    text = b"" if body is None else walk.text(body)
    quoted = delimiter.group(1) is None
    holes = [] if body is None or quoted else _holes(walk, body)
    if holes or (b"\\" in text and not quoted):
        return None, holes
    plain = re.sub(rb"(?m)^\t+", b"", text) if tabs else text
    return plain.decode(errors="replace"), []


def _ends_at_first(
    walk: Walk, name: bytes, tabs: bytes, marks: tuple[Node, Node]
) -> bool:
    """Whether the end is at the first line that is the delimiter."""
    start, end = marks
    at = walk.source.find(b"\n", start.end_byte) + 1
    while 0 < at <= end.start_byte:
        following = walk.source.find(b"\n", at)
        stop = following if following >= 0 else len(walk.source)
        line = walk.source[at:stop]
        if (line.lstrip(tabs) if tabs else line) == name:
            return end.start_byte <= stop and walk.text(end).strip() == name
        at = following + 1
    return False


def _holes(walk: Walk, body: Node) -> list[Node]:
    holes = walk.expansions([body])
    outside = bytearray(walk.text(body))
    for each in holes:
        start = each.start_byte - body.start_byte
        size = each.end_byte - each.start_byte
        outside[start : start + size] = b" " * size
    if _EXPANDS.search(bytes(outside)):
        walk.misread()
    return holes
