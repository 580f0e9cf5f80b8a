"""A file system in memory, with what makes the real ones hard."""

from __future__ import annotations

import errno
import hashlib
import time
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from isobox._core.paths import within
from isobox._core.results import PATH_ERRORS
from isobox.abc import Entry
from isobox.errors import (
    NotRegularFileError,
    PathAccessError,
    PathExistsError,
    PathIsDirectoryError,
    PathMissingError,
    PathNotDirectoryError,
    PathOutsideError,
    StorageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._core.results import Kind

_NAME_MAX = 255
_PATH_MAX = 4096
_LINKS_MAX = 40
_MODES: dict[Kind, int] = {"directory": 0o755, "symlink": 0o777}


@dataclass(slots=True)
class Node:
    """One file, directory, link or special file."""

    kind: Kind
    mode: int = 0o644
    data: bytes = b""
    target: str | None = None
    children: dict[str, Node] = field(default_factory=dict[str, "Node"])
    mtime_ns: int = field(default_factory=time.time_ns)

    @property
    def size(self) -> int:
        """Length in bytes, as stat tells it."""
        return len(encoded(self.target)) if self.target else len(self.data)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads: a real path, and what is there, if anything."""

    path: str
    node: Node | None

    @property
    def name(self) -> str:
        """The last component."""
        return self.path.rsplit("/", 1)[-1]


def encoded(text: str) -> bytes:
    """Return a name as the kernel would hold it."""
    return text.encode("utf-8", PATH_ERRORS)


def join(directory: str, name: str) -> str:
    """Put a name below a directory."""
    return f"{directory.rstrip('/')}/{name}"


class Tree:
    """Files in memory; `confine` bounds what its callers may reach."""

    def __init__(self) -> None:
        self.top = Node("directory", 0o755)

    def place(
        self, path: str, *, follow: bool = True, confine: str | None = None
    ) -> Place:
        """Return where an absolute path leads, through every link.

        Raises:
            PathMissingError: A directory on the way is missing.
            PathNotDirectoryError: Something on the way is no directory.
            PathOutsideError: The way leaves `confine`.
            StorageError: A name is too long, or links go in circles.
        """
        _check_lengths(path)
        return self._walk(path, follow=follow, confine=confine, links=0)

    def _walk(
        self, path: str, *, follow: bool, confine: str | None, links: int
    ) -> Place:
        here, node = "/", self.top
        names = [name for name in path.split("/") if name not in ("", ".")]
        for position, name in enumerate(names):
            rest = names[position + 1 :]
            if name == "..":
                here = here.rsplit("/", 1)[0] or "/"
                node = self._at(here)
                continue
            if node.kind != "directory":
                raise PathNotDirectoryError(f"{here} is not a directory", path=path)
            child = node.children.get(name)
            if child is not None and child.target is not None and (rest or follow):
                if links >= _LINKS_MAX:
                    raise StorageError("too many links", code=errno.ELOOP, path=path)
                start = "/" if child.target.startswith("/") else here
                onward = "/".join([start, child.target, *rest])
                return self._walk(
                    onward, follow=follow, confine=confine, links=links + 1
                )
            here = join(here, name)
            if child is None:
                if rest:
                    raise PathMissingError(f"{here} does not exist", path=path)
                _check_within(here, confine, path)
                return Place(here, None)
            node = child
        _check_within(here, confine, path)
        return Place(here, node)

    def _at(self, path: str) -> Node:
        node = self.top
        for name in path.split("/"):
            node = node.children[name] if name else node
        return node

    def node(
        self, path: str, *, follow: bool = True, confine: str | None = None
    ) -> Node:
        """Return what is at a path.

        Raises:
            PathMissingError: There is nothing.
        """
        found = self.place(path, follow=follow, confine=confine).node
        if found is None:
            raise PathMissingError(f"{path} does not exist", path=path)
        return found

    def file(self, path: str, *, confine: str | None = None) -> Node:
        """Return the regular file at a path.

        Raises:
            PathMissingError: There is nothing.
            PathIsDirectoryError: It is a directory.
            NotRegularFileError: It is a FIFO, a socket or a device.
        """
        node = self.node(path, confine=confine)
        require_file(node, path)
        return node

    def parent(self, path: str) -> Node:
        """Return the directory that holds a real path."""
        found = self.node(path.rsplit("/", 1)[0] or "/")
        if found.kind != "directory":
            raise PathNotDirectoryError(f"above {path} is no directory", path=path)
        return found

    def put(self, path: str, node: Node) -> None:
        """Put a node at a real path, in place of what is there."""
        parent = self.parent(path)
        parent.children[path.rsplit("/", 1)[-1]] = node
        parent.mtime_ns = time.time_ns()

    def make(self, path: str, kind: Kind, *, target: str | None = None) -> Node:
        """Make something new at a path.

        Raises:
            PathExistsError: There is something.
        """
        place = self.place(path, follow=False)
        if place.node is not None:
            raise PathExistsError(f"{path} exists", path=path)
        node = Node(kind, _MODES.get(kind, 0o644), target=target)
        self.put(place.path, node)
        return node

    def make_directories(self, path: str, *, confine: str | None = None) -> None:
        """Make a directory and those above it that are missing."""
        here = ""
        for name in path.strip("/").split("/"):
            here = join(here, name)
            place = self.place(here, confine=None)
            if place.node is None:
                _check_within(place.path, confine, path)
                self.put(place.path, Node("directory", 0o755))
            elif place.node.kind != "directory":
                raise PathNotDirectoryError(f"{here} is not a directory", path=path)

    def drop(self, path: str) -> None:
        """Take a real path's node away."""
        del self.parent(path).children[path.rsplit("/", 1)[-1]]

    def below(
        self, path: str, node: Node, depth: int | None = None
    ) -> Iterator[tuple[str, Node]]:
        """Yield what is below a directory, in path order, following no link."""
        if depth == 0:
            return
        for name in sorted(node.children, key=encoded):
            child = node.children[name]
            yield join(path, name), child
            if child.kind == "directory":
                deeper = None if depth is None else depth - 1
                yield from self.below(join(path, name), child, deeper)

    def copy_of(self, path: str) -> Node:
        """Return a copy of what is at a path, sharing nothing with it."""
        return deepcopy(self.node(path))


def require_file(node: Node, path: str) -> None:
    """Refuse what is no regular file.

    Raises:
        PathIsDirectoryError: It is a directory.
        NotRegularFileError: It is a FIFO, a socket or a device.
    """
    if node.kind == "directory":
        raise PathIsDirectoryError(f"{path} is a directory", path=path)
    if node.kind != "file":
        raise NotRegularFileError(f"{path} is a {node.kind}", path=path)


def require_readable(node: Node, path: str) -> None:
    """Refuse what its owner may not read.

    Raises:
        PathAccessError: The mode says no.
    """
    if not node.mode & 0o400:
        raise PathAccessError(f"{path} may not be read", path=path)


def entry(path: str, node: Node, *, digest: bool = False) -> Entry:
    """Describe a node."""
    wanted = digest and node.kind == "file"
    return Entry(
        path=path,
        kind=node.kind,
        size=node.size,
        mode=node.mode,
        mtime_ns=node.mtime_ns,
        target=node.target,
        digest=hashlib.sha256(node.data).hexdigest() if wanted else None,
    )


def _check_lengths(path: str) -> None:
    long_name = any(len(encoded(name)) > _NAME_MAX for name in path.split("/"))
    if long_name or len(encoded(path)) >= _PATH_MAX:
        raise StorageError("name too long", code=errno.ENAMETOOLONG, path=path)


def _check_within(real: str, confine: str | None, path: str) -> None:
    if confine is not None and not within(real, confine):
        raise PathOutsideError(f"{path} leads out of the workspace", path=path)
