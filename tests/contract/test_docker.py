"""The contract over containers of a real engine."""

from typing import ClassVar

import anyio.to_thread
import pytest
from typing_extensions import override

from isobox import DockerWorkspace
from isobox.testing.contract import WorkspaceContract
from isobox.testing.contract.shared import SharedWorkspace


class Containers(SharedWorkspace):
    """Makes workspaces on the session's engine."""

    runtime: ClassVar[str | None] = None
    python = "auto"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def containers(cls, engine, python_image):
        cls.image, cls.engine = python_image, engine

    @override
    def make_workspace(self, **options):
        return DockerWorkspace(
            image=self.image,
            engine=self.engine.url,
            runtime=self.runtime,
            python=self.python,
            **options,
        )

    @override
    async def kill(self, workspace):
        container = workspace._sandbox.container
        await anyio.to_thread.run_sync(self.engine.call, "kill", container)


class TestDocker(Containers, WorkspaceContract):
    sampled = 2
    capabilities = frozenset(
        {
            "bounded_regex",
            "cancel",
            "capture",
            "dial",
            "isolated",
            "kill_tree",
            "listen",
            "no_network",
            "persistent",
            "posix_shell",
            "proc",
            "python3",
            "reattach",
            "rlimits",
            "counted_tmp",
            "sized_tmp",
            "spared",
            "snapshot",
            "streamed_body",
            "tty",
        }
    )
    can_kill_sandbox = True
