"""Questions are asked once, and answered or not."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import asdict, replace

import pytest

from isobox import abc
from isobox._approval import memory, question
from isobox._approval.question import Answer, Answers
from isobox.errors import InvalidArgumentError, LimitError

pytestmark = pytest.mark.anyio


async def unreached(_):
    raise AssertionError("nothing is reached here")


def connect(host="a.test", via="direct", target=None) -> abc.Connect:
    method = target and "GET"
    return abc.Connect(
        host=host, port=443, via=via, method=method, target=target, reach=unreached
    )


async def ask(answers, op, deadline=30.0, **more):
    answer = await answers.ask(
        op, rule="?*", reason="a rule asks", deadline=deadline, **more
    )
    return answer.allow


class Person:
    def __init__(self, answer=True):
        self.asked = []
        self.answer = answer
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def approve(self, asked):
        self.asked.append(asked)
        await self.may_answer.wait()
        return self.answer


async def test_what_a_person_is_told():
    person = Person()
    answers = Answers(person.approve, workspace="w1")

    async def describe(asked):
        return replace(asked, risk="leaves the sandbox", preview="what it does")

    began = time.time()
    assert await ask(answers, connect(target="/a?b"), describe=describe) is True
    (told,) = person.asked
    assert told == question.Question(
        op="connect",
        facts={"host": "a.test", "port": 443, "method": "GET", "target": "/a?b"},
        rule="?*",
        reason="a rule asks",
        deadline=30.0,
        id=told.id,
        workspace="w1",
        risk="leaves the sandbox",
        preview="what it does",
        created=told.created,
    )
    assert began <= told.created <= time.time()
    assert json.loads(json.dumps(asdict(told)))["facts"]["port"] == 443


async def test_every_question_has_an_id_and_a_script_its_session():
    person = Person()
    answers = Answers(person.approve, workspace="w1")
    for session in ("a", "b"):
        script = abc.Script(process=None, session_id=session, script="ls")
        assert await ask(answers, script) is True
    assert [each.session for each in person.asked] == ["a", "b"]
    assert len({each.id for each in person.asked}) == 2


@pytest.mark.parametrize("answer", [True, False])
async def test_the_way_it_came_is_no_other_question(answer):
    person = Person(answer)
    answers = Answers(person.approve)
    for via in ("direct", "connect", "socks5", "http"):
        assert await ask(answers, connect(via=via)) is answer
    assert len(person.asked) == 1
    assert await ask(answers, connect("b.test")) is answer
    assert len(person.asked) == 2


async def test_who_asks_the_same_waits_for_the_same_answer():
    person = Person()
    person.may_answer.clear()
    answers = Answers(person.approve)
    waiting = [asyncio.ensure_future(ask(answers, connect())) for _ in range(3)]
    await asyncio.sleep(0.01)
    waiting[0].cancel()
    await asyncio.sleep(0.01)
    person.may_answer.set()
    assert await asyncio.gather(*waiting[1:]) == [True, True]
    assert len(person.asked) == 1


async def test_a_yes_is_not_one_to_what_begins_alike():
    person = Person()
    answers = Answers(person.approve)
    long = "/" + "a" * 5000
    await ask(answers, connect(target=long + "b"))
    await ask(answers, connect(target=long + "c"))
    assert len(person.asked) == 2
    assert person.asked[0].facts == person.asked[1].facts


@pytest.mark.parametrize("answer", [True, False, Answer(True), Answer(False)])
async def test_what_is_no_connection_is_asked_about_each_time(answer):
    person = Person(answer)
    answers = Answers(person.approve)
    op = abc.Remove(path="/workspace/a")
    for _ in range(2):
        assert await ask(answers, op, keys=[("rule", "a")]) is (
            answer if isinstance(answer, bool) else answer.allow
        )
    both = [ask(answers, op, keys=[("rule", "a")]) for _ in range(2)]
    await asyncio.gather(*both)
    assert len(person.asked) == 4


async def test_an_answer_once_is_so_for_connections_too():
    person = Person(Answer(True))
    answers = Answers(person.approve)
    for _ in range(2):
        assert await ask(answers, connect()) is True
    assert len(person.asked) == 2


# -- how long an answer holds -----------------------------------------------------

A, B = ("rule", "a"), ("rule", "b")


@pytest.mark.parametrize("scope", ["session", "project"])
@pytest.mark.parametrize("allow", [True, False])
async def test_an_answer_for_the_session_is_not_asked_for_again(scope, allow):
    person = Person(Answer(allow, scope, message="so it is"))
    answers = Answers(person.approve)
    op = abc.Remove(path="/workspace/a")
    for path in ("/workspace/a", "/workspace/other"):
        answer = await answers.ask(
            abc.Remove(path=path), rule="r", reason="", deadline=30, keys=[A]
        )
        assert (answer.allow, answer.message) == (allow, "so it is")
    assert len(person.asked) == 1
    await ask(answers, op, keys=[B])
    assert len(person.asked) == 2


async def test_every_part_must_be_allowed_and_one_that_is_denied_is_enough():
    person = Person(Answer(True, "session"))
    answers = Answers(person.approve)
    op = abc.Remove(path="/workspace/a")
    assert await ask(answers, op, keys=[A]) is True
    assert await ask(answers, op, keys=[A, B]) is True
    assert len(person.asked) == 2
    assert await ask(answers, op, keys=[B]) is True
    assert len(person.asked) == 2
    person.answer = Answer(False, "session")
    other = ("rule", "c")
    assert await ask(answers, op, keys=[other]) is False
    assert await ask(answers, op, keys=[A, other, ("rule", "new")]) is False
    assert len(person.asked) == 3


async def test_one_answer_settles_those_that_wait_for_the_same():
    asked = []
    first = asyncio.Event()

    async def approve(question):
        asked.append(question)
        if len(asked) == 3:
            return Answer(True, "session")
        first.set()
        await asyncio.sleep(60)
        return False

    heard = []
    answers = Answers(approve, record=lambda _: heard.append)
    op = abc.Remove(path="/workspace/a")
    waiting = [asyncio.create_task(ask(answers, op, keys=[A])) for _ in range(2)]
    await first.wait()
    async with asyncio.timeout(10):
        assert await ask(answers, op, keys=[A]) is True
        assert await asyncio.gather(*waiting) == [True, True]
    assert sorted(heard) == [
        "allow session",
        "allow session, as to another one",
        "allow session, as to another one",
    ]


@pytest.mark.parametrize("wrong", ["no", None, 1, object()])
async def test_what_is_no_answer_is_no_yes(wrong):
    async def approve(_):
        return wrong

    answers = Answers(approve)
    with pytest.raises(InvalidArgumentError, match="return True, False or an Answer"):
        await ask(answers, connect())


def test_an_answer_is_checked():
    with pytest.raises(InvalidArgumentError, match="once, session, project"):
        Answer(True, "forever")
    with pytest.raises(InvalidArgumentError, match="4096"):
        Answer(False, message="x" * 4097)
    for wrong in ({"message": 5}, {"message": None}, {"by": 5}):
        with pytest.raises(InvalidArgumentError, match="is no text"):
            Answer(False, **wrong)
    assert str(Answer(True, "project", by="ann")) == "allow project by ann"


# -- the record ---------------------------------------------------------------------


class Recorder:
    def __init__(self):
        self.records = []

    def __call__(self, asked):
        self.records.append(("question", asked.op))
        return lambda words: self.records.append(("answer", words))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (True, "allow session"),
        (False, "deny session"),
        (Answer(False, "once", by="ann"), "deny once by ann"),
        (Answer(True, "project"), "allow project"),
    ],
)
async def test_questions_and_answers_are_put_on_record(answer, words):
    recorder = Recorder()
    await ask(Answers(Person(answer).approve, record=recorder), connect())
    assert recorder.records == [("question", "connect"), ("answer", words)]


async def test_how_a_question_ended_without_an_answer_is_put_on_record():
    recorder, person = Recorder(), Person()
    person.may_answer.clear()
    answers = Answers(person.approve, record=recorder)
    await ask(answers, connect("late.test"), deadline=0.02)
    waiting = asyncio.create_task(ask(answers, connect("gone.test")))
    await asyncio.sleep(0.02)
    waiting.cancel()
    await asyncio.sleep(0.02)
    person.may_answer.set()
    person.answer = "no"
    with pytest.raises(InvalidArgumentError):
        await ask(answers, connect("odd.test"))
    assert [words for kind, words in recorder.records if kind == "answer"] == [
        "no answer in time",
        "withdrawn",
        "failed with InvalidArgumentError",
    ]


async def test_what_cannot_be_recorded_is_not_asked():
    def full(_):
        raise OSError("no space left")

    person = Person()
    with pytest.raises(OSError, match="no space"):
        await ask(Answers(person.approve, record=full), connect())
    assert person.asked == []


async def test_an_answer_that_cannot_be_recorded_is_none():
    def record(_):
        def full(_):
            raise OSError("no space left")

        return full

    answers = Answers(Person(Answer(True, "session")).approve, record=record)
    for _ in range(2):
        with pytest.raises(OSError, match="no space"):
            await ask(answers, connect(), keys=[A])


# -- who answers --------------------------------------------------------------------


async def test_a_function_runs_in_a_thread():
    threads = []

    def approve(_):
        threads.append(threading.current_thread())
        return True

    assert await ask(Answers(approve), connect()) is True
    assert threads[0] is not threading.current_thread()


async def test_a_function_may_return_what_is_awaited():
    person = Person()

    def approve(asked):
        return person.approve(asked)

    assert await ask(Answers(approve), connect()) is True


async def test_a_function_that_waits_misses_its_deadline():
    over = threading.Event()

    def approve(_):
        over.wait(20)
        return True

    try:
        assert await ask(Answers(approve), connect(), deadline=0.05) is False
    finally:
        over.set()


async def test_a_missed_deadline_is_forgotten():
    person = Person()
    person.may_answer.clear()
    answers = Answers(person.approve)
    assert await ask(answers, connect(), deadline=0.02) is False
    person.may_answer.set()
    assert await ask(answers, connect()) is True
    assert len(person.asked) == 2


async def test_nobody_is_a_no():
    assert await ask(Answers(None), connect()) is False


async def test_a_question_that_nobody_waits_for_is_withdrawn():
    withdrawn = []

    async def approve(asked):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            withdrawn.append(asked.facts["host"])
            raise

    answers = Answers(approve)
    first, second = (asyncio.create_task(ask(answers, connect())) for _ in range(2))
    await asyncio.sleep(0.02)
    first.cancel()
    await asyncio.sleep(0.02)
    assert withdrawn == []
    second.cancel()
    await asyncio.sleep(0.02)
    assert withdrawn == ["a.test"]


async def test_who_asks_the_same_after_a_withdrawal_is_asked_anew():
    person = Person()
    person.may_answer.clear()
    answers = Answers(person.approve)
    waiting = asyncio.create_task(ask(answers, connect()))
    await asyncio.sleep(0.02)
    waiting.cancel()
    # The one that is withdrawn has not yet heard of it.
    anew = asyncio.create_task(ask(answers, connect()))
    await asyncio.sleep(0.02)
    person.may_answer.set()
    assert await anew is True
    assert len(person.asked) == 2


async def test_a_question_that_is_closed_before_it_is_put_is_a_no():
    person = Person()
    answers = Answers(person.approve)
    waiting = asyncio.create_task(ask(answers, connect()))
    await asyncio.sleep(0)
    await answers.aclose()
    assert await waiting is False


async def test_a_thousand_questions_wait_at_once():
    asked, may_answer = [], asyncio.Event()

    async def approve(each):
        asked.append(each)
        await may_answer.wait()
        return each.facts["path"].endswith("7")

    answers = Answers(approve, most=1000)
    ops = [abc.Remove(path=f"/workspace/{n}") for n in range(1000)]
    waiting = [asyncio.create_task(ask(answers, op)) for op in ops]
    while len(asked) < 1000:
        await asyncio.sleep(0.01)
    may_answer.set()
    said = await asyncio.gather(*waiting)
    assert [n for n in range(1000) if said[n]] == [*range(7, 1000, 10)]


async def test_an_object_that_is_called_like_a_coroutine_takes_no_thread():
    class Front:
        async def __call__(self, _):
            self.thread = threading.current_thread()
            return True

    front = Front()
    assert await ask(Answers(front), connect()) is True
    assert front.thread is threading.current_thread()


async def test_a_closed_one_asks_nobody():
    person = Person()
    person.may_answer.clear()
    answers = Answers(person.approve)
    waiting = asyncio.ensure_future(ask(answers, connect()))
    await asyncio.sleep(0.01)
    await answers.aclose()
    assert await waiting is False
    assert await ask(answers, connect()) is False
    assert len(person.asked) == 1
    await answers.aclose()


async def test_so_many_questions_are_open_at_once():
    person = Person()
    person.may_answer.clear()
    answers = Answers(person.approve, most=2)
    waiting = [
        asyncio.ensure_future(ask(answers, connect(f"{n}.test"))) for n in range(2)
    ]
    await asyncio.sleep(0.01)
    with pytest.raises(LimitError, match="2 questions wait"):
        await ask(answers, connect("2.test"))
    person.may_answer.set()
    assert await asyncio.gather(*waiting) == [True, True]
    assert await ask(answers, connect("2.test")) is True


async def test_sixty_four_questions_are_open_where_nobody_says_otherwise():
    person = Person()
    person.may_answer.clear()
    answers = Answers(person.approve)
    waiting = [
        asyncio.ensure_future(ask(answers, connect(f"{n}.test"))) for n in range(70)
    ]
    await asyncio.sleep(0.05)
    person.may_answer.set()
    said = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in said] == [bool] * 64 + [LimitError] * 6


async def test_so_many_answers_are_remembered(monkeypatch):
    monkeypatch.setattr(memory, "_REMEMBERED", 2)
    person = Person()
    answers = Answers(person.approve)
    for number in (0, 1, 2, 3, 3, 0):
        await ask(answers, connect(f"{number}.test"))
    assert len(person.asked) == 5


async def test_what_it_raises_reaches_who_asked():
    async def approve(_):
        raise ZeroDivisionError

    answers = Answers(approve)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await ask(answers, connect())
