"""A workspace's way out: what its sandbox is given for it, and the filter."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from isobox._channel.sockets import SocketConnection
from isobox._core.network import Capture
from isobox._egress import watch
from isobox._egress.authority import Authority
from isobox._egress.filter import Filter
from isobox._egress.trust import trust
from isobox._egress.vault import Vault
from isobox.errors import InvalidArgumentError, WorkspaceClosedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from isobox._core.network import Denial
    from isobox._core.results import Connection
    from isobox._core.sandbox import Sandbox
    from isobox._core.spec import SandboxSpec
    from isobox._core.stack import Perform
    from isobox._egress.secret import Secret
    from isobox._policy.network import Network

#: Ports that are caught though no rule names them: SSH and the web.
_USUAL: Final = frozenset((22, 80, 443))
_HTTPS: Final = 443
_LOOPBACK: Final = "127.0.0.1"
#: Ports that are caught at most; every one takes two sockets.
_MOST: Final = 64


class Gate:
    """What a workspace with a network has beside its sandbox.

    Args:
        network: What may be reached.
        secrets: What is attached to requests on the way.

    Raises:
        InvalidArgumentError: The secrets contradict one another, no rule allows
            a host of theirs, none lets what is sent to any of them be read, or
            rules name too many ports.
    """

    def __init__(self, network: Network, secrets: Iterable[Secret]) -> None:
        self._network = network
        secrets = tuple(secrets)
        self.vault = Vault(secrets)
        for secret in secrets:
            _check_allowed(secret, network)
        self._authority = Authority() if _reads(network, secrets) else None
        self._capture = Capture(ports=_ports(network))
        self._filter: Filter | None = None

    def check_environment(self, env: Iterable[str]) -> None:
        """Refuse variables that would take the place of secrets.

        Raises:
            InvalidArgumentError: A secret fills one of them.
        """
        for name in sorted(self.vault.environment().keys() & set(env)):
            raise InvalidArgumentError(
                f"env: {name} is the variable of a secret, which it would hide; leave "
                "it out, or give the secret another one with env="
            )

    def spec(self, spec: SandboxSpec) -> SandboxSpec:
        """Return a spec with what programs inside need to find the way out."""
        env = {**_proxies(self._capture.proxy_port), **self.vault.environment()}
        files = spec.files
        if self._authority is not None:
            trusted = trust(
                self._authority.certificate_pem,
                java_options=_java(self._capture.proxy_port),
            )
            env |= trusted.environment
            files += trusted.files
        env |= spec.env
        return replace(spec, env=env, files=files, capture=self._capture)

    async def open(self, sandbox: Sandbox, perform: Perform, workspace: str) -> None:
        """Filter what the sandbox sends out from now on.

        Raises:
            UnsupportedError: The backend cannot be filtered.
            BackendUnavailableError: This machine cannot.
        """
        made = Filter(
            perform,
            self._network,
            vault=self.vault,
            authority=self._authority,
            proxy_port=self._capture.proxy_port,
            report=watch.reporter(workspace, self.vault),
        )
        self._filter = made
        await made.open()
        made.lead(await sandbox.capture(made))

    @property
    def proxy(self) -> str:
        """URL of the proxy that answers what `dial` returns."""
        return _proxy(self._capture.proxy_port)

    @property
    def authority(self) -> bytes | None:
        """Certificate of who signs where the filter reads TLS, in PEM."""
        return None if self._authority is None else self._authority.certificate_pem

    async def dial(self) -> Connection:
        """Connect to the proxy, as a program inside does.

        Raises:
            WorkspaceClosedError: The filter is not open.
        """
        made = self._filter
        if made is None:
            raise WorkspaceClosedError("the filter of the network is closed")
        ours, theirs = socket.socketpair()
        made.serve(SocketConnection(theirs), _LOOPBACK, self._capture.proxy_port)
        return SocketConnection(ours)

    async def aclose(self) -> None:
        """Stop; safe to call again."""
        made, self._filter = self._filter, None
        if made is not None:
            await made.aclose()

    def denials(self, since: float) -> tuple[Denial, ...]:
        """Return what was refused since a moment of `time.monotonic`."""
        return () if self._filter is None else self._filter.denials.since(since)


def now() -> float:
    """Return a moment for `Gate.denials`."""
    return time.monotonic()


def _reads(network: Network, secrets: tuple[Secret, ...]) -> bool:
    return bool(secrets) or any(rule.reads for rule in network.rules)


def _check_allowed(secret: Secret, network: Network) -> None:
    for host, port in secret.scopes:
        if not network.could_reach(host, port):
            where = host if port == _HTTPS else f"{host}:{port}"
            raise InvalidArgumentError(
                f"secret {secret.name}: no rule allows {where}; add it to `network`"
            )
    # One host is enough: to others the placeholder goes as it is.
    if not any(network.could_read(host, port) for host, port in secret.scopes):
        raise InvalidArgumentError(
            f"secret {secret.name}: the rules for its hosts have passthrough=True, "
            "where nobody reads what is sent and no secret is attached; leave out one "
            "of the two"
        )


def _ports(network: Network) -> tuple[int, ...]:
    ports = sorted(_USUAL | network.ports())
    if len(ports) > _MOST:
        raise InvalidArgumentError(
            f"network: the rules name {len(ports)} ports, of {_MOST} that can be "
            "caught; write HOST:* and let programs use the proxy"
        )
    return tuple(ports)


def _java(port: int) -> tuple[str, ...]:
    options: list[str] = []
    for scheme in ("http", "https"):
        options += [f"-D{scheme}.proxyHost=127.0.0.1", f"-D{scheme}.proxyPort={port}"]
    return (*options, "-Dhttp.nonProxyHosts=localhost|127.*|[::1]")


def _proxy(port: int) -> str:
    # An HTTP proxy for everything: clients without a SOCKS library fail at the
    # very sight of a socks:// address.
    return f"http://{_LOOPBACK}:{port}"


def _proxies(port: int) -> dict[str, str]:
    proxy = _proxy(port)
    own = "localhost,127.0.0.1,::1"
    names = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "ALL_PROXY": proxy}
    names["NO_PROXY"] = own
    lower = {name.lower(): value for name, value in names.items()}
    # Programs for the web that run as CGI take HTTP_PROXY for a header; here
    # there is no server to be fooled.
    return {**names, **lower, "NODE_USE_ENV_PROXY": "1"}
