"""What is read in scripts, compared to what bash makes of them.

The scripts are made of letters and punctuation; no program is on the path, no
word holds a slash, and bash tells which commands it did not find.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobox._policy.shell import facts

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash")

#: Quoted text of every kind, without anything that expands.
QUOTED = st.one_of(
    st.text("ab é%,.:@^_+=-", min_size=1, max_size=4).map(lambda t: f"'{t}'"),
    st.text("ab 'é#;&|<>()*?[]{}~!", max_size=5).map(lambda t: f'"{t}"'),
    st.sampled_from(['"\\$"', '"\\`"', '"\\""', '"\\\\"', '"\\a"', '"a\\\nb"', '"$"']),
    st.sampled_from(
        ["$'\\n'", "$'\\x41'", "$'\\101'", "$'\\u00e9'", "$'\\''", "$'\\q'"]
    ),
    st.sampled_from(["\\a", "\\ ", "\\$", "\\'", '\\"', "\\\\", "\\*", "\\;", "\\\n"]),
    st.text("abé%,.:@^_+-", min_size=1, max_size=4),
    st.sampled_from(['$"ab"', "''", '""', "a#b", "{}", "{a}", "a=b", "]", "a}"]),
)


def output(script: str, *arguments: str) -> bytes:
    assert BASH is not None
    environment = {"PATH": "/nonexistent", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        [BASH, "--norc", "--noprofile", "-c", script, "bash", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=20,
    ).stdout


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(QUOTED, min_size=1, max_size=5).map("".join), min_size=5, max_size=30
    )
)
def test_quotes_are_removed_as_bash_removes_them(words):
    script = "printf '%s\\0' x " + " ".join(words)
    found = facts(script)
    if not found.understood:
        return
    (command,) = found.commands
    arguments = command.arguments[1:]
    printed = output(script).decode().split("\0")[:-1]
    if not command.dynamic:
        assert list(arguments) == printed


PIECES = [
    *["a", "b", "c", "ab", " ", " ", " ", "\n", "'", '"', "\\", "\\\n", "$", "(", ")"],
    *["{ ", "}", ";", "; ", "&", "&&", "|", "||", "<", ">", ">>", "`", "#", " #", "="],
    *["[", "]", "! ", "*", "<<a\n", "<<'a'\n", "<<-a\n", "\na\n", "\n\ta\n", "$("],
    *["${a", "${a:-", "[[ ", " ]]", "((", "))", "$((", "if ", "then ", "fi", "do "],
    *["done", "for a in ", "case a in ", "esac", "$'", "1", "2>", "-", "~", ",", "?"],
    *["$a", "(a)", "$(b)", "`c`", "a b", "else ", ";;", "a)", "<(", "<<<", '"$(a)"'],
    *["\t", "é", "&>", "|&", ">|", "<&", ">&", "time ", "{", "!", "$ ", "coproc a "],
]
#: Bash hands commands that it does not find to this function.
TELL = (
    'command_not_found_handle() { printf "%s\\0" "$#" "$@" >&29; };'
    ' readonly -f command_not_found_handle; FUNCNEST=3; eval "$1"'
)


def commands_of_bash(script: str, directory: str) -> list[list[str]]:
    """The commands that bash tries to run."""
    assert BASH is not None
    log = os.open(
        f"{directory}.log", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600
    )
    process = subprocess.Popen(
        [BASH, "--norc", "--noprofile", "-c", f"exec 29>&{log}; {TELL}", "x", script],
        env={"PATH": "/nonexistent", "HOME": directory, "LC_ALL": "C.UTF-8"},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[log],
        start_new_session=True,
    )
    try:
        process.wait(20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    fields = os.pread(log, 1 << 20, 0).decode(errors="replace").split("\0")
    os.close(log)
    told = []
    while len(fields) > 1 and fields[0].isdigit():
        size = int(fields[0])
        told.append(fields[1 : 1 + size])
        fields = fields[1 + size :]
    return told


@pytest.mark.parametrize("seed", range(8))
def test_bash_runs_no_command_that_was_not_read(seed, tmp_path):
    chance = random.Random(seed)
    directory = tmp_path / "empty"
    directory.mkdir()
    for _ in range(1500):
        script = "".join(chance.choices(PIECES, k=chance.randint(3, 16)))
        found = facts(script)
        if not found.understood:
            continue
        for program, *arguments in commands_of_bash(script, str(directory)):
            assert program in ("time", "coproc") or any(
                each.program == program
                and (each.dynamic or list(each.arguments) == arguments)
                for each in found.commands
            ), (script, program, arguments)
