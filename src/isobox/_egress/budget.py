"""How much of the network, and of the host's memory, one sandbox may use."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from isobox.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._policy.network import Network


#: Hosts whose bytes are counted apart; those after them share one count.
_HOSTS: Final = 4096
#: Bytes of bodies that are held at once, to be signed.
_HELD: Final = 64 << 20


class Budget:
    """Counts connections and bytes, and refuses what is too much."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._alive = 0
        self._tokens = float(network.per_second)
        self._filled = time.monotonic()
        self._held = 0
        self._bytes_in: Counter[str] = Counter()
        self._bytes_out: Counter[str] = Counter()

    def admit(self) -> None:
        """Count a new connection; `leave` ends it.

        Raises:
            LimitError: There are too many at once, or in this second.
        """
        now = time.monotonic()
        rate = self._network.per_second
        self._tokens = min(rate, self._tokens + (now - self._filled) * rate)
        self._filled = now
        if self._alive >= self._network.connections:
            raise LimitError(
                f"{self._alive} connections are open, as many as the workspace may "
                "have (Network.connections); close some first"
            )
        if self._tokens < 1:
            raise LimitError(
                f"more than {rate} new connections in a second "
                "(Network.per_second); wait a moment"
            )
        self._tokens -= 1
        self._alive += 1

    def leave(self) -> None:
        """Count the end of a connection."""
        self._alive -= 1

    def spender(self, host: str) -> Callable[[int, int], None]:
        """Return what counts bytes from and to a host.

        What is returned raises LimitError once there were too many.
        """

        def spend(received: int, sent: int) -> None:
            key = self._key(host)
            self._bytes_in[key] += received
            self._bytes_out[key] += sent
            self.check(host)

        return spend

    def check(self, host: str) -> None:
        """Return if a host may have more bytes.

        Raises:
            LimitError: It had as many as it may.
        """
        limits, key = self._network, self._key(host)
        if limits.bytes_out is not None and self._bytes_out[key] > limits.bytes_out:
            raise LimitError(
                f"more than {limits.bytes_out} bytes to {host} (Network.bytes_out)"
            )
        if limits.bytes_in is not None and self._bytes_in[key] > limits.bytes_in:
            raise LimitError(
                f"more than {limits.bytes_in} bytes from {host} (Network.bytes_in)"
            )

    def hold(self, size: int) -> None:
        """Count bytes of a body that are held, or fewer of them.

        Raises:
            LimitError: Too many are.
        """
        if size > 0 and self._held + size > _HELD:
            raise LimitError(
                f"over {_HELD >> 20} MiB of request bodies wait to be signed; send "
                "fewer at once, or with their digest (x-amz-content-sha256)"
            )
        self._held += size

    def _key(self, host: str) -> str:
        # SAFETY: with a rule for `*.example.org` names are free; nobody gets a
        # new count for each, nor the host's memory.
        known = host in self._bytes_in or len(self._bytes_in) < _HOSTS
        return host if known else ""
