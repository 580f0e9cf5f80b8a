"""What `isobox run` is told of the network."""

from __future__ import annotations

import pytest

from isobox._core.network import Denial
from isobox.cli import network
from isobox.errors import InvalidArgumentError


def texts(found):
    return [str(rule) for rule in found.rules]


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        ([], []),
        (["none"], []),
        (["none", "none"], []),
        (["open"], ["*:*"]),
        (["open", "!a.example.org"], ["*:*", "!a.example.org"]),
        (["EXAMPLE.org.", "a.test:22"], ["example.org", "a.test:22"]),
        (["open:443"], ["open:443"]),
    ],
)
def test_network(given, rules):
    found = network.network(given, ask=False)
    assert (texts(found), found.otherwise) == (rules, "deny")
    assert bool(found) is bool(rules)


def test_asking_is_about_all_that_no_rule_is_about():
    found = network.network(["?a.test"], ask=True)
    assert (texts(found), found.otherwise) == (["?a.test"], "ask")
    assert network.network([], ask=True)


@pytest.mark.parametrize(
    ("given", "ask", "message"),
    [
        (["none", "a.test"], False, "not together"),
        (["none"], True, "not together"),
        (["?a.test"], False, "add --ask-network"),
        (["http://a.test/"], False, "host alone"),
        (["localhost"], False, "expose_host_port"),
        ([""], False, "host"),
    ],
)
def test_what_is_refused(given, ask, message):
    with pytest.raises(InvalidArgumentError, match=message):
        network.network(given, ask=ask)


def test_secrets(monkeypatch, tmp_path):
    monkeypatch.setenv("B", "value")
    (tmp_path / "d").write_text("value")
    texts = ["A=env:B@a.test,*.b.test:8443", f"C=file:{tmp_path}/d@e.test"]
    found = network.secrets(texts)
    assert [secret.name for secret in found] == ["A", "C"]
    assert found[0].scopes == (("a.test", 443), ("*.b.test", 8443))


@pytest.mark.parametrize("text", ["v4lue", "A=v4lue", "A=v4lue@a.test", "A=env:v4lue"])
def test_a_value_by_mistake_is_not_repeated(text):
    with pytest.raises(InvalidArgumentError) as raised:
        network.secrets([text])
    assert "v4lue" not in str(raised.value)


def test_denials_are_plain_data():
    (one,) = network.fields([Denial("a.test", 80, "default", "no rule", 1.5)])
    assert one == {
        "host": "a.test",
        "port": 80,
        "rule": "default",
        "reason": "no rule",
        "kind": "connection",
    }


def test_denials_are_lines_that_no_terminal_obeys(capsys):
    network.tell([Denial("a.test", 80, "!a\n", "because\n\x1b[2Jisobox: all is well")])
    said = capsys.readouterr().err
    assert said.startswith("isobox: refused a.test:80 (because\\n\\x1b[2Jisobox")
    assert said.count("\n") == 1


def test_many_denials_are_counted(capsys):
    network.tell([Denial("a.test", port, "default", "no") for port in range(1, 31)])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "isobox: and 10 more"


def test_what_failed_is_told_apart_from_what_was_refused(capsys):
    network.tell([Denial("a.test", 443, "unreachable", "no route", kind="unreachable")])
    said = capsys.readouterr().err
    assert said == "isobox: could not reach a.test:443 (no route)\n"


def test_a_value_that_is_there(monkeypatch, tmp_path):
    monkeypatch.setenv("HELD", "value")
    (tmp_path / "value").write_text("value")
    texts = [
        "A=env:HELD@a.test",
        f"B=file:{tmp_path}/value@a.test",
        "C=command:false@a.test",
    ]
    assert [secret.name for secret in network.secrets(texts)] == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("env:NOPE", "the variable NOPE is not set"),
        ("env:EMPTY", "its value is empty"),
        ("file:/nowhere/value", "its file cannot be opened: No such file or directory"),
        ("file:/dev/null", "its file is not a regular one"),
    ],
)
def test_a_value_that_is_not_there(source, reason, monkeypatch):
    monkeypatch.delenv("NOPE", raising=False)
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(InvalidArgumentError) as raised:
        network.secrets([f"KEY={source}@a.test"])
    assert str(raised.value) == f"--secret KEY: {reason}"
