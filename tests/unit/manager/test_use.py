"""What is use, and what only waits to be used."""

from __future__ import annotations

import asyncio

import pytest

from isobox import LocalWorkspace
from isobox._core.ops import Listen
from isobox._core.results import Connection, Listener
from isobox._workspace.activity import Activity
from isobox.manager import WorkspaceManager

pytestmark = pytest.mark.anyio

ME = ("ann", "coder", "1")

ECHO = """
import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
c, _ = s.accept()
while d := c.recv(100):
    c.sendall(d)
"""


@pytest.fixture
async def manager(tmp_path):
    async with WorkspaceManager(LocalWorkspace, basedir=tmp_path / "base") as manager:
        yield manager


async def test_what_passes_a_forwarded_port_is_use(manager):
    workspace = await manager.get_workspace(*ME)
    activity = workspace._activity
    server = await workspace.start(["python3", "-c", ECHO])
    port = int(await server.stdout.receive())
    async with await workspace.forward(port) as forward:
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.port)
        writer.write(b"a")
        assert await reader.read(1) == b"a"
        before = activity.used
        writer.write(b"b")
        assert await reader.read(1) == b"b"
        assert activity.used > before
        writer.close()
    await server.kill()


class Piped(Connection):
    """A connection that gives back what it was given."""

    def __init__(self):
        super().__init__()
        self.kept = b""

    async def receive(self):
        piece, self.kept = self.kept, b""
        return piece

    def receive_nowait(self):
        return self.kept

    async def send(self, data):
        self.kept += data

    async def send_eof(self):
        pass

    async def aclose(self):
        self._ended({"bytes_in": 1})


class Port(Listener):
    port = 7

    async def accept(self):
        return Piped()

    async def aclose(self):
        self._ended({})


async def test_what_passes_an_exposed_port_is_use():
    now, ends = [0.0], []
    activity = Activity()
    activity.go_by(lambda: now[0])
    activity.ask(lambda: None)

    async def inner(op):
        return Port()

    port = await activity(Listen(port=7), inner)
    assert (port.port, activity.in_use) == (7, False)
    now[0] = 1.0
    accepted = await port.accept()
    assert activity.used == 1
    now[0] = 2.0
    assert accepted.receive_nowait() == b""
    assert activity.used == 1
    await accepted.send(b"a")
    assert activity.used == 2
    now[0] = 3.0
    assert await accepted.receive() == b"a"
    assert activity.used == 3
    accepted.on_end(ends.append)
    await accepted.send_eof()
    await accepted.abort()
    await port.aclose()
    assert ends == [{"bytes_in": 1}]


async def test_a_port_that_waits_is_no_use(manager):
    workspace = await manager.get_workspace(*ME)
    async with await workspace.forward(1):
        assert not workspace._activity.in_use
