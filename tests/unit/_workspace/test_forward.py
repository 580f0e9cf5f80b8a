"""Ports inside, reachable from the host."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import anyio
import pytest

from isobox import LocalWorkspace
from isobox._workspace.forward import Forward
from isobox.errors import InvalidArgumentError, PathMissingError, SandboxLostError

pytestmark = pytest.mark.anyio


@pytest.fixture
async def workspace(tmp_path):
    async with LocalWorkspace(tmp_path) as workspace:
        yield workspace


@contextlib.asynccontextmanager
async def serving(handler):
    """Have a server on the loopback, which here is inside as well."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def echo(reader, writer):
    """Send everything back, and the end behind it."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    writer.close()


async def exchanged(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:

        async def send() -> None:
            writer.write(data)
            await writer.drain()
            writer.write_eof()

        _, received = await asyncio.gather(send(), reader.read(-1))
        return received
    finally:
        writer.close()


async def test_bytes_and_ends_go_both_ways(workspace):
    data = bytes(range(256)) * 20_000
    async with serving(echo) as port, await workspace.forward(port) as forward:
        assert forward.host == "127.0.0.1"
        assert repr(forward) == f"<Forward 127.0.0.1:{forward.port}>"
        with anyio.fail_after(30):
            assert await exchanged(forward.port, data) == data


async def test_many_at_once(workspace):
    async with serving(echo) as port, await workspace.forward(port) as forward:
        with anyio.fail_after(30):
            asked = [exchanged(forward.port, b"%d" % number) for number in range(20)]
            assert await asyncio.gather(*asked) == [
                b"%d" % number for number in range(20)
            ]


async def test_a_server_that_speaks_first_and_hangs_up(workspace):
    async def greet(reader, writer):
        writer.write(b"hello")
        writer.close()

    async with serving(greet) as port, await workspace.forward(port) as forward:
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.port)
        with anyio.fail_after(10):
            assert await reader.read(-1) == b"hello"
        writer.close()


async def test_nobody_listens_and_the_connection_just_ends(workspace):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    async with await workspace.forward(port) as forward:
        for _ in range(2):
            with anyio.fail_after(10):
                assert await exchanged_or_reset(forward.port) == b""


async def exchanged_or_reset(port: int) -> bytes:
    try:
        return await exchanged(port, b"x")
    except ConnectionError:
        return b""


async def test_a_client_that_leaves_harms_no_other(workspace):
    async with serving(echo) as port, await workspace.forward(port) as forward:
        for _ in range(5):
            _, writer = await asyncio.open_connection("127.0.0.1", forward.port)
            writer.write(b"x" * 100_000)
            writer.transport.abort()
        with anyio.fail_after(10):
            assert await exchanged(forward.port, b"on") == b"on"


async def test_a_chosen_port_and_a_taken_one(workspace):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with await workspace.forward(1, local_port=port) as forward:
        assert forward.port == port
        with pytest.raises(OSError, match="in use"):
            await workspace.forward(1, local_port=port)


@pytest.mark.parametrize("port", [0, -1, 65536])
async def test_a_port_that_is_none_is_refused(workspace, port):
    with pytest.raises(InvalidArgumentError):
        await workspace.forward(port)


async def test_its_end_ends_the_listener_and_what_is_open(workspace):
    async with serving(echo) as port:
        forward = await workspace.forward(port)
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.port)
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        await forward.aclose()
        await forward.aclose()
        with anyio.fail_after(10):
            with contextlib.suppress(ConnectionError):
                assert await reader.read(-1) == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", forward.port)


async def test_the_end_of_the_workspace_ends_it(tmp_path):
    async with LocalWorkspace(tmp_path) as workspace:
        forward = await workspace.forward(1)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", forward.port)


async def test_the_loss_of_the_sandbox_ends_what_is_open(workspace):
    async with serving(echo) as port, await workspace.forward(port) as forward:
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.port)
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        workspace._sandbox.channel.fail(SandboxLostError("gone"))
        with anyio.fail_after(5):
            with contextlib.suppress(ConnectionError):
                assert await reader.read(-1) == b""
        writer.close()


async def test_each_connection_is_dialled_for_itself():
    dialled = []

    async def dial():
        dialled.append(1)
        raise PathMissingError("nothing listens")

    async with Forward(dial) as forward:
        await forward.open()
        for _ in range(3):
            await exchanged_or_reset(forward.port)
    assert len(dialled) == 3
