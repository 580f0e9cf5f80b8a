"""How much of the network one sandbox may use."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from isobox.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._policy.network import Network


class Budget:
    """Counts connections and bytes, and refuses what is too much."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._alive = 0
        self._tokens = float(network.per_second)
        self._filled = time.monotonic()
        self.bytes_in: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()

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
            self.bytes_in[host] += received
            self.bytes_out[host] += sent
            self.check(host)

        return spend

    def check(self, host: str) -> None:
        """Return if a host may have more bytes.

        Raises:
            LimitError: It had as many as it may.
        """
        limits = self._network
        if limits.bytes_out is not None and self.bytes_out[host] > limits.bytes_out:
            raise LimitError(
                f"more than {limits.bytes_out} bytes to {host} (Network.bytes_out)"
            )
        if limits.bytes_in is not None and self.bytes_in[host] > limits.bytes_in:
            raise LimitError(
                f"more than {limits.bytes_in} bytes from {host} (Network.bytes_in)"
            )
