"""The contract over private views: the kernel's, and copies."""

import os
import tempfile

import pytest
from typing_extensions import override

from isobox import BubblewrapWorkspace
from isobox._backends.bubblewrap import copy
from isobox.testing.contract import (
    Contract,
    EditContract,
    FilesReadContract,
    FilesWriteContract,
    LifecycleContract,
    RemoveContract,
    SnapshotContract,
    TransferContract,
    WorkspaceContract,
)
from isobox.testing.processes import kill_tree


class _Views(Contract):
    capabilities = frozenset(
        {
            "bounded_regex",
            "cancel",
            "capture",
            "isolated",
            "no_network",
            "sized_tmp",
            "spared",
            "dial",
            "kill_tree",
            "listen",
            "persistent",
            "posix_shell",
            "proc",
            "python3",
            "rlimits",
            "snapshot",
            "streamed_body",
            "tty",
        }
    ) | ({"counted_tmp"} if os.geteuid() == 0 else set())
    can_kill_sandbox = True

    @pytest.fixture(autouse=True)
    def a_place_for_directories(self, tmp_path_factory):
        self.place = tmp_path_factory.mktemp("directories")

    @override
    def make_workspace(self, **options):
        workdir = tempfile.mkdtemp(dir=self.place)
        return BubblewrapWorkspace(workdir, mode="copy", **options)

    @override
    async def kill(self, workspace):
        await kill_tree(workspace._sandbox._child.pid)


class TestOverlay(_Views, WorkspaceContract):
    """Views by overlayfs, where it may be mounted."""

    sampled = 2


class TestCopy(
    _Views,
    LifecycleContract,
    FilesReadContract,
    FilesWriteContract,
    EditContract,
    RemoveContract,
    TransferContract,
    SnapshotContract,
):
    """Views by a copy; all but files is as with any other directory."""

    @pytest.fixture(autouse=True)
    def no_overlay(self, monkeypatch):
        monkeypatch.setattr(copy, "refusal", lambda layer: "not in this test")
