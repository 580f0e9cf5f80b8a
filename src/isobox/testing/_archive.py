"""Trees of the memory sandbox as tar streams, and back."""

from __future__ import annotations

import io
import posixpath
import tarfile
from typing import TYPE_CHECKING

from isobox._core.paths import within
from isobox._core.results import PATH_ERRORS
from isobox.errors import ArchiveError, PathMissingError
from isobox.testing._tree import Node, join

if TYPE_CHECKING:
    from isobox._core.results import Kind
    from isobox.testing._tree import Tree

_TYPES: dict[Kind, bytes] = {
    "file": tarfile.REGTYPE,
    "directory": tarfile.DIRTYPE,
    "symlink": tarfile.SYMTYPE,
}


def packed(tree: Tree, path: str, node: Node) -> bytes:
    """Return a node and what is below it as a tar."""
    buffer = io.BytesIO()
    first = "." if node.kind == "directory" else path.rsplit("/", 1)[-1]
    with tarfile.open(
        fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, errors=PATH_ERRORS
    ) as archive:
        for name, child in [(path, node), *tree.below(path, node)]:
            if child.kind in _TYPES:
                relative = first + name.removeprefix(path)
                archive.addfile(_member(relative, child), io.BytesIO(child.data))
    return buffer.getvalue()


def _member(name: str, node: Node) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = _TYPES[node.kind]
    member.mode = node.mode
    member.size = len(node.data)
    member.linkname = node.target or ""
    member.mtime = node.mtime_ns // 10**9
    member.pax_headers = {"mtime": f"{node.mtime_ns / 1e9:.9f}"}
    return member


def unpacked(tree: Tree, path: str, data: bytes) -> int:
    """Put a tar's members below a directory and return how many there were.

    Raises:
        ArchiveError: A member is refused, or it is no tar.
    """
    count = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), errors=PATH_ERRORS) as archive:
            for member in archive:
                _put(tree, path, member, archive)
                count += 1
    except tarfile.TarError as error:
        raise ArchiveError(f"not a tar stream: {error}") from error
    return count


def _put(
    tree: Tree, path: str, member: tarfile.TarInfo, archive: tarfile.TarFile
) -> None:
    full = posixpath.normpath(join(path, member.name))
    # SAFETY: a member's name comes from outside; it stays below the directory.
    if member.name.startswith("/") or not within(full, path):
        raise ArchiveError(f"member leaves the directory: {member.name!r}")
    node = _node(member, archive)
    folder = full if node.kind == "directory" else full.rsplit("/", 1)[0]
    if _goes_through_a_link(tree, folder):
        raise ArchiveError(f"member goes through a link: {member.name!r}")
    tree.make_directories(folder)
    if node.kind == "directory":
        made = tree.node(full)
        made.mode, made.mtime_ns = node.mode, node.mtime_ns
    else:
        tree.put(full, node)


def _goes_through_a_link(tree: Tree, folder: str) -> bool:
    try:
        return tree.place(folder).path != folder
    except PathMissingError:
        return _goes_through_a_link(tree, folder.rsplit("/", 1)[0])


def _node(member: tarfile.TarInfo, archive: tarfile.TarFile) -> Node:
    mtime_ns = int(float(member.mtime) * 1e9)
    mode = member.mode & 0o777
    if member.isdir():
        return Node("directory", mode, mtime_ns=mtime_ns)
    if member.issym():
        return Node("symlink", 0o777, target=member.linkname, mtime_ns=mtime_ns)
    content = archive.extractfile(member) if member.isreg() else None
    if content is None:
        raise ArchiveError(f"member is no file, directory or link: {member.name!r}")
    return Node("file", mode, data=content.read(), mtime_ns=mtime_ns)
