"""Records an intent before each operation and an outcome after it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar, cast

from isobox._core.facts import bounded, facts
from isobox._core.results import Ongoing
from isobox._layers.caller import named
from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from isobox._approval.question import Question
    from isobox._audit.sinks import AuditSink, DeferringSink
    from isobox._core.ops import Op
    from isobox._core.stack import Perform

R = TypeVar("R")

_LOG: Final = logging.getLogger("isobox.audit")


class Audit:
    """The outermost layer: what it cannot record does not happen.

    It knows which of the model's tools performs an operation, and says so to all.
    """

    def __init__(
        self,
        sink: AuditSink | None,
        *,
        workspace: str,
        backend: str,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self._sink = sink
        self._deferring = _deferring(sink)
        self._redact = redact
        self._workspace = workspace
        self._backend = backend
        self._numbers = itertools.count(1)
        #: What goes on, and since when.
        self._ongoing: dict[int, float] = {}
        #: Outcomes that wait, or that the sink did not take when they came.
        self._owed: deque[dict[str, object]] = deque()
        #: The loop that will record those that wait.
        self._paying: asyncio.AbstractEventLoop | None = None

    async def __call__(self, op: Op[R], inner: Perform, /) -> R:
        op = named(op)
        if self._sink is None:
            return await inner(op)
        number = next(self._numbers)
        intent = {"op": op.name, "facts": facts(op, redact=self._redact)}
        self._keep(self._record(number, "intent", intent))
        started = time.monotonic()
        try:
            result = await inner(op)
        except BaseException as error:
            self._settle(number, _failure(error, started, self._redact))
            raise
        if isinstance(result, Ongoing):
            self._ongoing[number] = started
            result.on_end(lambda end: self._ended(number, end))
        else:
            self._settle(number, {"ok": True, "seconds": _since(started)})
        return result

    def lifecycle(self, event: str, **details: object) -> None:
        """Record a step of the workspace's life; `close` ends what goes on."""
        if self._sink is not None:
            if event == "close":
                for number in list(self._ongoing):
                    # What is owed then is tried again, and raises, below.
                    with contextlib.suppress(Exception):
                        self._ended(number, {"abandoned": True})
            self._put(next(self._numbers), "lifecycle", event=event, **details)

    def _ended(self, number: int, end: dict[str, object]) -> None:
        # What nobody read to its end may still be told of after the close.
        started = self._ongoing.pop(number, None)
        if started is not None:
            fields = {"ok": True, "seconds": _since(started), "end": end}
            self._settle(number, fields)

    def _settle(self, number: int, fields: Mapping[str, object]) -> None:
        """Record an outcome; one that the sink does not take is owed to it.

        Nobody may be there to hear of a failure, as when a process ends by itself:
        it is logged, and nothing else happens until the sink has taken it.
        """
        self._owed.append(self._record(number, "outcome", fields))
        if self._deferring is not None:
            self._pay_soon()
            return
        try:
            self._keep()
        except Exception as error:
            self._complain(number, error)
            raise

    def _pay_soon(self) -> None:
        """Record what is owed at the loop's next turn; at once if there is no loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._pay()
            return
        # One that was closed never had its turn.
        if self._paying is not loop:
            self._paying = loop
            loop.call_soon(self._pay)

    def _pay(self) -> None:
        self._paying = None
        try:
            self._keep()
        except Exception as error:  # noqa: BLE001 - whoever comes next hears of it
            for owed in self._owed:
                self._complain(cast("int", owed["number"]), error)

    def _complain(self, number: int, error: Exception) -> None:
        _LOG.error(
            "the audit log of %s did not take the outcome of operation %d (%s: %s); "
            "no operation runs until it does",
            self._workspace,
            number,
            type(error).__name__,
            error,
        )

    def _keep(self, *records: dict[str, object]) -> None:
        """Have the sink take what is owed to it, and these."""
        assert self._sink is not None  # noqa: S101 - callers have checked
        due = [*self._owed, *records]
        together = 1 if self._deferring is None else 2
        for first in range(0, len(due), together):
            try:
                if self._deferring is None:
                    self._sink.put(due[first])
                else:
                    self._deferring.put_all(due[first : first + together])
            except Exception as error:
                self._paid(getattr(error, "kept", 0))
                raise
            self._paid(together)

    def _paid(self, count: int) -> None:
        """Forget what was owed, of so many records that the sink has."""
        for _ in range(min(count, len(self._owed))):
            self._owed.popleft()

    def question(self, question: Question) -> Callable[[str], None]:
        """Record a question to a person; what is returned records the answer."""
        if self._sink is None:
            return _unheard
        number = next(self._numbers)
        self._put(
            number,
            "question",
            op=question.op,
            facts=question.facts,
            rule=question.rule,
            reason=question.reason,
            deadline=question.deadline,
            id=question.id,
            session=question.session,
            risk=question.risk,
        )
        started = time.monotonic()
        return lambda answer: self._put(
            number, "answer", answer=answer, seconds=_since(started)
        )

    def _put(self, number: int, kind: str, **fields: object) -> None:
        self._keep(self._record(number, kind, fields))

    def _record(
        self, number: int, kind: str, fields: Mapping[str, object]
    ) -> dict[str, object]:
        record = {
            "time": time.time(),
            "workspace": self._workspace,
            "backend": self._backend,
            "number": number,
            "kind": kind,
            **fields,
        }
        if self._redact is not None:
            return {key: _each(value, self._redact) for key, value in record.items()}
        return record


def _deferring(sink: AuditSink | None) -> DeferringSink | None:
    if getattr(sink, "defer_outcomes", False):
        return cast("DeferringSink", sink)
    return None


def _unheard(_answer: str) -> None:
    """Nobody records what is answered."""


def _each(value: object, change: Callable[[str], str]) -> object:
    """Return plain data with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_each(item, change) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {key: _each(item, change) for key, item in items}
    return value


def _failure(
    error: BaseException, started: float, redact: Callable[[str], str] | None
) -> dict[str, object]:
    known = isinstance(error, IsoboxError)
    return {
        "ok": False,
        "seconds": _since(started),
        "error": type(error).__name__,
        "message": bounded(str(error), redact) if known else None,
    }


def _since(started: float) -> float:
    return round(time.monotonic() - started, 6)
