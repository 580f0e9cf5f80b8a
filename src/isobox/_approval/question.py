"""Questions to a person, and their answers."""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from isobox._core.facts import facts

if TYPE_CHECKING:
    from isobox._core.facts import Fact
    from isobox._core.ops import Op

#: Answers that are remembered in one workspace.
_REMEMBERED: Final = 1024


@dataclass(frozen=True, slots=True)
class Question:
    """Whether one operation may happen.

    Attributes:
        op: The operation's name, such as `connect`.
        facts: What there is to know of it: for a connection its `host`, `port`
            and, where the filter sees requests, `method` and `target`.
        rule: The rule that asks.
        reason: Why, in words.
        deadline: Seconds that there are for an answer; none is a no.
    """

    op: str
    facts: dict[str, Fact]
    rule: str
    reason: str
    deadline: float


#: Answers a question: whether it may happen.
Approve = Callable[[Question], bool | Awaitable[bool]]


class Answers:
    """Asks each question once, and remembers what was said.

    Args:
        approve: Answers; None is nobody, which is a no.
    """

    def __init__(self, approve: Approve | None) -> None:
        self._approve = approve
        self._known: OrderedDict[str, asyncio.Future[bool]] = OrderedDict()

    async def ask(
        self, op: Op[object], *, rule: str, reason: str, deadline: float
    ) -> bool:
        """Return whether a person allows an operation.

        What differs in nothing but the way it came is one question: while it
        waits, everybody who asks it waits for the same answer. An answer holds
        until the workspace closes; a missed deadline is forgotten.
        """
        if self._approve is None:
            return False
        known = {key: value for key, value in facts(op).items() if key != "via"}
        question = Question(op.name, known, rule, reason, deadline)
        key = f"{op.name} {known!r}"
        if key not in self._known:
            self._known[key] = asyncio.ensure_future(self._answer(key, question))
            self._forget()
        # One who stops waiting does not take the question from the others.
        return await asyncio.shield(self._known[key])

    async def aclose(self) -> None:
        """Stop asking; whoever waits gets a no."""
        waiting = [answer for answer in self._known.values() if not answer.done()]
        self._known.clear()
        for answer in waiting:
            answer.cancel()
        if waiting:
            await asyncio.wait(waiting)

    async def _answer(self, key: str, question: Question) -> bool:
        assert self._approve is not None  # noqa: S101 - there is one to ask
        try:
            with anyio.fail_after(question.deadline):
                answer = self._approve(question)
                return bool(await answer if inspect.isawaitable(answer) else answer)
        except BaseException as error:
            self._known.pop(key, None)
            if isinstance(error, TimeoutError | asyncio.CancelledError):
                return False
            raise

    def _forget(self) -> None:
        for key in list(self._known)[: max(0, len(self._known) - _REMEMBERED)]:
            if self._known[key].done():
                del self._known[key]
