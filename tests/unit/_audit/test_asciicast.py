"""Recordings of terminals."""

from __future__ import annotations

import json
import os
import stat
from unittest.mock import AsyncMock, Mock

import pytest

from isobox import LocalWorkspace
from isobox._audit.asciicast import RecordedProcess, Recorder
from isobox._core.ops import WindowSize
from isobox.abc import ByteStream, Exit, Process


def events(path):
    with open(path) as file:
        header, *rest = map(json.loads, file)
    assert header["version"] == 2
    times = [each[0] for each in rest]
    assert times == sorted(times)
    return header, [tuple(each[1:]) for each in rest]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.cast"


def test_what_a_player_needs_is_there(path):
    with Recorder(path, columns=100, rows=30, title="demo") as recorder:
        recorder.output(b"a\x1b[31mb\r\n")
        recorder.errors(b"oh")
        recorder.resize(80, 24)
    header, told = events(path)
    assert (header["width"], header["height"], header["title"]) == (100, 30, "demo")
    assert isinstance(header["timestamp"], int)
    assert told == [("o", "a\x1b[31mb\r\n"), ("o", "oh"), ("r", "80x24")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_character_in_two_pieces_is_one(path):
    with Recorder(path) as recorder:
        recorder.output(b"\xc3")
        recorder.errors(b"x")
        recorder.output(b"\xa9\xff")
    assert events(path)[1] == [("o", "x"), ("o", "é\ufffd")]


@pytest.mark.parametrize(("keys", "told"), [(True, [("i", "pw\r")]), (False, [])])
def test_keys_are_kept_on_request_only(path, keys, told):
    with Recorder(path, keys=keys) as recorder:
        recorder.typed(b"pw\r")
    assert events(path)[1] == told


def test_secrets_are_masked(path):
    mask = lambda text: text.replace("hush", "****")  # noqa: E731
    with Recorder(path, title="hush", keys=True, redact=mask) as recorder:
        recorder.output(b"a hush")
        recorder.typed(b"hush")
    header, told = events(path)
    assert header["title"] == "****"
    assert told == [("o", "a ****"), ("i", "****")]


@pytest.mark.parametrize("limit", [1, 5000, 20_000])
def test_a_recording_has_a_limit(path, limit):
    with Recorder(path, max_bytes=limit) as recorder:
        for _ in range(100):
            recorder.output(b"\x00" * 500)
    assert path.stat().st_size <= max(limit, 4096)
    *_, last = events(path)[1]
    assert last == ("m", "the recording reached its limit")


def test_nothing_is_overwritten(path):
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        Recorder(path)
    path.unlink()
    path.symlink_to("elsewhere")
    with pytest.raises(FileExistsError):
        Recorder(path)


def test_a_disk_that_is_full_is_said(path):
    recorder = Recorder(path)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, recorder._file.number)
    os.close(full)
    with pytest.raises(OSError, match="No space"):
        recorder.output(b"x")
    recorder.close()


@pytest.mark.anyio
async def test_a_process_is_as_it_was(path):
    inner = Mock(spec=Process, id="p", pid=7, report=object())
    inner.wait = AsyncMock(return_value=Exit(exit_code=3))
    for name in ("write", "write_eof", "signal", "kill", "resize", "aclose"):
        setattr(inner, name, AsyncMock())
    for name in ("stdout", "stderr"):
        stream = Mock(spec=ByteStream, receive_nowait=Mock(return_value=b"now"))
        stream.receive = AsyncMock(side_effect=[b"later", b""])
        stream.aclose = AsyncMock()
        setattr(inner, name, stream)
    async with RecordedProcess(inner, Recorder(path, keys=True)) as process:
        assert (process.id, process.pid, process.report) == ("p", 7, inner.report)
        assert process.stdout.receive_nowait() == b"now"
        assert await process.stdout.read() == b"later"
        assert await process.stderr.receive() == b"later"
        await process.write(b"in")
        await process.write_eof()
        await process.resize(9, 8)
        await process.signal(2)
        await process.kill()
        assert (await process.wait()).exit_code == 3
        process.on_end(print)
        process.stdout.on_end(print)
        await process.stdout.aclose()
    inner.write.assert_awaited_once_with(b"in")
    inner.write_eof.assert_awaited_once_with()
    inner.resize.assert_awaited_once_with(9, 8)
    inner.signal.assert_awaited_once_with(2)
    inner.kill.assert_awaited_once_with()
    inner.on_end.assert_called_once_with(print)
    inner.stdout.on_end.assert_called_once_with(print)
    inner.stdout.aclose.assert_awaited_once_with()
    inner.aclose.assert_awaited_once_with()
    assert events(path)[1] == [
        ("o", "now"),
        ("o", "later"),
        ("o", "later"),
        ("i", "in"),
        ("r", "9x8"),
    ]


@pytest.mark.anyio
async def test_a_terminal_is_recorded(path):
    async with LocalWorkspace() as workspace:
        started = await workspace.start("stty size; printf 'é'", tty=WindowSize(90, 20))
        recorder = Recorder(path, columns=90, rows=20)
        async with RecordedProcess(started, recorder) as process:
            shown = await process.stdout.read()
            assert (await process.wait()).exit_code == 0
    assert shown == b"20 90\r\n\xc3\xa9"
    assert "".join(text for _, text in events(path)[1]) == shown.decode()
