"""The forms in which programs write a text: Base64, percent-encoding, JSON."""

from __future__ import annotations

import base64
import json
from typing import Final
from urllib.parse import quote, quote_plus

#: Of Base64's characters, those that depend on what stands before a text that
#: begins 0, 1 or 2 bytes after a multiple of three.
_FOREIGN: Final = (0, 2, 3)
_URLSAFE: Final = bytes.maketrans(b"+/", b"-_")


def in_base64(text: bytes) -> tuple[bytes, ...]:
    """Return what Base64 shows of `text`, wherever it stands in the encoded data.

    At each of the three alignments it is the characters that `text` alone
    decides: at most two of its bytes at either end are not in them.
    """
    forms: dict[bytes, None] = {}
    for shift, foreign in enumerate(_FOREIGN):
        encoded = base64.b64encode(b"\0" * shift + text)
        whole = (shift + len(text)) * 8 // 6
        form = encoded[foreign:whole]
        forms[form] = None
        forms[form.translate(_URLSAFE)] = None
    return tuple(forms)


def written(value: bytes) -> tuple[bytes, ...]:
    """Return the forms of a value: itself, in Base64, percent-encoded, in JSON."""
    forms = dict.fromkeys((value, *in_base64(value)))
    for safe in ("", "/"):
        forms |= dict.fromkeys(_both_cases(quote(value, safe=safe)))
        forms |= dict.fromkeys(_both_cases(quote_plus(value, safe=safe)))
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return tuple(forms)
    for ascii_only in (True, False):
        inside = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        forms[inside.encode()] = None
        forms[inside.replace("/", "\\/").encode()] = None
    return tuple(forms)


def _both_cases(quoted: str) -> tuple[bytes, bytes]:
    pieces = quoted.split("%")
    lower = [pieces[0], *(piece[:2].lower() + piece[2:] for piece in pieces[1:])]
    return quoted.encode(), "%".join(lower).encode()
