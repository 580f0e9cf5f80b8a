"""The contract where namespaces are not to be had, or no /proc."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from typing_extensions import override

from isobox import BubblewrapWorkspace
from isobox._backends.bubblewrap import ladder
from isobox._linux import landlock
from isobox.testing.contract import WorkspaceContract
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


def every_command_line() -> str:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{name}/cmdline").read_text().replace("\0", " "))
    return " ".join(found)


class TestWithoutProc(WorkspaceContract):
    capabilities = ALWAYS | {"dial", "sized_tmp", "tty"}
    can_kill_sandbox = True
    host_script_backend = "BubblewrapWorkspace"

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
class TestWithoutNamespaces(WorkspaceContract):
    capabilities = ALWAYS | {"proc"}
    can_kill_sandbox = True
    host_script_backend = "BubblewrapWorkspace"

    @pytest.fixture(autouse=True)
    def _no_other_rung(self, monkeypatch):
        monkeypatch.setattr(ladder, "RUNGS", ("landlock",))

    @override
    def make_workspace(self, **options):
        return BubblewrapWorkspace(min_isolation="landlock", **options)

    @override
    async def kill(self, workspace):
        await kill_tree(workspace._sandbox._child.pid)
