"""Who is told of what the filter decides, and who is asked."""

from __future__ import annotations

import gc
import time

import anyio
import pytest
from tests.egress.inside import curl, probe_one, run, told
from tests.egress.lab import zone

from isobox import Denial, MemorySink, Network, NetworkRule
from isobox.errors import CommandFailedError

pytestmark = pytest.mark.anyio


@pytest.fixture
def sink():
    return MemorySink()


def connects(sink) -> list[tuple[dict, dict]]:
    """Return what is on record of each connection: its facts, and its outcome."""
    facts = {
        record["number"]: record["facts"]
        for record in sink.records
        if record["kind"] == "intent" and record["op"] == "connect"
    }
    outcomes = {
        each["number"]: each for each in sink.records if each["kind"] == "outcome"
    }
    return [(facts[number], outcomes[number]) for number in facts]


CALLS = {
    "http": ("www.example.org", 80, ["http://www.example.org/"]),
    "connect": ("www.example.org", 80, ["-p", "http://www.example.org/"]),
    "socks5": (
        "www.example.org",
        80,
        ["-x", "socks5h://127.0.0.1:3128", "http://www.example.org/"],
    ),
    "direct": ("www.example.org", 80, ["--noproxy", "*", "http://www.example.org/"]),
}


@pytest.mark.parametrize("via", CALLS)
async def test_what_was_allowed_is_on_record(internet, make, sink, via):
    host, port, arguments = CALLS[via]
    async with make(["www.example.org"], audit=sink) as workspace:
        result = await curl(workspace, *arguments)
        assert result.exit_code == 0, result.stderr
        assert result.denials == ()
    ((facts, outcome),) = connects(sink)
    assert facts == {"host": host, "port": port, "via": via}
    assert outcome["ok"] is True
    assert outcome["end"]["address"] == zone.WEB
    assert outcome["end"]["bytes_in"] > 0
    assert outcome["end"]["bytes_out"] > 0


@pytest.mark.parametrize("via", CALLS)
async def test_what_was_denied_is_on_record(internet, make, sink, via):
    _, _, arguments = CALLS[via]
    async with make(["*.example.org", "!www.example.org:80"], audit=sink) as workspace:
        result = await curl(workspace, *arguments)
    ((facts, outcome),) = connects(sink)
    assert facts == {"host": "www.example.org", "port": 80, "via": via}
    assert outcome["ok"] is False
    assert outcome["error"] == "PolicyDeniedError"
    assert "!www.example.org:80" in outcome["message"]
    (denial,) = result.denials
    assert (denial.host, denial.port) == ("www.example.org", 80)
    assert denial.rule == "!www.example.org:80"
    assert internet.connections == []


async def test_names_that_were_denied_are_on_record(internet, make, sink):
    async with make(["www.example.org"], audit=sink) as workspace:
        result = await curl(workspace, "--noproxy", "*", "http://evil.test/")
    assert result.denials == (
        Denial("evil.test", 53, "default", result.denials[0].reason, kind="look-up"),
    )
    facts, outcome = connects(sink)[0]
    assert facts == {"host": "evil.test", "port": 53, "via": "dns"}
    assert outcome["ok"] is False


async def test_a_denial_says_what_to_know(internet, make):
    async with make(["www.example.org", "!*.cdn.example.org"]) as workspace:
        result = await curl(
            workspace, "http://evil.test/", "http://static.cdn.example.org/"
        )
    assert result.stdout.count("HTTP/1.1 403") == 2
    assert "X-Isobox-Denied: default" in result.stdout
    assert "X-Isobox-Denied: !*.cdn.example.org" in result.stdout
    assert "evil.test:80" in result.stdout
    assert "static.cdn.example.org:80" in result.stdout
    assert [denial.host for denial in result.denials] == [
        "evil.test",
        "static.cdn.example.org",
    ]


async def test_each_command_has_its_own_denials(internet, make):
    async with make(["www.example.org"]) as workspace:
        first = await curl(workspace, "http://evil.test/", "http://evil.test/")
        second = await curl(workspace, "http://www.example.org/")
        third = await curl(workspace, "http://evilexample.org/")
    assert [denial.host for denial in first.denials] == ["evil.test"]
    assert second.denials == ()
    assert [denial.host for denial in third.denials] == ["evilexample.org"]


async def test_the_model_is_told(internet, make):
    async with make(["www.example.org"]) as workspace:
        (tool,) = [tool for tool in await workspace.list_tools() if tool.name == "Bash"]
        result = await tool(command="curl -s --noproxy '*' http://evil.test/ || true")
        assert "evil.test" in str(result)
        assert "default" in str(result)
        assert "www.example.org" in await workspace.get_instructions()


async def test_the_model_is_told_of_the_background(internet, make):
    async with make(["www.example.org"]) as workspace:
        tools = {tool.name: tool for tool in await workspace.list_tools()}
        job = await tools["Bash"](
            command="curl -s http://evil.test/; read; curl -s http://www.example.org:81",
            run_in_background=True,
            stdin=True,
        )
        of = {"job_id": job.metadata["job_id"]}
        first = await tools["BashOutput"](**of, wait=20, until="isobox denies")
        assert "the network filter refused evil.test:80 (" in first.text
        again = await tools["BashOutput"](**of)
        assert "evil.test" not in again.text
        assert again.metadata["denials"] == []
        await tools["BashInput"](**of, text="\n")
        last = await tools["BashOutput"](**of, wait=20)
    (denied,) = last.metadata["denials"]
    assert denied.startswith("www.example.org:81 (")


async def test_a_model_is_told_what_failed(internet, make):
    async with make(["nowhere.example.org"]) as workspace:
        (tool,) = [tool for tool in await workspace.list_tools() if tool.name == "Bash"]
        result = await tool(command="curl -s --noproxy '*' http://nowhere.example.org")
    assert "filter refused" not in result.text
    host = "nowhere.example.org"
    said = f"allowed, but not reached: {host}:80 ({host} does not resolve: "
    assert said in result.text


@pytest.mark.parametrize(
    "command",
    [
        "curl -sS http://www.example.org/",
        "cat < /dev/tcp/www.example.org/80",
        f"cat < /dev/tcp/{zone.WEB}/80",
    ],
)
async def test_a_model_is_told_that_there_is_no_network(internet, make, command):
    hint = "[this workspace has no network]"
    async with make("none") as workspace:
        (tool,) = [tool for tool in await workspace.list_tools() if tool.name == "Bash"]
        bare = await tool(command=command)
        other = await tool(command="echo Network is unreachable; false")
        good = await tool(command="echo Network is unreachable")
    assert hint in bare.text
    assert hint in other.text
    assert hint not in good.text
    async with make(["www.example.org"]) as workspace:
        (tool,) = [tool for tool in await workspace.list_tools() if tool.name == "Bash"]
        filtered = await tool(command="echo Network is unreachable; false")
    assert hint not in filtered.text


async def test_a_checked_failure_says_what_was_refused(internet, make):
    async with make(["www.example.org"]) as workspace:
        with pytest.raises(CommandFailedError) as met:
            await workspace.run(["curl", "-sf", "http://evil.test/"], check=True)
    assert str(met.value).endswith(
        "not reached: evil.test:80 (no rule allows evil.test:80; rule 'default')"
    )


async def test_a_command_that_ends_before_the_answer(internet, make):
    async def approve(_):
        await anyio.sleep_forever()

    async with make(["?www.example.org"], approve=approve) as workspace:
        command = ["curl", "-s", "http://www.example.org/"]
        result = await workspace.run(command, timeout=2)
    assert result.timed_out
    assert result.denials == (
        Denial(
            "www.example.org",
            80,
            "?www.example.org",
            "a rule asks a person, and nobody had answered yet",
        ),
    )


async def test_an_answer_that_is_none(internet, make):
    async with make(["?www.example.org"], approve=lambda _: None) as workspace:
        result = await curl(workspace, "https://www.example.org/")
    reason = "approve returned NoneType; return True, False or an Answer"
    assert f"HTTP/1.1 403 isobox denies www.example.org:443: {reason}" in result.stdout
    assert result.denials == (Denial("www.example.org", 443, "approve", reason),)


class FullError(Exception):
    """The log takes no more."""


class FullSink(MemorySink):
    def put(self, record, /):
        if record.get("op") == "connect":
            raise FullError
        super().put(record)


async def test_what_cannot_be_recorded_does_not_happen(internet, make, caplog):
    async with make(["www.example.org"], audit=FullSink()) as workspace:
        result = await curl(workspace, "http://www.example.org/")
        assert "HTTP/1.1 200" not in result.stdout
        assert (await workspace.run("true")).exit_code == 0
    assert internet.connections == []


class Person:
    """Answers questions, and remembers them."""

    def __init__(self, answer: bool, seconds: float = 0) -> None:
        self.questions = []
        self._answer = answer
        self._seconds = seconds

    async def __call__(self, question) -> bool:
        self.questions.append(question)
        await anyio.sleep(self._seconds)
        return self._answer


@pytest.mark.parametrize("answer", [True, False])
async def test_a_person_is_asked(internet, make, kind, answer):
    person = Person(answer)
    async with make(["?www.example.org"], kind=kind, approve=person) as workspace:
        result = await curl(workspace, "http://www.example.org/")
        await curl(workspace, "http://www.example.org/")
        denied = await curl(workspace, "http://evil.test/")
    assert ("HTTP/1.1 200" in result.stdout) is answer
    assert ("HTTP/1.1 403" in result.stdout) is not answer
    assert "HTTP/1.1 403" in denied.stdout
    (question,) = person.questions
    assert question.op == "connect"
    assert question.facts == {"host": "www.example.org", "port": 80}
    assert question.rule == "?www.example.org"
    assert len(internet.requests) == 2 * answer


async def test_everybody_waits_for_one_answer(internet, make):
    person = Person(True, seconds=1)
    script = (
        "for i in $(seq 20); do curl -sS -o $i http://www.example.org/ & done; wait"
    )
    async with make(["?www.example.org"], approve=person) as workspace:
        result = await workspace.run(script, timeout=30)
        assert result.exit_code == 0, result.stderr
    assert len(internet.requests) == 20
    assert len(person.questions) == 1


async def test_a_question_about_one_holds_up_no_other(internet, make):
    person = Person(True, seconds=60)
    rules = ["www.example.org", "?other.example.org"]
    async with make(rules, approve=person) as workspace:
        script = "curl -sS -o a http://other.example.org/ &"
        await workspace.run(script)
        start = time.monotonic()
        assert await told(workspace, "http://www.example.org/")
        assert time.monotonic() - start < 10
    assert {request.host for request in internet.requests} == {"www.example.org"}


async def test_nobody_answers(internet, make, kind):
    network = Network(rules=("?www.example.org",), ask_timeout=0.5)
    async with make(network, kind=kind, approve=Person(True, seconds=60)) as workspace:
        start = time.monotonic()
        result = await curl(workspace, "http://www.example.org/")
        assert time.monotonic() - start < 5
    assert "HTTP/1.1 403" in result.stdout
    assert internet.connections == []


async def test_nobody_to_ask(internet, make, kind):
    async with make(["?www.example.org"], kind=kind) as workspace:
        result = await curl(workspace, "http://www.example.org/")
    assert "HTTP/1.1 403" in result.stdout
    assert result.denials[0].rule == "?www.example.org"


async def test_asked_about_everything_else(internet, make):
    person = Person(True)
    network = Network(rules=("www.example.org", "!evil.test"), otherwise="ask")
    async with make(network, approve=person) as workspace:
        for host in ("www.example.org", "other.example.org", "evil.test"):
            await curl(workspace, f"http://{host}/")
        # A person's word makes no private address public.
        near = await curl(workspace, "http://private.evil.test/")
    assert "HTTP/1.1 403" in near.stdout
    assert [question.facts["host"] for question in person.questions] == [
        "other.example.org",
        "private.evil.test",
    ]
    assert [request.host for request in internet.requests] == [
        "www.example.org",
        "other.example.org",
    ]


READING = [
    NetworkRule(host="git.example.org", methods=("GET",), paths=("/*/info/refs",)),
    NetworkRule(
        host="git.example.org", methods=("POST",), paths=("/*/git-upload-pack",)
    ),
]


async def test_methods_and_paths_make_git_read_only(internet, make, kind, sink):
    async with make(READING, kind=kind, audit=sink) as workspace:
        clone = await run(
            workspace, "git", "clone", "-q", "https://git.example.org/tiny.git", "a"
        )
        assert clone.exit_code == 0, clone.stderr
        await run(workspace, "git", "-C", "a", "checkout", "-q", "-b", "stolen")
        push = await run(workspace, "git", "-C", "a", "push", "origin", "stolen")
    assert push.exit_code != 0
    assert "403" in push.stderr
    assert internet.forge.branches() == ["main"]
    assert "POST" in push.denials[0].reason
    asked = [(facts.get("method"), facts.get("target")) for facts, _ in connects(sink)]
    assert ("POST", "/tiny.git/git-upload-pack") in asked
    assert ("POST", "/tiny.git/git-receive-pack") in asked
    assert not any(
        "receive-pack" in request.target and request.method == "POST"
        for request in internet.requests
    )


PATHS = {
    "/v1/models": True,
    "/v1/": True,
    "/v1": False,
    "/v2/models": False,
    "/v1/../v2/models": False,
    "/v1/%2e%2e/v2/models": False,
    "/v1/..%2fv2": False,
    "/v1/.%2e/v2": False,
    "//v1/models": False,
    "/V1/models": False,
    "/v1/a?path=../v2": True,
    "/v1/a/./b": False,
    "/v1/a.b/..c": True,
}


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_paths_are_what_servers_take_them_for(internet, make, scheme):
    rule = NetworkRule(host="www.example.org", paths=("/v1/*",))
    async with make([rule]) as workspace:
        for path, allowed in PATHS.items():
            result = await curl(
                workspace, "--path-as-is", f"{scheme}://www.example.org{path}"
            )
            assert ("X-Isobox-Denied" not in result.stdout) is allowed, path
    assert [request.target for request in internet.requests] == [
        path for path, allowed in PATHS.items() if allowed
    ]


async def test_bytes_in_are_bounded(internet, make, kind):
    network = Network(
        rules=("www.example.org", "other.example.org"), bytes_in=1_000_000
    )
    big = "http://www.example.org/big?bytes=5000000"
    async with make(network, kind=kind) as workspace:
        result = await run(workspace, "curl", "-sS", "-o", "big", big)
        assert result.exit_code in (18, 56)
        assert (await workspace.stat("big")).size <= 1_000_000
        again = await curl(workspace, "http://www.example.org/")
        other = await curl(workspace, "http://other.example.org/")
    assert "HTTP/1.1 429" in again.stdout
    assert "Network.bytes_in" in again.stdout
    assert "HTTP/1.1 200" in other.stdout


async def test_bytes_out_are_bounded(internet, make, kind):
    network = Network(rules=("www.example.org",), bytes_out=100_000)
    async with make(network, kind=kind) as workspace:
        await workspace.write("big", b"x" * 5_000_000)
        result = await curl(workspace, "-T", "big", "http://www.example.org/")
        assert "HTTP/1.1 200" not in result.stdout
        again = await curl(workspace, "http://www.example.org/")
    assert "HTTP/1.1 429" in again.stdout
    assert len(internet.received) <= 200_000


async def test_the_rate_is_bounded(internet, make, kind):
    network = Network(rules=("www.example.org",), per_second=5)
    urls = [f"http://www.example.org/{number}" for number in range(20)]
    async with make(network, kind=kind) as workspace:
        # Each on a connection of its own.
        result = await curl(
            workspace, "-H", "Connection: close", "--no-keepalive", *urls
        )
        assert result.stdout.count("HTTP/1.1 429") >= 1
        assert "Network.per_second" in result.stdout
        await anyio.sleep(1)
        good = await curl(workspace, "http://www.example.org/")
    assert "HTTP/1.1 200" in good.stdout


async def test_closing_ends_what_is_open(internet, make, kind):
    """A workspace that closes leaves no connection and no task behind."""
    async with make(["www.example.org"], kind=kind) as workspace:
        slow = "curl -sS 'http://www.example.org/slow?seconds=60' & sleep 0.5"
        await workspace.run(slow, timeout=20)
        start = time.monotonic()
    assert time.monotonic() - start < 5
    assert len(internet.requests) == 1


async def test_a_workspace_that_lives_on(internet, make):
    """Nothing piles up over many connections."""
    async with make(["www.example.org"]) as workspace:
        script = (
            "for i in $(seq 50); do curl -s -o /dev/null http://www.example.org/; done"
        )
        await workspace.run(script, timeout=60)
        before = len(
            [each for each in gc.get_objects() if type(each).__name__ == "HttpSession"]
        )
        await workspace.run(script, timeout=60)
        after = len(
            [each for each in gc.get_objects() if type(each).__name__ == "HttpSession"]
        )
        outcome = await probe_one(workspace, dial="proxy", send=[None])
    assert outcome.said == ""
    assert after <= before + 1
    assert len(internet.requests) == 100
