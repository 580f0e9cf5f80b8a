"""The contract where nothing but busybox and a Python brought along is there."""

import pytest
from tests.carried import CarriedWorkspace
from typing_extensions import override

from isobox.testing.contract import WorkspaceContract


class TestCarried(WorkspaceContract):
    capabilities = frozenset(
        {
            *("bounded_regex", "cancel", "confined", "kill_tree", "posix_shell"),
            *("proc", "snapshot", "streamed_body", "tty"),
        }
    )

    @pytest.fixture(autouse=True)
    def _tree(self, busybox_tree):
        self.tree = busybox_tree

    @override
    def make_workspace(self, **options):
        return CarriedWorkspace(self.tree, **options)
