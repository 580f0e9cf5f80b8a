"""Attacks on the network filter that once succeeded, from a workload's position.

Each was carried out from inside a sandbox against real servers first; here is what
decides it, without a network.
"""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.unit.egress.talk import Server, talk

from isobox import NetworkRule
from isobox._egress import look
from isobox._egress.overrides import overridden
from isobox._egress.redact import Redactor
from isobox._egress.request import Request

pytestmark = pytest.mark.anyio

SECRET = b"s3cr3t-value-sentinel-0123456789"
GET = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"


@pytest.mark.parametrize(
    "line",
    [
        # Python's http.server: HTTP/0.9, whose headers it reads all the same.
        b"GET /x\r\n",
        # Node takes these for HTTP.
        b"GET /x RTSP/1.1\r\n",
        b"SOURCE /x ICE/1.1\r\n",
        # What Python takes for white space.
        b"\x1cGET /x HTTP/1.1\r\n",
        b"GET\x1c/x\x1cHTTP/1.1\r\n",
        b"\xa0GET /x HTTP/1.1\r\n",
        b"GET\x85/x HTTP/1.1\r\n",
    ],
)
def test_a_request_that_real_servers_take_is_taken_for_one(line):
    data = line + b"Host: evil.test\r\n\r\n"
    assert look.is_like_http(data) is True


ESCAPES = [
    # nginx: `\` is a letter, and `..` is walked.
    r"/public/../admin/x\..\..\public/a",
    # WHATWG's URL, as Node, Deno and Workers use it: `%2f` is no slash,
    "/public/../admin/x%2f..%2f..%2fpublic/a",
    # and between two slashes is a piece that `..` takes away.
    "/public/../admin//../public/a",
]


@pytest.mark.parametrize("path", ESCAPES)
def test_no_server_reads_a_path_that_the_rules_do_not_allow(path):
    rule = NetworkRule(host="a.test", paths=("/public/*",))
    assert not rule.fits("GET", path)


def test_no_server_reads_a_path_that_the_rules_deny():
    rule = NetworkRule(host="a.test", verdict="deny", paths=("/admin*",))
    assert rule.fits("GET", "/a/../admin//../x")


@pytest.mark.parametrize(
    "name", [b"X_HTTP_Method_Override", b"X-HTTP_Method-Override", b"x_http_method"]
)
def test_a_method_is_told_by_a_header_as_wsgi_reads_it(name):
    asked = Request("a.test", 443, b"POST", b"/", ((name, b"DELETE"),))
    assert ("DELETE", "/") in overridden(asked)


class Raw(Server):
    """A server that says the same to whatever it is asked."""

    async def send(self, data: bytes) -> None:
        self.said.put_nowait(self.answer(None))
        self.said.put_nowait(b"")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 302 Found\r\nLocation: \0" + SECRET + b"\r\n\r\n",
        b"HTTP/9.9 " + SECRET + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"\0" * 20 + SECRET + b"\r\n\r\n",
    ],
)
async def test_a_value_is_not_told_by_what_is_said_of_a_bad_answer(answer):
    redactor = Redactor([SECRET])
    told = await talk(GET, answer=lambda _: answer, kind=Raw, redactor=redactor)
    assert told.statuses == [502]
    assert SECRET[:8] not in told.said


@pytest.mark.parametrize(
    "asked",
    [
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX: \0" + SECRET + b"\r\n\r\n",
        b"GET /" + SECRET + b" HTTP/1.1 more\r\nHost: a.test\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: " + SECRET + b"\r\n\r\n",
    ],
)
async def test_a_bad_request_is_not_repeated(asked):
    told = await talk(asked)
    assert told.statuses == [400]
    assert SECRET[:8] not in told.said


async def _longest_wait(work) -> float:
    """Return for how long others did not have their turn while `work` was done."""
    longest, last = 0.0, time.monotonic()

    async def watch() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0)
            now = time.monotonic()
            longest, last = max(longest, now - last), now

    watcher = asyncio.create_task(watch())
    try:
        await work
    finally:
        watcher.cancel()
    return max(longest, time.monotonic() - last)


PIECE = b"1\r\na\r\n" * ((1 << 18) // 6)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + PIECE,
        b"HTTP/1.1 103 \r\n\r\n" * ((1 << 18) // 17),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
        + b"a:\r\n" * 60_000,
        b"HTTP/1.1 200 OK\r\n" + b"a:\r\n" * 60_000 + b"\r\n",
    ],
)
async def test_an_answer_in_the_smallest_pieces_leaves_others_their_turn(answer):
    work = talk(GET, answer=lambda _: answer, kind=Raw)
    assert await _longest_wait(work) < 0.2


async def test_a_held_body_in_the_smallest_pieces_leaves_others_their_turn():
    head = b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
    work = talk(head, PIECE, b"0\r\n\r\n", signed=True)
    assert await _longest_wait(work) < 0.2


async def test_a_head_of_ten_thousand_headers_is_refused():
    head = GET[:-2] + b"a:\r\n" * 12_000 + b"\r\n"
    told = await talk(head)
    assert told.statuses == [431]
    assert not told.connected


async def test_an_answer_of_ten_thousand_headers_is_refused():
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + b"a:\r\n" * 12_000 + b"\r\n"
    told = await talk(GET, answer=lambda _: head)
    assert told.statuses == [502]
