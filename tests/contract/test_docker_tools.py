"""The tools over containers."""

import pytest
from tests.contract.test_docker import Containers

from isobox.testing.contract.tools import ToolsContract


class TestDockerTools(Containers, ToolsContract):
    capabilities = frozenset(
        {"posix_shell", "proc", "cancel", "kill_tree", "no_network", "isolated"}
    )


class TestDockerToolsRunsc(TestDockerTools):
    sampled = 6
    runtime = "runsc"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def gvisor(cls, runsc):
        assert runsc
