"""ClientHellos built by hand, right and wrong ones."""

from __future__ import annotations

import ssl

NAME = b"www.example.org"
#: The random of a ServerHello that asks for another hello (RFC 8446, 4.1.3).
AGAIN = bytes.fromhex(
    "CF21AD74E59A6111BE1D8C021E65B891C2A211167ABB8C5E079E09E2C8A8339C"
)


def block(data: bytes, size: int) -> bytes:
    return len(data).to_bytes(size) + data


def extension(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2) + block(data, 2)


def names(*entries: bytes, kind: int = 0) -> bytes:
    return extension(
        0, block(b"".join(bytes((kind,)) + block(name, 2) for name in entries), 2)
    )


def alpn(*protocols: bytes) -> bytes:
    return extension(16, block(b"".join(block(name, 1) for name in protocols), 2))


def ech(payload: bytes = bytes(144), kind: int = 0) -> bytes:
    start = bytes((kind, 0, 1, 0, 1, 7))
    return extension(0xFE0D, start + block(bytes(32), 2) + block(payload, 2))


def message(
    *extensions: bytes,
    version: bytes = b"\3\3",
    session: bytes = bytes(32),
    suites: bytes = b"\x13\x01",
    compression: bytes = b"\0",
    tail: bytes = b"",
) -> bytes:
    body = version + bytes(32) + block(session, 1) + block(suites, 2)
    body += block(compression, 1)
    if extensions:
        body += block(b"".join(extensions), 2)
    return b"\1" + block(body + tail, 3)


def record(data: bytes) -> bytes:
    return b"\x16\3\1" + block(data, 2)


def answer(random: bytes) -> bytes:
    """Return a ServerHello."""
    return record(b"\2" + block(b"\3\3" + random + block(bytes(32), 1) + bytes(5), 3))


def records(data: bytes, sizes: list[int]) -> bytes:
    """Spread a message over records of the given sizes, the rest in the last."""
    cut = b""
    for size in sizes:
        if size < len(data):
            cut, data = cut + record(data[:size]), data[size:]
    return cut + record(data)


def hello(*extensions: bytes, **fields: bytes) -> bytes:
    return record(message(*extensions, **fields))


def openssl(name: str | None = "www.example.org", *protocols: str) -> bytes:
    """What OpenSSL sends first."""
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    if protocols:
        context.set_alpn_protocols(list(protocols))
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return sent.read()
    raise AssertionError
