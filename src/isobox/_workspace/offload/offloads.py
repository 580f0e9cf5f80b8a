"""Keeps what leaves a model's context in files of the workspace."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, cast

import anyio
import anyio.to_thread

from isobox._core.ops import Remove, Scan, Write
from isobox._core.paths import reference
from isobox._workspace.offload.names import folder_of, safe
from isobox._workspace.offload.retention import Keeper
from isobox._workspace.offload.sifter import Sifter
from isobox._workspace.tools.result import DataBlock, TextBlock, ToolResult
from isobox.errors import (
    ConflictError,
    InvalidArgumentError,
    LimitError,
    PathMissingError,
    StorageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from isobox._core.results import Entry
    from isobox._workspace.base import WorkspaceBase
    from isobox._workspace.offload.retention import Retention

#: Bytes of one message besides what is set aside, and of one append.
_LONGEST: Final = 8 << 20
_AT_ONCE: Final = 4 << 20


class Offloader(Protocol):
    """Keeps what leaves a model's context; every workspace is one."""

    async def offload_context(self, session_id: str, messages: Iterable[object]) -> str:
        """Append messages to a session's context; returns a reference to it."""
        ...

    async def offload_tool_result(
        self, session_id: str, result: object, *, call_id: str | None = None
    ) -> str:
        """Keep a tool's result; returns a reference to it."""
        ...


class Offloads:
    """The offloads of one workspace, while it is open."""

    def __init__(self, workspace: WorkspaceBase, retention: Retention | None) -> None:
        self._workspace = workspace
        self._used: set[str] = set()
        self._given: set[str] = set()
        self._appending: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._keeping = anyio.Lock()
        self._keeper = (
            None
            if retention is None
            else Keeper(
                workspace._do,
                workspace.root,
                retention,
                used=self._used,
                given=self._given,
            )
        )

    def use(self, session_id: str) -> str:
        """Say that a session is in use; returns its directory."""
        folder = folder_of(session_id)
        self._used.add(folder)
        return folder

    async def context(self, session_id: str, messages: Iterable[object]) -> str:
        """See `WorkspaceBase.offload_context`."""
        path = f"{self.use(session_id)}/context.jsonl"
        sifter = Sifter(await self._workspace._redactor())
        # What is large is decoded, hashed and masked, while others go on.
        lines = await anyio.to_thread.run_sync(_lines, sifter, _listed(messages))
        await self._keep_aside(sifter, sum(map(len, lines)))
        async with self._appending[path]:
            for batch in _batches(lines):
                await self._workspace._do(
                    Write(path=self._path(path), body=batch, append=True)
                )
        return reference(path)

    async def tool_result(
        self, session_id: str, result: object, call_id: str | None
    ) -> str:
        """See `WorkspaceBase.offload_tool_result`."""
        folder = self.use(session_id)
        sifter = Sifter(await self._workspace._redactor())
        if isinstance(result, bytes) and not _is_text(result):
            found = sifter.put(result, "application/octet-stream")
            await self._keep_aside(sifter, 0)
            return found
        body = await anyio.to_thread.run_sync(_body, sifter, result)
        await self._keep_aside(sifter, len(body))
        return reference(await self._write_new(folder, call_id, body))

    async def _write_new(self, folder: str, call_id: str | None, body: bytes) -> str:
        unique = secrets.token_hex(4)
        stem = unique if call_id is None else safe("call_id", call_id)
        for name in (stem, f"{stem}-{unique}"):
            path = f"{folder}/tool_result-{name}.txt"
            try:
                await self._workspace.write(path, body, if_match="")
            except ConflictError:
                continue
            return path
        raise ConflictError(f"results of call {call_id!r} are there already")

    async def _keep_aside(self, sifter: Sifter, besides: int) -> None:
        """Write what was set aside, where it is not there yet."""
        self._given.update(sifter.aside)
        async with self._keeping:
            if self._keeper is not None:
                size = sum(map(len, sifter.aside.values()))
                await self._keeper.make_room(size + besides)
            for name, data in sifter.aside.items():
                await self._keep(f"data/{name}", name.partition(".")[0], data)

    async def _keep(self, path: str, digest: str, data: bytes) -> None:
        found = await self._found(path)
        if found is not None and found.kind == "file" and found.digest == digest:
            return
        # SAFETY: a link, a directory or a FIFO under the name is not followed.
        if found is not None and found.kind != "file":
            await self._workspace._do(Remove(path=self._path(path), recursive=True))
        await self._workspace.write(path, data)
        found = await self._found(path)
        if found is None or found.kind != "file" or found.digest != digest:
            raise StorageError(f"{path} is not what was written there", path=path)

    async def _found(self, path: str) -> Entry | None:
        look = Scan(path=self._path(path), depth=0, follow=False, digest=True)
        try:
            return (await self._workspace._do(look)).entries[0]
        except PathMissingError:
            return None

    def _path(self, path: str) -> str:
        return self._workspace._path(path)


def _listed(messages: Iterable[object]) -> Sequence[object]:
    if isinstance(messages, str | bytes | Mapping):
        raise InvalidArgumentError("give a list of messages, not one alone")
    return tuple(messages)


def _lines(sifter: Sifter, messages: Sequence[object]) -> list[bytes]:
    return [_bounded(sifter.line(message)) for message in messages]


def _body(sifter: Sifter, result: object) -> bytes:
    return "\n".join(_texts(sifter, result)).encode("utf-8", "backslashreplace")


def _bounded(line: bytes) -> bytes:
    if len(line) > _LONGEST:
        raise LimitError(
            f"one message has {len(line)} bytes besides its large parts; at most "
            f"{_LONGEST} are kept in a line"
        )
    return line


def _batches(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield whole lines together, as many as are appended at once."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        if held and size + len(line) > _AT_ONCE:
            yield b"".join(held)
            held, size = [], 0
        held.append(line)
        size += len(line)
    if held:
        yield b"".join(held)


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _texts(sifter: Sifter, result: object) -> Iterator[str]:
    """Yield the texts of a result, and a reference for what is none."""
    if isinstance(result, str):
        yield sifter.text(result)
    elif isinstance(result, bytes):
        yield sifter.text(result.decode())
    elif isinstance(result, ToolResult):
        for block in result.blocks:
            yield from _texts(sifter, block)
    elif isinstance(result, TextBlock):
        yield sifter.text(result.text)
    elif isinstance(result, DataBlock):
        yield _data(sifter.put(result.data, result.media_type), result.media_type)
    else:
        yield from _blocks(sifter, result)


def _data(url: str, media_type: str) -> str:
    return f'<data url="{url}" media_type="{media_type}"/>'


def _blocks(sifter: Sifter, result: object) -> Iterator[str]:
    """Yield the texts of a result as model providers and MCP have it."""
    if isinstance(result, Mapping):
        fields = cast("Mapping[str, object]", result)
        inner = fields.get("content", fields.get("output"))
        if isinstance(fields.get("text"), str):
            yield sifter.text(str(fields["text"]))
        elif isinstance(inner, str | list):
            yield from _texts(sifter, cast("object", inner))
        else:
            yield sifter.json(fields)
    elif isinstance(result, Sequence):
        for each in cast("Sequence[object]", result):
            yield from _texts(sifter, each)
    else:
        yield sifter.json(result)
