"""Masks known values in what comes back, without changing its length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from isobox._egress.forms import written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Values with fewer bytes are not looked for. They occur by chance, and a mask on
#: each `admin` or `1234` would spoil ordinary output and tell where they stand.
SHORTEST: Final = 8


class Redactor:
    """Puts `*` over values in a stream, however it is cut into pieces.

    Found are the values as they are, in Base64 (at each alignment, with either
    alphabet), percent-encoded and escaped for JSON. Each byte becomes one `*`, so
    that a Content-Length stays right. What another encoding hides is not found.
    """

    def __init__(self, values: Iterable[bytes]) -> None:
        """Mask the values of at least 8 bytes; shorter ones occur by chance."""
        long = {value for value in values if len(value) >= SHORTEST}
        forms = {form for value in long for form in written(value)}
        self._forms = tuple(sorted(forms, key=len, reverse=True))
        self._raw = b""
        self._shown = b""

    def fresh(self) -> Redactor:
        """Return one for another stream, with the same values."""
        other = Redactor(())
        other._forms = self._forms
        return other

    def feed(self, data: bytes) -> bytes:
        """Return what can be shown by now.

        Held back is only an end that may be the beginning of a value.
        """
        raw = self._raw + data if self._raw else data
        shown = self._masked(raw, self._shown + raw[len(self._shown) :])
        cut = self._begun(raw)
        self._raw, self._shown = raw[cut:], shown[cut:]
        return shown[:cut]

    def flush(self) -> bytes:
        """Return what was held back; the stream is at its end."""
        shown, self._raw, self._shown = self._shown, b"", b""
        return shown

    def mask(self, whole: bytes) -> bytes:
        """Return bytes with their values masked, apart from the stream."""
        return self._masked(whole, whole)

    def redact_text(self, text: str) -> str:
        """Return a whole text with its values masked, apart from the stream."""
        raw = text.encode("utf-8", "surrogatepass")
        return self._masked(raw, raw).decode("utf-8", "surrogatepass")

    def _masked(self, raw: bytes, shown: bytes) -> bytes:
        """Return `shown` with a mask wherever `raw` has a value."""
        masked: bytearray | None = None
        for form in self._forms:
            for at in _places(raw, form):
                masked = masked or bytearray(shown)
                masked[at : at + len(form)] = b"*" * len(form)
        return shown if masked is None else bytes(masked)

    def _begun(self, raw: bytes) -> int:
        """Return where the end begins that may be the beginning of a value."""
        return min((_begun(raw, form) for form in self._forms), default=len(raw))


def _places(raw: bytes, form: bytes) -> Iterator[int]:
    at = raw.find(form)
    while at >= 0:
        yield at
        at = raw.find(form, at + 1)


def _begun(raw: bytes, form: bytes) -> int:
    head = form[:SHORTEST]
    if raw.rfind(form[:1], max(0, len(raw) - len(form) + 1)) < 0:
        return len(raw)
    at = raw.find(head, max(0, len(raw) - len(form) + 1))
    while at >= 0:
        if form.startswith(raw[at:]):
            return at
        at = raw.find(head, at + 1)
    for length in range(min(SHORTEST - 1, len(raw)), 0, -1):
        if raw.endswith(head[:length]):
            return len(raw) - length
    return len(raw)
