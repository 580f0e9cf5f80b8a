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


def test_a_runtime_that_takes_the_network_for_the_hosts_needs_an_argument():
    said = "cannot run with network enabled in root network namespace: unknown"
    assert "--network=none" in (diagnosis.of_start(said) or "")
    assert diagnosis.of_start("no such file or directory") is None
