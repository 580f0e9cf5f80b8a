"""Masks known values in what comes back, without changing its length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from isobox._egress.forms import written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Values with fewer bytes are not looked for. They occur by chance, and a mask on
#: each `admin` or `1234` would spoil ordinary output and tell where they stand.
SHORTEST: Final = 8


class _Wanted:
    """What several redactors look for."""

    forms: tuple[bytes, ...] = ()


class Redactor:
    """Puts `*` over values in a stream, however it is cut into pieces.

    Found are the values as they are, in Base64 (at each alignment, with either
    alphabet), percent-encoded and escaped for JSON. Each byte becomes one `*`, so
    that a Content-Length stays right. What another encoding hides is not found.
    """

    def __init__(self, values: Iterable[bytes]) -> None:
        """Mask the values of at least 8 bytes; shorter ones occur by chance."""
        self._wanted = _Wanted()
        self._raw = b""
        self._shown = b""
        self._told = 0
        self.learn(values)

    def learn(self, values: Iterable[bytes]) -> None:
        """Mask these values from now on, here and in all that are `fresh` of it."""
        long = {value for value in values if len(value) >= SHORTEST}
        forms = {form for value in long for form in written(value)}
        self._wanted.forms = tuple(sorted(forms, key=len, reverse=True))

    def fresh(self) -> Redactor:
        """Return one for another stream, with the same values, whatever they become."""
        other = Redactor(())
        other._wanted = self._wanted
        return other

    @property
    def holds(self) -> bool:
        """Whether something is held back."""
        return len(self._raw) > self._told

    def feed(self, data: bytes) -> bytes:
        """Return what can be shown by now.

        Held back is only an end that may be the beginning of a value.
        """
        raw = self._raw + data if self._raw else data
        shown = self._masked(raw, self._shown + raw[len(self._shown) :])
        cut, told = self._begun(raw), self._told
        self._raw, self._shown = raw[cut:], shown[cut:]
        self._told = max(0, told - cut)
        return shown[told:cut]

    def hurry(self) -> bytes:
        """Return what is held back now; what follows is masked as if it still was."""
        told, self._told = self._told, len(self._raw)
        return self._shown[told:]

    def flush(self) -> bytes:
        """Return what was held back; the stream is at its end."""
        shown, self._raw, self._shown = self._shown[self._told :], b"", b""
        self._told = 0
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
        for form in self._wanted.forms:
            for at in _places(raw, form):
                masked = masked or bytearray(shown)
                masked[at : at + len(form)] = b"*" * len(form)
        return shown if masked is None else bytes(masked)

    def _begun(self, raw: bytes) -> int:
        """Return where the end begins that may be the beginning of a value."""
        forms = self._wanted.forms
        return min((_begun(raw, form) for form in forms), default=len(raw))


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
