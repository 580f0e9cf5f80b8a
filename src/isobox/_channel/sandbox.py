"""A sandbox whose every operation goes over one channel to its guest."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import tempfile
import time
from typing import TYPE_CHECKING, NoReturn, cast

import anyio
from typing_extensions import override

from isobox._channel import attach, relay, unpack
from isobox._channel.body import Dialled, opened, opening, settled
from isobox._channel.process import GuestProcess, as_it_is
from isobox._channel.sparse import SparseWriter
from isobox._channel.trap import Trap
from isobox._core.file_types import globs_of
from isobox._core.ops import Place, Pull, Push, Spawn
from isobox._core.results import (
    PATH_ERRORS,
    Edited,
    Listing,
    Matches,
    SnapshotRef,
)
from isobox._core.sandbox import Sandbox
from isobox._core.stack import CallerError
from isobox._guest import agent
from isobox.errors import (
    InvalidArgumentError,
    IsoboxError,
    ProtocolError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence

    from isobox._channel.channel import Channel
    from isobox._channel.stream import Fields, Stream
    from isobox._core import ops
    from isobox._core.capabilities import Capability
    from isobox._core.isolation import Isolation
    from isobox._core.network import Capture, Outlet
    from isobox._core.patch import FileChange
    from isobox._core.results import (
        ByteStream,
        Connection,
        Entry,
        Exit,
        Listener,
        Page,
        Patched,
        Process,
        ProcessInfo,
    )

#: Paths that are looked up at once; the answer fits a frame, whatever it says.
_ASKED = 32
#: Bytes of the answer to a patch, and of a file in it beside the path.
_LARGEST_ANSWER = 250_000
_ENTRY = 80
#: The longest script that is sent in one frame.
_LONGEST_SCRIPT = 8 << 20
_LIMITS = frozenset(
    ("as", "core", "cpu", "data", "fsize", "nofile", "nproc", "stack", "memlock")
)


class ChannelSandbox(Sandbox):
    """Does every operation by its guest.

    A backend makes the channel, says what it isolates, and releases what it
    made in `_release`.
    """

    channel: Channel

    def __init__(
        self,
        channel: Channel,
        *,
        backend: str,
        root: str,
        capabilities: frozenset[Capability],
        isolation: Isolation,
        caught: Capture | None = None,
    ) -> None:
        self.backend = backend
        self.root = root
        self.capabilities = capabilities
        self.channel = channel
        channel.backend = backend
        self._isolation = isolation
        self._snapshots = contextlib.ExitStack()
        self._store: str | None = None
        self._caught = caught
        self._trap: Trap | None = None
        self._closed = False

    @property
    @override
    def lost(self) -> bool:
        return self.channel.failure is not None

    @override
    async def answers(self) -> bool:
        return await self.channel.ping()

    def _begin(self, name: str, op: ops.Op[object], **fields: object) -> Stream:
        """Begin an operation in the guest; it goes where `op.places` says, or fails."""
        if op.places:
            fields["places"] = [
                [_bytes(place.path), place.follow, _bytes(place.real)]
                for place in op.places
            ]
        return self.channel.open(name, **fields)

    @override
    async def places(self, asked: Sequence[tuple[str, bool]], /) -> tuple[Place, ...]:
        found: list[Place] = []
        for at in range(0, len(asked), _ASKED):
            some = asked[at : at + _ASKED]
            paths = [[_bytes(path), follow] for path, follow in some]
            stream = self.channel.open("places", paths=paths)
            async with settled(stream, op="places", path=some[0][0]):
                real = unpack.paths((await stream.answer()).get("real"), len(some))
            found += [Place(*each, to) for each, to in zip(some, real, strict=True)]
        return tuple(found)

    # Commands.

    @override
    async def spawn(self, op: ops.Spawn, /) -> Process:
        self._supported(op)
        # Another host may attach by it, so it is not the channel's number.
        name = secrets.token_hex(8)
        stream = self._begin(
            "spawn",
            op,
            id=name,
            argv=[_bytes(part) for part in op.argv],
            script=None if op.script is None else _bytes(op.script),
            cwd=_bytes(op.cwd),
            env={
                name: None if value is None else _bytes(value)
                for name, value in op.env.items()
            },
            stdin=op.stdin,
            tty=None if op.tty is None else [op.tty.columns, op.tty.rows],
            timeout=None if op.timeout is None else float(op.timeout),
            idle_timeout=None if op.idle_timeout is None else float(op.idle_timeout),
            capture=op.capture,
            spool=None if op.spool is None else _bytes(op.spool),
            limits=dict(op.limits),
            report=op.report,
            meter=op.meter,
        )
        process = GuestProcess(stream, op, name)
        process.explain = self._explainer(op)
        if op.capture is None:
            try:
                await process.started()
            except BaseException:
                await process.aclose()
                raise
        return process

    def _explainer(self, op: ops.Spawn) -> Callable[[Exit], Exit]:  # noqa: ARG002
        """Return what adds to an end of `op` what the backend knows of it."""
        return as_it_is

    def _supported(self, op: ops.Spawn) -> None:
        if op.user is not None:
            raise UnsupportedError(
                f"{self.backend} runs commands as one user; leave `user` out"
            )
        if op.tty is not None and "tty" not in self.capabilities:
            raise UnsupportedError(f"{self.backend} has no terminals here")
        if op.tty is not None and not all(
            0 < size < 1 << 16 for size in (op.tty.columns, op.tty.rows)
        ):
            raise InvalidArgumentError(f"{op.tty} is no terminal's size")
        if unknown := op.limits.keys() - _LIMITS:
            raise InvalidArgumentError(
                f"unknown limits: {', '.join(sorted(unknown))}; there are "
                f"{', '.join(sorted(_LIMITS))}"
            )
        if op.script is not None and len(_bytes(op.script)) > _LONGEST_SCRIPT:
            raise InvalidArgumentError(
                "the script is longer than 8 MiB; write it to a file and run that"
            )

    @override
    async def attach(self, op: ops.Attach, /) -> Process:
        if "reattach" not in self.capabilities:
            return await super().attach(op)
        explain = self._explainer(Spawn(cwd=self.root))
        return await attach.attached(self.channel, op, explain=explain)

    @override
    async def running(self, op: ops.Running, /) -> tuple[ProcessInfo, ...]:
        if "reattach" not in self.capabilities:
            return await super().running(op)
        return await attach.running(self.channel)

    # Files.

    @override
    async def read(self, op: ops.Read, /) -> ByteStream:
        stream = self._begin(
            "read", op, path=_bytes(op.path), offset=op.offset, length=op.length
        )
        return await opened(stream, op="read", path=op.path, most=op.length)

    @override
    async def read_lines(self, op: ops.ReadLines, /) -> Page:
        stream = self._begin(
            "read_lines",
            op,
            path=_bytes(op.path),
            start=op.start,
            count=op.count,
            width=op.width,
        )
        stream.inbox(agent.BODY)
        async with settled(stream, op="read_lines", path=op.path):
            data = await self._gathered(stream)
            fields = await stream.answer()
            return unpack.page(fields, data, _entry(fields, op.path), most=op.count)

    @override
    async def write(self, op: ops.Write, /) -> Entry:
        small = isinstance(op.body, bytes) and len(op.body) <= agent.PIECE
        stream = self._begin(
            "write",
            op,
            path=_bytes(op.path),
            body=op.body if small else None,
            mode=op.mode,
            mtime_ns=op.mtime_ns,
            if_match=op.if_match,
            parents=op.parents,
            append=op.append,
        )
        async with settled(stream, op="write", path=op.path):
            if not small:
                await _send(stream, op.body)
            return _entry(await stream.answer(), op.path)

    @override
    async def edit(self, op: ops.Edit, /) -> Edited:
        pieces = [[piece.old, piece.new, piece.every] for piece in op.replacements]
        stream = self._begin(
            "edit",
            op,
            path=_bytes(op.path),
            pieces=pieces,
            text=op.text,
            if_match=op.if_match,
        )
        stream.inbox(agent.BODY)
        async with settled(stream, op="edit", path=op.path):
            fields = await stream.answer()
            count = fields.get("count")
            if not isinstance(count, int):
                raise ProtocolError("the guest did not say what it replaced")
            diff, line = unpack.difference(fields, op.path)
            return Edited(_entry(fields, op.path), count, diff, line)

    @override
    async def patch(self, op: ops.Patch, /) -> Patched:
        _check_answer(op)
        changes = [_change(change) for change in op.changes]
        stream = self._begin("patch", op, changes=changes)
        stream.inbox(agent.BODY)
        path = op.changes[0].path if op.changes else self.root
        async with settled(stream, op="patch", path=path):
            return unpack.patched(await stream.answer(), op.changes)

    @override
    async def scan(self, op: ops.Scan, /) -> Listing:
        stream = self._begin(
            "scan",
            op,
            path=_bytes(op.path),
            depth=op.depth,
            limit=op.limit,
            offset=op.offset,
            pattern=op.pattern,
            follow=op.follow,
            digest=op.digest,
            ignored=op.ignored,
            files_only=op.files_only,
            newest=op.newest,
        )
        entries: list[Entry] = []
        stream.inbox(agent.BODY)
        async with settled(stream, op="scan", path=op.path):
            while piece := await stream.receive(agent.BODY):
                entries.extend(unpack.entries(piece, op.path))
                # SAFETY: the limit bounds what a lying guest can make us keep.
                if len(entries) > max(op.limit, 1):
                    self._broken("the guest described more than was asked")
            fields = await stream.answer()
        if op.depth == 0 and len(entries) != 1:
            self._broken("the guest described more or less than one path")
        if not op.newest:
            entries.sort(key=_path)
        total = fields.get("total")
        return Listing(
            tuple(entries),
            fields.get("truncated") is True,
            total if isinstance(total, int) else None,
        )

    @override
    async def search(self, op: ops.Search, /) -> Matches:
        stream = self._begin(
            "search",
            op,
            path=_bytes(op.path),
            pattern=op.pattern,
            literal=op.literal,
            ignore_case=op.ignore_case,
            mode=op.mode,
            multiline=op.multiline,
            glob=op.glob,
            types=list(globs_of(op.types)) if op.types else None,
            ignored=op.ignored,
            hidden=op.hidden,
            before=op.before,
            after=op.after,
            limit=op.limit,
            offset=op.offset,
            timeout=float(op.timeout),
        )
        stream.inbox(agent.BODY)
        async with settled(stream, op="search", path=op.path):
            data = await self._gathered(stream)
            fields = await stream.answer()
            late = fields.get("late") is True
            # SAFETY: a Match takes more room than its bytes; keep no more of them.
            every = unpack.matches(data, op.path, cut=late, mode=op.mode)
            found = tuple(itertools.islice(every, op.limit))
        files = fields.get("files")
        return Matches(
            found,
            files if isinstance(files, int) else 0,
            late or fields.get("truncated") is True,
            _some_paths(fields.get("skipped")),
            late,
            _some_paths(fields.get("partial")),
        )

    async def _gathered(self, stream: Stream) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while piece := await stream.receive(agent.BODY):
            pieces.append(piece)
            size += len(piece)
            if size > _LARGEST_FOUND:
                self._broken("the guest found more than can be")
        return b"".join(pieces)

    @override
    async def remove(self, op: ops.Remove, /) -> None:
        stream = self._begin("remove", op, path=_bytes(op.path), recursive=op.recursive)
        stream.inbox(agent.BODY)
        async with settled(stream, op="remove", path=op.path):
            await stream.answer()

    @override
    async def pull(self, op: ops.Pull, /) -> ByteStream:
        stream = self._begin("pull", op, path=_bytes(op.path))
        return await opened(stream, op="pull", path=op.path)

    @override
    async def push(self, op: ops.Push, /) -> int:
        return await self._push(op, clear=False)

    async def _push(self, op: ops.Push, *, clear: bool) -> int:
        stream = self._begin(
            "push", op, path=_bytes(op.path), clear=clear, whole=op.whole
        )
        stream.inbox(agent.BODY)
        async with settled(stream, op="push", path=op.path):
            await _send(stream, op.body)
            fields = await stream.answer()
        count = fields.get("count")
        return count if isinstance(count, int) else 0

    # The network inside.

    @override
    async def dial(self, op: ops.Dial, /) -> Connection:
        if "dial" not in self.capabilities:
            raise UnsupportedError(f"{self.backend} reaches no ports inside here")
        stream = self.channel.open("dial", host=op.host, port=op.port)
        stream.inbox(agent.BODY)
        connected = asyncio.Event()
        stream.on_event = lambda _: connected.set()
        stream.on_answer(lambda _, __: connected.set())
        where = f"{op.host}:{op.port}"
        async with opening(stream, op="dial", path=where):
            await connected.wait()
            stream.raise_failure()
        return Dialled(stream, op="dial", path=where)

    @override
    async def listen(self, op: ops.Listen, /) -> Listener:
        if "listen" not in self.capabilities:
            return await super().listen(op)
        return await relay.listen(self.channel, port=op.port)

    @override
    async def capture(self, outlet: Outlet, /) -> str:
        if "capture" not in self.capabilities or self._caught is None:
            return await super().capture(outlet)
        self.channel.check()
        if self._trap is not None:
            raise InvalidArgumentError("this sandbox is led to an outlet already")
        self._trap = Trap(outlet)
        try:
            network = await self._lead(self._trap, self._caught)
            self.channel.check()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._untrap()
            raise
        return network

    async def _lead(self, trap: Trap, capture: Capture) -> str:
        """Lead what `capture` names to `trap`; returns the network that is caught."""
        await trap.open()
        return await relay.lead(self.channel, trap, capture)

    async def _untrap(self) -> None:
        trap, self._trap = self._trap, None
        if trap is not None:
            await trap.aclose()

    # State.

    @override
    async def snapshot(self, op: ops.Snapshot, /) -> SnapshotRef:
        if self._store is None:
            self._store = self._storage()
        name = secrets.token_hex(8)
        path = os.path.join(self._store, name)
        try:
            async with await self.pull(Pull(path=self.root)) as stream:
                with open(path, "xb", buffering=0) as file:
                    archive = SparseWriter(file.fileno())
                    async for piece in stream:
                        archive.write(piece)
                    archive.finish()
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            raise
        return SnapshotRef(name, os.stat(path).st_size, time.time())

    def _storage(self) -> str:
        """Make a directory that goes when `_snapshots` closes."""
        return self._snapshots.enter_context(
            tempfile.TemporaryDirectory(prefix="isobox-snapshots-")
        )

    @override
    async def restore(self, op: ops.Restore, /) -> None:
        self.channel.check()
        name = op.snapshot.id
        known = self._store is not None and name in os.listdir(self._store)
        if self._store is None or not known:
            raise InvalidArgumentError(f"this workspace has no snapshot {name!r}")
        body = _file(os.path.join(self._store, name))
        await self._push(Push(path=self.root, body=body), clear=True)

    # Life.

    @override
    def isolation(self) -> Isolation:
        return self._isolation

    @override
    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            try:
                await self.channel.aclose()
                await self._untrap()
            finally:
                self._snapshots.close()
                await self._release()

    async def _release(self) -> None:
        """Release what the backend made for it."""

    def _broken(self, message: str) -> NoReturn:
        """End a channel whose guest lies.

        Raises:
            ProtocolError: Always.
        """
        self.channel.fail(ProtocolError(message))
        raise ProtocolError(message)


#: Bytes of matches: lines are clipped in the guest and counted by the limit.
_LARGEST_FOUND = 64 << 20


async def _send(stream: Stream, body: ops.Body) -> None:
    if isinstance(body, bytes):
        await stream.send(agent.BODY, body)
    else:
        async for piece in _of_caller(body):
            await stream.send(agent.BODY, piece)
            if stream.answered:
                return
    stream.end(agent.BODY)


async def _of_caller(body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield what a caller's iterator does, and set its errors apart.

    Raises:
        CallerError: It raised what is not ours.
    """
    try:
        async for piece in body:
            yield piece
    except IsoboxError:
        raise
    except Exception as error:
        raise CallerError(error) from error


async def _file(path: str) -> AsyncIterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(agent.PIECE):
            yield piece


def _entry(fields: Fields, path: str) -> Entry:
    packed = fields.get("entry")
    if not isinstance(packed, bytes):
        raise ProtocolError("the guest did not describe what it wrote")
    found = list(unpack.entries(packed, path))
    if len(found) != 1:
        raise ProtocolError("the guest described more or less than one path")
    return found[0]


def _check_answer(op: ops.Patch) -> None:
    """Refuse a patch whose answer, which names each file, would fit no frame."""
    paths = (path for each in op.changes for path in (each.path, each.target) if path)
    if sum(len(_bytes(path)) + _ENTRY for path in paths) > _LARGEST_ANSWER:
        raise InvalidArgumentError(
            "the patch names too many files, by too long paths; send it in parts"
        )


def _change(change: FileChange) -> Fields:
    return {
        "path": _bytes(change.path),
        "target": None if change.target is None else _bytes(change.target),
        "kind": change.kind,
        "mode": change.mode,
        "hunks": [
            {
                "body": "\n".join(hunk.body),
                "line": hunk.line,
                "anchors": list(hunk.anchors),
                "at_end": hunk.at_end,
                "newline": hunk.newline,
            }
            for hunk in change.hunks
        ],
    }


def _some_paths(told: object) -> tuple[str, ...]:
    listed = cast("list[object]", told) if isinstance(told, list) else []
    return tuple(
        item.decode("utf-8", PATH_ERRORS) for item in listed if isinstance(item, bytes)
    )


def _path(entry: Entry) -> str:
    return entry.path


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", PATH_ERRORS)
    except UnicodeEncodeError:
        raise InvalidArgumentError(
            f"{text[:200]!a} holds half a surrogate pair, which no name or argument can"
        ) from None
