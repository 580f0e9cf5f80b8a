"""Shared fixtures."""

import os
import signal
import zlib

import pytest

pytest_plugins = ("tests.engines", "tests.postgres")


def pytest_configure() -> None:
    """Take signals as usual, also where a background job started the tests."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_collection_modifyitems(config, items):
    """Take a sample of what says that all of it takes long, unless all is wanted.

    A class's `sampled = 4` means each fourth of its tests, always the same ones.
    """
    if os.environ.get("ISOBOX_ALL"):
        return
    left_out = [item for item in items if not _is_in_sample(item)]
    if left_out:
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=left_out)


def pytest_report_header():
    """Say what is left out."""
    if os.environ.get("ISOBOX_ALL"):
        return "isobox: every test of every backend"
    return "isobox: slow backends run a sample of the contract; ISOBOX_ALL=1 runs all"


def _is_in_sample(item):
    share = getattr(item.cls, "sampled", 1)
    return zlib.crc32(item.name.encode()) % share == 0


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"
