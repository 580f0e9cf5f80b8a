"""Each operation has one intent and one outcome, each question one answer."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.meta.test_ops import example

from isobox import abc
from isobox._approval.question import Question
from isobox._audit.records import PartlyKeptError
from isobox._audit.sinks import MemorySink
from isobox._core.results import Ongoing
from isobox._core.stack import compose
from isobox._layers import Audit
from isobox.errors import LimitError

OPS = st.sampled_from([example(kind) for kind in abc.OPS if kind is not abc.Connect])
ENDS = st.sampled_from(
    ["result", "ours", "foreign", "cancel", "exit", "ongoing", "ongoing twice", "ended"]
)
ERRORS = {
    "ours": LimitError("too much"),
    "foreign": KeyError("x"),
    "cancel": asyncio.CancelledError(),
    "exit": SystemExit(1),
}


class Scripted:
    """A sandbox whose operations end as they are told."""

    def __init__(self, ends):
        self.ends = ends
        self.going = []

    async def ready(self):
        """It is."""

    def __getattr__(self, name):
        async def method(op):
            await asyncio.sleep(0)
            end = self.ends.pop()
            if end in ERRORS:
                raise ERRORS[end]
            if end == "result":
                return end
            ongoing = Ongoing()
            if end == "ended":
                ongoing._ended({"exit_code": 0})
            self.going += [ongoing] * (2 if end == "ongoing twice" else 1)
            return ongoing

        return method


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(OPS, ENDS), max_size=12), st.randoms(), st.booleans())
def test_every_operation_has_one_of_each(steps, chance, defers):
    sink = Deferring() if defers else MemorySink()
    sandbox = Scripted([end for _, end in steps])
    perform = compose(sandbox, [Audit(sink, workspace="w", backend="b")])

    async def one(op):
        try:
            await perform(op)
        except BaseException as error:  # noqa: BLE001 - each is an end
            return error

    async def all_at_once():
        await asyncio.gather(*(one(op) for op, _ in steps))

    asyncio.run(all_at_once())
    chance.shuffle(sandbox.going)
    for each in sandbox.going:
        each._ended({})
    kinds = Counter((each["number"], each["kind"]) for each in sink.records)
    expected = {
        (number, kind): 1
        for number in range(1, len(steps) + 1)
        for kind in ("intent", "outcome")
    }
    assert kinds == expected
    seen = set()
    for each in sink.records:
        assert each["kind"] == "intent" or each["number"] in seen
        seen.add(each["number"])
    intended = Counter(each["op"] for each in sink.records if each["kind"] == "intent")
    assert intended == Counter(op.name for op, _ in steps)


QUESTION = Question(
    op="connect",
    facts={"host": "hush"},
    rule="a rule",
    reason="hush why",
    deadline=60.0,
    id="q-1",
    preview="what it would write",
)


def test_a_question_and_its_answer_are_recorded():
    sink = MemorySink()
    audit = Audit(
        sink, workspace="w", backend="b", redact=lambda text: text.replace("hush", "*")
    )
    answered = audit.question(QUESTION)
    (asked,) = sink.records
    assert asked["kind"] == "question"
    assert asked["facts"] == {"host": "*"}
    assert (asked["rule"], asked["reason"]) == ("a rule", "* why")
    assert asked["id"] == "q-1"
    assert "write" not in repr(asked)
    audit.lifecycle("close")
    answered("deny once by me")
    answer = sink.records[-1]
    assert (answer["kind"], answer["answer"]) == ("answer", "deny once by me")
    assert answer["number"] == asked["number"]
    assert answer["seconds"] >= 0


def test_a_question_that_cannot_be_recorded_is_not_asked():
    class Full:
        def put(self, record):
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        Audit(Full(), workspace="w", backend="b").question(QUESTION)


def test_without_a_sink_a_question_is_recorded_nowhere():
    Audit(None, workspace="w", backend="b").question(QUESTION)("allow")


class Stream(Ongoing):
    """Goes on until it is told to end."""


class Reads:
    async def ready(self):
        """It is."""

    def __init__(self):
        self.stream = Stream()

    async def read(self, op):
        return self.stream


def test_a_stream_that_is_open_at_the_close_has_an_outcome():
    sink, sandbox = MemorySink(), Reads()
    audit = Audit(sink, workspace="w", backend="b")
    asyncio.run(compose(sandbox, [audit])(abc.Read(path="/w/a")))
    audit.lifecycle("close")
    sandbox.stream._ended({})
    assert [each["kind"] for each in sink.records] == ["intent", "outcome", "lifecycle"]
    assert sink.records[1]["end"] == {"abandoned": True}


def test_a_secret_is_masked_before_a_text_is_cut():
    sink = MemorySink()
    audit = Audit(
        sink, workspace="w", backend="b", redact=lambda text: text.replace("hush", "*")
    )
    for op in (
        abc.Spawn(script="x" * 4094 + "hush", cwd="/w"),
        abc.Spawn(argv=("ls", "x" * 4094 + "hush"), cwd="/w"),
    ):
        asyncio.run(compose(Runs(), [audit])(op))
    assert "hu" not in repr(sink.records)


class Runs:
    async def ready(self):
        """It is."""

    async def spawn(self, op):
        return None


class Failing(MemorySink):
    """Takes records but for some."""

    def __init__(self):
        super().__init__()
        self.fails = False

    def put(self, record):
        if self.fails:
            raise OSError("the disk is full")
        super().put(record)


def test_an_outcome_that_is_not_taken_is_owed_and_nothing_else_happens(caplog):
    sink, sandbox = Failing(), Reads()
    audit = Audit(sink, workspace="w", backend="b")
    perform = compose(sandbox, [audit])
    asyncio.run(perform(abc.Read(path="/w/a")))
    sink.fails = True
    with pytest.raises(OSError, match="full"):
        sandbox.stream._ended({"exit_code": 3})
    assert "did not take the outcome of operation 1" in caplog.text
    sandbox.stream = Stream()
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            asyncio.run(perform(abc.Read(path="/w/b")))
    assert len(sink.records) == 1
    sink.fails = False
    asyncio.run(perform(abc.Read(path="/w/c")))
    kinds = [(each["kind"], each["number"]) for each in sink.records]
    assert kinds == [("intent", 1), ("outcome", 1), ("intent", 4)]
    assert sink.records[1]["end"] == {"exit_code": 3}


def test_a_close_that_cannot_be_recorded_raises_and_forgets_nothing(caplog):
    sink, sandbox = Failing(), Reads()
    audit = Audit(sink, workspace="w", backend="b")
    for _ in range(2):
        sandbox.stream = Stream()
        asyncio.run(compose(sandbox, [audit])(abc.Read(path="/w/a")))
    sink.fails = True
    with pytest.raises(OSError, match="full"):
        audit.lifecycle("close")
    assert caplog.text.count("did not take the outcome") == 2
    sink.fails = False
    audit.lifecycle("close")
    kinds = [each["kind"] for each in sink.records]
    assert kinds == ["intent"] * 2 + ["outcome"] * 2 + ["lifecycle"]


class Deferring(Failing):
    """Takes outcomes with what comes next; keeps what came together in `groups`."""

    defer_outcomes = True

    def __init__(self):
        super().__init__()
        self.groups = []

    def put_all(self, records):
        for record in records:
            self.put(record)
        self.groups.append([(each["kind"], each["number"]) for each in records])


@pytest.fixture
def deferring():
    sink = Deferring()
    audit = Audit(sink, workspace="w", backend="b")
    return sink, audit, compose(Runs(), [audit])


RUN = abc.Spawn(argv=("true",), cwd="/w")


def test_an_outcome_that_may_wait_comes_with_the_next_intent(deferring):
    sink, audit, perform = deferring

    async def work():
        await perform(RUN)
        await perform(RUN)
        assert sink.groups == [
            [("intent", 1)],
            [("outcome", 1), ("intent", 2)],
        ]
        await asyncio.sleep(0)
        assert sink.groups[2:] == [[("outcome", 2)]]
        await perform(RUN)
        audit.lifecycle("close")
        assert sink.groups[3:] == [
            [("intent", 3)],
            [("outcome", 3), ("lifecycle", 4)],
        ]
        await asyncio.sleep(0)
        assert len(sink.groups) == 5

    asyncio.run(work())


def test_the_loop_is_asked_for_one_turn_however_many_wait(deferring):
    sink, _, perform = deferring

    async def work():
        loop, asked = asyncio.get_running_loop(), []
        call_soon = loop.call_soon
        loop.call_soon = lambda *given, **named: (
            asked.append(given),
            call_soon(*given, **named),
        )[1]
        for _ in range(100):
            await perform(RUN)
        assert len(asked) == 1

    asyncio.run(work())
    assert len(sink.records) == 200


def test_an_outcome_that_waits_at_the_loops_end_is_recorded(deferring):
    sink, _, perform = deferring
    asyncio.run(perform(RUN))
    assert sink.groups == [[("intent", 1)], [("outcome", 1)]]
    asyncio.run(perform(RUN))
    assert len(sink.records) == 4


def test_an_outcome_without_a_loop_is_recorded_at_once():
    sink, sandbox = Deferring(), Reads()
    audit = Audit(sink, workspace="w", backend="b")
    asyncio.run(compose(sandbox, [audit])(abc.Read(path="/w/a")))
    sandbox.stream._ended({"exit_code": 3})
    assert sink.groups == [[("intent", 1)], [("outcome", 1)]]


def test_while_a_deferred_outcome_is_not_taken_nothing_else_happens(deferring, caplog):
    sink, audit, perform = deferring

    async def work():
        await perform(RUN)
        sink.fails = True
        await asyncio.sleep(0)
        assert "did not take the outcome of operation 1" in caplog.text
        with pytest.raises(OSError, match="full"):
            await perform(RUN)
        with pytest.raises(OSError, match="full"):
            audit.lifecycle("close")
        sink.fails = False
        await perform(RUN)
        audit.lifecycle("close")

    asyncio.run(work())
    kinds = [(each["kind"], each["number"]) for each in sink.records]
    assert kinds == [
        ("intent", 1),
        ("outcome", 1),
        ("intent", 4),
        ("outcome", 4),
        ("lifecycle", 5),
    ]


class Partly(Deferring):
    """Keeps so many of what comes, and fails."""

    kept = None

    def put_all(self, records):
        if self.kept is None:
            super().put_all(records)
            return
        super().put_all(records[: self.kept])
        raise PartlyKeptError(OSError(28, "full"), self.kept)


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_no_outcome_that_was_kept_is_owed_any_more(kept):
    sink = Partly()
    perform = compose(Runs(), [Audit(sink, workspace="w", backend="b")])

    async def work():
        await perform(RUN)
        sink.kept = kept
        with pytest.raises(OSError, match="full"):
            await perform(RUN)
        sink.kept = None
        await perform(RUN)

    asyncio.run(work())
    kinds = [(each["kind"], each["number"]) for each in sink.records]
    intents = [("intent", 1), ("outcome", 1), *[("intent", 2)] * (kept == 2)]
    assert kinds == [*intents, ("intent", 3), ("outcome", 3)]


def test_a_long_failure_is_recorded_short_and_masked():
    sink = MemorySink()
    long = "x" * 4000 + "hush" * 100_000
    sandbox = Scripted(["ours"])
    audit = Audit(
        sink, workspace="w", backend="b", redact=lambda text: text.replace("hush", "*")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ERRORS, "ours", LimitError(long))
        with pytest.raises(LimitError):
            asyncio.run(compose(sandbox, [audit])(RUN))
    message = sink.records[1]["message"]
    assert len(message) < 4200
    assert "hu" not in message
    assert message.endswith("characters more]")
