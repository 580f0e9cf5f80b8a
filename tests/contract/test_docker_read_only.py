"""Parts of the contract over containers whose workspace cannot be written."""

from tests.contract.test_docker import Containers, TestDocker
from typing_extensions import override

from isobox import Policy
from isobox.testing.contract import CommandsContract, StreamsContract


class TestDockerReadOnly(Containers, CommandsContract, StreamsContract):
    """Commands and their streams do not need to write."""

    capabilities = TestDocker.capabilities
    can_kill_sandbox = True

    @override
    def make_workspace(self, **options):
        return super().make_workspace(policy=Policy(read_only=True), **options)
