"""Questions for names are answered on the spot, and carry nothing out."""

from __future__ import annotations

import ipaddress
import json

import pytest
from tests.egress.lab import zone

pytestmark = pytest.mark.anyio

ASK = """
import json, socket, struct, sys
def message(name, kind):
    labels = [bytes([len(each)]) + each.encode("latin-1") for each in name.split(".")]
    header = struct.pack("!6H", 7, 0x100, 1, 0, 0, 0)
    return header + b"".join(labels) + b"\\0" + struct.pack("!HH", kind, 1)
def over_udp(query, server):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(2)
        sock.sendto(query, (server, 53))
        answer, sender = sock.recvfrom(4096)
        assert sender == (server, 53), sender
        return answer
def over_tcp(query, server):
    with socket.create_connection((server, 53), 2) as sock:
        sock.sendall(struct.pack("!H", len(query)) + query)
        with sock.makefile("rb") as file:
            (size,) = struct.unpack("!H", file.read(2))
            return file.read(size)
found = []
for how, name, kind, server in json.load(sys.stdin):
    try:
        answer = {"udp": over_udp, "tcp": over_tcp}[how](message(name, kind), server)
        number, flags, _, records, _, _ = struct.unpack_from("!6H", answer)
        assert number == 7
        address = socket.inet_ntoa(answer[-4:]) if records else None
        found.append([flags & 15, records, address])
    except OSError as error:
        found.append(str(error))
print(json.dumps(found))
"""
NAMES_AT = {"caught": "198.18.0.0/15", "relayed fully": "127.64.0.0/10"}


@pytest.fixture(params=NAMES_AT)
def catching(request):
    """A kind whose programs may ask a name server."""
    return request.param


async def ask(workspace, *questions: tuple[str, str, int, str]):
    """Ask for names inside: over which protocol, which, what, and whom."""
    result = await workspace.run(
        ["python3", "-c", ASK], stdin=json.dumps(questions), timeout=60
    )
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


async def test_names_that_are_not_allowed(internet, make, catching):
    data = "5365637265742d64617461" * 2
    questions = [
        (how, name, kind, "127.0.0.1")
        for how in ("udp", "tcp")
        for name in ("evil.test", f"{data}.evil.test", f"{data}.www.example.org")
        for kind in (1, 28, 16, 5, 15, 255, 65280)
    ]
    async with make(["www.example.org"], kind=catching) as workspace:
        found = await ask(workspace, *questions)
    assert found == [[3, 0, None]] * len(questions)
    assert internet.names.questions == []
    assert internet.connections == []


async def test_names_that_are_allowed(internet, make, catching):
    async with make(
        ["www.example.org", "*.cdn.example.org"], kind=catching
    ) as workspace:
        found = await ask(
            workspace,
            ("udp", "www.example.org", 1, "127.0.0.1"),
            ("tcp", "WWW.example.org", 1, "127.0.0.1"),
            ("udp", "static.cdn.example.org", 1, "127.0.0.1"),
            ("udp", "www.example.org", 28, "127.0.0.1"),
            ("udp", "www.example.org", 16, "127.0.0.1"),
        )
    (_, _, first), (_, _, same), (_, _, other) = found[:3]
    assert first == same != other
    network = ipaddress.ip_network(NAMES_AT[catching])
    assert {
        ipaddress.ip_address(first) in network,
        ipaddress.ip_address(other) in network,
    } == {True}
    assert found[3:] == [[0, 0, None], [0, 0, None]]
    # Nobody outside was asked: nobody has connected yet.
    assert internet.names.questions == []


async def test_whoever_is_asked(internet, make):
    servers = ("8.8.8.8", "1.1.1.1", zone.PRIVATE, zone.METADATA)
    questions = [
        (how, name, 1, server)
        for how in ("udp", "tcp")
        for server in servers
        for name in ("evil.test", "www.example.org")
    ]
    async with make(["www.example.org"]) as workspace:
        found = await ask(workspace, *questions)
    assert [code for code, _, _ in found] == [3, 0] * 8
    assert internet.names.questions == []


async def test_a_thousand_names(internet, make, catching):
    questions = [
        ("udp", f"data{number}.evil.test", 1, "127.0.0.1") for number in range(1000)
    ]
    async with make(["www.example.org"], kind=catching) as workspace:
        found = await ask(workspace, *questions)
        result = await workspace.run("getent ahosts www.example.org")
    assert found == [[3, 0, None]] * 1000
    assert result.exit_code == 0
    assert internet.names.questions == []


async def test_a_wildcard_carries_nothing_out(internet, make, catching):
    questions = [
        ("udp", f"data{number}.cdn.example.org", 1, "127.0.0.1")
        for number in range(100)
    ]
    async with make(["*.cdn.example.org"], kind=catching) as workspace:
        found = await ask(workspace, *questions)
    assert [code for code, _, _ in found] == [0] * 100
    assert len({address for _, _, address in found}) == 100
    assert internet.names.questions == []


async def test_libraries_ask(internet, make, catching):
    async with make(["www.example.org"], kind=catching) as workspace:
        known = await workspace.run("getent ahosts www.example.org")
        unknown = await workspace.run("getent ahosts evil.test")
        own = await workspace.run("getent ahosts localhost")
    assert known.exit_code == 0
    assert unknown.exit_code == 2
    assert unknown.denials[0].host == "evil.test"
    assert own.stdout.split()[0] in ("127.0.0.1", "::1")
    assert internet.names.questions == []


DIAL = """
import socket, sys
for address in sys.argv[1:]:
    try:
        with socket.create_connection((address, 80), 5) as sock:
            sock.sendall(b"GET / HTTP/1.1\\r\\nHost: www.example.org\\r\\n\\r\\n")
            print(sock.recv(100))
    except OSError as error:
        print(type(error).__name__)
"""


async def test_addresses_that_stand_for_nothing(internet, make, catching):
    network = ipaddress.ip_network(NAMES_AT[catching])
    addresses = [str(network[at]) for at in (1, 2, 1000, -2)]
    async with make(["www.example.org"], kind=catching) as workspace:
        result = await workspace.run(["python3", "-c", DIAL, *addresses], timeout=60)
    assert result.exit_code == 0, result.stderr
    assert set(result.stdout.split()) <= {
        "ConnectionResetError",
        "ConnectionRefusedError",
        "b''",
    }
    assert internet.connections == []


async def test_other_datagrams_go_nowhere(internet, make, catching):
    script = (
        "import socket\n"
        "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:\n"
        f"    for address in ('{zone.WEB}', '{zone.EVIL}', '127.0.0.1'):\n"
        "        for port in (443, 123, 53000):\n"
        "            try:\n"
        "                sock.sendto(b'initial', (address, port))\n"
        "            except OSError as error:\n"
        "                pass\n"
    )
    async with make("open", kind=catching) as workspace:
        result = await workspace.run(["python3", "-c", script], timeout=20)
        # What was caught before it would have been carried out by now.
        quic = await workspace.run("curl -sS http://www.example.org/")
    assert (result.exit_code, quic.exit_code) == (0, 0), result.stderr
    assert internet.datagrams == []
