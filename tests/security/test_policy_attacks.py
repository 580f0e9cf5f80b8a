"""Attacks on the policy, on approvals and on the verdict that once went through."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time

import pytest
from tests.unit._policy import shell_attacks

from isobox import (
    Answer,
    BubblewrapWorkspace,
    LocalWorkspace,
    MemorySink,
    Policy,
    Rule,
    Secret,
)
from isobox._core.ops import Apply, Push, Remove, Spawn
from isobox._policy.load import parse
from isobox.errors import InvalidArgumentError, IsoboxError, PolicyDeniedError

ANY = Policy.allow_all()
PROGRAMS = Rule(verdict="ask", programs=("zzz",))
SECRET = Rule(verdict="deny", ops=("write",), paths=("secret", "secret/**"))


def script(text, cwd="/workspace"):
    return Spawn(script=text, cwd=cwd)


# -- policy: rules and layers


@pytest.mark.parametrize("how", ["added", "tightened"])
@pytest.mark.parametrize(
    ("rule", "op"),
    [
        (
            Rule(verdict="deny", ops=("run",), paths=("secret/**", "secret")),
            Spawn(argv=("ls",), cwd="/workspace/secret"),
        ),
        (Rule(verdict="deny", ops=("run",)), script("> made")),
        (Rule(verdict="deny", ops=("spawn",)), script("> made")),
    ],
)
def test_a_rule_on_programs_takes_nothing_from_another_rule(rule, op, how):
    policy = ANY.with_rules([rule])
    assert policy.decide(op).verdict == "deny"
    if how == "added":
        more = policy.with_rules([PROGRAMS])
    else:
        more = policy.tightened(ANY.with_rules([PROGRAMS]))
    assert more.decide(op).verdict == "deny"


@pytest.mark.parametrize(
    "op",
    [
        script("echo x > a", "/workspace/secret"),
        script("cd secret; echo x > a"),
        script("x=secret/a; echo x > $x"),
        script("echo x > secre*/a"),
        script("echo x > secret/{a,}"),
    ],
    ids=lambda op: op.script,
)
def test_a_redirection_to_a_denied_path_is_not_allowed(op):
    policy = ANY.with_rules([SECRET, PROGRAMS])
    assert policy.decide(op).verdict in ("ask", "deny")


@pytest.mark.parametrize(
    "op",
    [
        Push(path=".", body=b""),
        Remove(path="sub", recursive=True),
        Apply(paths=None),
        Apply(paths=(".",)),
    ],
    ids=lambda op: op.name,
)
def test_what_holds_a_denied_path_is_not_allowed(op):
    rule = Rule(verdict="deny", ops=("write",), paths=("sub/secret/**",))
    assert ANY.with_rules([rule]).decide(op).verdict in ("ask", "deny")


@pytest.fixture
def tree(tmp_path):
    work = tmp_path / "work"
    (work / "secret").mkdir(parents=True)
    (work / "secret" / "a").write_text("kept\n")
    return work


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [LocalWorkspace, BubblewrapWorkspace])
async def test_output_is_not_spooled_to_a_denied_path(kind, tree):
    async with kind(tree, policy=ANY.with_rules([SECRET])) as ws:
        with pytest.raises(PolicyDeniedError):
            await ws.run("seq 9999", spool="secret/s", output_limit=10)
    assert [each.name for each in (tree / "secret").iterdir()] == ["a"]


def test_a_policy_file_is_read_in_a_time_that_its_length_bounds():
    began = time.monotonic()
    with pytest.raises(InvalidArgumentError):
        parse("version = 1\n" + ".".join("a" * 20_000) + " = 1\n")
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    "text",
    [
        "rm --recurs x",
        "git reset --har",
        "git branch -d -f x",
        "git branch -Dq x",
        "git clean --force",
        "git restore ./",
        "git checkout -f",
    ],
)
def test_auto_asks_about_other_ways_to_write_the_same(text):
    assert Policy.auto().decide(script(text)).verdict == "ask"


@pytest.mark.parametrize(
    "scripts",
    [
        pytest.param(shell_attacks.VARIABLES, id="variables"),
        pytest.param(shell_attacks.CALCULATIONS, id="calculations"),
        pytest.param(shell_attacks.RUNNERS, id="runners"),
        pytest.param(shell_attacks.STREAMS, id="streams"),
        pytest.param(shell_attacks.NAMES, id="names"),
        pytest.param(shell_attacks.SYNTAX, id="syntax"),
        pytest.param(shell_attacks.DISGUISES, id="disguises"),
    ],
)
def test_no_way_to_run_a_program_goes_past_a_rule_about_it(scripts):
    policy = ANY.with_rules([Rule(verdict="ask", programs=("rm",))])
    went = [each for each in scripts if policy.decide(script(each)).verdict != "ask"]
    assert went == []


# -- approval


SAME = [
    ("cd a; rm -rf x", "cd b; rm -rf x"),
    ("bash -c 'cd a; rm -rf x'", "bash -c 'cd b; rm -rf x'"),
    ("pushd a; rm -rf x", "pushd b; rm -rf x"),
    ("find a -exec rm -rf x ';'", "find b -exec rm -rf x ';'"),
    ("X=1; K=$X kubectl apply", "X=2; K=$X kubectl apply"),
    ("X=1; K=$X kubectl apply", "K=None kubectl apply"),
    ("export K=1; kubectl apply", "export K=2; kubectl apply"),
    ("kubectl apply -f - <<E\na\nE", "kubectl apply -f - <<E\nb\nE"),
    ("echo a | kubectl apply -f -", "echo b | kubectl apply -f -"),
    ("sudo -u nobody rm -rf x", "sudo -u root rm -rf x"),
    ("sudo rm -rf x", "sudo -D / rm -rf x"),
    ("ssh a rm -rf x", "ssh b rm -rf x"),
    ("nsenter -t 1 kubectl apply", "nsenter -t 2 kubectl apply"),
]


class Once:
    """Allows the first question for the session, and denies all others."""

    def __init__(self):
        self.asked = 0

    async def __call__(self, question):
        self.asked += 1
        return Answer(self.asked == 1, "session")


@pytest.mark.anyio
@pytest.mark.parametrize(("first", "other"), SAME)
async def test_a_yes_to_one_command_is_none_to_another(tmp_path, first, other):
    for name in "ab":
        (tmp_path / name).mkdir()
    person = Once()
    async with LocalWorkspace(tmp_path, policy=Policy.auto(), approve=person) as ws:
        await ws.run(first)
        with pytest.raises(PolicyDeniedError):
            await ws.run(other)
    assert person.asked == 2


@pytest.mark.anyio
async def test_a_yes_is_for_one_standard_input(tmp_path):
    person = Once()
    async with LocalWorkspace(tmp_path, policy=Policy.auto(), approve=person) as ws:
        await ws.run("kubectl apply -f -", stdin="a")
        with pytest.raises(PolicyDeniedError):
            await ws.run("kubectl apply -f -", stdin="b")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("first", "other"),
    [
        ("bash -c 'true z'", "bash true z"),
        ("A=b true x", "'A=b' true x"),
        ("A=b env true", "env A=b true"),
    ],
)
async def test_words_of_a_key_are_not_taken_for_each_other(tmp_path, first, other):
    policy = ANY.with_rules([Rule(verdict="ask", programs=("*",), name="all")])
    person = Once()
    async with LocalWorkspace(tmp_path, policy=policy, approve=person) as ws:
        await ws.run(first)
        with pytest.raises(PolicyDeniedError):
            await ws.run(other)


@pytest.mark.anyio
async def test_what_is_applied_is_what_was_shown(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "a").write_text("first\n")
    shown = []

    async def approve(question):
        shown.append(question.preview)
        await asyncio.sleep(1.5)
        return True

    async with BubblewrapWorkspace(
        work, mode="copy", policy=Policy.auto(), approve=approve
    ) as ws:
        await ws.run("echo good > a")
        job = await ws.start("sleep 0.5; echo evil > a")
        try:
            await ws.apply()
        except Exception:  # noqa: BLE001 - refused is as good
            assert (work / "a").read_text() == "first\n"
        await job.wait()
    assert "+good" in shown[0]
    assert (work / "a").read_text() != "evil\n"


@pytest.mark.anyio
async def test_a_preview_shows_the_variables_and_the_directory(tmp_path):
    seen = []

    async def approve(question):
        seen.append(question.preview)
        return False

    async with LocalWorkspace(tmp_path, policy=Policy.auto(), approve=approve) as ws:
        with pytest.raises(PolicyDeniedError):
            await ws.run(["git", "push"], env={"GIT_SSH_COMMAND": "touch MARK"})
    assert "touch MARK" in seen[0]


# -- audit


@pytest.mark.anyio
@pytest.mark.parametrize(
    "command",
    [
        lambda value: "true " + "x" * 4071 + value,
        lambda value: ["true", "x" * 4076 + value],
        lambda value: "git push " + "x" * 91 + value,
    ],
    ids=["script", "argument", "reason"],
)
async def test_a_secret_that_is_cut_is_masked_all_the_same(monkeypatch, command):
    value = "sk-SUPERSECRETVALUE0123456789abcdef"
    monkeypatch.setenv("TOKV", value)
    sink = MemorySink()
    secret = Secret("TOK", source="env:TOKV", hosts=["x.example.org"], env="TOK")
    policy = Policy.auto()
    async with BubblewrapWorkspace(
        audit=sink, secrets=[secret], network=["x.example.org"], policy=policy
    ) as ws:
        await ws.run("true " + value)  # so that its value is known
        with contextlib.suppress(PolicyDeniedError):
            await ws.run(command(value))
    assert value[:12] not in json.dumps(sink.records)


@pytest.mark.anyio
async def test_an_answer_that_is_no_bool_is_no_yes():
    def approve(question):
        return Answer(allow="no")

    async with LocalWorkspace(policy=Policy.auto(), approve=approve) as ws:
        with pytest.raises((PolicyDeniedError, InvalidArgumentError)):
            await ws.run("rm -r none")


# -- policy: sizes


@pytest.mark.anyio
@pytest.mark.parametrize("what", ["stream", "edit", "patch", "upload"])
async def test_what_is_too_large_is_not_written_in_another_way(tmp_path, what):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "small").write_text("s\n")
    (tmp_path / "large").write_bytes(b"x" * 9999)
    rule = Rule(verdict="deny", ops=("write",), larger_than=10)

    async def pieces():
        for _ in range(10):
            yield b"x" * 1000

    patch = "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+" + "x" * 9999 + "\n"
    async with LocalWorkspace(tmp_path / "work", policy=ANY.with_rules([rule])) as ws:
        ways = {
            "stream": lambda: ws.write("new", pieces()),
            "edit": lambda: ws.edit("small", "s", "y" * 9999),
            "patch": lambda: ws.apply_patch(patch),
            "upload": lambda: ws.upload(tmp_path / "large", "new"),
        }
        with pytest.raises(PolicyDeniedError):
            await ways[what]()


@pytest.mark.anyio
async def test_work_on_one_directory_does_not_answer_for_another(tmp_path, monkeypatch):
    home = tmp_path / "home"
    (home / "code" / "build").mkdir(parents=True)
    approvals = home / ".local" / "state" / "isobox" / "approvals"
    approvals.mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ".local" / "state"))
    asked = Once()
    asked.asked = 1  # it only denies
    key = ["rm -r", "run", "/workspace", "", "rm", "-r", "build"]
    answer = {"question": key, "allow": True, "message": "", "by": "me"}
    project = str((home / "code").resolve())
    forged = json.dumps({"version": 1, "project": project, "answers": [answer]})
    name = hashlib.sha256(project.encode()).hexdigest()[:32] + ".json"
    async with BubblewrapWorkspace(home) as ws:
        with contextlib.suppress(IsoboxError):
            await ws.write(f".local/state/isobox/approvals/{name}", forged)
    async with BubblewrapWorkspace(
        home / "code", policy=Policy.auto(), approve=asked
    ) as ws:
        with pytest.raises(PolicyDeniedError):
            await ws.run("rm -r build")
    assert asked.asked == 2
