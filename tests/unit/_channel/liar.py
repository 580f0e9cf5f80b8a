"""A guest of raw bytes, which says whatever a test wants it to say."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from isobox._channel.channel import Channel
from isobox._channel.sandbox import ChannelSandbox
from isobox._core.isolation import Barrier, Isolation
from isobox._guest import agent
from isobox._workspace.base import WorkspaceBase
from isobox.abc import Availability, Provider, Sandbox, SandboxSpec

ROOT = "/workspace"
NOTHING = Barrier("none", "a liar")
ISOLATION = Isolation(
    backend="liar",
    process=NOTHING,
    file_system=NOTHING,
    user_identity=NOTHING,
    network=NOTHING,
    system_calls=NOTHING,
    resources=NOTHING,
    secrets=NOTHING,
    tenant=NOTHING,
)
HELLO = {"version": agent.VERSION, "pid": 1, "uid": 1, "gid": 1, "shell": "/bin/sh"}

Said = tuple[int, int, bytes]
Script = Callable[["Liar", int, dict[str, Any]], Coroutine[Any, Any, None]]


def frame(kind: int, stream: int, payload: bytes = b"") -> bytes:
    return agent.HEADER.pack(len(payload), kind, stream) + payload


class Liar:
    """The guest's end of a channel."""

    def __init__(self) -> None:
        self.theirs, self.sock = socket.socketpair()
        self.sock.setblocking(False)
        self.heard: list[Said] = []
        self._input = bytearray()
        self._task: asyncio.Task[None] | None = None

    # What it says.

    async def say(self, kind: int, stream: int, payload: bytes = b"") -> None:
        await self.shout(frame(kind, stream, payload))

    async def shout(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def result(self, stream: int, fields: object) -> None:
        await self.say(agent.RESULT, stream, agent.encode(fields))

    async def hello(self, **changes: object) -> None:
        await self.say(agent.HELLO, 0, agent.encode({**HELLO, **changes}))

    # What it hears.

    async def hear(self) -> Said | None:
        """Return the next frame, None at the end."""
        size = agent.HEADER.size
        while True:
            if len(self._input) >= size:
                length, kind, stream = agent.HEADER.unpack_from(self._input)
                if len(self._input) >= size + length:
                    payload = bytes(self._input[size : size + length])
                    del self._input[: size + length]
                    self.heard.append((kind, stream, payload))
                    return kind, stream, payload
            try:
                data = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 18)
            except OSError:
                return None
            if not data:
                return None
            self._input += data

    async def opened(self) -> tuple[int, dict[str, Any]]:
        """Return the next operation that the host opens."""
        while said := await self.hear():
            kind, stream, payload = said
            if kind == agent.OPEN:
                return stream, agent.decode(payload)
        raise EOFError

    async def serve(self, script: Script) -> None:
        """Say hello, then do as the script says with every operation."""
        while said := await self.hear():
            kind, stream, payload = said
            with contextlib.suppress(OSError):
                if kind == agent.CONFIG:
                    await self.hello()
                elif kind == agent.OPEN:
                    await script(self, stream, agent.decode(payload))

    def start(self, script: Script) -> None:
        self._task = asyncio.create_task(self.serve(script))

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.sock.close()
        self.theirs.close()


@contextlib.asynccontextmanager
async def lied_to() -> AsyncIterator[tuple[Liar, ChannelSandbox]]:
    """A liar whose every word is the test's, and the sandbox it pretends to be."""
    liar = Liar()
    channel = await Channel.over(liar.theirs)
    sandbox = pretended(channel)
    try:
        yield liar, sandbox
    finally:
        await sandbox.aclose()
        await liar.aclose()


def pretended(channel: Channel) -> ChannelSandbox:
    return ChannelSandbox(
        channel,
        backend="liar",
        root=ROOT,
        capabilities=frozenset(("isolated", "tty", "dial", "snapshot")),
        isolation=ISOLATION,
    )


class LiarProvider(Provider):
    """Makes sandboxes whose guests follow a script."""

    name = "liar"

    def __init__(self, script: Script) -> None:
        self._script = script

    async def probe(self) -> Availability:
        return Availability(backend="liar", ok=True, reason="says so")

    async def create(self, spec: SandboxSpec, /) -> Sandbox:
        liar = Liar()
        liar.start(self._script)
        channel = await Channel.over(liar.theirs)
        await channel.greet({"env": {}}, timeout=5)
        return PretendedSandbox(channel, liar)


class PretendedSandbox(ChannelSandbox):
    def __init__(self, channel: Channel, liar: Liar) -> None:
        super().__init__(
            channel,
            backend="liar",
            root=ROOT,
            capabilities=frozenset(("isolated", "dial", "snapshot")),
            isolation=ISOLATION,
        )
        self.liar = liar

    async def _release(self) -> None:
        await self.liar.aclose()


class LiarWorkspace(WorkspaceBase):
    """A workspace over such a sandbox."""

    backend = "liar"

    def __init__(self, script: Script, **options: Any) -> None:
        super().__init__(**options)
        self._script = script

    def _provider(self) -> Provider:
        return LiarProvider(self._script)

    @property
    def channel(self) -> Channel:
        sandbox = self._sandbox
        assert isinstance(sandbox, ChannelSandbox)
        return sandbox.channel
