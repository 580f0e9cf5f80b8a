"""The command line leads to the same filter."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import subprocess
import sys

import pytest
from tests.egress.lab import zone

CURL = ("curl", "-sS", "-i", "--max-time", "20")
ISOBOX = (sys.executable, "-c", "from isobox.cli import main; main()")


@pytest.fixture
def isobox(internet, tmp_path):
    """Run `isobox run` in a directory of its own."""
    tmp_path.chmod(0o755)

    def run(*arguments: str, **env: str):
        return subprocess.run(
            [*ISOBOX, "run", "--workdir", str(tmp_path), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, **env},
        )

    return run


def test_without_a_network(internet, isobox):
    result = isobox("--", *CURL, "http://www.example.org/")
    assert result.returncode == 6
    assert internet.connections == []


def test_a_network(internet, isobox):
    rules = ("--network", "www.example.org", "--network", "!evil.test")
    good = isobox(*rules, "--", *CURL, "http://www.example.org/")
    assert good.returncode == 0, good.stderr
    assert "HTTP/1.1 200" in good.stdout
    bad = isobox(*rules, "--", *CURL, "http://evil.test/")
    assert "isobox denies evil.test:80" in bad.stdout
    assert "evil.test:80" in bad.stderr
    assert {seen.address for seen in internet.connections} == {zone.WEB}


def test_a_network_that_is_none(internet, isobox):
    result = isobox("--network", "localhost", "--", "true")
    assert result.returncode == 125
    assert "expose_host_port" in result.stderr


def test_a_secret(internet, isobox):
    result = isobox(
        *("--network", "api.example.org"),
        *("--secret", "TOKEN=env:REAL_TOKEN@api.example.org"),
        *("--", "sh", "-c", 'curl -sS -H "X-Key: $TOKEN" https://api.example.org/'),
        REAL_TOKEN="value-of-the-secret",
    )
    assert result.returncode == 0, result.stderr
    (request,) = internet.requests
    assert request.header("x-key") == ["value-of-the-secret"]
    assert "value-of-the-secret" not in result.stdout + result.stderr


def test_denials_in_json(internet, isobox):
    rules = ("--network", "www.example.org")
    result = isobox(*rules, "--json", "--", *CURL, "http://evil.test/")
    (denial,) = json.loads(result.stdout)["denials"]
    assert (denial["host"], denial["port"]) == ("evil.test", 80)


def test_a_network_in_the_record(internet, isobox, tmp_path):
    log = tmp_path.parent / f"{tmp_path.name}.jsonl"
    result = isobox(
        *("--network", "www.example.org", "--audit", str(log)),
        *("--", *CURL, "http://www.example.org/", "http://evil.test/"),
    )
    assert result.returncode == 0, result.stderr
    records = [json.loads(line) for line in log.read_text().splitlines()]
    asked = [record["facts"] for record in records if record.get("op") == "connect"]
    assert [facts["host"] for facts in asked] == ["www.example.org", "evil.test"]


def test_watching(internet, isobox):
    # Other workspaces of this user are shown as well.
    name = f"{secrets.token_hex(8)}.evil.test"
    watcher = subprocess.Popen([*ISOBOX, "egress", "--json"], stdout=subprocess.PIPE)
    with watcher, contextlib.ExitStack() as stack:
        stack.callback(watcher.terminate)
        shown = b""
        # It says nothing until something happens; so something does until then.
        for _ in range(20):
            isobox("--network", "www.example.org", "--", *CURL, f"http://{name}/")
            while select.select([watcher.stdout], [], [], 0.2)[0]:
                shown += os.read(watcher.stdout.fileno(), 1 << 16)
            if name.encode() in shown:
                break
    events = [json.loads(line) for line in shown.splitlines()]
    about = [event for event in events if event.get("host") == name]
    assert about
    assert {(event["event"], event["port"]) for event in about} == {("refused", 80)}
