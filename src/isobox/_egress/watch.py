"""Who watches the filters of a user's workspaces, live.

Each watcher has a socket in a directory that is its user's alone; each filter
looks there, and tells whomever it finds. Nobody is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import stat
import time
from collections import deque
from typing import TYPE_CHECKING, Final, cast

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Self

    from isobox._egress.vault import Vault

#: What an event says, by the names that `isobox egress --json` prints.
Event = dict[str, object]

#: Where each user's session has a directory, and where everybody may make one.
_SESSIONS: Final = "/run/user"
_SHARED: Final = "/tmp"  # noqa: S108 - the directory in it is checked

#: Characters of one text in an event. A target may have 65,536.
_LONGEST: Final = 1024
#: Bytes of one event: more than its few texts can have, each character escaped.
_LARGEST: Final = 1 << 17
#: Events that wait for one watcher; what comes then is counted and not told.
_MOST: Final = 256
#: Seconds until the next attempt where a watcher's queue is full. Kernels hold
#: 10 datagrams there unless they are told otherwise (net.unix.max_dgram_qlen).
_PAUSE: Final = 0.02
#: Seconds for which the list of watchers is taken to be true.
_FRESH: Final = 1.0


def directory() -> str:
    """Return the directory of the watchers' sockets, which is the user's alone.

    It does not depend on the environment: filters and watchers have to find the
    same one, started by whatever and with `sudo`, too.

    Raises:
        PermissionError: There is one, and it is somebody else's.
    """
    user = os.getuid()
    session = os.path.join(_SESSIONS, str(user))
    path = os.path.join(session if _is_own(session) else _SHARED, f"isobox-{user}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    # SAFETY: in a shared directory another user may have made it first.
    if not _is_own(path):
        raise PermissionError(f"{path} is not a directory of yours alone; remove it")
    return path


def _is_own(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    private = found.st_uid == os.getuid() and not found.st_mode & 0o077
    return private and stat.S_ISDIR(found.st_mode)


class Watcher:
    """Receives the events of every filter of this user, while it is open.

    Raises:
        PermissionError: The place for its socket is somebody else's.
    """

    def __init__(self) -> None:
        name = f"egress-{os.getpid()}-{secrets.token_hex(4)}.sock"
        self._path = os.path.join(directory(), name)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.bind(self._path)
        except BaseException:
            self._socket.close()
            raise

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yield events as they come; what is none is passed over."""
        while True:
            await anyio.wait_readable(self._socket)
            with contextlib.suppress(BlockingIOError):
                event = _decoded(self._socket.recv(_LARGEST))
                if event is not None:
                    yield event

    def close(self) -> None:
        """Stop to receive; safe to call again."""
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Reporter:
    """Tells whoever watches of a workspace's events.

    An event that found a watcher's queue full is lost; the next one that finds
    room says in `lost` how many were.
    """

    def __init__(self, workspace: str, vault: Vault) -> None:
        self._workspace = workspace
        self._vault = vault
        self._watchers: dict[str, _Queue] = {}
        self._looked = float("-inf")

    def __call__(self, event: Event) -> None:
        """Tell every watcher of an event, from within the event loop."""
        self._look()
        if not self._watchers:
            return
        told = {"time": time.time(), "workspace": self._workspace, **event}
        shown = self._shown(told)
        for watcher in self._watchers.values():
            watcher.put(shown)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked > _FRESH:
            self._looked = now
            known = self._watchers
            self._watchers = {p: known.get(p) or _Queue(p) for p in _watchers()}

    def _shown(self, event: Event) -> Event:
        """Return an event without the values of secrets that are known by now."""
        redactor = self._vault.known()
        return {
            name: _short(redactor.redact_text(value))
            if isinstance(value, str)
            else value
            for name, value in event.items()
        }


def reporter(workspace: str, vault: Vault) -> Callable[[Event], None]:
    """Return what tells the watchers of a workspace's events."""
    return Reporter(workspace, vault)


class _Queue:
    """What one watcher is still to be told."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._waiting: deque[bytes] = deque()
        self._lost = 0
        self._later: asyncio.TimerHandle | None = None

    def put(self, event: Event) -> None:
        if len(self._waiting) >= _MOST:
            self._lost += 1
            return
        if self._lost:
            event = {**event, "lost": self._lost}
            self._lost = 0
        self._waiting.append(json.dumps(event).encode("ascii"))
        if self._later is None:
            self._send()

    def _send(self) -> None:
        self._later = None
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                while self._waiting:
                    sender.sendto(self._waiting[0], self._path)
                    self._waiting.popleft()
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                self._later = loop.call_later(_PAUSE, self._send)
            except ConnectionRefusedError:
                # Whoever listened there was killed.
                self._waiting.clear()
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
            except OSError:
                self._waiting.clear()


def _watchers() -> list[str]:
    try:
        path = directory()
        names = os.listdir(path)
    except OSError:
        return []
    return [
        os.path.join(path, name)
        for name in names
        if name.startswith("egress-") and name.endswith(".sock")
    ]


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}[... {len(text) - _LONGEST} characters more]"


def _decoded(data: bytes) -> Event | None:
    # SAFETY: a sandbox that is shown the directory could send here as well.
    try:
        event: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return cast("Event", event) if isinstance(event, dict) else None
