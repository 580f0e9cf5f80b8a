"""Placeholders: what stands inside for a secret, and where it occurs."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from isobox._egress import forms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: A hexadecimal digit, a character of a name, each maybe percent-encoded.
_HEX: Final = rb"(?:[0-9a-f]|%3[0-9]|%6[1-6])"
_LETTER: Final = rb"(?:[0-9a-z]|%3[0-9]|%6[1-9A-Fa-f]|%7[0-9Aa])"
_LINE: Final = rb"(?:_|%5[Ff])"
#: Finds any placeholder of any vault. Its characters are those that encoders of
#: URLs leave alone, but some encode everything.
PLACEHOLDER: Final = re.compile(
    rb"(?:i|%%69)(?:s|%%73)(?:o|%%6[Ff])(?:b|%%62)(?:o|%%6[Ff])(?:x|%%78)%s"
    rb"%s{16}%s%s{1,32}%s%s{16}" % (_LINE, _HEX, _LINE, _LETTER, _LINE, _HEX)
)
#: The bytes of the longest form: 74 characters, all percent-encoded.
_LONGEST: Final = 3 * 74


def make(names: Iterable[str]) -> dict[str, str]:
    """Return a placeholder that nobody can guess for each name.

    They begin alike, so that one search finds all of them.
    """
    common = secrets.token_hex(8)
    return {
        name: f"isobox_{common}_{_plain(name)}_{secrets.token_hex(8)}" for name in names
    }


class Finder:
    """Finds placeholders in data: as they are, percent-encoded, in Base64."""

    def __init__(self, placeholders: Mapping[str, str]) -> None:
        """Look for the values; the keys are the names of their secrets."""
        texts = {name: text.encode() for name, text in placeholders.items()}
        self._names = {text: name for name, text in texts.items()}
        self._encoded = {name: forms.in_base64(text) for name, text in texts.items()}
        self._beginnings = _beginnings(next(iter(self._names))) if texts else ()

    def find(self, data: bytes) -> str | None:
        """Return the name of the secret whose placeholder is in `data`."""
        for match in PLACEHOLDER.finditer(data):
            if (name := self._name(match)) is not None:
                return name
        for name, encoded in self._encoded.items():
            if any(form in data for form in encoded):
                return name
        return None

    def replace(self, data: bytes, values: Mapping[str, bytes]) -> bytes:
        """Return `data` with values in the place of their secrets' placeholders.

        Those in Base64 stay.
        """

        def value(match: re.Match[bytes]) -> bytes:
            return values.get(self._name(match) or "", match[0])

        return PLACEHOLDER.sub(value, data)

    def begins(self, data: bytes) -> bool:
        """Whether a placeholder may be in `data`, at the speed of memory."""
        return any(beginning in data for beginning in self._beginnings)

    def _name(self, match: re.Match[bytes]) -> str | None:
        return self._names.get(unquote_to_bytes(match[0]))


class Scanner:
    """Finds a placeholder in a stream, however it is cut into pieces."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._tail = b""

    def feed(self, chunk: bytes) -> str | None:
        """Return the name of the secret whose placeholder ends in `chunk`."""
        data = self._tail + chunk
        self._tail = data[max(0, len(data) - _LONGEST + 1) :]
        return self._finder.find(data) if self._finder.begins(data) else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())[:32] or "secret"


def _beginnings(placeholder: bytes) -> tuple[bytes, ...]:
    """Return what the forms of a vault's placeholders begin with."""
    common = placeholder[: placeholder.index(b"_", 7)]
    encoded = b"".join(b"%%%02x" % code for code in b"isobox")
    return common, *forms.in_base64(common), encoded, encoded.upper()
