"""MCP over HTTP, by connections that the workspace makes."""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpcore2
import httpx2
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from typing_extensions import override

from isobox._workspace.mcp.lines import (
    LARGE,
    LONGEST,
    MOST_VALUES,
    TooFullError,
    check_values,
)
from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from mcp.client._transport import TransportStreams

    from isobox._core.results import Connection
    from isobox._workspace.mcp.server import McpServer

    #: Makes a connection to a host and port.
    Connect = Callable[[str, int], Awaitable[Connection]]

#: Seconds for a connection and for one write; a stream of events may be silent.
_USUAL = 30.0
_SILENCE = 300.0
#: Headers of one answer, whose bytes the parser bounds.
_MOST_HEADERS = 256


@contextlib.asynccontextmanager
async def requested(
    server: McpServer,
    connect: Connect,
    *,
    context: ssl.SSLContext | None,
    proxy: str | None,
) -> AsyncGenerator[TransportStreams]:
    """Speak MCP with a server over HTTP.

    Args:
        server: Where it listens, and the headers for it.
        connect: Makes every connection; nothing else leaves the host.
        context: Whom to believe over TLS; the usual authorities if None.
        proxy: URL of the proxy to ask, as a program inside would.
    """
    client = _client(server, connect, context=context, proxy=proxy)
    url = server.url or ""
    if server.transport == "sse":

        def made(*_: object, **__: object) -> httpx2.AsyncClient:
            return client

        # The client goes with the transport that it was made for.
        async with sse_client(
            url,
            timeout=_USUAL,
            sse_read_timeout=_SILENCE,
            httpx_client_factory=made,
        ) as streams:
            yield streams
        return
    async with client, streamable_http_client(url, http_client=client) as streams:
        yield streams


def _client(
    server: McpServer,
    connect: Connect,
    *,
    context: ssl.SSLContext | None,
    proxy: str | None,
) -> httpx2.AsyncClient:
    pool = httpcore2.AsyncConnectionPool(
        ssl_context=context or ssl.create_default_context(),
        proxy=None if proxy is None else httpcore2.Proxy(proxy),
        network_backend=_Backend(connect),
    )
    return httpx2.AsyncClient(
        transport=_Pooled(pool),
        headers={**server.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(_USUAL, read=_SILENCE),
        trust_env=False,
    )


class _Pooled(httpx2.AsyncBaseTransport):
    """Requests over a pool of connections of ours."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool) -> None:
        self._pool = pool

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        try:
            answer = await self._pool.handle_async_request(
                httpcore2.Request(
                    method=request.method,
                    url=httpcore2.URL(
                        scheme=url.raw_scheme,
                        host=url.raw_host,
                        port=url.port,
                        target=url.raw_path,
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        except _BROKEN as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        if len(answer.headers) > _MOST_HEADERS:
            await answer.aclose()
            reason = f"the answer has over {_MOST_HEADERS} headers"
            raise httpx2.ReadError(reason, request=request)
        headers = httpx2.Headers(answer.headers)
        # SAFETY: little that was packed is unpacked to more than there is memory.
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            await answer.aclose()
            raise httpx2.ReadError("the answer is packed", request=request)
        # The client bounds each event of a stream.
        events = headers.get("content-type", "").lower().startswith("text/event-stream")
        return httpx2.Response(
            status_code=answer.status,
            headers=headers,
            stream=_Events(answer) if events else _Message(answer),
            extensions=vars(answer)["extensions"],
        )

    @override
    async def aclose(self) -> None:
        await self._pool.aclose()


class _Events(httpx2.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._answer.aiter_stream():
                yield piece
        except _BROKEN as error:
            raise httpx2.ReadError(str(error)) from error

    @override
    async def aclose(self) -> None:
        await self._answer.aclose()


class _Message(_Events):
    """An answer that is read to its end, and would take the host's memory."""

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = bytearray()
        async for piece in super().__aiter__():
            held += piece
            if len(held) > LONGEST:
                raise httpx2.ReadError(f"it is over {LONGEST >> 20} MiB")
        yield await _checked(bytes(held))


async def _checked(text: bytes) -> bytes:
    try:
        if len(text) < LARGE:
            check_values(text)
        else:
            await anyio.to_thread.run_sync(check_values, text)
    except TooFullError:
        raise httpx2.ReadError(f"it has over {MOST_VALUES:,} values") from None
    return text


_BROKEN = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException)


class _Backend(httpcore2.AsyncNetworkBackend):
    def __init__(self, connect: Connect) -> None:
        self._connect = connect

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: object = None,
    ) -> httpcore2.AsyncNetworkStream:
        del local_address, socket_options
        try:
            with anyio.fail_after(timeout):
                made = await self._connect(host, port)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout from error
        except (IsoboxError, OSError) as error:
            raise httpcore2.ConnectError(str(error)) from error
        return _Stream(_Bytes(made))

    @override
    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class _Bytes(ByteStream):
    """A connection of the workspace, as anyio has streams."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._left = b""

    @override
    async def receive(self, max_bytes: int = 65536) -> bytes:
        data = self._left or await self._connection.receive()
        if not data:
            raise anyio.EndOfStream
        self._left = data[max_bytes:]
        return data[:max_bytes]

    @override
    async def send(self, item: bytes) -> None:
        await self._connection.send(item)

    @override
    async def send_eof(self) -> None:
        await self._connection.send_eof()

    @override
    async def aclose(self) -> None:
        with contextlib.suppress(IsoboxError, OSError):
            await self._connection.aclose()


class _Stream(httpcore2.AsyncNetworkStream):
    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    @override
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            with anyio.fail_after(timeout):
                return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except TimeoutError as error:
            raise httpcore2.ReadTimeout from error
        except _STREAM_ERRORS as error:
            raise httpcore2.ReadError(str(error)) from error

    @override
    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            with anyio.fail_after(timeout):
                if buffer:
                    await self._stream.send(buffer)
        except TimeoutError as error:
            raise httpcore2.WriteTimeout from error
        except _STREAM_ERRORS as error:
            raise httpcore2.WriteError(str(error)) from error

    @override
    async def aclose(self) -> None:
        with contextlib.suppress(*_STREAM_ERRORS):
            await self._stream.aclose()

    @override
    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                wrapped = await TLSStream.wrap(
                    self._stream,
                    hostname=server_hostname,
                    ssl_context=ssl_context,
                    standard_compatible=False,
                )
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout from error
        except (*_STREAM_ERRORS, anyio.EndOfStream) as error:
            raise httpcore2.ConnectError(str(error)) from error
        return _Stream(wrapped)

    @override
    def get_extra_info(self, info: str) -> Any:
        return None


_STREAM_ERRORS = (
    IsoboxError,
    OSError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
)
