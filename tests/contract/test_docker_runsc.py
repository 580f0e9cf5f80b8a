"""The contract over containers whose kernel is gVisor's."""

from typing import ClassVar

import pytest
from tests.contract import test_docker


class TestDockerRunsc(test_docker.TestDocker):
    sampled = 10
    capabilities = test_docker.TestDocker.capabilities - {"tty", "counted_tmp"}
    runtime = "runsc"
    deviations: ClassVar = {
        **test_docker.TestDocker.deviations,
        "test_a_command_changes_its_own": "gVisor's scheduler has no SCHED_BATCH",
    }

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def gvisor(cls, runsc):
        assert runsc
