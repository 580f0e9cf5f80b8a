"""A DNS server that remembers every question and may change its mind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

A, AAAA = 1, 28
TYPES = {A: "A", AAAA: "AAAA"}
NO_SUCH_NAME = 3


class Names:
    """Answers for the names that it was given addresses of."""

    def __init__(self, addresses: dict[str, tuple[str, ...]]) -> None:
        self._addresses = addresses
        self._scripts: dict[str, Iterator[tuple[str, ...]]] = {}
        self.questions: list[tuple[str, str]] = []

    def forget(self) -> None:
        """Know nothing of questions and scripts so far."""
        self._scripts.clear()
        self.questions.clear()

    def script(self, name: str, answers: Iterable[tuple[str, ...]]) -> None:
        """Answer each question for IPv4 addresses with the next; then the last."""
        first = list(answers)
        self._scripts[name] = itertools.chain(first, itertools.repeat(first[-1]))

    def asked(self, name: str) -> int:
        """Return how often a name was asked for its IPv4 addresses."""
        return self.questions.count((name, "A"))

    def answer(self, query: bytes) -> bytes:
        """Answer a message."""
        name, end = _name(query)
        kind, _ = struct.unpack_from("!HH", query, end)
        self.questions.append((name, TYPES.get(kind, str(kind))))
        question = query[12 : end + 4]
        addresses = self._of(name, kind)
        if addresses is None:
            return _header(query, NO_SUCH_NAME, 0) + question
        records = [_record(kind, address) for address in addresses]
        return _header(query, 0, len(records)) + question + b"".join(records)

    def _of(self, name: str, kind: int) -> list[str] | None:
        if kind == A and name in self._scripts:
            known = next(self._scripts[name])
        elif name in self._addresses or name in self._scripts:
            known = self._addresses.get(name, ())
        else:
            return None
        version = {A: 4, AAAA: 6}.get(kind)
        return [each for each in known if ip_address(each).version == version]


class Datagrams(asyncio.DatagramProtocol):
    """Names over UDP."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def connection_made(self, transport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address) -> None:
        self._transport.sendto(self._names.answer(data), address)


async def over_tcp(
    names: Names, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Serve a connection whose messages have their length before them."""
    with contextlib.suppress(OSError, EOFError), contextlib.closing(writer):
        while True:
            (length,) = struct.unpack("!H", await reader.readexactly(2))
            answer = names.answer(await reader.readexactly(length))
            writer.write(struct.pack("!H", len(answer)) + answer)


def question(name: str, kind: int = A, number: int = 1) -> bytes:
    """Return a message that asks for a name."""
    labels = b"".join(
        bytes([len(label)]) + label for label in name.encode().split(b".") if label
    )
    header = struct.pack("!6H", number, 0x0100, 1, 0, 0, 0)
    return header + labels + b"\0" + struct.pack("!HH", kind, 1)


def _name(query: bytes) -> tuple[str, int]:
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("latin-1"))
        at += 1 + length
    return ".".join(labels).lower(), at + 1


def _header(query: bytes, code: int, answers: int) -> bytes:
    flags = 0x8180 | code
    return query[:2] + struct.pack("!5H", flags, 1, answers, 0, 0)


def _record(kind: int, address: str) -> bytes:
    data = ip_address(address).packed
    # The name is the question's; it may be kept for no time at all.
    return b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(data)) + data
