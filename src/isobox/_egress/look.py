"""What the two sides of a connection say first, before it is carried."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import anyio

from isobox._channel.background import collapsed
from isobox._egress import client_hello
from isobox._egress.parsing import ParseError
from isobox._egress.sniff import Kind, kind

if TYPE_CHECKING:
    from isobox._egress.client_hello import ClientHello
    from isobox._egress.wire import Peeked

#: Seconds until a client has said who it is: a SOCKS request, a whole ClientHello.
HELLO: Final = 30.0

_BLANK: Final = b"\r\n\t\v\f "
#: No method of anybody's is so long.
_LONGEST_METHOD: Final = 64
#: What servers take for a line at most, often 8 KiB.
_LONGEST_LINE: Final = 1 << 13
_METHOD: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]*")
#: What ends a line, or what no line of text has, whoever reads it.
_END: Final = re.compile(rb"[\x00-\x08\n\x0e-\x1f\x7f]")


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
    method = _METHOD.match(line[: _LONGEST_METHOD + 1])
    start = 0 if method is None else method.end()
    if start > _LONGEST_METHOD:
        return False
    after = line[start:]
    if not after:
        return None
    end = _END.search(after)
    rest = after[: end.start()] if end else after
    if after[0] not in _BLANK:
        return False
    if b"http/" in rest.lower() or len(rest) > _LONGEST_LINE:
        return True
    return False if end else None


async def hello(client: Peeked) -> ClientHello:
    """Return the ClientHello that the client begins with; it stays.

    Raises:
        ParseError: It is malformed, or ends early.
        TimeoutError: It does not arrive.
    """
    with anyio.fail_after(HELLO):
        while (found := client_hello.parse(await client.peek())) is None:
            if not await client.peek_more():
                raise ParseError("the ClientHello ends early")
    return found
