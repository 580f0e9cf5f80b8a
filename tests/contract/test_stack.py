"""The contract over the fake through the full stack, and what the stack adds."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from unittest.mock import AsyncMock

import pytest
from typing_extensions import override

from isobox import Limits, MemorySink, Policy, WorkspaceBase
from isobox._audit.sinks import Record
from isobox.abc import (
    OPS,
    Apply,
    Attach,
    CallTool,
    Checkpoint,
    Connect,
    Dial,
    Diff,
    Discard,
    Edit,
    FileChange,
    Listen,
    Op,
    Patch,
    Process,
    Pull,
    Push,
    Read,
    ReadLines,
    Remove,
    Replacement,
    Restore,
    Running,
    SandboxSpec,
    Scan,
    Script,
    Search,
    Snapshot,
    SnapshotRef,
    Spawn,
    Turn,
    Write,
)
from isobox.errors import PolicyDeniedError, UnsupportedError
from isobox.testing.fake import MemorySandbox, MemoryWorkspace
from isobox.testing.memory_contract import MemoryContract

_ROOT = "/workspace"
_ONE_OF_EACH = {
    Spawn: Spawn(argv=("true",), cwd=_ROOT),
    Script: Script(process=AsyncMock(spec=Process), session_id="s", script="true"),
    Read: Read(path=f"{_ROOT}/file"),
    Write: Write(path=f"{_ROOT}/new", body=b"new"),
    ReadLines: ReadLines(path=f"{_ROOT}/file"),
    Patch: Patch(changes=(FileChange(f"{_ROOT}/file", "delete"),)),
    Edit: Edit(path=f"{_ROOT}/file", replacements=(Replacement(b"a", b"b"),)),
    Scan: Scan(path=_ROOT),
    Search: Search(path=_ROOT, pattern="x"),
    Remove: Remove(path=f"{_ROOT}/file"),
    Pull: Pull(path=_ROOT),
    Push: Push(path=_ROOT, body=bytes(1024)),
    Dial: Dial(port=80),
    Listen: Listen(port=80),
    Snapshot: Snapshot(),
    Restore: Restore(snapshot=SnapshotRef("snapshot-1", 0, 0.0)),
    Diff: Diff(),
    Apply: Apply(),
    Discard: Discard(),
    Attach: Attach(id="0"),
    Running: Running(),
}
_NOT_IN_MEMORY = (Dial, Listen, Diff, Apply, Discard, Attach, Running)


def _outcomes(records: list[Record], number: object) -> list[Record]:
    return [r for r in records if r["number"] == number and r["kind"] == "outcome"]


def _intents(records: list[Record]) -> list[Record]:
    return [record for record in records if record["kind"] == "intent"]


class TestMemoryThroughTheStack(MemoryContract):
    @pytest.fixture(autouse=True)
    def sink(self) -> Iterator[None]:
        self._sink = MemorySink()
        yield
        records = self._sink.records
        for intent in _intents(records):
            found = _outcomes(records, intent["number"])
            # Two workspaces of a test may use the same number once each.
            same = [r for r in _intents(records) if r["number"] == intent["number"]]
            assert len(found) == len(same), intent

    @override
    def make_workspace(self, **options: Any) -> WorkspaceBase:
        options = {
            "audit": self._sink,
            "policy": Policy.allow_all(),
            "limits": Limits(),
            **options,
        }
        return super().make_workspace(**options)


class _Spy(MemorySandbox):
    """Notes every operation that reaches it."""

    def __init__(self, spec: SandboxSpec) -> None:
        super().__init__(spec)
        self.reached: list[str] = []
        for op in _ONE_OF_EACH.values():
            method = op.name
            setattr(self, method, self._noting(method, getattr(self, method)))

    def _noting(
        self, name: str, method: Callable[[Op[object]], Awaitable[object]]
    ) -> Callable[[Op[object]], Awaitable[object]]:
        async def noted(op: Op[object]) -> object:
            self.reached.append(name)
            return await method(op)

        return noted


class SpiedWorkspace(MemoryWorkspace):
    kind = _Spy

    @property
    def reached(self) -> list[str]:
        assert isinstance(self._sandbox, _Spy)
        return self._sandbox.reached


pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


def test_there_is_one_of_each():
    # What leaves a sandbox, what asks a server, and what only waits are no methods.
    assert set(_ONE_OF_EACH) == set(OPS) - {Connect, CallTool, Checkpoint}


@pytest.mark.parametrize("op", _ONE_OF_EACH.values(), ids=lambda op: op.name)
async def test_what_is_denied_reaches_no_sandbox(op):
    sink = MemorySink()
    async with SpiedWorkspace(policy=Policy.deny_all(), audit=sink) as workspace:
        with pytest.raises(PolicyDeniedError, match="deny_all") as caught:
            await workspace._do(op)
        assert workspace.reached == []
    assert isinstance(caught.value, PermissionError)
    assert caught.value.op == op.name


@pytest.mark.parametrize("op", _ONE_OF_EACH.values(), ids=lambda op: op.name)
async def test_a_denial_is_on_record(op):
    sink = MemorySink()
    async with SpiedWorkspace(policy=Policy.deny_all(), audit=sink) as workspace:
        with pytest.raises(PolicyDeniedError):
            await workspace._do(op)
    (intent,) = _intents(sink.records)
    (outcome,) = _outcomes(sink.records, intent["number"])
    assert intent["op"] == op.name
    assert (outcome["ok"], outcome["error"]) == (False, "PolicyDeniedError")


@pytest.mark.parametrize("op", _ONE_OF_EACH.values(), ids=lambda op: op.name)
async def test_what_is_allowed_reaches_the_sandbox_and_the_record(op):
    sink = MemorySink()
    async with SpiedWorkspace(audit=sink) as workspace:
        await workspace.write("file", b"a")
        await workspace.snapshot()
        workspace.reached.clear()
        sink.records.clear()
        await _performed(workspace, op)
        assert workspace.reached == [op.name]
        (intent,) = _intents(sink.records)
        (outcome,) = _outcomes(sink.records, intent["number"])
        assert intent["op"] == op.name
        assert outcome["ok"] is not isinstance(op, _NOT_IN_MEMORY)


async def _performed(workspace: WorkspaceBase, op: Op[Any]) -> None:
    if isinstance(op, _NOT_IN_MEMORY):
        with pytest.raises(UnsupportedError):
            await workspace._do(op)
        return
    result = await workspace._do(op)
    if isinstance(op, Spawn):
        await result.wait()
        await result.aclose()
    elif isinstance(op, Script):
        result.end({"exit_code": 0})
    elif isinstance(op, Read | Pull):
        async with result:
            await result.read()


class _Full(MemorySink):
    """A sink with no room for one kind of record."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    @override
    def put(self, record: Record, /) -> None:
        if record["kind"] == self._kind:
            raise OSError("no room for the record")
        super().put(record)


@pytest.mark.parametrize("op", _ONE_OF_EACH.values(), ids=lambda op: op.name)
async def test_what_cannot_be_recorded_does_not_happen(op):
    async with SpiedWorkspace(audit=_Full("intent")) as workspace:
        with pytest.raises(OSError, match="no room"):
            await workspace._do(op)
        assert workspace.reached == []


async def test_a_script_reaches_the_shell_with_the_nul_that_ends_it():
    process = AsyncMock(spec=Process)
    async with MemoryWorkspace() as workspace:
        await workspace._do(Script(process=process, session_id="s", script="é"))
        process.write.assert_awaited_once_with("é\0".encode())


async def test_a_shell_that_has_ended_is_no_failure_of_the_script():
    process = AsyncMock(spec=Process)
    process.write.side_effect = BrokenPipeError
    async with MemoryWorkspace() as workspace:
        turn = await workspace._do(Script(process=process, session_id="s", script=""))
        assert isinstance(turn, Turn)


async def test_what_a_command_was_fed_is_counted():
    sink = MemorySink()
    async with MemoryWorkspace(audit=sink) as workspace:
        await workspace.run(["cat"], stdin="12345")
    (intent,) = _intents(sink.records)
    (outcome,) = _outcomes(sink.records, intent["number"])
    assert outcome["end"] == {"exit_code": 0, "stdin_bytes": 5}


async def test_a_life_is_on_record():
    sink = MemorySink()
    async with MemoryWorkspace(audit=sink):
        pass
    events = [r["event"] for r in sink.records if r["kind"] == "lifecycle"]
    assert events == ["initialize", "close"]


async def test_no_content_is_on_record():
    sink = MemorySink()
    async with MemoryWorkspace(audit=sink) as workspace:
        await workspace.write("file", b"very-secret-content")
        await workspace.run(["cat"], stdin="very-secret-content")
        await workspace.run(["true"], env={"TOKEN": "very-secret-content"})
    assert "very-secret-content" not in repr(sink.records)
