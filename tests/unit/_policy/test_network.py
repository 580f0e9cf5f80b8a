"""Which connections may leave."""

from __future__ import annotations

import ipaddress
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobox._core.ops import Connect
from isobox._policy.decision import Decision
from isobox._policy.network import NONE, OPEN, Network, NetworkRule
from isobox.errors import InvalidArgumentError


async def unreached(_):
    raise AssertionError("nothing is reached here")


def connect(host="www.example.org", port=443, method=None, target=None, via="direct"):
    return Connect(
        host=host, port=port, via=via, method=method, target=target, reach=unreached
    )


def network(*rules, otherwise="deny") -> Network:
    return Network(rules=rules, otherwise=otherwise)


def verdict(rules, *args, otherwise="deny", **details):
    return network(*rules, otherwise=otherwise).decide(connect(*args, **details))


# -- rules as they are written -----------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "ports", "said", "again"),
    [
        ("example.org", "example.org", None, "allow", None),
        ("Example.ORG.", "example.org", None, "allow", "example.org"),
        (
            "bücher.example",
            "xn--bcher-kva.example",
            None,
            "allow",
            "xn--bcher-kva.example",
        ),
        ("example.org:8443", "example.org", (8443,), "allow", None),
        ("example.org:*", "example.org", "*", "allow", None),
        ("!example.org", "example.org", None, "deny", None),
        ("?*.example.org:22", "*.example.org", (22,), "ask", None),
        ("*", "*", None, "allow", None),
        ("!*:25", "*", (25,), "deny", None),
        ("192.0.2.1:80", "192.0.2.1", (80,), "allow", None),
        ("192.0.2.1/32", "192.0.2.1", None, "allow", "192.0.2.1"),
        ("10.0.0.0/8:443", "10.0.0.0/8", (443,), "allow", None),
        ("2001:db8::1", "2001:db8::1", None, "allow", None),
        ("[2001:DB8::1]:443", "2001:db8::1", (443,), "allow", "[2001:db8::1]:443"),
        ("[2001:db8::/32]:443", "2001:db8::/32", (443,), "allow", None),
        ("::ffff:10.1.2.3", "10.1.2.3", None, "allow", "10.1.2.3"),
        ("!::ffff:10.0.0.0/104", "10.0.0.0/8", None, "deny", "!10.0.0.0/8"),
    ],
)
def test_rule_is_read(text, host, ports, said, again):
    rule = NetworkRule.parse(text)
    assert (rule.host, rule.ports, rule.verdict) == (host, ports, said)
    assert str(rule) == (again or text)
    assert NetworkRule.parse(str(rule)) == rule


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!",
        "https://example.org",
        "user@example.org",
        "example.org:0",
        "example.org:65536",
        "example.org:443444",
        "example.org:\uff14\uff14\uff13",
        "example.org:",
        "example.org:x",
        "exa mple.org",
        "*.*",
        "www.*.org",
        "*example.org",
        "*.192.0.2.1",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "localhost",
        "a.localhost",
        "127.0.0.1",
        "127.1.0.0/16",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:127.0.0.0/104",
        "0.0.0.0",
        "::",
        "2130706433",
        "0x7f.1",
        "fe80::1%eth0",
        "!!example.org",
    ],
)
def test_rule_is_refused(text):
    with pytest.raises(InvalidArgumentError):
        NetworkRule.parse(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ports": 443},
        {"ports": (True,)},
        {"ports": ("443",)},
        {"methods": "GET"},
        {"methods": ()},
        {"methods": ("get",)},
        {"paths": "/v1"},
        {"paths": ("v1",)},
        {"paths": ("/a b",)},
        {"paths": ("/a\nb",)},
        {"paths": ("/a?b",)},
        {"paths": ("/v1",), "passthrough": True},
        {"methods": (5,)},
        {"paths": (None,)},
        {"passthrough": "no"},
        {"verdict": "block"},
        {"verdict": None},
        {"host": 5},
    ],
)
def test_rule_makes_sense(wrong):
    with pytest.raises(InvalidArgumentError):
        NetworkRule(**{"host": "example.org", **wrong})


def test_what_is_no_text_is_no_rule():
    with pytest.raises(InvalidArgumentError, match="network rule: 5 is no text"):
        NetworkRule.parse(5)


def test_rule_about_requests_is_told():
    rule = NetworkRule(host="a.test", methods=("GET", "HEAD"), paths=("/a", "/b*"))
    assert str(rule) == "a.test GET|HEAD /a /b*"


@given(st.text(max_size=60) | st.text("!?*.:/[]%0123456789abfx-", max_size=30))
@settings(max_examples=300)
def test_no_text_is_too_strange(text):
    try:
        rule = NetworkRule.parse(text)
    except InvalidArgumentError:
        return
    assert NetworkRule.parse(str(rule)) == rule


# -- a network as it is given ------------------------------------------------


def test_network_argument():
    assert Network.of(None) is NONE
    assert Network.of("none") is NONE
    assert Network.of("open") is OPEN
    assert Network.of(OPEN) is OPEN
    assert Network.of(["a.test"]) == Network(rules=(NetworkRule(host="a.test"),))
    assert not NONE
    assert OPEN
    assert Network(otherwise="ask")


@pytest.mark.parametrize("wrong", ["example.org", b"open", 7, ["a.test", 7]])
def test_network_argument_is_refused(wrong):
    with pytest.raises(InvalidArgumentError):
        Network.of(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"connections": 0},
        {"per_second": 0},
        {"otherwise": "allow"},
        {"connections": "5"},
        {"bytes_in": True},
        {"ask_timeout": "60"},
        {"ask_timeout": True},
        {"ask_timeout": 0},
        {"rules": "example.org"},
    ],
)
def test_network_makes_sense(wrong):
    with pytest.raises(InvalidArgumentError):
        Network(**wrong)


def test_ports_that_rules_name():
    rules = ("a.test:22", "a.test:*", "b.test", "!c.test:25", "?d.test:8080")
    assert network(*rules).ports() == {22, 8080}


# -- connections -------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "host", "port", "expected"),
    [
        ((), "a.test", 443, Decision("deny", "default", "no rule allows a.test:443")),
        (("a.test",), "a.test", 443, Decision("allow", "a.test", "a rule allows it")),
        (("a.test",), "a.test", 80, Decision("allow", "a.test", "a rule allows it")),
        (
            ("a.test",),
            "a.test",
            22,
            Decision("deny", "default", "no rule allows a.test:22"),
        ),
        (
            ("a.test", "!a.test"),
            "a.test",
            80,
            Decision("deny", "!a.test", "a rule denies it"),
        ),
        (
            ("*:*", "?a.test"),
            "a.test",
            443,
            Decision("ask", "?a.test", "a rule asks a person"),
        ),
    ],
)
def test_decision(rules, host, port, expected):
    assert verdict(rules, host, port) == expected


@pytest.mark.parametrize(
    ("rules", "host", "port", "expected"),
    [
        (("*.a.test",), "b.a.test", 443, "allow"),
        (("*.a.test",), "c.b.a.test", 443, "allow"),
        (("*.a.test",), "a.test", 443, "deny"),
        (("*.a.test",), "evila.test", 443, "deny"),
        (("*.a.test", "!b.a.test"), "b.a.test", 443, "deny"),
        (("*", "!*.a.test"), "a.test", 443, "allow"),
        (("*", "!a.test:443"), "a.test", 80, "allow"),
        (("*:*", "!a.test"), "a.test", 22, "deny"),
        (("*",), "93.184.216.34", 443, "allow"),
        (("93.184.216.0/24",), "93.184.216.34", 443, "allow"),
        (("93.184.216.0/24",), "93.184.217.34", 443, "deny"),
        (("*:*", "!93.184.216.34"), "64:ff9b::5db8:d822", 443, "deny"),
        (("*:*", "!93.184.216.34"), "2002:5db8:d822::1", 443, "deny"),
        (("93.184.216.34",), "64:ff9b::5db8:d822", 443, "deny"),
        (("a.test",), "93.184.216.34", 443, "deny"),
        (("10.0.0.0/8",), "a.test", 443, "deny"),
        (("*:*",), "localhost", 80, "deny"),
        (("*:*",), "a.localhost", 80, "deny"),
    ],
)
def test_verdict(rules, host, port, expected):
    assert verdict(rules, host, port).verdict == expected


def test_nobody_is_asked_about_what_is_out_of_reach():
    assert verdict((), "a.test", otherwise="ask").verdict == "ask"
    assert verdict((), "93.184.216.34", otherwise="ask").verdict == "ask"
    for address in ("127.0.0.1", "169.254.169.254", "10.0.0.1", "198.18.0.9", "::1"):
        assert verdict((), address, otherwise="ask").rule == "not public"
    assert verdict((), "localhost", otherwise="ask").rule == "localhost"
    assert verdict(("?10.0.0.0/8",), "10.0.0.1").verdict == "ask"


def test_what_the_host_opened_is_allowed():
    assert verdict((), "127.0.0.1", 8000, via="exposed").verdict == "allow"


# -- requests ----------------------------------------------------------------

PINNED = NetworkRule(host="a.test", passthrough=True)
GET = NetworkRule(host="a.test", methods=("GET", "HEAD"))
V1 = NetworkRule(host="a.test", paths=("/v1/*",))
NO_DELETE = NetworkRule(host="a.test", methods=("DELETE",), verdict="deny")
NO_ADMIN = NetworkRule(host="a.test", paths=("/admin*",), verdict="deny")
ASKED_POST = NetworkRule(host="a.test", methods=("POST",), verdict="ask")


@pytest.mark.parametrize(
    ("rules", "method", "target", "expected"),
    [
        ((GET,), None, None, "allow"),
        ((GET,), "GET", "/", "allow"),
        ((GET,), "POST", "/", "deny"),
        ((GET,), "get", "/", "deny"),
        (("a.test", NO_DELETE), None, None, "allow"),
        (("a.test", NO_DELETE), "GET", "/", "allow"),
        (("a.test", NO_DELETE), "DELETE", "/", "deny"),
        (("a.test", NO_DELETE), "delete", "/", "deny"),
        ((NO_DELETE,), None, None, "deny"),
        ((GET, "!a.test"), None, None, "deny"),
        ((GET, "!a.test"), "GET", "/", "deny"),
        ((V1,), "GET", "/v1/x?y=/z", "allow"),
        ((V1,), "GET", "/v1", "deny"),
        ((V1,), "GET", "/v2/v1/", "deny"),
        ((V1,), "GET", "/x?/v1/", "deny"),
        ((V1,), "GET", "/v1/../admin", "deny"),
        ((V1,), "GET", "/v1/%2e%2e/admin", "deny"),
        ((V1,), "GET", "/v1/%252e%252e/admin", "deny"),
        ((V1,), "GET", "/v1/..%2fadmin", "deny"),
        ((V1,), "GET", "/v1/..\\admin", "deny"),
        ((V1,), "GET", "/v1/..;a=b/admin", "deny"),
        ((V1,), "GET", "/v1/x/../y", "deny"),
        ((V1,), "GET", "/v1/./y", "deny"),
        ((V1,), "GET", "/v1/x%5c%2e%252e", "deny"),
        ((V1,), "GET", "/v1/..%3fy", "deny"),
        ((V1,), "GET", "/v1/x//y", "allow"),
        ((V1,), "GET", "/v1/..y/.z", "allow"),
        ((V1,), "GET", "/v1/@scope%2fname", "allow"),
        ((V1,), "GET", "/v1/100%25", "allow"),
        ((V1,), "GET", "/v1/a%00b", "deny"),
        ((V1,), "GET", "/v1/%2525252525252541", "deny"),
        (("a.test", NO_ADMIN), "GET", "/", "allow"),
        (("a.test", NO_ADMIN), "GET", "/admin/x", "deny"),
        (("a.test", NO_ADMIN), "GET", "//admin", "deny"),
        (("a.test", NO_ADMIN), "GET", "/x/../admin", "deny"),
        (("a.test", NO_ADMIN), "GET", "/%61dmin", "deny"),
        (("a.test", NO_ADMIN), "GET", "/%2561dmin", "deny"),
        (("a.test", NO_ADMIN), "GET", "/;x/admin", "deny"),
        (("a.test", NO_ADMIN), "GET", "/%00", "deny"),
        ((GET, ASKED_POST), "POST", "/", "ask"),
        ((GET, ASKED_POST), "PUT", "/", "deny"),
        (("?a.test",), None, None, "ask"),
        (("?a.test",), "GET", "/", "allow"),
        (("?a.test", GET), None, None, "ask"),
        (("?a.test", GET), "PUT", "/", "allow"),
        (("?a.test", NO_DELETE), "DELETE", "/", "deny"),
        (("?a.test", ASKED_POST), "POST", "/", "ask"),
        ((), "GET", "/", "deny"),
    ],
)
def test_request(rules, method, target, expected):
    assert verdict(rules, "a.test", 443, method, target).verdict == expected


@pytest.mark.parametrize(
    ("rules", "method", "expected"),
    [
        ((), None, "ask"),
        ((), "GET", "allow"),
        ((NO_DELETE,), None, "ask"),
        ((NO_DELETE,), "GET", "allow"),
        ((NO_DELETE,), "DELETE", "deny"),
        ((GET,), None, "allow"),
        ((GET,), "GET", "allow"),
        ((GET,), "POST", "ask"),
    ],
)
def test_request_where_a_person_is_asked(rules, method, expected):
    found = verdict(rules, "a.test", 443, method, "/", otherwise="ask")
    assert found.verdict == expected


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("/", "/", True),
        ("/", "/a", False),
        ("*", "/a/b", True),
        ("/a*", "/a", True),
        ("/a*b*c", "/abc", True),
        ("/a*b*c", "/acb", False),
        ("/a*a", "/a", False),
        ("/*/x/*/y", "/1/x/2/y", True),
        ("/caf%C3%A9", "/caf%c3%a9", True),
        ("/café", "/caf%C3%A9", True),
        ("/a%2Fb", "/a/b", True),
    ],
)
def test_pattern(pattern, path, expected):
    rule = NetworkRule(host="a.test", paths=(pattern,))
    assert rule.fits("GET", path) is expected


def test_paths_are_soon_decided():
    rule = NetworkRule(host="a.test", paths=("/" + "a*" * 500,))
    start = time.process_time()
    for path in ("/" + "a" * 60000, "/" + "%25" * 20000, "/.." * 20000, ";/" * 30000):
        rule.fits("GET", path)
    assert time.process_time() - start < 2


def test_passthrough_is_for_what_no_rule_reads():
    pinned = NetworkRule(host="*", passthrough=True)
    assert network(pinned).passes("b.test", 443)
    assert not network(pinned).passes("b.test", 22)
    assert not network(pinned, NO_DELETE).passes("a.test", 443)
    assert network(pinned, NO_DELETE).passes("b.test", 443)
    assert network(NO_DELETE).reads("a.test", 8080)
    assert not network(GET).reads("a.test", 8080)


@pytest.mark.parametrize(
    ("rules", "pattern", "expected"),
    [
        (("a.test",), "a.test", True),
        ((PINNED,), "a.test", False),
        ((PINNED, "a.test"), "a.test", False),
        ((PINNED, GET), "a.test", True),
        ((PINNED, "b.test"), "b.test", True),
        ((PINNED,), "*.test", False),
        ((PINNED, "*.test"), "*.test", True),
        ((NetworkRule(host="*.test", passthrough=True), "b.test"), "*.test", False),
        ((NetworkRule(host="*", passthrough=True),), "a.test", False),
        ((NetworkRule(host="a.test", ports=(8443,), passthrough=True), "a.test"),
         "a.test", True),
    ],
)  # fmt: skip
def test_what_could_be_read_is_what_does_not_pass(rules, pattern, expected):
    assert Network(rules=rules).could_read(pattern, 443) is expected


def test_where_others_are_asked_about_they_could_be_read():
    asks = network(PINNED, otherwise="ask")
    assert asks.could_read("b.test", 443)
    assert not asks.could_read("a.test", 443)


# -- names, and what they resolve to -----------------------------------------


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ((), "a.test", "deny"),
        (("a.test:22",), "a.test", "allow"),
        (("*",), "a.test", "allow"),
        (("*", "!a.test"), "a.test", "deny"),
        (("*", "!a.test:22"), "a.test", "allow"),
        (("*", NO_DELETE), "a.test", "allow"),
        ((GET,), "a.test", "allow"),
        (("10.0.0.0/8",), "a.test", "deny"),
    ],
)
def test_answers(rules, name, expected):
    assert network(*rules).answers(name).verdict == expected
    assert verdict(rules, name, 53, via="dns").verdict == expected


@pytest.mark.parametrize(
    ("rules", "address", "expected"),
    [
        (
            ("a.test",),
            "93.184.216.34",
            Decision("allow", "public", "93.184.216.34 is public"),
        ),
        (
            ("a.test",),
            "10.0.0.1",
            Decision(
                "deny",
                "not public",
                "a.test is at 10.0.0.1 (private), which no rule names; to allow it, "
                "name the address in a rule",
            ),
        ),
        (
            ("a.test", "10.0.0.0/8"),
            "10.0.0.1",
            Decision("allow", "10.0.0.0/8", "10.0.0.1 is named"),
        ),
        (
            ("a.test", "10.0.0.0/8", "!10.0.0.1"),
            "10.0.0.1",
            Decision("deny", "!10.0.0.1", "a.test is at 10.0.0.1, which is denied"),
        ),
        (
            ("a.test", "!93.184.216.0/24"),
            "93.184.216.34",
            Decision(
                "deny",
                "!93.184.216.0/24",
                "a.test is at 93.184.216.34, which is denied",
            ),
        ),
    ],
)
def test_reaches(rules, address, expected):
    found = network(*rules).reaches("a.test", ipaddress.ip_address(address), 443)
    assert found == expected


@pytest.mark.parametrize(
    ("rules", "address"),
    [
        (("*:*",), "10.0.0.1"),
        (("0.0.0.0/0:*",), "10.0.0.1"),
        (("0.0.0.0/0:*",), "127.0.0.1"),
        (("10.0.0.0/7:*",), "10.0.0.1"),
        (("10.0.0.0/8:22",), "10.0.0.1"),
        (("169.254.0.0/16:*",), "169.254.169.254"),
        (("[fc00::/7]:*",), "fd00:ec2::254"),
        (("[::/0]:*",), "::1"),
        (("[::/0]:*",), "64:ff9b::a00:1"),
        (("10.0.0.0/8:*",), "64:ff9b::a00:1"),
        (("?10.0.0.0/8:*",), "10.0.0.1"),
    ],
)
def test_no_rule_that_is_wide_is_one_for_the_neighbours(rules, address):
    found = network("a.test", *rules).reaches(
        "a.test", ipaddress.ip_address(address), 443
    )
    assert found.verdict == "deny"


def test_metadata_can_be_named():
    address = ipaddress.ip_address("169.254.169.254")
    named = network("169.254.169.254")
    assert named.reaches(str(address), address, 80).verdict == "allow"


def test_who_was_asked_about_an_address_reaches_it():
    address = ipaddress.ip_address("10.0.0.1")
    assert network("?10.0.0.0/8").reaches("10.0.0.1", address, 80).verdict == "allow"


def test_denies():
    rules = network("*", "!a.test:443", NO_ADMIN)
    assert rules.denies("a.test", 443) == Decision(
        "deny", "!a.test:443", "a rule denies it"
    )
    assert rules.denies("a.test", 80).rule == "!a.test /admin*"
    assert rules.denies("b.test", 443) is None


def test_is_open():
    assert OPEN.is_open(443)
    assert network("*").is_open(443)
    assert not network("*").is_open(8443)
    assert not network("a.test").is_open(443)
    assert not network("*", "!a.test").is_open(443)
    assert not network("*", "?a.test").is_open(443)
    assert network("*", "!*:25").is_open(443)


# -- whatever the rules ------------------------------------------------------

HOSTS = st.sampled_from(
    ["a.test", "b.a.test", "c.b.a.test", "93.184.216.34", "10.0.0.1", "64:ff9b::a00:1"]
)
PATTERNS = st.sampled_from(
    ["a.test", "b.a.test", "*.a.test", "*", "10.0.0.0/8", "93.184.216.34", "::/0"]
)
PORTS = st.sampled_from([None, "*", (443,), (22, 443)])
METHODS = st.sampled_from([None, None, ("GET",), ("POST", "DELETE")])
PATHS = st.sampled_from([None, None, ("/",), ("/a*",)])
TARGETS = st.sampled_from(["/", "/a", "/b/../a", "/a/%2e%2e/", "/%61?x"])
RULES = st.builds(
    NetworkRule,
    host=PATTERNS,
    ports=PORTS,
    verdict=st.sampled_from(["allow", "deny", "ask"]),
    methods=METHODS,
    paths=PATHS,
)
LISTS = st.lists(RULES, max_size=6)
OTHERWISE = st.sampled_from(["deny", "ask"])
LOOSE = {"deny": 0, "ask": 1, "allow": 2}


def asked(host, port, method, target):
    return connect(host, port, method, target if method else None)


ASKED = st.builds(
    asked,
    HOSTS,
    st.sampled_from([22, 80, 443]),
    st.sampled_from([None, "GET", "POST", "delete"]),
    TARGETS,
)


@given(LISTS, RULES, OTHERWISE, ASKED, st.integers(0, 6))
@settings(max_examples=300)
def test_one_more_rule_that_denies_allows_nothing_more(rules, rule, otherwise, op, at):
    strict = NetworkRule(
        host=rule.host,
        ports=rule.ports,
        verdict="deny",
        methods=rule.methods,
        paths=rule.paths,
    )
    before = network(*rules, otherwise=otherwise)
    after = network(*rules[:at], strict, *rules[at:], otherwise=otherwise)
    assert LOOSE[after.decide(op).verdict] <= LOOSE[before.decide(op).verdict]
    name = op.host
    assert LOOSE[after.answers(name).verdict] <= LOOSE[before.answers(name).verdict]
    address = ipaddress.ip_address("10.0.0.1")
    found = (each.reaches(name, address, op.port) for each in (after, before))
    assert LOOSE[next(found).verdict] <= LOOSE[next(found).verdict]


@given(LISTS, OTHERWISE, ASKED)
@settings(max_examples=300)
def test_a_rule_that_denies_has_the_last_word(rules, otherwise, op):
    given = network(*rules, otherwise=otherwise)
    path = (op.target or "").partition("?")[0]
    about = [
        rule
        for rule in rules
        if rule.verdict == "deny" and rule.covers(op.host, op.port)
    ]
    whole = [rule for rule in about if not rule.reads]
    fitting = [rule for rule in about if op.method and rule.fits(op.method, path)]
    if whole or fitting:
        assert given.decide(op).verdict == "deny"


@given(LISTS, HOSTS)
def test_the_index_finds_what_a_look_at_each_does(rules, host):
    about = network(*rules)._index.about(host)
    for port in (22, 443):
        assert [rule for rule in about if rule.has_port(port)] == [
            rule for rule in rules if rule.covers(host, port)
        ]


def test_ten_thousand_rules_are_no_burden():
    names = [f"!n{number}.example.org" for number in range(5000)]
    addresses = [f"!93.{a}.{b}.0/24" for a in range(50) for b in range(100)]
    rules = Network(rules=("*:*", *names, *addresses))
    public = ipaddress.ip_address("8.8.8.8")
    start = time.process_time()
    for _ in range(1000):
        rules.decide(connect("www.example.org", 443))
        rules.answers("www.example.org")
        rules.reaches("www.example.org", public, 443)
        rules.reads("www.example.org", 443)
    assert time.process_time() - start < 1
    assert rules.decide(connect("n4999.example.org")).verdict == "deny"
    assert rules.decide(connect("93.49.99.1")).verdict == "deny"
