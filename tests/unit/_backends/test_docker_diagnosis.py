"""What is said of an engine that makes no container."""

from __future__ import annotations

import pytest

from isobox._backends.docker import diagnosis
from isobox._backends.docker.engine import EngineError


@pytest.mark.parametrize(
    ("status", "said", "fix"),
    [
        (404, "No such image: isobox/py:latest", "`docker images` lists, with its tag"),
        (404, "No such image: isobox/py:latest", "docker pull isobox/py"),
        (400, "unknown or invalid runtime name: runsc", "daemon.json"),
    ],
)
def test_it_names_what_helps(status, said, fix):
    error = diagnosis.of_create(EngineError(status, said), "isobox/py")
    assert fix in (error.fix or "")
