"""The contract for the network where the guest relays it."""

from tests.relayed import FullyRelayedWorkspace, RelayedWorkspace
from typing_extensions import override

from isobox.testing.contract import ForwardContract, NetworkContract


class RelayedContract(NetworkContract, ForwardContract):
    capabilities = frozenset(
        {
            *("capture", "dial", "isolated", "listen", "no_network"),
            *("posix_shell", "proc", "python3"),
        }
    )


class TestRelayed(RelayedContract):
    @override
    def make_workspace(self, **options):
        return RelayedWorkspace(**options)


class TestFullyRelayed(RelayedContract):
    @override
    def make_workspace(self, **options):
        return FullyRelayedWorkspace(**options)
