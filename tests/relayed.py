"""Bubblewrap as a backend whose traffic the guest relays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from typing_extensions import override

from isobox import BubblewrapWorkspace
from isobox._backends.bubblewrap import processes
from isobox._backends.bubblewrap.provider import BubblewrapProvider, BubblewrapSandbox
from isobox._channel.sandbox import ChannelSandbox
from isobox._linux import plant

#: What Docker does for its containers.
UNPRIVILEGED = """
import sys
sys.path.insert(0, sys.argv[1])
import plant
uid, gid, pid, parent = map(int, sys.argv[2:])
plant.become(uid, gid)
plant.enter(pid, parent)
with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w") as file:
    file.write("0")
"""


class Relayed(BubblewrapSandbox):
    """Only the filter's own port can be had inside."""

    @override
    async def _lead(self, trap, capture):
        return await ChannelSandbox._lead(self, trap, capture)


class RelayedFully(Relayed):
    """Every port can be had inside, as in a container."""

    @override
    async def _lead(self, trap, capture):
        plan, monitor = self._plan, self._child.pid
        ids = (plan.uid, plan.uid, processes.child(monitor), monitor)
        folder = str(Path(plant.__file__).parent)
        subprocess.run(
            [sys.executable, "-c", UNPRIVILEGED, folder, *map(str, ids)], check=True
        )
        return await super()._lead(trap, capture)


class RelayedWorkspace(BubblewrapWorkspace):
    """A workspace over such a sandbox."""

    kind: type[BubblewrapSandbox] = Relayed

    @override
    def _provider(self):
        return BubblewrapProvider(self.kind)


class FullyRelayedWorkspace(RelayedWorkspace):
    kind = RelayedFully
