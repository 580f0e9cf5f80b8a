"""Parts of the contract over containers whose workspace cannot be written."""

from tests.contract import test_docker
from typing_extensions import override

from isobox import Policy
from isobox.testing.contract import CommandsContract, StreamsContract


class TestDockerReadOnly(test_docker.Containers, CommandsContract, StreamsContract):
    """Commands and their streams do not need to write."""

    capabilities = test_docker.TestDocker.capabilities
    can_kill_sandbox = True

    @override
    def make_workspace(self, **options):
        return super().make_workspace(policy=Policy.preset("read_only"), **options)
