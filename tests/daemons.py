"""A guest as a daemon without an engine: as a plain process, as another user.

It is pid 1 of its own processes, with a network and a /proc of its own, as in a
container; relays are brought in as root, as an engine does.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import anyio.to_thread
import pytest
from typing_extensions import override

from isobox import WorkspaceBase, _workdir
from isobox._backends.local.provider import ISOLATION
from isobox._channel.channel import Channel
from isobox._channel.sandbox import ChannelSandbox
from isobox._guest import daemon
from isobox.abc import Availability, Capability, Provider
from isobox.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="relays are another user")

#: Who commands run as.
WORKLOAD = 1234
CAPABILITIES: frozenset[Capability] = frozenset(
    ("tty", "dial", "snapshot", "rlimits", "kill_tree", "persistent", "reattach")
)

_ENV = {
    "PATH": b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": b"/tmp",
    "LANG": b"C.UTF-8",
    "TERM": b"dumb",
}
_ALONE = (
    *("unshare", "--pid", "--mount", "--net", "--ipc", "--mount-proc"),
    "--fork",
)
_AS_WORKLOAD = (
    *("setpriv", f"--reuid={WORKLOAD}", f"--regid={WORKLOAD}", "--clear-groups"),
    *("--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"),
)


class Daemon:
    """One daemon and its directory.

    Attributes:
        root: Its workspace's directory.
        key: What a relay shows.
        pid: Its process, as the host sees it.
    """

    def __init__(
        self,
        *,
        linger: float = 30.0,
        root: str | None = None,
        python: str | None = None,
        **told: object,
    ) -> None:
        self._python = python or _python()
        self._temporary = root is None
        self.root = os.path.realpath(root or tempfile.mkdtemp(prefix="isobox-"))
        os.chown(self.root, WORKLOAD, WORKLOAD)
        self.key = daemon.new_key()
        command = [*_ALONE, "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
        self.popen = subprocess.Popen(
            [*command, *_AS_WORKLOAD, *daemon.loader_argv(self._python)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={},
            cwd="/",
            start_new_session=True,
        )
        config = {
            "root": os.fsencode(self.root),
            "confine": os.fsencode(self.root),
            "sealed": [],
            "env": _ENV,
            "rlimits": {},
            "key": self.key,
            "linger": linger,
            "workload": WORKLOAD,
            "name": daemon.NAME,
            **told,
        }
        assert self.popen.stdin is not None
        with self.popen.stdin as channel:
            channel.write(daemon.program(config))
        self.pid = self._child()

    def _child(self) -> int:
        children = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for pid in children.read_text().split():
                if b"posix" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
            time.sleep(0.002)
        raise TimeoutError("the daemon does not start")

    def await_listening(self) -> None:
        """Return once its socket takes connections; relays do not need to wait."""
        table = Path(f"/proc/{self.pid}/net/unix")
        # Of an entry: its flags, of which this one is of whoever listens; its name.
        listens = re.compile(
            rf"^\S+: \S+ \S+ 00010000 .* @{daemon.NAME}$", re.MULTILINE
        )
        deadline = time.monotonic() + 20
        while not listens.search(table.read_text()):
            if time.monotonic() > deadline:
                raise TimeoutError("the daemon does not listen")
            time.sleep(0.002)

    def inside(self, argv: Sequence[str], *, user: int = 0, **how) -> subprocess.Popen:
        """Start a program in the daemon's namespaces, as an engine would."""
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--net", "--ipc"]
        who = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        return subprocess.Popen(
            [*enter, "--pid", *who, *argv], env={"PATH": os.defpath}, cwd="/", **how
        )

    def relay(self, sock: socket.socket, *, user: int = 0) -> subprocess.Popen:
        """Start a relay between a socket and the daemon."""
        return self.inside(
            daemon.relay_argv(self._python),
            user=user,
            stdin=sock,
            stdout=sock,
            stderr=subprocess.DEVNULL,
        )

    async def attach(self, *, key: str | None = None, user: int = 0) -> Host:
        """Return a host's channel to it."""
        ours, theirs = socket.socketpair()
        with theirs:
            relay = self.relay(theirs, user=user)
        ours.sendall(daemon.greeting(key or self.key))
        channel = await Channel.over(ours)
        try:
            await channel.greet({}, timeout=30)
        except BaseException:
            relay.wait(20)
            raise
        return Host(channel, relay, self)

    def ended(self, patience: float = 20.0) -> int:
        """Wait until it has ended by itself; returns its exit status."""
        return self.popen.wait(patience)

    def kill(self) -> None:
        """Kill it and everything in it."""
        # The first of its processes; unshare ends with it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill it and remove its directory."""
        self.kill()
        self.popen.wait(20)
        assert self.popen.stderr is not None
        with self.popen.stderr as complaints:
            lines = complaints.read().decode().splitlines()
        # unshare complains when what it started was killed.
        said = [line for line in lines if not line.startswith("unshare: ")]
        if self._temporary:
            _workdir.sweep_tree(self.root)
        assert not said, said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Host(ChannelSandbox):
    """What one host has of a daemon: its relay and its channel."""

    def __init__(
        self, channel: Channel, relay: subprocess.Popen, owner: Daemon
    ) -> None:
        super().__init__(
            channel,
            backend="daemon",
            root=owner.root,
            capabilities=CAPABILITIES,
            isolation=replace(ISOLATION, backend="daemon"),
        )
        self.relay = relay
        self.daemon = owner

    @override
    async def _release(self) -> None:
        # The relay ends because the daemon is done with it, not because it is told.
        await anyio.to_thread.run_sync(self.relay.wait, 20)


class OwnHost(Host):
    """A host that has a daemon of its own."""

    @override
    async def _release(self) -> None:
        await super()._release()
        await anyio.to_thread.run_sync(self.daemon.close)


class DaemonProvider(Provider):
    """Makes a daemon for each sandbox."""

    name = "daemon"

    @override
    async def probe(self):
        return Availability(backend="daemon", ok=True, reason="for tests")

    @override
    async def create(self, spec, /):
        if spec.capture is not None:
            raise UnsupportedError("this sandbox has no network to filter")
        env = {**_ENV, **{name: value.encode() for name, value in spec.env.items()}}
        made = Daemon(root=spec.workdir, env=env)
        host = await made.attach()
        return OwnHost(host.channel, host.relay, made)


class DaemonWorkspace(WorkspaceBase):
    """A workspace over a daemon of its own."""

    backend: ClassVar[str] = "daemon"

    @override
    def _provider(self):
        return DaemonProvider()


class AttachedProvider(DaemonProvider):
    """Attaches to one daemon."""

    def __init__(self, made: Daemon) -> None:
        self._made = made

    @override
    async def create(self, spec, /):
        return await self._made.attach()


class AttachedWorkspace(DaemonWorkspace):
    """A workspace of one more host of a daemon."""

    def __init__(self, made: Daemon, **options) -> None:
        super().__init__(**options)
        self._made = made

    @override
    def _provider(self):
        return AttachedProvider(self._made)


def _python() -> str:
    # The system's is one that the workload's user may run.
    return shutil.which("python3", path="/usr/bin:/bin") or sys.executable
