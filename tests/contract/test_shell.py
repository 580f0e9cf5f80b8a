"""The contract where a shell inside does everything."""

from __future__ import annotations

from typing import ClassVar

import pytest
from tests.shelled import ShelledWorkspace, crash
from typing_extensions import override

from isobox._core.ops import Scan
from isobox.errors import PathNotDirectoryError
from isobox.testing.contract import ShellContract, WorkspaceContract
from isobox.testing.contract.tools import ToolsContract

CAPABILITIES = frozenset(
    {
        "bounded_regex",
        "cancel",
        "dial",
        "isolated",
        "kill_tree",
        "no_network",
        "posix_shell",
        "proc",
        "rlimits",
        "sized_tmp",
        "snapshot",
        "streamed_body",
        "tty",
    }
)


class ShellFallbackContract(WorkspaceContract):
    capabilities = CAPABILITIES
    can_kill_sandbox = True
    image: ClassVar[str]

    @override
    def make_workspace(self, **options):
        return ShelledWorkspace(image=self.image, **options)

    @override
    async def kill(self, workspace):
        await crash(workspace)


_WITHOUT_BASH = "sessions need bash, and an image of busybox has none"
#: What of the contract of sessions holds where there are none.
_BEFORE_THE_SHELL = frozenset(
    (
        "test_a_session_takes_no_argv",
        "test_a_session_takes_nothing_that_its_shell_has",
    )
)


class TestBusybox(ShellFallbackContract):
    sampled = 4
    image = "busybox"
    deviations: ClassVar = {
        name: _WITHOUT_BASH
        for name in vars(ShellContract)
        if name.startswith("test_") and name not in _BEFORE_THE_SHELL
    }


class TestCoreutils(ShellFallbackContract):
    sampled = 8
    image = "coreutils"


class TestToolsCoreutils(ToolsContract):
    sampled = 3
    capabilities = frozenset(
        {"posix_shell", "proc", "cancel", "kill_tree", "no_network", "isolated"}
    )

    @override
    def make_workspace(self, **options):
        return ShelledWorkspace(image="coreutils", **options)


@pytest.mark.anyio
@pytest.mark.parametrize("image", ["busybox", "coreutils"])
async def test_a_link_to_a_directory_is_none_if_it_is_not_followed(image):
    async with ShelledWorkspace(image=image) as workspace:
        await workspace.write("there/file", b"1")
        await workspace.run(["ln", "-s", "there", "link"], check=True)
        path = f"{workspace.root}/link"
        found = await workspace._do(Scan(path=path, depth=1))
        assert [entry.name for entry in found.entries] == ["file"]
        with pytest.raises(PathNotDirectoryError):
            await workspace._do(Scan(path=path, depth=1, follow=False))
