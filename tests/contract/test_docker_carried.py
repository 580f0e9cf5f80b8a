"""Parts of the contract over containers with a Python brought along."""

import pytest
from tests.contract.test_docker import Containers, TestDocker

from isobox.testing.contract import (
    CommandsContract,
    FilesReadContract,
    FilesWriteContract,
    StreamsContract,
)


class TestDockerCarried(
    Containers,
    CommandsContract,
    FilesReadContract,
    FilesWriteContract,
    StreamsContract,
):
    """Nothing but busybox is in the image."""

    capabilities = TestDocker.capabilities - {"python3"}
    can_kill_sandbox = True
    python = "bring"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def containers(cls, engine, busybox_image):
        cls.image, cls.engine = busybox_image, engine
