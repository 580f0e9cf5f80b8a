"""The head of a request that leaves, and another with one thing changed."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import quote, unquote_to_bytes

Headers = tuple[tuple[bytes, bytes], ...]

_BASIC: Final = re.compile(rb"(?i:basic) +([A-Za-z0-9+/]+=*)")


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request that leaves over verified TLS.

    Attributes:
        host: Where it goes, in the one form.
        port: The port there.
        method: Such as `GET`.
        target: Path and query.
        headers: Names and values in their order.
        body: What it carries, where `Vault.needs_body` says so; else empty.
    """

    host: str
    port: int
    method: bytes
    target: bytes
    headers: Headers
    body: bytes = field(default=b"", repr=False)

    def whole(self) -> bytes:
        """Return the head's pieces, a line each."""
        pieces = (piece for header in self.headers for piece in header)
        return b"\n".join((self.method, self.target, *pieces))

    def with_header(self, name: bytes, value: bytes) -> Request:
        """Return it with one header of that name, where the first one stood."""
        return replace(self, headers=with_header(self.headers, name, value))

    def with_parameter(self, name: str, value: str) -> Request:
        """Return it with one parameter of that name, the last of the query."""
        path, _, query = self.target.partition(b"?")
        others = [
            pair for pair in query.split(b"&") if pair and _key(pair) != name.encode()
        ]
        pair = f"{quote(name, safe='')}={quote(value, safe='')}"
        return replace(self, target=path + b"?" + b"&".join((*others, pair.encode())))


def with_header(headers: Headers, name: bytes, value: bytes) -> Headers:
    """Return headers with one of that name, where the first one stood."""
    key = name.lower()
    at = next((i for i, (n, _) in enumerate(headers) if n.lower() == key), len(headers))
    others = [header for header in headers if header[0].lower() != key]
    return (*others[:at], (name, value), *others[at:])


def credentials(value: bytes) -> bytes | None:
    """Return the user name and password that a header's value has, if it is Basic."""
    match = _BASIC.fullmatch(value)
    if match is None:
        return None
    try:
        return base64.b64decode(match[1], validate=True)
    except binascii.Error:
        return None


def basic(pair: bytes) -> bytes:
    """Return the value of a header with a user name and a password."""
    return b"Basic " + base64.b64encode(pair)


def _key(pair: bytes) -> bytes:
    return unquote_to_bytes(pair.partition(b"=")[0].replace(b"+", b" "))
