"""The way in to a daemon: of no use to the workload, and never a loss to a host."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.daemons import WORKLOAD, AttachedWorkspace, Daemon, needs_root

from isobox._guest import agent, daemon
from isobox.abc import Attach, Spawn
from isobox.errors import PathMissingError, SandboxLostError

pytestmark = [pytest.mark.anyio, needs_root]

KNOCK = """
import socket, sys
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.settimeout(10)
sock.connect(b"\\0" + sys.argv[1].encode())
def let_in():
    # The daemon bids whoever may be a relay to show the key; to others it is shut.
    return sock.recv(1) or b"not even asked"
"""
#: Tries to be let in, with its own standard output, and tells what it was told.
TRY = (
    KNOCK
    + """
import array
rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1]))
try:
    asked = let_in()
    sock.sendmsg([sys.argv[2].encode()], [rights])
    print(sock.recv(1))
except (BrokenPipeError, ConnectionResetError):
    print(b"")
"""
)
FLOOD = """
import os, socket, sys, time
for _ in range(3):
    os.fork()
held, until = [], time.time() + float(sys.argv[2])
while time.time() < until:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.setblocking(False)
    try:
        sock.connect(b"\\0" + sys.argv[1].encode())
        sock.send(b"x" * 1000)
    except OSError:
        pass
    held.append(sock)
    del held[:-200]
"""


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def made():
    with Daemon() as running:
        yield running


@pytest.fixture
async def workspace(made):
    async with AttachedWorkspace(made) as opened:
        yield opened


async def tried(workspace, script: str, *arguments: str) -> str:
    result = await workspace.run(["python3", "-c", script, *arguments], timeout=60)
    return result.stdout + result.stderr


# -- the workload --------------------------------------------------------------------


async def test_the_workload_is_not_let_in(made, workspace):
    assert await tried(workspace, TRY, daemon.NAME, daemon.new_key()) == "b''\n"


async def test_the_workload_is_not_let_in_with_the_key(made, workspace):
    # Even if it leaked: the kernel says who knocks.
    assert await tried(workspace, TRY, daemon.NAME, made.key) == "b''\n"
    assert (await workspace.run("echo on")).stdout == "on\n"


async def test_the_workload_finds_no_key(made, workspace):
    script = """
import os, sys
key = (sys.argv[1] + sys.argv[2]).encode()
def memory(pid):
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as file:
        for line in maps:
            begin, end = (int(each, 16) for each in line.split()[0].split("-"))
            try:
                file.seek(begin)
                yield file.read(end - begin)
            except (OSError, OverflowError, ValueError):
                pass
def known(pid):
    for name in ("cmdline", "environ"):
        with open(f"/proc/{pid}/{name}", "rb") as file:
            yield file.read()
looked = 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid():
        continue
    for source in (known, memory):
        try:
            for text in source(pid):
                looked += 1
                if key in text:
                    print("found by", source.__name__, pid)
        except OSError:
            pass
print(looked > 10)
"""
    async with await workspace.start(["sleep", "97"]):
        argv = [script, made.key[:30], made.key[30:]]
        assert await tried(workspace, *argv) == "True\n"


@pytest.mark.parametrize("whose", ["1", "relay"])
async def test_the_workload_sees_nothing_of_the_daemon_or_a_relay(
    made, workspace, whose
):
    script = """
import ctypes, os, sys
def name(pid):
    return open(f"/proc/{pid}/cmdline").read()
pids = [pid for pid in os.listdir("/proc") if pid.isdigit()]
relays = [pid for pid in pids if "Brings a channel" in name(pid)]
pid = sys.argv[1] if sys.argv[1] != "relay" else relays[0]
for what in ("fd", "map_files", "task/%s/fd" % pid):
    try:
        print(os.listdir(f"/proc/{pid}/{what}"))
    except PermissionError:
        pass
for what in ("mem", "environ", "auxv", "syscall", "stack"):
    try:
        open(f"/proc/{pid}/{what}", "rb").read(1)
        print(what)
    except PermissionError:
        pass
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(16, int(pid), 0, 0) == 0:
    print("traced")
if libc.syscall(438, libc.syscall(434, int(pid), 0), 0, 0) >= 0:
    print("took a descriptor")
for signal in (2, 9, 15, 19):
    try:
        os.kill(int(pid), signal)
    except PermissionError:
        pass
print("done")
"""
    assert await tried(workspace, script, whose) == "done\n"
    assert (await workspace.run("echo on")).stdout == "on\n"


async def test_a_flood_neither_slows_nor_exhausts_the_daemon(made, workspace):
    before = await _median(workspace)
    flood = await workspace.start(
        ["python3", "-c", FLOOD, daemon.NAME, "6"], timeout=60
    )
    await asyncio.sleep(0.5)
    during = await _median(workspace)
    # A new host comes in all the same.
    began = time.monotonic()
    async with AttachedWorkspace(made) as other:
        assert (await other.run("echo on")).stdout == "on\n"
    assert time.monotonic() - began < 5
    descriptors = len(os.listdir(f"/proc/{made.pid}/fd"))
    await flood.kill()
    assert descriptors < 100
    # Eight processes that spin beside it on two processors slow anything down.
    assert during < max(40 * before, 0.5)


async def _median(workspace) -> float:
    times = []
    for _ in range(15):
        began = time.monotonic()
        await workspace.exists(".")
        times.append(time.monotonic() - began)
    return sorted(times)[7]


# -- whoever else --------------------------------------------------------------------


def told(made: Daemon, script: str, *arguments: str, user: int = 0) -> str:
    made.await_listening()
    run = made.inside(
        ["python3", "-c", script, daemon.NAME, *arguments],
        user=user,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    out, _ = run.communicate(timeout=60)
    return out.decode()


@pytest.mark.parametrize("key", ["", "x", "x" * 64, "x" * 200, "x" * 5000])
def test_a_wrong_key_is_refused(made, key):
    assert told(made, TRY, key) == "b''\n"


def test_who_says_nothing_is_turned_away_in_time(made):
    began = time.monotonic()
    assert told(made, KNOCK + "let_in(); print(sock.recv(1))") == "b''\n"
    assert 1 < time.monotonic() - began < 10


def test_only_so_many_may_be_silent(made):
    silent = """
import socket, sys
held = []
for _ in range(300):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(b"\\0" + sys.argv[1].encode())
    held.append(sock)
held[0].settimeout(1.5)
print(held[0].recv(1), held[0].recv(1))
"""
    assert told(made, silent) == "b'\\x00' b''\n"


async def test_the_key_without_two_descriptors_is_refused(made):
    for count in (0, 1, 3, 60):
        script = (
            KNOCK
            + f"""
import array
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1] * {count}))]
let_in()
sock.sendmsg([sys.argv[2].encode()], rights if {count} else [])
print(sock.recv(1))
"""
        )
        assert told(made, script, made.key) == "b''\n"
    before = len(os.listdir(f"/proc/{made.pid}/fd"))
    async with AttachedWorkspace(made) as workspace:
        assert (await workspace.run("echo on")).stdout == "on\n"
    assert len(os.listdir(f"/proc/{made.pid}/fd")) <= before + 3


async def test_a_relay_of_the_workloads_user_is_refused(made):
    with pytest.raises(SandboxLostError):
        await made.attach(user=WORKLOAD)


async def test_a_relay_with_another_key_is_refused(made):
    with pytest.raises(SandboxLostError):
        await made.attach(key=daemon.new_key())


async def test_who_connects_and_vanishes_leaves_nothing(made):
    async with AttachedWorkspace(made) as workspace:
        before = len(os.listdir(f"/proc/{made.pid}/fd"))
        for step in range(12):
            ours, theirs = socket.socketpair()
            with theirs:
                relay = made.relay(theirs)
            said = daemon.greeting(made.key) + _frame(agent.CONFIG, 0, {})
            spawn = {"op": "spawn", "argv": [b"sleep", b"0.1"], "cwd": b"/"}
            said += _frame(agent.OPEN, 1, spawn)
            ours.sendall(said[: len(said) * step // 11])
            await asyncio.sleep(0.01 * (step % 4))
            if step % 3 == 2:
                relay.kill()
            ours.close()
            assert relay.wait(20) is not None
        await asyncio.sleep(0.5)
        assert len(os.listdir(f"/proc/{made.pid}/fd")) <= before + 12
        assert (await workspace.run("echo on")).stdout == "on\n"


def _frame(kind: int, stream: int, fields: dict) -> bytes:
    payload = agent.encode(fields)
    return agent.HEADER.pack(len(payload), kind, stream) + payload


# -- hosts that come and go ----------------------------------------------------------


async def test_commands_outlive_a_host_that_is_lost(made):
    async with AttachedWorkspace(made) as first:
        script = "echo one; sleep 0.5; echo two; read x; echo $x; exit 3"
        process = await first.start(script, stdin=True)
        assert await process.stdout.receive() == b"one\n"
        first._sandbox.channel._transport.abort()
        with pytest.raises(SandboxLostError):
            await process.wait()
    await asyncio.sleep(0.7)
    async with AttachedWorkspace(made) as second:
        (found,) = [each for each in await second.processes() if each.end is None]
        assert (found.id, found.command) == (process.id, script)
        again = await second.attach(process.id, stdout_from=4)
        assert await again.stdout.receive() == b"two\n"
        await again.write(b"three\n")
        assert await again.stdout.read() == b"three\n"
        assert (await again.wait()).exit_code == 3
        ended = {each.id: each.end for each in await second.processes()}
        assert ended[process.id].exit_code == 3


async def test_file_operations_of_a_lost_host_are_cancelled(made):
    async with AttachedWorkspace(made) as first, AttachedWorkspace(made) as second:

        async def endless():
            while True:
                yield b"x" * 65536
                await asyncio.sleep(0.01)

        writing = asyncio.ensure_future(first.write("big", endless()))
        await asyncio.sleep(0.2)
        first._sandbox.channel._transport.abort()
        with pytest.raises(SandboxLostError):
            await writing
        await asyncio.sleep(0.2)
        assert (await second.scan(".")).entries == ()


async def test_a_clean_close_ends_what_only_this_host_holds(made):
    async with AttachedWorkspace(made) as other:
        async with AttachedWorkspace(made) as first:
            own = await first.start("sleep 97")
            shared = await first.start("sleep 98")
            kept = await other.attach(shared.id)
            lasting = await first.run("sleep 99 >/dev/null 2>&1 & echo $!")
        left = {each.id for each in await other.processes() if each.end is None}
        assert own.id not in left
        assert shared.id in left
        assert not Path(f"/proc/{made.pid}/root/proc/{lasting.stdout.strip()}").exists()
        await kept.kill()
        assert (await kept.wait()).signal == "SIGKILL"


async def test_a_host_may_leave_its_commands(made):
    host = await made.attach()
    process = await host.spawn(Spawn(argv=("sleep", "97"), cwd="/"))
    await host.channel.aclose(detach=True)
    await host.aclose()
    async with AttachedWorkspace(made) as other:
        found = await other.attach(process.id)
        await found.kill()


async def test_what_is_dropped_is_told_exactly(made):
    async with AttachedWorkspace(made) as first:
        process = await first.start("read x; seq 1 600000; sleep 97", stdin=True)
        await process.write(b"\n")
        first._sandbox.channel._transport.abort()
    await asyncio.sleep(2)
    expected = "".join(f"{n}\n" for n in range(1, 600_001)).encode()
    async with AttachedWorkspace(made) as second:
        again = await second.attach(process.id, stdout_from=10)
        lost = again.stdout.lost
        assert 0 < lost <= len(expected) - agent.KEPT
        seen = b""
        while len(seen) < len(expected) - lost - 10:
            seen += await again.stdout.receive()
        assert seen == expected[10 + lost :]
        await again.kill()


async def test_a_reader_holds_the_command_up_and_loses_nothing(made):
    async with AttachedWorkspace(made) as first, AttachedWorkspace(made) as second:
        process = await first.start("seq 1 600000")
        await process.stdout.receive()
        again = await second.attach(process.id)
        await asyncio.sleep(1)  # nobody reads: it does not run away
        one, other = await asyncio.gather(process.stdout.read(), again.stdout.read())
        assert other == "".join(f"{n}\n" for n in range(1, 600_001)).encode()
        assert other.endswith(one)
        assert again.stdout.lost == 0


NONSENSE = (
    agent.HEADER.pack(5, agent.OPEN, 1) + b"xxxxx",
    agent.HEADER.pack(1, agent.OPEN, 1) + agent.encode(None),
    agent.HEADER.pack(3, agent.BYE, 0) + b"xxx",
    agent.HEADER.pack(agent.LARGEST + 1, agent.OPEN, 1),
    agent.HEADER.pack(3, agent.CONFIG, 0) + b"xxx",
)


@pytest.mark.parametrize("said", NONSENSE)
async def test_a_host_that_speaks_nonsense_harms_no_other(made, said):
    async with AttachedWorkspace(made) as other:
        broken = await made.attach()
        broken.channel._transport.write(said)
        await asyncio.wait([broken.channel._closed], timeout=20)
        assert broken.relay.wait(20) == 0
        assert (await other.run("echo on")).stdout == "on\n"


async def test_a_broken_request_fails_alone(made):
    async with AttachedWorkspace(made) as workspace:
        process = await workspace.start("sleep 97")
        stream = process.stream
        stream.control("signal")
        with pytest.raises(SandboxLostError, match="signal"):
            await process.wait()
        assert (await workspace.run("echo on")).stdout == "on\n"
        again = await workspace._sandbox.attach(Attach(id=process.id))
        await again.kill()


async def test_who_gives_up_attaching_holds_nothing_up(made):
    async with AttachedWorkspace(made) as first, AttachedWorkspace(made) as second:
        script = "read x; head -c 5000000 /dev/zero; sleep 97"
        process = await first.start(script, stdin=True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await second._sandbox.attach(Attach(id=process.id))
        assert (await second.run("echo on")).stdout == "on\n"
        await process.write(b"\n")
        seen = 0
        async with asyncio.timeout(30):
            while seen < 5_000_000:
                seen += len(await process.stdout.receive())


async def test_only_so_many_that_ended_are_known(made):
    async with AttachedWorkspace(made) as workspace:
        processes = [await workspace.start(["true"]) for _ in range(80)]
        for process in processes:
            await process.wait()
        await workspace.run("true")
        assert len(await workspace.processes()) <= agent._ENDED
        with pytest.raises(PathMissingError):
            await workspace.attach(processes[0].id)
        late = await workspace.attach(processes[-1].id)
        assert (await late.wait()).exit_code == 0


async def test_what_is_kept_is_bounded_in_all(made):
    async with AttachedWorkspace(made) as workspace:
        script = "head -c 1200000 /dev/zero; exec 1>&- 2>&-; sleep 97"
        for _ in range(90):
            process = await workspace.start(script)
            assert len(await process.stdout.read()) == 1_200_000
        status = Path(f"/proc/{made.pid}/status").read_text()
        resident = int(status.split("VmRSS:")[1].split()[0])
        assert resident < (agent._KEPT_IN_ALL >> 10) * 2


def test_a_daemon_that_nobody_needs_ends_with_all_that_runs():
    with Daemon(linger=1.0) as made:

        async def start():
            async with AttachedWorkspace(made) as workspace:
                await workspace.start("setsid sleep 97 & sleep 98")
                await asyncio.sleep(1.5)  # it is needed
                workspace._sandbox.channel._transport.abort()

        asyncio.run(start())
        assert made.ended() == 0


def test_a_daemon_that_nobody_ever_needs_ends():
    with Daemon(linger=0.5) as made:
        assert made.ended() == 0


# -- a host that is killed -----------------------------------------------------------

HOST = """
import asyncio, socket, sys
from isobox._channel.channel import Channel
from isobox._channel.sandbox import ChannelSandbox
from isobox._core.ops import Attach, Spawn
from isobox._guest import daemon

SCRIPT = '''
n=0
while :; do
    echo $n; n=$((n+1)); [ $((n % 20)) = 0 ] && sleep 0.05
done
'''

async def read(process, log):
    while piece := await process.stdout.receive():
        log.write(piece)
        log.flush()

async def main(fd, key, folder, names):
    ours = socket.socket(fileno=fd)
    ours.sendall(daemon.greeting(key))
    channel = await Channel.over(ours)
    await channel.greet({}, timeout=30)
    can = frozenset({"reattach"})
    host = ChannelSandbox(
        channel, backend="daemon", root="/", capabilities=can, isolation=None
    )
    tasks = []
    for number in range(20):
        log = open(f"{folder}/log-{number}", "ab", buffering=0)
        if names:
            at = log.tell()
            process = await host.attach(Attach(id=names[number], stdout=at))
            with open(f"{folder}/lost-{number}", "a") as lost:
                print(at, process.stdout.lost, file=lost)
        else:
            process = await host.spawn(Spawn(script=SCRIPT, cwd="/"))
        print(process.id, flush=True)
        tasks.append(asyncio.ensure_future(read(process, log)))
    print("all", flush=True)
    await asyncio.gather(*tasks)

asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]))
"""


def _host(
    made: Daemon, folder: Path, names: list[str]
) -> tuple[subprocess.Popen, subprocess.Popen]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        relay = made.relay(theirs)
        where = [str(ours.fileno()), made.key, str(folder)]
        host = subprocess.Popen(
            [sys.executable, "-c", HOST, *where, *names],
            stdout=subprocess.PIPE,
            pass_fds=[ours.fileno()],
            text=True,
        )
    return host, relay


@pytest.mark.timeout(300)
def test_a_host_that_is_killed_twenty_times_loses_no_byte(tmp_path):
    with Daemon(linger=60.0) as made:
        names: list[str] = []
        for kill in range(20):
            host, relay = _host(made, tmp_path, names)
            assert host.stdout is not None
            told = []
            # Once while it attaches, at another command each time, else later.
            for line in host.stdout:
                told.append(line.strip())
                if line == "all\n" or (names and kill % 3 == 0 and len(told) == kill):
                    break
            if not names:
                names = told[:20]
                assert len(names) == 20
            time.sleep(0.05 + secrets.randbelow(100) / 1000)
            host.send_signal(signal.SIGKILL)
            host.wait(20)
            host.stdout.close()
            # It ends as the daemon sees that its host is gone.
            assert relay.wait(20) == 0
        for number in range(20):
            _check_log(tmp_path, number)


def _check_log(folder: Path, number: int) -> None:
    """Every byte is there, in order and once, but those that were told of."""
    log = (folder / f"log-{number}").read_bytes()
    lost = (folder / f"lost-{number}").read_text().split("\n")[:-1]
    assert [line.split()[1] for line in lost] == ["0"] * len(lost)
    expected, count = bytearray(), 0
    while len(expected) < len(log):
        expected += b"%d\n" % count
        count += 1
    assert log == bytes(expected[: len(log)])
    assert len(log) > 200
