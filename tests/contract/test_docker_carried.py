"""Parts of the contract over containers with a Python brought along."""

import pytest
from tests.contract import test_docker

from isobox.testing.contract import (
    CommandsContract,
    FilesReadContract,
    FilesWriteContract,
    StreamsContract,
)


class TestDockerCarried(
    test_docker.Containers,
    CommandsContract,
    FilesReadContract,
    FilesWriteContract,
    StreamsContract,
):
    """Nothing but busybox is in the image."""

    capabilities = test_docker.TestDocker.capabilities - {"python3"}
    can_kill_sandbox = True
    sampled = 10
    python = "bring"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def containers(cls, engine, busybox_image):
        cls.image, cls.engine = busybox_image, engine
