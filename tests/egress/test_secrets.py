"""A secret is outside, and nowhere else, and arrives where it belongs."""

from __future__ import annotations

import base64
import json
import secrets

import pytest
from tests.egress.inside import curl, run, told
from tests.egress.programs import scan

from isobox import MemorySink, NetworkRule, Secret

pytestmark = pytest.mark.anyio

HOSTS = ["api.example.org", "other.example.org", "www.example.org"]
API = "https://api.example.org"


@pytest.fixture
def value(monkeypatch):
    """A value that `programs/scan.py` knows by how it begins."""
    value = f"S3NTINEL{secrets.token_hex(16)}"
    monkeypatch.setenv("REAL_TOKEN", value)
    return value


@pytest.fixture
def sink():
    return MemorySink()


def secret_for(*hosts: str, **template) -> Secret:
    return Secret("API_TOKEN", source="env:REAL_TOKEN", hosts=hosts, **template)


@pytest.fixture
def with_secret(make, sink, value):
    """Make a workspace that has the secret."""

    def opened(network=HOSTS, *, kind="caught", **template):
        template = template or {"header": "Authorization: Bearer {}"}
        secret = secret_for("api.example.org", **template)
        return make(network, kind=kind, secrets=[secret], audit=sink)

    return opened


async def test_it_arrives(internet, with_secret, kind, value):
    async with with_secret(kind=kind) as workspace:
        assert (await told(workspace, f"{API}/a"))["target"] == "/a"
    (request,) = internet.requests
    assert request.header("authorization") == [f"Bearer {value}"]


async def test_it_arrives_without_a_proxy(internet, with_secret, value):
    async with with_secret() as workspace:
        assert await told(workspace, "--noproxy", "*", f"{API}/a")
    (request,) = internet.requests
    assert request.header("authorization") == [f"Bearer {value}"]


@pytest.mark.parametrize(
    ("template", "arguments"),
    [
        ({"header": "X-Key: {}"}, []),
        ({"header": "X-Key: {}"}, ["-H", "X-Key: mine"]),
        ({"basic": "user"}, []),
        ({"basic": "user"}, ["-u", "user:mine"]),
        ({"query": "key={}"}, []),
        ({"env": "OTHER"}, ["-H", "X-Key: $OTHER"]),
        ({"env": "OTHER"}, ["-u", "user:$OTHER"]),
        ({"env": "OTHER"}, ["-G", "-d", "key=$OTHER"]),
    ],
    ids=repr,
)
async def test_places_for_it(internet, with_secret, value, template, arguments):
    quoted = " ".join(f'"{argument}"' for argument in arguments)
    async with with_secret(**template) as workspace:
        result = await workspace.run(f"curl -sS {quoted} {API}/a", timeout=20)
    assert result.exit_code == 0, result.stderr
    (request,) = internet.requests
    pair = base64.b64encode(f"user:{value}".encode()).decode()
    found = {
        "header": request.header("x-key"),
        "basic": request.header("authorization"),
        "query": [request.target.partition("?key=")[2]],
    }
    wanted = {"header": [value], "basic": [f"Basic {pair}"], "query": [value]}
    there = [place for place in wanted if found[place] == wanted[place]]
    assert len(there) == 1
    assert "mine" not in internet.received.decode("latin-1")


CLIENT = """
import http.client, os, time
client = http.client.HTTPSConnection("127.0.0.1", 3128)
client.set_tunnel("api.example.org", 443)
token = os.environ["API_TOKEN"]
kept = []
for path in ("/a", "/reveal"):
    client.request("GET", path, headers={"X-Token": token})
    answer = client.getresponse()
    kept.append((answer.headers.items(), answer.read()))
open("/tmp/answer", "w").write(repr(kept))
print("done", flush=True)
time.sleep(60)
"""


def processes_of(workspace) -> list[int]:
    """Return the processes of a sandbox, and those that hold it."""
    found = [workspace._sandbox._child.pid]
    for pid in found:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            found += map(int, file.read().split())
    return found


async def look_inside(workspace) -> list[str]:
    """Return where a program inside finds the secret."""
    with open(scan.__file__, encoding="utf-8") as file:
        source = file.read()
    shown = ("/workspace", "/tmp", "/home", "/etc", "/run", "/var", "/lab")
    result = await run(workspace, "python3", "-", *shown, stdin=source)
    assert result.exit_code == 0, result.stderr
    looked, *places = result.stdout.split("\n")[:-1]
    # At itself, and at files.
    assert int(looked) > 10
    return [place for place in places if place]


async def test_it_is_nowhere_inside(internet, with_secret, value):
    async with (
        with_secret() as workspace,
        await workspace.start(["python3", "-c", CLIENT]) as client,
    ):
        async for piece in client.stdout:
            assert piece == b"done\n"
            break
        for request in internet.requests:
            assert request.header("authorization") == [f"Bearer {value}"]
            assert request.header("x-token") == [value]
        assert await look_inside(workspace) == []
        pids = processes_of(workspace)
        found = [scan.has_one(scan.process(pid)) for pid in pids]
    assert len(internet.requests) == 2
    # What holds the sandbox, the guest and the client, at least.
    assert len(pids) >= 3
    assert found == [False] * len(pids)


async def test_it_would_be_found(make, value):
    """What the test above goes by does find a secret that is inside."""
    async with make(HOSTS, env={"LEAK": value}) as workspace:
        await workspace.write("file", value.encode())
        async with await workspace.start("sleep 60"):
            places = await look_inside(workspace)
            pids = processes_of(workspace)
            found = [scan.has_one(scan.process(pid)) for pid in pids]
    assert "/workspace/file" in places
    assert any(place.startswith("process ") for place in places)
    assert any(found)


async def test_answers_are_masked(internet, with_secret, kind, value):
    encoded = [base64.b64encode(b"." * at + value.encode()) for at in range(3)]
    async with with_secret(kind=kind) as workspace:
        answer = await curl(workspace, f"{API}/reveal")
        echo = await curl(workspace, f"{API}/a")
    assert (answer.exit_code, echo.exit_code) == (0, 0)
    assert f"Bearer {'*' * len(value)}" in echo.stdout
    head, _, body = answer.stdout.rpartition("\r\n\r\n")
    assert f"X-Said: {'*' * len(value)}" in head
    assert len(body.split()) == 5
    for form in (value, *(each.decode()[4:-4] for each in encoded)):
        assert form not in answer.stdout
        assert form not in echo.stdout


async def test_nothing_that_is_kept_has_it(internet, with_secret, sink, value):
    async with with_secret() as workspace:
        # Somebody types it.
        script = f"curl -sS {API}/a; echo {value}; echo {value} >&2"
        result = await workspace.run(script)
        assert value not in result.stdout
        assert value not in result.stderr
        (tool,) = [tool for tool in await workspace.list_tools() if tool.name == "Bash"]
        assert value not in str(await tool(command=f"echo {value}"))
    assert len(internet.requests) == 1
    assert value not in json.dumps(sink.records)


CHUNKED = ["-H", "Transfer-Encoding: chunked"]
ELSEWHERE = {
    "another host": ["http://other.example.org/", "-H", "X-Key: $API_TOKEN"],
    "its host without TLS": ["http://api.example.org/", "-H", "X-Key: $API_TOKEN"],
    "a query": ["http://other.example.org/?key=$API_TOKEN"],
    "a path": ["http://other.example.org/$API_TOKEN"],
    "a password": ["http://other.example.org/", "-u", "user:$API_TOKEN"],
    "a body": ["http://other.example.org/", "-d", "key=$API_TOKEN"],
    "a body in pieces": [*CHUNKED, "http://other.example.org/", "-d", "$API_TOKEN"],
    "a form": ["http://other.example.org/", "-F", "key=$API_TOKEN"],
    "behind TLS that no rule is about": [
        "https://other.example.org/",
        "-H",
        "X-Key: $API_TOKEN",
    ],
    "behind TLS": ["https://www.example.org/", "-H", "X-Key: $API_TOKEN"],
    "a body behind TLS": ["https://www.example.org/", "-d", "$API_TOKEN"],
    "a body to its host": [f"{API}/", "-d", "$API_TOKEN"],
}


@pytest.mark.parametrize("arguments", ELSEWHERE.values(), ids=ELSEWHERE)
async def test_a_placeholder_elsewhere_is_refused(
    internet, with_secret, sink, value, arguments
):
    quoted = " ".join(f'"{argument}"' for argument in arguments)
    rules = [
        NetworkRule(host="api.example.org"),
        NetworkRule(host="other.example.org"),
        NetworkRule(host="www.example.org", methods=("GET", "POST")),
    ]
    async with with_secret(rules, env="API_TOKEN") as workspace:
        result = await workspace.run(f"curl -sS -i {quoted}", timeout=20)
        placeholder = await workspace.run("printf %s $API_TOKEN")
        assert placeholder.stdout.startswith("isobox_")
        again = await curl(workspace, "http://other.example.org/")
    assert "403" in result.stdout
    assert "X-Isobox-Denied: secret API_TOKEN" in result.stdout
    assert [denial.rule for denial in result.denials] == ["secret API_TOKEN"]
    assert again.exit_code == 0
    assert placeholder.stdout.encode() not in internet.received
    assert value.encode() not in internet.received
    asked = {each["number"] for each in sink.records if each.get("op") == "connect"}
    failed = [
        record
        for record in sink.records
        if record["number"] in asked and record.get("ok") is False
    ]
    assert len(failed) == 1
    assert "API_TOKEN" in failed[0]["message"]


async def test_who_is_not_read_gets_a_placeholder_at_most(
    internet, with_secret, trust, value
):
    rules = [
        "api.example.org",
        NetworkRule(host="other.example.org", passthrough=True),
    ]
    async with with_secret(rules) as workspace:
        script = 'curl -sS -H "X-Key: $API_TOKEN" https://other.example.org/'
        result = await workspace.run(script, env=trust, timeout=20)
    assert result.exit_code == 0, result.stderr
    (request,) = internet.requests
    assert request.header("x-key")[0].startswith("isobox_")
    assert value.encode() not in internet.received


async def test_a_redirect_takes_it_nowhere(internet, with_secret, kind, value):
    there = "https://other.example.org/b"
    async with with_secret(kind=kind) as workspace:
        result = await curl(workspace, "-L", f"{API}/redirect?to={there}")
    assert result.exit_code == 0, result.stderr
    first, second = internet.connections
    assert value.encode() in bytes(first.received)
    assert first.sni == "api.example.org"
    assert second.sni == "other.example.org"
    assert value.encode() not in bytes(second.received)


async def test_who_is_not_the_host_does_not_get_it(internet, make, value):
    hosts = ["wrong.example.org", "unknown-authority.example.org"]
    secret = secret_for(*hosts, header="X-Key: {}")
    async with make(hosts, secrets=[secret]) as workspace:
        for host in hosts:
            result = await curl(workspace, f"https://{host}/")
            assert " 502 " in result.stdout
    assert internet.requests == []
    assert value.encode() not in internet.received


async def test_a_wildcard_ends_at_its_name(internet, make, value):
    secret = secret_for("*.cdn.example.org", header="X-Key: {}")
    rules = ["*.cdn.example.org", "www.example.org"]
    async with make(rules, secrets=[secret]) as workspace:
        for host in ("static.cdn.example.org", "www.example.org"):
            assert await told(workspace, f"https://{host}/")
    first, second = internet.requests
    assert (first.header("x-key"), second.header("x-key")) == ([value], [])


async def test_git_with_a_secret(internet, make, kind, value):
    secret = secret_for("git.example.org", basic="x-access-token")
    async with make(["git.example.org"], kind=kind, secrets=[secret]) as workspace:
        clone = ("git", "clone", "-q", "https://git.example.org/tiny.git", "a")
        result = await run(workspace, *clone)
        assert result.exit_code == 0, result.stderr
        config = await run(workspace, "git", "-C", "a", "config", "--list")
    pair = base64.b64encode(f"x-access-token:{value}".encode()).decode()
    for request in internet.requests:
        assert request.header("authorization") == [f"Basic {pair}"]
    assert value not in config.stdout


async def test_two_workspaces_have_two_placeholders(internet, make, monkeypatch, value):
    """One workspace's placeholder is nothing to another one."""
    monkeypatch.setenv("OTHER_TOKEN", f"S3NTINEL{secrets.token_hex(16)}")

    def opened(source: str):
        secret = Secret("API_TOKEN", source=source, hosts=["api.example.org"])
        return make(HOSTS, secrets=[secret])

    async with opened("env:REAL_TOKEN") as one, opened("env:OTHER_TOKEN") as two:
        foreign = (await one.run("printf %s $API_TOKEN")).stdout
        await told(two, "-H", f"X-Key: {foreign}", f"{API}/")
    (request,) = internet.requests
    assert request.header("x-key") == [foreign]
    assert b"S3NTINEL" not in internet.received


async def test_a_secret_that_cannot_be_had(internet, make, monkeypatch):
    monkeypatch.delenv("REAL_TOKEN", raising=False)
    secret = secret_for("api.example.org", header="X-Key: {}")
    async with make(HOSTS, secrets=[secret]) as workspace:
        result = await curl(workspace, f"{API}/")
    assert " 502 " in result.stdout
    assert "API_TOKEN" in result.stdout
    assert "REAL_TOKEN" not in result.stdout
    (denial,) = result.denials
    assert denial.kind == "unreachable"
    assert denial.reason == "secret API_TOKEN: the variable REAL_TOKEN is not set"
    assert internet.requests == []
