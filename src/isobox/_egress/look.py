"""What the two sides of a connection say first, before it is carried."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

import anyio
from typing_extensions import override

from isobox._channel.background import collapsed
from isobox._core.results import Connection
from isobox._egress import client_hello
from isobox._egress.parsing import ParseError
from isobox._egress.sniff import Kind, kind
from isobox.errors import PolicyDeniedError

if TYPE_CHECKING:
    from isobox._egress.client_hello import ClientHello
    from isobox._egress.wire import Peeked

#: Seconds until a client has said who it is: a SOCKS request, a whole ClientHello.
HELLO: Final = 30.0

#: What somebody takes for white space; Python does for all of it.
_BLANK: Final = b"\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0"
#: No method of anybody's is so long.
_LONGEST_METHOD: Final = 64
#: What servers take for a line at most, often 8 KiB.
_LONGEST_LINE: Final = 1 << 13
_METHOD: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]*")
#: Methods that a request may have that names no version (HTTP/0.9).
_BARE: Final = frozenset(
    (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE")
)
#: What ends a line, or what no line of text has, whoever reads it.
_END: Final = re.compile(rb"[\x00-\x08\n\x0e-\x1b\x7f]")
#: Where a request says that it is one. Others have `service/`.
_VERSION: Final = re.compile(rb"(?i:http/|rtsp/|(?<![a-z])ice/)")
#: The beginning of a SETTINGS frame, without an acknowledgement.
_SETTINGS: Final = re.compile(rb"\x00..\x04\x00\x00\x00\x00\x00", re.DOTALL)


async def server_speaks_first(client: Peeked, server: Peeked) -> bool:
    """Wait until one side has said something, or left; say whether the server has."""
    first: list[str] = []

    async def listen(side: Peeked, name: str) -> None:
        await side.peek()
        first.append(name)
        group.cancel_scope.cancel()

    with collapsed():
        async with anyio.create_task_group() as group:
            group.start_soon(listen, client, "client")
            group.start_soon(listen, server, "server")
    return first[0] == "server"


async def spoken(client: Peeked) -> Kind | None:
    """Say what the client speaks; None if it leaves before that is clear."""
    while (found := kind(await client.peek())) is None:
        if not await client.peek():
            return None
        with anyio.fail_after(HELLO):
            if not await client.peek_more():
                return "other"
    return found


async def could_be_http(client: Peeked) -> bool:
    """Whether somebody may take what the client says for an HTTP request."""
    with anyio.fail_after(HELLO):
        while (found := is_like_http(await client.peek())) is None:
            if not await client.peek_more():
                return False
    return found


def is_like_http(data: bytes) -> bool | None:
    """Whether the first line is one that a server of the web may heed.

    Returns:
        None while there must be more to say so.
    """
    # Servers skip empty lines before a request, and some heed any white space.
    line = data.lstrip(_BLANK)
    match = _METHOD.match(line[: _LONGEST_METHOD + 1])
    method = b"" if match is None else match[0]
    if len(method) > _LONGEST_METHOD:
        return False
    after = line[len(method) :]
    if not after:
        return None
    if after[0] not in _BLANK:
        return False
    bare = method in _BARE
    at = after.find(b"\n") if bare else _ended(after)
    rest = after if at < 0 else after[:at]
    if _VERSION.search(rest) or len(rest) > _LONGEST_LINE:
        return True
    if at < 0:
        return None
    return bare and bool(rest.strip(_BLANK))


def _ended(line: bytes) -> int:
    end = _END.search(line)
    return end.start() if end else -1


def server_is_of_the_web(data: bytes) -> bool:
    """Whether a server that speaks first begins with an answer of HTTP's."""
    return data[:5] == b"HTTP/" or _SETTINGS.match(data) is not None


class Watched(Connection):
    """A client of which the first line is looked at while it is carried.

    What comes first may be nothing that has a line, so nobody waits for its end;
    but once it turns out to be a request, its end is not carried any more.

    Receiving raises PolicyDeniedError then.
    """

    def __init__(self, client: Connection) -> None:
        super().__init__()
        self._client = client
        self._line = b""
        self._left = _LONGEST_WATCHED

    @override
    async def receive(self) -> bytes:
        data = await self._client.receive()
        if self._left > 0 and data:
            self._look(data)
        return data

    def _look(self, data: bytes) -> None:
        known = len(self._line)
        line = self._line + data if known else data.lstrip(_BLANK)
        first, mark, _ = line.partition(b"\n")
        if any(match.end() > known for match in _VERSION.finditer(first)):
            # SAFETY: a server could go by a Host header that nobody has seen.
            raise PolicyDeniedError(
                "it looked like no HTTP, and then like HTTP", rule="protocol"
            )
        self._left = 0 if mark else self._left - len(data)
        self._line = line[-_KEPT:]

    @override
    async def send(self, data: bytes) -> None:
        await self._client.send(data)

    @override
    async def send_eof(self) -> None:
        await self._client.send_eof()

    @override
    async def abort(self) -> None:
        await self._client.abort()

    @override
    async def aclose(self) -> None:
        await self._client.aclose()


#: Bytes of a line that are looked at, and those of one piece that are kept for the
#: next: what is looked for has no more.
_LONGEST_WATCHED: Final = 1 << 16
_KEPT: Final = 5


async def hello(client: Peeked) -> ClientHello:
    """Return the ClientHello that the client begins with; it stays.

    Raises:
        ParseError: It is malformed, or ends early.
        TimeoutError: It does not arrive.
    """
    if client.has_more and (found := client_hello.parse(await client.peek())):
        return found
    async with asyncio.timeout(HELLO):
        while (found := client_hello.parse(await client.peek())) is None:
            if not await client.peek_more():
                raise ParseError("the ClientHello ends early")
    return found
