"""Hosts outside: resolved once, checked, and connected to by address."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import select
import socket
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from isobox._channel.background import collapsed
from isobox._channel.sockets import SocketConnection
from isobox._core.addresses import carried
from isobox._core.hosts import address_of
from isobox._egress import hosts_file
from isobox.errors import PolicyDeniedError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._core.hosts import Address
    from isobox._egress.own_addresses import OwnAddresses
    from isobox._policy.network import Network

#: Seconds that a name may take to resolve, and an address to be connected to.
_RESOLVE: Final = 10.0
_CONNECT: Final = 10.0
#: Seconds until the next address is tried as well (RFC 8305).
_STAGGER: Final = 0.25
#: Addresses of one name that are looked at.
_MOST: Final = 16


async def reach(
    host: str,
    port: int,
    network: Network,
    resolvers: anyio.CapacityLimiter,
    own: OwnAddresses,
) -> tuple[SocketConnection, Address]:
    """Connect to a host; returns the connection and the address that it has.

    The name is resolved once, every address is checked, and the connection is
    made to one of exactly those: what the name means a moment later (DNS
    rebinding) is nothing to it.

    Args:
        host: A name or an address, in the one form.
        port: The port there.
        network: Says which addresses may be reached.
        resolvers: Lets so many names be resolved at once.
        own: Knows this machine's own addresses.

    Raises:
        PolicyDeniedError: One of its addresses may not be reached.
        UnreachableError: It has no address, or none answers.
    """
    found = await resolve(host, port, resolvers)
    check(host, found, port, network, own)
    return await _connect(host, found, port)


def check(
    host: str,
    addresses: Sequence[Address],
    port: int,
    network: Network,
    own: OwnAddresses,
) -> None:
    """Return if every address of a host may be reached.

    Raises:
        PolicyDeniedError: One of them may not be.
        UnreachableError: This machine's own addresses cannot be listed.
    """
    mine = _listed(own)
    for address in addresses:
        is_own = any(each in mine for each in carried(address))
        decision = network.reaches(host, address, port, own=is_own)
        if decision.verdict != "allow":
            raise PolicyDeniedError(
                f"{host}:{port} is denied: {decision.reason}",
                rule=decision.rule,
                reason=decision.reason,
            )


def _listed(own: OwnAddresses) -> frozenset[Address]:
    try:
        return own.now()
    except OSError as error:
        raise UnreachableError(
            f"this machine's own addresses cannot be listed: {error.strerror}"
        ) from None


async def resolve(
    host: str, port: int, resolvers: anyio.CapacityLimiter
) -> list[Address]:
    """Return the addresses of a host, in the order of preference.

    Raises:
        UnreachableError: It has none, or the resolver does not answer in 10 s.
    """
    literal = address_of(host)
    if literal is not None:
        return [literal]
    found = hosts_file.known(host) or await _asked(host, port, resolvers)
    # A mapped address is the IPv4 address; one with a zone is nobody's.
    addresses = [address_of(text) for text in dict.fromkeys(found)]
    usable = [address for address in addresses if address is not None][:_MOST]
    if not usable:
        raise UnreachableError(f"{host} has no address")
    return usable


async def _asked(
    host: str, port: int, resolvers: anyio.CapacityLimiter
) -> Sequence[str]:
    """Return the addresses of a host, as the system's resolver has them.

    Raises:
        UnreachableError: It has none, or the resolver does not answer in 10 s.
    """
    try:
        async with asyncio.timeout(_RESOLVE):
            return await anyio.to_thread.run_sync(
                _lookup, host, port, limiter=resolvers, abandon_on_cancel=True
            )
    except TimeoutError:
        raise UnreachableError(f"{host}: the resolver did not answer") from None
    except (OSError, UnicodeError) as error:
        words = error.strerror if isinstance(error, OSError) else error
        raise UnreachableError(f"{host} does not resolve: {words}") from None


def _lookup(host: str, port: int) -> list[str]:
    # The final dot: no search domain of the host's is tried. With it, glibc does
    # not find what /etc/hosts names.
    own = hosts_file.known(host)
    if own is None:
        own = hosts_file.addresses(host)
    if own:
        return own
    found = socket.getaddrinfo(f"{host}.", port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found if "%" not in str(entry[4][0])]


async def _connect(
    host: str, addresses: Sequence[Address], port: int
) -> tuple[SocketConnection, Address]:
    won: list[tuple[SocketConnection, Address]] = []
    try:
        failures = await _race(addresses, port, won)
    except BaseException:
        # Who waited has gone meanwhile.
        for connection, _ in won:
            await connection.aclose()
        raise
    if won:
        return won[0]
    reason = "; ".join(failures) or f"no answer in {_CONNECT:g} s"
    raise UnreachableError(f"cannot reach {host}:{port} ({reason})")


async def _race(
    addresses: Sequence[Address], port: int, won: list[tuple[SocketConnection, Address]]
) -> list[str]:
    """Try addresses until one has `won`; return why others failed."""
    failures: list[str] = []

    async def attempt(address: Address) -> bool:
        try:
            sock = await _opened(address, port)
        except OSError as error:
            words = os.strerror(error.errno) if error.errno else error
            failures.append(f"{address}: {words}")
            return False
        if won:
            sock.close()
        else:
            won.append((SocketConnection(sock), address))
        return True

    async def run(address: Address, failed: anyio.Event) -> None:
        if await attempt(address):
            group.cancel_scope.cancel()
        failed.set()

    if len(addresses) == 1:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CONNECT):
                await attempt(addresses[0])
        return failures
    with collapsed(), anyio.move_on_after(_CONNECT):
        async with anyio.create_task_group() as group:
            for address in addresses:
                failed = anyio.Event()
                group.start_soon(run, address, failed)
                with anyio.move_on_after(_STAGGER):
                    await failed.wait()
    return failures


async def _opened(address: Address, port: int) -> socket.socket:
    v4 = isinstance(address, ipaddress.IPv4Address)
    family = socket.AF_INET if v4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await _established(sock, (str(address), port))
    except BaseException:
        sock.close()
        raise
    return sock


async def _established(sock: socket.socket, there: tuple[str, int]) -> None:
    error = sock.connect_ex(there)
    if error == errno.EINPROGRESS:
        await _answered(sock)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


async def _answered(sock: socket.socket) -> None:
    """Return when a connection is there, or failed."""
    # What is near has answered by now, and to wait costs more than to look.
    look = select.poll()
    look.register(sock, select.POLLOUT)
    if look.poll(0):
        return
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[None] = loop.create_future()
    loop.add_writer(sock, _wake, answer)
    try:
        await answer
    finally:
        loop.remove_writer(sock)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
