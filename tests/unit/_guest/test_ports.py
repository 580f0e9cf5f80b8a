"""Ports that the guest opens; the host hears no more than it has room for."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import sys
import time

import pytest
from tests.unit._guest.client import Guest, sees_descriptors, stdout

from isobox._guest import agent

LOCAL = "127.0.0.1"
HEADER = struct.Struct(">HH")


def port_of(guest, op, **fields):
    answer = guest.open(op, **{"port": 0, **fields})
    guest.until(lambda: bool(answer.events) or answer.done)
    assert answer.error is None
    return answer, answer.events[0]["port"]


def connect(port, address=LOCAL):
    return socket.create_connection((address, port), timeout=10)


@contextlib.contextmanager
def clients(port, count):
    with contextlib.ExitStack() as held:
        yield [held.enter_context(connect(port)) for _ in range(count)]


# -- connections ------------------------------------------------------------------


def test_the_address_that_was_dialled_is_told(guest):
    answer, port = port_of(guest, "listen", host="0.0.0.0")
    with connect(port, "127.64.3.2"):
        guest.until(lambda: bool(guest.accepted))
    [fields] = guest.accepted.values()
    assert fields == {
        "listener": answer.number,
        "address": "127.64.3.2",
        "port": port,
    }


def test_no_more_are_accepted_than_the_host_grants(guest):
    answer, port = port_of(guest, "listen")
    with clients(port, agent.WAITING + 5):
        guest.until(lambda: len(guest.accepted) == agent.WAITING)
        time.sleep(0.1)
        guest.ping()
        assert len(guest.accepted) == agent.WAITING
        guest.credit(answer, agent.BODY, 3)
        guest.until(lambda: len(guest.accepted) == agent.WAITING + 3)
        guest.ping()
        assert len(guest.accepted) == agent.WAITING + 3


def test_an_accepted_connection_sends_within_a_smaller_window(guest):
    guest.generous = False
    _, port = port_of(guest, "listen")
    with connect(port) as client:
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.sendall(bytes(20_000_000))
        guest.until(lambda: bool(guest.accepted))
        [stream] = guest.accepted
        answer = guest.answers[stream]
        guest.until(lambda: len(answer.bytes()) == agent.ACCEPTED_WINDOW)
        guest.ping()
        assert len(answer.bytes()) == agent.ACCEPTED_WINDOW


@pytest.mark.parametrize(("how", "seen"), [("abort", "reset"), ("cancel", "end")])
def test_a_connection_is_broken_off_or_closed(guest, how, seen):
    _, port = port_of(guest, "listen")
    with connect(port) as client:
        guest.until(lambda: bool(guest.accepted))
        answer = guest.answers[next(iter(guest.accepted))]
        guest.control(answer, how)
        guest.control(answer, "cancel")
        guest.result(answer)
        try:
            found = "end" if client.recv(1) == b"" else "bytes"
        except ConnectionResetError:
            found = "reset"
    assert found == seen


@sees_descriptors
def test_without_descriptors_it_waits_for_some(guest):
    answer, port = port_of(guest, "listen")
    used = len(os.listdir(f"/proc/{guest.pid}/fd"))
    soft, hard = resource.prlimit(guest.pid, resource.RLIMIT_NOFILE)
    # Room for one connection, and for one that cannot be carried.
    resource.prlimit(guest.pid, resource.RLIMIT_NOFILE, (used + 4, hard))
    with clients(port, 4):
        guest.until(lambda: bool(guest.accepted))
        before = cpu(guest.pid)
        time.sleep(0.5)
        guest.ping()
        assert cpu(guest.pid) - before < 0.2
        resource.prlimit(guest.pid, resource.RLIMIT_NOFILE, (soft, hard))
        guest.until(lambda: len(guest.accepted) == 4)
        refused = [stream for stream in guest.accepted if guest.answers[stream].error]
        assert len(refused) < 4
    guest.control(answer, "cancel")
    guest.result(answer)


def cpu(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_port_that_is_root_s_is_refused():
    limit = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
    with open(limit, encoding="ascii") as file:
        if int(file.read()) == 0:
            pytest.skip("no port is root's here")
    become = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    with Guest(
        python="/usr/bin/python3" if os.geteuid() == 0 else sys.executable,
        prefix=become if os.geteuid() == 0 else (),
    ) as guest:
        assert guest.refusal(guest.open("listen", port=81)) == "access"
        assert guest.refusal(guest.open("datagrams", port=53)) == "access"


# -- datagrams --------------------------------------------------------------------


@pytest.fixture
def asker():
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        yield sock


def messages(answer):
    data, found = answer.bytes(), []
    while data:
        number, size = HEADER.unpack_from(data)
        found.append((number, data[4 : 4 + size]))
        data = data[4 + size :]
    return found


def test_datagrams_go_to_the_host_and_answers_come_back(guest, asker):
    answer, port = port_of(guest, "datagrams")
    with socket.socket(type=socket.SOCK_DGRAM) as another:
        another.settimeout(10)
        asker.sendto(b"one", (LOCAL, port))
        guest.until(lambda: len(messages(answer)) == 1)
        another.sendto(b"", (LOCAL, port))
        guest.until(lambda: len(messages(answer)) == 2)
        (first, one), (second, nothing) = messages(answer)
        assert (one, nothing) == (b"one", b"")
        # In pieces, and in another order.
        back = HEADER.pack(second, 3) + b"two" + HEADER.pack(first, 4) + b"back"
        for at in range(len(back)):
            guest.data(answer, back[at : at + 1], agent.BODY)
        assert another.recv(100) == b"two"
        assert asker.recvfrom(100) == (b"back", (LOCAL, port))
    guest.until(lambda: answer.granted == len(back))


def test_an_answer_to_nobody_is_dropped(guest, asker):
    answer, port = port_of(guest, "datagrams")
    guest.data(answer, HEADER.pack(77, 1) + b"x", agent.BODY)
    asker.sendto(b"q", (LOCAL, port))
    guest.until(lambda: len(messages(answer)) == 1)
    [(number, _)] = messages(answer)
    for _ in range(2):
        guest.data(answer, HEADER.pack(number, 1) + b"a", agent.BODY)
    assert asker.recv(10) == b"a"
    asker.settimeout(0.1)
    with pytest.raises(TimeoutError):
        asker.recv(10)


def test_a_long_datagram_is_dropped(guest, asker):
    answer, port = port_of(guest, "datagrams")
    asker.sendto(bytes(agent.LONGEST_DATAGRAM + 1), (LOCAL, port))
    asker.sendto(bytes(agent.LONGEST_DATAGRAM), (LOCAL, port))
    guest.until(lambda: bool(answer.bytes()))
    assert [len(data) for _, data in messages(answer)] == [agent.LONGEST_DATAGRAM]


def test_a_flood_stays_within_the_window(guest, asker):
    guest.generous = False
    answer, port = port_of(guest, "datagrams")
    for _ in range(1000):
        asker.sendto(bytes(4000), (LOCAL, port))
        guest.ping()
    assert len(answer.bytes()) <= agent.WINDOW
    guest.credit(answer, agent.BODY, len(answer.bytes()))
    seen = len(answer.bytes())
    asker.sendto(b"still there", (LOCAL, port))
    guest.until(lambda: len(answer.bytes()) > seen)


# -- descriptors ------------------------------------------------------------------


def test_what_it_starts_may_open_as_many_files_as_before():
    limited = ("prlimit", "--nofile=300:2000")
    with Guest(prefix=limited) as guest:
        port_of(guest, "listen")
        _, port = port_of(guest, "listen")
        script = b"ulimit -Sn; ulimit -Hn"
        for _ in range(3):
            # The first warden may be older than the port.
            ran = [guest.spawn(script=script) for _ in range(3)]
            assert {stdout(guest.result(each)) for each in ran} == {b"300\n2000\n"}
        with clients(port, 150):
            guest.credit(guest.answers[2], agent.BODY, 150)
            guest.until(lambda: len(guest.accepted) == 150)
            assert not any(guest.answers[stream].error for stream in guest.accepted)
