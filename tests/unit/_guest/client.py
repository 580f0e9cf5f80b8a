"""A guest in a process of its own, and the smallest client that can drive it."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from isobox._guest import agent, bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 20.0

#: A guest is not dumpable: only root sees what it has open.
sees_descriptors = pytest.mark.skipif(
    os.geteuid() != 0, reason="a guest's descriptors are closed to its own user"
)

SPAWN = {
    "argv": [],
    "script": None,
    "cwd": b"/",
    "env": {},
    "stdin": False,
    "tty": None,
    "timeout": None,
    "idle_timeout": None,
    "capture": 1 << 16,
    "spool": None,
    "limits": {},
    "report": False,
}

SCAN = {"depth": 1, "limit": 1000, "pattern": None, "follow": True, "digest": False}

SEARCH = {
    "literal": False,
    "ignore_case": False,
    "glob": None,
    "before": 0,
    "after": 0,
    "limit": 1000,
    "timeout": 30.0,
}


def outcome(work: Iterator[object]) -> Any:
    """Let an operation of steps come to its end, and return its answer."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


@dataclass
class Answer:
    """What came on one stream."""

    number: int
    data: dict[int, bytearray] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    events: list[dict] = field(default_factory=list)
    granted: int = 0
    result: dict | None = None
    error: dict | None = None

    @property
    def done(self) -> bool:
        return self.result is not None or self.error is not None

    def bytes(self, channel: int = agent.BODY) -> bytes:
        return bytes(self.data.get(channel, b""))

    @property
    def started(self) -> int:
        """The pid of a command that has started."""
        return next((e["pid"] for e in self.events if e["event"] == "started"), 0)


class Guest:
    """One guest; every wait has an end."""

    def __init__(
        self,
        *,
        python: str = sys.executable,
        config: dict | None = None,
        greet: bool = True,
        prefix: tuple[str, ...] = (),
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        ours, theirs = socket.socketpair()
        self.sock = ours
        self.answers: dict[int, Answer] = {}
        self.frames: list[tuple[int, int, bytes]] = []
        #: What came with each connection that it accepted, by stream.
        self.accepted: dict[int, dict] = {}
        self.hello: dict | None = None
        self.generous = True
        self._input = bytearray()
        self._last = 0
        # It lives as long as the guest, which closes it.
        self._program = tempfile.NamedTemporaryFile(suffix=".pyc")  # noqa: SIM115
        self._program.write(bundle.program(python))
        self._program.flush()
        os.chmod(self._program.name, 0o644)
        with theirs, tempfile.TemporaryFile() as complaints:
            self._complaints = os.dup(complaints.fileno())
            self.popen = subprocess.Popen(
                [*prefix, python, "-I", "-S", self._program.name],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                env={},
                cwd="/",
                pass_fds=pass_fds,
            )
        self.pid = self.popen.pid
        try:
            if greet:
                self.greet(config or {})
        except BaseException:
            self.close()
            raise

    def greet(self, config: dict) -> None:
        whole = {"root": b"/nowhere", "confine": None, "rlimits": {}, "sealed": []}
        path = os.environ.get("PATH", os.defpath)
        whole["env"] = {"PATH": path.encode(), "LANG": b"C.UTF-8"}
        self.send(agent.CONFIG, 0, agent.encode({**whole, **config}))
        self.until(lambda: self.hello is not None)

    # What the client says.

    def send(self, kind: int, stream: int, payload: bytes = b"") -> None:
        self.sock.sendall(agent.HEADER.pack(len(payload), kind, stream) + payload)

    def open(self, op: str, **fields) -> Answer:
        self._last += 1
        answer = self.answers[self._last] = Answer(self._last)
        self.send(agent.OPEN, self._last, agent.encode({"op": op, **fields}))
        return answer

    def spawn(self, *argv: str | bytes, **fields) -> Answer:
        raw = [part.encode() if isinstance(part, str) else part for part in argv]
        return self.open("spawn", **{**SPAWN, "argv": raw, **fields})

    def start(self, *argv: str | bytes, **fields) -> Answer:
        """Start a command whose output is streamed, and wait until it runs."""
        answer = self.spawn(*argv, capture=None, **fields)
        self.until(lambda: answer.done or bool(answer.started))
        return answer

    def data(self, answer: Answer, data: bytes, channel: int = agent.STDIN) -> None:
        for at in range(0, len(data), agent.PIECE):
            piece = data[at : at + agent.PIECE]
            self.send(agent.DATA, answer.number, bytes((channel,)) + piece)

    def end(self, answer: Answer, channel: int = agent.STDIN) -> None:
        self.send(agent.END, answer.number, bytes((channel,)))

    def control(self, answer: Answer, what: str, **more) -> None:
        self.send(agent.CONTROL, answer.number, agent.encode({"do": what, **more}))

    def credit(self, answer: Answer, channel: int, amount: int) -> None:
        raw = bytes((channel,)) + amount.to_bytes(4, "big")
        self.send(agent.CREDIT, answer.number, raw)

    def ping(self) -> float:
        """Return how long the guest takes to answer anything at all."""
        began = time.monotonic()
        mark = os.urandom(8)
        self.send(agent.PING, 0, mark)
        self.until(lambda: (agent.PONG, 0, mark) in self.frames)
        return time.monotonic() - began

    # What the guest says.

    def until(self, met: Callable[[], bool], patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while not met():
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.sock], [], [], left)[0]:
                raise TimeoutError(f"the guest says nothing: {self.complaint()}")
            self._receive()

    def wait(self, answer: Answer, patience: float = PATIENCE) -> Answer:
        self.until(lambda: answer.done, patience)
        return answer

    def result(self, answer: Answer, patience: float = PATIENCE) -> dict:
        self.wait(answer, patience)
        assert answer.result is not None, answer.error
        return answer.result

    def refusal(self, answer: Answer, patience: float = PATIENCE) -> str:
        self.wait(answer, patience)
        assert answer.error is not None, answer.result
        return answer.error["code"]

    def _receive(self) -> None:
        data = self.sock.recv(1 << 18)
        if not data:
            raise EOFError(f"the guest has ended: {self.complaint()}")
        self._input += data
        size = agent.HEADER.size
        while len(self._input) >= size:
            length, kind, stream = agent.HEADER.unpack_from(self._input)
            if len(self._input) < size + length:
                return
            payload = bytes(self._input[size : size + length])
            del self._input[: size + length]
            self._arrived(kind, stream, payload)

    def _arrived(self, kind: int, stream: int, payload: bytes) -> None:
        if kind == agent.HELLO:
            self.hello = agent.decode(payload)
        elif kind == agent.ACCEPT:
            self.answers[stream] = Answer(stream)
            self.accepted[stream] = agent.decode(payload)
        elif stream in self.answers:
            self._on_stream(self.answers[stream], kind, payload)
        else:
            self.frames.append((kind, stream, payload))

    def _on_stream(self, answer: Answer, kind: int, payload: bytes) -> None:
        if kind == agent.DATA:
            answer.data.setdefault(payload[0], bytearray()).extend(payload[1:])
            if self.generous:
                self.credit(answer, payload[0], len(payload) - 1)
        elif kind == agent.END:
            answer.ended.add(payload[0])
        elif kind == agent.CREDIT:
            answer.granted += int.from_bytes(payload[1:], "big")
        elif kind == agent.EVENT:
            answer.events.append(agent.decode(payload))
        elif kind == agent.RESULT:
            answer.result = agent.decode(payload)
        elif kind == agent.ERROR:
            answer.error = agent.decode(payload)

    # The end.

    def complaint(self) -> str:
        size = os.fstat(self._complaints).st_size
        return os.pread(self._complaints, size, 0).decode("utf-8", "replace")

    def hang_up(self, patience: float = 10.0) -> int:
        """Close the channel; returns the guest's exit status."""
        self.sock.close()
        return self.popen.wait(patience)

    def close(self) -> None:
        self.sock.close()
        try:
            self.popen.wait(10)
        finally:
            if self.popen.poll() is None:
                self.popen.kill()
                self.popen.wait()
            os.close(self._complaints)
            self._program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stdout(result: dict) -> bytes:
    """Return what a captured command printed."""
    head, tail = result["stdout"]
    return head + tail


def stderr(result: dict) -> bytes:
    head, tail = result["stderr"]
    return head + tail


def running(mark: str) -> list[int]:
    """Return the processes of this machine whose arguments hold `mark`."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            line = (folder / "cmdline").read_bytes()
            state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in line and state not in (b"Z", b"X"):
            found.append(int(folder.name))
    return found


def eventually(met: Callable[[], object], patience: float = 10.0) -> None:
    """Wait for what another process does, which nothing announces."""
    deadline = time.monotonic() + patience
    while not met():
        if time.monotonic() > deadline:
            raise TimeoutError("it never came true")
        time.sleep(0.005)


def interpreters() -> dict[str, str | None]:
    """Map each Python that the guest supports to where it is here."""
    return {f"3.{minor}": _interpreter(f"3.{minor}") for minor in range(8, 15)}


def _interpreter(version: str) -> str | None:
    base = Path(sys.base_prefix).resolve()
    candidates = [
        *sorted(base.parent.glob(f"{version}.*/bin/python{version}")),
        shutil.which(f"python{version}"),
    ]
    for candidate in filter(None, candidates):
        if _is_version(str(candidate), version):
            return str(candidate)
    return None


def _is_version(path: str, version: str) -> bool:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [path, "-I", "-S", "-c", code], capture_output=True, timeout=30, check=False
        )
    except OSError:
        return False
    return done.stdout.decode().strip() == version


def descriptors(guest: Guest) -> int:
    """Return how many descriptors a guest has open."""
    return len(os.listdir(f"/proc/{guest.pid}/fd"))
