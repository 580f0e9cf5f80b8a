"""Keeps what leaves a model's context in files of the workspace."""

from __future__ import annotations

import contextlib
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, cast

import anyio
import anyio.to_thread

from isobox._core.ops import Read, Remove, Scan, Write
from isobox._core.paths import reference
from isobox._workspace.offload.names import folder_of, safe
from isobox._workspace.offload.retention import Keeper
from isobox._workspace.offload.sifter import ANY_BYTES, DEEPEST, Model, Sifter, bytes_of
from isobox._workspace.tools.result import DataBlock, TextBlock, ToolResult
from isobox.errors import (
    ConflictError,
    InvalidArgumentError,
    LimitError,
    PathError,
    PathMissingError,
    StorageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        stem = None if call_id is None else safe("call_id", call_id)
        sifter = Sifter(await self._workspace._redactor())
        body = await anyio.to_thread.run_sync(_body, sifter, result)
        if isinstance(body, str):
            await self._keep_aside(sifter, 0)
            return body
        await self._keep_aside(sifter, len(body))
        return reference(await self._write_new(folder, stem, body))

    async def _write_new(self, folder: str, stem: str | None, body: bytes) -> str:
        unique = secrets.token_hex(4)
        stem = stem or unique
        for name in (stem, f"{stem}-{unique}"):
            path = f"{folder}/tool_result-{name}.txt"
            try:
                await self._workspace.write(path, body, if_match="")
            except ConflictError:
                continue
            return path
        raise ConflictError(f"results of call {stem!r} are there already")

    async def _keep_aside(self, sifter: Sifter, besides: int) -> None:
        """Write what was set aside, where it is not there yet."""
        self._given.update(sifter.aside)
        async with self._keeping:
            missing: list[tuple[str, bytes, Entry | None]] = []
            for name, data in sifter.aside.items():
                found = await self._found(f"data/{name}")
                if not await self._holds(found, data):
                    missing.append((f"data/{name}", data, found))
            if self._keeper is not None:
                self._use_sessions()
                size = sum(len(data) for _, data, _ in missing)
                await self._keeper.make_room(size + besides)
            for path, data, found in missing:
                await self._keep(path, data, found)

    def _use_sessions(self) -> None:
        """Say that what tools of a session have written is in use."""
        for session_id in self._workspace._sessions:
            with contextlib.suppress(InvalidArgumentError):
                self.use(session_id)

    async def _keep(self, path: str, data: bytes, found: Entry | None) -> None:
        # SAFETY: a link, a directory or a FIFO under the name is not followed.
        if found is not None and found.kind != "file":
            with contextlib.suppress(PathMissingError):
                await self._workspace._do(Remove(path=found.path, recursive=True))
        await self._workspace.write(path, data)
        if not await self._holds(await self._found(path), data):
            raise StorageError(f"{path} is not what was written there", path=path)

    async def _holds(self, found: Entry | None, data: bytes) -> bool:
        """Return whether what was found is a file that holds just these bytes."""
        if found is None or found.kind != "file" or found.size != len(data):
            return False
        # SAFETY: the sandbox may have put a file there that has no end, and makes
        # it grow: no digest of it is asked for, and no more is read than is wanted.
        look = Read(path=found.path, length=len(data) + 1)
        try:
            async with await self._workspace._do(look) as stream:
                return await stream.read() == data
        except PathError:
            return False

    async def _found(self, path: str) -> Entry | None:
        look = Scan(path=self._path(path), depth=0, follow=False)
        try:
            return (await self._workspace._do(look)).entries[0]
        except PathMissingError:
            return None

    def _path(self, path: str) -> str:
        return self._workspace._path(path)


def _listed(messages: object) -> Sequence[object]:
    if isinstance(messages, str | bytes | Mapping) or not isinstance(
        messages, Iterable
    ):
        raise InvalidArgumentError("give a list of messages, not one alone")
    return tuple(cast("Iterable[object]", messages))


def _lines(sifter: Sifter, messages: Sequence[object]) -> list[bytes]:
    return [_bounded(sifter.line(message)) for message in messages]


def _body(sifter: Sifter, result: object) -> bytes | str:
    """Return a result as text, or the reference to bytes that are none."""
    data = bytes_of(result)
    if data is not None and not _is_text(data):
        return sifter.put(data, ANY_BYTES)
    texts = _texts(sifter, result, 0)
    return "\n".join(texts).encode("utf-8", "backslashreplace")


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


def _texts(sifter: Sifter, result: object, depth: int) -> Iterator[str]:
    """Yield the texts of a result, and a reference for what is none."""
    if depth > DEEPEST:
        raise InvalidArgumentError(f"a result is over {DEEPEST} levels deep")
    if isinstance(result, str):
        yield sifter.text(result)
    elif (data := bytes_of(result)) is not None:
        yield _text_or_data(sifter, data)
    elif isinstance(result, ToolResult):
        for block in result.blocks:
            yield from _texts(sifter, block, depth + 1)
    elif isinstance(result, TextBlock):
        yield sifter.text(result.text)
    elif isinstance(result, DataBlock):
        yield _data(sifter, result.data, result.media_type)
    else:
        yield from _blocks(sifter, result, depth)


def _text_or_data(sifter: Sifter, data: bytes) -> str:
    return (
        sifter.text(data.decode()) if _is_text(data) else _data(sifter, data, ANY_BYTES)
    )


def _data(sifter: Sifter, data: bytes, media_type: str) -> str:
    kind = sifter.kind(media_type)
    return f'<data url="{sifter.put(data, kind)}" media_type="{kind}"/>'


def _blocks(sifter: Sifter, result: object, depth: int) -> Iterator[str]:
    """Yield the texts of a result as model providers and MCP have it."""
    if isinstance(result, Mapping):
        fields = cast("Mapping[str, object]", result)
        inner = fields.get("content", fields.get("output"))
        if isinstance(fields.get("text"), str):
            yield sifter.text(str(fields["text"]))
        elif isinstance(inner, str | list):
            yield from _texts(sifter, cast("object", inner), depth + 1)
        else:
            yield sifter.json(fields)
    elif isinstance(result, Sequence):
        for each in cast("Sequence[object]", result):
            yield from _texts(sifter, each, depth + 1)
    elif isinstance(result, Model):
        yield from _texts(sifter, result.model_dump(mode="json"), depth + 1)
    else:
        yield sifter.json(result)
