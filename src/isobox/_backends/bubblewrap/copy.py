"""A private view of a directory: what changes stays apart until it is applied.

The kernel's overlay file system costs nothing until something is written, and
is taken where it may be mounted. Elsewhere the directory is copied: by reflinks,
which share the blocks, where the file system has them; else byte by byte.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from isobox._backends.bubblewrap import difftext
from isobox._backends.bubblewrap.apply import admissible, apply, compare_with_shown
from isobox._backends.bubblewrap.changes import Items, Private, compare, stamp
from isobox._core import paths
from isobox._linux import trees
from isobox._linux.launching import Overlay
from isobox._linux.overlay import STAGE, UPPER, WORK, Layer, refusal
from isobox._workdir import sweep
from isobox._workdir.state import beneath
from isobox.errors import ArchiveError, SandboxLostError, StorageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from isobox._backends.bubblewrap.plan import Plan
    from isobox._core import ops
    from isobox._core.isolation import Isolation
    from isobox._core.results import Changes

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_MOUNTS: Final = "there are no namespaces to mount it in"
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PrivateView:
    """The private view of one sandbox, and what the host does with it.

    Attributes:
        mechanism: What it is made by, and why by nothing better.
        layer: A descriptor of what it holds by itself, for measuring.
    """

    def __init__(self, plan: Plan) -> None:
        path = sweep.temporary(plan.held, parent=_place(plan.workdir))
        # The view is gone by now, but what is left may be of any depth.
        plan.held.callback(_emptied, path)
        state = _opened(plan, path)
        for name in (UPPER, WORK, STAGE):
            os.mkdir(name, 0o700, dir_fd=state)
        self._owners = _Owners(plan)
        self._lock = anyio.Lock()
        self._closed = False
        self.layer = _held(plan, os.open(UPPER, _DIRECTORY, dir_fd=state))
        host = _held(plan, trees.directory(plan.workdir, ""))
        lower = Layer(plan.workdir, state, path, plan.uid, tuple(plan.idmaps))
        self._refusal = _NO_MOUNTS if plan.rung == "landlock" else refusal(lower)
        self._private = Private(
            view=self.layer,
            host=host,
            layered=self._refusal is None,
            base={},
            copied={},
            protect=plan.spec.protect,
            unprotected=plan.spec.unprotected,
            remembered=beneath(os.readlink(f"/proc/self/fd/{plan.workdir}")),
        )
        self.mechanism = "overlayfs"
        if self._refusal is None:
            self._owners.give(self.layer, os.fstat(host))
            plan.overlays.append(Overlay(plan.workdir, state))
            plan.stage = lower.stage
        else:
            _show_copy(plan, path, state)
        self._root = plan.inside

    async def fill(self) -> None:
        """Note what the directory is, and copy it where it must be copied.

        Raises:
            StorageError: It cannot be copied.
        """
        await anyio.to_thread.run_sync(self._fill)

    def _fill(self) -> None:
        private = self._private
        if self._refusal is None:
            found = trees.walk(private.host)
            private.base.update((path, stamp(entry)) for path, entry in found)
            return
        copying = _Copying(private, self._owners)
        try:
            copying.run()
        except OSError as error:
            raise StorageError(
                f"the workspace's directory cannot be copied: {error.strerror}",
                code=error.errno or 0,
            ) from error
        kind = "reflinks" if copying.reflink and copying.files else "a copy"
        self.mechanism = f"{kind}, without overlayfs ({self._refusal})"

    async def close(self) -> None:
        """Wait until nothing uses the view, and let nothing use it any more."""
        async with self._lock:
            self._closed = True

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None]:
        async with self._lock:
            # The descriptors may stand for something else by now.
            if self._closed:
                raise SandboxLostError("the workspace was closed")
            yield

    async def diff(self, op: ops.Diff) -> Changes:
        """Return what the view has that the directory has not."""
        chosen = self._chosen(op.paths)
        async with self._turn():
            return await anyio.to_thread.run_sync(self._diff, chosen, op.digest)

    def _diff(self, chosen: list[str] | None, digest: bool) -> Changes:
        items = compare(self._private, chosen)
        return difftext.described(self._private, items, digest=digest)

    def _chosen(self, given: tuple[str, ...] | None) -> list[str] | None:
        return None if given is None else [*map(self._relative, given)]

    async def apply(self, op: ops.Apply) -> Changes:
        """Bring changes to the directory and return them.

        Raises:
            ArchiveError: A change may not come, or there are too many.
            ConflictError: The directory has changed at such a path.
            InvalidArgumentError: A path is empty.
            PathOutsideError: A path is not below the root.
            StorageError: The directory cannot be written; nothing was changed.
        """
        chosen = self._chosen(op.paths)
        async with self._turn():
            return await anyio.to_thread.run_sync(self._apply, op, chosen)

    def _apply(self, op: ops.Apply, chosen: list[str] | None) -> Changes:
        items = compare(self._private, chosen)
        if items.truncated:
            raise ArchiveError(
                f"apply: there are more than {len(items.found)} changes; bring some "
                "of them with paths=..."
            )
        left = admissible(items.found, skip_refused=op.skip_refused)
        # What differs can only be shown while it does.
        changes = difftext.described(self._private, Items(left))
        if op.shown is not None:
            compare_with_shown(changes.changes, op.shown)
        apply(self._private, left, op.shown)
        return changes

    def _relative(self, path: str) -> str:
        absolute = paths.resolve(path, root=self._root, confined=True)
        return absolute[len(self._root) :].lstrip("/")


def noted(isolation: Isolation, private: PrivateView | None) -> Isolation:
    """Return what holds a sandbox, with how its view is made."""
    if private is None:
        return isolation
    held = isolation.file_system
    mechanism = f"{held.mechanism}; a private view of the directory by "
    barrier = replace(held, mechanism=mechanism + private.mechanism)
    return replace(isolation, file_system=barrier)


def _place(workdir: int) -> str | None:
    """Return where views are kept: on the directory's own disk, if that can be.

    Another disk has no reflinks, and may be memory.
    """
    device = os.fstat(workdir).st_dev
    home = os.environ.get("XDG_STATE_HOME")
    if not home or os.stat(tempfile.gettempdir()).st_dev == device:
        return None
    place = os.path.join(home, "isobox")
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        found = os.stat(place)
    except OSError:
        return None
    private = found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return place if private and found.st_dev == device else None


def _emptied(path: str) -> None:
    parent = os.open(os.path.dirname(path), _DIRECTORY)
    try:
        trees.remove(parent, os.path.basename(path))
    finally:
        os.close(parent)


def _opened(plan: Plan, path: str) -> int:
    fd = os.open(path, _DIRECTORY)
    plan.shown.descriptors.append(fd)
    return fd


def _held(plan: Plan, fd: int) -> int:
    plan.held.callback(os.close, fd)
    return fd


def _show_copy(plan: Plan, path: str, state: int) -> None:
    """Let the copy take the directory's place in what the sandbox sees."""
    if plan.rung == "landlock":
        plan.inside = os.path.join(path, UPPER)
    plan.workdir = os.open(UPPER, os.O_PATH | os.O_DIRECTORY, dir_fd=state)
    plan.shown.descriptors.append(plan.workdir)
    plan.idmaps.clear()
    if plan.root:
        os.fchown(state, plan.uid, plan.uid)
        plan.shown.trees.append(plan.workdir)


class _Owners:
    """Who owns what in the view: the sandbox, what its directory's owner had."""

    def __init__(self, plan: Plan) -> None:
        found = os.fstat(plan.workdir)
        self._uid, self._gid = found.st_uid, found.st_gid
        self._user = plan.uid if plan.root else None

    def give(self, fd: int, like: os.stat_result) -> None:
        """Give something of ours the owner, mode and time that it should have."""
        if self._user is not None:
            os.fchown(fd, *self._mapped(like, self._user))
        kept = 0o1777 if stat.S_ISDIR(like.st_mode) else 0o777
        os.fchmod(fd, like.st_mode & kept)
        os.utime(fd, ns=(like.st_atime_ns, like.st_mtime_ns))

    def give_link(self, folder: int, name: str, like: os.stat_result) -> None:
        """Do so for a link or a FIFO."""
        times = (like.st_atime_ns, like.st_mtime_ns)
        os.utime(name, ns=times, dir_fd=folder, follow_symlinks=False)
        if self._user is not None:
            uid, gid = self._mapped(like, self._user)
            os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)

    def _mapped(self, like: os.stat_result, user: int) -> tuple[int, int]:
        # What is somebody else's stays so: nobody's, as the sandbox sees it.
        return (
            user if like.st_uid == self._uid else like.st_uid,
            user if like.st_gid == self._gid else like.st_gid,
        )


class _Copying:
    """Copies a directory, and notes what both sides are.

    Sockets and devices are left out, and so is what we may not read.
    """

    def __init__(self, private: Private, owners: _Owners) -> None:
        self.files = 0
        self.reflink = True
        self._private = private
        self._owners = owners
        self._copied: dict[str, int] = {}
        self._folders: list[tuple[str, os.stat_result]] = []

    def run(self) -> None:
        """Copy everything; the view is closed to the sandbox until then."""
        self._folders.append(("", os.fstat(self._private.host)))
        # It grows while we go through it.
        for path, _ in self._folders:
            with contextlib.suppress(PermissionError):
                self._folder(path)
        for path, found in reversed(self._folders):
            self._finish(path, found)
        self._private.copied = self._copied

    def _folder(self, path: str) -> None:
        source = trees.directory(self._private.host, path)
        try:
            target = trees.directory(self._private.view, path)
            try:
                for name, found in trees.entries(source).items():
                    self._entry(path, name, found, source, target)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _entry(
        self, folder: str, name: str, found: os.stat_result, source: int, target: int
    ) -> None:
        path = trees.join(folder, name)
        kind = trees.kind_of(found.st_mode)
        if kind == "directory":
            os.mkdir(name, 0o700, dir_fd=target)
            self._folders.append((path, found))
        elif kind == "symlink":
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            self._owners.give_link(target, name, found)
        elif kind == "fifo":
            os.mkfifo(name, found.st_mode & 0o777, dir_fd=target)
            self._owners.give_link(target, name, found)
        elif kind != "file" or not self._file(name, found, source, target):
            return
        self._note(path, found, os.stat(name, dir_fd=target, follow_symlinks=False))

    def _file(self, name: str, found: os.stat_result, source: int, target: int) -> bool:
        try:
            old = trees.regular(source, name)
        except PermissionError:
            return False
        try:
            new = os.open(name, _CREATE, 0o600, dir_fd=target)
            try:
                self.reflink = trees.copy_content(old, new, reflink=self.reflink)
                self._owners.give(new, found)
            finally:
                os.close(new)
        finally:
            os.close(old)
        self.files += 1
        return True

    def _finish(self, path: str, found: os.stat_result) -> None:
        fd = trees.directory(self._private.view, path)
        try:
            self._owners.give(fd, found)
            if path:
                self._note(path, found, os.fstat(fd))
        finally:
            os.close(fd)

    def _note(self, path: str, found: os.stat_result, copied: os.stat_result) -> None:
        self._private.base[path] = stamp(found)
        self._copied[path] = stamp(copied)
