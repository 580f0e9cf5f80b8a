"""The traffic of real sandboxes reaches the host's outlet, and nothing else does."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
import sniffio  # noqa: F401 - as where httpx is: anyio knows its loop in tasks alone
from tests.relayed import Relayed, RelayedFully

from isobox._backends.bubblewrap import ladder, network, processes
from isobox._backends.bubblewrap.provider import BubblewrapProvider, BubblewrapSandbox
from isobox._linux import planting
from isobox.abc import (
    Capture,
    Discard,
    File,
    Limits,
    Listen,
    Mount,
    SandboxSpec,
    Spawn,
)
from isobox.errors import (
    BackendUnavailableError,
    InvalidArgumentError,
    SandboxLostError,
    UnsupportedError,
)
from isobox.testing.processes import kill_tree

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        not os.path.exists("/usr/bin/bwrap"), reason="needs /usr/bin/bwrap"
    ),
]

SPEC = SandboxSpec(id="captured", capture=Capture())
NAMED = "198.18.0.7"

CONNECT = """
import socket, sys
for where in sys.argv[1:]:
    address, _, port = where.rpartition(":")
    try:
        with socket.create_connection((address, int(port)), 10) as client:
            print(client.recv(100).decode())
    except OSError as error:
        print(type(error).__name__)
"""

ASK = """
import socket, sys
query = bytes.fromhex("0102010000010000000000000161000001 0001")
for address in sys.argv[1:]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(10)
        # Connected, it takes an answer from nowhere else.
        client.connect((address, 53))
        client.send(query)
        print(socket.inet_ntoa(client.recv(512)[-4:]))
"""


class Outlet:
    """Says what was dialled, and gives every name one address."""

    def __init__(self, address=NAMED):
        self.address = address
        self.seen = []
        self.names = set()

    async def connected(self, connection, address, port):
        self.seen.append((address, port))
        await connection.send(f"{address} {port}".encode())
        await connection.aclose()

    def asked(self, query):
        end = 12
        labels = []
        while query[end]:
            labels.append(query[end + 1 : end + 1 + query[end]].decode())
            end += query[end] + 1
        self.names.add(".".join(labels))
        (kind,) = struct.unpack_from(">H", query, end + 1)
        found = b""
        if kind == 1:
            found = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 5, 4)
            found += socket.inet_aton(self.address)
        head = query[:2] + b"\x85\x80\0\1" + (b"\0\1" if found else b"\0\0") + bytes(4)
        return head + query[12 : end + 5] + found


class Asked(Outlet):
    """Speaks when it is spoken to, as most do."""

    async def connected(self, connection, address, port):
        await connection.receive()
        await super().connected(connection, address, port)


class Holding(Outlet):
    """Serves a connection until its other side ends."""

    def __init__(self):
        super().__init__()
        self.open = self.most = 0

    async def connected(self, connection, address, port):
        self.seen.append((address, port))
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            while await connection.receive():
                pass
        finally:
            self.open -= 1


@contextlib.asynccontextmanager
async def captured(outlet, spec=SPEC, kind=BubblewrapSandbox):
    sandbox = await BubblewrapProvider(kind).create(spec)
    try:
        await sandbox.capture(outlet)
        yield sandbox
    finally:
        await sandbox.aclose()


@pytest.fixture
async def outlet():
    return Outlet()


@pytest.fixture
async def sandbox(outlet):
    async with captured(outlet) as sandbox:
        yield sandbox


async def run(sandbox, *argv, code=0):
    process = await sandbox.spawn(
        Spawn(argv=argv, cwd=sandbox.root, capture=1 << 16, timeout=60)
    )
    end = await process.wait()
    assert end.exit_code == code, end.stderr.text
    return end.stdout.text


async def connect(sandbox, *where):
    return (await run(sandbox, "python3", "-c", CONNECT, *where)).splitlines()


async def ask(sandbox, *addresses):
    return (await run(sandbox, "python3", "-c", ASK, *addresses)).splitlines()


async def until(condition):
    with anyio.fail_after(30):
        while not condition():
            await asyncio.sleep(0.005)


# -- what is caught ---------------------------------------------------------------


async def test_any_address_on_a_caught_port_reaches_the_outlet(sandbox, outlet):
    dialled = [
        ("203.0.113.9", 443),
        ("192.0.2.1", 80),
        ("198.18.0.7", 22),
        ("169.254.169.254", 80),
        ("10.0.0.1", 443),
        ("127.0.0.1", 443),
        ("2001:db8::9", 443),
        ("fd00::1", 22),
        ("::1", 80),
        ("127.0.0.1", 3128),
    ]
    said = await connect(sandbox, *(f"{host}:{port}" for host, port in dialled))
    assert said == [f"{host} {port}" for host, port in dialled]
    assert outlet.seen == dialled


async def test_a_mapped_address_is_what_it_maps(sandbox, outlet):
    assert await connect(sandbox, "::ffff:203.0.113.9:443") == ["203.0.113.9 443"]


async def test_what_is_not_caught_is_refused_at_once(sandbox, outlet):
    began = time.monotonic()
    where = ("203.0.113.9:444", "2001:db8::9:444", "127.0.0.1:1", "192.0.2.1:3128")
    assert await connect(sandbox, *where) == ["ConnectionRefusedError"] * 4
    assert time.monotonic() - began < 5
    assert outlet.seen == []


async def test_other_datagrams_are_refused_at_once(sandbox):
    script = """
import socket
for address in ("203.0.113.9", "2001:db8::9"):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(10)
        client.connect((address, 443))
        for _ in range(100):
            client.send(b"quic")
            try:
                client.recv(10)
            except ConnectionRefusedError:
                print("refused")
"""
    said = await run(sandbox, "python3", "-c", script)
    assert said.split() == ["refused"] * 200


async def test_names_are_asked_of_the_outlet(sandbox, outlet):
    assert await run(sandbox, "getent", "hosts", "www.example.org") == (
        f"{NAMED}      www.example.org\n"
    )
    assert outlet.names == {"www.example.org"}
    assert await run(sandbox, "getent", "hosts", "localhost") != ""


async def test_names_are_found_by_who_counts_only_real_addresses(sandbox):
    # AI_ADDRCONFIG, as getent and wget ask: no loopback address counts for it.
    found = await run(sandbox, "getent", "ahostsv4", "www.example.org")
    assert found.split()[0] == NAMED


async def test_whatever_resolver_is_asked_the_outlet_answers(sandbox):
    asked = ("127.0.0.1", "192.0.2.53", "2001:db8::53", "::1")
    assert await ask(sandbox, *asked) == [NAMED] * 4


async def test_a_resolver_answers_over_tcp_as_well(sandbox):
    script = """
import socket
query = bytes.fromhex("0102010000010000000000000161000001 0001")
with socket.create_connection(("192.0.2.53", 53), 10) as client:
    client.sendall(len(query).to_bytes(2, "big") + query)
    print(socket.inet_ntoa(client.recv(512)[-4:]))
"""
    assert await run(sandbox, "python3", "-c", script) == NAMED + "\n"


async def test_two_sandboxes_have_an_outlet_each():
    one, two = Outlet("198.18.0.1"), Outlet("198.18.0.2")
    async with captured(one) as first, captured(two) as second:
        for sandbox, outlet in ((first, one), (second, two)):
            assert await ask(sandbox, "127.0.0.1") == [outlet.address]
            assert await connect(sandbox, "203.0.113.9:80") == ["203.0.113.9 80"]
    assert one.seen == two.seen == [("203.0.113.9", 80)]


async def test_other_ports_may_be_caught():
    outlet = Outlet()
    spec = SandboxSpec(id="ports", capture=Capture(ports=(8443, 3128, 53)))
    async with captured(outlet, spec) as sandbox:
        where = ("203.0.113.9:8443", "203.0.113.9:3128", "203.0.113.9:443")
        assert await connect(sandbox, *where, "127.0.0.1:3128") == [
            "203.0.113.9 8443",
            "203.0.113.9 3128",
            "ConnectionRefusedError",
            "127.0.0.1 3128",
        ]


@pytest.mark.parametrize(
    "capture",
    [
        Capture(ports=(0,)),
        Capture(ports=(65536,)),
        Capture(proxy_port=-1),
        Capture(ports=tuple(range(1000, 1200))),
    ],
)
async def test_ports_that_cannot_be_are_refused(capture):
    with pytest.raises(InvalidArgumentError, match="capture: "):
        await BubblewrapProvider().create(SandboxSpec(id="x", capture=capture))


# -- what it is -------------------------------------------------------------------


async def test_it_says_what_it_is(sandbox):
    assert "capture" in sandbox.capabilities
    assert "no_network" not in sandbox.capabilities
    barrier = sandbox.isolation().network
    assert barrier.level == "strong"
    assert "filter on the host" in barrier.mechanism
    async with contextlib.AsyncExitStack() as held:
        plain = await BubblewrapProvider().create(SandboxSpec(id="plain"))
        held.push_async_callback(plain.aclose)
        assert "capture" not in plain.capabilities
        assert "no_network" in plain.capabilities
        with pytest.raises(UnsupportedError):
            await plain.capture(Outlet())


async def test_it_is_captured_once(sandbox, outlet):
    with pytest.raises(InvalidArgumentError, match="already"):
        await sandbox.capture(outlet)


async def test_before_it_is_captured_nothing_leaves():
    sandbox = await BubblewrapProvider().create(SPEC)
    try:
        where = ("203.0.113.9:443", "2001:db8::9:443", "127.0.0.1:3128")
        found = await connect(sandbox, *where)
        assert found == ["OSError", "OSError", "ConnectionRefusedError"]
    finally:
        await sandbox.aclose()


async def test_no_process_is_added_inside(sandbox):
    monitor = sandbox._child.pid
    inside = {seen.pid for seen in processes.below(monitor)}
    namespace = _network_of(processes.child(monitor))
    assert namespace != _network_of(os.getpid())
    everyone = map(int, filter(str.isdigit, os.listdir("/proc")))
    assert {pid for pid in everyone if _network_of(pid) == namespace} <= inside


def _network_of(pid):
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/net")
    return None


async def test_no_descriptor_is_added_inside(sandbox):
    assert await run(sandbox, "sh", "-c", "ls /proc/self/fd") == "0\n1\n2\n3\n"


async def test_the_workload_cannot_change_the_network(sandbox):
    script = """
import errno, fcntl, socket, struct
def attempt(name, action):
    try:
        action()
        print(name, "done")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
def route(kind, family):
    message = struct.pack("BBBBBBBBI", family, 0, 0, 0, 255, 4, 254, 2, 0)
    message += struct.pack("HHi", 8, 4, 1)
    netlink = socket.socket(16, socket.SOCK_RAW, 0)
    netlink.send(struct.pack("IHHII", 16 + len(message), kind, 5, 1, 0) + message)
    code = struct.unpack_from("i", netlink.recv(4096), 16)[0]
    if code:
        raise OSError(-code, "")
attempt("remove the route", lambda: route(25, 2))
attempt("remove the other", lambda: route(25, 10))
attempt("add a route", lambda: route(24, 2))
def down():
    with socket.socket() as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 0))
attempt("take the loopback down", down)
def bind(kind, address, port):
    def action():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, kind) as sock:
            for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                sock.setsockopt(socket.SOL_SOCKET, option, 1)
            sock.bind((address, port))
            if kind == socket.SOCK_STREAM:
                sock.listen()
    return action
attempt("port 443", bind(socket.SOCK_STREAM, "203.0.113.9", 443))
attempt("port 53", bind(socket.SOCK_DGRAM, "127.0.0.1", 53))
attempt("port 53 of IPv6", bind(socket.SOCK_DGRAM, "::1", 53))
attempt("port 81", bind(socket.SOCK_STREAM, "0.0.0.0", 81))
attempt("the proxy's", bind(socket.SOCK_STREAM, "127.0.0.1", 3128))
attempt("a port of its own", bind(socket.SOCK_STREAM, "127.0.0.1", 8080))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
def allow():
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w") as file:
        file.write("0")
attempt("allow ports", allow)
"""
    said = await run(sandbox, "python3", "-c", script)
    found = dict(line.rsplit(" ", 1) for line in said.splitlines())
    assert found.pop("a port of its own") == "done"
    assert found.pop("the proxy's") == "EADDRINUSE"
    assert found.pop("allow ports") in ("EACCES", "EROFS")
    assert len(found) == 9
    assert set(found.values()) <= {"EPERM", "EACCES", "EAFNOSUPPORT"}


# -- the other ways to start ------------------------------------------------------


async def test_without_proc_it_is_captured_as_well(monkeypatch):
    monkeypatch.setattr(ladder, "RUNGS", ("no_proc",))
    spec = SandboxSpec(id="x", capture=Capture(), min_isolation="no_proc")
    async with captured(Outlet(), spec) as sandbox:
        assert sandbox.rung == "no_proc"
        where = ("203.0.113.9:443", "2001:db8::9:443", "203.0.113.9:444")
        said = ["203.0.113.9 443", "2001:db8::9 443", "ConnectionRefusedError"]
        assert await connect(sandbox, *where) == said
        assert await ask(sandbox, "192.0.2.53") == [NAMED]


async def test_without_namespaces_it_is_refused(monkeypatch):
    monkeypatch.setattr(ladder, "RUNGS", ("landlock",))
    spec = SandboxSpec(id="x", capture=Capture(), min_isolation="landlock")
    with pytest.raises(BackendUnavailableError, match="without namespaces"):
        await BubblewrapProvider().create(spec)
    spec = SandboxSpec(
        id="x", files=(File(path="/etc/f", data=b""),), min_isolation="landlock"
    )
    with pytest.raises(UnsupportedError, match="'/etc/f' cannot be shown"):
        await BubblewrapProvider().create(spec)


async def test_a_discarded_view_is_captured_again(tmp_path):
    tmp_path.chmod(0o777)
    spec = SandboxSpec(id="x", capture=Capture(), mode="copy", workdir=str(tmp_path))
    outlet = Outlet()
    async with captured(outlet, spec) as sandbox:
        await sandbox.discard(Discard())
        assert await connect(sandbox, "203.0.113.9:443") == ["203.0.113.9 443"]
        assert await ask(sandbox, "192.0.2.53") == [NAMED]


async def test_limits_of_a_group_do_not_stand_in_the_way():
    spec = SandboxSpec(
        id="x", capture=Capture(), limits=Limits(processes=32, memory=256 << 20)
    )
    async with captured(Outlet(), spec) as sandbox:
        assert await connect(sandbox, "203.0.113.9:443") == ["203.0.113.9 443"]


@pytest.mark.skipif(os.geteuid() != 0, reason="is one already")
def test_all_of_it_as_an_ordinary_user():
    become = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    python = next(filter(_serves_nobody, (sys.executable, "/usr/bin/python3")), None)
    if python is None:
        pytest.skip("an ordinary user reaches no Python here")
    base = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    try:
        shutil.chown(base, 65534, 65534)
        result = subprocess.run(
            [
                *become,
                python,
                "-m",
                "pytest",
                "-q",
                *(f"--basetemp={base}/base", "-k", "not ten_thousand"),
                __file__,
            ],
            env={**_environment(), "HOME": str(base), "PATH": os.environ["PATH"]},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
    finally:
        shutil.rmtree(base)
    assert result.returncode == 0, result.stdout[-5000:]
    assert " passed" in result.stdout


def _environment():
    root = str(Path(__file__).parents[2])
    paths = [*map(str, sys.path), root]
    return {"PYTHONPATH": ":".join(dict.fromkeys(filter(os.path.isdir, paths)))}


def _serves_nobody(python):
    become = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    script = (
        "import pytest, isobox, subprocess, sys; assert sys.version_info >= (3, 11); "
        # What root was let in to may be closed to the user all the same.
        "subprocess.run([sys.executable, '-V'], check=True)"
    )
    done = subprocess.run(
        [*become, python, "-c", script],
        env=_environment(),
        cwd="/",
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


# -- failures ---------------------------------------------------------------------


async def test_what_fails_is_no_start_without_a_filter(monkeypatch):
    def fail(*_, **__):
        raise planting.PlantingError("setns to the user namespace: not permitted")

    monkeypatch.setattr(network, "plant", fail)
    sandbox = await BubblewrapProvider().create(SPEC)
    try:
        with pytest.raises(BackendUnavailableError, match="setns to the user"):
            await sandbox.capture(Outlet())
        assert await connect(sandbox, "203.0.113.9:443") == ["OSError"]
    finally:
        await sandbox.aclose()


async def test_a_lost_sandbox_is_not_captured():
    sandbox = await BubblewrapProvider().create(SPEC)
    await kill_tree(sandbox._child.pid)
    await until(lambda: sandbox.channel.failure is not None)
    with pytest.raises(SandboxLostError):
        await sandbox.capture(Outlet())
    await sandbox.aclose()


async def test_closed_while_it_is_captured(monkeypatch):
    real = network.plant

    def slow(*arguments):
        time.sleep(0.2)
        return real(*arguments)

    monkeypatch.setattr(network, "plant", slow)
    sandbox = await BubblewrapProvider().create(SPEC)
    async with anyio.create_task_group() as group:

        async def capture():
            with pytest.raises((SandboxLostError, BackendUnavailableError)):
                await sandbox.capture(Outlet())

        group.start_soon(capture)
        await asyncio.sleep(0.05)
        await sandbox.aclose()
    gc.collect()


async def test_nothing_is_left_when_it_closes():
    outlet = Holding()
    async with captured(Outlet()):
        pass
    before = len(os.listdir("/proc/self/fd"))
    async with captured(outlet) as sandbox:
        script = """
import socket
held = [socket.create_connection(("203.0.113.9", 443), 10) for _ in range(200)]
print("up", flush=True)
input()
"""
        process = await sandbox.spawn(
            Spawn(argv=("python3", "-c", script), cwd=sandbox.root, stdin=True)
        )
        assert await process.stdout.receive() == b"up\n"
        await until(lambda: outlet.open == 200)
        tasks = len(asyncio.all_tasks())
    assert outlet.open == 0
    assert len(asyncio.all_tasks()) <= tasks - 200
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


# -- many -------------------------------------------------------------------------

CROWD = """
import os, socket, sys, time
# Each of so many processes makes so many connections, and says what became of them.
processes, each = map(int, sys.argv[1:3])
address, port = sys.argv[3], int(sys.argv[4])
children = []
for _ in range(processes):
    reader, writer = os.pipe()
    if os.fork() == 0:
        import selectors
        selector, done = selectors.DefaultSelector(), 0
        for _ in range(each):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex((address, port))
            selector.register(sock, selectors.EVENT_WRITE)
        end = time.monotonic() + 60
        while selector.get_map() and time.monotonic() < end:
            for key, events in selector.select(1):
                if events & selectors.EVENT_WRITE:
                    if key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                        os._exit(2)
                    key.fileobj.send(b"?")
                    selector.modify(key.fileobj, selectors.EVENT_READ)
                else:
                    said = key.fileobj.recv(100)
                    done += said == b"%s %d" % (address.encode(), port)
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
        os.write(writer, b"%d" % done)
        os._exit(0)
    os.close(writer)
    children.append(reader)
print(sum(int(os.read(reader, 100) or b"0") for reader in children))
"""


@pytest.mark.parametrize(
    ("kind", "address", "port"),
    [(BubblewrapSandbox, "203.0.113.9", 443), (Relayed, "127.0.0.1", 3128)],
    ids=["planted", "relayed"],
)
async def test_ten_thousand_connections_at_once(kind, address, port):
    outlet = Asked()
    async with captured(outlet, kind=kind) as sandbox:
        argv = ("python3", "-c", CROWD, "10", "1000", address, str(port))
        assert await run(sandbox, *argv) == "10000\n"
        assert len(outlet.seen) == 10_000
        argv = ("python3", "-c", CROWD, "1", "1", address, str(port))
        assert await run(sandbox, *argv) == "1\n"


async def test_connections_that_are_held_leave_the_rest_waiting():
    outlet = Holding()
    async with captured(outlet) as sandbox:
        script = """
import socket
held = [socket.socket() for _ in range(1500)]
for sock in held:
    sock.setblocking(False)
    sock.connect_ex(("203.0.113.9", 443))
print("up", flush=True)
input()
"""
        process = await sandbox.spawn(
            Spawn(argv=("python3", "-c", script), cwd=sandbox.root, stdin=True)
        )
        assert await process.stdout.receive() == b"up\n"
        await until(lambda: outlet.open == 1024)
        await asyncio.sleep(0.1)
        assert outlet.open == outlet.most == 1024
        # Those that say nothing make room.
        await until(lambda: len(outlet.seen) == 1500)
        assert outlet.most == 1024
        # Names are still answered, and the sandbox still works.
        assert await ask(sandbox, "127.0.0.1") == [NAMED]
        await process.kill()
        await until(lambda: outlet.open < 500)


async def test_a_flood_of_questions_leaves_the_host_alive(sandbox):
    script = """
import socket, time
query = bytes.fromhex("0102010000010000000000000161000001 0001")
clients = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(50)]
end = time.monotonic() + 1
while time.monotonic() < end:
    for client in clients:
        client.sendto(query, ("192.0.2.53", 53))
"""
    flood = asyncio.create_task(run(sandbox, "python3", "-c", script))
    longest = 0.0
    while not flood.done():
        began = time.monotonic()
        await asyncio.sleep(0.001)
        longest = max(longest, time.monotonic() - began)
    await flood
    assert longest < 1
    assert await ask(sandbox, "127.0.0.1") == [NAMED]


async def test_capturing_takes_little_time():
    times = []
    for _ in range(5):
        sandbox = await BubblewrapProvider().create(SPEC)
        try:
            began = time.perf_counter()
            await sandbox.capture(Outlet())
            times.append(time.perf_counter() - began)
        finally:
            await sandbox.aclose()
    # Some 14 ms where nothing else runs.
    assert min(times) < 0.1


# -- files ------------------------------------------------------------------------


async def test_files_are_shown_over_what_is_there(tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    (given / "there").write_text("of the host\n")
    tmp_path.chmod(0o755)
    files = (
        File(path="/etc/resolv.conf", data=b"nameserver 192.0.2.53\n"),
        File(path="/etc/services", data=b"of the spec\n"),
        File(path="/etc/new/deep", data=b"made up\n"),
        File(path="/tmp/placed", data=b"in tmp\n"),
        File(path="/opt/given/there", data=b"over a mount\n"),
        File(path="/etc/hosts", data=b"first\n"),
        File(path="/etc/hosts", data=b"127.0.0.1 localhost\n192.0.2.8 here\n"),
    )
    spec = SandboxSpec(
        id="files",
        files=files,
        capture=Capture(),
        mounts=(Mount(source=str(given), target="/opt/given"),),
    )
    async with captured(Outlet(), spec) as sandbox:
        for file in files[:5]:
            assert (await run(sandbox, "cat", file.path)).encode() == file.data
            script = f"echo x > {file.path} || rm -f {file.path}"
            await run(sandbox, "sh", "-c", script, code=1)
        assert "here" in await run(sandbox, "getent", "hosts", "here")
    assert (given / "there").read_text() == "of the host\n"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("etc/relative", "no absolute path"),
        ("/etc/../up", "no absolute path"),
        ("/etc//two", "no absolute path"),
        ("/etc/a\0b", "no absolute path"),
        ("", "no absolute path"),
        ("/workspace", "cannot be shown"),
        ("/workspace/file", "cannot be shown"),
        ("/proc/version", "cannot be shown"),
        ("/dev/null", "cannot be shown"),
        ("/run/isobox/guest", "cannot be shown"),
        ("/", "would hide"),
        ("/etc", "would hide"),
        ("/tmp", "would hide"),
        ("/usr", "would hide"),
        ("/home", "would hide"),
        ("/etc/passwd", "would hide"),
        ("/usr/absent", "no such file"),
        ("/usr/bin", "no such file"),
        ("/etc/ssl/certs/absent", "no such file"),
    ],
)
async def test_files_where_none_can_be(path, why):
    spec = SandboxSpec(id="files", files=(File(path=path, data=b""),))
    with pytest.raises(InvalidArgumentError, match=why):
        await BubblewrapProvider().create(spec)


# -- the relay --------------------------------------------------------------------


async def test_the_filter_s_port_is_relayed():
    outlet = Outlet()
    async with captured(outlet, kind=Relayed) as sandbox:
        where = ("127.0.0.1:3128", "127.64.0.9:443", "203.0.113.9:443")
        assert await connect(sandbox, *where) == [
            "127.0.0.1 3128",
            "ConnectionRefusedError",
            "OSError",
        ]


async def test_every_port_is_relayed_where_it_can_be_had():
    outlet = Outlet("127.64.0.9")
    async with captured(outlet, kind=RelayedFully) as sandbox:
        assert await connect(sandbox, "127.64.0.9:443", "127.64.0.9:444") == [
            "127.64.0.9 443",
            "ConnectionRefusedError",
        ]
        found = await run(sandbox, "getent", "hosts", "www.example.org")
        assert found.split() == ["127.64.0.9", "www.example.org"]
        assert await ask(sandbox, "127.0.0.1") == ["127.64.0.9"]
        script = CONNECT + "print('end')"
        where = ("www.example.org:80",)
        assert await run(sandbox, "python3", "-c", script, *where) == (
            "127.64.0.9 80\nend\n"
        )


async def test_a_relayed_crowd_is_bounded():
    outlet = Holding()
    async with captured(outlet, kind=Relayed) as sandbox:
        script = """
import socket
held = [socket.socket() for _ in range(800)]
for sock in held:
    sock.setblocking(False)
    sock.connect_ex(("127.0.0.1", 3128))
print("up", flush=True)
input()
"""
        process = await sandbox.spawn(
            Spawn(argv=("python3", "-c", script), cwd=sandbox.root, stdin=True)
        )
        assert await process.stdout.receive() == b"up\n"
        await until(lambda: outlet.open == 512)
        await asyncio.sleep(0.1)
        assert outlet.open == outlet.most == 512
        await until(lambda: len(outlet.seen) == 800)
        assert outlet.most == 512
        assert await run(sandbox, "echo", "works") == "works\n"
        await process.kill()
        await until(lambda: outlet.open == 0)
    assert outlet.open == 0


@pytest.mark.parametrize("kind", [BubblewrapSandbox, Relayed])
async def test_bytes_arrive_as_they_were_sent(kind):
    class Echo(Outlet):
        async def connected(self, connection, address, port):
            async for piece in connection:
                await connection.send(piece)
            await connection.send_eof()
            await connection.aclose()

    script = """
import hashlib, os, socket, threading
content = os.urandom(1 << 20) * 20
with socket.create_connection(("127.0.0.1", 3128), 10) as client:
    def send():
        client.sendall(content)
        client.shutdown(socket.SHUT_WR)
    threading.Thread(target=send).start()
    found = hashlib.sha256()
    while piece := client.recv(1 << 20):
        found.update(piece)
print(found.digest() == hashlib.sha256(content).digest())
"""
    async with captured(Echo(), kind=kind) as sandbox:
        assert await run(sandbox, "python3", "-c", script) == "True\n"


class Generous(Outlet):
    """Sends so much that it is not all taken at once, and closes."""

    content = b"x" * (8 << 20)
    closed = 0

    async def connected(self, connection, address, port):
        await connection.receive()
        await connection.send(self.content)
        await connection.send_eof()
        await connection.aclose()
        self.closed += 1


SLOW = """
import socket, sys
with socket.socket() as client:
    client.settimeout(30)
    # Before it connects, or the kernel takes megabytes for it.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", 3128))
    client.send(b"x")
    print("up", flush=True)
    input()
    count = 0
    try:
        while piece := client.recv(1 << 14):
            count += len(piece)
    except ConnectionResetError:
        print("reset")
    else:
        print(count)
"""


@pytest.mark.parametrize("kind", [BubblewrapSandbox, Relayed])
async def test_what_was_sent_before_the_close_arrives(kind):
    outlet = Generous()
    async with captured(outlet, kind=kind) as sandbox:
        slow = Spawn(argv=("python3", "-c", SLOW), cwd=sandbox.root, stdin=True)
        process = await sandbox.spawn(slow)
        assert await process.stdout.receive() == b"up\n"
        await asyncio.sleep(0.3)
        await process.write(b"\n")
        assert await process.stdout.receive() == b"%d\n" % len(outlet.content)
        assert await run(sandbox, "echo", "works") == "works\n"


async def test_closed_connections_that_nobody_reads_are_bounded():
    outlet = Generous()
    # The kernel keeps 2.7 MiB for a client that does not read, the guest one more.
    outlet.content = bytes(3_400_000)
    async with captured(outlet, kind=Relayed) as sandbox:
        script = """
import socket
held = []
for _ in range(70):
    client = socket.socket()
    client.settimeout(30)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", 3128))
    client.send(b"x")
    held.append(client)
input()
found = []
for client in held:
    count = 0
    try:
        while piece := client.recv(1 << 16):
            count += len(piece)
    except ConnectionResetError:
        found.append("reset")
    else:
        found.append(count)
print(sorted({str(each): found.count(each) for each in found}.items()))
"""
        process = await sandbox.spawn(
            Spawn(argv=("python3", "-c", script), cwd=sandbox.root, stdin=True)
        )
        await until(lambda: outlet.closed == 70)
        await process.write(b"\n")
        found = await process.stdout.receive()
        assert found == b"[('3400000', 64), ('reset', 6)]\n"


@pytest.mark.parametrize("kind", [BubblewrapSandbox, Relayed])
async def test_a_connection_that_breaks_off_is_seen_as_broken(kind):
    class Breaking(Outlet):
        async def connected(self, connection, address, port):
            await connection.receive()
            await connection.abort()

    script = """
import socket
with socket.create_connection(("127.0.0.1", 3128), 10) as client:
    client.send(b"x")
    try:
        print(client.recv(1))
    except ConnectionResetError:
        print("reset")
"""
    async with captured(Breaking(), kind=kind) as sandbox:
        assert await run(sandbox, "python3", "-c", script) == "reset\n"


async def test_a_port_is_listened_on():
    sandbox = await BubblewrapProvider().create(SandboxSpec(id="listen"))
    try:
        async with await sandbox.listen(Listen()) as listener:
            script = CONNECT
            where = f"127.0.0.1:{listener.port}"
            running = asyncio.create_task(run(sandbox, "python3", "-c", script, where))
            connection = await listener.accept()
            await connection.send(b"hello")
            await connection.aclose()
            assert await running == "hello\n"
        assert await connect(sandbox, where) == ["ConnectionRefusedError"]
    finally:
        await sandbox.aclose()


# -- where processes are found ----------------------------------------------------


def test_the_first_child_is_found_without_a_list_of_them(monkeypatch):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        assert processes.child(os.getpid()) in _children()
        assert child.pid in _children()

        monkeypatch.setattr("builtins.open", _without_lists(open))
        # Another thread's children are in no list of this one's.
        found = processes.child(os.getpid())
        assert f"PPid:\t{os.getpid()}\n" in Path(f"/proc/{found}/status").read_text()


def _children():
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return list(map(int, text.split()))


def _without_lists(real):
    def opened(path, *arguments, **options):
        if str(path).endswith("/children"):
            raise FileNotFoundError(path)
        return real(path, *arguments, **options)

    return opened
