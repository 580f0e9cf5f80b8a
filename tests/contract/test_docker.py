"""The contract over containers of a real engine."""

import os
import subprocess

import pytest
from typing_extensions import override

from isobox import DockerWorkspace
from isobox.testing.contract import WorkspaceContract
from isobox.testing.contract.shared import SharedWorkspace


@pytest.mark.usefixtures("containers")
class TestDocker(SharedWorkspace, WorkspaceContract):
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
            "rlimits",
            "sized_tmp",
            "snapshot",
            "streamed_body",
            "tty",
        }
    )
    can_kill_sandbox = True
    runtime = None

    @pytest.fixture(scope="class")
    def containers(self, engine, python_image):
        before = os.environ.get("DOCKER_HOST")
        os.environ["DOCKER_HOST"] = engine.url
        yield
        if before is None:
            del os.environ["DOCKER_HOST"]

    @pytest.fixture(scope="class")
    async def shared(self, containers):
        async for shared in super().shared.__wrapped__(self):
            yield shared

    @override
    def make_workspace(self, **options):
        return DockerWorkspace(
            image="isobox-test-python", runtime=self.runtime, **options
        )

    @override
    async def kill(self, workspace):
        container = workspace._sandbox.container
        command = ["docker", "kill", container]
        subprocess.run(command, capture_output=True, check=True)
