"""`isobox demo`: what it shows is true."""

from __future__ import annotations

import json
import os
import sys

import pytest

from isobox import BubblewrapWorkspace, LocalWorkspace, _registry
from isobox.cli import attempts, demo, project
from isobox.cli.stage import Stage

pytestmark = pytest.mark.anyio

#: Attempts that do no lasting harm where nothing stops them.
HARMLESS = [
    "read_secret",
    "read_environments",
    "write_outside",
    "kill_host_process",
    "reach_loopback",
    "reach_socket_files",
    "reach_abstract_socket",
]


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def no_index(monkeypatch, tmp_path):
    """Pip finds nothing, and asks nobody."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")


@pytest.fixture
async def bubblewrap():
    found = await _registry.provider("bubblewrap").probe()
    if not found.ok:
        pytest.skip(found.reason)


def named(name):
    return next(each for each in attempts.ATTEMPTS if each.name == name)


@pytest.fixture
def stage():
    with Stage() as planted:
        yield planted


@pytest.mark.parametrize("name", HARMLESS)
async def test_what_nothing_stops_is_seen(stage, name):
    async with LocalWorkspace(stage.workdir) as ws:
        await attempts.bring(ws)
        outcome = await attempts.make(named(name), stage, ws)
    assert not outcome.held, outcome.stopped_by


async def test_attempt_that_did_not_run_was_not_held(stage):
    async with LocalWorkspace(stage.workdir) as ws:
        await ws.write("hostile/hostile.py", "raise SystemExit(1)")
        outcome = await attempts.make(named("read_secret"), stage, ws)
    assert not outcome.held
    assert "did not run" in outcome.stopped_by


async def test_attempt_that_was_cut_short_was_not_held(stage):
    async with LocalWorkspace(stage.workdir) as ws:
        await ws.write("hostile/hostile.py", "import os; os.kill(os.getpid(), 9)")
        outcome = await attempts.make(named("read_secret"), stage, ws)
    assert not outcome.held


async def test_process_left_behind_is_seen_and_put_down(stage):
    waiting = "print('up', flush=True); input()"
    marked = [sys.executable, "-c", waiting, stage.marker]
    async with LocalWorkspace(stage.workdir) as ws:
        process = await ws.start(marked, stdin=True)
        assert await process.stdout.receive() == b"up\n"
        outcome = attempts.Outcome("left", "by nothing", held=True)
        assert not attempts.after_closing(outcome, stage).held
        assert (await process.wait()).signal == "SIGKILL"
    assert attempts.after_closing(outcome, stage).held


def test_stage_leaves_nothing():
    with Stage() as stage:
        planted = stage.facts["secret"]
        assert os.path.exists(planted)
    assert not os.path.exists(stage.directory)
    assert stage.bystander_harmed()
    assert not any(secret in str(os.environ) for secret in stage.secrets)


def test_stage_keeps_the_project_only():
    with Stage(keep=True) as stage:
        pass
    assert os.listdir(stage.directory) == ["project"]
    os.rmdir(stage.workdir)
    os.rmdir(stage.directory)


async def test_without_an_index_the_bundled_project_is_used(no_index, tmp_path):
    chosen = await project.fetch(str(tmp_path))
    assert (chosen.name, chosen.archive) == ("roman", None)


@pytest.mark.usefixtures("bubblewrap")
async def test_bundled_project_works_and_can_be_changed(no_index, tmp_path):
    chosen = await project.fetch(str(tmp_path))
    async with BubblewrapWorkspace() as ws:
        await project.unpack(chosen, ws)
        assert (await project.test(chosen, ws)).ok
        change = chosen.change
        assert (await ws.edit(change.path, change.old, change.new)).replacements == 1
        suite = await project.test(chosen, ws)
        assert (suite.ok, suite.tests) == (True, 4)
        await ws.edit(change.path, "0 < number", "10 < number")
        assert not (await project.test(chosen, ws)).ok


@pytest.mark.usefixtures("bubblewrap")
async def test_everything_is_held(no_index, capsys):
    assert await demo.demo(as_json=True) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["ok"]
    assert len(report["attempts"]) >= 25
    assert all(each["held"] for each in report["attempts"])
    assert report["suite"]["before"]["tests"] == report["suite"]["after"]["tests"] == 4
    assert report["diff"].startswith("--- a/roman.py\n+++ b/roman.py\n")
    assert "What a hostile program attempted" in captured.err
