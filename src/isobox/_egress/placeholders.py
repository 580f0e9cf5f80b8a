"""Placeholders: what stands inside for a secret, and where it occurs."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

from isobox._egress import forms

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Finds any placeholder of any vault. All of it survives percent-encoding.
PLACEHOLDER: Final = re.compile(r"isobox_[a-z0-9]{1,32}_[0-9a-f]{32}")

_PREFIX: Final = b"isobox"
#: One of these is in every form of every placeholder: written as it is, all of
#: it percent-encoded, in Base64. To look for them is as fast as memory is.
_ANCHORS: Final = (_PREFIX, b"%69", *forms.in_base64(_PREFIX))


def make(name: str) -> str:
    """Return a placeholder that nobody can guess for the secret called `name`."""
    safe = re.sub(r"[^a-z0-9]", "", name.lower())[:32] or "secret"
    return f"isobox_{safe}_{secrets.token_hex(16)}"


def percent(placeholder: str) -> bytes:
    """Return the pattern of it with any of its characters percent-encoded."""
    return b"".join(
        b"(?:%c|(?i:%%%02x))" % (code, code) for code in placeholder.encode()
    )


class Finder:
    """Finds placeholders in data, in every form that programs write."""

    def __init__(self, placeholders: Mapping[str, str]) -> None:
        """Look for the values; the keys are the names of their secrets."""
        self._names = tuple(placeholders)
        self._pattern = re.compile(
            b"|".join(b"(%s)" % _any_form(text) for text in placeholders.values())
        )
        #: The bytes of the longest form.
        self.longest = max((3 * len(text) for text in placeholders.values()), default=1)

    def find(self, data: bytes) -> str | None:
        """Return the name of the secret whose placeholder is in `data`."""
        if not self._names or not any(anchor in data for anchor in _ANCHORS):
            return None
        match = self._pattern.search(data)
        return self._names[match.lastindex - 1] if match and match.lastindex else None


class Scanner:
    """Finds a placeholder in a stream, however it is cut into pieces."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._tail = b""

    def feed(self, chunk: bytes) -> str | None:
        """Return the name of the secret whose placeholder ends in `chunk`."""
        data = self._tail + chunk
        self._tail = data[max(0, len(data) - self._finder.longest + 1) :]
        return self._finder.find(data)


def _any_form(placeholder: str) -> bytes:
    encoded = forms.in_base64(placeholder.encode())
    return b"|".join((percent(placeholder), *map(re.escape, encoded)))
