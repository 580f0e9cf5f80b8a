"""Ports inside, reached from the host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import pytest

from isobox.errors import InvalidArgumentError
from isobox.testing.contract._base import SOON, Contract, Factory

if TYPE_CHECKING:
    from anyio.abc import SocketStream

    from isobox import Process, WorkspaceBase

MiB = 1024 * 1024
_dial = pytest.mark.requires("dial", "python3")

_ECHO = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0), backlog=64)
print(server.getsockname()[1], flush=True)
def serve(client):
    with client:
        while data := client.recv(65536):
            client.sendall(data)
        client.sendall(b"<end>")
while True:
    threading.Thread(target=serve, args=server.accept()[:1], daemon=True).start()
"""


async def _serve(workspace: WorkspaceBase) -> tuple[Process, int]:
    """Start a server that echoes and return its port inside."""
    process = await workspace.start(["python3", "-c", _ECHO])
    line = b""
    with anyio.fail_after(SOON):
        while not line.endswith(b"\n"):
            piece = await process.stdout.receive()
            assert piece, await process.stderr.read()
            line += piece
    return process, int(line)


async def _exchange(port: int, data: bytes) -> bytes:
    received = bytearray()
    async with (
        await anyio.connect_tcp("127.0.0.1", port) as client,
        anyio.create_task_group() as group,
    ):
        group.start_soon(_send, client, data)
        async for piece in client:
            received += piece
    return bytes(received)


async def _send(client: SocketStream, data: bytes) -> None:
    await client.send(data)
    await client.send_eof()


class ForwardContract(Contract):
    """Ports inside, reached from the host."""

    async def test_without_dial_a_connection_ends(
        self, workspace: WorkspaceBase
    ) -> None:
        if "dial" in self.capabilities:
            pytest.skip("the backend can dial")
        forward = await workspace.forward(8080)
        with anyio.fail_after(SOON):
            assert await _ended(forward.port)

    @_dial
    async def test_bytes_go_there_and_back(self, workspace: WorkspaceBase) -> None:
        _, inside = await _serve(workspace)
        forward = await workspace.forward(inside)
        assert forward.port > 0
        with anyio.fail_after(SOON):
            assert await _exchange(forward.port, b"hello") == b"hello<end>"

    @_dial
    async def test_the_host_listens_on_its_loopback_only(
        self, workspace: WorkspaceBase
    ) -> None:
        forward = await workspace.forward(8080)
        assert forward.host == "127.0.0.1"

    @_dial
    async def test_connections_follow_each_other(
        self, workspace: WorkspaceBase
    ) -> None:
        _, inside = await _serve(workspace)
        forward = await workspace.forward(inside)
        with anyio.fail_after(SOON):
            for number in range(10):
                data = str(number).encode()
                assert await _exchange(forward.port, data) == data + b"<end>"

    @_dial
    async def test_connections_at_once_do_not_mix(
        self, workspace: WorkspaceBase
    ) -> None:
        _, inside = await _serve(workspace)
        forward = await workspace.forward(inside)
        results: dict[int, bytes] = {}

        async def exchange(number: int) -> None:
            data = bytes([number]) * 100_000
            results[number] = await _exchange(forward.port, data)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for number in range(1, 21):
                    group.start_soon(exchange, number)
        assert results == {n: bytes([n]) * 100_000 + b"<end>" for n in range(1, 21)}

    @_dial
    async def test_five_mebibytes_arrive_whole(self, workspace: WorkspaceBase) -> None:
        _, inside = await _serve(workspace)
        forward = await workspace.forward(inside)
        data = os.urandom(5 * MiB)
        with anyio.fail_after(60):
            assert await _exchange(forward.port, data) == data + b"<end>"

    @_dial
    async def test_without_a_server_a_connection_ends(
        self, workspace: WorkspaceBase
    ) -> None:
        process, inside = await _serve(workspace)
        await process.kill()
        forward = await workspace.forward(inside)
        with anyio.fail_after(SOON):
            assert await _ended(forward.port)

    @_dial
    async def test_a_server_that_dies_ends_its_connections(
        self, workspace: WorkspaceBase
    ) -> None:
        process, inside = await _serve(workspace)
        forward = await workspace.forward(inside)
        async with await anyio.connect_tcp("127.0.0.1", forward.port) as client:
            await client.send(b"hello")
            with anyio.fail_after(SOON):
                assert await client.receive()
                await process.kill()
                assert await _ends(client)

    @_dial
    async def test_a_closed_forward_takes_no_connection(
        self, workspace: WorkspaceBase
    ) -> None:
        _, inside = await _serve(workspace)
        forward = await workspace.forward(inside)
        await forward.aclose()
        await forward.aclose()
        with pytest.raises(OSError, match="attempts failed"):
            await anyio.connect_tcp("127.0.0.1", forward.port)

    @_dial
    async def test_a_closed_workspace_takes_no_connection(self) -> None:
        async with self.make_workspace() as workspace:
            _, inside = await _serve(workspace)
            port = (await workspace.forward(inside)).port
        with pytest.raises(OSError, match="attempts failed"):
            await anyio.connect_tcp("127.0.0.1", port)

    @_dial
    async def test_a_port_of_the_host_can_be_chosen(
        self, workspace: WorkspaceBase
    ) -> None:
        _, inside = await _serve(workspace)
        free = await workspace.forward(inside)
        await free.aclose()
        forward = await workspace.forward(inside, local_port=free.port)
        assert forward.port == free.port

    async def test_a_port_that_is_taken_is_an_error(
        self, workspace: WorkspaceBase, fresh_workspace: Factory
    ) -> None:
        taken = await workspace.forward(8080)
        other = await fresh_workspace()
        with pytest.raises(OSError, match="in use"):
            await other.forward(8080, local_port=taken.port)

    @pytest.mark.parametrize("port", [0, -1, 65536])
    async def test_an_impossible_port_is_refused(
        self, workspace: WorkspaceBase, port: int
    ) -> None:
        with pytest.raises(InvalidArgumentError, match="port"):
            await workspace.forward(port)


async def _ended(port: int) -> bool:
    async with await anyio.connect_tcp("127.0.0.1", port) as client:
        return await _ends(client)


async def _ends(client: SocketStream) -> bool:
    try:
        return await client.receive() == b""
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return True
