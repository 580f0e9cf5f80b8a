"""Sockets in other network namespaces, made by the real kernel."""

from __future__ import annotations

import ast
import contextlib
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.descriptors import none_left_open

from isobox._linux import plant as program
from isobox._linux.planting import PlantingError, Soil, plant

NOBODY = 65534
SOURCE = Path(program.__file__)

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
pytestmark = needs_linux

AS_USER = (
    ()
    if os.geteuid()
    else ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
)

UP = """
import fcntl, socket, struct
with socket.socket() as sock:
    fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))
"""


@contextlib.contextmanager
def namespace(*commands):
    """A process in a user and a network namespace of its own."""
    script = "; ".join([*commands, "echo ready", "exec sleep 60"])
    process = subprocess.Popen(
        [*AS_USER, "unshare", "--user", "--map-root-user", "--net", "sh", "-c", script],
        stdout=subprocess.PIPE,
        cwd="/",
        text=True,
    )
    try:
        if process.stdout.readline() != "ready\n":
            pytest.skip("needs user namespaces for everybody")
        root = os.geteuid() == 0
        yield Soil(
            pid=process.pid,
            parent=os.getpid(),
            uid=NOBODY if root else os.geteuid(),
            gid=NOBODY if root else os.getegid(),
        )
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def soil():
    with namespace(f"/usr/bin/python3 -c '{UP}'") as found:
        yield found


@pytest.fixture
def close():
    """Closes sockets at the end."""
    with contextlib.ExitStack() as held:
        yield lambda made: [held.enter_context(sock) for sock in made]


def eventually(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def inside(soil, script):
    """Run a script in the namespaces of `soil`."""
    enter = [
        "nsenter",
        f"--user=/proc/{soil.pid}/ns/user",
        f"--net=/proc/{soil.pid}/ns/net",
    ]
    return subprocess.run(
        [*enter, "/usr/bin/python3", "-c", script],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def describe(sock):
    return sock.family, sock.type, sock.getsockname()[:2]


def test_the_program_imports_nothing_of_ours():
    tree = ast.parse(SOURCE.read_text())
    names = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    assert names <= {
        "__future__",
        "_socket",
        "collections.abc",
        "ctypes",
        "os",
        "struct",
        "sys",
    }


def test_sockets_are_bound_there_and_not_here(soil, close):
    made = close(
        plant(
            soil,
            [
                ("tcp4", "127.0.0.1", 3128),
                ("tcp4", "0.0.0.0", 443),
                ("tcp6", "::", 443),
                ("udp4", "0.0.0.0", 53),
                ("udp6", "::", 53),
            ],
        )
    )
    stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
    assert [describe(sock) for sock in made] == [
        (socket.AF_INET, stream, ("127.0.0.1", 3128)),
        (socket.AF_INET, stream, ("0.0.0.0", 443)),
        (socket.AF_INET6, stream, ("::", 443)),
        (socket.AF_INET, datagram, ("0.0.0.0", 53)),
        (socket.AF_INET6, datagram, ("::", 53)),
    ]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", 3128), timeout=5)


def test_no_program_of_ours_inherits_them(soil, close):
    [sock] = close(plant(soil, [("tcp4", "127.0.0.1", 3128)]))
    assert not os.get_inheritable(sock.fileno())


@pytest.mark.parametrize("address", ["192.0.2.1", "203.0.113.77", "2001:db8::1"])
def test_every_address_is_local_there(soil, close, address):
    four, six = close(plant(soil, [("tcp4", "0.0.0.0", 443), ("tcp6", "::", 443)]))
    script = (
        "import socket; "
        f"print(socket.create_connection(({address!r}, 443), 5).getpeername()[0])"
    )
    assert inside(soil, script) == f"{address}\n"
    listener = six if ":" in address else four
    accepted, _ = listener.accept()
    with accepted:
        assert accepted.getsockname()[0] == address


def test_without_routes_there_are_none(soil, close):
    close(plant(soil, [("tcp4", "0.0.0.0", 443)], routes=False))
    script = (
        "import socket, errno\n"
        "try: socket.create_connection(('192.0.2.1', 443), 5)\n"
        "except OSError as error: print(errno.errorcode[error.errno])"
    )
    assert inside(soil, script) == "ENETUNREACH\n"


def test_without_ipv6_the_rest_is_made(close):
    off = "echo 1 > /proc/sys/net/ipv6/conf/lo/disable_ipv6"
    with namespace(off, f"/usr/bin/python3 -c '{UP}'") as soil:
        made = close(plant(soil, [("tcp6", "::", 443), ("tcp4", "0.0.0.0", 443)]))
        assert [sock.family for sock in made] == [socket.AF_INET]


def test_a_taken_port_is_named(soil):
    wanted = [("tcp4", "0.0.0.0", 443), ("tcp4", "127.0.0.1", 443)]
    with pytest.raises(PlantingError, match="tcp4 port 443: Address already in use"):
        plant(soil, wanted)


def test_a_loopback_that_is_down_is_named():
    with (
        namespace() as soil,
        pytest.raises(PlantingError, match=r"route for family \d+: Network is down"),
    ):
        plant(soil, [])


def test_nothing_is_ever_made_on_the_host(soil):
    with subprocess.Popen([*AS_USER, "cat"], stdin=subprocess.PIPE, cwd="/") as ours:
        eventually(lambda: Path(f"/proc/{ours.pid}").stat().st_uid == soil.uid)
        with pytest.raises(PlantingError, match="network namespace of the host"):
            plant(replace(soil, pid=ours.pid), [("tcp4", "0.0.0.0", 0)])


def test_the_child_of_another_is_refused(soil):
    with pytest.raises(PlantingError, match="is not a child of 1"):
        plant(replace(soil, parent=1), [])


def test_a_process_that_is_gone_is_named(soil):
    with pytest.raises(PlantingError, match="No such file or directory"):
        plant(replace(soil, pid=(1 << 22) - 1), [])


@pytest.mark.parametrize("missing", ["uid", "gid", "pid", "parent"])
def test_an_incomplete_spec_is_refused(soil, missing):
    with pytest.raises(PlantingError, match="none be 0"):
        plant(replace(soil, **{missing: 0}), [])


def test_another_user_may_not(soil):
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else")
    with pytest.raises(PlantingError, match=r"Permission denied|not permitted"):
        plant(replace(soil, uid=NOBODY - 1, gid=NOBODY - 1), [])


def children():
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return sorted(map(int, text.split()))


def test_nothing_is_left(soil, close):
    running = children()
    with none_left_open():
        for wanted in (("tcp4", "0.0.0.0", 80), ("tcp4", "192.0.2.1", 0)):
            for sock in plant(soil, [wanted]):
                sock.close()
        with pytest.raises(PlantingError):
            plant(soil, [("tcp4", "0.0.0.0", 80), ("tcp4", "0.0.0.0", 80)])
    assert children() == running


def test_it_takes_little_time(soil, close):
    times = []
    for _ in range(5):
        began = time.perf_counter()
        close(plant(soil, [("tcp4", "127.0.0.1", 0)]))
        times.append(time.perf_counter() - began)
    assert min(times) < 0.1
