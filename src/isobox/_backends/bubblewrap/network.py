"""How the traffic of a sandbox is led to the host.

The host makes sockets in the sandbox's network namespace, where a route makes
every address a local one: whatever a program dials, it arrives there or is
refused. No process is added, and nothing inside can take the route away.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from isobox._backends.bubblewrap import processes
from isobox._channel.trap import DNS
from isobox._linux import system
from isobox._linux.planting import PlantingError, Soil, plant
from isobox.abc import Barrier
from isobox.errors import BackendUnavailableError, InvalidArgumentError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from isobox._backends.bubblewrap.plan import Plan
    from isobox._linux.planting import Kind
    from isobox.abc import Capture, SandboxSpec

#: Of RFC 2544, for measurements between networks: no host of the world has one.
NAMES: Final = "198.18.0.0/15"

#: In the sandbox's own network.
_ALL: Final = "0.0.0.0"  # noqa: S104

#: Ports that a sandbox may have caught: each is two sockets of the host's.
_MOST: Final = 128

BARRIER: Final = Barrier(
    "strong",
    "network namespace with nothing but a loopback, where every address is caught; "
    "what leaves passes the filter on the host",
)


def check(capture: Capture | None) -> None:
    """Refuse ports that cannot be.

    Raises:
        InvalidArgumentError: One is none, or they are too many.
    """
    if capture is None:
        return
    for port in (*capture.ports, capture.proxy_port):
        if not 0 < port < 65536:
            raise InvalidArgumentError(f"capture: {port!r} is no port")
    if len(capture.ports) > _MOST:
        raise InvalidArgumentError(
            f"capture: {len(capture.ports)} ports; {_MOST} can be caught"
        )


def files(spec: SandboxSpec) -> dict[str, bytes]:
    """Return the files of `spec`, and where it is captured a resolver's address."""
    made_up = {} if spec.capture is None else system.RESOLVER
    return made_up | {file.path: file.data for file in spec.files}


def sockets(capture: Capture) -> Iterator[tuple[Kind, str, int]]:
    """Yield what is to be bound inside: kind, address and port of each."""
    ports = {DNS, *capture.ports}
    yield "udp4", _ALL, DNS
    yield "udp6", "::", DNS
    if capture.proxy_port not in ports:
        yield "tcp4", "127.0.0.1", capture.proxy_port
    for port in sorted(ports):
        yield "tcp4", _ALL, port
        yield "tcp6", "::", port


async def planted(plan: Plan, monitor: int, capture: Capture) -> list[socket.socket]:
    """Return sockets in the network namespace below process `monitor`.

    Raises:
        BackendUnavailableError: They cannot be made; it says why.
    """
    soil = Soil(
        pid=processes.child(monitor),
        parent=monitor,
        uid=plan.uid,
        gid=plan.uid if plan.root else os.getegid(),
    )
    try:
        return await anyio.to_thread.run_sync(plant, soil, sockets(capture))
    except (OSError, PlantingError) as error:
        raise BackendUnavailableError(
            f"the sandbox's network cannot be led to the filter: {error}",
            backend="bubblewrap",
        ) from error
