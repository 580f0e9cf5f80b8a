"""`isobox probe`, where nothing can be probed."""

from __future__ import annotations

import pytest

from isobox._probe import measure
from isobox.cli import probe
from isobox.errors import UnsupportedError


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_who_has_no_python_is_told_what_to_probe(anyio_backend, monkeypatch):
    monkeypatch.setattr(measure, "_PYTHONS", ("no-such-python",))
    with pytest.raises(UnsupportedError, match="Probe an image with Python"):
        await probe.probe(backend="local")
