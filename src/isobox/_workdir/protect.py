"""Names that commands must not write, in a directory that they work on live.

A mount over a name keeps it: it can be neither written nor renamed nor removed.
Renaming a directory above it would undo that, so each of these is a mount too.
A name that is absent needs something to mount on: an empty directory stands in
for it while sandboxes live, which no version control sees and which `rmdir`
removes without a risk. A symlink cannot be mounted on; what it leads to is held,
and the link is put back when the sandbox ends. What appears in directories that
commands make meanwhile is put aside then.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from isobox._core.paths import within
from isobox._core.protected import ABSENT, ANYWHERE, IN_ROOT, SKIPPED
from isobox._linux import system
from isobox._linux.syscalls import (
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    openat2,
)
from isobox._workdir import state
from isobox._workdir.stand_ins import StandIns
from isobox.errors import InvalidArgumentError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOST_NAMES: Final = 300
_MOST_DIRECTORIES: Final = 50_000
#: The kernel follows no more, either.
_MOST_LINKS: Final = 40
_CONFINED: Final = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
#: git takes a directory that holds these for a repository, and runs what its
#: configuration names.
_REPOSITORY: Final = frozenset(("HEAD", "objects", "refs"))


@dataclass(frozen=True, slots=True)
class Survey:
    """What of a directory must be held, as paths relative to it.

    Attributes:
        held: Directories and files, sorted, none below another.
        links: Symlinks and where they lead.
        sockets: Of the host, to which a read-only mount would not stop anybody
            to connect.
        repositories: Directories that git takes for repositories by what they
            hold.
    """

    held: list[str] = field(default_factory=list[str])
    links: dict[str, str] = field(default_factory=dict[str, str])
    sockets: list[str] = field(default_factory=list[str])
    repositories: set[str] = field(default_factory=set[str])

    def hold(self, paths: Iterable[str]) -> None:
        """Add paths, except what lies below others."""
        every = sorted({*self.held, *paths})
        self.held[:] = [
            path
            for path in every
            if not any(within(path, other) for other in every if other != path)
        ]


@dataclass(frozen=True, slots=True)
class Held:
    """What has to be mounted in a sandbox so that protected names stay.

    Attributes:
        mounts: Paths below the root, in the order in which they are mounted on
            themselves, and whether each is writable.
        held: Those among them that are not.
        sockets: Paths that need something harmless in their place.
    """

    mounts: list[tuple[str, bool]]
    held: list[str]
    sockets: list[str]


def hold(root: int, unprotected: frozenset[str], until: contextlib.ExitStack) -> Held:
    """Find every protected name, and see that those that are absent stand.

    Args:
        root: A descriptor of the directory.
        unprotected: Names that may be written all the same.
        until: When it closes, what the sandbox has done meanwhile is undone.

    Raises:
        InvalidArgumentError: There are more than can be held, or one that
            cannot be.
        StorageError: A stand-in cannot be made.
    """
    stand_ins = StandIns(root, ABSENT - unprotected)
    until.callback(stand_ins.release)
    found = survey(root, unprotected)
    found.hold(_on_path(root) - unprotected)
    found.hold(_remembered(root))
    found.hold(_led_to(root, found.links))
    until.callback(_look_after, os.dup(root), found, unprotected)
    mounts: dict[str, bool] = {}
    for path in found.held:
        _refuse_other_names(root, path)
        # A directory above could be renamed, were it no mount.
        mounts.update(dict.fromkeys(_above(path), True))
        mounts[path] = False
    return Held(list(mounts.items()), found.held, found.sockets)


def _remembered(root: int) -> set[str]:
    """Return what isobox remembers of directories, if it is below this one.

    SAFETY: who could write it would answer for a person, in other directories.
    """
    path = state.made_beneath(os.readlink(f"/proc/self/fd/{root}"))
    return set() if path is None else {path}


def _on_path(root: int) -> set[str]:
    """Return the directories below that the host's user runs programs from."""
    base = os.readlink(f"/proc/self/fd/{root}")
    entries = os.environ.get("PATH", "").split(":")
    paths = (os.path.normpath(entry) for entry in entries if entry.startswith("/"))
    return _existing(root, (os.path.relpath(path, base) for path in paths))


def _led_to(root: int, links: dict[str, str]) -> set[str]:
    """Return what protected links lead to, below the root.

    Adds to `links` those on the way.
    """
    base = os.readlink(f"/proc/self/fd/{root}")
    return _existing(root, {_followed(base, path, links) for path in list(links)})


def _followed(base: str, path: str, links: dict[str, str]) -> str:
    for _ in range(_MOST_LINKS):
        link = _first_link(base, path)
        if link is None:
            return path
        links[link] = target = os.readlink(os.path.join(base, link))
        rest = path[len(link) + 1 :]
        place = os.path.join(base, os.path.dirname(link), target, rest)
        path = os.path.relpath(os.path.normpath(place), base)
    return "."


def _first_link(base: str, path: str) -> str | None:
    if path.startswith("../"):
        return None
    for step in (*_above(path), path):
        if os.path.islink(os.path.join(base, step)):
            return step
    return None


def _existing(root: int, paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        if path == "." or path.startswith("../"):
            continue
        with contextlib.suppress(OSError, StorageError):
            os.close(open_beneath(root, path))
            found.add(path)
    return found


def _refuse_other_names(root: int, path: str) -> None:
    """Refuse a protected file that can be written under another name.

    Raises:
        InvalidArgumentError: It has hard links.
    """
    fd = open_beneath(root, path)
    try:
        held = os.fstat(fd)
    finally:
        os.close(fd)
    if stat.S_ISREG(held.st_mode) and held.st_nlink > 1:
        raise InvalidArgumentError(
            f"{path!r} is protected, and has hard links by which it could be "
            "written; make it a file of its own, or use mode='copy'",
            path=path,
        )


def survey(root: int, unprotected: frozenset[str]) -> Survey:
    """Find what of a directory must be held.

    Raises:
        InvalidArgumentError: There is more than can be held, a directory cannot
            be read, or a file would run as somebody else.
    """
    found = Survey()
    for folder, entries in _walk(root):
        names = IN_ROOT if not folder else ANYWHERE
        if {entry.name for entry in entries} >= _REPOSITORY:
            found.repositories.add(folder)
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.name in names and entry.name not in unprotected:
                _note(found, entry, path)
            else:
                _note_other(found, entry, path)
        if len(found.held) > _MOST_NAMES:
            raise _too_many(f"more than {_MOST_NAMES} protected names")
    found.held.sort()
    return found


def _note(found: Survey, entry: os.DirEntry[str], path: str) -> None:
    if entry.is_symlink():
        found.links[path] = os.readlink(entry.path)
    elif entry.is_dir() or entry.is_file():
        found.held.append(path)
        found.sockets.extend(_sockets_in(entry, path))


def _sockets_in(folder: os.DirEntry[str], path: str) -> list[str]:
    # git's own watcher listens there.
    try:
        with os.scandir(folder.path) as entries:
            return [f"{path}/{entry.name}" for entry in entries if _is_socket(entry)]
    except OSError:
        return []


def _is_socket(entry: os.DirEntry[str]) -> bool:
    return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)


def _note_other(found: Survey, entry: os.DirEntry[str], path: str) -> None:
    if entry.is_dir(follow_symlinks=False) or entry.is_symlink():
        return
    if not entry.is_file(follow_symlinks=False):
        if _is_socket(entry):
            found.sockets.append(path)
    elif os.geteuid() == 0 and entry.stat(follow_symlinks=False).st_mode & 0o6000:
        raise InvalidArgumentError(
            f"{path!r} runs as its owner (set-id), whatever commands write into it; "
            "take the bit away, or use mode='copy'",
            path=path,
        )


def _walk(root: int) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Yield each directory below, by its relative path, and what it holds."""
    # SAFETY: only names are read here; a link that appears meanwhile can show
    # us wrong ones, and each is then opened beneath the root without links.
    todo = [""]
    count = 0
    while todo:
        folder = todo.pop()
        count += 1
        if count > _MOST_DIRECTORIES:
            raise _too_many(f"more than {_MOST_DIRECTORIES} directories")
        entries = _entries(root, folder)
        yield folder, entries
        below = [entry.name for entry in entries if _goes_on(entry)]
        todo.extend(f"{folder}/{name}" if folder else name for name in below)


def _entries(root: int, folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(f"/proc/self/fd/{root}/{folder}") as entries:
            return list(entries)
    except PermissionError:
        raise InvalidArgumentError(
            f"{folder!r} cannot be read, so what it holds cannot be protected; make "
            "it readable, or use mode='copy'",
            path=folder,
        ) from None
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


def inside(path: str) -> str:
    """Return where the sandbox has a path below the workspace."""
    return f"{system.ROOT}/{path}"


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


# -- when the sandbox has ended -----------------------------------------------


def _look_after(root: int, before: Survey, unprotected: frozenset[str]) -> None:
    """Put back links, and put aside protected names that commands have made."""
    try:
        for path, target in before.links.items():
            with contextlib.suppress(OSError):
                _put_back(root, path, target)
        with contextlib.suppress(InvalidArgumentError):
            for folder, name in _made(root, before, unprotected):
                with contextlib.suppress(OSError):
                    _put_aside(root, folder, name)
    finally:
        os.close(root)


def _made(
    root: int, before: Survey, unprotected: frozenset[str]
) -> list[tuple[str, str]]:
    known = {*before.held, *before.links}
    found: list[tuple[str, str]] = []
    for folder, entries in _walk(root):
        names = (IN_ROOT if not folder else ANYWHERE) - unprotected
        present = {entry.name for entry in entries}
        found.extend(
            (folder, name)
            for name in present & names
            if (f"{folder}/{name}" if folder else name) not in known
        )
        if present >= _REPOSITORY and folder not in before.repositories:
            found.append((folder, "HEAD"))
    return found


def _put_back(root: int, path: str, target: str) -> None:
    folder, _, name = path.rpartition("/")
    fd = _folder(root, folder)
    try:
        with contextlib.suppress(OSError):
            if os.readlink(name, dir_fd=fd) == target:
                return
        with contextlib.suppress(FileNotFoundError):
            os.rename(name, _aside(name), src_dir_fd=fd, dst_dir_fd=fd)
        os.symlink(target, name, dir_fd=fd)
    finally:
        os.close(fd)


def _put_aside(root: int, folder: str, name: str) -> None:
    fd = _folder(root, folder)
    try:
        os.rename(name, _aside(name), src_dir_fd=fd, dst_dir_fd=fd)
    finally:
        os.close(fd)


def _folder(root: int, folder: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    # SAFETY: commands could have made any of it a link; none is followed.
    return openat2(root, folder or ".", flags, resolve=_CONFINED)


def _aside(name: str) -> str:
    return f"{name}.isobox-{secrets.token_hex(4)}"
