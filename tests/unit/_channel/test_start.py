"""Guests as children of the host."""

from __future__ import annotations

import time

import pytest
from tests.descriptors import none_left_open

from isobox._channel import start
from isobox._channel.start import GuestChild, GuestFailedError

pytestmark = pytest.mark.anyio


async def failed(*argv: str) -> str:
    with pytest.raises(GuestFailedError) as error:
        await GuestChild.start(argv, config={"env": {}}, env={}, cwd="/", pass_fds=[])
    return str(error.value)


async def test_what_it_said_is_the_reason():
    assert "nobody home" in await failed(
        "/bin/sh", "-c", "echo nobody home >&2; exit 1"
    )


async def test_one_that_says_nothing_is_a_reason_too():
    assert await failed("/bin/true")


async def test_one_that_does_not_exist_is_the_kernels_word():
    with none_left_open(), pytest.raises(FileNotFoundError):
        await GuestChild.start(["/absent"], config={}, env={}, cwd="/", pass_fds=[])


async def test_one_that_stays_silent_is_killed(monkeypatch):
    monkeypatch.setattr(start, "_START", 0.1)
    monkeypatch.setattr(start, "_END", 0.1)
    began = time.monotonic()
    with none_left_open():
        assert "in time" in await failed("/bin/sleep", "30")
    assert time.monotonic() - began < 5


async def test_the_environment_of_the_host_is_not_passed_on(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "hush")
    assert "SECRET" not in await failed("/bin/sh", "-c", "env >&2; exit 1")
