"""Members of an archive that is to become a skill, each looked at on its own."""

from __future__ import annotations

import stat
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from isobox._core.paths import shown
from isobox.errors import ArchiveError

if TYPE_CHECKING:
    from typing import IO

    from isobox._workspace.tars import Readable

#: Members, bytes of all of them, and of a path.
MOST: Final = 5_000
LARGEST: Final = 100 << 20
_LONGEST: Final = 1024
_LONGEST_NAME: Final = 200
#: Directories that lead to a member.
_DEEPEST: Final = 32
_PIECE: Final = 1 << 16
#: What is unpacked may be so many times what it was, once it is over a megabyte.
_RATIO: Final = 200
_FREE: Final = 1 << 20
#: Kinds of characters that no name needs: controls, those that turn a line around or
#: that nobody sees, ends of lines, half characters; and what joins the parts of emoji.
_UNFIT: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS: Final = "\u200c\u200d"
#: What macOS adds to archives.
_DROPPED: Final = ("__MACOSX", ".DS_Store")

Parts = tuple[str, ...]


def refuse(name: str, why: str) -> NoReturn:
    """Refuse a member.

    Raises:
        ArchiveError: Always.
    """
    raise ArchiveError(f"{shown(name[:_LONGEST])}: {why}", path=name)


@dataclass(frozen=True, slots=True)
class Member:
    """A file or directory of a skill.

    Attributes:
        parts: The names that lead to it.
        mode: 0o644 or 0o755.
        mtime: Seconds of Unix time.
        at: Where its content begins; None for a directory.
        size: Bytes of it.
    """

    parts: Parts
    mode: int
    mtime: int
    at: int | None = None
    size: int = 0


class Members:
    """Takes members in, with their content in one file, and refuses what is unsafe.

    Args:
        content: Where the contents are kept.
        packed: Bytes of the archive, where that can be a bomb.
    """

    def __init__(self, content: IO[bytes], packed: int | None = None) -> None:
        self.content = content
        self.found: dict[Parts, Member] = {}
        self._packed = packed
        self._spelled: dict[Parts, Parts] = {}
        self._directories: dict[Parts, bool] = {}
        self._count = 0
        self._size = 0

    def add(
        self,
        name: str,
        *,
        mode: int,
        mtime: float,
        body: Readable | None,
        packed: int | None = None,
    ) -> None:
        """Take a file in, or a directory if there is no body.

        Args:
            name: As the archive has it.
            mode: Its permission bits, with those of the kind of file if known.
            mtime: When it was changed.
            body: Its content.
            packed: Bytes that this member has in the archive.

        Raises:
            ArchiveError: It is refused; the message names it.
        """
        self._count += 1
        if self._count > MOST:
            refuse(name, f"the archive has over {MOST} members")
        parts = _parts(name)
        if not parts or parts[0] in _DROPPED or parts[-1] in _DROPPED:
            return
        _check_mode(name, mode, directory=body is None)
        self._check_place(name, parts, directory=body is None)
        permitted = 0o755 if body is None or mode & 0o111 else 0o644
        begin = self.content.tell()
        if body is not None:
            self._keep(name, body, packed)
        self.found[parts] = Member(
            parts,
            permitted,
            int(min(max(mtime, 0), 1 << 33)),
            None if body is None else begin,
            self.content.tell() - begin,
        )

    def _check_place(self, name: str, parts: Parts, *, directory: bool) -> None:
        all_folded = tuple(map(_folded, parts))
        for length in range(1, len(parts) + 1):
            here, folded = parts[:length], all_folded[:length]
            if self._spelled.setdefault(folded, here) != here:
                other = "/".join(self._spelled[folded])
                refuse(name, f"some file systems take it for {shown(other)}")
            is_directory = directory or length < len(parts)
            if self._directories.setdefault(here, is_directory) != is_directory:
                refuse(name, f"{shown('/'.join(here))} is a file and a directory")
        if not directory and parts in self.found:
            refuse(name, "it is there twice")

    def _keep(self, name: str, body: Readable, packed: int | None) -> None:
        size = 0
        while piece := body.read(_PIECE):
            size += len(piece)
            self._size += len(piece)
            if self._size > LARGEST:
                refuse(name, f"the archive holds over {LARGEST} bytes")
            if self._is_bomb(size, packed) or self._is_bomb(self._size, self._packed):
                refuse(name, f"it becomes over {_RATIO} times as large unpacked")
            self.content.write(piece)

    @staticmethod
    def _is_bomb(size: int, packed: int | None) -> bool:
        return packed is not None and size > _FREE and size > packed * _RATIO


def _parts(name: str) -> Parts:
    if len(name) > _LONGEST:
        refuse(name, f"its name has over {_LONGEST} characters")
    if name.startswith("/"):
        refuse(name, "its name is absolute")
    if "\\" in name:
        refuse(name, "its name holds a backslash, which some take for a slash")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        refuse(name, "it leaves the directory")
    if len(parts) > _DEEPEST:
        refuse(name, f"it is over {_DEEPEST} directories deep")
    for part in parts:
        if any(_is_unfit(each) for each in part):
            refuse(name, "its name holds what is no text")
        if len(part.encode()) > _LONGEST_NAME:
            refuse(name, f"a name in it has over {_LONGEST_NAME} bytes")
    return parts


def _is_unfit(character: str) -> bool:
    return unicodedata.category(character) in _UNFIT and character not in _JOINERS


def _check_mode(name: str, mode: int, *, directory: bool) -> None:
    kind = stat.S_IFMT(mode)
    if kind not in (0, stat.S_IFDIR if directory else stat.S_IFREG):
        refuse(name, _kind(kind))
    if mode & (stat.S_ISUID | stat.S_ISGID):
        refuse(name, "it has a set-id bit")


def _kind(kind: int) -> str:
    if kind == stat.S_IFLNK:
        return "it is a link"
    if kind in (stat.S_IFREG, stat.S_IFDIR):
        return "it is a file and a directory at once"
    return "it is a device, a FIFO or a socket"


def _folded(name: str) -> str:
    """Return a name as file systems compare it that tell neither case nor form."""
    return unicodedata.normalize("NFKC", name).casefold()
