"""Headers of requests and answers, on their way through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from isobox._egress.place import BadRequestError
from isobox._egress.redact import SHORTEST

if TYPE_CHECKING:
    from collections.abc import Iterable

    from isobox._egress.redact import Redactor

Headers = list[tuple[bytes, bytes]]

#: Bytes of a request's or an answer's head; what most servers take is 8 to 64 KiB.
LARGEST_HEAD: Final = 1 << 16

#: What is about one connection and not about the message (RFC 9110, 7.6.1).
_HOP: Final[frozenset[bytes]] = frozenset(
    (
        b"connection",
        b"proxy-connection",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-authenticate",
        b"te",
        b"trailer",
        b"upgrade",
    )
)
_VOUCHES: Final = b"authorization"
#: What says where a message ends, and for whom it is.
_KEPT: Final = frozenset((b"content-length", b"transfer-encoding", b"host"))
_FRAMING: Final = frozenset((b"content-length", b"transfer-encoding"))


def one(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Return the one value of a header, its name in lower case.

    Raises:
        BadRequestError: It has several.
    """
    found = [value for key, value in headers if key == name]
    if len(found) > 1:
        raise BadRequestError(f"more than one {name.decode('ascii')} header")
    return found[0] if found else None


def check(method: bytes, target: bytes, headers: Headers) -> None:
    """Return if a request's head is one that everybody reads alike.

    Raises:
        BadRequestError: It is not, or it is too large.
    """
    names = {name.lower() for name, _ in headers}
    # SAFETY: whoever reads the one and whoever reads the other see different
    # requests.
    if names >= _FRAMING:
        raise BadRequestError("both Content-Length and Transfer-Encoding")
    if b"#" in target:
        raise BadRequestError("a fragment in the target")
    if len(method) + len(target) + size(headers) > LARGEST_HEAD:
        raise BadRequestError("the request's head is too large", status=431)


def size(headers: Headers) -> int:
    """Return the bytes that headers have on the wire."""
    return sum(len(name) + len(value) + 4 for name, value in headers)


def forwarded(
    headers: Iterable[tuple[bytes, bytes]], authority: bytes | None = None
) -> Headers:
    """Return the headers that go on, Host first where there is an authority."""
    pairs = [(bytes(name), bytes(value)) for name, value in headers]
    dropped: set[bytes] = set(_HOP)
    for name, value in pairs:
        if name.lower() == b"connection":
            dropped.update(part.strip().lower() for part in value.split(b","))
    # These go on whatever `Connection` says of them.
    dropped -= _KEPT
    if authority is not None:
        dropped.add(b"host")
    kept = [pair for pair in pairs if pair[0].lower() not in dropped]
    return kept if authority is None else [(b"Host", authority), *kept]


def binds_connection(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a server may know by the connection, from now on, who asks.

    NTLM and Negotiate (RFC 4559, 6) vouch for a connection and not for a request.
    """
    told = [value.lower() for name, value in headers if name.lower() == _VOUCHES]
    return any(value.startswith((b"ntlm", b"negotiate")) for value in told)


def sized(headers: Iterable[tuple[bytes, bytes]], length: int) -> Headers:
    """Return headers of a message whose whole body is there."""
    dropped = {*_FRAMING, b"expect"}
    kept = [pair for pair in headers if pair[0].lower() not in dropped]
    return [*kept, (b"Content-Length", str(length).encode("ascii"))]


def unframed(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return headers of a message that has no body."""
    return [pair for pair in headers if pair[0].lower() not in _FRAMING]


def masked(headers: Headers, redactor: Redactor | None) -> Headers:
    """Return headers without the secrets that are known."""
    # One look at all of them: no secret has a line break.
    whole = b"\n".join(part for header in headers for part in header)
    if redactor is None or mask(whole, redactor) == whole:
        return headers
    return [
        (name, value)
        if name.lower() in _FRAMING
        else (mask(name, redactor), mask(value, redactor))
        for name, value in headers
    ]


def mask(text: bytes, redactor: Redactor | None) -> bytes:
    """Return text without the secrets that are known."""
    if redactor is None or len(text) < SHORTEST:
        return text
    return redactor.mask(text)


def asks_for_websocket(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request wants to go on as a WebSocket."""
    return any(
        name == b"upgrade" and value.strip().lower() == b"websocket"
        for name, value in headers
    )
