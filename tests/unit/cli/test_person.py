"""The person who is asked at the terminal."""

from __future__ import annotations

import os

import anyio
import pytest

from isobox._approval.question import Question
from isobox.cli import person
from isobox.cli.person import Person

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def terminal():
    user, ours = os.openpty()
    yield user, ours
    os.close(user)
    os.close(ours)


def question(**facts):
    known = {"host": "a.test", "port": 443, **facts}
    return Question("connect", known, "otherwise", "no rule is about it", 60.0)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (b"y\n", True),
        (b"YES\n", True),
        (b" y \n", True),
        (b"n\n", False),
        (b"\n", False),
        (b"yesterday\n", False),
        (b"\xff\n", False),
        (b"\x04", False),
    ],
)
async def test_answer(typed, answer, terminal):
    user, ours = terminal

    async def reply():
        await anyio.wait_readable(user)
        assert b"may it?" in os.read(user, 1000)
        os.write(user, typed)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(reply)
            assert await person._answered(ours, "may it?") is answer


async def test_what_was_typed_before_is_no_answer(terminal):
    user, ours = terminal
    os.write(user, b"y\n")
    await anyio.wait_readable(ours)
    with anyio.move_on_after(0.2) as waiting:
        await person._answered(ours, "may it?")
    assert waiting.cancelled_caught


async def test_a_question_without_an_answer_leaves_a_new_line(terminal):
    user, ours = terminal
    with anyio.move_on_after(0.05):
        await person._answered(ours, "may it?")
    seen = b""
    while not seen.endswith(b"\x1b[0m \r\n"):
        await anyio.wait_readable(user)
        seen += os.read(user, 1000)


def test_question():
    assert person._text(question(), 12.3) == (
        "isobox: may it connect to a.test:443? "
        "(no rule is about it; rule 'otherwise') [y/N, 12 s]"
    )


def test_question_about_a_request():
    text = person._what(
        question(method="GET", target="/a b\n\x1b[2K\u202e" + "c" * 999)
    )
    assert text.startswith("send GET /a b\\n\\x1b[2K\\u202eccc")
    assert text.endswith("ccc[... 609 characters more] to a.test:443")
    assert len(text) < 500


async def test_nobody_is_a_no(monkeypatch, capsys):
    def missing(*_):
        raise OSError

    monkeypatch.setattr(os, "open", missing)
    assert await Person().approve(question()) is False
    assert capsys.readouterr().err == (
        "isobox: no terminal to ask whether it may connect to a.test:443\n"
    )
