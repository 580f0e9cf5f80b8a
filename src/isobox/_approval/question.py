"""Questions to a person, and their answers."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, get_args

import anyio
import anyio.to_thread
from typing_extensions import override

from isobox._approval.memory import Memory
from isobox._core import given
from isobox._core.facts import facts
from isobox._core.ops import Connect
from isobox.errors import InvalidArgumentError, LimitError

if TYPE_CHECKING:
    from isobox._approval.key import Key
    from isobox._approval.project import Project
    from isobox._core.facts import Fact
    from isobox._core.ops import Op

#: Questions that wait for an answer at once; nobody answers more.
_OPEN: Final = 64
#: Threads in which callbacks wait.
_THREADS: Final = 64
#: Characters of a message: a model reads it.
_MESSAGE: Final = 4096

#: How long an answer holds: for this one operation; for the same question until
#: the workspace closes; for the same question in later workspaces as well.
Scope = Literal["once", "session", "project"]


@dataclass(frozen=True, slots=True)
class Question:
    """Whether one operation may happen.

    Facts, rule and reason hold what a command or a server chose: whoever shows
    them to a person takes out what steers a terminal. Only the preview is plain.

    Attributes:
        op: The operation's name, such as `connect`.
        facts: What there is to know of it: for a connection its `host`, `port`
            and, where the filter sees requests, `method` and `target`.
        rule: The rule that asks.
        reason: Why, in words.
        deadline: Seconds, from `created`, that there are for an answer; none is
            a no.
        id: Names the question.
        workspace: The id of the workspace that asks.
        session: The session whose shell asks, where one does.
        risk: What could come of it, in one line.
        preview: What it would do, as a person reads it: a script, a diff, a plan.
        created: When it was asked, seconds since 1970.
    """

    op: str
    facts: dict[str, Fact]
    rule: str
    reason: str
    deadline: float
    id: str = ""
    workspace: str = ""
    session: str | None = None
    risk: str = ""
    preview: str = field(default="", repr=False)
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said to a question.

    Attributes:
        allow: Whether it may happen.
        scope: How long the answer holds. The same question is one by the same
            rule about the same command or script as a whole, the same path, or
            the same host and port; a command that is given input is asked about
            each time. Where nothing can be kept for a project, it holds for
            the session.
        message: Words for the model, if it is a no.
        by: Who says it, for the record.

    Raises:
        InvalidArgumentError: `allow` is neither True nor False, there is no such
            scope, or the message is over 4,096 characters.
    """

    allow: bool
    scope: Scope = "once"
    message: str = ""
    by: str = ""

    def __post_init__(self) -> None:
        # SAFETY: "no" is true, and so is much else that is no yes.
        if not isinstance(self.allow, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentError(f"allow={self.allow!r} is not True or False")
        if self.scope not in get_args(Scope):
            raise InvalidArgumentError(
                f"scope={self.scope!r}: there are {', '.join(get_args(Scope))}"
            )
        for name in ("message", "by"):
            given.text(f"Answer: {name}", getattr(self, name))
        if len(self.message) > _MESSAGE:
            raise InvalidArgumentError(f"the message is over {_MESSAGE} characters")

    @override
    def __str__(self) -> str:
        said = f"{'allow' if self.allow else 'deny'} {self.scope}"
        return f"{said} by {self.by}" if self.by else said


#: Answers a question. True and False hold for this one operation; those about a
#: connection for the same connection, until the workspace closes.
Approve = Callable[[Question], bool | Answer | Awaitable[bool | Answer]]
#: Told of each question; what it returns is told the answer.
Record = Callable[[Question], Callable[[str], None]]
#: Returns a question with what takes longer to find out.
Describe = Callable[[Question], Awaitable[Question]]

#: What no person has said, and counts as a no: there is no `approve`; there is
#: nobody where `approve` asks; nobody answered in time; or the question was
#: withdrawn, or never asked.
UNASKED: Final = Answer(allow=False)
NOBODY: Final = Answer(allow=False)
LATE: Final = Answer(allow=False)
UNSAID: Final = Answer(allow=False)


@dataclass(eq=False, slots=True)
class _Open:
    """A question that somebody waits for."""

    exact: Hashable
    keys: Sequence[Key]
    task: asyncio.Task[Answer] | None = None
    waiting: int = 0


class Answers:
    """Asks each question once, and remembers what was said.

    Args:
        approve: Answers; None is nobody, which is a no. What is no coroutine
            runs in a thread.
        workspace: The id of the workspace that asks.
        record: Told of questions and answers; what it cannot take is not asked.
        project: Keeps answers for later workspaces; None keeps none.
        redact: Masks what nobody is to see, in facts and previews.
        most: Questions that wait for an answer at once.
    """

    def __init__(
        self,
        approve: Approve | None,
        *,
        workspace: str = "",
        record: Record | None = None,
        project: Project | None = None,
        redact: Callable[[str], str] | None = None,
        most: int = _OPEN,
    ) -> None:
        self._approve = approve
        self._most = most
        self.redact = redact or str
        self._workspace = workspace
        self._record = record or _unheard
        self._memory = Memory(project)
        self._open: dict[Hashable, _Open] = {}
        self._tasks: set[asyncio.Task[Answer]] = set()
        self._closed = False
        # Who does not answer takes no threads that others need.
        self._threads = anyio.CapacityLimiter(_THREADS)

    async def ask(
        self,
        op: Op[object],
        *,
        rule: str,
        reason: str,
        deadline: float,
        keys: Sequence[Key] = (),
        describe: Describe | None = None,
    ) -> Answer:
        """Return whether a person allows an operation.

        Connections that differ in nothing but the way they came are one question:
        while it waits, everybody who asks it waits for the same answer. Nobody is
        asked what an answer for the session, or the project, settles. A question
        for which nobody waits any more is withdrawn.

        Args:
            op: The operation.
            rule: The rule that asks.
            reason: Why, in words.
            deadline: Seconds that there are for an answer.
            keys: What an answer for the session is remembered under, one for each
                part of the operation that is asked about.
            describe: Adds risk and preview, once somebody is to be asked.

        Raises:
            LimitError: As many others as may wait for an answer.
        """
        if self._closed:
            return UNSAID
        exact = _exact(op)
        question = self._question(op, rule, reason, deadline)
        known = self._memory.said(exact, keys) or self._kept(question, keys)
        if known is not None:
            return known
        if self._approve is None:
            return UNASKED
        if exact not in self._open:
            if len(self._open) >= self._most:
                raise LimitError(
                    f"{self._most} questions wait for an answer, and nobody is asked "
                    "more at once; try again when some have been answered"
                )
            asked = _Open(exact, keys)
            asked.task = self._started(asked, self._approve, question, describe)
            self._open[exact] = asked
        return await self._awaited(self._open[exact])

    async def aclose(self) -> None:
        """Stop asking; whoever waits, or asks from now on, gets a no."""
        self._closed = True
        self._memory.clear()
        waiting = list(self._tasks)
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting)

    def _question(
        self, op: Op[object], rule: str, reason: str, deadline: float
    ) -> Question:
        known = facts(op, redact=self.redact)
        known.pop("via", None)
        session = known.get("session")
        return Question(
            op=op.name,
            facts=known,
            rule=rule,
            reason=reason,
            deadline=deadline,
            id=os.urandom(8).hex(),
            workspace=self._workspace,
            session=session if isinstance(session, str) else None,
            created=time.time(),
        )

    def _kept(self, question: Question, keys: Sequence[Key]) -> Answer | None:
        """Return what is kept for the project; its first use is put on record."""
        known = self._memory.kept(keys)
        if known is not None:
            self._record(question)(f"{known}, as kept for the project")
        return known

    def _started(
        self,
        asked: _Open,
        approve: Approve,
        question: Question,
        describe: Describe | None,
    ) -> asyncio.Task[Answer]:
        task = asyncio.create_task(self._asking(asked, approve, question, describe))
        self._tasks.add(task)

        def ended(_: object) -> None:
            # One that was cancelled before it began has not done so itself.
            self._forget(asked)
            self._tasks.discard(task)
            if not task.cancelled():
                task.exception()  # nobody may be left to hear of it

        task.add_done_callback(ended)
        return task

    async def _awaited(self, asked: _Open) -> Answer:
        assert asked.task is not None  # noqa: S101 - it was started
        asked.waiting += 1
        try:
            # One who stops waiting does not take the question from the others.
            await asyncio.wait([asked.task])
            return UNSAID if asked.task.cancelled() else asked.task.result()
        finally:
            asked.waiting -= 1
            if not asked.waiting and not asked.task.done():
                # Whoever asks the same from now on gets a question of its own.
                self._forget(asked)
                asked.task.cancel()

    def _forget(self, asked: _Open) -> None:
        if self._open.get(asked.exact) is asked:
            del self._open[asked.exact]

    async def _asking(
        self,
        asked: _Open,
        approve: Approve,
        question: Question,
        describe: Describe | None,
    ) -> Answer:
        try:
            if describe is not None:
                question = replace(await describe(question), created=time.time())
            return await self._heard(asked, approve, question)
        except asyncio.CancelledError:
            # Withdrawn, closed, or settled by what was said to another question.
            return self._settled(asked) or UNSAID
        finally:
            self._forget(asked)

    async def _heard(
        self, asked: _Open, approve: Approve, question: Question
    ) -> Answer:
        heard = self._record(question)
        try:
            with anyio.fail_after(question.deadline):
                said = await self._called(approve, question)
            answer = _meant(said, asked.exact)
        except TimeoutError:
            heard("no answer in time")
            return LATE
        except asyncio.CancelledError:
            settled = self._settled(asked)
            heard("withdrawn" if settled is None else f"{settled}, as to another one")
            raise
        except BaseException as error:
            heard(f"failed with {type(error).__name__}")
            raise
        heard("nobody to ask" if answer is NOBODY else str(answer))
        # True and False are about exactly this.
        keys = asked.keys if said is answer else ()
        await self._memory.keep(answer, asked.exact, keys)
        self._settle()
        return answer

    def _settled(self, asked: _Open) -> Answer | None:
        return self._memory.said(asked.exact, asked.keys)

    def _settle(self) -> None:
        """Withdraw the questions to which there is an answer now."""
        for asked in self._open.values():
            task = asked.task
            if task and task is not asyncio.current_task() and self._settled(asked):
                task.cancel()

    async def _called(self, approve: Approve, question: Question) -> object:
        if _is_coroutine_function(approve):
            answer = approve(question)
        else:
            answer = await anyio.to_thread.run_sync(
                approve, question, abandon_on_cancel=True, limiter=self._threads
            )
        return await answer if isinstance(answer, Awaitable) else answer


def _meant(said: object, exact: Hashable) -> Answer:
    # SAFETY: "no" is true, and so is much else that is no yes.
    if isinstance(said, Answer):
        return said
    if isinstance(said, bool):
        return Answer(said, "session" if isinstance(exact, Connect) else "once")
    raise InvalidArgumentError(
        f"approve returned {type(said).__name__}; return True, False or an Answer"
    )


def _exact(op: Op[object]) -> Hashable:
    # SAFETY: the operation itself and not what is told of it: that is cut short,
    # and a yes to the one would be a yes to whatever begins alike.
    return replace(op, via="direct") if isinstance(op, Connect) else object()


def _is_coroutine_function(approve: Approve) -> bool:
    call = getattr(approve, "__call__", None)  # noqa: B004 - of an object
    return inspect.iscoroutinefunction(approve) or inspect.iscoroutinefunction(call)


def _unheard(_: Question) -> Callable[[str], None]:
    return lambda _: None
