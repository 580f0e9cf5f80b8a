"""What the shell inside says of paths, read with suspicion."""

from __future__ import annotations

import errno
import re
import stat
from typing import TYPE_CHECKING, Final

from isobox._channel.refusals import error_for
from isobox._channel.stream import GuestRefusal
from isobox._core.results import Entry
from isobox._guest import agent
from isobox._shell.quote import decoded, encoded
from isobox.errors import ProtocolError

if TYPE_CHECKING:
    from isobox._core.results import Kind
    from isobox._shell.operators import Operator
    from isobox.errors import IsoboxError

#: What `stat -c` and its like say of a path, each field apart from the next by
#: what no path can hold.
FORMAT: Final = "%f %s %u %g %Y %y/{0}/%n/{0}/%N/{0}/"
#: Functions that every piece of code may call; `no` ends the subshell it is in.
PRELUDE: Final = rb"""
no() { printf 'no %s\n' "$*"; exit 0; }
why() {
  m=$(stat -L -- "$1" 2>&1 >/dev/null) || no error "${m##*: }"
  [ -d "$1" ] && no is_directory
  [ -f "$1" ] || no not_regular
  no access
}
real() {
  e=$1; k=0
  while [ -L "$e" ] && [ ! -e "$e" ] && [ $k -lt 40 ]; do
    l=$(readlink -- "$e"; printf x); l=${l%x}; l=${l%?}; k=$((k+1))
    case $l in /*) e=$l;; *) e=${e%/*}/$l;; esac
  done
  if [ -e "$e" ]; then t=$(readlink -f -- "$e" && printf x); t=${t%x}; t=${t%?}
  else t=$(readlink -f -- "${e%/*}/" && printf x); t=${t%x}; t=${t%?}
    [ -z "$t" ] || t=${t%/}/${e##*/}; fi
  [ -n "$t" ] && [ $k -lt 40 ] || why "$1"
}
"""
_LONGEST_PATH: Final = 4096
#: The kernel's errors as the C libraries of GNU and musl put them, and shells.
_ERRORS: Final = {
    "no such file or directory": errno.ENOENT,
    "directory nonexistent": errno.ENOENT,
    "nonexistent directory": errno.ENOENT,
    "no such file": errno.ENOENT,
    "not a directory": errno.ENOTDIR,
    "is a directory": errno.EISDIR,
    "file exists": errno.EEXIST,
    "permission denied": errno.EACCES,
    "operation not permitted": errno.EPERM,
    "too many levels of symbolic links": errno.ELOOP,
    "symbolic link loop": errno.ELOOP,
    "file name too long": errno.ENAMETOOLONG,
    "filename too long": errno.ENAMETOOLONG,
    "no space left on device": errno.ENOSPC,
    "disk quota exceeded": errno.EDQUOT,
    "quota exceeded": errno.EDQUOT,
    "read-only file system": errno.EROFS,
    "file too large": errno.EFBIG,
    "device or resource busy": errno.EBUSY,
    "resource busy": errno.EBUSY,
    "directory not empty": errno.ENOTEMPTY,
    "text file busy": errno.ETXTBSY,
    "input/output error": errno.EIO,
    "i/o error": errno.EIO,
    "argument list too long": errno.E2BIG,
}
_WORDS: Final = frozenset(
    (
        "missing",
        "exists",
        "is_directory",
        "not_directory",
        "not_regular",
        "access",
        "conflict",
        "refused",
        "root",
    )
)
_KINDS: Final[dict[int, Kind]] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
_NUMBERS: Final = re.compile(
    rb"([0-9a-f]{1,8}) (\d{1,19}) (\d{1,10}) (\d{1,10}) (-?\d{1,18}) [^.]{0,40}"
    rb"(?:\.(\d{1,9}))?[^/]{0,40}"
)


def refusal(line: bytes) -> GuestRefusal | None:
    """Return the refusal that a line is, None for `ok`.

    Raises:
        ProtocolError: It is neither.
    """
    verb, _, rest = line.rstrip(b"\n").partition(b" ")
    if verb == b"ok":
        return None
    if verb != b"no":
        raise ProtocolError("the shell inside answers something else")
    word, _, text = rest[:400].decode("utf-8", "replace").partition(" ")
    if word == "error":
        return _failure(text)
    if word not in _WORDS:
        raise ProtocolError("the shell inside refuses for no reason")
    return GuestRefusal(word, "", 0)


def _failure(text: str) -> GuestRefusal:
    return failure(_ERRORS.get(text.strip().lower(), errno.EIO))


def check_length(path: str, *, op: str) -> None:
    """Refuse a path that the kernel does not take.

    `mkdir -p` of some would make it all the same, step by step.

    Raises:
        StorageError: It is too long.
    """
    if len(encoded(path)) >= _LONGEST_PATH:
        raise error_of(failure(errno.ENAMETOOLONG), op=op, path=path)


def failure(number: int) -> GuestRefusal:
    """Return the refusal that one of the kernel's errors is."""
    return GuestRefusal(agent._CODES.get(number, "storage"), "", number)


def check(answer: bytes, *, op: str, path: str) -> bytes:
    """Return what stands behind the `ok` of an answer.

    Raises:
        IsoboxError: It is a refusal.
        ProtocolError: It is neither.
    """
    line, _, rest = answer.partition(b"\n")
    if (given := refusal(line)) is not None:
        raise error_of(given, op=op, path=path)
    return rest


async def check_line(operator: Operator, *, op: str, path: str) -> bytes:
    """Return the first line of an answer behind its `ok`; more may follow.

    Raises:
        IsoboxError: It is a refusal; the answer has been read to its end.
        ProtocolError: It is neither.
    """
    line = await operator.line(most=1 << 16)
    if line.startswith(b"ok"):
        return line[3:]
    rest = await operator.rest()
    check(line or rest[:4096], op=op, path=path)
    raise ProtocolError("the shell inside answers something else")


def refused(code: str, path: str, message: str = "", *, op: str) -> IsoboxError:
    """Return the error of what the host itself refuses."""
    return error_for(GuestRefusal(code, message, 0), op=op, path=path)


def error_of(given: GuestRefusal, *, op: str, path: str) -> IsoboxError:
    """Return the error that a refusal means."""
    if given.code == "conflict":
        given = GuestRefusal("conflict", "the content is another", 0)
    return error_for(given, op=op, path=path)


def records(data: bytes, nonce: str) -> list[list[bytes]]:
    """Return the fields of each line that `FORMAT` makes.

    Raises:
        ProtocolError: One has more or fewer.
    """
    mark = f"/{nonce}/".encode()
    lines = data.split(mark + b"\n")
    if lines.pop():
        raise ProtocolError("the shell inside sent half a line")
    found = [line.split(mark) for line in lines]
    if any(len(fields) != 3 for fields in found):
        raise ProtocolError("the shell inside sent lines of other fields")
    return found


def entry(fields: list[bytes], path: str, digest: str | None = None) -> Entry:
    """Return what a line describes, under the name `path`.

    Raises:
        ProtocolError: It describes what cannot be.
    """
    found = _NUMBERS.fullmatch(fields[0])
    if found is None:
        raise ProtocolError("the shell inside describes no file")
    mode, size, uid, gid, seconds, fraction = found.groups()
    kind = _KINDS.get(stat.S_IFMT(int(mode, 16)))
    if kind is None:
        raise ProtocolError("the shell inside describes no file")
    return Entry(
        path,
        kind,
        int(size) if kind in ("file", "symlink", "directory") else 0,
        stat.S_IMODE(int(mode, 16)),
        int(seconds) * 10**9 + int((fraction or b"").ljust(9, b"0")),
        int(uid),
        int(gid),
        _target(fields[1], fields[2]) if kind == "symlink" else None,
        digest,
    )


def _target(name: bytes, both: bytes) -> str:
    """Return a link's target, which follows on its name; both may be quoted."""
    for begin, end in ((name + b" -> ", b""), (b"'" + name + b"' -> '", b"'")):
        if both.startswith(begin) and both.endswith(end):
            return decoded(both[len(begin) : len(both) - len(end)])
    raise ProtocolError("the shell inside describes no link")


def digest_in(text: bytes) -> str:
    """Return the digest that `sha256sum` printed.

    Raises:
        ProtocolError: It printed none.
    """
    found = re.match(rb"\\?([0-9a-f]{64})\b", text)
    if found is None:
        raise ProtocolError("the shell inside computes no digest")
    return found[1].decode()
