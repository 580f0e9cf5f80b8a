"""`isobox policy`."""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner

from isobox import LocalWorkspace, load_policy
from isobox.cli.policy import TOOLS, app
from isobox.errors import InvalidArgumentError

FILE = """
version = 1
preset = "auto"

[network]
hosts = ["www.example.org", "!evil.example.org"]

[[rules]]
verdict = "deny"
name = "no force"
programs = ["git"]
arguments = ["push", "--force*"]
reason = "history is shared"

[rules.examples]
match = ["git push --force origin main"]
no_match = ["git push", "echo git push --force"]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(FILE)
    return str(path)


def invoke(*arguments):
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.output


def test_a_good_file_is_good(file):
    code, said = invoke("check", file)
    assert code == 0
    assert said.startswith(f"{file}: good, ")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("version = 1", "version = 2", "version"),
        ("verdict", "verdikt", "verdikt"),
        ('["git push", ', '["git push --force", ', "is about its example"),
        ('match = ["git push --force', 'match = ["git pull --force', "is not about"),
        ("[network]", "[network", "policy.toml"),
        ('"www.example.org"', '"https://www.example.org/"', "host alone"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path, old, new, words):
    path = tmp_path / "policy.toml"
    path.write_text(FILE.replace(old, new))
    code, said = invoke("check", str(path))
    assert code == 1
    assert words in said


def test_a_decision_is_explained_with_its_line(file):
    code, said = invoke("explain", "--policy", file, "ls && git push --force")
    assert code == 0
    first, *parts = said.splitlines()
    assert first == (
        f"deny: history is shared (git push --force) (rule 'no force' at {file}:8)"
    )
    assert parts[0] == "  ls: allow: work inside the workspace is allowed (rule 'auto')"


def test_an_explanation_as_json(file):
    code, said = invoke("explain", "--json", "--policy", file, "git", "push")
    assert code == 0
    told = json.loads(said)
    assert (told["verdict"], told["rule"], told["source"]) == ("ask", "git push", None)
    assert [part["part"] for part in told["parts"]] == ["git push"]


def test_a_rule_on_a_tool_is_explained(tmp_path):
    path = tmp_path / "tools.toml"
    path.write_text('version = 1\n[[rules]]\nverdict = "deny"\ntools = ["Write"]\n')
    for tool, verdict in (("Write", "deny"), ("Edit", "allow"), (None, "allow")):
        more = () if tool is None else ("--tool", tool)
        code, said = invoke("explain", "--policy", str(path), "--write", "a", *more)
        assert code == 0
        assert said.startswith(f"{verdict}: ")


def test_a_call_of_an_mcp_tool_is_explained(tmp_path):
    path = tmp_path / "tools.toml"
    path.write_text(
        'version = 1\n[[rules]]\nverdict = "deny"\nops = ["tool"]\n'
        'tools = ["mcp__git__*"]\n'
    )
    for tool, verdict in (("mcp__git__a__b", "deny"), ("mcp__other__log", "allow")):
        code, said = invoke("explain", "--policy", str(path), "--tool", tool)
        assert (code, said.partition(":")[0]) == (0, verdict)


def test_what_is_said_of_other_hosts_is_named(file, tmp_path):
    connect = ("--connect", "other.example.org")
    _, said = invoke("explain", "--policy", file, *connect)
    assert said == (
        "ask: no rule is about other.example.org:443, and the network's `otherwise` "
        "is ask (rule 'otherwise')\n"
    )
    _, said = invoke("explain", "--preset", "auto", *connect)
    assert said == (
        "deny: no rule allows other.example.org:443, and the network's `otherwise` "
        "is deny (rule 'default')\n"
    )


def test_a_rule_that_names_nothing_is_warned_of(tmp_path):
    path = tmp_path / "all.toml"
    path.write_text(
        'version = 1\n[[rules]]\nverdict = "deny"\nprograms = ["x"]\n'
        '[[rules]]\nname = "mine"\nverdict = "deny"\n'
    )
    code, said = invoke("check", str(path))
    assert code == 0
    assert f"{path}:5: warning: rule 'mine' names nothing" in said
    assert said.count("warning") == 1


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        (["--read", "x"], "allow"),
        (["--write", "x"], "allow"),
        (["--remove", "x"], "allow"),
        (["--connect", "www.example.org:443"], "allow"),
        (["--connect", "EVIL.example.org.:443"], "deny"),
        (["--connect", "other.example.org:443"], "ask"),
        (["--tool", "mcp__git__git_log"], "allow"),
        (["--connect", "www.example.org"], "allow"),
    ],
)
def test_other_operations_are_explained(file, arguments, verdict):
    code, said = invoke("explain", "--policy", file, *arguments)
    assert code == 0
    assert said.startswith(f"{verdict}: ")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--read", "x", "--write", "y"],
        ["--connect", "www.example.org:x"],
        ["--tool", "Bash"],
        ["--tool", "mcp__git"],
        ["--tool", "mcp____log"],
        ["--preset", "yolo", "ls"],
        ["--policy", "/nowhere", "ls"],
    ],
)
def test_what_makes_no_sense_is_refused(arguments):
    code, _ = invoke("explain", *arguments)
    assert code == 2


def test_the_schema_is_strict():
    code, said = invoke("schema")
    told = json.loads(said)
    assert code == 0
    assert told["additionalProperties"] is False
    assert "rules" in told["properties"]


def test_a_projects_file_can_only_forbid(tmp_path, file):
    own = tmp_path / "project" / ".isobox"
    own.mkdir(parents=True)
    (own / "policy.toml").write_text(
        'version = 1\npreset = "full_access"\n'
        '[[rules]]\nverdict = "deny"\nprograms = ["curl"]\n'
        '[[rules]]\nverdict = "allow"\nprograms = ["git"]\n'
    )
    from isobox._core.ops import Spawn  # noqa: PLC0415

    policy = load_policy(file, project=tmp_path / "project")

    def verdict(script):
        return policy.decide(Spawn(script=script, cwd="/workspace")).verdict

    assert verdict("curl x") == "deny"
    assert verdict("git push --force") == "deny"
    assert verdict("git push") == "ask"
    assert verdict("ls") == "allow"


@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "large", "bytes"])
def test_a_file_that_is_none_is_refused_at_once(tmp_path, file, kind):
    path = tmp_path / "other.toml"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(file)
    elif kind == "directory":
        path.mkdir()
    elif kind == "large":
        path.write_text("#" * (2 << 20))
    else:
        path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidArgumentError, match=r"other\.toml"):
        load_policy(path)


def test_what_can_never_fit_is_warned_of(tmp_path):
    path = tmp_path / "never.toml"
    path.write_text(
        'version = 1\n[[rules]]\nverdict = "deny"\ntools = ["bash", "Edit", "*write"]\n'
        '[[rules]]\nverdict = "deny"\nops = ["write"]\nprograms = ["git"]\n'
    )
    code, said = invoke("check", str(path))
    assert code == 0
    assert "names the tool 'bash'; the model's own is 'Bash'" in said
    assert f"{path}:5: warning: rule 'deny write git' is about nothing" in said
    assert said.count("warning") == 2


@pytest.mark.anyio
async def test_the_tools_that_are_known_are_those_of_a_workspace(tmp_path):
    async with LocalWorkspace(workdir=tmp_path) as workspace:
        names = [tool.name for tool in await workspace.list_tools()]
    assert sorted([*names, "Skill"]) == sorted(TOOLS.values())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["vim x", "--tool", "Bash"], 2),
        (["vim x", "--policy=p.toml"], 2),
        (["vim", "--tool", "Bash"], 0),
        (["vim x", "--other"], 0),
        (["vim x", "y", "--tool"], 0),
    ],
)
def test_options_after_a_script_are_no_words_of_it(file, words, code):
    ended, said = invoke("explain", "--policy", file, *words)
    assert ended == code
    assert ("comes after the command" in said) is (code == 2)
