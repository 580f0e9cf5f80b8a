"""What one peer may make of HTTP: how many lines, how many turns, which words."""

from __future__ import annotations

import asyncio
import re
from typing import Final

import h11

#: Lines of a head; what most servers take is about 100. Each costs the parser a
#: thousand times what it costs who sends it.
MOST_LINES: Final = 256
#: Answers before the answer, such as 103, to one request.
MOST_INTERIM: Final = 16
#: Bytes that a parser is given at once: what it makes of them takes milliseconds.
PIECE: Final = 1 << 15
#: Bytes of one line of a chunk's size, or of trailers.
_LONGEST_TRAILER: Final = 1 << 12
#: Steps that need no wait after which others have their turn.
_TURN: Final = 64
_END: Final = re.compile(rb"\n\r?\n")

#: What a parser says, and what is said of it: it quotes what came from a peer.
_WORDS: Final = (
    ("illegal request line", "a malformed request line"),
    ("no request line", "a malformed request line"),
    ("Illegal method", "a malformed request line"),
    ("Illegal target", "a malformed request line"),
    ("illegal status line", "a malformed status line"),
    ("no response line", "a malformed status line"),
    ("Response status_code", "a malformed status line"),
    ("illegal header line", "a malformed header"),
    ("continuation line", "a malformed header"),
    ("Illegal header", "a malformed header"),
    ("Missing mandatory Host", "a request without a Host header"),
    ("Found multiple Host", "more than one host header"),
    ("bad Content-Length", "a malformed Content-Length"),
    ("conflicting Content-Length", "conflicting Content-Length headers"),
    ("multiple Transfer-Encoding", "more than one Transfer-Encoding"),
    ("Only Transfer-Encoding", "a Transfer-Encoding other than chunked"),
    ("illegal chunk", "a malformed chunk"),
    ("malformed chunk", "a malformed chunk"),
    ("Receive buffer too long", "a head that is too large"),
    ("peer closed", "the body ends early"),
    ("peer unexpectedly closed", "the head ends early"),
)


def described(error: h11.ProtocolError) -> str:
    """Return what a parser found amiss, in words that are none of the peer's."""
    # SAFETY: what a server sent may hold a secret, and is masked nowhere here.
    said = str(error)
    found = (words for start, words in _WORDS if said.startswith(start))
    return next(found, "a malformed message")


def too_many_lines(data: bytes) -> bool:
    """Whether a head that `data` begins with has too many lines to be parsed."""
    if data.count(b"\n") <= MOST_LINES:
        return False
    end = _END.search(data)
    return data.count(b"\n", 0, end.start() if end else len(data)) > MOST_LINES


def too_long_trailer(parser: h11.Connection) -> bool:
    """Whether a parser waits for the rest of trailers that are too long."""
    in_body = parser.their_state is h11.SEND_BODY
    return in_body and len(parser.trailing_data[0]) > _LONGEST_TRAILER


class Turns:
    """Lets others have their turn among many steps that need no wait."""

    def __init__(self) -> None:
        self._steps = 0

    async def step(self) -> None:
        """Take a step, and wait for the others now and then."""
        self._steps += 1
        if self._steps % _TURN == 0:
            await asyncio.sleep(0)
