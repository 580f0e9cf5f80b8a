"""How a guest becomes a daemon, and how a host reaches it: texts and messages."""

from __future__ import annotations

import functools
import importlib.util
import secrets
import sys
from typing import TYPE_CHECKING, Final

from isobox._guest import agent, bundle

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Name of the daemon's abstract UNIX socket, in its own network namespace.
NAME: Final = "isobox"

LOADER: Final = bundle.source("loader").decode()
RELAY: Final = bundle.source("relay").decode()


def loader_argv(python: str) -> list[str]:
    """Return the command that becomes a daemon, given `program` to read."""
    # What it has to say is in the container's log; a doubtful pattern is not.
    return [python, "-I", "-S", "-W", "ignore", "-c", LOADER]


def relay_argv(python: str, name: str = NAME) -> list[str]:
    """Return the command that brings its standard input and output to a daemon.

    It runs as another user than the workload.
    """
    return [python, "-I", "-S", "-c", RELAY, name]


def new_key() -> str:
    """Return a key that a daemon and its hosts share, and the workload never sees."""
    return secrets.token_hex(32)


def program(config: Mapping[str, object]) -> bytes:
    """Return all that the loader reads: the guest, and what it is told.

    Args:
        config: As a guest on standard input is told, and `key` from `new_key`,
            `linger` in seconds without any relay after which it ends with all
            that runs, `workload` the user id that commands and it itself have,
            and the `name` of its socket.
    """
    return _guest() + _part(agent.encode(dict(config)))


def greeting(key: str) -> bytes:
    """Return what a relay reads before the channel's own bytes."""
    return key.encode()


@functools.cache
def _guest() -> bytes:
    mark = importlib.util.MAGIC_NUMBER
    # What follows the mark, flags, time and size is the code.
    code = bundle.program(sys.executable)[len(mark) + len(bundle.STAMP) :]
    return b"".join(map(_part, (mark, code, bundle.source("agent"))))


def _part(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
