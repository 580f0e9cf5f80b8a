"""The internet that the tests of the network filter run against.

Nothing here is collected but by `tests/egress/run`, which gives pytest a
network of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.egress.lab.internet import Internet

LAB = os.environ.get("ISOBOX_EGRESS_LAB")

collect_ignore_glob = [] if LAB else ["test_*.py"]


def pytest_report_header():
    """Say in one line how they run."""
    return None if LAB else "tests/egress: not collected; run tests/egress/run"


@pytest.fixture(scope="session")
def everything():
    with Internet(Path(LAB)).opened() as internet:
        yield internet


@pytest.fixture
def internet(everything):
    """Servers on every address, which remember what reached them in this test."""
    everything.forget()
    return everything
