"""The contract over containers whose kernel is gVisor's."""

import pytest
from tests.contract.test_docker import TestDocker as OverDocker


class TestDockerRunsc(OverDocker):
    capabilities = OverDocker.capabilities - {"tty"}
    runtime = "runsc"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def gvisor(cls, runsc):
        assert runsc
