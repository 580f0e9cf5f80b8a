"""One name for the tunnel, for TLS and for the request inside."""

from __future__ import annotations

import json
import ssl
import struct

import pytest
from tests.egress.inside import curl, probe, run
from tests.egress.lab import zone

from isobox import NetworkRule, Secret

pytestmark = pytest.mark.anyio

WAYS = ("connect", "socks5", "direct")
GET = "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"
READ = NetworkRule(host="www.example.org", methods=("GET",))


def ask(name: str, *, how: str, sni: str | None = None, host: str | None = None):
    """Ask a host for something over TLS, under up to three names."""
    sni = name if sni is None else sni
    request = GET.format(host or name)
    return {"dial": how, "host": name, "port": 443, "tls": sni, "send": [request]}


def kinds_of(how: str) -> str:
    return "caught" if how == "direct" else "relayed"


@pytest.fixture(params=WAYS)
def how(request):
    return request.param


@pytest.fixture(params=["names", "requests"])
def rules(request):
    """What allows one host: by its name, or by what it is asked."""
    return ["www.example.org" if request.param == "names" else READ]


OTHER_NAMES = ("evil.test", "other.example.org", "", "www.example.org.evil.test")
SAME_NAME = ("www.example.org", "WWW.Example.org")


async def test_tls_asks_for_another_name(internet, make, how, rules):
    async with make(rules, kind=kinds_of(how)) as workspace:
        jobs = [ask("www.example.org", how=how, sni=sni) for sni in OTHER_NAMES]
        for sni, refused in zip(OTHER_NAMES, await probe(workspace, jobs), strict=True):
            assert (refused.end, refused.said) == ("reset", ""), sni
        assert internet.requests == []
        jobs = [ask("www.example.org", how=how, sni=sni) for sni in SAME_NAME]
        assert [each.status for each in await probe(workspace, jobs)] == [200, 200]


async def test_refusals_are_on_record(internet, make, how):
    async with make(["www.example.org"], kind=kinds_of(how)) as workspace:
        job = ask("www.example.org", how=how, sni="evil.test")
        program = ["python3", "/lab/probe.py"]
        result = await workspace.run(program, stdin=json.dumps([job]), timeout=30)
    (denial,) = result.denials
    assert (denial.host, denial.port) == ("www.example.org", 443)
    assert "evil.test" in denial.reason


OTHER_HOSTS = ("evil.test", "other.example.org", "www.example.org:8080", zone.WEB)


async def test_a_request_is_for_another_host(internet, make, how):
    hosts = (*OTHER_HOSTS, "www.example.org:80")
    jobs = [ask("www.example.org", how=how, host=host) for host in hosts]
    async with make([READ], kind=kinds_of(how)) as workspace:
        met = await probe(workspace, jobs, len(jobs))
        for host, refused in zip(hosts, met, strict=True):
            assert refused.denied, (host, refused)
        assert internet.requests == []
        (good,) = await probe(workspace, [ask("www.example.org", how=how)])
    assert good.status == 200


async def test_a_plain_request_is_for_another_host(internet, make, how):
    def plain(host: str):
        where = {"dial": how, "host": "www.example.org", "port": 80}
        return {**where, "send": [GET.format(host)]}

    hosts = (*OTHER_HOSTS, "www.example.org:443")
    async with make(["www.example.org"], kind=kinds_of(how)) as workspace:
        met = await probe(workspace, [plain(host) for host in hosts])
        for host, refused in zip(hosts, met, strict=True):
            assert refused.denied, (host, refused)
        assert internet.requests == []
        (good,) = await probe(workspace, [plain("www.example.org")])
    assert good.status == 200


def hello(name: str | None, *extensions: tuple[int, bytes]) -> str:
    """Return a ClientHello of the ssl module's with extensions added to it."""
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name or "x")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    record = outgoing.read()
    # Record header, message header, version, random, session, suites, methods.
    body = record[9:]
    at = 34
    at += 1 + body[at]
    at += 2 + struct.unpack_from("!H", body, at)[0]
    at += 1 + body[at]
    added = b"".join(
        struct.pack("!HH", kind, len(data)) + data for kind, data in extensions
    )
    all_of_them = body[at + 2 :] + added
    body = body[:at] + struct.pack("!H", len(all_of_them)) + all_of_them
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return (b"\x16\x03\x01" + struct.pack("!H", len(message)) + message).decode(
        "latin-1"
    )


ECH = (
    0xFE0D,
    b"\x00\x00\x01\x00\x01\x07\x00\x20" + b"k" * 32 + b"\x00\x20" + b"p" * 32,
)
SERVER_HELLO = "\x16\x03\x03"


@pytest.mark.parametrize("split", [1, 7, 100])
async def test_encrypted_hello(internet, make, how, split):
    def say(text: str):
        pieces = [text[:split], 0.05, text[split:]]
        where = {"dial": how, "host": "www.example.org", "port": 443}
        return {**where, "send": pieces, "want": SERVER_HELLO}

    async with make(["www.example.org"], kind=kinds_of(how)) as workspace:
        jobs = [say(hello("www.example.org", ECH)), say(hello("www.example.org"))]
        hidden, plain = await probe(workspace, jobs)
    assert (hidden.end, hidden.said) == ("reset", "")
    assert plain.end == "want"


NOT_HELLOS = {
    "no TLS at all": "\x00\x01\x02\x03" * 10,
    "HTTP": GET.format("www.example.org"),
    "a line break first": "\r\n" + GET.format("www.example.org"),
    "SSH": "SSH-2.0-client\r\n",
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an alert": "\x15\x03\x01\x00\x02\x02\x28",
    "a record of no size": "\x16\x03\x01\x00\x00",
    "a huge record": "\x16\x03\x01\xff\xff" + "a" * 65535,
    "no end of fragments": "\x16\x03\x01\x00\x05\x01\x00\xff\xff\x00"
    + "\x16\x03\x01\x00\x01\x00" * 20000,
    "two names": hello("www.example.org", (0, b"\x00\x0c\x00\x00\x09evil.test")),
}


async def test_what_is_no_hello(internet, make, how):
    where = {"dial": how, "host": "www.example.org", "port": 443}
    jobs = [{**where, "send": [words]} for words in NOT_HELLOS.values()]
    async with make(["www.example.org"], kind=kinds_of(how)) as workspace:
        met = await probe(workspace, jobs)
        for name, bad in zip(NOT_HELLOS, met, strict=True):
            assert bad.end == "reset" or bad.status in (400, 403, 502), (name, bad)
        # No server has taken any of it for a request.
        assert internet.requests == []
        (good,) = await probe(workspace, [ask("www.example.org", how=how)])
    assert good.status == 200


UNTRUSTED = (
    "wrong.example.org",
    "expired.example.org",
    "unknown-authority.example.org",
)


@pytest.mark.parametrize("name", UNTRUSTED)
async def test_who_cannot_prove_its_name(internet, make, kind, name):
    read = [NetworkRule(host=name, methods=("GET",))]
    async with make(read, kind=kind) as workspace:
        result = await curl(workspace, f"https://{name}/")
    assert result.exit_code == 0, result.stderr
    assert " 502 " in result.stdout.partition("\r\n\r\n")[2]
    assert "certificate" in result.stdout
    assert internet.requests == []


@pytest.mark.parametrize("name", UNTRUSTED)
async def test_programs_see_who_they_talk_to(internet, make, kind, trust, name):
    async with make([name], kind=kind, env=trust) as workspace:
        result = await curl(workspace, f"https://{name}/")
    assert result.exit_code == 60
    assert internet.requests == []


async def issuer(workspace, name: str) -> str:
    """Return who vouches for a host, as programs inside see it."""
    script = (
        f"openssl s_client -proxy 127.0.0.1:3128 -connect {name}:443 -servername {name}"
        " < /dev/null | openssl x509 -noout -issuer"
    )
    result = await run(workspace, "sh", "-c", script)
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip()


async def test_only_what_has_to_be_read_is_read(internet, make, kind, monkeypatch):
    monkeypatch.setenv("REAL_TOKEN", "sentinel")
    secret = Secret(
        "TOKEN",
        source="env:REAL_TOKEN",
        hosts=["api.example.org", "*.pinned.example.org"],
    )
    rules = [
        "other.example.org",
        "api.example.org",
        READ,
        NetworkRule(host="*.pinned.example.org", passthrough=True),
    ]
    async with make(rules, kind=kind, secrets=[secret]) as workspace:
        lab = "issuer=CN = isobox test authority"
        assert await issuer(workspace, "app.pinned.example.org") == lab
        # Where there are secrets, all the rest.
        for name in ("api.example.org", "www.example.org", "other.example.org"):
            assert "isobox workspace CA" in await issuer(workspace, name)
        # A program that trusts nobody else reaches who it pins, and only that.
        pinned = ("--cacert", "/lab/authority.pem", "--capath", "/nowhere")
        good = await curl(workspace, *pinned, "https://app.pinned.example.org/")
        bad = await curl(workspace, *pinned, "https://api.example.org/")
    assert (good.exit_code, bad.exit_code) == (0, 60)
    async with make(["other.example.org", READ], kind=kind) as workspace:
        assert await issuer(workspace, "other.example.org") == lab
        assert "isobox workspace CA" in await issuer(workspace, "www.example.org")


async def test_authorities_differ(make):
    async with make([READ]) as one, make([READ]) as two:
        first = await one.read_text("/etc/isobox/ca.pem")
        assert first != await two.read_text("/etc/isobox/ca.pem")


async def test_names_that_are_denied_behind_an_address(internet, make):
    async with make([zone.WEB, "!evil.test"]) as workspace:
        met = await probe(
            workspace,
            [
                ask(zone.WEB, how="connect", sni="evil.test"),
                ask(
                    zone.WEB,
                    how="connect",
                    sni="www.example.org",
                    host="www.example.org",
                ),
            ],
        )
    assert [each.status for each in met] == [0, 200]
    assert [request.host for request in internet.requests] == ["www.example.org"]


async def test_tls_versions(internet, make, trust):
    rules = ["www.example.org", NetworkRule(host="api.example.org", methods=("GET",))]
    async with make(rules, env={}) as workspace:
        for name in ("www.example.org", "api.example.org"):
            for version in ("1.2", "1.3"):
                result = await run(
                    workspace,
                    "curl",
                    "-sS",
                    f"--tlsv{version}",
                    "--tls-max",
                    version,
                    f"https://{name}/",
                )
                assert result.exit_code == 0, result.stderr
