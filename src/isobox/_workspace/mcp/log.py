"""The last of what an MCP server had to say beside its answers."""

from __future__ import annotations

from typing import Final

#: Bytes that are kept.
_MOST: Final = 64 * 1024


class Log:
    """Keeps the end of a text that may never stop."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.total = 0

    def put(self, data: bytes) -> None:
        """Add bytes; the oldest go once there are too many."""
        self.total += len(data)
        self._kept += data[-_MOST:]
        del self._kept[: max(0, len(self._kept) - _MOST)]

    def line(self, text: str) -> None:
        """Add a line of its own."""
        self.put(f"{text}\n".encode("utf-8", "replace"))

    @property
    def text(self) -> str:
        """What is kept."""
        return self._kept.decode("utf-8", "replace")

    def end(self, most: int = 500) -> str:
        """Return the last words, for an error."""
        return self.text.strip()[-most:]
