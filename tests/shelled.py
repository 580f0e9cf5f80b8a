"""A sandbox without Python, of which a shell does every operation."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fcntl
import functools
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
from pathlib import Path

from tests import trees
from typing_extensions import override

from isobox import Availability, WorkspaceBase
from isobox._core.isolation import DIMENSIONS
from isobox._shell.exec import ENDED, STDERR, STDOUT
from isobox._shell.sandbox import ShellSandbox
from isobox.abc import Barrier, Isolation, Provider
from isobox.errors import UnsupportedError
from isobox.testing.processes import kill_tree

#: Reaps, and takes no signal from inside.
_FIRST = "echo ready; trap : CHLD TERM; while :; do sleep 3600 & wait; done"
_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/agent"}
_HELD = Barrier("strong", "namespaces of the test's own")
_ISOLATION = dict.fromkeys(DIMENSIONS, _HELD)


def _made_until_the_end(prefix: str) -> Path:
    made = tempfile.mkdtemp(prefix=prefix)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


@functools.cache
def busybox_root() -> str:
    """Return a directory that holds a static busybox and nothing else."""
    root = _made_until_the_end("isobox-busybox-")
    (root / "bin").mkdir()
    binary = shutil.which("busybox")
    assert binary, "apt-get install busybox-static"
    shutil.copy(binary, root / "bin/busybox")
    names = subprocess.run([binary, "--list"], check=True, capture_output=True)
    for name in names.stdout.decode().split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")
    trees.add_printenv(root)
    _furnish(root)
    (root / "usr").mkdir()
    (root / "usr/bin").symlink_to("../bin")
    return str(root)


@functools.cache
def coreutils_root() -> str:
    """Return a directory that shows the host's programs, but for Python."""
    root = _made_until_the_end("isobox-coreutils-")
    _furnish(root)
    (root / "usr").mkdir()
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / name).symlink_to(f"usr/{name}")
    return str(root)


def _furnish(root: Path) -> None:
    for name in ("proc", "dev", "tmp", "workspace", "home", "etc"):
        (root / name).mkdir()
    (root / "etc/passwd").write_text("agent:x:1000:1000::/home/agent:/bin/sh\n")


def _masks() -> list[str]:
    options = ["--ro-bind", "/usr", "/usr"]
    for folder in ("/usr/bin", "/usr/local/bin"):
        for name in sorted(os.listdir(folder)):
            if name.startswith(("python", "perl", "pypy")):
                options += ["--ro-bind", "/dev/null", f"{folder}/{name}"]
    return options


class Box:
    """Namespaces that a first process keeps open."""

    def __init__(self, process, pid):
        self.process = process
        self.pid = pid

    @classmethod
    async def open(cls, root, workdir, *, masked, tmp):
        reader, writer = os.pipe()
        process = await asyncio.create_subprocess_exec(
            "bwrap",
            *("--unshare-all", "--uid", "1000", "--gid", "1000"),
            *("--die-with-parent", "--as-pid-1", "--new-session", "--cap-drop", "ALL"),
            *("--ro-bind", root, "/"),
            *(_masks() if masked else ()),
            *("--proc", "/proc", "--dev", "/dev"),
            *("--perms", "1777", "--size", str(tmp), "--tmpfs", "/tmp"),
            *("--tmpfs", "/home", "--dir", "/home/agent"),
            *("--bind", workdir, "/workspace", "--remount-ro", "/"),
            *("--clearenv", "--info-fd", str(writer), "--chdir", "/"),
            *("sh", "-c", _FIRST),
            pass_fds=(writer,),
            stdout=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"]},
        )
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            told = await asyncio.to_thread(file.read)
        assert await process.stdout.readline() == b"ready\n"
        return cls(process, json.loads(told)["child-pid"])

    async def aclose(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


class NamespaceExec:
    """Runs programs in a box, as an engine does in a container."""

    def __init__(self, box):
        self.box = box
        self.starts = 0

    async def start(self, argv, *, tty):
        self.starts += 1
        assert sum(map(len, argv)) < 1024
        assert all(part.isascii() for part in argv)
        command = [
            *("nsenter", "-t", str(self.box.pid)),
            *("-U", "--preserve-credentials", "-m", "-p", "-n", "-i", "-u", "--"),
            *argv,
        ]
        if tty is not None:
            command[-len(argv) :] = ["setsid", "-c", *argv]
            return await TerminalRunning.open(command, tty)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**_ENV, "PATH": os.environ["PATH"]},
            start_new_session=True,
            limit=1 << 18,
        )
        return PipedRunning(process)


class PipedRunning:
    """A child on pipes."""

    def __init__(self, process):
        self._process = process
        self._open = {STDOUT: process.stdout, STDERR: process.stderr}
        self._reading = {}

    async def send(self, data):
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (ConnectionError, BrokenPipeError):
            raise BrokenPipeError("nobody reads") from None

    async def send_eof(self):
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            self._process.stdin.close()

    async def receive(self):
        while self._open:
            for kind, stream in self._open.items():
                if kind not in self._reading:
                    self._reading[kind] = asyncio.ensure_future(stream.read(1 << 16))
            await asyncio.wait(
                self._reading.values(), return_when=asyncio.FIRST_COMPLETED
            )
            for kind, task in list(self._reading.items()):
                if task.done():
                    del self._reading[kind]
                    if data := task.result():
                        return kind, data
                    del self._open[kind]
        return ENDED, b""

    async def wait(self):
        status = await self._process.wait()
        return status if status >= 0 else 128 - status

    async def resize(self, columns, rows):
        raise AssertionError

    async def aclose(self):
        for task in self._reading.values():
            task.cancel()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        for number in (0, 1, 2):
            self._process._transport.get_pipe_transport(number).close()
        await self._process.wait()


class TerminalRunning:
    """A child on a terminal."""

    def __init__(self, process, terminal):
        self._process = process
        self._terminal = terminal

    @classmethod
    async def open(cls, command, tty):
        ours, theirs = pty.openpty()
        _resize(ours, tty.columns, tty.rows)

        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                env={**_ENV, "PATH": os.environ["PATH"]},
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        os.set_blocking(ours, False)
        return cls(process, ours)

    async def send(self, data):
        loop = asyncio.get_running_loop()
        while data:
            try:
                data = data[os.write(self._terminal, data) :]
            except BlockingIOError:
                ready = loop.create_future()
                loop.add_writer(self._terminal, _once, ready)
                await ready
                loop.remove_writer(self._terminal)
            except OSError:
                raise BrokenPipeError("nobody reads") from None

    async def send_eof(self):
        pass

    async def receive(self):
        loop = asyncio.get_running_loop()
        while True:
            try:
                data = os.read(self._terminal, 1 << 16)
            except BlockingIOError:
                ready = loop.create_future()
                loop.add_reader(self._terminal, _once, ready)
                try:
                    await ready
                finally:
                    loop.remove_reader(self._terminal)
                continue
            except OSError:
                data = b""
            return (STDOUT, data) if data else (ENDED, b"")

    async def wait(self):
        status = await self._process.wait()
        return status if status >= 0 else 128 - status

    async def resize(self, columns, rows):
        _resize(self._terminal, columns, rows)

    async def aclose(self):
        if self._terminal < 0:
            return
        terminal, self._terminal = self._terminal, -1
        asyncio.get_running_loop().remove_reader(terminal)
        os.close(terminal)
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


def _once(future):
    if not future.done():
        future.set_result(None)


def _resize(terminal, columns, rows):
    size = struct.pack("HHHH", rows, columns, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


class ShelledProvider(Provider):
    """Makes such sandboxes."""

    name = "shelled"

    def __init__(self, kind):
        self._kind = kind

    @override
    async def probe(self):
        return Availability(backend=self.name, ok=True, reason="for tests")

    @override
    async def create(self, spec):
        if spec.capture is not None:
            raise UnsupportedError("no network to filter")
        workdir = spec.workdir or tempfile.mkdtemp(prefix="isobox-shelled-")
        masked = self._kind == "coreutils"
        root = coreutils_root() if masked else busybox_root()
        box = await Box.open(root, workdir, masked=masked, tmp=spec.limits.tmp)

        async def release():
            await box.aclose()
            if spec.workdir is None:
                await asyncio.to_thread(_sweep, workdir)

        sandbox = await ShellSandbox.open(
            NamespaceExec(box),
            backend=self.name,
            root="/workspace",
            env={**_ENV, **spec.env},
            capabilities=frozenset({"isolated", "no_network", "tty"}),
            isolation=Isolation(backend=self.name, **_ISOLATION),
            release=release,
        )
        sandbox.box = box
        return sandbox


def _sweep(folder):
    subprocess.run(["chmod", "-R", "u+rwX", folder], check=False)
    shutil.rmtree(folder, ignore_errors=True)


class ShelledWorkspace(WorkspaceBase):
    """A workspace in such a sandbox."""

    backend = "shelled"

    def __init__(self, workdir=None, *, image="busybox", **options):
        super().__init__(**options)
        self._workdir = workdir
        self._image = image

    @override
    def _provider(self):
        return ShelledProvider(self._image)


async def crash(workspace):
    """Kill its sandbox."""
    await kill_tree(workspace._sandbox.box.pid)
