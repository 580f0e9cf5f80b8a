"""Ten thousand fuzzed frames in each direction: no hang, no crash, no flood."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit._channel.liar import ROOT, Liar, frame, lied_to
from tests.unit._guest.client import SCAN, SEARCH, SPAWN, eventually, running

from isobox._channel import frames, unpack
from isobox._core import ops
from isobox._guest import agent
from isobox.errors import IsoboxError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._channel.sandbox import ChannelSandbox

FRAMES = 10_000
SEED = 20_260_000

#: What a parser holds at most: one frame, and what arrived in one go.
PARSED = agent.PIECE + 1 + agent.HEADER.size + (1 << 18)

NUMBERS = [0, 1, -1, 2, 127, 128, 255, 256, 4096, 2**31, 2**32 - 1, 2**62, -(2**63)]
KINDS = range(1, 14)

# -- to the host --------------------------------------------------------------------

KEYS = [
    "event", "pid", "exit", "signal", "failed", "reason", "duration", "timed_out",
    "background", "stdout", "stderr", "stdout_total", "stderr_total", "entry", "count",
    "truncated", "files", "skipped", "late", "code", "message", "errno", "version",
    "listener", "port", "spooled",
]  # fmt: skip

WORDS = ["", "exit", "started", "\0", "x" * 500, "missing", "storage", "connected"]


def value(rng: random.Random, depth: int = 0) -> Any:
    """Return something that a message may hold."""
    choice = rng.randrange(9 if depth < 3 else 7)
    if choice < 2:
        return rng.choice(NUMBERS)
    if choice == 2:
        return rng.choice([None, True, False, float("nan"), 1e300, -0.5])
    if choice < 5:
        return rng.randbytes(rng.choice([0, 1, 5, 40]))
    if choice < 7:
        return rng.choice(WORDS)
    if choice == 7:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {key: value(rng, depth + 1) for key in rng.sample(KEYS, rng.randrange(5))}


def fields(rng: random.Random) -> bytes:
    return agent.encode({key: value(rng) for key in rng.sample(KEYS, rng.randrange(7))})


def entry(rng: random.Random) -> bytes:
    path = rng.choice(
        [ROOT, f"{ROOT}/a", f"{ROOT}/../x", "/etc", "", f"{ROOT}/\0"]
    ).encode()
    lengths = [rng.choice([0, 32, 5]), len(path), rng.choice([0, 3])]
    if rng.random() < 0.3:
        lengths[rng.randrange(1, 3)] = rng.choice([0, 2**32 - 1, 9000])
    numbers = [rng.randrange(2**32) for _ in range(3)]
    sizes = [rng.choice([0, 5, 2**62, -1]) for _ in range(2)]
    kind = rng.choice([b"f", b"d", b"l", b"z"])
    head = agent.ENTRY.pack(kind, *numbers, *sizes, *lengths)
    return head + bytes(lengths[0]) + path + bytes(min(lengths[2], 10))


def payload(rng: random.Random, kind: int) -> bytes:
    if rng.random() < 0.1:
        return rng.randbytes(rng.randrange(40))
    if kind == agent.DATA:
        bodies = [
            rng.randbytes(20),
            entry(rng),
            entry(rng) * 3,
            bytes(agent.PIECE),
            b"",
        ]
        return bytes((rng.randrange(4),)) + rng.choice(bodies)
    if kind == agent.END:
        return bytes((rng.randrange(4),))
    if kind == agent.CREDIT:
        amount = rng.choice([0, 1, 2**20, 2**32 - 1])
        return bytes((rng.randrange(4),)) + amount.to_bytes(4, "big")
    return fields(rng)


def said(rng: random.Random) -> bytes:
    """Return one frame as a hostile guest might send it."""
    kinds = [
        agent.DATA,
        agent.END,
        agent.CREDIT,
        agent.RESULT,
        agent.ERROR,
        agent.EVENT,
    ]
    kind = rng.choice(kinds if rng.random() < 0.95 else KINDS)
    streams = [*range(1, len(OPS) + 1)] * 4 + [0, 99, agent.ACCEPTED | 1, 2**32 - 1]
    raw = bytearray(frame(kind, rng.choice(streams), payload(rng, kind)))
    if rng.random() < 0.1:
        for _ in range(rng.randrange(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
    if rng.random() < 0.02:
        del raw[rng.randrange(len(raw)) :]
    return bytes(raw)


OPS: list[Any] = [
    ops.Read(path=f"{ROOT}/f"),
    ops.Read(path=f"{ROOT}/f", length=10),
    ops.Write(path=f"{ROOT}/f", body=bytes(600_000)),
    ops.Edit(path=f"{ROOT}/f", replacements=(ops.Replacement(b"a", b"b"),)),
    ops.Scan(path=ROOT, limit=5),
    ops.Scan(path=ROOT, depth=0),
    ops.Search(path=ROOT, pattern="x", limit=5),
    ops.Remove(path=f"{ROOT}/f"),
    ops.Pull(path=ROOT),
    ops.Push(path=ROOT, body=bytes(10)),
    ops.Dial(port=80),
    ops.Spawn(argv=("x",), cwd=ROOT, capture=100),
    ops.Spawn(argv=("x",), cwd=ROOT, capture=100, timeout=60.0),
    ops.Spawn(argv=("x",), cwd=ROOT, stdin=True, report=True),
]


async def used(op: Any, sandbox: ChannelSandbox) -> None:
    """Perform an operation to its end; an error of the tree is an end as well."""
    with contextlib.suppress(IsoboxError, BrokenPipeError):
        result = await op.on(sandbox)
        if isinstance(op, ops.Spawn):
            async with result:
                if op.stdin:
                    await result.write(b"x")
                await asyncio.gather(result.stdout.read(), result.wait())
        elif isinstance(op, ops.Read | ops.Pull | ops.Dial):
            async with result:
                await result.read()


async def session(rng: random.Random) -> int:
    """Lie about every operation until the liar is found out; count the frames."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    async with lied_to() as (liar, sandbox):
        tasks = [asyncio.create_task(used(op, sandbox)) for op in OPS]
        await asyncio.sleep(0)
        sent = await lied(rng, liar, sandbox)
        liar.sock.close()
        done, late = await asyncio.wait(tasks, timeout=10)
        assert not late
        for task in done:
            task.result()
    assert not complaints
    return sent


async def lied(rng: random.Random, liar: Liar, sandbox: ChannelSandbox) -> int:
    sent = 0
    channel = sandbox.channel
    with contextlib.suppress(OSError):
        while sent < 200 and channel.failure is None:
            burst = [said(rng) for _ in range(rng.randrange(1, 6))]
            sent += len(burst)
            await liar.shout(b"".join(burst))
            await asyncio.sleep(0)
            bounded(sandbox)
    return sent


def bounded(sandbox: ChannelSandbox) -> None:
    """What the host holds for one guest stays within what it has granted."""
    channel = sandbox.channel
    assert len(channel._parser._buffer) <= PARSED
    assert len(channel._streams) <= 2 * len(OPS)
    for stream in channel._streams.values():
        assert len(stream._credit) <= 256
        assert all(0 <= credit <= agent.WINDOW for credit in stream._credit.values())
        for box in stream._inboxes.values():
            assert box._held <= box._window <= agent.WINDOW
            assert len(box._pieces) <= box._window


@pytest.mark.anyio
async def test_ten_thousand_frames_to_the_host():
    sent, number = 0, SEED
    while sent < FRAMES:
        number += 1
        try:
            sent += await asyncio.wait_for(session(random.Random(number)), 60)
        except BaseException as error:
            error.add_note(f"the seed is {number}")
            raise


@given(st.binary(max_size=2000), st.integers(1, 50))
def test_any_bytes_are_cut_into_frames_or_refused(raw, step):
    parser = frames.Parser()
    with contextlib.suppress(ProtocolError):
        for at in range(0, len(raw), step):
            for kind, _, body in parser.feed(raw[at : at + step]):
                assert kind in frames._FROM_GUEST
                assert len(body) <= agent.PIECE + 1
            assert len(parser._buffer) <= PARSED


FRAME = st.tuples(
    st.sampled_from(sorted(frames._FROM_GUEST)),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=300),
)


@given(st.lists(FRAME, max_size=8), st.integers(1, 400))
def test_whole_frames_are_found_however_they_arrive(sent, step):
    raw = b"".join(
        frames.frame(kind, stream, body[:5], body[5:]) for kind, stream, body in sent
    )
    parser = frames.Parser()
    found: list[tuple[int, int, bytes]] = []
    for at in range(0, len(raw), step):
        found += list(parser.feed(raw[at : at + step]))
    assert found == sent
    assert not parser._buffer


@given(st.binary(max_size=600))
def test_any_bytes_are_entries_or_refused(raw):
    with contextlib.suppress(ProtocolError):
        for each in unpack.entries(raw, ROOT):
            assert each.path.startswith(ROOT)


@given(st.binary(max_size=600), st.booleans())
def test_any_bytes_are_matches_or_refused(raw, cut):
    with contextlib.suppress(ProtocolError):
        for each in unpack.matches(raw, ROOT, cut=cut):
            assert each.path.startswith(ROOT)


@given(st.binary(max_size=300))
def test_any_bytes_are_fields_or_refused(raw):
    with contextlib.suppress(ProtocolError):
        assert isinstance(frames.fields(raw), dict)


# -- to the guest -------------------------------------------------------------------

#: Forks a guest for each socket that it is sent, and says how each has ended.
NURSERY = """
import importlib.util, os, resource, socket, struct, sys
spec = importlib.util.spec_from_file_location("guest", sys.argv[1])
agent = importlib.util.module_from_spec(spec)
spec.loader.exec_module(agent)
calls = socket.socket(fileno=0)
# Whatever is asked of them, they write no large file.
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
uid = int(sys.argv[2])
if uid:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
while True:
    data, fds, _, _ = socket.recv_fds(calls, 1, 1)
    if not data:
        break
    pid = os.fork()
    if pid == 0:
        os.dup2(fds[0], 0)
        try:
            agent.main()
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.close(fds[0])
    calls.sendall(struct.pack("i", pid))
    calls.sendall(struct.pack("i", os.waitpid(pid, 0)[1]))
"""


class Nursery:
    """Real guests, each started by a fork: a whole start for each takes too long."""

    def __init__(self, folder: Path, uid: int) -> None:
        self.folder = folder
        ours, theirs = socket.socketpair()
        program = folder / "agent.py"
        program.write_bytes(Path(agent.__file__).read_bytes())
        public = "/usr/bin/python3"
        python = public if os.access(public, os.X_OK) else sys.executable
        with theirs:
            self._popen = subprocess.Popen(
                [python, "-I", "-S", "-c", NURSERY, str(program), str(uid)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
            )
        self._calls = ours
        ours.settimeout(20)

    @contextlib.contextmanager
    def guest(self) -> Iterator[socket.socket]:
        """Have a guest; after it, require that it ends once the channel does."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                socket.send_fds(self._calls, [b"g"], [theirs.fileno()])
            self._number()
            yield ours
        status = self._number()
        assert os.WIFEXITED(status), f"ended by {status}"

    def _number(self) -> int:
        raw = self._calls.recv(4, socket.MSG_WAITALL)
        (number,) = struct.unpack("i", raw)
        return int(number)

    def close(self) -> None:
        self._calls.close()
        try:
            self._popen.wait(20)
        except subprocess.TimeoutExpired:
            os.kill(self._popen.pid, signal.SIGKILL)
            self._popen.wait()
            raise


@pytest.fixture
def nursery(tmp_path_factory):
    """Guests of an ordinary user, who could harm nothing, and a place for them."""
    folder = tmp_path_factory.mktemp("nursery")
    root = os.geteuid() == 0
    if root:
        for parent in (folder, folder.parent, folder.parent.parent):
            parent.chmod(0o755)
    nursery = Nursery(folder, 65534 if root else 0)
    yield nursery
    nursery.close()


class Asker:
    """Makes frames as a broken host might send them, of harmless operations."""

    def __init__(self, rng: random.Random, root: bytes, mark: bytes) -> None:
        self._rng = rng
        self._root = root
        self._mark = mark

    def config(self) -> bytes:
        fields = {
            "root": self._root,
            "confine": self._root,
            "env": {"PATH": b"/usr/bin:/bin"},
            "rlimits": {},
            "sealed": [],
        }
        return frame(agent.CONFIG, 0, agent.encode(fields))

    def frame(self) -> bytes:
        rng = self._rng
        others = [agent.DATA, agent.END, agent.CREDIT, agent.CONTROL]
        kind = rng.choice([agent.OPEN] * 5 + others)
        stream = rng.randrange(1, 60)
        if kind == agent.OPEN:
            # Now and then one that is still open, which ends the guest.
            number = stream if rng.random() < 0.05 else rng.randrange(60, 2**31)
            return frame(kind, number, agent.encode(self._operation()))
        if kind == agent.CONTROL:
            what = rng.choice(["cancel", "cancel", "signal", "resize", "dance"])
            fields = {"do": what, "signal": 15, "columns": 80, "rows": 24}
            return frame(kind, stream, agent.encode(fields))
        body = rng.randbytes(rng.choice([0, 1, 4, 20]))
        return frame(kind, stream, bytes((rng.randrange(4),)) + body)

    def broken(self) -> bytes:
        """Return what no host would send: a guest may end itself over it."""
        rng = self._rng
        whole = frame(
            agent.OPEN, rng.randrange(1, 60), agent.encode({"op": "read", **SCAN})
        )
        choice = rng.randrange(5)
        if choice == 0:
            return rng.randbytes(rng.randrange(1, 60))
        if choice == 1:
            return frame(
                rng.choice([*KINDS, 0, 200]), rng.randrange(60), rng.randbytes(12)
            )
        if choice == 2:
            size = rng.choice([2**32 - 1, agent.LARGEST + 1])
            return agent.HEADER.pack(size, agent.DATA, 1)
        if choice == 3:
            raw = bytearray(whole)
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
            return bytes(raw)
        return whole[: rng.randrange(len(whole))]

    def _operation(self) -> dict[str, Any]:
        rng = self._rng
        op = rng.choice(OFTEN * 5 + LATER)
        fields = {"op": op, "path": self._path(), **self._fields(op)}
        if rng.random() < 0.1:
            fields.pop(rng.choice(list(fields)))
        if rng.random() < 0.1 and op not in HARMFUL_IF_CHANGED:
            fields[rng.choice(list(fields))] = value(rng)
        return fields

    def _path(self) -> Any:
        names = [
            b"",
            b"/f",
            b"/d",
            b"/d/g",
            b"/absent",
            b"/f/below",
            b"/../f",
            b"/\xff\n",
        ]
        odd = [None, 5, "text", b"", b"relative", self._root + b"/a\0b"]
        rng = self._rng
        return (
            self._root + rng.choice(names) if rng.random() < 0.85 else rng.choice(odd)
        )

    def _fields(self, op: str) -> dict[str, Any]:
        rng = self._rng
        if op == "spawn":
            return self._spawn()
        every: dict[str, dict[str, Any]] = {
            "read": {
                "offset": rng.choice([0, 5, 2**40]),
                "length": rng.choice([None, 0, 10]),
            },
            "write": {
                "body": rng.choice([None, b"x" * 10]),
                "mode": rng.choice([None, 0o644, 0o4777]),
                "if_match": rng.choice([None, "", "0" * 64]),
                "parents": rng.choice([True, False]),
            },
            "edit": {
                "pieces": rng.choice([[], [[b"x", b"y", True]], [5]]),
                "if_match": None,
            },
            "scan": {
                **SCAN,
                "depth": rng.choice([0, 1, None]),
                "pattern": rng.choice([None, "**/*", "{a,b}", "[", "*.py", "[z-a]"]),
            },
            "search": {
                **SEARCH,
                "pattern": rng.choice(["x", "(", "(a+)+$"]),
                "timeout": 0.05,
            },
            "remove": {"recursive": rng.choice([True, False])},
            "push": {"clear": rng.choice([True, False])},
            "dial": {"host": rng.choice(["127.0.0.1", "::1"]), "port": 1},
            "listen": {"port": 0},
            "datagrams": {"port": 0},
            "kill": {"id": str(rng.randrange(1, 12))},
            "pull": {},
            "dance": {},
        }
        return every[op]

    def _spawn(self) -> dict[str, Any]:
        rng = self._rng
        sleep = [b"sleep", b"97." + self._mark]
        return {
            **SPAWN,
            "argv": rng.choice([[b"true"], sleep, sleep, [b"cat"], [b"absent"], []]),
            "cwd": rng.choice([b"/", b"/", b"/absent"]),
            "stdin": rng.choice([True, False]),
            "capture": rng.choice([None, 0, 100]),
            "timeout": rng.choice([None, 0.0, 0.01]),
            "tty": rng.choice([None, None, [80, 24]]),
            "report": rng.choice([True, False]),
        }


OFTEN = ["read", "write", "edit", "scan", "remove"]
#: Each of these is a process, or waits for one.
LATER = [
    *("spawn", "search", "pull", "push", "dial", "listen", "datagrams", "kill"),
    "dance",
]
#: A changed value could run something, or look a name up.
HARMFUL_IF_CHANGED = ("spawn", "dial", "listen", "datagrams", "search")


def converse(sock: socket.socket, asker: Asker, rng: random.Random) -> int:
    """Send frames until the guest ends or has had enough; count them.

    As long as they were whole ones, require an answer to a ping in between.
    """
    line = Line(sock)
    sent = 0
    end = rng.choice([5, 20, 120])
    whole = True
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        line.send(asker.config())
        while sent < end and not line.ended:
            burst = [asker.frame() for _ in range(10)]
            if rng.random() < 0.15:
                whole = False
                burst.append(asker.broken())
            sent += len(burst)
            line.send(b"".join(burst))
            if whole:
                line.ping()
    return sent


class Line:
    """A channel on which neither side waits for the other to read."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.ended = False
        self._sock = sock
        self._heard = b""

    def send(self, raw: bytes) -> None:
        view = memoryview(raw)
        while view and not self.ended:
            if self._wait(writing=True):
                view = view[self._sock.send(view) :]

    def ping(self) -> None:
        """Wait for the answer to a ping, or for the guest's end."""
        mark = secrets.token_bytes(16)
        self.send(frame(agent.PING, 0, mark))
        answer = frame(agent.PONG, 0, mark)
        while answer not in self._heard and not self.ended:
            self._wait(writing=False)

    def _wait(self, *, writing: bool) -> bool:
        out = [self._sock] if writing else []
        readable, writable, _ = select.select([self._sock], out, [], 10)
        assert readable or writable, "the guest hangs"
        if readable:
            data = self._sock.recv(1 << 18)
            self.ended = not data
            self._heard = self._heard[-64:] + data
        return bool(writable)


def marked() -> bytes:
    return b"%012d" % secrets.randbelow(10**12)


def test_ten_thousand_frames_to_the_guest(nursery):
    mark = marked()
    root = nursery.folder / "root"
    sent, number = 0, SEED
    while sent < FRAMES:
        number += 1
        rng = random.Random(number)
        furnish(root)
        asker = Asker(rng, bytes(root), mark)
        try:
            with nursery.guest() as sock:
                sent += converse(sock, asker, rng)
        except BaseException as error:
            error.add_note(f"the seed is {number}")
            raise
    eventually(lambda: not running(mark.decode()))


def furnish(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(exist_ok=True)
    root.chmod(0o777)
    (root / "d").mkdir(exist_ok=True)
    (root / "d").chmod(0o777)
    (root / "f").write_bytes(b"x" * 1000)
    (root / "f").chmod(0o666)


def test_a_guest_that_is_garbled_leaves_no_process_behind(nursery):
    mark = b"." + marked()
    script = b"setsid sleep 98" + mark + b" & sleep 99" + mark
    asker = Asker(random.Random(SEED), b"/", mark)
    with nursery.guest() as sock:
        sock.settimeout(10)
        sock.sendall(asker.config())
        spawn = {"op": "spawn", **SPAWN, "argv": [b"sh", b"-c", script]}
        sock.sendall(frame(agent.OPEN, 1, agent.encode(spawn)))
        eventually(lambda: len(running(mark.decode())) >= 2)
        sock.sendall(b"\xff" * 40)
        while sock.recv(1 << 16):
            pass
    eventually(lambda: not running(mark.decode()))
