"""The workload's way out: what is caught of it, and who answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from typing_extensions import override

if TYPE_CHECKING:
    from isobox._core.results import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What of the workload's traffic is led to the filter on the host.

    Attributes:
        ports: TCP ports on which a connection to any address is caught, where
            the backend can; elsewhere a connection to loopback ones.
        proxy_port: The port of the loopback inside where the filter answers as
            an HTTP and SOCKS5 proxy.
    """

    ports: tuple[int, ...] = (22, 80, 443)
    proxy_port: int = 3128


class Outlet(Protocol):
    """What serves the traffic that a sandbox catches."""

    async def connected(self, connection: Connection, address: str, port: int) -> None:
        """Serve a connection to its end and close it; raises nothing.

        Args:
            connection: To the program inside that made it.
            address: The IP address that it dialled, as text.
            port: The port that it dialled.
        """

    def asked(self, query: bytes) -> bytes | None:
        """Answer a DNS message, at once; None leaves it without an answer."""


@dataclass(frozen=True, slots=True)
class Denial:
    """A connection, or a request, that did not come to pass.

    Attributes:
        host: Where it wanted to go.
        port: The port there; 53 for a question for the name.
        rule: The rule that decided, or what else did.
        reason: Why, in words for a person or a model.
        kind: `connection` and `look-up`, a question for the name, were refused;
            `unreachable` was allowed, and failed.
    """

    host: str
    port: int
    rule: str
    reason: str
    when: float = field(default=0.0, compare=False, repr=False)
    kind: Literal["connection", "look-up", "unreachable"] = "connection"

    @override
    def __str__(self) -> str:
        if self.kind == "look-up":
            return f"{self.host} (name look-up: {self.reason}; rule {self.rule!r})"
        if self.kind == "unreachable":
            return f"{self.host}:{self.port} ({self.reason})"
        return f"{self.host}:{self.port} ({self.reason}; rule {self.rule!r})"
