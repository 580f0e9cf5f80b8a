"""What the parsers of the filter have in common."""

from __future__ import annotations

_GRAPHIC = bytes(range(0x21, 0x7F))

#: The longest host name that DNS can carry, as text (RFC 1035, 2.3.4).
LONGEST_NAME = 253


class ParseError(Exception):
    """Bytes are not what they have to be.

    The message is of bounded length and printable ASCII, fit for an audit record.

    Attributes:
        reply: What to tell the peer before the connection is closed; may be empty.
    """

    def __init__(self, message: str, *, reply: bytes = b"") -> None:
        super().__init__(message)
        self.reply = reply


class Reader:
    """Reads fields off a whole message; one that is cut short is refused."""

    __slots__ = ("_at", "_data", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._at = 0
        self._what = what

    @property
    def left(self) -> int:
        """How many bytes were not read yet."""
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes.

        Raises:
            ParseError: There are fewer.
        """
        end = self._at + size
        if end > len(self._data):
            raise ParseError(f"{self._what} is cut short")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self, size: int) -> int:
        """Return the next `size` bytes as an unsigned number."""
        return int.from_bytes(self.take(size))

    def block(self, size: int) -> bytes:
        """Return bytes that follow their length, which is of `size` bytes."""
        return self.take(self.number(size))

    def end(self) -> None:
        """Hold that everything was read.

        Raises:
            ParseError: Something was not.
        """
        if self.left:
            raise ParseError(f"{self._what} has {self.left} bytes too many")


def host(raw: bytes) -> str:
    """Return a host name as text, just as it was sent: it is not normalised.

    Raises:
        ParseError: It is empty, longer than 253, or holds anything that is not
            graphic ASCII.
    """
    if not raw:
        raise ParseError("the host name is empty")
    if len(raw) > LONGEST_NAME:
        raise ParseError(f"the host name has {len(raw)} bytes; {LONGEST_NAME} at most")
    # SAFETY: a NUL ends the name for a resolver but not for a rule, and CR, LF or
    # a space end it in a header; no host name has any of them.
    if raw.translate(None, _GRAPHIC):
        raise ParseError(f"the host name {raw!r} holds a byte that no host name has")
    return raw.decode("ascii")
