"""A second ClientHello is checked, for as long as a server may heed one."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.unit.egress import hellos
from tests.unit.egress.hellos import (
    alpn,
    answer,
    block,
    hello,
    message,
    names,
    record,
    records,
)
from tests.unit.egress.talk import Script, pair

from isobox._egress import client_hello, second_hello
from isobox._egress.parsing import ParseError
from isobox._egress.second_hello import Followed, asks_again
from isobox.errors import PolicyDeniedError

pytestmark = pytest.mark.anyio

FIRST = hello(names(b"a.test"))
SECOND = hello(names(b"a.test"), alpn(b"h2"))
OTHER = hello(names(b"b.test"))
CHANGE = b"\x14\3\3\0\1\1"
EARLY = b"\x17\3\3" + block(bytes(200), 2)
WARNING = b"\x15\3\3\0\2\1\x70"


AGAIN = answer(hellos.AGAIN)
SERVED = answer(bytes(32))


class Checked:
    """A client that is followed, and what was checked."""

    def __init__(self, *pieces):
        self.seen = []
        self.client = Script(*pieces)
        self.followed = Followed(self.client, self.check)

    def check(self, found):
        self.seen.append(found.server_name)
        if found.server_name != "a.test":
            raise PolicyDeniedError("another host", rule="sni")

    async def carried(self):
        """Return what is carried until the end, or until it is refused."""
        carried = b""
        try:
            while piece := await self.followed.receive():
                carried += piece
        except (PolicyDeniedError, ParseError) as error:
            return carried, error
        return carried, None


def cut(data, size):
    return [data[at : at + size] for at in range(0, len(data), size)]


BETWEEN = [b"", CHANGE, EARLY, EARLY * 3 + CHANGE, WARNING]


@pytest.mark.parametrize("size", [1, 3, 7, 100, 1 << 16])
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize(
    "second",
    [SECOND, records(message(names(b"a.test"), alpn(b"h2")), [1, 2, 3, 30])],
)
async def test_the_second_hello_is_checked_and_carried_as_it_is(size, between, second):
    data = FIRST + between + second + EARLY + b"\0anything"
    it = Checked(*cut(data, size))
    assert await it.carried() == (data, None)
    assert it.seen == ["a.test"]


@pytest.mark.parametrize("size", [1, 3, 7, 100, 1 << 16])
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize(
    "second", [OTHER, records(message(names(b"b.test")), [1, 2, 3, 30])]
)
async def test_a_second_hello_for_another_host_is_not_carried(size, between, second):
    it = Checked(*cut(FIRST + between + second, size))
    carried, error = await it.carried()
    assert isinstance(error, PolicyDeniedError)
    # What came whole before it may be held back with it.
    assert (FIRST + between).startswith(carried)


@pytest.mark.parametrize("size", [1, 20, 1 << 16])
@pytest.mark.parametrize("before", [b"", WARNING, WARNING * 3])
async def test_a_server_that_asks_for_it_ends_nothing(size, before):
    it = Checked(FIRST, CHANGE + OTHER)
    assert await it.followed.receive() == FIRST
    for piece in cut(before + AGAIN + CHANGE, size):
        await it.followed.send(piece)
    carried, error = await it.carried()
    assert (carried, str(error)) == (b"", "another host")
    assert it.client.sent == before + AGAIN + CHANGE


@pytest.mark.parametrize("size", [1, 20, 1 << 16])
@pytest.mark.parametrize("before", [b"", WARNING])
@pytest.mark.parametrize(
    "said", [SERVED, records(SERVED[5:], [1, 7]), b"HTTP/1.1 400 Bad Request", FIRST]
)
async def test_once_the_server_has_answered_nothing_is_looked_at(size, before, said):
    rest = [record(b"\x10\0\0\1x"), OTHER, b"anything"]
    it = Checked(FIRST, *rest)
    assert await it.followed.receive() == FIRST
    for piece in cut(before + said, size):
        await it.followed.send(piece)
    assert await it.carried() == (b"".join(rest), None)
    assert it.seen == []


async def test_what_was_held_goes_on_once_the_server_has_answered():
    inside, caught = pair()
    followed = Followed(caught, lambda _: None)
    async with inside, caught:
        await inside.send(FIRST)
        assert await followed.receive() == FIRST
        await inside.send(SECOND[:20])
        waiting = asyncio.ensure_future(followed.receive())
        async with asyncio.timeout(10):
            while not followed._held:
                await asyncio.sleep(0)
        await followed.send(SERVED)
        await inside.send(b"x")
        assert await waiting == SECOND[:20] + b"x"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"anything", "no TLS record"),
        (b"\x17\2\3\0\1x", "no TLS record"),
        (b"\x17\3\3\xff\xff", "no TLS record"),
        (record(b"\x10\0\0\1x"), "starts with message 16"),
        (record(message(names(b"a.test")) + b"\0"), "something follows"),
        (SECOND[:50] + CHANGE + bytes(99), "ClientHello|no TLS record"),
        (SECOND[:-1], "ends early"),
        (b"\x17", "ends early"),
        (CHANGE * (second_hello._MOST_RECORDS + 1), "records before an answer"),
        (b"\x16\3\3" + block(b"\1\2\0\0", 2), "at most"),
    ],
)
async def test_what_no_client_sends_is_refused(data, reason):
    it = Checked(FIRST, data)
    carried, error = await it.carried()
    assert isinstance(error, ParseError)
    assert re.search(reason, str(error))
    assert carried.startswith(FIRST)
    assert it.seen == []


async def test_a_client_that_leaves_after_its_hello():
    it = Checked(FIRST)
    assert await it.carried() == (FIRST, None)


@pytest.mark.parametrize(
    ("said", "asks"),
    [
        (b"", None),
        (AGAIN, True),
        (AGAIN[:42], None),
        (AGAIN[:43], True),
        (WARNING + AGAIN, True),
        (records(AGAIN[5:], [1, 7]), True),
        (SERVED, False),
        (WARNING, None),
        (WARNING * 3000, False),
        (CHANGE + AGAIN, False),
        (b"\x16\3\3\0", None),
        (FIRST, False),
        (b"2", False),
    ],
)
def test_whether_a_server_asks_again(said, asks):
    assert asks_again(said) is asks


@pytest.mark.parametrize("sizes", [[], [1, 2, 30]])
def test_a_hello_is_measured_with_its_records(sizes):
    data = records(message(names(b"a.test")), sizes)
    assert client_hello.measured(data + b"more") == len(data)
    assert client_hello.measured(data[:-1]) is None
