"""Attacks on the policy, on approvals and on the verdict that once went through."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time

import pytest

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
from isobox._policy.shell import facts
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
    (work / "link").symlink_to("secret")
    return work


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [LocalWorkspace, BubblewrapWorkspace])
@pytest.mark.parametrize("what", ["write", "edit", "patch", "remove", "spool"])
async def test_a_denied_path_is_not_written_by_another_name(kind, what, tree):
    patch = "--- a/link/a\n+++ b/link/a\n@@ -1 +1 @@\n-kept\n+lost\n"
    async with kind(tree, policy=ANY.with_rules([SECRET])) as ws:
        ways = {
            "write": lambda: ws.write("link/a", "lost\n"),
            "edit": lambda: ws.edit("link/a", "kept", "lost"),
            "patch": lambda: ws.apply_patch(patch),
            "remove": lambda: ws.remove("link/a"),
            "spool": lambda: ws.run("seq 9999", spool="secret/s", output_limit=10),
        }
        with pytest.raises(PolicyDeniedError):
            await ways[what]()
    assert (tree / "secret" / "a").read_text() == "kept\n"
    assert [each.name for each in (tree / "secret").iterdir()] == ["a"]


def test_a_policy_file_is_read_in_a_time_that_its_length_bounds():
    began = time.monotonic()
    with pytest.raises(InvalidArgumentError):
        parse("version = 1\n" + ".".join("a" * 20_000) + " = 1\n")
    assert time.monotonic() - began < 2


# -- policy: what scripts are read as


@pytest.mark.parametrize(
    "text",
    [
        # The shell's own table of programs.
        "BASH_CMDS[ls]=/usr/bin/touch; ls MARK",
        "BASH_CMDS+=([ls]=/usr/bin/touch); ls MARK",
        ": ${BASH_CMDS[ls]:=/usr/bin/touch}; ls MARK",
        # Text that is calculated with.
        "x='a[$(touch MARK)]'; test -v \"$x\"",
        "x='a[$(touch MARK)]'; [ -v \"$x\" ]",
        "x='a[$(touch MARK)]'; [[ -v $x ]]",
        "x='a[$(touch MARK)]'; true & wait -n -p \"$x\"",
        "[[ 'a[$(touch MARK)]' -eq 1 ]]",
        "[[ $(echo 'b[$(touch MARK)]') -eq 1 ]]",
        "echo $(( $(echo 'b[$(touch MARK)]') ))",
        "echo 'a[$(touch MARK)]' > f; read < f; [[ REPLY -eq 1 ]]",
        "echo 'a[$(touch MARK)]' > f; read < f; echo $((REPLY))",
        "echo 'a[$(touch MARK)]' > f; mapfile -t < f; echo $((MAPFILE[0]))",
        "set -- -a 'b[$(touch MARK)]'; getopts a: x; echo $((OPTARG))",
        "set -- 'a[$(touch MARK)]'; echo $(($1))",
        "f() { echo $(($1)); }; f 'a[$(touch MARK)]'",
        "f() { [[ $1 -eq 1 ]]; }; f 'a[$(touch MARK)]'",
        "f() { (( $@ )); }; f 'a[$(touch MARK)]'",
        ": 'a[$(touch MARK)]'; echo $((_))",
        ": 'a[$(touch MARK)]'; [[ $_ -eq 0 ]]",
        "a=('b[$(touch MARK)]'); (( ${a[0]} ))",
        # Programs that run others.
        "setarch -R touch MARK",
        "/lib64/ld-linux-x86-64.so.2 /usr/bin/touch MARK",
        "prlimit --nofile=100 touch MARK",
        "choom -n 500 -- touch MARK",
        "setpriv --no-new-privs touch MARK",
        "ssh-agent touch MARK",
        "make 'X:=$(shell touch MARK)'",
        "make -f /dev/stdin <<< 'x:;touch MARK'",
        "python3 -mtimeit -s 'import os' 'os.system(\"touch MARK\")'",
        "python3 -c \"import pty; pty.spawn(['touch', 'MARK'])\"",
        "PYTHONPATH=e python3 -c 'import json'",
        "git config --file user.name alias.zz '!touch MARK'",
        "perl5.36.0 -e 'exec qw(touch MARK)'",
        "sudo -e /etc/hosts",
        # Streams by another name.
        "bash /dev/./stdin <<< 'touch MARK'",
        "bash //dev/stdin <<< 'touch MARK'",
        ". /dev/../dev/stdin <<< 'touch MARK'",
        # awk that writes files.
        'awk \'BEGIN{print "a;b" > "MARK"}\'',
        'awk \'BEGIN{printf "}" > "MARK"}\'',
    ],
)
def test_what_a_script_runs_is_listed_or_in_doubt(text):
    found = facts(text)
    programs = [command.program for command in found.commands]
    assert found.doubts or "touch" in programs or "MARK" in found.writes


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


# -- verify

JUDGE = """
import subprocess, sys
script = "import sys; sys.path[:0] = ['/workspace']; import work; print(work.answer())"
python = [sys.executable, "-I", "-c", script]
done = subprocess.run(python, capture_output=True, text=True)
sys.exit(done.stdout.strip() != "42")
"""

READS = """
import re
def answer():
    return re.search('!= "(.*?)"', open("/verify/judge.py").read())[1]
"""

REWRITES = r"""
import os, struct
def answer():
    parent = os.getppid()
    with open(f"/proc/{parent}/maps") as file:
        maps = [line.split() for line in file]
    memory = os.open(f"/proc/{parent}/mem", os.O_RDWR)
    for span, rights, *_ in maps:
        if "rw" not in rights:
            continue
        start, end = (int(each, 16) for each in span.split("-"))
        try:
            data = os.pread(memory, end - start, start)
        except OSError:
            continue
        at = data.find(b"42\0")
        while at >= 0:
            for off in (24, 32, 40, 48):
                if data[max(0, at - off):][:8] == struct.pack("<q", 2):
                    os.pwrite(memory, b"no", start + at)
                    break
            at = data.find(b"42\0", at + 1)
    return "no"
"""


@pytest.mark.anyio
@pytest.mark.parametrize("work", [READS, REWRITES], ids=["reads", "rewrites"])
async def test_what_is_judged_cannot_reach_its_judge(tmp_path, work):
    tmp_path.chmod(0o755)
    (tmp_path / "judge.py").write_text(JUDGE)
    async with BubblewrapWorkspace() as ws:
        await ws.write("work.py", work)
        verdict = await ws.verify(
            ["/usr/bin/python3", "-I", "/verify/judge.py"], mounts={"/verify": tmp_path}
        )
    assert not verdict.passed


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
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Write", {"file_path": "made", "content": "x"}),
        ("Bash", {"command": "touch made"}),
    ],
)
async def test_a_rule_on_a_tool_is_about_what_the_tool_does(tmp_path, name, arguments):
    policy = ANY.with_rules([Rule(verdict="deny", tools=("Write", "Bash"))])
    async with LocalWorkspace(tmp_path, policy=policy) as ws:
        tools = {tool.name: tool for tool in await ws.list_tools()}
        await tools[name](**arguments)
    assert not (tmp_path / "made").exists()


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
