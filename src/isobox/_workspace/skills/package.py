"""A skill on its way in: from a host directory or an archive to a checked tar."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, cast

from isobox._workspace import archive
from isobox._workspace.skills.manifest import LARGEST, manifest_of
from isobox._workspace.skills.members import Member, Members
from isobox._workspace.skills.unpacking import LARGEST_ARCHIVE, read_archive, read_tar
from isobox.errors import ArchiveError, InvalidArgumentError, IsoboxError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._workspace.skills.manifest import Manifest
    from isobox._workspace.skills.members import Parts

#: Bytes of contents that are kept in memory; more go to a file.
_IN_MEMORY: Final = 8 << 20
_PIECE: Final = 1 << 18

#: Where a skill comes from: a host path of a directory or an archive, or the
#: bytes of an archive.
Source = str | os.PathLike[str] | bytes


@dataclass(frozen=True)
class Package:
    """A skill that may be installed.

    Attributes:
        manifest: What its SKILL.md says.
        tar: A tar of nothing but files and directories, to be read from the
            beginning.
        size: Bytes of the tar.
    """

    manifest: Manifest
    tar: IO[bytes]
    size: int

    @property
    def name(self) -> str:
        """Its name, which is that of its directory too."""
        return self.manifest.name


def packed(source: Source, name: str = "") -> Package:
    """Read a skill from the host and check all of it; this blocks.

    Args:
        source: Where it comes from.
        name: What messages call it; its path if empty, where it has one.

    Raises:
        ArchiveError: A member is refused; the message names it.
        InvalidArgumentError: It is no skill; the message says what is wrong.
        PathMissingError: There is nothing at the path.
        NotRegularFileError: It is neither a file nor a directory.
        StorageError: The host's file system failed.
    """
    called = name or ("" if isinstance(source, bytes) else os.fspath(source))
    try:
        return _packed(source)
    except (ArchiveError, InvalidArgumentError) as error:
        if not called:
            raise
        raise type(error)(f"{called}: {error.message}", path=error.path) from error
    except IsoboxError:
        raise
    except OSError as error:
        raise StorageError(
            f"the host has no place for a skill: {error.strerror}",
            code=error.errno or 0,
        ) from error


def _packed(source: Source) -> Package:
    # Whoever takes the package closes its tar; the contents go with this call.
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as content:
        members = _members(source, cast("IO[bytes]", content))
        top = _top(members)
        manifest = _manifest(members, top)
        tar = _written(members, top)
        size = tar.tell()
        tar.seek(0)
        return Package(manifest, tar, size)


def _members(source: Source, content: IO[bytes]) -> Members:
    if isinstance(source, bytes):
        return read_archive(io.BytesIO(source), len(source), content)
    opened = archive.Source(os.fspath(source))
    try:
        if opened.is_directory:
            members = Members(content)
            read_tar(_Joined(opened.pieces()), members)
            return members
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as copy:
            return _of_file(opened.pieces(), cast("IO[bytes]", copy), content)
    finally:
        opened.close()


def _of_file(pieces: Iterator[bytes], copy: IO[bytes], content: IO[bytes]) -> Members:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > LARGEST_ARCHIVE:
            break  # which is refused for it
        copy.write(piece)
    copy.seek(0)
    return read_archive(copy, size, content)


class _Joined:
    """Pieces as one file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, less only at the end."""
        held = [self._rest]
        have = len(self._rest)
        while have < size and (piece := next(self._pieces, b"")):
            held.append(piece)
            have += len(piece)
        data = b"".join(held)
        self._rest = data[size:]
        return data[:size]


def _top(members: Members) -> Parts:
    """Return the directory of the archive that is the skill."""
    if ("SKILL.md",) in members.found:
        return ()
    tops = {parts[0] for parts in members.found}
    for top in tops:
        if len(tops) == 1 and (top, "SKILL.md") in members.found:
            return (top,)
    raise InvalidArgumentError(
        "there is no SKILL.md, neither at the top nor in the only directory there"
    )


def _manifest(members: Members, top: Parts) -> Manifest:
    member = members.found[(*top, "SKILL.md")]
    data = _content(members, member, LARGEST + 1)
    if member.at is None or len(data) > LARGEST:
        raise InvalidArgumentError(f"SKILL.md is no file of at most {LARGEST} bytes")
    manifest = manifest_of(data)
    problems = list(manifest.problems)
    if not _is_text(data):
        problems.append("SKILL.md is not UTF-8, or holds a NUL")
    if problems:
        raise InvalidArgumentError(f"it is no skill: {'; '.join(problems)}")
    return manifest


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _content(members: Members, member: Member, most: int) -> bytes:
    members.content.seek(member.at or 0)
    return members.content.read(min(member.size, most))


def _written(members: Members, top: Parts) -> IO[bytes]:
    with contextlib.ExitStack() as failed:
        tar = cast(
            "IO[bytes]",
            failed.enter_context(tempfile.SpooledTemporaryFile(_IN_MEMORY)),
        )
        with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as out:
            out.addfile(_header(Member((), 0o755, 0), ()))
            for parts, member in sorted(members.found.items()):
                if parts[: len(top)] == top and parts != top:
                    members.content.seek(member.at or 0)
                    out.addfile(_header(member, top), members.content)
        failed.pop_all()
        return tar


def _header(member: Member, top: Parts) -> tarfile.TarInfo:
    info = tarfile.TarInfo("/".join(member.parts[len(top) :]) or ".")
    info.mode, info.mtime, info.size = member.mode, member.mtime, member.size
    if member.at is None:
        info.type = tarfile.DIRTYPE
    return info
