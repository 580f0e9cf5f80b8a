"""Which of several hosts starts a container."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from isobox._backends.docker import life
from isobox._backends.docker.engine import EngineError

pytestmark = pytest.mark.anyio


class Engine:
    """Has a container that stays stopped, and a turn that each look finds another."""

    def __init__(self):
        self.turns = iter(("first", "second"))
        self.removed = []

    async def create(self, name, config):
        raise EngineError(409, f"{name} is there")

    async def inspect(self, name):
        if name == "isobox.turn.one":
            return labelled(next(self.turns), {"isobox.turn": "one"})
        return labelled("the container", {"isobox.workspace": "one"})

    async def remove(self, container):
        self.removed.append(container)


def labelled(container, labels):
    return {"Id": container, "Config": {"Labels": labels}, "State": {}}


async def test_a_turn_that_is_over_is_removed_and_none_that_came_after(monkeypatch):
    monkeypatch.setattr(life, "_STARTS", 2)
    monkeypatch.setattr(life, "_PAUSE", 0)
    engine = Engine()
    recipe = SimpleNamespace(
        spec=SimpleNamespace(id="one"), digests=dict, turn=dict, options=None
    )
    one = life.Life(engine, recipe, inhabitant=None)
    with pytest.raises(life._OvertakenError):
        async with one._turn():
            pass
    assert engine.removed == ["first"]
