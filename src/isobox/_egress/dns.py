"""DNS queries that are answered here and never forwarded (RFC 1035, RFC 6891)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, TypeAlias

from isobox._egress.parsing import ParseError, Reader

if TYPE_CHECKING:
    from collections.abc import Iterable

Address: TypeAlias = IPv4Address | IPv6Address

A, AAAA = 1, 28
INTERNET = 1
_TYPES = {4: A, 6: AAAA}

#: What DNS over UDP carries without an agreement (RFC 1035, 4.2.1).
LARGEST = 512

_OPT = 41
#: What fits into a packet everywhere (dnsflagday.net/2020).
_PAYLOAD = 1232

_HEADER = struct.Struct("!6H")
_RESPONSE, _TRUNCATED, _DESIRED, _AVAILABLE = 0x8000, 0x0200, 0x0100, 0x0080
_OPCODE = 0x7800

_LONGEST_LABEL = 63
_LONGEST_NAME = 255
#: Graphic ASCII but the dot, so that a name as text has one meaning.
_LABEL = bytes(set(range(0x21, 0x7F)) - {ord(".")})
#: A pointer to the name that follows the header.
_SAME_NAME = b"\xc0\x0c"


class _Code(IntEnum):
    DONE = 0
    MALFORMED = 1
    FAILED = 2
    NO_SUCH_NAME = 3
    NOT_IMPLEMENTED = 4
    REFUSED = 5


@dataclass(frozen=True, slots=True)
class Question:
    """What a query asks.

    Attributes:
        id: Tells the client which query an answer is for.
        name: Its labels with dots between them as they were sent, in whatever case;
            no dot at the end; "." for the root.
        type: The type of the records (`A`, `AAAA`, ...).
        class_: Nearly always `INTERNET`.
        recursion_desired: Whether the client wants the answer, not a referral.
        edns: Whether the client speaks EDNS.
        wire: Name, type and class as they were sent.
    """

    id: int
    name: str
    type: int
    class_: int
    recursion_desired: bool
    edns: bool
    wire: bytes


def parse(data: bytes) -> Question:
    """Return the question of a query.

    Raises:
        ParseError: This is no query with exactly one question. Its `reply` is what
            to answer; it is empty where an answer would do harm.
    """
    try:
        return _question(data)
    except ParseError as error:
        error.reply = error.reply or formerr(data)
        raise


def _question(data: bytes) -> Question:
    if len(data) > LARGEST:
        raise ParseError(f"the DNS query has {len(data)} bytes; {LARGEST} at most")
    message = Reader(data, "the DNS query")
    number, flags, *counts = _HEADER.unpack(message.take(_HEADER.size))
    _check_flags(number, flags)
    if counts[:3] != [1, 0, 0] or counts[3] > 1:
        raise ParseError("the DNS message is not a query with one question")
    name = _name(message)
    kind, class_ = message.number(2), message.number(2)
    wire = data[_HEADER.size : len(data) - message.left]
    edns = bool(counts[3])
    version = _edns_version(message) if edns else 0
    message.end()
    question = Question(number, name, kind, class_, bool(flags & _DESIRED), edns, wire)
    if version:
        raise ParseError(
            f"the DNS query is of version {version} of EDNS",
            reply=_message(question, extended=1),
        )
    return question


def _check_flags(number: int, flags: int) -> None:
    if flags & _RESPONSE:
        raise ParseError("the DNS message is an answer, not a query")
    if opcode := flags & _OPCODE:
        raise ParseError(
            f"the DNS operation {opcode >> 11} is not offered",
            reply=_bare(number, flags, _Code.NOT_IMPLEMENTED),
        )
    if flags & _TRUNCATED:
        raise ParseError("the DNS query says that it is cut short")


def _name(message: Reader) -> str:
    labels: list[str] = []
    size = 1
    while length := message.number(1):
        # SAFETY: a pointer too is above this; none is followed, so none can loop.
        if length > _LONGEST_LABEL:
            raise ParseError("the DNS question holds a pointer, or no name")
        size += 1 + length
        if size > _LONGEST_NAME:
            raise ParseError(f"the DNS name is over {_LONGEST_NAME} bytes long")
        label = message.take(length)
        # SAFETY: a dot or a NUL in a label would pass for another name.
        if label.translate(None, _LABEL):
            raise ParseError(f"the DNS label {label!r} holds a byte that none has")
        labels.append(label.decode("ascii"))
    return ".".join(labels) or "."


def _edns_version(message: Reader) -> int:
    """Read the one record that may follow the question (RFC 6891, 6.1.2)."""
    if message.number(1) or message.number(2) != _OPT:
        raise ParseError("a record other than OPT follows the DNS question")
    message.take(3)
    version = message.number(1)
    message.take(2)
    options = Reader(message.block(2), "the OPT record")
    while options.left:
        options.take(2)
        options.block(2)
    return version


def answer(question: Question, addresses: Iterable[Address], ttl: int) -> bytes:
    """Return an answer with those of the addresses that are of the asked type.

    Args:
        question: What was asked.
        addresses: At most eight, so that any answer fits.
        ttl: For how many seconds the client may keep them.
    """
    records = [
        _SAME_NAME
        + struct.pack("!HHIH", question.type, INTERNET, ttl, len(address.packed))
        + address.packed
        for address in addresses
        if question.type == _TYPES[address.version]
    ]
    return _message(question, records=records)


def empty(question: Question) -> bytes:
    """Answer that the name exists, without records of the asked type."""
    return _message(question)


def nxdomain(question: Question) -> bytes:
    """Answer that there is no such name."""
    return _message(question, _Code.NO_SUCH_NAME)


def refused(question: Question) -> bytes:
    """Answer that the question is not answered to this client."""
    return _message(question, _Code.REFUSED)


def servfail(question: Question) -> bytes:
    """Answer that the answer could not be had."""
    return _message(question, _Code.FAILED)


def notimp(question: Question) -> bytes:
    """Answer that such questions are not answered."""
    return _message(question, _Code.NOT_IMPLEMENTED)


def formerr(data: bytes) -> bytes:
    """Answer that a message is malformed; empty where an answer would do harm."""
    if len(data) < _HEADER.size:
        return b""
    number, flags, *_ = _HEADER.unpack_from(data)
    # SAFETY: answering an answer, two servers would talk for ever.
    return b"" if flags & _RESPONSE else _bare(number, flags, _Code.MALFORMED)


def _bare(number: int, flags: int, code: _Code) -> bytes:
    """Return an answer that does not repeat the question."""
    kept = flags & (_OPCODE | _DESIRED)
    return _HEADER.pack(number, _RESPONSE | _AVAILABLE | kept | code, 0, 0, 0, 0)


def _message(
    question: Question,
    code: _Code = _Code.DONE,
    *,
    records: list[bytes] | None = None,
    extended: int = 0,
) -> bytes:
    records = records or []
    # Without "recursion available" glibc and Go take an empty answer for a referral.
    flags = _RESPONSE | _AVAILABLE | code
    if question.recursion_desired:
        flags |= _DESIRED
    header = _HEADER.pack(question.id, flags, 1, len(records), 0, question.edns)
    opt = struct.pack("!BHHBBHH", 0, _OPT, _PAYLOAD, extended, 0, 0, 0)
    return b"".join((header, question.wire, *records, opt if question.edns else b""))
