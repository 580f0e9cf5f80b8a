"""Answers of the plain kind, which most are, read and written in one go."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._egress.bounds import MOST_LINES
from isobox._egress.headers import LARGEST_HEAD

if TYPE_CHECKING:
    from isobox._egress.headers import Headers

#: Less than RFC 9112 allows: what does not match is read by a whole parser.
_HEAD: Final = re.compile(
    rb"HTTP/1\.1 ([2-5][0-9]{2}) ([\t -~\x80-\xff]*)\r\n"
    rb"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)+)\r\n"
)
_FIELD: Final = re.compile(rb"([^:]+):([^\r]*)\r\n")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
#: Statuses of answers that have no body, whatever their length says.
_EMPTY: Final = (b"204", b"304")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is framed by its Content-Length, on a connection that is kept.

    Attributes:
        status: Three digits.
        reason: The phrase after it, maybe empty.
        headers: Names and values in their order.
        length: Bytes of the body.
        start: Where the body begins in what was read.
    """

    status: bytes
    reason: bytes
    headers: Headers
    length: int
    start: int


def read(data: bytes) -> Answer | None:
    """Return the answer to anything but HEAD and CONNECT that `data` begins with.

    Returns:
        None where the head is not whole, or not of the plain kind.
    """
    match = _HEAD.match(data)
    if match is None or match[1] in _EMPTY or match.end() > LARGEST_HEAD:
        return None
    if match[3].count(b"\n") > MOST_LINES:
        return None
    fields: Headers = _FIELD.findall(match[3])
    headers = [(name, value.strip(b"\t ")) for name, value in fields]
    length = None
    for name, value in headers:
        key = name.lower()
        if key == b"content-length":
            if length is not None or not _LENGTH.fullmatch(value):
                return None
            length = int(value)
        elif key == b"connection":
            if value.lower() != b"keep-alive":
                return None
        elif key in (b"transfer-encoding", b"upgrade"):
            return None
    if length is None:
        return None
    return Answer(match[1], match[2], headers, length, match.end())


def written(status: bytes, reason: bytes, headers: Headers) -> bytes:
    """Return the head of an answer."""
    lines = [b"HTTP/1.1 %s %s\r\n" % (status, reason)]
    lines += [b"%s: %s\r\n" % header for header in headers]
    return b"".join(lines) + b"\r\n"
