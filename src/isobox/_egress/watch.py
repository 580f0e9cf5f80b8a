"""Who watches the filters of a user's workspaces, live."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import tempfile
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from isobox._egress.vault import Vault

#: Bytes of one event.
_LARGEST: Final = 32768
#: Seconds for which the list of watchers is taken to be true.
_FRESH: Final = 1.0

Event = dict[str, object]


def directory() -> str:
    """Return the directory of the watchers' sockets, which is the user's alone.

    Raises:
        PermissionError: There is one, and it is somebody else's.
    """
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    path = os.path.join(base, f"isobox-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    # SAFETY: in a shared directory another user may have made it first.
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not own or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not a directory of yours alone; remove it")
    return path


class Watcher:
    """Receives the events of every filter of this user, while it is open."""

    def __init__(self) -> None:
        self._path = os.path.join(directory(), f"egress-{os.getpid()}.sock")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._socket.bind(self._path)

    def __iter__(self) -> Iterator[Event]:
        """Yield events as they come."""
        while True:
            yield json.loads(self._socket.recv(_LARGEST))

    def close(self) -> None:
        """Stop to receive."""
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Reporter:
    """Tells whoever watches; nobody is waited for."""

    def __init__(self, workspace: str, vault: Vault) -> None:
        self._workspace = workspace
        self._vault = vault
        self._watchers: list[str] = []
        self._looked = 0.0

    def __call__(self, event: Event) -> None:
        """Send an event to every watcher."""
        watchers = self._found()
        if not watchers:
            return
        told = {"time": time.time(), "workspace": self._workspace, **event}
        data = json.dumps(told).encode("ascii")[:_LARGEST]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            for path in watchers:
                _send(sender, path, data)

    def _found(self) -> list[str]:
        now = time.monotonic()
        if now - self._looked > _FRESH:
            self._looked = now
            self._watchers = _watchers()
        return self._watchers


def reporter(workspace: str, vault: Vault) -> Callable[[Event], None]:
    """Return what tells the watchers of a workspace's events."""
    return Reporter(workspace, vault)


def _watchers() -> list[str]:
    try:
        path = directory()
        names = os.listdir(path)
    except OSError:
        return []
    return [os.path.join(path, name) for name in names if name.endswith(".sock")]


def _send(sender: socket.socket, path: str, data: bytes) -> None:
    try:
        sender.sendto(data, path)
    except ConnectionRefusedError:
        # Whoever listened there was killed.
        with contextlib.suppress(OSError):
            os.unlink(path)
    except OSError:
        pass
