"""Every backend has its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from isobox import _registry

BACKENDS = Path(__file__).parents[2] / "docs" / "backends"


@pytest.mark.parametrize("name", _registry.names())
def test_backend_has_a_page(name):
    page = BACKENDS / f"{name}.md"
    assert page.is_file(), f"write docs/backends/{name}.md"
    assert page.read_text().strip()
