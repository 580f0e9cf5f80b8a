"""Questions to a person, and their answers."""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from isobox._core.facts import facts
from isobox._core.ops import Connect

if TYPE_CHECKING:
    from isobox._core.facts import Fact
    from isobox._core.ops import Op

#: Answers that are remembered in one workspace.
_REMEMBERED: Final = 1024
#: Questions that wait for an answer; nobody answers more.
_OPEN: Final = 64


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
        approve: Answers; None is nobody, which is a no. What is no coroutine
            runs in a thread.
    """

    def __init__(self, approve: Approve | None) -> None:
        self._approve = approve
        self._known: OrderedDict[Hashable, asyncio.Future[bool]] = OrderedDict()
        # Who does not answer takes no threads that others need.
        self._threads = anyio.CapacityLimiter(_OPEN)

    async def ask(
        self, op: Op[object], *, rule: str, reason: str, deadline: float
    ) -> bool:
        """Return whether a person allows an operation.

        What differs in nothing but the way it came is one question: while it
        waits, everybody who asks it waits for the same answer. An answer holds
        until the workspace closes, unless the operation carries content; a
        missed deadline is forgotten. Where 64 questions are open, more are not
        asked, which is a no.
        """
        if self._approve is None:
            return False
        key = _key(op)
        if key not in self._known:
            if sum(not answer.done() for answer in self._known.values()) >= _OPEN:
                return False
            known = {name: value for name, value in facts(op).items() if name != "via"}
            question = Question(op.name, known, rule, reason, deadline)
            answer = self._answer(self._approve, key, question)
            self._known[key] = asyncio.ensure_future(answer)
            self._forget()
        # One who stops waiting does not take the question from the others.
        return await asyncio.shield(self._known[key])

    async def aclose(self) -> None:
        """Stop asking; whoever waits, or asks from now on, gets a no."""
        self._approve = None
        waiting = [answer for answer in self._known.values() if not answer.done()]
        self._known.clear()
        for answer in waiting:
            answer.cancel()
        if waiting:
            await asyncio.wait(waiting)

    async def _answer(
        self, approve: Approve, key: Hashable, question: Question
    ) -> bool:
        try:
            with anyio.fail_after(question.deadline):
                return bool(await self._asked(approve, question))
        except BaseException as error:
            self._known.pop(key, None)
            if isinstance(error, TimeoutError | asyncio.CancelledError):
                return False
            raise

    async def _asked(self, approve: Approve, question: Question) -> bool:
        if _is_coroutine_function(approve):
            answer = approve(question)
        else:
            answer = await anyio.to_thread.run_sync(
                approve, question, abandon_on_cancel=True, limiter=self._threads
            )
        return await answer if isinstance(answer, Awaitable) else answer

    def _forget(self) -> None:
        for key in list(self._known)[: max(0, len(self._known) - _REMEMBERED)]:
            if self._known[key].done():
                del self._known[key]


def _is_coroutine_function(approve: Approve) -> bool:
    return inspect.iscoroutinefunction(approve)


def _key(op: Op[object]) -> Hashable:
    # SAFETY: the operation itself and not what is told of it: that is cut short,
    # and a yes to the one would be a yes to whatever begins alike.
    if isinstance(op, Connect):
        return replace(op, via="direct")
    if getattr(op, "body", None) is not None or not _is_hashable(op):
        return object()
    return op


def _is_hashable(op: Op[object]) -> bool:
    try:
        hash(op)
    except TypeError:
        return False
    return True
