"""Questions are asked once, and answered or not."""

from __future__ import annotations

import asyncio
import threading

import pytest

from isobox import abc
from isobox._approval import question
from isobox._approval.question import Answers

pytestmark = pytest.mark.anyio


async def unreached(_):
    raise AssertionError("nothing is reached here")


def connect(host="a.test", via="direct", target=None) -> abc.Connect:
    method = target and "GET"
    return abc.Connect(
        host=host, port=443, via=via, method=method, target=target, reach=unreached
    )


def ask(answers, op, deadline=30.0):
    return answers.ask(op, rule="?*", reason="a rule asks", deadline=deadline)


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
    assert await ask(Answers(person.approve), connect(target="/a?b")) is True
    (told,) = person.asked
    assert told == question.Question(
        op="connect",
        facts={"host": "a.test", "port": 443, "method": "GET", "target": "/a?b"},
        rule="?*",
        reason="a rule asks",
        deadline=30.0,
    )


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


async def test_content_is_asked_about_each_time():
    person = Person()
    answers = Answers(person.approve)
    for body in (b"one", b"two", b"two"):
        await ask(answers, abc.Write(path="/workspace/a", body=body))
    assert len(person.asked) == 3


async def test_the_same_command_is_asked_about_once():
    person = Person()
    answers = Answers(person.approve)
    for path in ("/workspace/a", "/workspace/a", "/workspace/b"):
        await ask(answers, abc.Remove(path=path))
    assert [each.facts["path"] for each in person.asked] == [
        "/workspace/a",
        "/workspace/b",
    ]


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


async def test_so_many_questions_are_open_at_once(monkeypatch):
    monkeypatch.setattr(question, "_OPEN", 2)
    person = Person()
    person.may_answer.clear()
    answers = Answers(person.approve)
    waiting = [
        asyncio.ensure_future(ask(answers, connect(f"{n}.test"))) for n in range(2)
    ]
    await asyncio.sleep(0.01)
    assert await ask(answers, connect("2.test")) is False
    person.may_answer.set()
    assert await asyncio.gather(*waiting) == [True, True]
    assert await ask(answers, connect("2.test")) is True


async def test_so_many_answers_are_remembered(monkeypatch):
    monkeypatch.setattr(question, "_REMEMBERED", 2)
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
