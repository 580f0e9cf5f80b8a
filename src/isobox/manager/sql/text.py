"""Any text as text that every database takes, and back."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from isobox.errors import StoreError
from isobox.manager.keys import told_apart

#: What PostgreSQL (NUL) or UTF-8 (half a surrogate pair) has not, and our mark.
_ODD: Final = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPED: Final = re.compile(r"\\([0-9a-f]{4})")


def escaped(text: str) -> str:
    """Return text without NUL and surrogates; different texts stay different."""
    return _ODD.sub(lambda odd: f"\\{ord(odd[0]):04x}", text)


def plain(stored: object) -> str:
    """Return the text that was escaped.

    Raises:
        StoreError: It was not written by `escaped`.
    """
    if isinstance(stored, str):
        if not _ODD.search(stored):
            return stored
        text = _ESCAPED.sub(lambda code: chr(int(code[1], 16)), stored)
        if escaped(text) == stored:
            return text
    raise StoreError(f"the store holds text that it cannot: {stored!a:.100}")


def digest(*parts: str | None) -> str:
    """Return a short name of some texts, for an index; no two have the same."""
    return hashlib.sha256(told_apart(parts)).hexdigest()
