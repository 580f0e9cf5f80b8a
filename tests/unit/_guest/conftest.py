"""A guest for each test that asks for one."""

import secrets

import pytest
from tests.unit._guest.client import Guest


@pytest.fixture
def guest():
    with Guest() as guest:
        yield guest


@pytest.fixture
def mark(request):
    """Text that no other process of this machine has in its arguments."""
    return f"{request.node.name[:20]}{secrets.token_hex(6)}"
