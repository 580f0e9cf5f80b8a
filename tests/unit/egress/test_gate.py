"""What a sandbox is given for its way out."""

from __future__ import annotations

import time

import pytest

from isobox._core.network import Capture, Denial
from isobox._core.spec import SandboxSpec
from isobox._egress.gate import Gate, now
from isobox._egress.secret import Secret
from isobox._policy.network import Network, NetworkRule
from isobox.errors import InvalidArgumentError, UnsupportedError

PINNED = NetworkRule(host="a.test", passthrough=True)
PROXY = "http://127.0.0.1:3128"


def secret():
    return Secret("KEY", source=lambda: "value", hosts=("a.test",))


def test_what_programs_inside_find():
    gate = Gate(Network.of(["a.test"]), [])
    spec = gate.spec(SandboxSpec(id="w1", env={"HTTP_PROXY": "mine", "A": "b"}))
    assert spec.capture == Capture(ports=(22, 80, 443), proxy_port=3128)
    assert spec.files == ()
    assert spec.env["HTTP_PROXY"] == "mine"
    assert spec.env["A"] == "b"
    for name in ("HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        assert spec.env[name] == PROXY
    assert spec.env["no_proxy"] == spec.env["NO_PROXY"] == "localhost,127.0.0.1,::1"
    assert gate.denials(0) == ()


@pytest.mark.parametrize(
    ("rules", "secrets"),
    [
        ([NetworkRule(host="a.test", methods=("GET",))], ()),
        (["a.test"], (secret(),)),
        (["a.test"], iter([secret()])),
    ],
)
def test_where_tls_is_read_it_is_trusted(rules, secrets):
    gate = Gate(Network.of(rules), secrets)
    spec = gate.spec(SandboxSpec(id="w1"))
    assert spec.files
    assert "SSL_CERT_FILE" in spec.env
    assert ("KEY" in spec.env) is bool(gate.vault.environment())


def test_ports_that_are_caught():
    gate = Gate(Network.of(["a.test:8080", "!b.test:25", "a.test:*"]), [])
    assert gate.spec(SandboxSpec(id="w1")).capture.ports == (22, 80, 443, 8080)
    many = [f"a.test:{port}" for port in range(1000, 1062)]
    with pytest.raises(InvalidArgumentError, match="name 65 ports, of 64"):
        Gate(Network.of(many), [])


def given(*hosts):
    return Secret("KEY", source=lambda: "value", hosts=hosts)


@pytest.mark.parametrize(
    ("rules", "hosts", "missing"),
    [
        (["a.test"], ["b.test"], "b.test"),
        (["a.test"], ["a.test", "b.test"], "b.test"),
        (["a.test"], ["a.test:8443"], "a.test:8443"),
        (["a.test:8443"], ["a.test"], "a.test"),
        (["*.a.test"], ["a.test"], "a.test"),
        (["a.test", "!b.test"], ["b.test"], "b.test"),
        (["a.test"], ["*.a.test"], "*.a.test"),
        (["192.0.2.0/24"], ["a.test"], "a.test"),
        (["192.0.2.0/24"], ["198.51.100.1"], "198.51.100.1"),
    ],
)
def test_a_secret_for_what_no_rule_allows(rules, hosts, missing):
    with pytest.raises(InvalidArgumentError) as met:
        Gate(Network.of(rules), [given(*hosts)])
    assert str(met.value) == (
        f"secret KEY: no rule allows {missing}; add it to `network`"
    )


@pytest.mark.parametrize(
    ("rules", "hosts"),
    [
        (["*.a.test"], ["b.a.test", "*.b.a.test"]),
        (["b.a.test"], ["*.a.test"]),
        (["?a.test"], ["a.test"]),
        (["*"], ["a.test", "*.b.test", "192.0.2.1"]),
        (["192.0.2.0/24"], ["192.0.2.1"]),
        (Network(otherwise="ask"), ["a.test:8443"]),
    ],
)
def test_a_secret_for_what_some_rule_could_allow(rules, hosts):
    Gate(Network.of(rules), [given(*hosts)])


@pytest.mark.parametrize(
    ("rules", "hosts"),
    [
        ([PINNED], ["a.test"]),
        ([PINNED, "a.test"], ["a.test"]),
        ([NetworkRule(host="*", ports="*", passthrough=True)], ["a.test:8443", "b.c"]),
    ],
)
def test_a_secret_for_what_nobody_reads(rules, hosts):
    with pytest.raises(InvalidArgumentError) as met:
        Gate(Network.of(rules), [given(*hosts)])
    assert str(met.value).startswith(
        "secret KEY: the rules for its hosts have passthrough=True, where nobody reads"
    )


def test_a_secret_for_what_somebody_reads_besides():
    Gate(Network.of([PINNED, "b.test"]), [given("a.test", "b.test")])


def test_a_variable_that_would_hide_a_secret():
    gate = Gate(Network.of(["a.test"]), [secret()])
    gate.check_environment({"OTHER": "x"})
    with pytest.raises(InvalidArgumentError, match="env: KEY is the variable of a se"):
        gate.check_environment({"OTHER": "x", "KEY": "x"})


def test_no_secret_takes_a_variable_that_a_sandbox_is_given():
    given_to_it = Gate(Network.of(["a.test"]), [secret()]).spec(SandboxSpec(id="w1"))
    for name in set(given_to_it.env) - {"KEY"}:
        with pytest.raises(InvalidArgumentError, match=f"{name} is a variable"):
            Secret(name, source="env:T", hosts=("a.test",))


class Sandbox:
    def __init__(self, *, works=True):
        self.works = works
        self.outlet = None

    async def capture(self, outlet):
        if not self.works:
            raise UnsupportedError("it cannot")
        self.outlet = outlet
        return "198.18.0.0/15"


async def perform(op):
    raise AssertionError(op)


@pytest.mark.anyio
async def test_it_opens_and_closes():
    gate = Gate(Network.of(["a.test"]), [])
    sandbox = Sandbox()
    await gate.open(sandbox, perform, "w1")
    start = now()
    assert start <= time.monotonic()
    sandbox.outlet.denials.add(Denial("b.test", 443, "default", "no"))
    assert [each.host for each in gate.denials(start)] == ["b.test"]
    await gate.aclose()
    await gate.aclose()
    assert gate.denials(0) == ()


@pytest.mark.anyio
async def test_what_did_not_open_is_closed():
    gate = Gate(Network.of(["a.test"]), [])
    with pytest.raises(UnsupportedError):
        await gate.open(Sandbox(works=False), perform, "w1")
    await gate.aclose()
