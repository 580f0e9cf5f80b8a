"""Text that misleads the eye or the reader, before anything is parsed."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes of the longest script that is read.
LONGEST: Final = 64 * 1024

_CONTROLS: Final = re.compile(r"[\x01-\x08\x0b-\x1f\x7f-\x9f]")
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")


def unreadable(text: str) -> str | None:
    """Why a text is not parsed at all, or None."""
    if "\0" in text:
        return "it holds a NUL byte"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "it is not text"
    return "it is longer than 64 KiB" if size > LONGEST else None


def misleading(text: str) -> Iterator[str]:
    """What in a text shows as something else than what a shell reads."""
    if "\r" in text:
        yield "it holds carriage returns, which a shell takes as text"
    if _CONTROLS.search(text.replace("\r", "")):
        yield "it holds control characters"
    kinds = {unicodedata.category(each) for each in _BEYOND_ASCII.findall(text)}
    if kinds & {"Cf", "Cc", "Cn", "Co", "Cs"}:
        yield "it holds invisible or direction-changing characters"
    if kinds & {"Zs", "Zl", "Zp"}:
        yield "it holds blanks that a shell does not take as blanks"
