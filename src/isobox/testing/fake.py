"""A backend in memory that keeps the contract: for tests without a machine.

It has files with modes, links, times and FIFOs, and a handful of programs
(`echo`, `cat`, `sleep`, `yes`, ...). It has no shell, no terminal and no
network, and says so.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

import anyio
from typing_extensions import override

from isobox._core.paths import within
from isobox._guest import agent
from isobox._workspace.base import WorkspaceBase
from isobox.abc import (
    Availability,
    Barrier,
    Edited,
    Isolation,
    Listing,
    Matches,
    Provider,
    Sandbox,
    SnapshotRef,
)
from isobox.errors import (
    ConflictError,
    InvalidArgumentError,
    PathAccessError,
    PathExistsError,
    PathIsDirectoryError,
    PathMissingError,
    PathNotDirectoryError,
    SandboxLostError,
    UnsupportedError,
)
from isobox.testing._archive import packed, unpacked
from isobox.testing._patterns import glob_pattern
from isobox.testing._pipes import Content
from isobox.testing._process import MemoryProcess
from isobox.testing._programs import PROGRAMS, Call
from isobox.testing._texts import (
    below,
    edited,
    matches_of,
    of_types,
    page_of,
    patched,
    refusals,
    searched,
)
from isobox.testing._tree import (
    Node,
    Tree,
    encoded,
    entry,
    require_file,
    require_readable,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping

    from isobox import abc
    from isobox._core.capabilities import Capability
    from isobox._core.ops import Body
    from isobox.testing._pipes import Output, Pipe

__all__ = ["MemoryProvider", "MemorySandbox", "MemoryWorkspace"]

_ARGUMENT_MAX = 128 * 1024
_ENV = {"PATH": "/usr/bin:/bin", "HOME": "/home/user", "LANG": "C.UTF-8"}
_DIRECTORIES = ("/workspace", "/tmp", "/dev", "/bin", "/usr/bin", "/home/user")  # noqa: S108 - directories of the fake
_DEVICES = ("/dev/null", "/dev/zero")
_CAPABILITIES: frozenset[Capability] = frozenset({"snapshot", "kill_tree"})


class MemorySandbox(Sandbox):
    """Files and commands in memory.

    Attributes:
        tree: Its files, for tests that prepare or inspect them.
    """

    backend = "memory"
    process_kind: ClassVar[type[MemoryProcess]] = MemoryProcess

    def __init__(self, spec: abc.SandboxSpec) -> None:
        self.root = "/workspace"
        self.capabilities = _CAPABILITIES
        self.tree = self._files()
        self._env = {**_ENV, **spec.env}
        self._processes: list[MemoryProcess] = []
        self._started = 0
        self._snapshots: dict[str, Node] = {}
        self._calls: set[anyio.CancelScope] = set()
        self._lost = False

    def _files(self) -> Tree:
        """Return what there is at the beginning."""
        return furnished()

    # -- commands -----------------------------------------------------------

    @override
    async def spawn(self, op: abc.Spawn, /) -> abc.Process:
        async with self._call():
            _check_spawn(op)
            self._check_directory(op.cwd)
            self._started += 1
            process = self.process_kind(
                op, self._started, self._main(op), self._spooler(op.spool)
            )
            self._processes = [p for p in self._processes if not p.ended]
            self._processes.append(process)
            return process

    def _main(
        self, op: abc.Spawn
    ) -> Callable[[Pipe, Output, Output], Coroutine[object, object, int]]:
        env = _merged(self._env, op.env)

        async def main(stdin: Pipe, stdout: Output, stderr: Output) -> int:
            argv = self._resolved(op.argv, op.cwd)
            if isinstance(argv, int):
                await stderr.put(encoded(f"{op.argv[0]}: cannot be run\n"))
                return argv
            call = Call(
                name=argv[0],
                args=argv[1:],
                env=env,
                cwd=op.cwd,
                tree=self.tree,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                running=self._lines,
            )
            return await PROGRAMS[argv[0]](call)

        return main

    def _resolved(self, argv: tuple[str, ...], cwd: str) -> list[str] | int:
        """Return the program's name and arguments, or 126, or 127."""
        name = argv[0].removeprefix("/usr/bin/").removeprefix("/bin/")
        if "/" not in name:
            return [name, *argv[1:]] if name in PROGRAMS else 127
        try:
            node = self.tree.node(argv[0] if argv[0][0] == "/" else f"{cwd}/{argv[0]}")
        except (PathMissingError, PathNotDirectoryError):
            return 127
        first = node.data.partition(b"\n")[0].decode("utf-8", "replace")
        if node.kind != "file" or not node.mode & 0o111 or first[:2] != "#!":
            return 126
        interpreter, _, extra = first[2:].strip().partition(" ")
        passed = [extra] if extra else []
        return self._resolved((interpreter, *passed, argv[0], *argv[1:]), cwd)

    def _spooler(self, path: str | None) -> Callable[[bytes], None]:
        if path is None:
            return lambda _: None
        self.tree.make_directories(path.rsplit("/", 1)[0], confine=self.root)
        place = self.tree.place(path, confine=self.root)
        self.tree.put(place.path, node := Node("file"))

        def keep(data: bytes) -> None:
            node.data += data

        return keep

    def _check_directory(self, path: str) -> None:
        if self.tree.node(path, confine=self.root).kind != "directory":
            raise PathNotDirectoryError(f"{path} is not a directory", path=path)

    def _lines(self) -> list[str]:
        return [process.line for process in self._processes if not process.ended]

    # -- files --------------------------------------------------------------

    @override
    async def read(self, op: abc.Read, /) -> abc.ByteStream:
        async with self._call():
            node = self.tree.file(op.path, confine=self.root)
            require_readable(node, op.path)
            end = None if op.length is None else op.offset + op.length
            return Content(node.data[op.offset : end], self._require)

    @override
    async def read_lines(self, op: abc.ReadLines, /) -> abc.Page:
        async with self._call():
            node = self.tree.file(op.path, confine=self.root)
            require_readable(node, op.path)
            return page_of(op, node.data, entry(op.path, node, digest=True))

    @override
    async def write(self, op: abc.Write, /) -> abc.Entry:
        async with self._call():
            self._check_target(op.path, parents=op.parents)
            data = await _gathered(op.body)
            if op.append:
                return self._append(op, data)
            # From here on nothing waits: readers see the old or the new.
            if op.parents:
                above = op.path.rsplit("/", 1)[0]
                self.tree.make_directories(above, confine=self.root)
            place = self.tree.place(op.path, confine=self.root)
            self._check_target(op.path, parents=True)
            _check_match(place.node, op.if_match, op.path)
            mode = op.mode
            if mode is None:
                mode = place.node.mode if place.node else 0o644
            node = Node("file", mode, data)
            node.mtime_ns = op.mtime_ns or node.mtime_ns
            self.tree.put(place.path, node)
            return entry(place.path, node, digest=True)

    def _append(self, op: abc.Write, data: bytes) -> abc.Entry:
        if len(data) > agent.LARGEST_APPEND:
            raise InvalidArgumentError("more than 16 MiB to append at once")
        if op.parents:
            above = op.path.rsplit("/", 1)[0]
            self.tree.make_directories(above, confine=self.root)
        place = self.tree.place(op.path, follow=False, confine=self.root)
        node = place.node or Node("file", op.mode or 0o644)
        require_file(node, op.path)
        if len(node.data) - node.data.rfind(b"\n") > agent.LARGEST_APPEND:
            raise InvalidArgumentError("the file to append to is not of lines")
        whole = node.data[: node.data.rfind(b"\n") + 1]
        self.tree.put(place.path, new := Node("file", node.mode, whole + data))
        return entry(place.path, new)

    def _check_target(self, path: str, *, parents: bool) -> None:
        try:
            place = self.tree.place(path, confine=self.root)
        except PathMissingError:
            if parents:
                return
            raise
        if place.node is not None:
            require_file(place.node, path)
        elif not self.tree.parent(place.path).mode & 0o200:
            raise PathAccessError(f"{path} may not be written", path=path)

    @override
    async def edit(self, op: abc.Edit, /) -> abc.Edited:
        async with self._call():
            place = self.tree.place(op.path, confine=self.root)
            node = self.tree.file(op.path, confine=self.root)
            _check_match(node, op.if_match, op.path)
            data, count, difference = edited(op, node.data)
            self.tree.put(place.path, new := Node("file", node.mode, data))
            return Edited(entry(place.path, new, digest=True), count, *difference)

    @override
    async def patch(self, op: abc.Patch, /) -> abc.Patched:
        async with self._call():
            return patched(self.tree, op, self.root)

    @override
    async def scan(self, op: abc.Scan, /) -> abc.Listing:
        async with self._call():
            node = self.tree.node(op.path, follow=op.follow, confine=self.root)
            if op.depth == 0:
                return Listing((entry(op.path, node, digest=op.digest),))
            if node.kind != "directory":
                raise PathNotDirectoryError(
                    f"{op.path} is not a directory", path=op.path
                )
            found = [
                entry(path, child, digest=op.digest)
                for path, child in below(self.tree, op, self.root)
                if _named(path, op.path, op.pattern)
                and (child.kind in ("file", "symlink") or not op.files_only)
            ]
            if op.newest:
                found.sort(key=lambda each: -each.mtime_ns)
            last = op.offset + op.limit
            return Listing(
                tuple(found[op.offset : last]), len(found) > last, len(found)
            )

    @override
    async def search(self, op: abc.Search, /) -> abc.Matches:
        async with self._call():
            node = self.tree.node(op.path, confine=self.root)
            deadline = time.monotonic() + op.timeout
            skipped: list[str] = []
            files, cut, late = 0, False, False
            with refusals("search", op.path):
                search, found = searched(op)
            for path, child in self._searched(op, node):
                try:
                    require_readable(child, path)
                except PathAccessError:
                    skipped.append(path)
                    continue
                files += 1
                text = agent.text_to_search(child.data)
                cut = text is not None and not search.look(encoded(path), text)
                late = time.monotonic() > deadline
                if cut or late:
                    break
            every = matches_of(op, found)
            return Matches(every, files, cut or late, tuple(skipped), late)

    def _searched(self, op: abc.Search, node: Node) -> Iterator[tuple[str, Node]]:
        if node.kind != "directory":
            require_file(node, op.path)
            yield op.path, node
            return
        for path, child in below(self.tree, op, self.root):
            name = path.rsplit("/", 1)[-1]
            wanted = _named(path, op.path, op.glob) and of_types(op, name)
            if child.kind == "file" and wanted:
                yield path, child

    @override
    async def remove(self, op: abc.Remove, /) -> None:
        async with self._call():
            if within(self.root, op.path):
                raise InvalidArgumentError(f"{op.path} is or holds the workspace")
            place = self.tree.place(op.path, follow=False, confine=self.root)
            if place.node is None:
                raise PathMissingError(f"{op.path} does not exist", path=op.path)
            if place.node.kind == "directory" and not op.recursive:
                raise PathIsDirectoryError(f"{op.path} is a directory", path=op.path)
            self.tree.drop(place.path)

    @override
    async def pull(self, op: abc.Pull, /) -> abc.ByteStream:
        async with self._call():
            node = self.tree.node(op.path, confine=self.root)
            return Content(packed(self.tree, op.path, node), self._require)

    @override
    async def push(self, op: abc.Push, /) -> int:
        async with self._call():
            data = await _gathered(op.body)
            if op.whole is not None:
                return self._push_whole(op, data)
            self.tree.make_directories(op.path, confine=self.root)
            place = self.tree.place(op.path, confine=self.root)
            return unpacked(self.tree, place.path, data)

    def _push_whole(self, op: abc.Push, data: bytes) -> int:
        above, name = op.path.rsplit("/", 1)
        self.tree.make_directories(above, confine=self.root)
        place = self.tree.place(op.path, follow=False, confine=self.root)
        if place.node is not None and op.whole == "new":
            raise PathExistsError(f"{op.path} exists", path=op.path)
        made = Tree()
        made.make_directories(f"/{name}")
        count = unpacked(made, f"/{name}", data)
        self.tree.put(place.path, made.node(f"/{name}"))
        return count

    # -- network, state, facts ------------------------------------------------

    @override
    async def dial(self, op: abc.Dial, /) -> abc.Connection:
        del op
        async with self._call():
            raise UnsupportedError("the memory sandbox has no network")

    @override
    async def snapshot(self, op: abc.Snapshot, /) -> abc.SnapshotRef:
        del op
        async with self._call():
            name = f"snapshot-{len(self._snapshots) + 1}"
            saved = self._snapshots[name] = self.tree.copy_of(self.root)
            size = sum(node.size for _, node in self.tree.below(self.root, saved))
            return SnapshotRef(name, size, time.time())

    @override
    async def restore(self, op: abc.Restore, /) -> None:
        async with self._call():
            saved = self._snapshots.get(op.snapshot.id)
            if saved is None:
                raise InvalidArgumentError(f"no snapshot {op.snapshot.id!r}")
            copies = Tree()
            copies.top = saved
            self.tree.put(self.root, copies.copy_of("/"))

    @override
    def isolation(self) -> abc.Isolation:
        held = Barrier("strong", "commands are functions over data in memory")
        none = Barrier("none", "shares the test's process")
        return Isolation(
            backend=self.backend,
            process=none,
            file_system=held,
            user_identity=none,
            network=held,
            system_calls=held,
            resources=none,
            secrets=held,
            tenant=none,
        )

    @override
    async def aclose(self) -> None:
        self._lost = True
        for process in self._processes:
            await process.aclose()

    def crash(self) -> None:
        """Be gone at once, as a sandbox that was killed from outside."""
        self._lost = True
        for scope in self._calls:
            scope.cancel()
        for process in self._processes:
            process.lose()

    @property
    @override
    def lost(self) -> bool:
        return self._lost

    def _require(self) -> None:
        if self._lost:
            raise SandboxLostError("the sandbox is gone")

    @asynccontextmanager
    async def _call(self) -> AsyncGenerator[None]:
        self._require()
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                await anyio.lowlevel.checkpoint()
                yield
            finally:
                self._calls.discard(scope)
        if scope.cancelled_caught:
            self._require()


class MemoryProvider(Provider):
    """Makes memory sandboxes, of a subclass if one is given."""

    name = "memory"

    def __init__(self, kind: type[MemorySandbox] = MemorySandbox) -> None:
        self._kind = kind

    @override
    async def probe(self) -> abc.Availability:
        return Availability(backend=self.name, ok=True, reason="needs nothing")

    @override
    async def create(self, spec: abc.SandboxSpec, /) -> abc.Sandbox:
        if spec.workdir is not None:
            raise InvalidArgumentError("the memory backend takes no workdir")
        if spec.capture is not None:
            raise UnsupportedError("the memory backend has no network to filter")
        return self._kind(spec)


class MemoryWorkspace(WorkspaceBase):
    """A workspace in memory; `kind` in a subclass names another sandbox."""

    backend: ClassVar[str] = "memory"
    kind: ClassVar[type[MemorySandbox]] = MemorySandbox

    @override
    def _provider(self) -> Provider:
        return MemoryProvider(self.kind)


def furnished() -> Tree:
    """Return the files that a sandbox begins with."""
    tree = Tree()
    for path in _DIRECTORIES:
        tree.make_directories(path)
    for path in _DEVICES:
        tree.make(path, "device")
    return tree


def _merged(
    env: Mapping[str, str], changes: Mapping[str, str | None]
) -> dict[str, str]:
    merged = {**env, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _check_spawn(op: abc.Spawn) -> None:
    if op.script is not None:
        raise UnsupportedError("the memory sandbox has no shell; give an argv")
    if op.tty is not None:
        raise UnsupportedError("the memory sandbox has no terminals")
    if op.user is not None:
        raise UnsupportedError("the memory sandbox has no users")
    if op.limits:
        raise UnsupportedError("the memory sandbox has no resource limits")
    if any(len(encoded(part)) >= _ARGUMENT_MAX for part in op.argv):
        raise InvalidArgumentError(
            f"one argument is over {_ARGUMENT_MAX} bytes; pass it by stdin or a file"
        )


def _check_match(node: Node | None, if_match: str | None, path: str) -> None:
    if if_match is None:
        return
    digest = hashlib.sha256(node.data).hexdigest() if node else ""
    if digest != if_match:
        raise ConflictError(f"{path} is not the file that was named", path=path)


def _named(path: str, above: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    relative = path.removeprefix(above).lstrip("/")
    return glob_pattern(pattern).fullmatch(relative) is not None


async def _gathered(body: Body) -> bytes:
    if isinstance(body, bytes):
        return body
    return b"".join([piece async for piece in body])
