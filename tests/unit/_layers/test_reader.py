"""Scripts are read where a crash harms nobody."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox import Policy
from isobox._core.ops import Spawn
from isobox._layers import reader as reading
from isobox._layers.reader import UNREAD, Reader
from isobox._policy import part, shell
from isobox._policy.shell import worker
from isobox.errors import PolicyDeniedError
from isobox.testing.fake import MemoryWorkspace

SCRIPTS = (
    "ls",
    "git push --force origin main && rm -rf $X",
    "python3 -c 'import os; os.system(\"x\")' > out < in",
    "FOO=1 sudo env BAR=2 xargs -n1 ./tool",
    "\ud800 \x00",
    "",
)


@pytest.fixture
def reader():
    made = Reader()
    yield made
    made.close()


@pytest.mark.parametrize("script", SCRIPTS)
def test_it_tells_what_reading_here_tells(reader, script):
    assert reader.ask({"script": script}) == shell.facts(script)


def test_a_program_is_read_as_well(reader):
    argv = ["sudo", "bash", "-c", "git push"]
    assert reader.ask({"argv": argv}) == shell.facts_of_argv(argv)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_one_that_died_is_replaced(reader, number):
    assert reader.ask({"script": "ls"}).understood
    os.kill(reader._process.pid, number)
    reader._process.wait()
    assert reader.ask({"script": "ls"}) == shell.facts("ls")


def test_one_that_dies_over_a_script_says_that_it_was_not_read(reader, monkeypatch):
    monkeypatch.setattr(worker, "__name__", "isobox._no_such_module")
    assert reader.ask({"script": "ls"}) == UNREAD
    monkeypatch.undo()
    assert reader.ask({"script": "ls"}).understood


def test_one_that_says_nothing_is_not_waited_for(reader, monkeypatch):
    assert reader.ask({"script": "ls"}).understood
    os.kill(reader._process.pid, signal.SIGSTOP)
    monkeypatch.setattr(reading, "_PATIENCE", 0.2)
    assert reader.ask({"script": "ls"}) == UNREAD


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_no_answer_is_taken_for_more_than_it_is(told):
    with pytest.raises(ValueError, match="no "):
        worker.facts(told)


@pytest.mark.anyio
async def test_no_process_outlives_the_workspaces_that_need_it():
    async with MemoryWorkspace(policy=Policy.auto()) as one:
        async with MemoryWorkspace(policy=Policy.auto()) as other:
            for workspace in (one, other):
                with pytest.raises(PolicyDeniedError):
                    await workspace.run("git push # from a workspace")
        process = reading.SHARED.reader._process
        assert process is not None
        assert process.poll() is None
    assert process.poll() is not None
    assert reading.SHARED.reader._process is None


@pytest.mark.anyio
async def test_what_was_read_is_decided_on():
    op = Spawn(script="git push # read elsewhere", cwd="/workspace")
    assert part.known(part.text_of(op)) is None
    await reading.read(op)
    assert part.known(part.text_of(op)) == shell.facts(op.script)
    assert Policy.auto().decide(op).verdict == "ask"
    reading.SHARED.reader.close()


@pytest.mark.anyio
async def test_what_is_too_long_is_not_read():
    op = Spawn(script="ls " + "x" * part.LONGEST, cwd="/workspace")
    await reading.read(op)
    assert Policy.auto().decide(op).rule == "not understood"
