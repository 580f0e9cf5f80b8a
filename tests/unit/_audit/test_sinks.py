"""Where records go."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from isobox import LocalWorkspace
from isobox._audit.sinks import AuditSink, JsonlSink, MemorySink, sink_for
from isobox.errors import InvalidArgumentError


def lines(path: os.PathLike[str]) -> list[dict]:
    """Return the records of a file, without what chains them."""
    with open(path) as file:
        records = [json.loads(line) for line in file]
    for number, record in enumerate(records, 1):
        assert record.pop("seq") == number
        assert len(record.pop("prev")) == len(record.pop("hash")) == 64
    return records


@pytest.fixture
def sink(tmp_path):
    sink = JsonlSink(tmp_path / "audit.jsonl")
    yield sink
    sink.close()


def test_each_record_is_a_line(sink):
    records = [{"text": "a\nb\u2028"}, {"odd": "\udcff", "number": 1.5, "none": None}]
    for record in records:
        sink.put(record)
    assert lines(sink.path) == records


def test_only_the_owner_reads_it(sink):
    assert stat.S_IMODE(os.stat(sink.path).st_mode) == 0o600


def test_what_was_there_stays(sink, tmp_path):
    sink.put({"n": 1})
    again = JsonlSink(tmp_path / "audit.jsonl")
    again.put({"n": 2})
    again.close()
    assert lines(sink.path) == [{"n": 1}, {"n": 2}]


def test_threads_do_not_mix_their_lines(sink):
    with ThreadPoolExecutor(8) as pool:
        for number in range(400):
            pool.submit(sink.put, {"n": number, "text": "x" * 5000})
    assert sorted(each["n"] for each in lines(sink.path)) == list(range(400))


def test_processes_do_not_mix_their_lines(sink):
    code = (
        "import sys; from isobox._audit.sinks import JsonlSink;"
        "s = JsonlSink(sys.argv[1]);"
        "[s.put({'who': sys.argv[2], 'text': 'x' * 3000}) for _ in range(100)]"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    running = [
        subprocess.Popen([sys.executable, "-c", code, sink.path, str(who)], env=env)
        for who in range(3)
    ]
    assert [each.wait(60) for each in running] == [0, 0, 0]
    assert len(lines(sink.path)) == 300


def test_a_link_is_not_written_through(tmp_path):
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        JsonlSink(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


def test_a_place_that_is_none_is_said(tmp_path):
    with pytest.raises(FileNotFoundError):
        JsonlSink(tmp_path / "absent/audit")


def test_a_record_that_does_not_fit_raises(sink):
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, sink._tail._file.number)
    os.close(full)
    with pytest.raises(OSError, match="No space"):
        sink.put({"n": 1})
    assert lines(sink.path) == []


def test_the_sink_that_an_argument_names(tmp_path):
    memory = MemorySink()
    assert sink_for(None) is None
    assert sink_for(memory) is memory
    named = sink_for(tmp_path / "f")
    assert isinstance(named, JsonlSink)
    named.close()
    assert isinstance(memory, AuditSink)


@pytest.mark.anyio
async def test_a_workspace_records_its_life_and_its_operations(tmp_path):
    sink = MemorySink()
    async with LocalWorkspace(tmp_path, audit=sink, workspace_id="w-1") as workspace:
        await workspace.run(["sh", "-c", "exit 3"])
        await workspace.write("f", b"hush")
        await workspace.read_bytes("f")
    kinds = [(each["kind"], each.get("op")) for each in sink.records]
    assert kinds[0] == ("lifecycle", None)
    assert kinds[-1] == ("lifecycle", None)
    assert [op for kind, op in kinds if kind == "intent"] == ["spawn", "write", "read"]
    outcomes = [each for each in sink.records if each["kind"] == "outcome"]
    assert len(outcomes) == 3
    ends = [each.get("end") for each in outcomes]
    assert any(isinstance(end, dict) and end.get("exit_code") == 3 for end in ends)
    assert {each["workspace"] for each in sink.records} == {"w-1"}
    assert "hush" not in repr(sink.records)
    assert json.dumps(sink.records)


class Choosy:
    """Takes everything but the outcome of a command."""

    def __init__(self) -> None:
        self.records: list = []

    def put(self, record) -> None:
        if record["kind"] == "outcome":
            raise OSError("no space left")
        self.records.append(record)


@pytest.mark.anyio
async def test_a_sink_that_fails_at_an_outcome_ends_no_sandbox(tmp_path, monkeypatch):
    timeout = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda delay: timeout(min(delay, 0.2)))
    workspace = LocalWorkspace(tmp_path, audit=Choosy())
    await workspace.initialize()
    with pytest.raises(OSError, match="no space"):
        await workspace.run("true", timeout=10)
    sandbox = workspace._sandbox
    assert sandbox.channel.failure is None
    # The outcome is owed still, and the sandbox goes all the same.
    with pytest.raises(OSError, match="no space"):
        await workspace.close()
    assert workspace._sandbox is None


# -- out of the workload's reach ----------------------------------------------------


@pytest.fixture
def sinks():
    """Makes sinks, and closes them."""
    made = []

    def make(path):
        made.append(JsonlSink(path))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def project(tmp_path):
    directory = tmp_path / "project"
    (directory / "logs").mkdir(parents=True)
    return directory


@pytest.mark.parametrize("below", [".", "logs", "logs/../logs"])
@pytest.mark.anyio
async def test_a_file_that_commands_could_change_is_refused(sinks, project, below):
    workspace = LocalWorkspace(project, audit=sinks(project / below / "a.jsonl"))
    with pytest.raises(InvalidArgumentError, match="inside the workspace"):
        await workspace.initialize()


@pytest.mark.anyio
async def test_so_it_is_through_links_on_either_side(sinks, project, tmp_path):
    (tmp_path / "logs").symlink_to(project / "logs")
    (tmp_path / "alias").symlink_to(project)
    for workdir, file in (
        (project, tmp_path / "logs" / "a.jsonl"),
        (tmp_path / "alias", project / "b.jsonl"),
    ):
        workspace = LocalWorkspace(workdir, audit=sinks(file))
        with pytest.raises(InvalidArgumentError, match="inside the workspace"):
            await workspace.initialize()


@pytest.mark.anyio
async def test_a_relative_file_is_where_it_was_opened(
    sinks, project, tmp_path, monkeypatch
):
    monkeypatch.chdir(project)
    sink = sinks("a.jsonl")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match="inside the workspace"):
        await LocalWorkspace(project, audit=sink).initialize()


@pytest.mark.anyio
async def test_a_file_beside_the_directory_is_taken(sinks, project, tmp_path):
    sink = sinks(tmp_path / "project.jsonl")
    async with LocalWorkspace(project, audit=sink):
        pass
    async with LocalWorkspace(audit=sink):
        pass
    assert len(lines(sink.path)) == 4


@pytest.mark.parametrize("wrong", [5, b"a.jsonl", MemorySink, JsonlSink, object(), []])
def test_what_is_no_sink_is_refused(wrong):
    with pytest.raises(InvalidArgumentError, match="is no sink; give a file's path"):
        sink_for(wrong)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sync": "maybe"}, '\'maybe\' is not "always" or "never"'),
        ({"sync": True}, "sync=True"),
        ({"key": "x" * 32}, r"give bytes, such as key\.encode\(\)"),
        ({"key": 5}, "of type int; give bytes"),
        ({"max_bytes": "2048"}, "max_bytes='2048' is no whole number from 1024"),
        ({"max_bytes": 10}, "max_bytes=10 is no whole number from 1024"),
        ({"path": 5}, "path=5 is no path"),
    ],
)
def test_what_is_of_another_type_is_refused_before_a_file_is_made(
    tmp_path, options, words
):
    with pytest.raises(InvalidArgumentError, match=words) as met:
        JsonlSink(**{"path": tmp_path / "a", **options})
    assert "x" * 32 not in str(met.value)
    assert list(tmp_path.iterdir()) == []
