"""What the demo plants on the host, and how it sees that none of it was reached."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

_UNTOUCHED = "nobody may change this\n"
_VARIABLE = "ISOBOX_DEMO_SECRET"


class Stage:
    """Secrets, sockets and a process of the host; all go when it closes.

    Attributes:
        directory: A private directory of the host.
        workdir: The one directory below it that the sandbox is given.
        facts: What the hostile program is told: where things are, no secret.
        secrets: What must never come out of the sandbox.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self._keep = keep
        self._exits = ExitStack()
        self.marker = f"isobox-demo-{secrets.token_hex(6)}"
        self.secrets: list[str] = []
        self.facts: dict[str, object] = {"marker": self.marker}

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            self.directory = tempfile.mkdtemp(prefix="isobox-demo-")
            exits.callback(self._clear)
            self.workdir = os.path.join(self.directory, "project")
            os.mkdir(self.workdir)
            self._plant_files()
            self._plant_home(exits)
            self._plant_environment(exits)
            self._plant_process(exits)
            self._plant_sockets(exits)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    # -- planting -----------------------------------------------------------

    def _secret(self) -> str:
        self.secrets.append(secrets.token_hex(16))
        return self.secrets[-1]

    def _plant_files(self) -> None:
        private = os.path.join(self.directory, "private")
        os.mkdir(private)
        self.facts["secret"] = _written(f"{private}/secret.txt", self._secret())
        self.facts["outside"] = _written(f"{private}/important.txt", _UNTOUCHED)
        self.facts["set_user_id"] = "helper"

    def _plant_home(self, exits: ExitStack) -> None:
        path = os.path.join(os.path.expanduser("~"), f".{self.marker}")
        # A user such as `nobody` has no home to keep a secret in.
        with contextlib.suppress(OSError):
            self.facts["home_secret"] = _written(path, self._secret())
            exits.callback(os.unlink, path)

    def _plant_environment(self, exits: ExitStack) -> None:
        os.environ[_VARIABLE] = self._secret()
        exits.callback(os.environ.pop, _VARIABLE, None)

    def _plant_process(self, exits: ExitStack) -> None:
        # It waits for the end of its input, so that it never outlives us.
        self._bystander = exits.enter_context(
            subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", "input()"],
                stdin=subprocess.PIPE,
                env={**os.environ, _VARIABLE: self._secret()},
            )
        )
        exits.callback(self._bystander.kill)
        self.facts["bystander"] = self._bystander.pid

    def _plant_sockets(self, exits: ExitStack) -> None:
        self._sockets = {
            "loopback_port": _listening(socket.AF_INET, ("127.0.0.1", 0)),
            "abstract_socket": _listening(socket.AF_UNIX, f"\0{self.marker}"),
            "socket_file": _listening(socket.AF_UNIX, f"{self.directory}/private/s"),
        }
        self.facts["loopback_port"] = self._sockets["loopback_port"].getsockname()[1]
        self.facts["abstract_socket"] = self.marker
        self.facts["socket_file"] = f"{self.directory}/private/s"
        if address := _own_address():
            listener = _listening(socket.AF_INET, (address, 0))
            self._sockets["host_address"] = listener
            self.facts["host_address"] = listener.getsockname()[:2]
        for listener in self._sockets.values():
            exits.callback(listener.close)

    def _clear(self) -> None:
        # SAFETY: rmtree holds on to directories by descriptor, so that a link
        # planted by the sandbox is removed and not followed.
        if not self._keep:
            shutil.rmtree(self.directory, ignore_errors=True)
            return
        for name in os.listdir(self.directory):
            path = os.path.join(self.directory, name)
            if path != self.workdir:
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)

    # -- evidence -----------------------------------------------------------

    def leaked(self, output: bytes) -> str | None:
        """Say whether a secret stands in what came out."""
        known = any(secret.encode() in output for secret in self.secrets)
        return "a secret came out" if known else None

    def reached(self, name: str) -> str | None:
        """Say whether anybody connected to a planted socket."""
        with contextlib.suppress(BlockingIOError):
            self._sockets[name].accept()[0].close()
            return "the host accepted a connection"
        return None

    def changed(self) -> str | None:
        """Say whether anything outside the workdir was changed or made."""
        private = os.path.join(self.directory, "private")
        if sorted(os.listdir(private)) != ["important.txt", "s", "secret.txt"]:
            return "a file was made on the host"
        with open(os.path.join(private, "important.txt")) as file:
            return None if file.read() == _UNTOUCHED else "a host file was changed"

    def made_in_system(self) -> str | None:
        """Say whether a file of the marker's name is in a system directory."""
        for place in ("/usr/bin", "/usr/lib", "/etc", "/bin", "/"):
            if os.path.lexists(os.path.join(place, self.marker)):
                return f"a file was made in the host's {place}"
        return None

    def mounted(self) -> str | None:
        """Say whether the host sees a mount of the marker's name."""
        with open("/proc/self/mountinfo") as mounts:
            return "the host sees the mount" if self.marker in mounts.read() else None

    def bystander_harmed(self) -> str | None:
        """Say whether the host's process ended."""
        ended = self._bystander.poll()
        return None if ended is None else f"the host's process ended with {ended}"

    def survivors(self) -> str | None:
        """Say whether a process with the marker on its command line lives."""
        alive = [pid for pid in _processes() if self._is_marked(pid)]
        return f"{len(alive)} processes live on" if alive else None

    def put_down(self) -> None:
        """Kill what `survivors` finds: nothing of the demo may stay."""
        for pid in filter(self._is_marked, _processes()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def set_user_id(self, directory: str) -> str | None:
        """Say whether a file below a host directory has a set-id bit."""
        for parent, _, names in os.walk(directory):
            for name in names:
                mode = os.lstat(os.path.join(parent, name)).st_mode
                if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                    return f"{name} came to the host with a set-id bit"
        return None

    def leads_out(self, directory: str) -> str | None:
        """Say whether something below a host directory leads to a secret."""
        for parent, directories, names in os.walk(directory):
            for name in (*directories, *names):
                path = os.path.realpath(os.path.join(parent, name))
                if not path.startswith(os.path.realpath(directory)):
                    return f"{name} leads out of the directory"
                if os.path.isfile(path) and self.leaked(_content(path)):
                    return f"{name} holds the secret"
        return None

    def _is_marked(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return self.marker.encode() in _content(f"/proc/{pid}/cmdline")
        return False


def _written(path: str, content: str) -> str:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(content)
    return path


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _listening(family: int, address: str | tuple[str, int]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _own_address() -> str | None:
    """Return the host's address on its way out; no packet is sent for it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address: str = probe.getsockname()[0]
    return None if address.startswith("127.") else address


def _processes() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)
