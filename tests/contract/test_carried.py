"""Files, archives and terminals where only busybox and our own Python are there."""

import pytest
from tests.carried import CarriedWorkspace
from typing_extensions import override

from isobox.testing.contract import (
    EditContract,
    FilesReadContract,
    FilesWriteContract,
    TransferContract,
    TtyContract,
)


class TestCarried(
    EditContract, FilesReadContract, FilesWriteContract, TransferContract, TtyContract
):
    capabilities = frozenset(
        {
            *("bounded_regex", "cancel", "confined", "kill_tree", "posix_shell"),
            *("proc", "streamed_body", "tty"),
        }
    )

    @pytest.fixture(autouse=True)
    def _tree(self, busybox_tree):
        self.tree = busybox_tree

    @override
    def make_workspace(self, **options):
        return CarriedWorkspace(self.tree, **options)
