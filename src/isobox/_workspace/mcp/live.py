"""One MCP server that runs, and the client that speaks with it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar, cast

import anyio
import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from isobox._workspace.mcp import listing, sdk_log
from isobox._workspace.mcp.listing import Listings
from isobox._workspace.mcp.log import Log
from isobox.errors import IsoboxError, McpError, McpTimedOutError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.client._transport import Transport
    from mcp.client.client import ConnectMode
    from mcp.client.session import ElicitationFnT, IncomingMessage, SamplingFnT

    from isobox._workspace.mcp.listing import Kind
    from isobox._workspace.mcp.server import McpServer

R = TypeVar("R")

#: Characters of an error that a server answers with.
_LONGEST: Final = 4000
#: Seconds that the way to a server has to be taken down once it is over.
_PARTING: Final = 5.0
#: What a server answers that knows no handshake, only newer protocols.
_NO_HANDSHAKE: Final = frozenset(
    (
        types.METHOD_NOT_FOUND,
        types.INVALID_REQUEST,
        types.INVALID_PARAMS,
        types.UNSUPPORTED_PROTOCOL_VERSION,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What a server may ask of the host; nothing unless given.

    Attributes:
        elicit: Answers questions to the user.
        sample: Asks a model on the server's behalf.
    """

    elicit: ElicitationFnT | None = None
    sample: SamplingFnT | None = None


@dataclass
class Live:
    """A server from its start to its end.

    Attributes:
        server: What it was declared as.
        log: What it said beside its answers.
        users: Calls that wait for it.
        ended: Why it is gone, once it is.
    """

    server: McpServer
    log: Log = field(default_factory=Log)
    users: int = 0
    ended: str | None = None
    _listings: Listings = field(default_factory=Listings)
    _client: Client | None = None
    _task: asyncio.Task[None] | None = None
    _given_up: bool = False
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(
        self,
        transport: Callable[[Live], Awaitable[Transport]],
        offers: Offers,
    ) -> None:
        """Start it and shake hands.

        Raises:
            McpError: It did not come up; the message has its last words.
            IsoboxError: The workspace does not let it.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(transport, offers, ready))
        try:
            await asyncio.shield(ready)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            raise

    def over(self, reason: str) -> None:
        """Note that it says nothing more; the first reason counts."""
        self.ended = self.ended or reason
        self._over.set()

    async def aclose(self) -> None:
        """End it; nothing of it runs when this returns. Safe to call again."""
        self.over("it was closed")
        if self._task is not None:
            if self._client is None and not self._given_up:
                # It would otherwise be waited for until its start is too late.
                self._given_up = True
                self._task.cancel()
            await asyncio.wait([self._task])

    async def ask(
        self,
        question: Callable[[Client], Awaitable[R]],
        *,
        timeout: float | None = None,
    ) -> R:
        """Ask it something and return its answer.

        Args:
            question: What asks it, by the official client.
            timeout: Seconds; the server's own if None.

        Raises:
            McpError: It refused, broke the protocol or died.
            McpTimedOutError: It did not answer in time; it was told to stop.
        """
        client = self._client
        if client is None or self.ended is not None:
            raise self.failure()
        seconds = self.server.timeout if timeout is None else timeout
        self.users += 1
        try:
            with sdk_log.kept_in(self.log):
                # Half the cost of anyio's, in whose scopes every wait looks around.
                async with asyncio.timeout(None if seconds == math.inf else seconds):
                    return await question(client)
        except TimeoutError:
            raise McpTimedOutError(
                f"MCP server {self.server.name} did not answer within {seconds:g} s"
            ) from None
        except (MCPError, ValidationError, ValueError, RuntimeError) as error:
            if isinstance(error, IsoboxError):
                raise
            await self._settle()
            raise self.failure(error) from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            await self._settle()
            raise self.failure() from error
        finally:
            self.users -= 1

    def failure(self, error: Exception | None = None) -> McpError:
        """Return what to raise: why it is gone, else what it answered."""
        name = self.server.name
        if self.ended is None and error is not None:
            return McpError(f"MCP server {name}: {_brief(error)}")
        words = self.log.end()
        said = f"; its last words: {words}" if words else ""
        reason = self.ended or "it is gone"
        return McpError(f"MCP server {name} has ended: {reason}{said}")

    async def _settle(self) -> None:
        """Let the end of a dying server be known before it is told of."""
        with anyio.move_on_after(0.2):
            await self._over.wait()

    async def _run(
        self,
        transport: Callable[[Live], Awaitable[Transport]],
        offers: Offers,
        ready: asyncio.Future[None],
    ) -> None:
        clock = asyncio.get_running_loop().time
        try:
            async with (
                asyncio.timeout(self.server.start_timeout) as limit,
                contextlib.AsyncExitStack() as stack,
            ):
                stack.enter_context(sdk_log.kept_in(self.log))
                client = await self._connected(transport, offers, stack)
                _believe_results(client)
                self._client = client
                limit.reschedule(None)
                if not ready.done():
                    ready.set_result(None)
                await self._over.wait()
                # SAFETY: a server over HTTP may take its end and never answer.
                limit.reschedule(clock() + _PARTING)
        except Exception as error:  # noqa: BLE001 - a server may fail in any way
            if not ready.done():
                ready.set_exception(self._not_started(error))
        finally:
            self.over("it broke off")
            if not ready.done():
                ready.set_exception(self.failure())

    async def _connected(
        self,
        transport: Callable[[Live], Awaitable[Transport]],
        offers: Offers,
        stack: contextlib.AsyncExitStack,
    ) -> Client:
        """Return a client that has shaken hands.

        With the handshake a server may ask and tell of changes, and most have it. The
        protocol of 2026-07-28 has neither handshake nor such a way back.
        """
        try:
            speaker = self._speaker(await transport(self), offers, "legacy")
            return await stack.enter_async_context(speaker)
        except (MCPError, BaseExceptionGroup) as error:
            leaf = _leaf(error)
            if not (isinstance(leaf, MCPError) and leaf.code in _NO_HANDSHAKE):
                raise
        self.ended = None
        self._over.clear()
        speaker = self._speaker(await transport(self), offers, "auto")
        return await stack.enter_async_context(speaker)

    def _speaker(
        self, transport: Transport, offers: Offers, mode: ConnectMode
    ) -> Client:
        return Client(
            transport,
            mode=mode,
            cache=None,
            client_info=types.Implementation(name="isobox", version="1"),
            elicitation_callback=offers.elicit,
            sampling_callback=offers.sample,
            logging_callback=self._logged,
            message_handler=self._noticed,
        )

    def _not_started(self, error: Exception) -> IsoboxError:
        leaf = _leaf(error)
        if isinstance(leaf, IsoboxError):
            return leaf
        name = self.server.name
        words = self.log.end()
        said = f"; its last words: {words}" if words else ""
        if isinstance(leaf, TimeoutError):
            seconds = self.server.start_timeout
            return McpTimedOutError(
                f"MCP server {name} did not start within {seconds:g} s{said}"
            )
        reason = self.ended or _brief(leaf)
        return McpError(f"MCP server {name} did not start: {reason}{said}")

    async def _logged(self, params: types.LoggingMessageNotificationParams) -> None:
        self.log.line(f"[{params.level}] {str(params.data)[:2000]}")

    async def _noticed(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._listings.changed("tools")
        elif isinstance(message, types.ResourceListChangedNotification):
            self._listings.changed("resources", "templates")
        elif isinstance(message, types.PromptListChangedNotification):
            self._listings.changed("prompts")

    # What it offers.

    async def tools(self) -> list[types.Tool]:
        """Return its tools; asked again once it says that they changed."""
        return await self._listed("tools", listing.tools)

    async def resources(self) -> list[types.Resource]:
        """Return its resources, likewise."""
        return await self._listed("resources", listing.resources)

    async def templates(self) -> list[types.ResourceTemplate]:
        """Return its templates of resources, likewise."""
        return await self._listed("templates", listing.templates)

    async def prompts(self) -> list[types.Prompt]:
        """Return its prompts, likewise."""
        return await self._listed("prompts", listing.prompts)

    async def _listed(
        self, what: Kind, fetch: Callable[[Client], Awaitable[list[R]]]
    ) -> list[R]:
        client = self._client
        if client is None or self.ended is not None:
            raise self.failure()
        capability = "resources" if what == "templates" else what
        if getattr(client.server_capabilities, capability, None) is None:
            return []
        return await self._listings.get(what, lambda: self._list(fetch))

    async def _list(self, fetch: Callable[[Client], Awaitable[list[R]]]) -> list[R]:
        seconds = min(self.server.timeout, self.server.start_timeout)
        return await self.ask(fetch, timeout=seconds)


def _believe_results(client: Client) -> None:
    """Have the client compare no result with the schema that its server gave."""

    async def believed(name: str, result: types.CallToolResult) -> None:
        del name, result

    # SAFETY: the schema is the server's too. Comparing proves nothing, and one
    # pattern of it would hold the host's only thread for ever.
    client.session.validate_tool_result = believed  # type: ignore[method-assign]


def _brief(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."


def _leaf(error: BaseException) -> BaseException:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return _leaf(group.exceptions[0])
    return error
