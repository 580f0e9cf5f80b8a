"""What is read in Python code."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobox._policy import python_code
from isobox._policy.python_code import facts


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("import os; os.system('x')", ["os.system"]),
        ("import os as o; o.system('x')", ["os.system"]),
        ("from os import system as s; s('x')", ["os.system"]),
        ("import os.path; os.path.join('a')", ["os.path.join"]),
        ("import subprocess; subprocess.run(['x'])", ["subprocess.run"]),
        ("from socket import socket\nsocket()", ["socket.socket"]),
        ("import shutil\nshutil.rmtree('x')", ["shutil.rmtree"]),
        ("def f():\n  import os\n  os.remove('x')", ["os.remove"]),
        ("open('x').read()", ["?.read", "open"]),
        ("import atexit\n@atexit.register\ndef f(): ...", ["atexit.register"]),
        ("x = 1 + 1", []),
    ],
)
def test_calls_have_the_names_that_were_imported(source, calls):
    found = facts(source)
    assert list(found.calls) == calls
    assert found.understood


@pytest.mark.parametrize(
    ("source", "writes"),
    [
        ("open('x')", []),
        ("open('x', 'rb')", []),
        ("open('x', 'w')", ["x"]),
        ("open('x', mode='a')", ["x"]),
        ("open(name, 'x')", [None]),
        ("open('x', mode)", ["x"]),
        ("open('x', **options)", ["x"]),
        ("from pathlib import Path\nPath('x').write_text('y')", [None]),
        ("from pathlib import Path\nPath('x').open('w')", [None]),
        ("from pathlib import Path\nPath('x').open()", []),
    ],
)
def test_files_that_are_opened_to_write_are_known(source, writes):
    assert list(facts(source).writes) == writes


@pytest.mark.parametrize(
    "source",
    [
        "eval('1')",
        "exec(code)",
        "getattr(os, 'sys' + 'tem')('x')",
        "__import__('os').system('x')",
        "import importlib; importlib.import_module(x)",
        "from os import *",
        "import ctypes",
        "import pickle; pickle.loads(x)",
        "().__class__.__bases__[0].__subclasses__()",
        "__builtins__['eval']('1')",
        "(lambda: 1)()",
        "f()()",
        "handlers[0]()",
        "this is no python",
        "x = '\0'",
        "(" * 5000,
        "x" * 70_000,
        "a\n" * 20_000,
        "x = '\ud800'",
    ],
)
def test_what_only_running_tells_is_in_doubt(source):
    assert not facts(source).understood


@pytest.mark.parametrize(
    ("source", "scripts"),
    [
        ("import os; os.system('a b')", ["a b"]),
        ("import os as o; o.popen('a | b')", ["a | b"]),
        ("from os import system as s; s('a')", ["a"]),
        ("import subprocess; subprocess.run(['a', 'b c'])", ["a 'b c'"]),
        ("import subprocess as s; s.Popen(args=('a',), cwd=x)", ["a"]),
        ("import subprocess; subprocess.call('a; b', shell=True)", ["a; b"]),
        ("import subprocess; subprocess.call('a b')", ["'a b'"]),
        ("import subprocess; subprocess.run(['a', x, *y])", ['a "$word" $words']),
        (
            "import subprocess, sys; subprocess.run([sys.executable, '-V'])",
            ["python3 -V"],
        ),
        ("import pty; pty.spawn('a')", ["a"]),
        ("import asyncio; asyncio.create_subprocess_exec('a', 'b')", ["a b"]),
        ("import asyncio; asyncio.create_subprocess_shell('a b')", ["a b"]),
        ("import os; os.path.join('a')", []),
    ],
)
def test_what_it_runs_is_a_script(source, scripts):
    found = facts(source)
    assert list(found.scripts) == scripts
    assert found.understood


@pytest.mark.parametrize(
    "source",
    [
        "import os; os.system(x)",
        "import os; os.system(f'a {x}')",
        "import os; f = os.system",
        "import os; o = os",
        "import os; os.execvp('a', ['a'])",
        "from os import system\n@system\ndef f(): ...",
        "from os import posix_spawn; posix_spawn('a', ['a'], {})",
        "import os; os.environ['PATH'] = 'x'",
        "import os; os.environ[x] = 'x'",
        "import shutil; shutil.os.system('a')",
        "from shutil import os; os.system('a')",
        "import subprocess; subprocess.run(['a'], shell=True)",
        "import subprocess; subprocess.run(['a'], env={})",
        "import subprocess; subprocess.run('a', shell=x)",
        "import subprocess; subprocess.run(*x)",
        "import subprocess; map(subprocess.run, x)",
        "import json as o\nimport os as o",
        "e = eval",
    ],
)
def test_a_program_that_only_running_tells_is_in_doubt(source):
    assert not facts(source).understood


def test_imports_are_facts():
    found = facts("import os, a.b as c\nfrom d import e\nfrom . import f")
    assert found.imports == ("os", "a.b", "d.e", "..f")


def test_findings_of_bandit_are_facts():
    pytest.importorskip("bandit")
    source = "import subprocess\nsubprocess.run('x', shell=True)  # nosec\n"
    found = facts(source)
    assert [each.split()[:4] for each in found.findings] == [
        ["B404", "LOW", "line", "1:"],
        ["B607", "LOW", "line", "2:"],
        ["B602", "LOW", "line", "2:"],
    ]
    assert facts(source) == found


def test_without_bandit_there_are_no_findings(monkeypatch):
    monkeypatch.setattr(python_code, "_bandit", lambda: None)
    assert facts("import subprocess").findings == ()


@pytest.mark.parametrize(
    "piece", ["a.", "a(", "[", "-", "a\n", "lambda:", "not ", "a+"]
)
def test_repeated_code_is_read_within_a_bound(piece):
    started = time.monotonic()
    facts((piece * (60_000 // len(piece))) + "a")
    assert time.monotonic() - started < 10


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_no_text_raises(source):
    found = facts(source)
    assert found.understood is (not found.doubts)
