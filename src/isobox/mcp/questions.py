"""Questions to the person behind an MCP client, by elicitation."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import OrderedDict
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from isobox._approval.question import Answer

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from mcp.server.session import ServerSession

    from isobox._approval.question import Question

    Asked = tuple[Question, asyncio.Future[Answer]]

#: Calls that wait for their client to come back with an answer.
_MOST: Final = 64
#: The key of the one request that such an answer is to.
_KEY: Final = "approval"
#: Characters below which a fact is all that there is.
_FACT: Final = 4_000
_CHOICES: Final = {
    "allow once": Answer(True, by="mcp"),
    "allow for this session": Answer(True, "session", by="mcp"),
    "deny": Answer(False, by="mcp"),
}
_UNABLE: Final = Answer(
    False, message="this client cannot ask its user; the user can change the policy"
)

_CALL: ContextVar[Call | None] = ContextVar("isobox_mcp_call", default=None)


class Call:
    """A tool's call, while it runs.

    Attributes:
        session: The client's session.
        request: What the client knows the call by.
        name: The tool's name and arguments, for which an answer is good.
        allowed: What its client's user has allowed for the session.
    """

    def __init__(
        self,
        session: ServerSession,
        request: types.RequestId | None,
        name: str,
        *,
        allowed: set[str] | None = None,
    ) -> None:
        self.session = session
        self.request = request
        self.name = name
        self.allowed: set[str] = set() if allowed is None else allowed
        self._asked: asyncio.Queue[Asked] = asyncio.Queue()
        self._task: asyncio.Task[types.CallToolResult] | None = None
        self._open: asyncio.Future[Answer] | None = None
        self._late = 0.0

    def start(self, work: Coroutine[Any, Any, types.CallToolResult]) -> None:
        """Begin the work of the call; its questions are this client's."""

        async def run() -> types.CallToolResult:
            _CALL.set(self)
            return await work

        self._task = asyncio.create_task(run())

    async def outcome(self) -> types.CallToolResult | Question:
        """Return the result, or a question that comes before it.

        Whoever is cancelled here ends the work.
        """
        assert self._task is not None  # noqa: S101 - started before
        asked = asyncio.ensure_future(self._asked.get())
        try:
            await asyncio.wait((self._task, asked), return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await self.end()
            raise
        finally:
            if not asked.done():
                asked.cancel()
        if asked.done() and not asked.cancelled() and not self._task.done():
            question, self._open = asked.result()
            self._late = time.monotonic() + question.deadline
            return question
        return await self._task

    async def ask(self, question: Question) -> Answer:
        """Have the client ask, and return what its user says."""
        if not _can_elicit(self.session):
            return _UNABLE
        if self.session.can_send_request:
            return await self._elicit(question)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked.put_nowait((question, answer))
        return await answer

    def answer(self, given: Answer) -> None:
        """Give the answer to the question that was last returned."""
        waiting, self._open = self._open, None
        if waiting is not None and not waiting.done():
            waiting.set_result(given)

    @property
    def late(self) -> bool:
        """Whether its question has waited longer than it may."""
        return time.monotonic() > self._late

    async def end(self) -> None:
        """Cancel the work and wait until it is over."""
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def _elicit(self, question: Question) -> Answer:
        try:
            result = await self.session.elicit_form(
                text(question), SCHEMA, related_request_id=self.request
            )
        except MCPError as error:
            return Answer(False, message=f"the client could not ask: {error}"[:1000])
        return answer_of(result)


class Questions:
    """Asks the person behind the client whose call raises the question.

    Args:
        one_client: There is one client alone, as over standard streams. A yes for
            the session is then good for whatever it calls; else it is good for the
            same connection, where the protocol has such, and for once otherwise.
    """

    def __init__(self, *, one_client: bool = False) -> None:
        self._waiting: OrderedDict[str, Call] = OrderedDict()
        self._allowed: set[str] | None = set() if one_client else None

    def allowed(self, session: ServerSession) -> set[str]:
        """Return what has been allowed for a client's session."""
        if self._allowed is not None:
            return self._allowed
        state: dict[str, set[str]] = getattr(session, "_connection").state  # noqa: B009
        return state.setdefault("isobox", set())

    async def approve(self, question: Question) -> Answer:
        """Return what the person says; for a workspace's `approve`."""
        call = _CALL.get()
        if call is None:
            return _UNABLE
        known = _known_by(question)
        if known in call.allowed:
            return _CHOICES["allow once"]
        answer = await call.ask(question)
        if not answer.allow or answer.scope == "once":
            return answer
        # SAFETY: a workspace would keep it for all of its clients.
        if known is not None:
            call.allowed.add(known)
        return _CHOICES["allow once"]

    async def answered(
        self, call: Call
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Return a call's result, or what its client has to ask first."""
        outcome = await call.outcome()
        if isinstance(outcome, types.CallToolResult):
            return outcome
        token = secrets.token_urlsafe(24)
        await self._make_room()
        self._waiting[token] = call
        params = types.ElicitRequestFormParams(
            message=text(outcome), requested_schema=SCHEMA
        )
        request = types.ElicitRequest(params=params)
        return types.InputRequiredResult(
            input_requests={_KEY: request}, request_state=token
        )

    def resumed(
        self, token: str, name: str, responses: types.InputResponses | None
    ) -> Call | None:
        """Return the call that an answer is for, once it has been given it."""
        call = self._waiting.get(token)
        # SAFETY: a yes to one call is no yes to another.
        if call is None or call.name != name:
            return None
        del self._waiting[token]
        given = (responses or {}).get(_KEY)
        if isinstance(given, types.ElicitResult):
            call.answer(answer_of(given))
        else:
            call.answer(_CHOICES["deny"])
        return call

    async def aclose(self) -> None:
        """End every call that waits for its client."""
        waiting, self._waiting = self._waiting, OrderedDict()
        for call in waiting.values():
            await call.end()

    async def _make_room(self) -> None:
        gone = [token for token, call in self._waiting.items() if call.late]
        if len(self._waiting) - len(gone) >= _MOST:
            gone.append(next(iter(self._waiting)))
        for token in gone:
            if (call := self._waiting.pop(token, None)) is not None:
                await call.end()


SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "title": "Allow it?", "enum": [*_CHOICES]},
        "message": {"type": "string", "title": "Words for the model, if not"},
    },
    "required": ["decision"],
}


def answer_of(result: types.ElicitResult) -> Answer:
    """Return what a person said; all that is not clearly a yes is a no."""
    content = result.content or {}
    decision = content.get("decision")
    if result.action == "accept" and isinstance(decision, str):
        said = _CHOICES.get(decision, _CHOICES["deny"])
    else:
        said = _CHOICES["deny"]
    message = content.get("message")
    if said.allow or not isinstance(message, str):
        return said
    return Answer(False, message=message[:4000], by="mcp")


def text(question: Question) -> str:
    """Return a question in words; nothing in it steers a terminal.

    What has several lines is set in, so that none of them passes for one of ours.
    """
    told = [f"{key}: {value}" for key, value in question.facts.items()]
    lines = [
        f"Allow {question.op.replace('_', ' ')}? {question.reason}",
        f"rule: {question.rule}",
        *([f"risk: {question.risk}"] if question.risk else ()),
        *(told if not question.preview else ()),
        *([f"  {question.preview}"] if question.preview else ()),
    ]
    return _plain("\n".join(line.replace("\n", "\n  ") for line in lines))


def _known_by(question: Question) -> str | None:
    """Return what makes a question the same one; None where that was cut short."""
    if any(len(str(value)) >= _FACT for value in question.facts.values()):
        return None
    # What is written may differ, as where the workspace keeps an answer.
    facts = {k: v for k, v in question.facts.items() if k not in ("size", "if_match")}
    return json.dumps([question.op, question.rule, facts], sort_keys=True, default=str)


def _plain(words: str) -> str:
    return "".join(
        each if each.isprintable() or each == "\n" else "?" for each in words
    )


def _can_elicit(session: ServerSession) -> bool:
    capabilities = session.client_capabilities
    return capabilities is not None and capabilities.elicitation is not None
