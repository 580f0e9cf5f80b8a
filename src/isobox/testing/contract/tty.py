"""Commands on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from isobox.abc import WindowSize
from isobox.errors import UnsupportedError
from isobox.testing.contract._base import SOON, Contract, unique_seconds

if TYPE_CHECKING:
    from isobox import Process, WorkspaceBase

_tty = pytest.mark.requires("tty", "posix_shell")


async def _until(process: Process, text: bytes) -> bytes:
    seen = b""
    with anyio.fail_after(SOON):
        while text not in seen:
            piece = await process.stdout.receive()
            assert piece, f"the terminal ended after {seen!r}"
            seen += piece
    return seen


class TtyContract(Contract):
    """Commands on a terminal."""

    async def test_without_terminals_one_is_refused(
        self, workspace: WorkspaceBase
    ) -> None:
        if "tty" in self.capabilities:
            pytest.skip("the backend has terminals")
        with pytest.raises(UnsupportedError):
            await workspace.start(["true"], tty=True)

    @_tty
    async def test_all_three_streams_are_a_terminal(
        self, workspace: WorkspaceBase
    ) -> None:
        script = "test -t 0 && test -t 1 && test -t 2 && echo yes"
        async with await workspace.start(script, tty=True) as process:
            assert await process.stdout.read() == b"yes\r\n"
            assert (await process.wait()).exit_code == 0

    @_tty
    async def test_the_default_size_is_80_by_24(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start("stty size", tty=True) as process:
            assert (await process.stdout.read()).split() == [b"24", b"80"]

    @_tty
    async def test_a_size_is_given(self, workspace: WorkspaceBase) -> None:
        size = WindowSize(columns=100, rows=40)
        async with await workspace.start("stty size", tty=size) as process:
            assert (await process.stdout.read()).split() == [b"40", b"100"]

    @_tty
    async def test_a_size_changes(self, workspace: WorkspaceBase) -> None:
        script = (
            "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done"
        )
        async with await workspace.start(script, tty=True) as process:
            await _until(process, b"ready")
            await process.resize(132, 50)
            await _until(process, b"50 132")

    @_tty
    async def test_resize_after_the_end_changes_nothing(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["true"], tty=True) as process:
            await process.wait()
            await process.resize(100, 30)

    @_tty
    async def test_control_c_interrupts(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start("echo ready; sleep 60", tty=True) as process:
            await _until(process, b"ready")
            await process.write(b"\x03")
            with anyio.fail_after(SOON):
                end = await process.wait()
        assert end.exit_code == 130

    @_tty
    async def test_end_of_input_ends_a_reader(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start(["cat"], tty=True) as process:
            await process.write(b"line\n")
            await _until(process, b"line\r\nline\r\n")
            await process.write_eof()
            with anyio.fail_after(SOON):
                assert (await process.wait()).exit_code == 0

    @_tty
    async def test_what_is_typed_is_echoed(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start("read x; echo got $x", tty=True) as process:
            await process.write(b"word\n")
            output = await process.stdout.read()
        assert output == b"word\r\ngot word\r\n"

    @_tty
    async def test_errors_come_on_the_terminal(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start("echo trouble >&2", tty=True) as process:
            assert await process.stdout.read() == b"trouble\r\n"
            assert await process.stderr.read() == b""

    @_tty
    async def test_the_terminal_controls_the_command(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start("echo hi > /dev/tty", tty=True) as process:
            assert await process.stdout.read() == b"hi\r\n"
            assert (await process.wait()).exit_code == 0

    @_tty
    async def test_a_program_runs_on_a_terminal(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start(["echo", "hi"], tty=True) as process:
            assert await process.stdout.read() == b"hi\r\n"

    @_tty
    async def test_a_missing_program_on_a_terminal_is_127(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["no-such-program"], tty=True) as process:
            with anyio.fail_after(SOON):
                assert (await process.wait()).exit_code == 127

    @_tty
    async def test_the_last_words_are_not_lost(self, workspace: WorkspaceBase) -> None:
        for _ in range(20):
            async with await workspace.start("seq 1 500", tty=True) as process:
                output = await process.stdout.read()
            assert output.endswith(b"499\r\n500\r\n")

    @_tty
    async def test_kill_ends_a_terminal(self, workspace: WorkspaceBase) -> None:
        seconds = unique_seconds()
        async with await workspace.start(f"sleep {seconds}", tty=True) as process:
            await self.until_running(workspace, seconds)
            await process.kill()
            with anyio.fail_after(SOON):
                assert (await process.wait()).exit_code == 137
                await process.stdout.read()
            assert not await self.is_running(workspace, seconds)

    @_tty
    async def test_a_terminal_that_is_not_read_holds_the_command(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start("seq 1 100000", tty=True) as process:
            first = await process.stdout.receive()
            await anyio.sleep(0.3)
            output = first + await process.stdout.read()
        expected = "".join(f"{number}\r\n" for number in range(1, 100_001))
        assert output == expected.encode()
