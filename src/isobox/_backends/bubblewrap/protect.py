"""Names that commands must not write, in a directory that they work on live.

A mount over a name keeps it: it can be neither written nor renamed nor removed.
Renaming a directory above it would undo that, so each of these is a mount too.
A name that is absent needs something to mount on: an empty directory stands in
for it while sandboxes live, which no version control sees and which `rmdir`
removes without a risk. A symlink cannot be mounted on; it is compared with what
it was when the sandbox ends, and put back.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from isobox import _workdir
from isobox._backends.bubblewrap import view
from isobox._core.paths import within
from isobox._core.protected import ABSENT, ANYWHERE, IN_ROOT, SKIPPED
from isobox._linux.syscalls import (
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    openat2,
)
from isobox.errors import InvalidArgumentError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from isobox._backends.bubblewrap.plan import Plan

_MOST_NAMES: Final = 300
_MOST_DIRECTORIES: Final = 50_000
_CONFINED: Final = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS


@dataclass(frozen=True, slots=True)
class Survey:
    """The protected names of a directory, as paths relative to it.

    Attributes:
        held: Directories and files, sorted, none below another.
        links: Symlinks and where they lead.
    """

    held: list[str] = field(default_factory=list[str])
    links: dict[str, str] = field(default_factory=dict[str, str])

    def hold(self, paths: Iterable[str]) -> None:
        """Add paths, except what lies below others."""
        every = sorted({*self.held, *paths})
        self.held[:] = [
            path
            for path in every
            if not any(within(path, other) for other in every if other != path)
        ]


def show(plan: Plan) -> None:
    """Mount every protected name read-only, and what leads to it on itself.

    Raises:
        InvalidArgumentError: There are more than can be held.
        StorageError: A stand-in cannot be made.
    """
    root = plan.workdir
    stand_ins = StandIns(root, _absent(root, plan.spec.unprotected))
    plan.held.callback(stand_ins.release)
    found = survey(root, plan.spec.unprotected)
    found.hold(_on_path(root) - plan.spec.unprotected)
    if found.links:
        keeper = os.dup(root)
        plan.held.callback(_put_back, keeper, found.links)
    shown: set[str] = set()
    for path in found.held:
        for above in _above(path):
            if above not in shown:
                shown.add(above)
                plan.shown.add("--bind-fd", plan.beneath(above), _inside(above))
        plan.shown.add("--ro-bind-fd", plan.beneath(path), _inside(path))
    plan.sealed.extend(_inside(path) for path in found.held)


def _on_path(root: int) -> set[str]:
    """Return the directories below that the host's user runs programs from."""
    base = os.readlink(f"/proc/self/fd/{root}")
    found: set[str] = set()
    for entry in os.environ.get("PATH", "").split(":"):
        path = os.path.normpath(entry) if entry.startswith("/") else base
        if within(path, base) and path != base:
            relative = os.path.relpath(path, base)
            with contextlib.suppress(OSError, StorageError):
                os.close(open_beneath(root, relative))
                found.add(relative)
    return found


def survey(root: int, unprotected: frozenset[str]) -> Survey:
    """Find the protected names below a directory.

    Raises:
        InvalidArgumentError: There are more than can be held.
    """
    found = Survey()
    for entry, path, depth in _walk(root):
        names = IN_ROOT if depth == 0 else ANYWHERE
        if entry.name not in names or entry.name in unprotected:
            continue
        if entry.is_symlink():
            found.links[path] = os.readlink(entry.path)
        elif entry.is_dir() or entry.is_file():
            found.held.append(path)
        if len(found.held) > _MOST_NAMES:
            raise _too_many(f"more than {_MOST_NAMES} protected names")
    found.held.sort()
    return found


def _walk(root: int) -> Iterator[tuple[os.DirEntry[str], str, int]]:
    # SAFETY: only names are read here; a link that appears meanwhile can show
    # us wrong ones, and each is then opened beneath the root without links.
    todo = [(f"/proc/self/fd/{root}", "", 0)]
    count = 0
    while todo:
        folder, prefix, depth = todo.pop()
        count += 1
        if count > _MOST_DIRECTORIES:
            raise _too_many(f"more than {_MOST_DIRECTORIES} directories")
        for entry in _entries(folder):
            path = prefix + entry.name
            yield entry, path, depth
            if _goes_on(entry):
                todo.append((entry.path, path + "/", depth + 1))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _goes_on(entry: os.DirEntry[str]) -> bool:
    name = entry.name
    if name in ANYWHERE or name in SKIPPED:
        return False
    return entry.is_dir(follow_symlinks=False)


def _too_many(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the workspace has {what}; open it with mode='copy', or with "
        "protect=False if nothing on the host runs what is written there"
    )


def _above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]


def _inside(path: str) -> str:
    return f"{view.ROOT}/{path}"


def _absent(root: int, unprotected: frozenset[str]) -> list[str]:
    present = set(os.listdir(f"/proc/self/fd/{root}"))
    return sorted(ABSENT - present - unprotected)


def open_beneath(root: int, path: str) -> int:
    """Return a descriptor of what is at `path` below `root`, through no link.

    Raises:
        StorageError: A link appeared there, or it is gone.
    """
    try:
        return openat2(root, path, os.O_PATH | os.O_CLOEXEC, resolve=_CONFINED)
    except OSError as error:
        raise StorageError(
            f"{path!r} changed while the sandbox started: {error.strerror}",
            code=error.errno or 0,
            path=path,
        ) from error


def _put_back(root: int, links: dict[str, str]) -> None:
    """Make every link what it was; what took its place is kept beside it."""
    try:
        for path, target in links.items():
            with contextlib.suppress(OSError, StorageError):
                _put_back_one(root, path, target)
    finally:
        os.close(root)


def _put_back_one(root: int, path: str, target: str) -> None:
    folder, _, name = path.rpartition("/")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    # SAFETY: commands could have made the parents links; none is followed.
    fd = openat2(root, folder or ".", flags, resolve=_CONFINED)
    try:
        with contextlib.suppress(OSError):
            if os.readlink(name, dir_fd=fd) == target:
                return
        aside = f"{name}.isobox-{secrets.token_hex(4)}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(name, aside, src_dir_fd=fd, dst_dir_fd=fd)
        os.symlink(target, name, dir_fd=fd)
    finally:
        os.close(fd)


class StandIns:
    """Empty directories for names that are absent, while sandboxes live.

    Sandboxes of several processes may share a directory: each holds a shared
    lock on one record of it, and the last one removes what was made. A record
    that nobody holds is of a host that crashed; `sweep` does what it left.
    """

    def __init__(self, root: int, names: Iterable[str]) -> None:
        self._root = os.dup(root)
        found = os.fstat(root)
        self._record = os.path.join(_records(), f"{found.st_dev}-{found.st_ino}")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = os.open(self._record, flags, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        try:
            self._make(names)
        except BaseException:
            self.release()
            raise

    def _make(self, names: Iterable[str]) -> None:
        where = os.readlink(f"/proc/self/fd/{self._root}")
        recorded = _read(self._lock)
        made = set(recorded[1] if recorded else ())
        wanted = sorted(made.union(names))
        # Recorded first: what is made is known even if we end in between.
        _write(self._lock, where, wanted)
        for name in names:
            try:
                os.mkdir(name, 0o755, dir_fd=self._root)
            except FileExistsError:
                continue
            except OSError as error:
                raise StorageError(
                    f"{name!r} cannot be held: {error.strerror}",
                    code=error.errno or 0,
                    path=name,
                ) from error
            self._own(name)

    def _own(self, name: str) -> None:
        found = os.fstat(self._root)
        if os.geteuid() == 0:
            with contextlib.suppress(OSError):
                os.chown(
                    name,
                    found.st_uid,
                    found.st_gid,
                    dir_fd=self._root,
                    follow_symlinks=False,
                )

    def release(self) -> None:
        """Let go; the last one to do so removes the stand-ins."""
        if self._root < 0:
            return
        _remove_if_last(self._lock, self._root, self._record)
        os.close(self._lock)
        os.close(self._root)
        self._root = -1


def sweep() -> None:
    """Remove the stand-ins that hosts left which have crashed."""
    folder = _records()
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                _sweep_one(lock, path, name)
            finally:
                os.close(lock)


def _sweep_one(lock: int, path: str, name: str) -> None:
    recorded = _read(lock)
    if recorded is None:
        return
    try:
        root = _workdir.walked(recorded[0])
    except OSError:
        os.unlink(path)
        return
    try:
        found = os.fstat(root)
        if name == f"{found.st_dev}-{found.st_ino}":
            _remove_if_last(lock, root, path)
    finally:
        os.close(root)


def _remove_if_last(lock: int, root: int, record: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    recorded = _read(lock)
    for name in recorded[1] if recorded else ():
        # SAFETY: rmdir removes empty directories only, and follows no link.
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=root)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(record)


def _read(lock: int) -> tuple[str, list[str]] | None:
    raw = os.pread(lock, 1 << 16, 0)
    try:
        where, names = json.loads(raw)
    except ValueError:
        return None
    return str(where), [name for name in names if name in ABSENT]


def _write(lock: int, where: str, names: list[str]) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps([where, names]).encode(), 0)


def _records() -> str:
    """Return the directory of the records, private to the caller."""
    if os.geteuid() == 0:
        folder = "/run/isobox/held"
    else:
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        base = runtime if runtime and os.path.isdir(runtime) else tempfile.gettempdir()
        folder = os.path.join(base, f"isobox-held-{os.geteuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    private = found.st_uid == os.geteuid() and not found.st_mode & 0o022
    if not private or not stat.S_ISDIR(found.st_mode):
        raise StorageError(f"{folder!r} belongs to somebody else", path=folder)
    return folder
