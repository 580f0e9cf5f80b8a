"""Running processes and their streams."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import anyio
import pytest

from isobox.errors import (
    InvalidArgumentError,
    PathMissingError,
    UnsupportedError,
)
from isobox.testing.contract._base import SOON, Contract, unique_seconds

if TYPE_CHECKING:
    from isobox import Exit, Process, WorkspaceBase
    from isobox.abc import ByteStream

MiB = 1024 * 1024

_reattach = pytest.mark.requires("reattach", "posix_shell")


async def _until(stream: ByteStream, text: bytes) -> bytes:
    """Read until `text` has come."""
    seen = b""
    with anyio.fail_after(SOON):
        while text not in seen:
            piece = await stream.receive()
            assert piece, f"the stream ended after {seen!r}"
            seen += piece
    return seen


class StreamsContract(Contract):
    """Running processes and their streams."""

    async def test_a_started_process_has_an_id_and_a_pid(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["sleep", "60"]) as process:
            assert process.id
            assert process.pid > 0

    async def test_ids_differ(self, workspace: WorkspaceBase) -> None:
        ids: set[str] = set()
        for _ in range(5):
            async with await workspace.start(["true"]) as process:
                ids.add(process.id)
        assert len(ids) == 5

    async def test_iteration_gives_the_output(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start(["seq", "1", "1000"]) as process:
            output = b"".join([piece async for piece in process])
        assert output == "".join(f"{n}\n" for n in range(1, 1001)).encode()

    async def test_errors_have_a_stream_of_their_own(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("here", "text")
        async with await workspace.start(["cat", "here", "missing"]) as process:
            assert await process.stdout.read() == b"text"
            assert b"missing" in await process.stderr.read()
            assert (await process.wait()).exit_code == 1

    async def test_a_streamed_exit_has_no_capture(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["echo", "hi"]) as process:
            assert await process.stdout.read() == b"hi\n"
            end = await process.wait()
        assert (end.exit_code, end.signal) == (0, None)
        assert (end.stdout, end.stderr) == (None, None)

    async def test_what_is_written_arrives(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start(["cat"], stdin=True) as process:
            await process.write(b"one\n")
            await process.write(b"two\n")
            await process.write_eof()
            assert await process.stdout.read() == b"one\ntwo\n"
            assert (await process.wait()).exit_code == 0

    async def test_a_dialogue_is_not_held_back(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start(["cat"], stdin=True) as process:
            for line in (b"one\n", b"two\n", b"three\n"):
                await process.write(line)
                assert await _until(process.stdout, line) == line

    async def test_without_stdin_nothing_can_be_written(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["sleep", "60"]) as process:
            with pytest.raises((InvalidArgumentError, BrokenPipeError)):
                await process.write(b"x")

    async def test_writing_to_an_ended_process_is_a_broken_pipe(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["true"], stdin=True) as process:
            await process.wait()
            with pytest.raises(BrokenPipeError):
                await process.write(b"x")

    async def test_writing_after_the_end_of_input_is_refused(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["sleep", "60"], stdin=True) as process:
            await process.write_eof()
            with pytest.raises((InvalidArgumentError, BrokenPipeError)):
                await process.write(b"x")

    async def test_end_of_input_twice_is_fine(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start(["cat"], stdin=True) as process:
            await process.write_eof()
            await process.write_eof()
            assert (await process.wait()).exit_code == 0

    async def test_end_of_input_after_the_end_is_fine(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["true"], stdin=True) as process:
            await process.wait()
            await process.write_eof()

    async def test_wait_again_gives_the_same(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start(["false"]) as process:
            assert await process.wait() == await process.wait()

    async def test_two_can_wait(self, workspace: WorkspaceBase) -> None:
        ends: list[Exit] = []

        async def wait(process: Process) -> None:
            ends.append(await process.wait())

        async with (
            await workspace.start(["sleep", "0.1"]) as process,
            anyio.create_task_group() as group,
        ):
            group.start_soon(wait, process)
            group.start_soon(wait, process)
        assert [end.exit_code for end in ends] == [0, 0]

    async def test_wait_does_not_need_a_reader(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start(["echo", "hi"]) as process:
            with anyio.fail_after(SOON):
                assert (await process.wait()).exit_code == 0
            assert await process.stdout.read() == b"hi\n"

    @pytest.mark.requires("cancel")
    async def test_giving_up_a_wait_ends_nothing(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["cat"], stdin=True) as process:
            with anyio.move_on_after(0.1):
                await process.wait()
            await process.write(b"alive\n")
            assert await _until(process.stdout, b"alive\n") == b"alive\n"

    # -- ends -----------------------------------------------------------------

    async def test_kill_ends_it(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start(["sleep", "60"]) as process:
            with anyio.fail_after(SOON):
                await process.kill()
                end = await process.wait()
        assert (end.exit_code, end.signal) == (137, "SIGKILL")
        assert not end.timed_out

    async def test_it_is_gone_when_kill_returns(self, workspace: WorkspaceBase) -> None:
        seconds = unique_seconds()
        async with await workspace.start(["sleep", seconds]) as process:
            await self.until_running(workspace, seconds)
            await process.kill()
            assert not await self.is_running(workspace, seconds)

    async def test_kill_again_is_fine(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start(["sleep", "60"]) as process:
            await process.kill()
            await process.kill()

    async def test_kill_after_the_end_changes_nothing(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["true"]) as process:
            await process.wait()
            await process.kill()
            assert (await process.wait()).exit_code == 0

    async def test_a_signal_ends_it(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start(["sleep", "60"]) as process:
            await process.signal(15)
            with anyio.fail_after(SOON):
                end = await process.wait()
        assert (end.exit_code, end.signal) == (143, "SIGTERM")

    async def test_a_signal_after_the_end_changes_nothing(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["true"]) as process:
            await process.wait()
            await process.signal(15)
            assert (await process.wait()).exit_code == 0

    @pytest.mark.requires("posix_shell")
    async def test_a_signal_can_be_handled(self, workspace: WorkspaceBase) -> None:
        script = (
            "trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done"
        )
        async with await workspace.start(script) as process:
            await _until(process.stdout, b"ready\n")
            await process.signal(10)
            with anyio.fail_after(SOON):
                assert b"caught\n" in await process.stdout.read()
                assert (await process.wait()).exit_code == 7

    async def test_leaving_the_context_kills(self, workspace: WorkspaceBase) -> None:
        seconds = unique_seconds()
        async with await workspace.start(["sleep", seconds]):
            await self.until_running(workspace, seconds)
        assert not await self.is_running(workspace, seconds)

    @pytest.mark.requires("posix_shell", "kill_tree")
    async def test_kill_takes_descendants_along(self, workspace: WorkspaceBase) -> None:
        seconds = unique_seconds()
        script = f"setsid sh -c 'sleep {seconds} & sleep {seconds}' & wait"
        async with await workspace.start(script) as process:
            await self.until_running(workspace, f"sleep {seconds}")
            await process.kill()
            assert not await self.is_running(workspace, seconds)

    async def test_a_timeout_ends_a_started_process(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["sleep", "60"], timeout=0.2) as process:
            with anyio.fail_after(SOON):
                end = await process.wait()
        assert end.timed_out
        assert end.exit_code != 0

    async def test_an_end_tells_its_hooks_once(self, workspace: WorkspaceBase) -> None:
        told: list[object] = []
        async with await workspace.start(["true"]) as process:
            process.on_end(told.append)
            await process.wait()
        process.on_end(told.append)
        assert len(told) == 2

    # -- attach ---------------------------------------------------------------

    async def test_attach_finds_a_process(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start(["cat"], stdin=True) as process:
            found = await workspace.attach(process.id)
            await found.write(b"hi\n")
            await found.write_eof()
            assert await process.stdout.read() == b"hi\n"

    async def test_attach_to_nothing_is_an_error(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(PathMissingError, match="no-such-process"):
            await workspace.attach("no-such-process")

    async def test_attach_to_what_ended(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start(["echo", "hi"]) as process:
            await process.wait()
            await process.stdout.read()
        if "reattach" not in self.capabilities:
            with pytest.raises(PathMissingError):
                await workspace.attach(process.id)
            return
        found = await workspace.attach(process.id)
        assert await found.stdout.read() == b"hi\n"
        assert (await found.wait()).exit_code == 0

    async def test_processes_are_listed(self, workspace: WorkspaceBase) -> None:
        await workspace.write("sub/file", "")
        async with (
            await workspace.start(["sleep", "60"]) as one,
            await workspace.start(["sleep", "61"], cwd="sub") as other,
        ):
            found = {each.id: each for each in await workspace.processes()}
            assert found[one.id].command == ("sleep", "60")
            assert found[one.id].cwd == workspace.root
            assert found[other.id].command == ("sleep", "61")
            assert found[other.id].cwd == f"{workspace.root}/sub"
            assert found[one.id].end is None
            assert abs(found[one.id].since - time.time()) < 60
        left = {each.id for each in await workspace.processes() if each.end is None}
        assert not left & {one.id, other.id}

    @_reattach
    async def test_attach_goes_back_to_an_offset(
        self, workspace: WorkspaceBase
    ) -> None:
        script = "echo out; echo err >&2; cat; exit 7"
        async with await workspace.start(script, stdin=True) as process:
            assert await process.stdout.receive() == b"out\n"
            assert await process.stderr.receive() == b"err\n"
            found = await workspace.attach(process.id, stdout_from=2, stderr_from=4)
            await found.write(b"more\n")
            await found.write_eof()
            assert await found.stdout.read() == b"t\nmore\n"
            assert await found.stderr.read() == b""
            assert (found.stdout.lost, found.stderr.lost) == (0, 0)
            assert (await found.wait()).exit_code == 7
            assert await process.stdout.read() == b"more\n"
            assert (await process.wait()).exit_code == 7

    @_reattach
    async def test_attach_kills_and_signals(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start("echo x; while :; do sleep 0.01; done") as one:
            assert await one.stdout.receive() == b"x\n"
            found = await workspace.attach(one.id, stdout_from=1)
            await found.signal(signal.SIGTERM)
            assert (await one.wait()).signal == "SIGTERM"
            assert (await found.wait()).signal == "SIGTERM"

    @_reattach
    async def test_attach_beyond_what_was_printed_is_an_error(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start("echo x; sleep 60") as process:
            assert await process.stdout.receive() == b"x\n"
            with pytest.raises(InvalidArgumentError, match="2 bytes"):
                await workspace.attach(process.id, stdout_from=3)
            with pytest.raises(InvalidArgumentError):
                await workspace.attach(process.id, stdout_from=-1)
            assert await workspace.exists(".")

    async def test_offsets_are_refused_where_nothing_is_kept(
        self, workspace: WorkspaceBase
    ) -> None:
        if "reattach" in self.capabilities:
            pytest.skip("output is kept here")
        async with await workspace.start(["sleep", "60"]) as process:
            with pytest.raises(UnsupportedError):
                await workspace.attach(process.id, stdout_from=1)

    # -- pressure -------------------------------------------------------------

    async def test_a_slow_reader_loses_nothing(self, workspace: WorkspaceBase) -> None:
        async with await workspace.start(["seq", "1", "200000"]) as process:
            pieces = [await process.stdout.receive()]
            await anyio.sleep(0.3)
            pieces.append(await process.stdout.read())
        expected = "".join(f"{n}\n" for n in range(1, 200_001)).encode()
        assert b"".join(pieces) == expected

    async def test_twenty_mebibytes_stream_whole(
        self, workspace: WorkspaceBase
    ) -> None:
        size, seen = 20 * MiB, 0
        command = ["head", "-c", str(size), "/dev/zero"]
        async with await workspace.start(command) as process:
            async for piece in process.stdout:
                seen += len(piece)
        assert seen == size

    async def test_an_unread_stream_delays_no_other(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["yes"]), await workspace.start(["yes"]):
            with anyio.fail_after(SOON):
                for _ in range(10):
                    assert (await workspace.run(["echo", "hi"])).stdout == "hi\n"
                await workspace.write("file", b"x" * MiB)
                assert len(await workspace.read_bytes("file")) == MiB

    @pytest.mark.requires("posix_shell")
    async def test_a_reader_that_stops_stops_the_writer(
        self, workspace: WorkspaceBase
    ) -> None:
        script = (
            "i=0; while :; do printf %65536s x; i=$((i+1)); echo $i > progress; done"
        )

        async def progress() -> int:
            text = (await workspace.run("cat progress 2>/dev/null")).stdout.strip()
            return int(text or 0)

        async with await workspace.start(script) as process:
            with anyio.fail_after(60):
                before, now = -1, 0
                while now == 0 or now != before:
                    await anyio.sleep(0.5)
                    before, now = now, await progress()
            assert now * 65536 <= 32 * MiB
            for _ in range(now):
                await process.stdout.receive()
            with anyio.fail_after(SOON):
                while await progress() <= now:
                    await process.stdout.receive()

    async def test_a_stream_closed_early_lets_the_command_end(
        self, workspace: WorkspaceBase
    ) -> None:
        async with await workspace.start(["cat"], stdin=True) as process:
            await process.stdout.aclose()
            await process.write_eof()
            with anyio.fail_after(SOON):
                assert (await process.wait()).exit_code == 0

    @pytest.mark.requires("posix_shell")
    async def test_closing_its_output_does_not_end_a_command(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run("echo hi; exec >&- 2>&-; sleep 0.5; exit 3")
        assert (result.stdout, result.exit_code) == ("hi\n", 3)
        assert result.duration >= 0.5

    async def test_a_command_that_does_not_read_slows_its_writer(
        self, workspace: WorkspaceBase
    ) -> None:
        written = 0

        async def write(process: Process) -> None:
            nonlocal written
            try:
                while True:
                    await process.write(bytes(65536))
                    written += 65536
            except BrokenPipeError:
                pass

        async with (
            await workspace.start(["sleep", "60"], stdin=True) as process,
            anyio.create_task_group() as group,
        ):
            group.start_soon(write, process)
            before = -1
            with anyio.fail_after(60):
                while written != before:
                    before = written
                    await anyio.sleep(0.5)
            assert written <= 32 * MiB
            await process.kill()

    async def test_twenty_processes_run_at_once(self, workspace: WorkspaceBase) -> None:
        processes = [await workspace.start(["cat"], stdin=True) for _ in range(20)]
        for number, process in enumerate(processes):
            await process.write(f"{number}\n".encode())
            await process.write_eof()
        for number, process in enumerate(processes):
            assert await process.stdout.read() == f"{number}\n".encode()
            await process.aclose()
