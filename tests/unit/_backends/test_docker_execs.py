"""Programs that an engine runs, whatever it says of them."""

from __future__ import annotations

import pytest

from isobox._backends.docker.shell import ExecProcess

pytestmark = pytest.mark.anyio


class Engine:
    """Says one thing after another of a program."""

    def __init__(self, *outcomes):
        self._outcomes = list(outcomes)

    async def outcome(self, _):
        return self._outcomes.pop(0)


class Stream:
    def give(self, receiver):
        pass


def program(*outcomes):
    return ExecProcess(Engine(*outcomes), "container", "exec", Stream())


async def test_a_number_is_waited_for_that_the_engine_does_not_know_yet():
    unknown = {"Running": True, "Pid": 0}
    known = {"Running": True, "Pid": 7}
    assert await program(unknown, unknown, known).known_pid() == 7


async def test_what_ended_meanwhile_has_no_number():
    unknown = {"Running": True, "Pid": 0}
    with pytest.raises(BrokenPipeError):
        await program(unknown, {"Running": False, "Pid": 0}).known_pid()
