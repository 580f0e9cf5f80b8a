"""The contract where namespaces are not to be had, or no /proc."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import ClassVar

import pytest
from typing_extensions import override

from isobox import BubblewrapWorkspace
from isobox._backends.bubblewrap import ladder
from isobox._linux import landlock
from isobox.errors import SandboxLostError
from isobox.testing.contract import (
    CancelContract,
    CommandsContract,
    ErrorsContract,
    FilesWriteContract,
    IsolationContract,
    LifecycleContract,
    ShellContract,
    StreamsContract,
    TimeoutsContract,
    TtyContract,
)
from isobox.testing.processes import kill_tree

ALWAYS = frozenset(
    {
        "bounded_regex",
        "cancel",
        "isolated",
        "kill_tree",
        "no_network",
        "persistent",
        "posix_shell",
        "python3",
        "rlimits",
        "snapshot",
        "streamed_body",
    }
)


class LessContract(
    LifecycleContract,
    CommandsContract,
    StreamsContract,
    TimeoutsContract,
    CancelContract,
    TtyContract,
    FilesWriteContract,
    ShellContract,
    IsolationContract,
    ErrorsContract,
):
    """What processes, a place of their own, and isolation could make differ."""


def every_command_line() -> str:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found.append(
                Path(f"/proc/{name}/cmdline")
                .read_text(errors="replace")
                .replace("\0", " ")
            )
    return " ".join(found)


class TestWithoutProc(LessContract):
    sampled = 2
    capabilities = ALWAYS | {"dial", "sized_tmp", "spared", "tty"}
    deviations: ClassVar = {"test_commands_are_not_root": "it asks /proc"}
    can_kill_sandbox = True

    @pytest.fixture(autouse=True)
    def _no_other_rung(self, monkeypatch):
        monkeypatch.setattr(ladder, "RUNGS", ("no_proc",))

    @override
    def make_workspace(self, **options):
        return BubblewrapWorkspace(min_isolation="no_proc", **options)

    @override
    async def command_lines(self, workspace):
        """Look from outside: inside there is nothing to look into."""
        return every_command_line()

    @override
    async def kill(self, workspace):
        await kill_tree(workspace._sandbox._child.pid)


@pytest.mark.skipif(landlock.abi() < 6, reason="needs Landlock of version 6")
class TestWithoutNamespaces(LessContract):
    sampled = 2
    capabilities = ALWAYS | {"proc"}
    deviations: ClassVar = {
        "test_no_process_of_the_host_is_seen": "no pid namespace",
        "test_there_is_no_route_out": "it asks /proc/net, which is the host's",
        "test_a_process_without_its_first_thread_is_killed": (
            "it writes to /proc, which is read-only"
        ),
        "test_reset_empties_tmp_and_home": "/tmp is closed; TMPDIR is private",
    }
    can_kill_sandbox = True

    @pytest.fixture(autouse=True)
    def _no_other_rung(self, monkeypatch):
        monkeypatch.setattr(ladder, "RUNGS", ("landlock",))

    @override
    def make_workspace(self, **options):
        return BubblewrapWorkspace(min_isolation="landlock", **options)

    @override
    async def kill(self, workspace):
        await kill_tree(workspace._sandbox._child.pid)

    @override
    async def test_a_command_cannot_kill_its_sandbox_unnoticed(self, workspace):
        """Without a pid namespace it can, if it is not ended first."""
        with contextlib.suppress(SandboxLostError):
            await super().test_a_command_cannot_kill_its_sandbox_unnoticed(workspace)
