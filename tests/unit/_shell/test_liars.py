"""Shells that lie, break off, or say nothing: an error, and never a hang."""

from __future__ import annotations

import re

import anyio
import pytest

from isobox import abc
from isobox._shell import operators, process
from isobox._shell.exec import ENDED, STDOUT
from isobox._shell.sandbox import ShellSandbox
from isobox.errors import BackendUnavailableError, IsoboxError, SandboxLostError

pytestmark = pytest.mark.anyio
_HELD = abc.Barrier("none", "a test")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    for module in (operators, process):
        monkeypatch.setattr(module, "SILENCE", 0.2)
    monkeypatch.setattr(process, "_GRACE", 0.2)


class Liar:
    """Answers each piece of code with what `lie` makes of its end."""

    def __init__(self, lie):
        self._lie = lie
        self._answers = [b""]
        self._more = anyio.Event()

    async def start(self, argv, *, tty):
        return Liar(self._lie)

    async def send(self, data):
        ends = re.findall(rb"printf %s ([0-9a-f]{32})$", data)
        if (answer := self._lie(data, ends[0] if ends else b"")) is not None:
            self._answers.append(answer)
            self._more.set()
            self._more = anyio.Event()

    async def send_eof(self):
        self._answers.append(None)
        self._more.set()

    async def receive(self):
        await anyio.sleep(0)
        while not self._answers or self._answers[0] == b"":
            if self._answers:
                self._answers.pop(0)
            else:
                await self._more.wait()
        answer = self._answers[0]
        if answer is None:
            return ENDED, b""
        if callable(answer):
            return STDOUT, answer()
        return STDOUT, self._answers.pop(0)

    async def wait(self):
        return 0

    async def resize(self, columns, rows):
        pass

    async def aclose(self):
        pass


def _after(lie):
    """Tell the truth about what there is inside, and lie from then on."""

    def told(data, end):
        if b"command -v" in data:
            lines = ["", "", "265", "", "", "proc", "x"]
            return "\n".join(lines).encode() + end
        if b"no()" in data:
            return end
        return lie(data, end)

    return told


_LIES = {
    "nothing": lambda data, end: end,
    "silence": lambda data, end: None,
    "noise": lambda data, end: b"\xff" * 100_000 + end,
    "no_line": lambda data, end: b"ok" * 50_000,
    "ok_alone": lambda data, end: b"ok\n" + end,
    "half": lambda data, end: b"ok\n/workspace/f\0" + end,
    "endless": lambda data, end: lambda: b"x" * 65536,
    "endless_lines": lambda data, end: lambda: b"ok 1\n" * 10_000,
    "refusal": lambda data, end: b"no such luck\n" + end,
    "zeros": lambda data, end: bytes(100_000) + end,
}

_CALLS = {
    "read": lambda box: box.read(abc.Read(path="/workspace/f")),
    "read_lines": lambda box: box.read_lines(abc.ReadLines(path="/workspace/f")),
    "write": lambda box: box.write(abc.Write(path="/workspace/f", body=b"x")),
    "append": lambda box: box.write(
        abc.Write(path="/workspace/f", body=b"x\n", append=True)
    ),
    "edit": lambda box: box.edit(
        abc.Edit(path="/workspace/f", replacements=(abc.Replacement(b"a", b"b"),))
    ),
    "stat": lambda box: box.scan(abc.Scan(path="/workspace", depth=0)),
    "scan": lambda box: box.scan(abc.Scan(path="/workspace", limit=10)),
    "search": lambda box: box.search(abc.Search(path="/workspace", pattern="x")),
    "remove": lambda box: box.remove(abc.Remove(path="/workspace/f")),
    "push": lambda box: box.push(abc.Push(path="/workspace/d", body=bytes(1024))),
    "snapshot": lambda box: box.snapshot(abc.Snapshot()),
    "spawn": lambda box: box.spawn(abc.Spawn(argv=("true",), cwd="/workspace")),
}


async def _opened(lie):
    return await ShellSandbox.open(
        Liar(lie),
        backend="liar",
        root="/workspace",
        env={},
        capabilities=frozenset(),
        isolation=abc.Isolation(
            backend="liar",
            **{
                name: _HELD
                for name in abc.Isolation.__dataclass_fields__
                if name != "backend"
            },
        ),
    )


@pytest.mark.parametrize("lie", _LIES)
@pytest.mark.parametrize("call", _CALLS)
async def test_a_lie_is_an_error_soon(monkeypatch, call, lie):
    # What is endless is bounded by its size; a test need not wait for so much.
    for module, name in (("listing", "_MOST"), ("trees", "_MOST")):
        monkeypatch.setattr(f"isobox._shell.{module}.{name}", 1 << 20)
    box = await _opened(_after(_LIES[lie]))
    with anyio.fail_after(20):
        try:
            found = await _CALLS[call](box)
        except IsoboxError:
            pass
        else:
            # A stream, or nothing, is no lie that anybody could tell from truth.
            assert found is None or isinstance(
                found, (int, abc.Listing, abc.Matches, abc.ByteStream, abc.SnapshotRef)
            )
        await box.aclose()


async def test_too_little_inside_is_named():
    def lie(data, end):
        return end if b"no()" in data else b"sha256sum \n\n\n" + end

    with pytest.raises(BackendUnavailableError, match="sha256sum"):
        await _opened(lie)


async def test_a_closed_sandbox_says_so():
    box = await _opened(_after(_LIES["nothing"]))
    await box.aclose()
    await box.aclose()
    for call in _CALLS.values():
        with pytest.raises(SandboxLostError):
            await call(box)
