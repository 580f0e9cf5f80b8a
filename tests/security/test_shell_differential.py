"""What bash really runs, compared to what is read in a script.

Every script tries to run `mark`, a program that only leaves a trace, in a sandbox
with a read-only system, no network and a throw-away directory. Where it ran, it is
among the commands that were read, or the script is in doubt.
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
import subprocess
from typing import Final

import pytest
from tests.unit._policy import shell_attacks

from isobox._policy.shell import facts

BWRAP = shutil.which("bwrap")
BASH = shutil.which("bash")
PYTHON = shutil.which("python3", path="/usr/bin:/bin")
pytestmark = pytest.mark.skipif(
    None in (BWRAP, BASH, PYTHON), reason="needs bwrap, bash and the system's python3"
)

#: Runs each script in a directory of its own, and tells which left a trace.
DRIVER: Final = r"""
import json, os, pathlib, shutil, signal, subprocess, sys
os.makedirs("/mnt/bin")
mark = pathlib.Path("/mnt/bin/mark")
mark.write_text("#!/bin/sh\n: > /mnt/ran\n")
mark.chmod(0o755)
hostile = "a[$(mark)]"
names = "x y z i n o p REPLY OPTARG MAPFILE_X".split()
env = {"PATH": "/usr/bin:/bin:/usr/sbin:/mnt/bin", "HOME": "/mnt", "LC_ALL": "C.UTF-8"}
env.update(dict.fromkeys(names, hostile))
ran = []
for at, script in enumerate(json.load(sys.stdin)):
    directory = f"/mnt/{at}"
    os.mkdir(directory)
    pathlib.Path(directory, "f").write_text("mark x\n")
    shutil.rmtree("/mnt/none", ignore_errors=True)
    if os.path.exists("/mnt/ran"):
        os.unlink("/mnt/ran")
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", hostile, hostile], env=env, cwd=directory,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        process.wait(0.7)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    if os.path.exists("/mnt/ran"):
        ran.append(at)
print(json.dumps(ran))
"""

#: Ways to run `mark`, plain and not.
CORES: Final = [
    "mark",
    "mark x",
    "m''ark x",
    'm"ar"k',
    "\\mark",
    "m\\\nark",
    "$'mark'",
    "$'\\x6dark'",
    '$"mark"',
    "/mnt/bin/mark",
    "/mnt/bin/../bin//mark",
    "w=mark; $w",
    'w=(mark x); "${w[@]}"',
    "$(echo mark)",
    "`echo mark`",
    "{mark,x}",
    "/mnt/bin/mar?",
    "echo $(mark)",
    "echo `mark`",
    'echo "${w:-$(mark)}"',
    "echo $((x))",
    "echo $((w + $x))",
    "(( x ))",
    "! ((x))",
    "! (((x)))",
    "time ((x))",
    "echo $((mark) )",
    "echo $((mark); (true))",
    "((mark); (true))",
    "((mark) )",
    "local y=1; echo $((y))",
    "declare -p y=1; echo $((y))",
    "declare -a 'w=([$(mark)]=1)'",
    "eval -- mark",
    "/proc/self/exe -c mark",
    "cp /bin/bash b; ./b -c mark",
    "(( w = x, 1 ))",
    "[[ $x -eq 1 ]]",
    "[[ -v $x ]]",
    "[ -v $x ]",
    'test -v "$x"',
    "let w=x",
    "w=$x; echo $((w))",
    "w=${x}; v=$w; (( v ))",
    "echo ${PATH:x}",
    "w=(1); echo ${w[x]}",
    "w=(1); echo ${w[$x]}",
    "w[x]=1",
    "w=([$x]=1)",
    'printf -v "$x" 1',
    'read "$x" <<< 1',
    'unset "$x"',
    'declare "$x=1"',
    'export "$x"',
    "echo $(($1))",
    "for w in $x; do (( w )); done",
    "for ((w = x; w < 1; w++)); do break; done",
    "w=1; (( w = 0 )) || (( x ))",
    "w=0; if false; then w=1; fi; echo $((w + x))",
    "BASH_CMDS[ls]=/mnt/bin/mark; ls",
    "BASH_ALIASES[ls]=mark\nshopt -s expand_aliases\nls",
    "PS4='$(mark)'; set -x; true",
    "BASH_ENV=f bash -c true",
    "trap mark EXIT; true",
    "trap mark DEBUG; true",
    "exec mark",
    "command mark",
    "coproc mark; wait",
    "mark & wait",
    "time mark",
    "! mark",
    "cat <(mark) > g; sleep 0.05",
    "true > >(mark); sleep 0.05",
    "mapfile -C mark -c 1 w < f",
    "find f -exec mark ';'",
    "xargs mark < f",
    "xargs -I% sh -c % < f",
    "bash < f",
    "bash /dev/./stdin < f",
    "bash //dev/fd/0 < f",
    ". /dev/../dev/stdin < f",
    "sed '1e mark' f",
    "awk 'BEGIN { system(\"mark\") }'",
    'awk \'{ print "a;" | "sh" }\' f; echo mark | sh',
    "tar cf g f --checkpoint=1 --checkpoint-action=exec=mark",
    "tar cf g -I 'mark;cat' f",
    "split --filter=mark f",
    "sort --compress-program=mark f; mark",
    "python3 -c 'import os; os.system(\"mark\")'",
    "python3 -c 'import subprocess as s; s.run([\"mark\"])'",
    "python3 -c 'import os; f = os.system; f(\"mark\")'",
    "python3 -mtimeit -n1 -r1 'import os; os.system(\"mark\")'",
    "perl -e 'system(\"mark\")'",
    "make -f /dev/stdin <<< 'a:; @mark'",
    "make 'X:=$(shell mark)' -f f; mark",
    "git -c alias.s='!mark' s",
    "git config --file g alias.s '!mark'; GIT_CONFIG_GLOBAL=g git s",
    "git -c core.pager=mark -p config -l",
    "setarch -R mark",
    "linux64 mark",
    "/lib64/ld-linux-x86-64.so.2 /bin/sh -c mark",
    "prlimit --nofile=20 mark",
    "choom -n 1000 mark",
    "setpriv --reset-env /mnt/bin/mark",
    "script -qc mark g",
    "flock g mark",
    "flock g -c mark",
    "timeout 1 mark",
    "nice mark",
    "ionice -c3 mark",
    "chrt -o 0 mark",
    "taskset 1 mark",
    "stdbuf -o0 mark",
    "unshare -r mark",
    "env mark",
    "env -S 'mark x'",
    "env -S'sh -c' mark",
    "nohup mark",
    "setsid -w mark",
    "run-parts /mnt/bin",
    "ln -s /dev/stdin g; bash g < f",
    "hash -p /mnt/bin/mark ls; ls",
    "compgen -W '$(mark)'",
    "eval mark",
    "eval 'm''ark'",
    "source <(echo mark)",
    "cd /dev; sh stdin < /mnt/$OLDPWD/f; mark",
    "declare -n w=x; echo $((w))",
    "w='$(mark)'; echo ${w@P}",
    "declare -i w; w=x",
    "w=x; echo $((w))",
    "w=1 true; echo $((x))",
    "select w in 1; do mark; done <<< 1",
    "shopt -s expand_aliases\nalias w=mark\nw",
    "enable -n echo; mark",
    "w() { mark; }; w",
    'w() { "$@"; }; w mark',
    'w() { eval "$1"; }; w mark',
    "exec {w}<f; bash <&$w",
    "true && { mark; }",
    "while :; do mark; break; done",
    "case x in *) mark ;; esac",
    "case $(mark) in *) ;; esac",
    "cat <<E\n$(mark)\nE",
    "cat <<E\n${w:-`mark`}\nE",
    'cat <<< "$(mark)"',
    "bash <<< mark",
    "bash <<'E'\nmark\nE",
    "echo mark | bash",
    "echo mark | sh -s",
    "printf 'mark' | (sh)",
    "[[ a -eq a || $(mark) ]]",
    '[ "$(mark)" ]',
    "w=$(mark)",
    "w=($(mark))",
    "local w=$(mark); true",
    "export w=$(mark)",
    "echo *$(mark)*",
    "echo $[ $(mark) ]",
    "echo ${w/$(mark)/}",
    "echo x >$(mark)g",
    'wait -n -p "$x" & true; sleep 0.02 & wait -n -p "$x"',
    'getopts a "$x"',
]

#: What a script can be within: `@` is the script, `%` the script as one word.
AROUND: Final = [
    "@",
    "( @\n)",
    "{ @\n}",
    "if true; then @\nfi",
    "if ! true; then :; else @\nfi",
    "for q in 1; do @\ndone",
    "while :; do @\nbreak; done",
    "until false; do @\nbreak; done",
    "case a in a) @\n;; esac",
    "q() { @\n}; q",
    "q() ( @\n)\nq",
    "true && { @\n}",
    "false || { @\n}",
    "true | { @\n}",
    "{ @\n} > g",
    "{ @\n} 2>&1 | cat",
    "{ @\n} & wait",
    'echo "$( @\n)"',
    "w=$( @\n)",
    "cat <( @\n) > g; sleep 0.05",
    "cat <<E\n$( @\n)\nE",
    "[[ -n $( @\n) ]]",
    "bash -c %",
    "bash -ec %",
    "bash -c -- % w",
    "bash +x -c %",
    "eval %",
    "eval eval %",
    "trap % EXIT",
    "env bash -c %",
    "command bash -c %",
    "exec bash -c %",
    "timeout 1 bash -c %",
    "nice nohup bash -c %",
    "xargs -I{} bash -c % < f",
    "find f -exec bash -c % ';'",
    "bash <<< %",
    "bash <<'END'\n@\nEND",
    "echo % | bash",
    "source <(echo %)",
    "set -e; @",
    "cd . && @",
    "x=1; @",
    "declare x=1; @",
    "for x in 1; do :; done; @",
    "true; x=1 & @",
    "(x=1); @",
    "x=1 true; @",
    "false && x=1; @",
    "read x < f; @",
    "w=1; x=$w; @",
    "# a comment\n@ # another",
    "echo 'a;b' \"c|d\" \\; ; @",
]


def inside(around: str, script: str) -> str:
    if "%" in around:
        return around.replace("%", shlex.quote(script))
    return around.replace("@", script)


def composed() -> list[str]:
    """Every way once in something, and a share of those in two."""
    chance = random.Random(1)
    found = [*CORES]
    for core in CORES:
        for around in chance.sample(AROUND, 1):
            once = inside(around, core)
            found.append(once)
            if chance.random() < 0.4:
                found.append(inside(chance.choice(AROUND), once))
    for around in AROUND:
        found += [inside(around, "mark"), inside(around, "echo $((x))")]
    return list(dict.fromkeys(found))


def of_attacks() -> list[str]:
    kinds = (shell_attacks.CALCULATIONS, shell_attacks.SYNTAX, shell_attacks.STREAMS)
    return [each.replace("rm x", "mark x") for kind in kinds for each in kind]


def ran(scripts: list[str]) -> set[int]:
    """The scripts in which `mark` ran, by their places."""
    # No directory can be made in a read-only system: `/mnt` is in every one.
    assert BWRAP is not None
    assert PYTHON is not None
    sandbox = [BWRAP, "--unshare-all", "--die-with-parent", "--new-session"]
    sandbox += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    sandbox += ["--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/root"]
    sandbox += [
        "--tmpfs",
        "/mnt",
        "--chdir",
        "/mnt",
        "--clearenv",
        PYTHON,
        "-c",
        DRIVER,
    ]
    done = subprocess.run(
        sandbox,
        input=json.dumps(scripts),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def is_told(script: str) -> bool:
    found = facts(script)
    return not found.understood or any(
        each.program == "mark" for each in found.commands
    )


@pytest.mark.parametrize(
    ("scripts", "least"),
    [(composed(), 300), (of_attacks(), 150)],
    ids=["composed", "attacks"],
)
def test_what_bash_runs_is_read_or_in_doubt(scripts, least):
    places = ran(scripts)
    assert len(places) >= least
    missed = [scripts[at] for at in sorted(places) if not is_told(scripts[at])]
    assert missed == []
