"""The internet of the tests answers plain clients as the real one does."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from tests.egress.lab import zone


def get(url: str, **headers: str):
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)


def test_there_is_no_other_network():
    with open("/proc/net/dev", encoding="ascii") as devices:
        assert [line.split(":")[0].strip() for line in devices][2:] == ["lo"]


def test_names_are_ours(internet):
    assert socket.gethostbyname("www.example.org") == zone.WEB
    assert internet.names.asked("www.example.org") == 1
    with pytest.raises(socket.gaierror):
        socket.gethostbyname("nowhere.example.org")
    assert internet.names.asked("nowhere.example.org") == 1


def test_names_change_their_mind(internet):
    internet.names.script("turn.evil.test", [(zone.WEB,), (zone.PRIVATE, zone.EVIL)])

    def addresses():
        found = socket.getaddrinfo(
            "turn.evil.test", 80, socket.AF_INET, socket.SOCK_STREAM
        )
        return sorted(address[0] for *_, address in found)

    found = [addresses() for _ in range(3)]
    assert found == [[zone.WEB], [zone.PRIVATE, zone.EVIL], [zone.PRIVATE, zone.EVIL]]


def test_names_over_tcp(internet):
    with open("/etc/resolv.conf", encoding="ascii") as resolver:
        assert resolver.read() == "nameserver 127.0.0.1\nsearch evil.test\n"
    script = (
        "import socket; print(socket.getaddrinfo('both.example.org', 80, 0, 1)[0][4])"
    )
    plain = {**os.environ, "RES_OPTIONS": "use-vc"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=plain,
        capture_output=True,
        text=True,
        check=True,
    )
    assert zone.WEB in done.stdout or zone.WEB6 in done.stdout, done.stderr


def test_http_echoes_and_remembers(internet):
    told = get("http://www.example.org/a?b=c", Colour="blue")
    assert told["target"] == "/a?b=c"
    assert ["colour", "blue"] in told["headers"]
    assert (told["address"], told["port"]) == (zone.WEB, 80)
    (seen,) = internet.connections
    assert seen.received.startswith(b"GET /a?b=c HTTP/1.1\r\n")
    (request,) = internet.requests
    assert (request.method, request.host) == ("GET", "www.example.org")


@pytest.mark.parametrize("address", [zone.PRIVATE, zone.METADATA, "127.0.0.1"])
def test_forbidden_addresses_answer(internet, address):
    assert get(f"http://{address}/")["address"] == address


def test_ipv6_answers(internet, ipv6):
    assert get("https://v6.example.org/")["address"] == zone.WEB6
    assert get("http://[::1]:8000/")["address"] == "::1"


@pytest.mark.parametrize(
    "name", ["www.example.org", "static.cdn.example.org", "app.pinned.example.org"]
)
def test_https_is_trusted(internet, name):
    told = get(f"https://{name}/")
    assert (told["sni"], told["protocol"]) == (name, "https")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wrong.example.org", "Hostname mismatch"),
        ("expired.example.org", "expired"),
        ("unknown-authority.example.org", "unable to get local issuer"),
        ("deep.static.cdn.example.org", "Hostname mismatch"),
    ],
)
def test_https_is_not_trusted(internet, name, reason):
    with pytest.raises(urllib.error.URLError, match=reason):
        get(f"https://{name}/")
    assert len(internet.connections) == 1
    assert internet.requests == []


def test_silent_connection_is_remembered(internet):
    with socket.create_connection((zone.EVIL, 443)) as silent:
        silent.shutdown(socket.SHUT_WR)
        silent.recv(1)
    (seen,) = internet.connections
    assert (seen.address, seen.port, seen.requests) == (zone.EVIL, 443, [])


@pytest.fixture
def client():
    with contextlib.closing(http.client.HTTPConnection("www.example.org")) as client:
        yield client


def test_keep_alive(internet, client):
    for number in range(3):
        client.request("POST", f"/{number}", body=b"x" * number)
        assert json.load(client.getresponse())["length"] == number
    assert len(internet.connections) == 1


def test_pages(internet, client):
    client.request("GET", "/chunked?pieces=3")
    assert client.getresponse().read() == b"piece 0\npiece 1\npiece 2\n"
    client.request("GET", "/big?bytes=1000001")
    assert len(client.getresponse().read()) == 1000001
    client.request("GET", "/redirect?to=http://evil.test/")
    answer = client.getresponse()
    assert (answer.status, answer.headers["Location"]) == (302, "http://evil.test/")
    answer.read()
    client.request("GET", "/slow?seconds=0.1")
    assert json.load(client.getresponse())["target"] == "/slow?seconds=0.1"
    client.request("GET", "/until-close?bytes=70000")
    assert len(client.getresponse().read()) == 70000


def say(connection: socket.socket, data: bytes, wanted: bytes) -> bytes:
    """Send, and read until what is wanted came."""
    connection.sendall(data)
    answer = b""
    while wanted not in answer:
        more = connection.recv(4096)
        assert more, answer
        answer += more
    return answer


@pytest.fixture
def raw():
    with socket.create_connection(("www.example.org", 80), timeout=5) as connection:
        yield connection


def test_continue_is_said(internet, raw):
    head = b"PUT / HTTP/1.1\r\nHost: www.example.org\r\nContent-Length: 2\r\n"
    answer = say(raw, head + b"Expect: 100-continue\r\n\r\n", b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 100 ")
    assert b'"body": "ab"' in say(raw, b"ab", b"}")


def test_websocket_is_opened(internet, raw):
    upgrade = (
        b"GET /chat HTTP/1.1\r\nHost: www.example.org\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Sec-WebSocket-Version: 13\r\n\r\n"
    )
    answer = say(raw, upgrade, b"\r\n\r\n").lower()
    assert answer.startswith(b"http/1.1 101 ")
    assert b"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=" in answer
    assert say(raw, b"\x01\x02frames", b"frames") == b"\x01\x02frames"


def test_what_is_no_http_is_refused(internet, raw):
    assert b"400" in say(raw, b"\x16\x03\x01 HTTP\r\n\r\n", b"\r\n\r\n")


def test_banner_comes_first(internet):
    with socket.create_connection(("git.example.org", zone.BANNER_PORT)) as client:
        assert client.recv(100) == zone.BANNER
    assert internet.connections[0].protocol == "banner"


def test_echo(internet):
    with socket.create_connection(("www.example.org", zone.ECHO_PORT)) as client:
        assert say(client, b"hello", b"hello") == b"hello"


def test_nothing_listens_elsewhere(internet):
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("www.example.org", zone.CLOSED_PORT))


def test_datagrams_are_remembered(internet):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"quic", (zone.WEB, 443))
        # The servers' thread takes it before it answers what comes after.
        get("http://www.example.org/")
    assert internet.datagrams == [b"quic"]


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}")
    return found


def succeed(*command: str, **env: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_curl(internet):
    trust = str(internet.authority.file)
    out = succeed(
        tool("curl"),
        "-sS",
        "--cacert",
        trust,
        "https://www.example.org/",
    )
    assert json.loads(out)["sni"] == "www.example.org"


def test_git(internet, tmp_path):
    trust = {"GIT_SSL_CAINFO": str(internet.authority.file)}
    copy = str(tmp_path / "copy")
    succeed(
        tool("git"), "clone", "-q", "https://git.example.org/tiny.git", copy, **trust
    )
    assert (tmp_path / "copy" / "README").read_text() == "tiny\n"
    succeed("git", "-C", copy, "push", "-q", "origin", "HEAD:refs/heads/lab", **trust)
    assert "lab" in internet.forge.branches()
    succeed("git", "-C", copy, "push", "-q", "origin", ":refs/heads/lab", **trust)
    assert "lab" not in internet.forge.branches()


def test_pip(internet, tmp_path):
    succeed(
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-cache-dir",
        "--no-deps",
        "--target",
        str(tmp_path),
        "--cert",
        str(internet.authority.file),
        "--index-url",
        "https://pypi.example.org/simple/",
        "tiny-lab",
    )
    assert (tmp_path / "tiny_lab.py").read_text() == "ANSWER = 42\n"


def test_npm(internet, tmp_path):
    succeed(
        tool("npm"),
        "install",
        "--prefix",
        str(tmp_path),
        "--cafile",
        str(internet.authority.file),
        "--registry",
        "https://registry.example.org/",
        "--cache",
        str(tmp_path / "cache"),
        "tiny-lab",
    )
    installed = tmp_path / "node_modules" / "tiny-lab" / "index.js"
    assert installed.read_text() == "module.exports = 42\n"


def test_certificate_has_the_name(internet):
    context = ssl.create_default_context(cafile=internet.authority.file)
    with (
        socket.create_connection(("git.example.org", 443)) as plain,
        context.wrap_socket(plain, server_hostname="git.example.org") as secure,
    ):
        names = secure.getpeercert()["subjectAltName"]
    assert names == (("DNS", "git.example.org"),)
