"""Reports follow what was printed before them, however late that is noticed."""

from __future__ import annotations

import contextlib
import os
from types import SimpleNamespace

import pytest

from isobox._guest import agent


class Viewer:
    """Looks on, and notes in what order it is shown what."""

    peer = SimpleNamespace(wire=SimpleNamespace(full=False))

    def __init__(self, *channels):
        self.at = dict.fromkeys(channels, 0)
        self.seen = []
        self.window = agent.WINDOW

    def room(self, output):
        return self.window if output.channel == agent.STDOUT else agent.WINDOW

    def show(self, output, data):
        self.seen.append((output.channel, data))

    def catch_up(self, output):
        self.seen.append((output.channel, b""))


class Racing(agent.Printed):
    """An output whose command goes on as soon as it was found empty."""

    afterwards = ()

    def pump(self, rounds=1):
        quiet = super().pump(rounds)
        actions, self.afterwards = self.afterwards, ()
        for action in actions:
            action()
        return quiet


@pytest.fixture
def loop():
    return agent.Loop()


@pytest.fixture
def command(loop):
    made = SimpleNamespace(
        guest=SimpleNamespace(keeps=False, loop=loop),
        views=[Viewer(agent.STDOUT, agent.REPORT)],
        printed=lambda data: None,
        conclude=lambda: None,
    )
    printed, made.out = os.pipe()
    reported, made.report = os.pipe()
    made.outputs = [
        Racing(made, printed, agent.STDOUT, None),
        agent.Report(made, reported, agent.REPORT, None),
    ]
    yield made
    for output in made.outputs:
        output.close()
    for writer in (made.out, made.report):
        with contextlib.suppress(OSError):
            os.close(writer)


def test_what_is_reported_while_the_outputs_are_read_waits(loop, command):
    os.write(command.report, b"began;")
    command.outputs[0].afterwards = (
        lambda: os.write(command.out, b"printed"),
        lambda: os.write(command.report, b"ended;"),
    )
    while sum(len(data) for _, data in command.views[0].seen) < 19:
        loop.turn()
    assert command.views[0].seen == [
        (agent.REPORT, b"began;"),
        (agent.STDOUT, b"printed"),
        (agent.REPORT, b"ended;"),
    ]


def test_a_report_waits_for_room_for_what_was_printed(loop, command):
    (viewer,) = command.views
    viewer.window = 0
    os.write(command.out, b"printed")
    os.write(command.report, b"ended;")
    for _ in range(3):
        loop.turn()
    assert viewer.seen == []
    viewer.window = agent.WINDOW
    command.outputs[0].resume()
    while len(viewer.seen) < 2:
        loop.turn()
    assert viewer.seen == [(agent.STDOUT, b"printed"), (agent.REPORT, b"ended;")]


def test_the_end_of_the_reports_is_noticed(loop, command):
    os.write(command.report, b"ended;")
    os.close(command.report)
    while len(command.views[0].seen) < 2:
        loop.turn()
    assert command.views[0].seen == [(agent.REPORT, b"ended;"), (agent.REPORT, b"")]
