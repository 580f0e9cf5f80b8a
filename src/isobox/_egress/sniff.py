"""What a client speaks, by the first bytes that it sends."""

from __future__ import annotations

from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["tls", "sslv2", "http", "http2", "other"]

#: No more bytes than these are needed.
ENOUGH = 24

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: The banner of SSH would pass for a method up to the space that it may have.
_SSH = b"SSH-"
#: The longest registered method, UPDATEREDIRECTREF, has 17.
_LONGEST_METHOD = 20
_TOKEN = (
    b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)


def kind(data: bytes) -> Kind | None:
    """Return what the bytes start, or None while more of them are needed.

    What was returned for some bytes stays so when more of them arrive, and
    `ENOUGH` of them always suffice.
    """
    start = data[:ENOUGH]
    if not start:
        return None
    if start[0] == 0x16:
        return _tls(start)
    if start[0] & 0x80:
        return _sslv2(start)
    if _PREFACE.startswith(start):
        return "http2" if start == _PREFACE else None
    if start.startswith(_SSH):
        return "other"
    return _http(start)


def _tls(start: bytes) -> Kind | None:
    if len(start) < 2:
        return None
    return "tls" if start[1] == 3 else "other"


def _sslv2(start: bytes) -> Kind | None:
    # A length of two bytes, and the number of a ClientHello.
    if len(start) < 3:
        return None
    return "sslv2" if start[2] == 1 else "other"


def _http(start: bytes) -> Kind | None:
    method, space, _ = start[: _LONGEST_METHOD + 1].partition(b" ")
    if not method or method.translate(None, _TOKEN):
        return "other"
    if space:
        return "http"
    return "other" if len(method) > _LONGEST_METHOD else None
