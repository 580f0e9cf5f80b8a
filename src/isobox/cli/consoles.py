"""A console whose reader may go away."""

from __future__ import annotations

from rich.console import Console
from typing_extensions import override


class PipedConsole(Console):
    """Says that nobody reads it, where rich's own ends the process."""

    @override
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
