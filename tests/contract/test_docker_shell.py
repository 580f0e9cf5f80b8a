"""The contract over containers whose image has no Python."""

from typing import ClassVar

import pytest
from tests.contract import test_shell
from tests.contract.test_docker import Containers

from isobox.testing.contract import WorkspaceContract


class TestDockerShell(Containers, WorkspaceContract):
    """By a shell alone."""

    sampled = 8
    capabilities = test_shell.CAPABILITIES | {"persistent"}
    can_kill_sandbox = True
    python = "none"
    deviations: ClassVar = test_shell.TestBusybox.deviations

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def containers(cls, engine, busybox_image):
        cls.image, cls.engine = busybox_image, engine
