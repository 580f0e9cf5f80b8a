"""The person at the terminal, who is asked what may happen."""

from __future__ import annotations

import codecs
import os
import termios
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio

from isobox.cli.status import complain, one_line, printable
from isobox.cli.streams import copy, write

if TYPE_CHECKING:
    from collections.abc import Generator

    from isobox._approval.question import Question
    from isobox._core.results import ByteStream

#: Characters of a request's target that a question shows.
_SHOWN: Final = 400
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


class Person:
    """Answers questions at the terminal, one at a time.

    While one is open, nothing that a command prints gets there, and never
    anything that the terminal would obey: a command could forge a question, or
    change how one looks.
    """

    def __init__(self) -> None:
        self._turn = anyio.Lock()

    async def approve(self, question: Question) -> bool:
        """Return whether the person allows it; nobody is a no."""
        until = time.monotonic() + question.deadline
        async with self._turn:
            with _opened() as terminal:
                if terminal is None:
                    complain(f"no terminal to ask whether it may {_what(question)}")
                    return False
                left = until - time.monotonic()
                return await _answered(terminal, _text(question, left))

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


async def _answered(terminal: int, text: str) -> bool:
    # SAFETY: what was typed before the question was there is no answer to it.
    termios.tcflush(terminal, termios.TCIFLUSH)
    await write(terminal, f"\n{_BOLD}{text}{_PLAIN} ".encode())
    try:
        await anyio.wait_readable(terminal)
    except BaseException:
        os.write(terminal, b"\n")
        raise
    return os.read(terminal, 1024).strip().lower() in (b"y", b"yes")


def _text(question: Question, left: float) -> str:
    why = one_line(f"{question.reason}; rule {question.rule!r}")
    return f"isobox: may it {_what(question)}? ({why}) [y/N, {left:.0f} s]"


def _what(question: Question) -> str:
    place = f"{question.facts['host']}:{question.facts['port']}"
    method = question.facts.get("method")
    if method is None:
        return one_line(f"connect to {place}")
    target = str(question.facts.get("target"))
    if len(target) > _SHOWN:
        target = f"{target[:_SHOWN]}[... {len(target) - _SHOWN} characters more]"
    return one_line(f"send {method} {target} to {place}")
