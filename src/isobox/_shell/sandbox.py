"""A sandbox whose every operation is done by a shell inside."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import secrets
import tempfile
import time
from typing import TYPE_CHECKING, Final, Self

import anyio
from typing_extensions import override

from isobox._channel import unpack
from isobox._channel.deadline import deadline
from isobox._channel.sparse import SparseWriter
from isobox._core.ops import Pull
from isobox._core.paths import within
from isobox._core.results import Edited, Listing, SnapshotRef, Usage
from isobox._core.sandbox import Sandbox
from isobox._guest import agent
from isobox._shell import answers, appends, archives, dialled, kit, launch, texts, trees
from isobox._shell.answers import refused
from isobox._shell.aside import Asides
from isobox._shell.bodies import pieces_of
from isobox._shell.drafts import Counted, Draft, drafting
from isobox._shell.exec import MARK, PIECE
from isobox._shell.listing import described, scanned
from isobox._shell.operators import SILENCE, Operators
from isobox._shell.patches import LARGEST, Patching
from isobox._shell.process import ShellProcess
from isobox._shell.quote import filled, loading
from isobox._shell.readings import content, opened
from isobox._shell.sought import Hunt
from isobox.errors import (
    ConflictError,
    InvalidArgumentError,
    ProtocolError,
    SandboxLostError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from isobox._core import ops
    from isobox._core.capabilities import Capability
    from isobox._core.isolation import Isolation
    from isobox._core.results import (
        ByteStream,
        Connection,
        Entry,
        Matches,
        Page,
        Patched,
        Process,
    )
    from isobox._shell.exec import Exec, Running

_LONGEST_SCRIPT: Final = 8 << 20
#: How often an edit begins anew because the file changed meanwhile.
_ATTEMPTS: Final = 5
_FOLDER: Final = re.compile(rb"/[A-Za-z0-9._/-]{1,200}")
_NOT_REMOVED: Final = "the workspace itself is not removed"
_REMOVE: Final = """\
( p=<path>; r=<root>
if [ ! -e "$p" ] && [ ! -L "$p" ]; then
  m=$(stat -- "$p" 2>&1 >/dev/null); no error "${m##*: }"; fi
real "${p%/*}/"; t=${t%/}/${p##*/}
case $r/ in "$t"/*) no root;; esac
if [ -d "$p" ] && [ ! -L "$p" ]; then
  [ <recursive> = 1 ] || no is_directory
  rm -rf -- "$p" 2>/dev/null || {
    find "$p" -type d -exec chmod u+rwx {} \\; 2>/dev/null
    m=$(rm -rf -- "$p" 2>&1) || { m=${m%%
*}; no error "${m##*: }"; }; }
else m=$(rm -f -- "$p" 2>&1) || no error "${m##*: }"; fi
echo ok )"""
_SPOOL: Final = """\
p=<path>; mkdir -p -- "${p%/*}/" && cat >"$p" && printf ok"""
_USAGE: Final = """\
du -sk -- <root> 2>/dev/null | cut -f 1
ls -d /proc/[0-9]* | wc -l"""


class ShellSandbox(Sandbox):
    """Does every operation by shells that an engine runs inside.

    A backend gives the engine, says what it isolates, and releases what it made
    in `_release`.
    """

    def __init__(
        self,
        exec_: Exec,
        *,
        backend: str,
        root: str,
        env: Mapping[str, str],
        capabilities: frozenset[Capability],
        isolation: Isolation,
        limits: Mapping[str, int] | None = None,
        release: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.backend = backend
        self.root = root
        self.capabilities = capabilities
        self._exec = exec_
        self._env = dict(env)
        self._limits = dict(limits or {})
        self._isolation = isolation
        self._releasing = release
        self._operators = Operators(exec_, self._kill_marked)
        self._kit = kit.LEAST
        self._processes: set[ShellProcess] = set()
        self._numbers = itertools.count(1)
        self._publishing = asyncio.Lock()
        self._asides = Asides()
        self._snapshots = contextlib.ExitStack()
        self._store: str | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        exec_: Exec,
        *,
        backend: str,
        root: str,
        env: Mapping[str, str],
        capabilities: frozenset[Capability],
        isolation: Isolation,
        limits: Mapping[str, int] | None = None,
        release: Callable[[], Awaitable[None]] | None = None,
    ) -> Self:
        """Look at what is inside, and return a sandbox that is ready.

        Args:
            exec_: The engine.
            backend: Name of the kind.
            root: Absolute path inside of the workspace's directory.
            env: Variables of every command, besides those that an exec has.
            capabilities: What the engine and its container give.
            isolation: What holds the workload.
            limits: Limits of every command, by setrlimit's names.
            release: Awaited once when it closes.

        Raises:
            BackendUnavailableError: There is too little inside.
            SandboxLostError: The engine runs nothing there.
        """
        made = cls(
            exec_,
            backend=backend,
            root=root,
            env=env,
            capabilities=capabilities,
            isolation=isolation,
            limits=limits,
            release=release,
        )
        try:
            async with made._operators.one() as operator:
                made._kit = await kit.found(operator, backend=backend)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await made.aclose()
            raise
        given: set[Capability] = {"kill_tree", "snapshot", "rlimits"}
        if made._kit.nc:
            given.add("dial")
        made.capabilities = capabilities | given
        return made

    # Commands.

    @override
    async def spawn(self, op: ops.Spawn, /) -> Process:
        self._supported(op)
        launch.check_arguments(op)
        self._check()
        plan = launch.Launch(
            op=op,
            env=self._env,
            limits=self._limits,
            mark=f"{MARK}={secrets.token_hex(8)}",
            nonce=launch.fresh_nonce(),
        )
        spool = None if op.spool is None else await self._spooling(op.spool)
        try:
            running = await self._launched(plan)
        except BaseException:
            if spool is not None:
                await spool.aclose()
            raise
        process = ShellProcess(
            plan,
            running,
            self,
            number=next(self._numbers),
            witness=self._kit.witness,
            spool=spool,
        )
        self._processes.add(process)
        process.on_end(lambda _: self._processes.discard(process))
        try:
            await process.started()
        except BaseException:
            await process.aclose()
            raise
        return process

    async def _launched(self, plan: launch.Launch) -> Running:
        if plan.op.tty is not None:
            return await self._on_terminal(plan)
        outer, inner = plan.programs(self._kit)
        running = await self._exec.start(loading(outer), tty=None)
        return await _fed(running, outer + inner)

    async def _on_terminal(self, plan: launch.Launch) -> Running:
        async with self._operators.one() as operator:
            answer = await operator.ask(b"( umask 077; mktemp -d )")
            folder = answer.rstrip(b"\n")
            # SAFETY: it becomes an argument of the engine's.
            if not _FOLDER.fullmatch(folder):
                raise ProtocolError("the shell inside makes no directory")
            programs = plan.programs(self._kit, folder)
            for name, data in zip((b"outer", b"inner"), programs, strict=True):
                place = folder + b"/" + name
                await Draft(operator, "spawn", self.root, b"", place, b"").add(data)
        argv = ["sh", "-c", '. "$1"', "sh", f"{folder.decode()}/outer"]
        return await self._exec.start(argv, tty=plan.op.tty)

    async def _spooling(self, path: str) -> Running:
        program = filled(_SPOOL, path=path)
        running = await self._exec.start(loading(program), tty=None)
        return await _fed(running, program)

    def _supported(self, op: ops.Spawn) -> None:
        if op.user is not None:
            raise UnsupportedError(
                f"{self.backend} runs commands as one user; leave `user` out"
            )
        if op.tty is not None and "tty" not in self.capabilities:
            raise UnsupportedError(f"{self.backend} has no terminals here")
        if unknown := op.limits.keys() - launch.LIMITS.keys():
            raise InvalidArgumentError(
                f"unknown limits: {', '.join(sorted(unknown))}; there are "
                f"{', '.join(sorted(launch.LIMITS))}"
            )
        if op.script is not None and len(op.script) > _LONGEST_SCRIPT:
            raise InvalidArgumentError(
                "the script is longer than 8 MiB; write it to a file and run that"
            )

    async def kill(self, mark: str, pid: int) -> None:
        """Kill who bears a mark, or descends from a process."""
        async with self._operators.one(spare=True, last=True) as operator:
            await trees.kill(operator, mark, pid)

    async def _kill_marked(self, mark: str) -> None:
        await self.kill(mark, 0)

    async def strike(self, mark: str, pid: int, number: int) -> None:
        """Send a signal to a process group."""
        async with self._operators.one(spare=True, last=True) as operator:
            await trees.strike(operator, mark, pid, number)

    async def alive(self) -> None:
        """Raise SandboxLostError if the sandbox is not."""
        async with self._operators.one(spare=True, last=True) as operator:
            await operator.ask(b":")

    # Files.

    @override
    async def read(self, op: ops.Read, /) -> ByteStream:
        self._check()
        reading, _ = await opened(
            self._operators, op.path, offset=op.offset, length=op.length, op="read"
        )
        return reading

    @override
    async def read_lines(self, op: ops.ReadLines, /) -> Page:
        self._check()
        return await texts.page(self._operators, op)

    @override
    async def write(self, op: ops.Write, /) -> Entry:
        self._check()
        if op.append:
            async with self._publishing:
                return await appends.append(self._operators, op)
        async with (
            self._operators.one() as operator,
            drafting(
                self._operators, operator, op.path, op="write", parents=op.parents
            ) as draft,
        ):
            counted = Counted()
            async for piece in pieces_of(op.body):
                counted.add(piece)
                await draft.add(piece)
            await draft.seal(counted.digest, mode=op.mode, mtime_ns=op.mtime_ns)
            async with self._publishing:
                return await draft.publish(op.if_match)

    @override
    async def edit(self, op: ops.Edit, /) -> Edited:
        self._check()
        for attempt in itertools.count(1):
            try:
                return await self._edited(op)
            except ConflictError:
                if op.if_match is not None or attempt == _ATTEMPTS:
                    raise
        raise AssertionError

    async def _edited(self, op: ops.Edit) -> Edited:
        before = Counted()
        pieces: list[bytes] = []
        async for piece in content(self._operators, op.path, op="edit", most=LARGEST):
            before.add(piece)
            pieces.append(piece)
        if op.if_match is not None and before.digest != op.if_match.lower():
            raise refused("conflict", op.path, "the content is another", op="edit")
        asked = [[piece.old, piece.new, piece.every] for piece in op.replacements]
        try:
            data, told = agent.edited(b"".join(pieces), asked, op.text)
        except agent.Refused as no:
            raise refused(no.code, op.path, no.message, op="edit") from None
        after = Counted()
        after.add(data)
        async with (
            self._operators.one() as operator,
            drafting(
                self._operators, operator, op.path, op="edit", parents=False
            ) as draft,
        ):
            await draft.add(data)
            await draft.seal(after.digest, mode=None, mtime_ns=None)
            async with self._publishing:
                entry = await draft.publish(before.digest)
        return Edited(entry, told["count"], *unpack.difference(told, op.path))

    @override
    async def patch(self, op: ops.Patch, /) -> Patched:
        self._check()
        async with self._publishing, self._operators.one() as operator:
            return await Patching(self._operators, operator, op).perform()

    @override
    async def scan(self, op: ops.Scan, /) -> Listing:
        self._check()
        async with self._operators.one() as operator:
            if op.depth == 0:
                return Listing((await described(operator, op),), total=1)
            return await scanned(operator, self._asides, op, self.root)

    @override
    async def search(self, op: ops.Search, /) -> Matches:
        self._check()
        async with self._operators.one() as operator:
            return await Hunt(operator, self._asides, op, self.root).matches()

    @override
    async def remove(self, op: ops.Remove, /) -> None:
        self._check()
        if within(self.root, op.path):
            raise refused("invalid", op.path, _NOT_REMOVED, op="remove")
        code = filled(
            _REMOVE, path=op.path, root=self.root, recursive=int(op.recursive)
        )
        async with self._operators.one() as operator:
            answer = await operator.ask(code)
        if answer == b"no root\n":
            raise refused("invalid", op.path, _NOT_REMOVED, op="remove")
        answers.check(answer, op="remove", path=op.path)

    @override
    async def pull(self, op: ops.Pull, /) -> ByteStream:
        self._check()
        return await archives.packed(self._operators, op.path)

    @override
    async def push(self, op: ops.Push, /) -> int:
        self._check()
        if op.whole is None:
            return await self._push(op.path, op.body, clear=False)
        return await self._push_whole(op)

    async def _push(self, path: str, body: ops.Body, *, clear: bool) -> int:
        async with self._operators.one() as operator:
            incoming = await archives.prepared(operator, path, clear=clear)
            return await archives.unpacked(operator, path, incoming, pieces_of(body))

    async def _push_whole(self, op: ops.Push) -> int:
        draft = archives.beside(op.path)
        replace = op.whole == "replace"
        try:
            async with self._operators.one() as operator:
                answer = await operator.ask(
                    archives.opening(op.path, draft, replace=replace)
                )
                answers.check(answer, op="push", path=op.path)
            count = await self._push(draft, op.body, clear=False)
            async with self._publishing, self._operators.one() as operator:
                answer = await operator.ask(
                    archives.placing(op.path, draft, replace=replace)
                )
                answers.check(answer, op="push", path=op.path)
        except BaseException:
            with anyio.CancelScope(shield=True), contextlib.suppress(SandboxLostError):
                async with self._operators.one(spare=True) as operator:
                    await operator.ask(filled("rm -rf -- <path>", path=draft))
            raise
        return count

    # The network inside.

    @override
    async def dial(self, op: ops.Dial, /) -> Connection:
        self._check()
        if "dial" not in self.capabilities:
            raise UnsupportedError(f"{self.backend} reaches no ports inside here")
        return await dialled.dial(self._exec, self._operators, op)

    # State.

    @override
    async def snapshot(self, op: ops.Snapshot, /) -> SnapshotRef:
        self._check()
        if self._store is None:
            self._store = self._snapshots.enter_context(
                tempfile.TemporaryDirectory(prefix="isobox-snapshots-")
            )
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

    @override
    async def restore(self, op: ops.Restore, /) -> None:
        self._check()
        await self.alive()
        name = op.snapshot.id
        known = self._store is not None and name in os.listdir(self._store)
        if self._store is None or not known:
            raise InvalidArgumentError(f"this workspace has no snapshot {name!r}")
        body = _file(os.path.join(self._store, name))
        await self._push(self.root, body, clear=True)

    @override
    async def usage(self) -> Usage:
        self._check()
        async with self._operators.one() as operator:
            told = (await operator.ask(filled(_USAGE, root=self.root))).split()
        if len(told) != 2 or not all(each.isdigit() for each in told):
            return Usage()
        return Usage(disk=int(told[0][:15]) * 1024, processes=int(told[1][:9]))

    # Life.

    @property
    @override
    def lost(self) -> bool:
        return self._closed

    @override
    async def answers(self) -> bool:
        with contextlib.suppress(SandboxLostError):
            async with self._operators.one() as operator:
                return bool(await operator.ask(b"printf ok"))
        return False

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
                for process in list(self._processes):
                    await process.lose()
                await self._operators.aclose()
                await self._asides.aclose()
            finally:
                self._snapshots.close()
                await self._release()

    async def _release(self) -> None:
        """Release what the backend made for it."""
        if self._releasing is not None:
            await self._releasing()

    def _check(self) -> None:
        if self._closed:
            raise SandboxLostError("the sandbox is closed", backend=self.backend)


async def _fed(running: Running, program: bytes) -> Running:
    """Give a shell what it loads."""
    try:
        async with deadline(SILENCE):
            await running.send(program)
    except (BrokenPipeError, TimeoutError):
        await running.aclose()
        raise SandboxLostError("the shell inside takes no program") from None
    except BaseException:
        await running.aclose()
        raise
    return running


async def _file(path: str) -> AsyncIterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            yield piece
