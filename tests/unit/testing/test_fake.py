"""The fake in memory, where the contract does not look."""

import anyio
import pytest

from isobox import _registry
from isobox.errors import BackendMissingError, InvalidArgumentError, UnsupportedError
from isobox.testing._patterns import glob_pattern
from isobox.testing._pipes import Capture, Pipe
from isobox.testing._process import MemoryProcess
from isobox.testing.fake import MemoryProvider, MemorySandbox, MemoryWorkspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def workspace():
    async with MemoryWorkspace() as opened:
        yield opened


async def test_it_needs_nothing():
    found = await MemoryProvider().probe()
    assert (found.backend, found.ok) == ("memory", True)


async def test_it_is_no_backend_that_users_can_name():
    with pytest.raises(BackendMissingError):
        _registry.provider("memory")


@pytest.mark.parametrize(
    "options",
    [{"command": "echo hi"}, {"command": ["true"], "tty": True}],
)
async def test_it_says_what_it_has_not(workspace, options):
    with pytest.raises(UnsupportedError):
        await workspace.start(**options)


async def test_it_takes_no_directory_of_the_host():
    workspace = MemoryWorkspace()
    workspace._workdir = "/somewhere"
    with pytest.raises(InvalidArgumentError):
        await workspace.initialize()


async def test_a_crash_can_be_staged(workspace):
    assert isinstance(workspace._sandbox, MemorySandbox)
    workspace._sandbox.crash()
    with pytest.raises(ConnectionError):
        await workspace.run(["true"])


async def test_files_can_be_planted(workspace):
    assert isinstance(workspace._sandbox, MemorySandbox)
    workspace._sandbox.tree.make("/workspace/planted", "socket")
    assert (await workspace.stat("planted")).kind == "socket"


async def test_closing_kills_what_runs():
    async with MemoryWorkspace() as workspace:
        process = await workspace.start(["sleep", "60"])
    assert isinstance(process, MemoryProcess)
    assert process.ended


async def test_a_pipe_holds_its_writer_back():
    pipe = Pipe()
    with anyio.move_on_after(0.05) as scope:
        await pipe.put(bytes(1_000_000))
    assert scope.cancelled_caught
    assert len(await pipe.receive()) <= 65536


async def test_a_pipe_without_a_reader_breaks():
    pipe = Pipe()
    await pipe.aclose()
    with pytest.raises(BrokenPipeError):
        await pipe.put(b"x")


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 7, 8, 100])
@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 1000])
async def test_a_capture_keeps_head_and_tail(limit, size):
    data = bytes(number % 251 for number in range(size))
    capture = Capture(limit)
    for start in range(0, size, 3):
        await capture.put(data[start : start + 3])
    kept = capture.captured()
    assert kept.total == size
    assert data.startswith(kept.head)
    assert data.endswith(kept.tail)
    assert len(kept.data) == min(limit, size)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "d/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "d/e/a.py", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[!a]x", "bx", True),
        ("[!a]x", "ax", False),
        ("{a,b*}.c", "bb.c", True),
        ("{a,b*}.c", "d.c", False),
        ("a.c", "abc", False),
        ("a**", "a/b/c", True),
        ("two\nlines*", "two\nlines.py", True),
    ],
)
def test_a_pattern_is_read(pattern, path, matches):
    assert bool(glob_pattern(pattern).fullmatch(path)) is matches
