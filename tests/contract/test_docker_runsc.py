"""The contract over containers whose kernel is gVisor's."""

import pytest
from tests.contract import test_docker


class TestDockerRunsc(test_docker.TestDocker):
    sampled = 10
    capabilities = test_docker.TestDocker.capabilities - {"tty", "counted_tmp"}
    runtime = "runsc"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def gvisor(cls, runsc):
        assert runsc
