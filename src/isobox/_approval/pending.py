"""Questions that wait until somebody answers them by their id."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from isobox._approval.question import Answer
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from isobox._approval.question import Question


@dataclass(eq=False, slots=True)
class _Waiting:
    question: Question
    number: int
    answer: Future[Answer] = field(default_factory=Future[Answer])


class Pending:
    """Holds questions for a server, or another program, that answers them later.

    Give it to workspaces as `approve`; one may serve many, in any threads. Every
    method can be called from every thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._count = 0
        self._bells: set[_Bell] = set()

    async def __call__(self, question: Question) -> Answer:
        """Return what is answered; until then the question is pending."""
        waiting = self._added(question)
        try:
            return await asyncio.wrap_future(waiting.answer)
        finally:
            with self._lock:
                self._waiting.pop(question.id, None)

    def questions(self) -> list[Question]:
        """Return what is pending, the oldest first; `dataclasses.asdict` is JSON."""
        with self._lock:
            return [waiting.question for waiting in self._waiting.values()]

    def answer(self, question_id: str, answer: Answer | bool) -> None:
        """Answer a question.

        Args:
            question_id: Its `id`.
            answer: True and False are for this one operation.

        Raises:
            InvalidArgumentError: No such question is pending: it never was, or it
                was answered, withdrawn, or too late to be.
        """
        said = Answer(answer) if isinstance(answer, bool) else answer
        with self._lock:
            waiting = self._waiting.pop(question_id, None)
        try:
            if waiting is not None:
                waiting.answer.set_result(said)
                return
        except InvalidStateError:
            pass  # whoever asked has gone this very moment
        raise InvalidArgumentError(
            f"no question {question_id[:64]!r} is pending; it was answered or "
            "withdrawn, or its time ran out"
        )

    async def stream(self) -> AsyncIterator[Question]:
        """Yield each question, those that are pending first; it never ends.

        What is answered, or withdrawn, before its turn is left out, so that a slow
        reader holds up nobody.
        """
        bell = _Bell()
        with self._lock:
            self._bells.add(bell)
        seen = -1
        try:
            while True:
                bell.heard.clear()
                for waiting in self._since(seen):
                    seen = waiting.number
                    if not waiting.answer.done():
                        yield waiting.question
                await bell.heard.wait()
        finally:
            with self._lock:
                self._bells.discard(bell)

    def _added(self, question: Question) -> _Waiting:
        with self._lock:
            waiting = _Waiting(question, self._count)
            self._count += 1
            self._waiting[question.id] = waiting
            bells = list(self._bells)
        for bell in bells:
            bell.ring()
        return waiting

    def _since(self, number: int) -> list[_Waiting]:
        with self._lock:
            return [each for each in self._waiting.values() if each.number > number]


class _Bell:
    """Wakes a task in its own loop."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def ring(self) -> None:
        """Wake it; it may have gone with its loop."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.heard.set)
