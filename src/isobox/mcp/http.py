"""MCP over HTTP, for whoever has the token."""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
from typing import TYPE_CHECKING, Any, Final

import anyio
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from typing_extensions import override

from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, MutableMapping

    from mcp.server import Server

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Scope]]
    Send = Callable[[Scope], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

PATH = "/mcp"
#: Sessions at once, each of which may have a shell and servers of its own, and
#: seconds after which one that asks nothing has ended.
_MOST_SESSIONS: Final = 64
_IDLE: Final = 1800.0


async def serve(
    server: Server[Any],
    *,
    host: str,
    port: int,
    token: str,
    ready: Callable[[int], None],
) -> None:
    """Serve until it is cancelled.

    Args:
        server: What is served.
        host: An address of the loopback.
        port: The port; 0 is any that is free.
        token: What every request has to bear.
        ready: Told the port, once it is open.

    Raises:
        InvalidArgumentError: The address is not of the loopback.
        OSError: The port is taken.
    """
    if not _is_loopback(host):
        raise InvalidArgumentError(
            f"{host} is not of the loopback; to be reached from elsewhere, put a proxy "
            "with TLS before it"
        )
    names = [f"{each}:*" for each in ("127.0.0.1", "localhost", "[::1]", in_url(host))]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=names,
        allowed_origins=[f"http://{name}" for name in names],
    )
    made = server.streamable_http_app(
        host=host,
        transport_security=security,
        max_sessions=_MOST_SESSIONS,
        session_idle_timeout=_IDLE,
    )
    app = _Guarded(made, token)
    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", access_log=False
    )
    running = _Uvicorn(config, ready)
    try:
        await running.serve()
    finally:
        with anyio.CancelScope(shield=True):
            await running.end()


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[int], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        # They are the caller's, who cancels the serving.
        yield

    @override
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready(self.servers[0].sockets[0].getsockname()[1])

    async def end(self) -> None:
        """Close the port, and end the sessions of all clients."""
        if self.started:
            for each in self.servers:
                each.close()
            await self.lifespan.shutdown()


class _Guarded:
    """Lets nobody in who does not bear the token."""

    def __init__(self, app: App, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._bears(scope):
            headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
            await send(
                {"type": "http.response.start", "status": 401, "headers": headers}
            )
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, send)

    def _bears(self, scope: Scope) -> bool:
        # SAFETY: every program of the machine reaches the loopback, a browser's
        # pages included.
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._wanted)


def in_url(host: str) -> str:
    """Return a host as a URL has it."""
    return f"[{host}]" if ":" in host else host


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
