"""Sockets in a sandbox's network namespace, from this side."""

from __future__ import annotations

import array
import contextlib
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Kind = Literal["tcp4", "tcp6", "udp4", "udp6"]

#: Seconds that it may take; it is some 20 ms.
_LONGEST: Final = 10.0

#: Imported, not run as a file, so that it is compiled once and not each time.
_BOOT: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import plant; plant.main()"
)


class PlantingError(Exception):
    """The sockets could not be made; the message says what failed."""


@dataclass(frozen=True, slots=True)
class Soil:
    """Where sockets are to be made.

    Attributes:
        pid: A process in the network namespace.
        parent: Its parent, which is our child and has not been waited for.
        uid: The host user who owns the namespace; not 0.
        gid: The user's group; not 0.
    """

    pid: int
    parent: int
    uid: int
    gid: int


def plant(
    soil: Soil, wanted: Iterable[tuple[Kind, str, int]], *, routes: bool = True
) -> list[socket.socket]:
    """Return sockets that are bound inside, in the order asked.

    Those of IPv6 are left out where the namespace has none.

    Args:
        soil: Where.
        wanted: Of each the kind, the address and the port.
        routes: Make every address there a local one.

    Raises:
        PlantingError: Not all could be made; none is left.
        OSError: No program can be started.
    """
    fields = ["user", soil.uid, soil.gid, "process", soil.pid, soil.parent]
    fields += ["routes"] if routes else []
    for each in wanted:
        fields += each
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        ours.settimeout(_LONGEST)
        with theirs:
            program = _start(list(map(str, fields)), theirs)
        try:
            return _received(ours)
        finally:
            program.kill()
            program.wait()


def _start(fields: Sequence[str], host: socket.socket) -> subprocess.Popen[bytes]:
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BOOT, here, *fields],
        stdin=host.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
    )


def _received(ours: socket.socket) -> list[socket.socket]:
    with contextlib.ExitStack() as made:
        sockets: list[socket.socket] = []
        while True:
            said, given = _message(ours)
            if given is None:
                break
            sockets.append(made.enter_context(given))
        if said != "done":
            raise PlantingError(said or "the program that makes the sockets ended")
        made.pop_all()
        return sockets


def _message(ours: socket.socket) -> tuple[str, socket.socket | None]:
    number = array.array("i", [-1])
    room = socket.CMSG_SPACE(number.itemsize)
    try:
        said, rights, _, _ = ours.recvmsg(4096, room, socket.MSG_CMSG_CLOEXEC)
    except TimeoutError as error:
        raise PlantingError(f"no answer within {_LONGEST:g} seconds") from error
    for _, _, data in rights:
        number = array.array("i", data)
        return "", socket.socket(fileno=number[0])
    return said.decode("utf-8", "replace"), None
