"""Commands whose end nobody tells: they end all the same."""

from __future__ import annotations

import re

import anyio
import pytest

from isobox import abc
from isobox._shell import operators, process
from isobox._shell.exec import ENDED, STDERR
from isobox._shell.launch import Launch
from isobox._shell.process import ShellProcess
from isobox.errors import PathMissingError, ProtocolError, SandboxLostError

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(process, "_GRACE", 0.05)
    monkeypatch.setattr(process, "_DEADLY", 0.05)


class Mute:
    """A program that says that it runs, and then nothing."""

    def __init__(self, nonce, *, begins=True, then=()):
        said = ["pid 7"] if begins else []
        words = [f"{nonce}{word};".encode() for word in (*said, *then)]
        self._words = [(STDERR, word) for word in reversed(words)]

    async def receive(self):
        if self._words:
            return self._words.pop()
        await anyio.sleep_forever()
        return ENDED, b""

    async def aclose(self):
        pass


class House:
    def __init__(self, *, failure=None, hangs=False):
        self.killed = []
        self._failure, self._hangs = failure, hangs

    async def kill(self, mark, pid):
        self.killed.append((mark, pid))
        if self._hangs:
            await anyio.sleep_forever()
        if self._failure is not None:
            raise self._failure


def began(house, *, begins=True, then=(), **options):
    op = abc.Spawn(script="x", cwd="/", **options)
    launch = Launch(op=op, env={}, limits={}, mark="M=1", nonce="n" * 32)
    running = Mute(launch.nonce, begins=begins, then=then)
    return ShellProcess(launch, running, house, number=1, witness="sh", spool=None)


@pytest.mark.parametrize("begins", [True, False])
async def test_a_timeout_holds_when_nothing_is_said_of_the_end(begins):
    house = House()
    command = began(house, begins=begins, timeout=0.01)
    end = await command.wait()
    assert (end.signal, end.timed_out) == ("SIGKILL", True)
    assert house.killed == [("M=1", 7 if begins else 0)]
    await command.aclose()


async def test_one_that_was_killed_has_ended():
    command = began(House())
    await command.started()
    await command.kill()
    assert (await command.wait()).exit_code == 137


async def test_one_that_cannot_be_killed_is_lost():
    command = began(House(failure=SandboxLostError("gone")), timeout=0.01)
    with pytest.raises(SandboxLostError, match="gone"):
        await command.wait()
    await command.aclose()


async def test_killing_has_an_end():
    command = began(House(hangs=True), timeout=0.01)
    with pytest.raises(SandboxLostError, match="does not end a command"):
        await command.wait()
    await command.aclose()


@pytest.mark.parametrize("begins", [True, False])
async def test_one_of_which_nonsense_is_told_is_killed(begins):
    house = House()
    command = began(house, begins=begins, then=["what"])
    with pytest.raises(ProtocolError):
        await command.wait()
    assert house.killed == [("M=1", 7 if begins else 0)]
    await command.aclose()


@pytest.mark.parametrize(
    "house", [House(failure=SandboxLostError("x")), House(hangs=True)]
)
async def test_the_first_failure_is_told_when_the_killing_fails(house):
    command = began(house, then=["what"])
    with pytest.raises(ProtocolError):
        await command.wait()
    await command.aclose()


async def test_one_that_never_began_is_not_killed():
    house = House()
    command = began(house, begins=False, then=["no missing"])
    with pytest.raises(PathMissingError):
        await command.wait()
    assert house.killed == []
    await command.aclose()


async def test_one_that_is_let_go_of_while_it_is_killed_has_ended():
    house = House(hangs=True)
    command = began(house, then=["what"])
    while not house.killed:
        await anyio.sleep(0)
    await command.lose()
    with pytest.raises(ProtocolError):
        await command.wait()


class Shell:
    """A shell that answers until it is stopped."""

    def __init__(self, world):
        self._world = world
        self.number = len(world.shells)
        world.shells.append(self)
        self._answers = []

    async def send(self, data):
        end = re.findall(rb"printf %s ([0-9a-f]{32})$", data)[0]
        self._world.asked.append(data)
        seen = b"1 (sh) S 0 1 1 \n==/== environments ==/==\n"
        self._answers.append(seen + end if b"/environ" in data else end)

    async def send_eof(self):
        self._answers.append(b"")

    async def receive(self):
        if self.number in self._world.stopped or not self._answers:
            await anyio.sleep_forever()
        answer = self._answers.pop(0)
        return (operators.STDOUT, answer) if answer else (ENDED, b"")

    async def aclose(self):
        pass


class World:
    def __init__(self):
        self.shells, self.asked, self.stopped = [], [], set()

    async def start(self, argv, *, tty):
        return Shell(self)


async def test_an_idle_shell_that_was_stopped_is_replaced_soon(monkeypatch):
    monkeypatch.setattr(operators, "_ASLEEP", 0.05)
    world = World()

    async def kill(mark):
        raise AssertionError

    shells = operators.Operators(world, kill)
    async with shells.one() as first, shells.one():
        pass
    world.stopped = {0, 1}
    async with shells.one() as third:
        assert third is not first
    assert len(world.shells) == 3
    # Both are looked for to be ended: whoever stopped one has stopped all.
    assert sum(b"/environ" in each for each in world.asked) >= 4
    await shells.aclose()


class Dripping:
    """A shell that answers, without end, a little at a time."""

    def __init__(self, size):
        self._piece = bytes(size)
        self.pieces = 0

    async def send(self, data):
        pass

    async def receive(self):
        await anyio.sleep(0.01)
        self.pieces += 1
        return operators.STDOUT, self._piece


async def test_an_answer_that_drips_is_waited_for_no_longer_than_none(monkeypatch):
    monkeypatch.setattr(operators, "SILENCE", 0.1)
    operator = operators.Operator(Dripping(1), "M=1")
    with pytest.raises(SandboxLostError, match="does not answer"), anyio.fail_after(20):
        await operator.ask(b"x")


@pytest.mark.parametrize("patience", [0.0, 0.1])
async def test_patience_is_for_all_of_an_answer(patience):
    operator = operators.Operator(Dripping(1), "M=1")
    with pytest.raises(SandboxLostError, match="does not answer"), anyio.fail_after(20):
        await operator.ask(b"x", patience=patience)


async def test_an_answer_that_flows_is_waited_for_anew():
    operator = operators.Operator(Dripping(1 << 19), "M=1")
    waited = []
    async for _ in operator.pieces(b"x"):
        waited.append(operator._waited)
        if len(waited) == 8:
            break
    assert [time == 0 for time in waited] == [False, True] * 4
