"""What is read in scripts: a table with evasions, and hostile text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit._policy.shell_ordinary import ORDINARY
from tests.unit._policy.shell_table import TABLE

from isobox._layers.reader import Reader
from isobox._policy.shell import Command, facts, facts_of_argv

#: What opens, closes or joins something in a script.
PIECES = [
    *"abc'\"\\$(){};&|<>`#=[]!*~ \n\t",
    *("$(", "$((", "((", "[[ ", " ]]", "${a:-", "<<a\n", "\na\n", "<(", "&>", "|&"),
    *("if ", "then ", "fi", "for a in ", "do ", "done", "case a in ", "esac", "a()"),
    *("sudo ", "env ", "xargs ", "bash -c ", "eval ", "find . -exec ", "git -c "),
    *("\0", "\r", "\u202e", "\ud800", "é", "awk ", "sed ", "python -c ", "tar -I"),
]


def shown(command: Command) -> str:
    """As the table writes it."""
    words = [command.program or "?"]
    for at, text in enumerate(command.arguments):
        quoted = repr(text) if not text or " " in text else repr(text)[1:-1]
        words.append("~" + quoted if at in command.dynamic else quoted)
    assigned = [f"{name}={value}" for name, value in command.assignments]
    return " > ".join([*command.through, " ".join(assigned + words)])


@pytest.mark.parametrize("case", TABLE, ids=lambda case: ascii(case.script)[:60])
def test_a_script_has_the_expected_facts(case):
    found = facts(case.script)
    assert [shown(each) for each in found.commands] == case.commands
    assert list(found.doubts) == case.doubts
    assert list(found.writes) == case.writes
    assert list(found.reads) == case.reads
    assert found.understood is (not case.doubts)


@pytest.mark.parametrize("script", ORDINARY, ids=lambda script: ascii(script)[:60])
def test_what_agents_write_every_day_is_understood(script):
    assert facts(script).doubts == ()


def test_the_table_is_large_and_has_no_script_twice():
    assert len(TABLE) >= 150
    assert len({each.script for each in TABLE}) == len(TABLE)


def test_python_in_a_script_is_read():
    script = (
        "python3 - <<'EOF'\nimport os\nos.system('x')\nEOF\n"
        'python -c \'open("f", "w")\''
    )
    found = facts(script)
    assert [each.calls for each in found.python] == [("os.system",), ("open",)]
    assert found.python[1].writes == ("f",)


def test_doubts_about_python_are_doubts_about_the_script():
    assert facts("python -c 'eval(input())'").doubts == (
        "python: it calls eval, so that only running it tells more",
        "python: it calls input, so that only running it tells more",
    )


def test_an_argv_is_unwrapped_and_not_read_by_a_shell():
    found = facts_of_argv(["sudo", "sh", "-c", "rm $(ls)"])
    assert [shown(each) for each in found.commands] == [
        "sudo > sh > rm ~$(ls)",
        "sudo > sh > ls",
    ]
    plain = facts_of_argv(["echo", "$(rm x)", "*", "a\nb"])
    assert plain.commands == (Command("echo", ("$(rm x)", "*", "a\nb"), path="echo"),)
    assert plain.understood


def test_an_argv_in_doubt_is_not_understood():
    assert not facts_of_argv(["sh"]).understood
    assert not facts_of_argv(["ls", "a\0b"]).understood
    assert facts_of_argv([]).commands == ()


def test_the_same_script_gives_the_same_facts():
    assert facts("ls | wc") is facts("ls | wc")


@pytest.mark.parametrize(
    "piece",
    [
        "(",
        "$(",
        "`",
        "{",
        "((",
        "[[ ",
        "a|",
        "a&&",
        "${a",
        "a\n",
        "$a",
        "a=(",
        "))",
        "(a)",
        "a() ",
        "$[",
        "<<a\n",
        "<<a <<b ",
        "{a,",
        "a ",
        "[",
        "if ",
        '"$(',
        "\\",
        "print>",
        "eval ",
        "sudo ",
        "bash -c ",
        "case a in ",
        "a <<E\nx\nE\n",
        "''",
    ],
)
def test_repeated_text_is_read_within_a_bound(piece):
    script = (piece * (64 * 1024))[: 64 * 1024]
    started = time.monotonic()
    found = facts(script)
    assert time.monotonic() - started < 10
    assert len(found.commands) <= 2000


@pytest.mark.parametrize("program", ["awk", "sed", "git -c", "eval", "bash -c", "find"])
@pytest.mark.parametrize(
    "piece", ["print", "s/a/", "tool.", 'system("', "\\", "-exec "]
)
def test_long_arguments_are_read_within_a_bound(program, piece):
    started = time.monotonic()
    facts(f"{program} '{piece * (60_000 // len(piece))}'")
    facts(f"{program} {piece * (60_000 // len(piece))}")
    assert time.monotonic() - started < 10


def test_a_script_that_is_too_long_is_not_understood():
    assert facts("ls " + "x" * 65536).doubts == ("it is longer than 64 KiB",)
    assert not facts("ls\n" * 3000).understood


def test_scripts_in_scripts_end():
    script = "ls"
    for _ in range(14):
        deeper = "eval " + "'" + script.replace("'", "'\\''") + "'"
        script = deeper if len(deeper) < 30_000 else script
    assert shown(facts(script).commands[-1]).endswith("eval > ls")
    assert not facts("sudo " * 50 + "ls").understood
    assert not facts_of_argv(["sudo"] * 5000).understood


READER = Reader()


@pytest.fixture(autouse=True, scope="module")
def reader():
    yield
    READER.close()


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(st.sampled_from(PIECES)).map("".join)))
def test_no_text_raises(text):
    # In the process that workspaces have for it: the grammar is C code, and a
    # text of which it dies is one that was not understood.
    found = READER.ask({"script": text})
    assert found.understood is (not found.doubts)
    assert all(each.isprintable() and len(each) <= 200 for each in found.doubts)
    for command in found.commands:
        assert all(0 <= at < len(command.arguments) for at in command.dynamic)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=20), st.sampled_from(PIECES)), max_size=8))
def test_no_argv_raises(argv):
    found = READER.ask({"argv": argv})
    assert found.understood is (not found.doubts)
