"""The way out: what the filter refuses, and ports of the host led inside."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import anyio
import pytest

from isobox import MemorySink, Network, Policy, Secret
from isobox.errors import (
    InvalidArgumentError,
    PolicyDeniedError,
    UnsupportedError,
    WorkspaceClosedError,
)
from isobox.testing.contract._base import SOON, Contract, Factory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from isobox import RunResult, WorkspaceBase

_filtered = pytest.mark.requires("capture", "python3")
_listens = pytest.mark.requires("listen", "python3")

#: A name and addresses that nobody has: RFC 6761 and RFC 5737.
_NAME, _OTHER, _ADDRESS = "www.example.test", "other.example.test", "192.0.2.7"

_CONNECT = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as client:
        client.sendall(sys.argv[3].encode().decode("unicode_escape").encode("latin-1"))
        client.shutdown(socket.SHUT_WR)
        data = b""
        while piece := client.recv(65536):
            data += piece
        sys.stdout.buffer.write(data)
except OSError as error:
    print("failed", type(error).__name__)
"""


async def _talk(
    workspace: WorkspaceBase, host: str, port: int, text: str = ""
) -> RunResult:
    """Connect from inside, say a text (with escapes), and return all that came."""
    argv = ["python3", "-c", _CONNECT, host, str(port), text]
    return await workspace.run(argv, timeout=SOON)


async def _ask_proxy(workspace: WorkspaceBase, text: str) -> RunResult:
    port = (await workspace.run('printf %s "${HTTP_PROXY##*:}"')).stdout
    return await _talk(workspace, "127.0.0.1", int(port), text)


@contextlib.asynccontextmanager
async def _served() -> AsyncGenerator[int]:
    """Have an echo on the host's loopback; yields its port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.write(b"<end>")
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _facts(sink: MemorySink) -> list[dict[str, object]]:
    """Return the facts of every connection that was asked for."""
    return [
        record["facts"]  # type: ignore[misc]
        for record in sink.records
        if record["kind"] == "intent" and record["op"] == "connect"
    ]


class NetworkContract(Contract):
    """What leaves, what does not, and what is led inside."""

    @pytest.mark.parametrize("network", ["open", [_NAME], Network(otherwise="ask")])
    async def test_a_backend_that_cannot_filter_refuses(self, network: object) -> None:
        if "capture" in self.capabilities:
            pytest.skip("the backend can filter")
        workspace = self.make_workspace(network=network)
        with pytest.raises(UnsupportedError, match="network"):
            await workspace.initialize()
        with pytest.raises(WorkspaceClosedError):
            await workspace.run("true")

    @pytest.mark.parametrize("network", ["none", [], (), Network()])
    async def test_no_rule_is_no_network(
        self, workspace: WorkspaceBase, fresh_workspace: Factory, network: object
    ) -> None:
        other = await fresh_workspace(network=network)
        assert other.isolation() == workspace.isolation()

    async def test_secrets_need_a_network(self) -> None:
        secret = Secret("TOKEN", source=lambda: "value", hosts=[_NAME])
        with pytest.raises(InvalidArgumentError, match="network"):
            self.make_workspace(secrets=[secret])

    @_filtered
    async def test_a_filtered_sandbox_says_so(self, fresh_workspace: Factory) -> None:
        workspace = await fresh_workspace(network=[_NAME])
        assert "filter" in workspace.isolation().network.mechanism
        assert _NAME in await workspace.get_instructions()

    @_filtered
    async def test_the_proxy_refuses_and_says_why(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace(network=[_NAME])
        asked = f"GET http://{_OTHER}/ HTTP/1.1\\r\\nHost: {_OTHER}\\r\\n\\r\\n"
        result = await _ask_proxy(workspace, asked)
        head, _, body = result.stdout.partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 403 ")
        assert "X-Isobox-Denied: default" in head
        assert body == (
            f"isobox denies {_OTHER}:80: no rule allows {_OTHER}:80 (rule 'default')\n"
        )
        (denial,) = result.denials
        assert (denial.host, denial.port, denial.rule) == (_OTHER, 80, "default")

    @_filtered
    @pytest.mark.parametrize(
        ("target", "rule"),
        [
            (f"{_OTHER}:443", "default"),
            (f"denied.{_NAME}:443", f"!denied.{_NAME}"),
            (f"{_NAME}:22", "default"),
            (f"{_ADDRESS}:443", "default"),
            ("127.0.0.1:22", "localhost"),
            ("localhost:443", "localhost"),
            ("169.254.169.254:80", "default"),
        ],
    )
    async def test_a_tunnel_to_what_is_not_allowed_is_refused(
        self, fresh_workspace: Factory, target: str, rule: str
    ) -> None:
        workspace = await fresh_workspace(network=[f"*.{_NAME}", f"!denied.{_NAME}"])
        result = await _ask_proxy(
            workspace, f"CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n"
        )
        assert result.stdout.startswith("HTTP/1.1 403 ")
        assert [denial.rule for denial in result.denials] == [rule]

    @_filtered
    async def test_socks_refuses_too(self, fresh_workspace: Factory) -> None:
        workspace = await fresh_workspace(network=[_NAME])
        name = "".join(f"\\x{byte:02x}" for byte in _OTHER.encode())
        asked = (
            f"\\x05\\x01\\x00\\x05\\x01\\x00\\x03\\x{len(_OTHER):02x}{name}\\x01\\xbb"
        )
        result = await _ask_proxy(workspace, asked)
        assert result.stdout_bytes == b"\x05\x00" + b"\x05\x02\x00\x01" + bytes(6)
        assert [denial.host for denial in result.denials] == [_OTHER]

    @_filtered
    async def test_deny_all_lets_nothing_out(self, fresh_workspace: Factory) -> None:
        policy = Policy.allow_all()
        sink = MemorySink()
        workspace = await fresh_workspace(
            policy=policy, network=["!*", _NAME], audit=sink
        )
        result = await _ask_proxy(
            workspace, f"CONNECT {_NAME}:443 HTTP/1.1\\r\\nHost: {_NAME}\\r\\n\\r\\n"
        )
        assert result.stdout.startswith("HTTP/1.1 403 ")
        assert _facts(sink) == [{"host": _NAME, "port": 443, "via": "connect"}]

    @_filtered
    async def test_a_person_is_asked(self, fresh_workspace: Factory) -> None:
        asked: list[object] = []

        async def approve(question: object) -> bool:
            asked.append(question)
            return False

        workspace = await fresh_workspace(network=[f"?{_NAME}"], approve=approve)
        target = f"CONNECT {_NAME}:443 HTTP/1.1\\r\\nHost: {_NAME}\\r\\n\\r\\n"
        result = await _ask_proxy(workspace, target)
        assert len(asked) == 1
        assert result.stdout.startswith("HTTP/1.1 403 ")
        assert "nobody allowed it" in result.stdout
        assert [denial.rule for denial in result.denials] == [f"?{_NAME}"]

    @_filtered
    async def test_a_flood_leaves_the_filter_alive(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace(network=[_NAME])
        flood = (
            "import os, socket\n"
            "port = int(os.environ['HTTP_PROXY'].rpartition(':')[2])\n"
            "held = [socket.create_connection(('127.0.0.1', port)) "
            "for _ in range(500)]\n"
            "for client in held: client.sendall(b'GET http://')\n"
            "print('up', flush=True)\n"
            "input()\n"
        )
        process = await workspace.start(["python3", "-c", flood], stdin=True)
        with anyio.fail_after(2 * SOON):
            assert await process.stdout.receive() == b"up\n"
            result = await _ask_proxy(workspace, "GET http://x/ HTTP/1.1\\r\\n\\r\\n")
        assert result.stdout.startswith("HTTP/1.1 400 ")
        await process.aclose()

    # Ports of the host.

    async def test_without_listen_nothing_is_led_inside(
        self, workspace: WorkspaceBase
    ) -> None:
        if "listen" in self.capabilities:
            pytest.skip("the backend leads ports inside")
        with pytest.raises(UnsupportedError):
            await workspace.expose_host_port(8080)

    @_listens
    @pytest.mark.parametrize("network", [None, [_NAME]])
    async def test_a_port_of_the_host_is_led_inside(
        self, fresh_workspace: Factory, network: Sequence[str] | None
    ) -> None:
        if network is not None and "capture" not in self.capabilities:
            pytest.skip("the backend cannot filter")
        sink = MemorySink()
        workspace = await fresh_workspace(audit=sink, network=network)
        async with _served() as port:
            exposed = await workspace.expose_host_port(port, inside=0)
            assert exposed.host == "127.0.0.1"
            result = await _talk(workspace, exposed.host, exposed.port, "hello")
        assert result.stdout == "hello<end>"
        assert _facts(sink) == [{"host": "127.0.0.1", "port": port, "via": "exposed"}]

    @_listens
    async def test_a_closed_exposure_leads_nowhere(
        self, workspace: WorkspaceBase
    ) -> None:
        async with _served() as port:
            exposed = await workspace.expose_host_port(port, inside=0)
            await exposed.aclose()
            await exposed.aclose()
            result = await _talk(workspace, "127.0.0.1", exposed.port, "hello")
        assert result.stdout == "failed ConnectionRefusedError\n"

    @_listens
    async def test_an_exposed_port_without_a_server_ends_the_connection(
        self, workspace: WorkspaceBase
    ) -> None:
        async with _served() as port:
            pass
        exposed = await workspace.expose_host_port(port, inside=0)
        result = await _talk(workspace, "127.0.0.1", exposed.port, "hello")
        # The end comes as an end or as an error, as the kernel likes.
        assert result.stdout == "" or result.stdout.startswith("failed ")

    @_listens
    async def test_deny_all_leads_nothing_inside(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace(policy=Policy.deny_all())
        with pytest.raises(PolicyDeniedError):
            await workspace.expose_host_port(8080)

    @_listens
    @pytest.mark.parametrize("port", [0, -1, 65536])
    async def test_an_impossible_port_is_not_led_inside(
        self, workspace: WorkspaceBase, port: int
    ) -> None:
        with pytest.raises(InvalidArgumentError, match="port"):
            await workspace.expose_host_port(port)
