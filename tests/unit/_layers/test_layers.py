"""What every operation passes on its way to a sandbox, and the order of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from tests.meta.test_ops import example

from isobox import abc
from isobox._approval.question import Answers
from isobox._audit.sinks import MemorySink
from isobox._core import ops
from isobox._core.results import Ongoing
from isobox._core.spec import Limits
from isobox._core.stack import compose
from isobox._layers import Audit, Errors, Guard, Limited
from isobox._policy.network import Network
from isobox._policy.policy import Policy
from isobox.errors import (
    IsoboxError,
    LimitError,
    PathMissingError,
    PolicyDeniedError,
    SandboxLostError,
)

pytestmark = pytest.mark.anyio

EVERY = [example(kind) for kind in abc.OPS]
OUTSIDE = abc.Connect | abc.CallTool | abc.Checkpoint
INSIDE = [op for op in EVERY if not isinstance(op, OUTSIDE)]


class Recorder:
    """Stands where a sandbox would, and notes what reaches it."""

    def __init__(self, result: Any = None) -> None:
        self.reached: list[Any] = []
        self.result = result

    async def ready(self) -> None:
        """It is."""

    def __getattr__(self, name: str) -> Any:
        async def method(op: Any) -> Any:
            self.reached.append(op)
            if isinstance(self.result, BaseException):
                raise self.result
            return self.result

        return method


def stack(
    sandbox: Any,
    *,
    policy: Policy | None = None,
    sink: Any = None,
    limits: Limits | None = None,
) -> Any:
    return compose(
        sandbox,
        [
            Audit(sink, workspace="w", backend="b"),
            Guard(policy or Policy.allow_all(), Answers(None)),
            Limited(limits or Limits()),
            Errors(backend="b"),
        ],
    )


def named(op: Any) -> str:
    return op.name


@pytest.mark.parametrize("op", INSIDE, ids=named)
async def test_what_is_allowed_reaches_the_sandbox_once(op):
    sandbox = Recorder("result")
    assert await stack(sandbox)(op) in ("result", None)
    assert sandbox.reached == [op]


@pytest.mark.parametrize("op", EVERY, ids=named)
async def test_what_is_denied_never_reaches_it_and_is_recorded(op):
    sandbox, sink = Recorder(), MemorySink()
    with pytest.raises(PolicyDeniedError, match="deny_all") as error:
        await stack(sandbox, policy=Policy.deny_all(), sink=sink)(op)
    assert sandbox.reached == []
    assert error.value.op == op.name
    assert isinstance(error.value, PermissionError)
    assert [each["kind"] for each in sink.records] == ["intent", "outcome"]
    assert sink.records[1]["error"] == "PolicyDeniedError"


# -- audit ------------------------------------------------------------------------


@pytest.mark.parametrize("op", INSIDE, ids=named)
async def test_an_intent_and_an_outcome_are_recorded_without_content(op):
    sink = MemorySink()
    await stack(Recorder(), sink=sink)(op)
    intent, outcome = sink.records
    assert (intent["kind"], intent["op"]) == ("intent", op.name)
    assert (outcome["kind"], outcome["ok"]) == ("outcome", True)
    assert intent["number"] == outcome["number"]
    assert (intent["workspace"], intent["backend"]) == ("w", "b")
    assert "12345" not in repr(sink.records)


@pytest.mark.parametrize("op", INSIDE, ids=named)
async def test_what_cannot_be_recorded_does_not_happen(op):
    class Full:
        def put(self, record: object) -> None:
            raise OSError("no space left")

    sandbox = Recorder()
    with pytest.raises(OSError, match="no space"):
        await stack(sandbox, sink=Full())(op)
    assert sandbox.reached == []


async def test_a_failure_is_recorded_with_its_words_if_they_are_ours():
    sink = MemorySink()
    with pytest.raises(PathMissingError):
        await stack(Recorder(PathMissingError("gone")), sink=sink)(EVERY[1])
    assert (sink.records[1]["error"], sink.records[1]["message"]) == (
        "PathMissingError",
        "gone",
    )
    with pytest.raises(KeyError):
        await stack(Recorder(KeyError("secret")), sink=sink)(EVERY[1])
    assert sink.records[3]["message"] is None


async def test_a_cancel_is_an_outcome_too():
    sink = MemorySink()
    with pytest.raises(asyncio.CancelledError):
        await stack(Recorder(asyncio.CancelledError()), sink=sink)(EVERY[0])
    assert sink.records[1]["error"] == "CancelledError"


async def test_what_goes_on_is_recorded_when_it_ends():
    sink, ongoing = MemorySink(), Ongoing()
    assert await stack(Recorder(ongoing), sink=sink)(EVERY[0]) is ongoing
    assert len(sink.records) == 1
    ongoing._ended({"exit_code": 3})
    ongoing._ended({"exit_code": 4})
    assert len(sink.records) == 2
    assert sink.records[1]["end"] == {"exit_code": 3}


async def test_numbers_go_up_and_life_is_recorded():
    sink = MemorySink()
    audit = Audit(sink, workspace="w", backend="b")
    audit.lifecycle("initialize", isolation={})
    perform = compose(Recorder(), [audit])
    await perform(EVERY[1])
    audit.lifecycle("close")
    assert [each["number"] for each in sink.records] == [1, 2, 2, 3]
    assert [each["kind"] for each in sink.records][::3] == ["lifecycle", "lifecycle"]
    times = [each["time"] for each in sink.records]
    assert times == sorted(times)


async def test_without_a_sink_nothing_is_recorded():
    Audit(None, workspace="w", backend="b").lifecycle("initialize")
    assert await stack(Recorder(5))(EVERY[1]) == 5


# -- limits -----------------------------------------------------------------------


def spawn(timeout: float | None) -> ops.Spawn:
    return ops.Spawn(argv=("x",), cwd="/", timeout=timeout)


@pytest.mark.parametrize(
    ("default", "most", "asked", "given"),
    [
        (None, None, None, None),
        (None, None, 5.0, 5.0),
        (3.0, None, None, 3.0),
        (3.0, None, 5.0, 5.0),
        (None, 9.0, None, 9.0),
        (3.0, 9.0, None, 3.0),
        (None, 9.0, 9.0, 9.0),
        (None, 9.0, 0.0, 0.0),
        (3.0, 9.0, 5.0, 5.0),
    ],
)
async def test_a_timeout_is_filled_in(default, most, asked, given):
    sandbox = Recorder()
    limits = Limits(timeout=default, max_timeout=most)
    await stack(sandbox, limits=limits)(spawn(asked))
    assert sandbox.reached == [spawn(given)]


async def test_more_than_the_most_is_refused():
    sandbox = Recorder()
    with pytest.raises(LimitError, match="10"):
        await stack(sandbox, limits=Limits(max_timeout=9.0))(spawn(10.0))
    assert sandbox.reached == []


# -- errors -----------------------------------------------------------------------


@pytest.mark.parametrize("op", INSIDE, ids=named)
async def test_an_error_learns_where_it_was(op):
    with pytest.raises(PathMissingError) as error:
        await stack(Recorder(PathMissingError("gone")))(op)
    assert (error.value.backend, error.value.op) == ("b", op.name)


async def test_an_error_that_knows_is_not_told_otherwise():
    known = PathMissingError("gone", backend="other", op="dance", path="/p")
    with pytest.raises(PathMissingError) as error:
        await stack(Recorder(known))(EVERY[1])
    assert (error.value.backend, error.value.op, error.value.path) == (
        "other",
        "dance",
        "/p",
    )


@pytest.mark.parametrize(
    "foreign",
    [
        OSError("x"),
        EOFError(),
        BrokenPipeError(),
        ConnectionResetError(),
        TimeoutError(),
    ],
)
@pytest.mark.parametrize("op", INSIDE, ids=named)
async def test_what_is_foreign_does_not_leave_the_sandbox(op, foreign):
    with pytest.raises(SandboxLostError) as error:
        await stack(Recorder(foreign))(op)
    assert error.value.__cause__ is foreign
    assert (error.value.backend, error.value.op) == ("b", op.name)


async def test_a_mistake_of_ours_is_not_dressed_up():
    with pytest.raises(KeyError):
        await stack(Recorder(KeyError()))(EVERY[1])


# -- the stack ---------------------------------------------------------------------


async def test_the_first_layer_is_the_outermost():
    order: list[str] = []

    def layer(name: str) -> Any:
        async def pass_on(op: Any, inner: Any, /) -> Any:
            order.append(name)
            return await inner(op)

        return pass_on

    sandbox: Any = Recorder()
    await compose(sandbox, [layer("a"), layer("b"), layer("c")])(EVERY[1])
    assert order == ["a", "b", "c"]
    await compose(sandbox, [])(EVERY[1])
    assert len(sandbox.reached) == 2


def test_no_error_of_the_tree_is_left_without_a_base():
    assert issubclass(PolicyDeniedError, IsoboxError)


def reaching(network):
    return replace(Policy.allow_all(), network=Network.of(network))


@pytest.mark.parametrize(
    ("policy", "reached"),
    [
        (Policy.deny_all(), False),
        (Policy.allow_all(), False),
        (reaching(["other.example.org"]), False),
        (replace(Policy.deny_all(), network=Network.of("open")), False),
        (reaching("open"), True),
    ],
)
async def test_connections_pass_the_same_stack(policy, reached):
    reach, sink = AsyncMock(return_value=Ongoing()), MemorySink()
    op = abc.Connect(host="www.example.org", port=443, via="direct", reach=reach)
    perform = stack(Recorder(), policy=policy, sink=sink)
    if reached:
        await perform(op)
    else:
        with pytest.raises(PolicyDeniedError) as caught:
            await perform(op)
        assert caught.value.op == "connect"
    assert reach.called is reached
    assert sink.records[0]["facts"] == {
        "host": "www.example.org",
        "port": 443,
        "via": "direct",
    }


async def test_a_rule_that_asks_is_answered_by_a_person():
    asked = []

    async def approve(question):
        asked.append(question)
        return question.facts["port"] == 443

    answers = Answers(approve)
    guard = Guard(reaching(["?www.example.org"]), answers)
    perform = compose(Recorder(), [guard])

    def connect(port, via="direct"):
        reach = AsyncMock(return_value=Ongoing())
        return abc.Connect(host="www.example.org", port=port, via=via, reach=reach)

    for via in ("direct", "connect", "socks5"):
        await perform(connect(443, via))
    with pytest.raises(PolicyDeniedError, match="nobody allowed it"):
        await perform(connect(80))
    assert [(each.op, each.facts["port"]) for each in asked] == [
        ("connect", 443),
        ("connect", 80),
    ]
    assert asked[0].rule == "?www.example.org"
    await answers.aclose()


@pytest.mark.parametrize("ends", ["deadline", "close", "nobody", "error"])
async def test_no_answer_is_a_no(ends):
    async def approve(_):
        if ends == "error":
            raise ZeroDivisionError
        await asyncio.sleep(60)

    answers = Answers(None if ends == "nobody" else approve)
    network = Network.of(["?www.example.org"])
    deadline = 0.05 if ends == "deadline" else 50
    policy = replace(Policy.allow_all(), network=replace(network, ask_timeout=deadline))
    reach = AsyncMock(return_value=Ongoing())
    op = abc.Connect(host="www.example.org", port=443, via="direct", reach=reach)
    waiting = asyncio.ensure_future(compose(Recorder(), [Guard(policy, answers)])(op))
    if ends == "close":
        await asyncio.sleep(0.05)
        await answers.aclose()
    with pytest.raises(ZeroDivisionError if ends == "error" else PolicyDeniedError):
        await waiting
    assert not reach.called
