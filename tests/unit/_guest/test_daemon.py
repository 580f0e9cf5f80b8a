"""A guest that is a daemon, on each Python that it supports."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from tests.daemons import AttachedWorkspace, Daemon, needs_root
from tests.unit._guest.client import interpreters

from isobox._guest import daemon

#: What a relay takes of the processor, in seconds: it is to import nothing.
BRIEF = 0.1


@needs_root
@pytest.mark.parametrize("version", interpreters())
def test_it_runs_on_every_python(version, monkeypatch):
    python = interpreters()[version]
    if python is None:
        pytest.skip(f"no Python {version} here")
    # One of a home directory runs as nobody else than root.
    monkeypatch.setattr("tests.daemons.WORKLOAD", 0)
    monkeypatch.setattr("tests.daemons._AS_WORKLOAD", ())
    monkeypatch.setattr(Daemon, "inside", _as_other)
    with Daemon(python=python, workload=0) as made:
        anyio.run(_works, made, version)


def _as_other(made: Daemon, argv, *, user: int = 0, **how) -> subprocess.Popen:
    enter = ["nsenter", f"--target={made.pid}", "--mount", "--net", "--ipc", "--pid"]
    # Its user is another one once it is loaded.
    text = "import posix, _socket\nposix.setuid(65534)\n" + argv[-2]
    return subprocess.Popen([*enter, *argv[:-2], text, argv[-1]], env={}, **how)


async def _works(made, version):
    async with AttachedWorkspace(made) as first:
        assert first._sandbox.channel.hello["python"].startswith(version)
        process = await first.start("echo one; read x; echo $x", stdin=True)
        assert await process.stdout.receive() == b"one\n"
        first._sandbox.channel._transport.abort()
    async with AttachedWorkspace(made) as second:
        assert process.id in {each.id for each in await second.processes()}
        again = await second.attach(process.id)
        await again.write(b"two\n")
        assert await again.stdout.read() == b"one\ntwo\n"
        assert (await again.wait()).exit_code == 0


def test_a_relay_loads_nothing():
    names = "import sys; before = set(sys.modules)\n"
    text = daemon.RELAY.replace("_bring()\n", "pass\n", 1)
    tell = "\nprint(sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", names + _unnamed(text) + tell],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['_socket']\n"


def _unnamed(text: str) -> str:
    return text.replace('__name__ == "__main__"', "False")


def test_a_relay_without_a_key_ends():
    relay = subprocess.run(
        daemon.relay_argv(sys.executable),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert relay.returncode == 4
    assert b"key" in relay.stderr


def test_a_relay_takes_no_byte_that_is_not_its_own():
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(b"\0isobox-test-%d" % time.monotonic_ns())
        door.listen()
        name = door.getsockname()[1:].decode()
        relay = subprocess.Popen(
            daemon.relay_argv(sys.executable, name), stdin=theirs, stdout=theirs
        )
        ours.sendall(daemon.greeting("k" * 64) + b"the rest")
        visitor, _ = door.accept()
        with visitor:
            visitor.send(b"\0")
            said, ends, *_ = socket.recv_fds(visitor, 256, 2)
            assert (said, len(ends)) == (b"k" * 64, 2)
            visitor.send(b"\1")
            with socket.socket(fileno=ends[0]) as reader:
                assert reader.recv(100) == b"the rest"
            with socket.socket(fileno=ends[1]) as writer:
                writer.send(b"an answer")
            theirs.close()
            assert ours.recv(100) == b"an answer"
            relay.poll()
            assert relay.returncode is None
        assert relay.wait(20) == 0


def test_a_relay_costs_little():
    before = _used()
    test_a_relay_takes_no_byte_that_is_not_its_own()
    assert _used() - before < BRIEF


def _used() -> float:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / 100
