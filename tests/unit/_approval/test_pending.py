"""Questions that a server answers later, by their id."""

from __future__ import annotations

import asyncio
import threading

import anyio
import pytest

from isobox import abc
from isobox._approval.pending import Pending
from isobox._approval.question import Answer, Answers
from isobox.errors import InvalidArgumentError

pytestmark = pytest.mark.anyio


def ask(answers, path="/workspace/a", deadline=30.0):
    op = abc.Remove(path=path)
    return answers.ask(op, rule="r", reason="it removes", deadline=deadline)


async def pending(front, count=1):
    with anyio.fail_after(10):
        while len(front.questions()) < count:
            await anyio.sleep(0.005)
    return front.questions()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (True, Answer(True)),
        (False, Answer(False)),
        (Answer(False, message="not today"), Answer(False, message="not today")),
    ],
)
async def test_a_question_waits_for_its_answer(said, expected):
    front = Pending()
    waiting = asyncio.create_task(ask(Answers(front)))
    (asked,) = await pending(front)
    assert asked.facts["path"] == "/workspace/a"
    front.answer(asked.id, said)
    assert await waiting == expected
    assert front.questions() == []


async def test_an_id_that_is_unknown_or_late_is_refused():
    front = Pending()
    with pytest.raises(InvalidArgumentError, match="'nobody' is pending"):
        front.answer("nobody", True)
    waiting = asyncio.create_task(ask(Answers(front)))
    (asked,) = await pending(front)
    front.answer(asked.id, True)
    with pytest.raises(InvalidArgumentError):
        front.answer(asked.id, False)
    assert (await waiting).allow is True
    late = asyncio.create_task(ask(Answers(front), deadline=0.05))
    (asked,) = await pending(front)
    assert (await late).allow is False
    assert front.questions() == []
    with pytest.raises(InvalidArgumentError):
        front.answer(asked.id, True)


async def test_what_is_withdrawn_or_closed_is_pending_no_more():
    front = Pending()
    answers = Answers(front)
    waiting = [asyncio.create_task(ask(answers, f"/{n}")) for n in range(3)]
    await pending(front, 3)
    waiting[0].cancel()
    with anyio.fail_after(10):
        while len(front.questions()) > 2:
            await anyio.sleep(0.005)
    assert [each.facts["path"] for each in front.questions()] == ["/1", "/2"]
    await answers.aclose()
    assert [(await each).allow for each in waiting[1:]] == [False, False]
    assert front.questions() == []


async def test_a_thousand_are_answered_from_threads():
    front = Pending()
    answers = Answers(front, most=1000)
    waiting = [asyncio.create_task(ask(answers, f"/{n}")) for n in range(1000)]
    asked = await pending(front, 1000)

    def reply(some):
        for each in some:
            front.answer(each.id, each.facts["path"].endswith("7"))

    threads = [threading.Thread(target=reply, args=(asked[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    said = await asyncio.gather(*waiting)
    for thread in threads:
        thread.join()
    assert [n for n in range(1000) if said[n].allow] == [*range(7, 1000, 10)]


async def test_one_front_serves_workspaces_in_several_loops():
    front = Pending()
    found = []

    async def other():
        found.append(await ask(Answers(front), "/other"))

    thread = threading.Thread(target=lambda: asyncio.run(other()))
    thread.start()
    waiting = asyncio.create_task(ask(Answers(front), "/here"))
    for each in await pending(front, 2):
        front.answer(each.id, each.facts["path"] == "/other")
    assert (await waiting).allow is False
    await anyio.to_thread.run_sync(thread.join)
    assert found == [Answer(True)]


async def test_a_stream_yields_what_is_pending_and_what_comes():
    front = Pending()
    answers = Answers(front)
    waiting = [asyncio.create_task(ask(answers, "/0"))]
    await pending(front)
    seen = []

    async def read():
        async for question in front.stream():
            seen.append(question.facts["path"])
            front.answer(question.id, True)

    reader = asyncio.create_task(read())
    for number in range(1, 4):
        waiting.append(asyncio.create_task(ask(answers, f"/{number}")))
        await anyio.sleep(0.005)
    with anyio.fail_after(10):
        assert all([(await each).allow for each in waiting])
    assert seen == ["/0", "/1", "/2", "/3"]
    reader.cancel()
    await asyncio.wait([reader])
    assert front._bells == set()


async def test_a_slow_reader_is_not_shown_what_is_answered():
    front = Pending()
    answers = Answers(front)
    stream = front.stream()
    waiting = [asyncio.create_task(ask(answers, f"/{n}")) for n in range(3)]
    asked = await pending(front, 3)
    assert (await anext(stream)).facts["path"] == "/0"
    front.answer(asked[1].id, True)
    assert (await anext(stream)).facts["path"] == "/2"
    with anyio.move_on_after(0.05) as scope:
        await anext(stream)
    assert scope.cancelled_caught
    await answers.aclose()
    await asyncio.wait(waiting)


async def test_a_reader_that_went_with_its_loop_holds_up_nobody():
    front = Pending()
    streams = []

    async def listen():
        streams.append(front.stream())
        with anyio.move_on_after(0.02):
            await anext(streams[0])

    loop = asyncio.new_event_loop()
    await anyio.to_thread.run_sync(loop.run_until_complete, listen())
    loop.close()
    waiting = asyncio.create_task(ask(Answers(front)))
    (asked,) = await pending(front)
    front.answer(asked.id, True)
    assert (await waiting).allow is True
