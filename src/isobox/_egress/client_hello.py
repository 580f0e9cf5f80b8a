"""The first message of a TLS client (RFC 8446, 4.1.2), as it stands on the wire."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from isobox._egress.parsing import ParseError, Reader, host

#: What a Go server takes, 30 times what a browser with post-quantum keys sends.
LARGEST = 1 << 16

#: A record of a client that keeps its records small (RFC 6066, 4) has 512 bytes, so
#: that these hold 32 KiB; a hello in pieces of one byte is an attack.
MOST_RECORDS = 64

_HEADER = 5
_LARGEST_RECORD = 1 << 14
_HANDSHAKE = 22
_CLIENT_HELLO = 1

#: Extensions, or protocols in one: the registries have fewer than 100 of each.
_MOST = 256

#: The number of an extension, and the bytes that it has.
_EXTENSION = struct.Struct(">HH")
_SERVER_NAME = 0
_ALPN = 16
_ENCRYPTED_CLIENT_HELLO = 0xFE0D
#: What came before it and was never a standard; it hides the name as well.
_ENCRYPTED_SERVER_NAME = 0xFFCE


@dataclass(frozen=True, slots=True)
class ClientHello:
    """What a client says about where it wants to go.

    Attributes:
        server_name: The name of the server as it was sent, not normalised.
        protocols: The ids of ALPN, a character for each byte.
        encrypted: Whether there is an encrypted hello, whose name may be another
            one. Browsers send a meaningless one (GREASE) that looks the same.
    """

    server_name: str | None = None
    protocols: tuple[str, ...] = ()
    encrypted: bool = False


def parse(data: bytes) -> ClientHello | None:
    """Return the hello at the start of `data`, or None until it is there whole.

    What follows the hello is not looked at. What was returned or raised for some
    bytes stays so when more of them arrive.

    Raises:
        ParseError: This is no ClientHello, or a malformed or too large one.
    """
    found = _message(data)
    if found is None:
        return None
    body = Reader(found[0], "the ClientHello")
    _skip_to_extensions(body)
    # A hello of TLS 1.2 or older may end here.
    extensions = _extensions(body.block(2)) if body.left else {}
    body.end()
    return ClientHello(
        server_name=_server_name(extensions.get(_SERVER_NAME)),
        protocols=_protocols(extensions.get(_ALPN)),
        encrypted=_encrypted(extensions.get(_ENCRYPTED_CLIENT_HELLO))
        or _ENCRYPTED_SERVER_NAME in extensions,
    )


def measured(data: bytes) -> int | None:
    """Return how many bytes of `data` are the hello at its start, with its records.

    None is for one that is not there whole.

    Raises:
        ParseError: This is no ClientHello, or a too large one.
    """
    found = _message(data)
    return None if found is None else found[1]


def _message(data: bytes) -> tuple[bytes, int] | None:
    """Return the handshake message that starts in the first record, and its end."""
    pieces: list[bytes] = []
    beginning = b""
    at = promised = 0
    # SAFETY: the caller may ask again for each byte, so a call costs at most this.
    for _ in range(MOST_RECORDS):
        length = _record_length(data[at : at + _HEADER])
        if length is None:
            return None
        start, at = at + _HEADER, at + _HEADER + length
        pieces.append(data[start:at])
        promised += length
        beginning += pieces[-1][: 4 - len(beginning)]
        size = _message_size(beginning)
        if size is not None and promised >= size:
            whole = _whole(b"".join(pieces), promised, size)
            return None if whole is None else (whole, at)
        if at > len(data):
            return None
    raise ParseError(f"the ClientHello is spread over more than {MOST_RECORDS} records")


def _record_length(header: bytes) -> int | None:
    # SAFETY: what is wrong is refused at the byte that shows it, not later.
    if header and header[0] != _HANDSHAKE:
        raise ParseError("these bytes are not a TLS handshake record")
    if len(header) > 1 and header[1] != 3:
        raise ParseError("these bytes are not a record of TLS 1")
    if len(header) < _HEADER:
        return None
    length = int.from_bytes(header[3:])
    if not 0 < length <= _LARGEST_RECORD:
        raise ParseError(f"a TLS handshake record claims to have {length} bytes")
    return length


def _message_size(beginning: bytes) -> int | None:
    """Return the size of a message with its header, which is of four bytes."""
    if beginning and beginning[0] != _CLIENT_HELLO:
        raise ParseError(f"the TLS handshake starts with message {beginning[0]}, not 1")
    if len(beginning) < 4:
        return None
    size = int.from_bytes(beginning[1:4])
    if size > LARGEST:
        raise ParseError(f"the ClientHello has {size} bytes; {LARGEST} at most")
    return 4 + size


def _whole(gathered: bytes, promised: int, size: int) -> bytes | None:
    # SAFETY: the record's header tells, so that this does not depend on how much of
    # it has arrived; a second message here is one that only the server would see.
    if promised > size:
        raise ParseError("something follows the ClientHello in its record")
    return gathered[4:] if len(gathered) == size else None


def _skip_to_extensions(body: Reader) -> None:
    if body.number(2) >> 8 != 3:
        raise ParseError("the ClientHello is of an unknown version of TLS")
    body.take(32)
    if len(body.block(1)) > 32:
        raise ParseError("the session id of the ClientHello is too long")
    suites = body.block(2)
    if not suites or len(suites) % 2:
        raise ParseError("the cipher suites of the ClientHello are malformed")
    if not body.block(1):
        raise ParseError("the ClientHello has no compression method")


def _extensions(block: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at < len(block):
        start = at + _EXTENSION.size
        # There are dozens of them: two looks at each, and no `Reader`.
        kind, size = _EXTENSION.unpack(block[at:start].ljust(4, b"\xff"))
        at = start + size
        if at > len(block):
            raise ParseError("the extensions of the ClientHello is cut short")
        # SAFETY: of two, a server may heed the one that we do not.
        if kind in found:
            raise ParseError(f"the ClientHello has extension {kind} twice")
        found[kind] = block[start:at]
        if len(found) > _MOST:
            raise ParseError(f"the ClientHello has more than {_MOST} extensions")
    return found


def _server_name(extension: bytes | None) -> str | None:
    """Return the one name of the extension (RFC 6066, 3)."""
    if extension is None:
        return None
    outer = Reader(extension, "the server name extension")
    names = Reader(outer.block(2), "the list of server names")
    outer.end()
    if kind := names.number(1):
        raise ParseError(f"the server name is of the unknown type {kind}")
    name = names.block(2)
    # SAFETY: with two names it is anyone's guess which one a server heeds.
    names.end()
    return host(name)


def _protocols(extension: bytes | None) -> tuple[str, ...]:
    """Return the protocols of the extension (RFC 7301, 3.1)."""
    if extension is None:
        return ()
    outer = Reader(extension, "the ALPN extension")
    names = Reader(outer.block(2), "the list of protocols")
    outer.end()
    found: list[str] = []
    while names.left and len(found) <= _MOST:
        found.append(names.block(1).decode("latin-1"))
    if not 0 < len(found) <= _MOST or "" in found:
        raise ParseError(f"the ClientHello does not have 1 to {_MOST} named protocols")
    return tuple(found)


def _encrypted(extension: bytes | None) -> bool:
    """Whether there is the outer half of an encrypted hello (RFC 9849, 5)."""
    if extension is None:
        return False
    outer = Reader(extension, "the encrypted ClientHello")
    if outer.number(1):
        raise ParseError("the inner half of an encrypted ClientHello was sent openly")
    outer.take(5)
    outer.block(2)
    if not outer.block(2):
        raise ParseError("the encrypted ClientHello is empty")
    outer.end()
    return True
