"""What a container's workspace is made with."""

from __future__ import annotations

import pytest

from isobox import DockerWorkspace
from isobox.errors import InvalidArgumentError


@pytest.mark.parametrize("linger", [0, -1, float("inf"), float("nan"), "x"])
def test_linger_is_seconds(linger):
    with pytest.raises(InvalidArgumentError, match=r"linger=.*: give seconds"):
        DockerWorkspace(image="an-image", linger=linger)
