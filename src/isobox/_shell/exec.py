"""What a backend gives: to run one program inside, with its streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._core.ops import WindowSize

#: What `Running.receive` says of a piece: nothing more comes, or whose it is.
ENDED, STDOUT, STDERR = 0, 1, 2

#: The variable by which a process shows what it belongs to.
MARK: Final = "ISOBOX_JOB"
#: Bytes of the largest piece that is written to a shell at once.
PIECE: Final = 1 << 20


class Running(Protocol):
    """One program that the engine runs inside, both ways.

    Every method raises SandboxLostError when the engine has lost it.
    """

    async def send(self, data: bytes) -> None:
        """Write all of `data` to its standard input.

        Raises:
            BrokenPipeError: It reads no more.
        """

    async def send_eof(self) -> None:
        """Close its standard input; safe to call again."""

    async def receive(self) -> tuple[int, bytes]:
        """Return the next piece and whose it is, (ENDED, b"") after the last.

        What nobody asks for stays where it is: no more than 1 MiB is held.
        On a terminal everything is STDOUT.
        """
        ...

    async def wait(self) -> int:
        """Return its status, 0 to 255, once both outputs are at their end."""
        ...

    async def resize(self, columns: int, rows: int) -> None:
        """Change the size of its terminal."""

    async def aclose(self) -> None:
        """Let go of it; what runs inside may go on. Safe to call again."""


class Exec(Protocol):
    """Runs programs in one sandbox."""

    async def start(self, argv: Sequence[str], *, tty: WindowSize | None) -> Running:
        """Start a program, with its standard input open.

        Arguments are ASCII and shorter than 1 KiB together. The program runs as
        the user of the sandbox's commands, in any directory.

        Raises:
            SandboxLostError: The sandbox is not there, or does not run.
        """
        ...
