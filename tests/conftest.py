"""Shared fixtures."""

import signal

import pytest

pytest_plugins = ("tests.engines",)


def pytest_configure() -> None:
    """Take signals as usual, also where a background job started the tests."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"
