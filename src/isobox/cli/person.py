"""The person at the terminal, who is asked what may happen."""

from __future__ import annotations

import codecs
import itertools
import os
import re
import termios
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio

from isobox._approval.question import NOBODY, Answer
from isobox.cli.status import complain, one_line, printable
from isobox.cli.streams import copy, write

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from isobox._approval.question import Question
    from isobox._core.results import ByteStream

#: Characters of a request's target, or of a path, that a question shows.
_SHOWN: Final = 400
#: Rows of a preview that a question shows, how many of them are its last, and
#: blank lines that it shows in a row.
_LINES: Final = 40
_LAST: Final = 3
_BLANK: Final = 3
#: Columns of a terminal that does not say.
_COLUMNS: Final = 80
#: What stands before a line, and before what it goes on with.
_EDGE: Final = "  | "
_GOES_ON: Final = "  |> "
#: Bytes of an answer; the terminal itself keeps no longer line.
_LONGEST: Final = 4096
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


class Person:
    """Answers questions at the terminal, one at a time.

    While one is open, nothing that a command prints gets there, and never
    anything that the terminal would obey: a command could forge a question, or
    change how one looks.
    """

    def __init__(self) -> None:
        self._turn = anyio.Lock()

    async def approve(self, question: Question) -> bool | Answer:
        """Return what the person says; nobody is a no."""
        until = time.monotonic() + question.deadline
        async with self._turn:
            with _opened() as terminal:
                if terminal is None:
                    complain(f"no terminal to ask whether it may {_what(question)}")
                    return NOBODY
                left = until - time.monotonic()
                shown = _preview(question.preview, _columns(terminal))
                return await _answered(terminal, _text(question, left), shown)

    async def show(self, source: ByteStream, descriptor: int) -> None:
        """Write all that comes to one of our descriptors, between questions.

        Raises:
            BrokenPipeError: Nobody reads it any more.
        """
        if not os.isatty(descriptor):
            await copy(source, descriptor)
            return
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async for piece in source:
            text = printable(decoder.decode(piece), kept="\n\r\t")
            async with self._turn:
                await write(descriptor, text.encode())


@contextmanager
def _opened() -> Generator[int | None]:
    """Open the terminal, None where there is none to read from."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        # Whoever reads there in the background is stopped.
        ours = os.tcgetpgrp(terminal) == os.getpgrp()
        yield terminal if ours else None
    finally:
        os.close(terminal)


async def _answered(terminal: int, text: str, shown: str = "") -> bool | Answer:
    # SAFETY: what was typed before the question was there is no answer to it.
    termios.tcflush(terminal, termios.TCIFLUSH)
    await write(terminal, f"\n{shown}{_BOLD}{text}{_PLAIN} ".encode())
    try:
        await anyio.wait_readable(terminal)
    except BaseException:
        os.write(terminal, b"\n")
        raise
    return _meant(os.read(terminal, _LONGEST).decode("utf-8", "replace"))


def _meant(typed: str) -> bool | Answer:
    """Return what was typed; whatever is no yes is a no."""
    word, _, message = typed.strip().partition(" ")
    match word.lower():
        case "n" | "no" if message.strip():
            return Answer(allow=False, message=one_line(message.strip()))
        case "y" | "yes" if not message:
            return True
        case "s" | "session" if not message:
            return Answer(allow=True, scope="session")
        case "p" | "project" if not message:
            return Answer(allow=True, scope="project")
        case _:
            return False


def _text(question: Question, left: float) -> str:
    why = one_line(f"{question.reason}; rule {question.rule!r}")
    risk = f" It {one_line(question.risk)}." if question.risk else ""
    return (
        f"isobox: may it {_what(question)}?{risk} ({why}) "
        f"[y/N, s session, p project, n WORDS, {left:.0f} s]"
    )


def _preview(text: str, columns: int) -> str:
    """Return a preview in rows that are marked, none of them as long as to wrap.

    What a line goes on with has a mark of its own, and what is left out is said
    in rows without any, as nothing in a preview can.
    """
    if not text:
        return ""
    # SAFETY: a row that wraps would begin like one of ours.
    rows = list(_rows(text.expandtabs(4), columns - len(_GOES_ON) - 1))
    # The last ones stay: they say so if the preview itself was cut.
    if (left := len(rows) - _LINES) > 0:
        rows[_LINES - _LAST : -_LAST] = [f"  [... {left} rows left out ...]"]
    return "".join(f"{row}\n" for row in rows)


def _rows(text: str, width: int) -> Iterator[str]:
    """Return a text's rows; blank ones do not push the others out of sight."""
    for blank, found in itertools.groupby(text.split("\n"), _is_blank):
        lines = list(found)
        if blank and len(lines) > _BLANK:
            yield f"  [{len(lines)} blank lines]"
        else:
            for line in lines:
                yield from _folded(printable(line), width)


def _is_blank(line: str) -> bool:
    return not line.strip(" ")


def _folded(line: str, width: int) -> Iterator[str]:
    """Return the rows of one line; blanks that would fill a row are counted."""
    edge = _EDGE
    for part in re.split(f"( {{{width},}})", line) if line else [""]:
        if len(part) >= width and _is_blank(part):
            yield f"  [{len(part)} blanks]"
        elif part or not line:
            for piece in _pieces(part, width):
                yield edge + piece
                edge = _GOES_ON


def _pieces(text: str, width: int) -> Iterator[str]:
    """Cut a text into pieces that fit into so many columns."""
    from rich.cells import get_character_cell_size  # noqa: PLC0415 - few are asked

    begin = taken = 0
    for at, character in enumerate(text):
        # Marks that have no place of their own are piled up by no terminal.
        cells = max(1, get_character_cell_size(character))
        if taken + cells > width:
            yield text[begin:at]
            begin, taken = at, 0
        taken += cells
    yield text[begin:]


def _columns(terminal: int) -> int:
    try:
        columns = os.get_terminal_size(terminal).columns
    except OSError:
        columns = 0
    return max(20, columns) if columns else _COLUMNS


def _what(question: Question) -> str:
    facts = question.facts
    match question.op:
        case "connect":
            return _connection(question)
        case "spawn" | "script":
            return "run this"
        case "checkpoint":
            return one_line(f"go on at the stage {facts.get('stage')!r}")
        case "apply":
            return "bring these changes to the directory"
        case "attach":
            return one_line(f"take part in the command {facts.get('id')}")
        case "listen":
            return one_line(f"reach the host from port {facts.get('port')} inside")
        case _:
            about = facts.get("path", facts.get("paths"))
            return _short(f"{question.op} {'' if about is None else about}".strip())


def _connection(question: Question) -> str:
    place = f"{question.facts['host']}:{question.facts['port']}"
    method = question.facts.get("method")
    if method is None:
        return one_line(f"connect to {place}")
    target = str(question.facts.get("target"))
    return one_line(f"send {method} ") + _short(target) + one_line(f" to {place}")


def _short(text: str) -> str:
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}[... {len(text) - _SHOWN} characters more]"
    return one_line(text)
