"""What a client is told that asks for what is refused, or cannot be had."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from isobox._egress.place import BadRequestError
from isobox._egress.sources import SecretError
from isobox.errors import LimitError, PolicyDeniedError

if TYPE_CHECKING:
    from isobox._egress.headers import Headers
    from isobox._egress.place import Place
    from isobox.errors import IsoboxError

#: Characters of a reason in a status line.
_PHRASE: Final = 200


def explained(error: IsoboxError, place: Place | None) -> tuple[int, str, Headers]:
    """Return the status, the text and more headers of an answer.

    Args:
        error: Why there is no other answer.
        place: Where the request was to go, if it said so.
    """
    what = f"{place.host}:{place.port}" if place else "the request"
    if isinstance(error, PolicyDeniedError):
        rule = _in_header(error.rule) or "default"
        text = f"isobox denies {what}: {error.reason} (rule {error.rule!r})\n"
        return 403, text, [(b"X-Isobox-Denied", rule.encode("ascii"))]
    if isinstance(error, LimitError):
        return 429, f"isobox limits {what}: {error}\n", []
    if isinstance(error, BadRequestError):
        return error.status, f"isobox refuses a malformed request: {error}\n", []
    if isinstance(error, SecretError):
        # Why there is none is for who has it, and not for who uses it.
        return 502, f"isobox cannot get secret {error.secret} for {what}\n", []
    return 502, f"isobox cannot reach {what}: {error}\n", []


def phrase(text: str) -> bytes:
    """Return a text as the reason of a status line, which most programs print."""
    # SAFETY: it may hold what a request chose; nothing in it can end the line.
    return _in_header(text.strip())[:_PHRASE].encode("ascii")


def _in_header(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", text)[:512].strip()
