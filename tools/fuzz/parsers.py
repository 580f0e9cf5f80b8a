"""Fuzz one parser of the network filter: `parsers.py client_hello --seconds 600`.

Guided by coverage when atheris is installed, else random changes to the seeds.
What is held for every input: nothing but `ParseError` comes out, it takes less than
50 ms and little memory, and pieces come to the same as the whole.
"""
# ruff: noqa: INP001, T201, S311

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import importlib
import importlib.util
import itertools
import multiprocessing
import random
import resource
import ssl
import sys
import tempfile
import time
import zlib
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

GUIDED = importlib.util.find_spec("atheris") is not None
if GUIDED:
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["isobox._egress"]):
        from isobox._egress import client_hello, dns, sniff, socks
        from isobox._egress.parsing import ParseError
else:
    from isobox._egress import client_hello, dns, sniff, socks
    from isobox._egress.parsing import ParseError

SLOWEST = 0.05
MEMORY = 1 << 28


@dataclass(frozen=True)
class Target:
    """A parser: what it must hold for some bytes, and bytes to start from."""

    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    largest: int


class FoundError(Exception):
    """A parser does not hold what it promises."""


def hold(condition: object, words: str) -> None:
    """Let `words` be a finding unless the condition holds."""
    if not condition:
        raise FoundError(words)


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Let it be a finding that the block takes long, by the processor's clock."""
    start = time.thread_time()
    yield
    took = time.thread_time() - start
    hold(took < SLOWEST, f"one input took {took * 1000:.0f} ms")


def ends(data: bytes) -> list[int]:
    """Return where to cut: everywhere if that is cheap, else in a few places."""
    if len(data) <= 64:
        return list(range(len(data) + 1))
    chance = random.Random(zlib.crc32(data))
    near = [chance.randrange(min(len(data), 700)) for _ in range(6)]
    far = [chance.randrange(len(data)) for _ in range(6)]
    return sorted({0, *near, *far, len(data)})


def check_words(error: ParseError) -> None:
    """A message must be fit for an audit record."""
    words = str(error)
    hold(words.isascii() and words.isprintable(), f"unprintable message {words!r}")
    hold(0 < len(words) < 2000, f"a message of {len(words)} characters")


def block(data: bytes, size: int) -> bytes:
    """Return the data after its length, which is cut to its field."""
    return (len(data) % (1 << 8 * size)).to_bytes(size) + data


HELLO_START = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0"


def extensions(data: bytes) -> bytes:
    """Return extensions whose lengths are right, whatever the data."""
    made = b""
    while data:
        kind, end = data[:1], 2 + sum(data[1:2])
        body, data = data[2:end], data[end:]
        match kind:
            case b"n":
                made += b"\0\0" + block(block(b"\0" + block(body, 2), 2), 2)
            case b"l":
                made += b"\0\0" + block(block(body, 2), 2)
            case b"a":
                made += b"\0\x10" + block(block(body, 2), 2)
            case b"c":
                made += b"\xfe\x0d" + block(body, 2)
            case _:
                made += b"\0" + kind + block(body, 2)
    return made


def shaped(data: bytes) -> bytes:
    """Let the first byte choose how deep in a hello the other bytes are."""
    depth, body = data[:1], data[1:]
    if depth == b"x":
        body = extensions(body)
    if depth in (b"x", b"e"):
        body = HELLO_START + block(body, 2)
    if depth in (b"x", b"e", b"b"):
        body = b"\1" + block(body, 3)
    if depth in (b"x", b"e", b"b", b"m"):
        pieces = [body[at : at + (1 << 14)] for at in range(0, len(body), 1 << 14)]
        body = b"".join(b"\x16\3\1" + block(piece, 2) for piece in pieces)
    return body


def hello_outcome(data: bytes) -> object:
    """Return what is said of the bytes; None while it is undecided."""
    try:
        return client_hello.parse(data)
    except ParseError as error:
        check_words(error)
        return str(error)


def check_hello(data: bytes) -> None:
    """What is said of a hello stays, however it arrives."""
    data = shaped(data)
    with quickly():
        whole = hello_outcome(data)
    said = {hello_outcome(data[:end]) for end in ends(data)} - {None}
    hold(said <= {whole}, f"pieces: {said}, whole: {whole}")
    hold(whole or len(data) < client_hello.LARGEST + 400, "undecided for ever")


def hello_seeds() -> list[bytes]:
    """A hello of OpenSSL, whole and in records, and one with every extension."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="a.example.org")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    real = sent.read()
    cut = b"\x16\3\1" + block(real[5:50], 2) + b"\x16\3\1" + block(real[50:], 2)
    name = b"\0\0" + block(block(b"\0" + block(b"a.example.org", 2), 2), 2)
    protocols = b"\0\x10" + block(block(b"\2h2\x08http/1.1", 2), 2)
    ech = b"\xfe\x0d" + block(b"\0\0\1\0\1\7" + b"\0\4key!" + b"\0\4data", 2)
    extensions = name + protocols + ech + b"\xff\xce\0\0"
    return [
        b"r" + real,
        b"r" + cut,
        b"m" + real[5:],
        b"b" + real[9:],
        b"e" + extensions,
        b"e" + name + name,
        b"x" + b"n\x06a.test" + b"a\x03\2h2" + b"c\x0c\0\0\1\0\1\7\0\1k\0\1d" + b"+\0",
        b"x" + b"l\x09\0\0\6a.test",
    ]


def socks_outcome(data: bytes, cuts: list[int]) -> object:
    """Return all that a conversation comes to when cut there."""
    client, said, at = socks.Socks(), b"", 0
    for end in [*cuts, len(data)]:
        try:
            said += client.receive(data[at:end])
        except ParseError as error:
            check_words(error)
            return str(error), said + error.reply
        at = end
        if client.request:
            break
    return said, client.request, client.rest + data[at:] if client.request else b""


def check_socks(data: bytes) -> None:
    """A conversation comes to the same, however it arrives."""
    with quickly():
        whole = socks_outcome(data, [])
    pieces = socks_outcome(data, ends(data))
    hold(pieces == whole, f"pieces: {pieces}, whole: {whole}")


def socks_seeds() -> list[bytes]:
    """Every kind of greeting and of address."""
    request = b"\5\1\0\3\x0da.example.org\1\xbb"
    return [
        b"\5\1\0" + request + b"rest",
        b"\5\2\1\2" + b"\1\4user\4word" + request,
        b"\5\1\0\5\1\0\1\xc0\0\2\1\0\x50",
        b"\5\1\0\5\1\0\4" + ip_address("2001:db8::1").packed + b"\0\x50",
        b"\5\1\0\5\2\0\1\0\0\0\0\0\0",
        b"\4\1\0\x50\xc0\0\2\1user\0",
    ]


def check_dns(data: bytes) -> None:
    """Every answer is one, is for the query, and fits."""
    with quickly():
        answers = dns_answers(data)
    for answer in answers:
        hold(answer[:2] == data[:2], "an answer to another query")
        hold(len(answer) <= dns.LARGEST, f"an answer of {len(answer)} bytes")
        hold(dns_answers(answer) == [], "an answer that is answered")


def dns_answers(data: bytes) -> list[bytes]:
    """Return what may be answered."""
    try:
        asked = dns.parse(data)
    except ParseError as error:
        check_words(error)
        return [error.reply] if error.reply else []
    hold(asked.wire in data, "a question that was not asked")
    hold(len(asked.name) <= 253, "a name that is too long")
    builders = (dns.empty, dns.nxdomain, dns.refused, dns.servfail, dns.notimp)
    addresses = [ip_address("198.18.0.7"), ip_address("2001:db8::1")] * 4
    return [dns.answer(asked, addresses, 60), *(build(asked) for build in builders)]


def dns_seeds() -> list[bytes]:
    """Queries with and without EDNS, and one with a pointer."""
    start, name = b"\xbe\xef\1\0\0\1\0\0\0\0\0", b"\1a\7example\3org\0"
    opt = b"\0\0\x29\4\xd0\0\0\0\0\0\x0c\0\x0a\0\x08cookie!!"
    return [
        start + b"\0" + name + b"\0\1\0\1",
        start + b"\1" + name + b"\0\x1c\0\1" + opt,
        start + b"\0\1a\xc0\x0c\0\1\0\1",
    ]


def check_sniff(data: bytes) -> None:
    """It is decided once, and soon."""
    with quickly():
        whole = sniff.kind(data)
    said = [sniff.kind(data[:end]) for end in range(min(len(data), 30) + 1)]
    hold(set(said) - {None} <= {whole}, f"pieces: {said}, whole: {whole}")
    hold(whole or len(data) < sniff.ENOUGH, "undecided for ever")


def sniff_seeds() -> list[bytes]:
    """One of each kind."""
    return [
        b"\x16\3\1\2\0\1\0",
        b"GET / HTTP/1.1\r\nHost: a.example.org\r\n\r\n",
        b"UPDATEREDIRECTREF / HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4",
        b"SSH-2.0-OpenSSH_9.6 Ubuntu\r\n",
    ]


@functools.cache
def both_ends() -> ModuleType:
    """Return the tests' own client and server."""
    sys.path.append(str(Path(__file__).parents[2]))
    return importlib.import_module("tests.unit.egress.talk")


def http_outcome(pieces: list[bytes]) -> object:
    """Return what a client was told, and what the server was."""
    met = asyncio.run(both_ends().talk(*pieces))
    hold(met.broke is None or isinstance(met.broke, OSError), f"raised {met.broke!r}")
    for told in met.requests:
        hosts = [value for name, value in told.headers if name == b"host"]
        hold(hosts == [b"a.test"], f"asked for {hosts}")
        names = {name for name, _ in told.headers}
        hold(
            not names >= {b"content-length", b"transfer-encoding"},
            "a request of two lengths",
        )
    told = [
        (each.method, each.target, each.headers, each.body) for each in met.requests
    ]
    # What a refusal quotes depends on how much of it was there.
    said = met.said.partition(b"\r\nContent-Type: text/plain")[0]
    broken = "abort" in met.client.ends
    return told, b"" if broken else said, [kind for kind, _ in met.refused]


def check_http(data: bytes) -> None:
    """Requests come to the same, however they arrive, and all are for the host."""
    both_ends()
    with quickly():
        whole = http_outcome([data])
    cuts = [0, *ends(data), len(data)]
    if len(data) <= 64:
        cuts = [0, *cuts[2:-1:7], len(data)]
    pieces = http_outcome([data[a:b] for a, b in itertools.pairwise(cuts)])
    hold(pieces == whole, f"pieces: {pieces}, whole: {whole}")


def http_seeds() -> list[bytes]:
    """Every framing, wrong ones, and what comes after."""
    get = b"GET /x?y HTTP/1.1\r\nHost: a.test\r\n\r\n"
    post = b"POST / HTTP/1.1\r\nHost: a.test\r\n"
    chunks = b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
    return [
        get + get,
        post + b"Content-Length: 5\r\n\r\nhello" + get,
        post + chunks + get,
        post + b"Content-Length: 5\r\n" + chunks,
        get[:-2] + b"Connection: Upgrade, x\r\nUpgrade: websocket\r\n\r\n\x81\0",
        b"GET http://a.test:80/ HTTP/1.0\r\nHost: A.test.\r\nX: a\r\n  b\r\n\r\n",
        post + b"Expect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
    ]


TARGETS = {
    "client_hello": Target(check_hello, hello_seeds, 70_000),
    "socks": Target(check_socks, socks_seeds, 2000),
    "dns": Target(check_dns, dns_seeds, 1000),
    "sniff": Target(check_sniff, sniff_seeds, 100),
    "http": Target(check_http, http_seeds, 2000),
}


def changed(data: bytes, other: bytes, chance: random.Random, largest: int) -> bytes:
    """Return the data with a few random changes."""
    new = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        at = chance.randint(0, len(new))
        match chance.randrange(5):
            case 0:
                new[at : at + 1] = chance.randbytes(1)
            case 1:
                new[at:at] = chance.randbytes(chance.randint(1, 8))
            case 2:
                del new[at : at + chance.randint(1, 8)]
            case 3:
                new[at : at + 2] = chance.choice((b"\0\0", b"\xff\xff", b"\0\1"))
            case _:
                new[at:] = other[chance.randint(0, len(other)) :]
    return bytes(new[:largest])


def fuzz_blindly(target: Target, seconds: float) -> int:
    """Fuzz with random changes; return how many inputs were tried."""
    chance = random.Random()
    seeds = target.seeds()
    pool = list(seeds)
    until, tried = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        old, other = chance.choice(pool), chance.choice(seeds)
        data = changed(old, other, chance, target.largest)
        try:
            target.check(data)
        except BaseException:
            print(f"found by {data.hex()}", file=sys.stderr)
            raise
        tried += 1
        # Some are changed on, so that changes add up.
        if not tried % 50:
            pool = [*pool[-500:], *seeds, data]
    return tried


def fuzz_guided(target: Target, seconds: int) -> None:
    """Fuzz with coverage as the guide; what was done is printed."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as corpus:
        for number, seed in enumerate(target.seeds()):
            Path(corpus, str(number)).write_bytes(seed)
        options = [
            f"-max_total_time={seconds}",
            f"-max_len={target.largest}",
            f"-rss_limit_mb={MEMORY >> 20}",
            "-timeout=5",
            "-print_final_stats=1",
        ]
        # The fuzzer ends its process without a word to Python.
        child = multiprocessing.get_context("fork").Process(
            target=start_atheris, args=([sys.argv[0], corpus, *options], target)
        )
        child.start()
        child.join()
    sys.exit(child.exitcode)


def start_atheris(arguments: list[str], target: Target) -> None:
    """Fuzz until the time is over, or something is found; never return."""
    atheris.Setup(arguments, target.check)
    atheris.Fuzz()


def main() -> None:
    """Fuzz the target that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    chosen = parser.parse_args()
    target = TARGETS[chosen.target]
    for seed in target.seeds():
        target.check(seed)
    if GUIDED:
        fuzz_guided(target, chosen.seconds)
        return
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    tried = fuzz_blindly(target, chosen.seconds)
    print(f"{chosen.target}: {tried} inputs, no finding")


if __name__ == "__main__":
    main()
