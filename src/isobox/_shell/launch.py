"""The code that starts a command inside, and says how it ended."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._shell.quote import NAME, encoded, filled, quoted
from isobox.errors import InvalidArgumentError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from isobox._core.ops import Spawn, WindowSize
    from isobox._shell.kit import Kit, Witness

#: Bytes that the kernel takes as one argument.
_LONGEST_ARGUMENT: Final = 131071
#: The letter of `ulimit`, and how many bytes its unit has.
LIMITS: Final = {
    "as": ("v", 1024),
    "core": ("c", 512),
    "cpu": ("t", 1),
    "data": ("d", 1024),
    "fsize": ("f", 512),
    "memlock": ("l", 1024),
    "nofile": ("n", 1),
    "nproc": ("p", 1),
    "stack": ("s", 1024),
}
_LOADED: Final = 'eval "$(dd bs=$1 count=1 iflag=fullblock 2>/dev/null)"'
_SOURCED: Final = '. "$1"'
#: Outlives the command, and says behind its last words how it ended. What
#: belongs to the command bears the mark; this does not.
_OUTER: Final = """\
exec 3>&1 4>&2
trap : INT QUIT
{report}r=$({witness} 2>&1)
{unreport}b=-
head -c 262144 /proc/[0-9]*/environ 2>/dev/null | tr '\\000' '\\n' |
  grep -q -x <mark> && b=b
{end}"""
_END: Final = 'printf \'%send %s %s;\' <nonce> "$b" "$r"'
#: The third output goes to the host among the others, so that it is known to
#: come behind what was printed before it. With all around it a piece is shorter than
#: what any C library writes at once, so that no other output tears it.
_REPORT: Final = """\
d=$(mktemp -d) && mkfifo "$d/r" && exec 5<>"$d/r" || {
  printf '%sno storage;' <nonce> >&2; exit 1; }
exec 6>"$d/r" 7<"$d/r" 5>&-
rm -rf "$d"
( exec 6>&-
while x=$(dd bs=448 count=1 2>/dev/null | od -An -v -tx1 | tr -d ' \\n') &&
  [ -n "$x" ]; do
  printf '%ssync;' <nonce> >&4
  printf '%sreport %s;' <nonce> "$x" >&3
  case $x in *<over>*) break;; esac
done ) <&7 &
w=$!
exec 7<&-
"""
#: Others may hold it open for long: what it has until now ends with the nonce, so
#: often that whoever reads 448 bytes of it at once finds one that is whole.
_UNREPORT: Final = """\
( trap '' PIPE; printf %s <overs> >&6 ) 2>/dev/null
exec 6>&-
wait $w 2>/dev/null
"""
_OVERS: Final = 448 + 2 * 64
_WITNESSES: Final[dict[Witness, str]] = {
    "awk": "awk 'BEGIN { printf \"%d\", system(ARGV[1]) }' <inner>",
    "time": "command time -f %x sh -c <inner>",
    # The shell that waits would say of a signal what the command did not.
    "sh": "{ sh -c <inner>; } 2>/dev/null; echo $?",
}
_DIRECTORY: Final = """\
cd -- <cwd> 2>/dev/null || {
  if [ -d <cwd> ]; then r=access; elif [ -e <cwd> ]; then r=not_directory
  else r=missing; fi
  printf '%sno %s;' <nonce> $r >&2; exit 1; }
unset OLDPWD
"""


@dataclass(frozen=True, slots=True)
class Launch:
    """A command to start.

    Attributes:
        op: What was asked.
        env: The variables that it has besides those of the exec.
        limits: Limits that it has where it asks for no other, if they can be had.
        mark: What stands in the environment of all that belongs to it.
        nonce: What the code begins with whatever it says, of at most 64 bytes; it
            begins with a byte that nothing else in it is, see `fresh_nonce`.
    """

    op: Spawn
    env: Mapping[str, str]
    limits: Mapping[str, int]
    mark: str
    nonce: str

    def programs(self, kit: Kit, folder: bytes = b"") -> tuple[bytes, bytes]:
        """Return the code of the exec's shell, and that of the command's.

        Both are read from standard input, one behind the other; on a terminal,
        that would echo them, from files of `folder`.
        """
        inner = self._inner()
        if folder:
            inner = filled("rm -rf -- <folder>\n", folder=folder) + inner
        return self._outer(kit, len(inner), folder), inner

    def _outer(self, kit: Kit, size: int, folder: bytes) -> bytes:
        tty, report = self.op.tty is not None, self.op.report
        ends = [_END] if tty else [_END, _END + " >&2"]
        size_of = "" if self.op.tty is None else _sized(self.op.tty)
        code = size_of + _OUTER.format(
            report=_REPORT if report else "",
            witness=_WITNESSES[kit.witness],
            unreport=_UNREPORT if report else "",
            end="\n".join(ends),
        )
        return filled(
            code,
            inner=self._entry(kit, size, folder),
            mark=self.mark,
            nonce=self.nonce,
            over=self.nonce.encode().hex(),
            overs=self.nonce * (_OVERS // len(self.nonce) + 1),
        )

    def _entry(self, kit: Kit, size: int, folder: bytes) -> bytes:
        third = "exec 3>&6 6>&-; " if self.op.report else ""
        session = "setsid " if kit.setsid and self.op.tty is None else ""
        return filled(
            f"exec >&3 2>&4 3>&- 4>&-; {third}"
            f"exec env <mark> {session}{kit.shell} -c <loaded> sh <source>",
            mark=self.mark,
            loaded=_SOURCED if folder else _LOADED,
            source=folder + b"/inner" if folder else b"%d" % size,
        )

    def _inner(self) -> bytes:
        op = self.op
        env = {**self.env, **op.env}
        started = "" if op.stdin or op.tty is not None else "exec </dev/null\n"
        return b"".join(
            (
                filled(_DIRECTORY, cwd=op.cwd, nonce=self.nonce),
                *self._limits(),
                *_exports(env),
                self._started(),
                started.encode(),
                self._command(env),
            )
        )

    def _limits(self) -> Iterator[bytes]:
        for name in self.limits.keys() - self.op.limits.keys():
            letter, unit = LIMITS[name]
            value = int(self.limits[name]) // unit
            yield b"ulimit -%s %d 2>/dev/null\n" % (letter.encode(), value)
        for name, value in self.op.limits.items():
            letter, unit = LIMITS[name]
            yield filled(
                f"ulimit -{letter} {int(value) // unit} 2>/dev/null || {{ "
                "printf '%sno invalid;' <nonce> >&2; exit 1; }\n",
                nonce=self.nonce,
            )

    def _started(self) -> bytes:
        telling = "printf '%spid %d;' <nonce> "
        if not self.op.argv:
            return filled(telling + "$$ >&2\n", nonce=self.nonce)
        return filled(
            "if command -v <name> >/dev/null 2>&1; then "
            f"{telling}$$ >&2; else {telling}0 >&2; fi\n",
            nonce=self.nonce,
            name=self.op.argv[0],
        )

    def _command(self, env: Mapping[str, str | None]) -> bytes:
        odd = [
            quoted(f"{name}={value}")
            for name, value in env.items()
            if value is not None and not NAME.fullmatch(name)
        ]
        prefix = b" ".join([b"exec", *([b"env", *odd] if odd else [])])
        if self.op.argv:
            return prefix + b" " + b" ".join(map(quoted, self.op.argv))
        script = quoted(self.op.script or "")
        if odd:
            return prefix + b" sh -c " + script
        return b"set --\neval " + script


def fresh_nonce() -> str:
    """Return what nobody else prints.

    Where an output ends as it begins, what follows has to be waited for: so it begins
    with a byte that is printed by nobody who then asks for something.
    """
    return f"\x06{secrets.token_hex(16)}"


def _sized(tty: WindowSize) -> str:
    # Engines set it a little later, when a command has looked at it already.
    return f"stty rows {int(tty.rows)} cols {int(tty.columns)} 2>/dev/null\n"


def _exports(env: Mapping[str, str | None]) -> Iterator[bytes]:
    for name, value in env.items():
        if not NAME.fullmatch(name):
            continue
        if value is None:
            yield b"unset %s\n" % name.encode()
        else:
            yield b"export %s=%s\n" % (name.encode(), quoted(value))


def check_arguments(op: Spawn) -> None:
    """Refuse what the kernel would.

    Raises:
        InvalidArgumentError: One argument is longer than the kernel takes.
    """
    longest = max((len(encoded(part)) for part in op.argv), default=0)
    if longest > _LONGEST_ARGUMENT:
        raise InvalidArgumentError(
            f"one argument has {longest} bytes; the kernel takes "
            f"{_LONGEST_ARGUMENT}: pass it on standard input, in a file, or as a "
            "script",
            op="spawn",
        )


def ending(told: bytes, witness: Witness) -> tuple[int, int | None]:
    """Return the status and the signal that a witness tells of.

    Raises:
        ProtocolError: It tells of none.
    """
    words = told.decode("ascii", "replace").replace("\r", "")  # of a terminal
    if witness == "time":
        signalled = re.search(r"terminated by signal (\d{1,3})$", words, re.MULTILINE)
        if signalled:
            return _signalled(int(signalled[1]))
    last = words.split()[-1:] or [""]
    if not re.fullmatch(r"\d{1,4}", last[0]):
        raise ProtocolError("the shell inside did not say how a command ended")
    return _status(int(last[0]), witness)


def _status(status: int, witness: Witness) -> tuple[int, int | None]:
    if witness == "awk" and status > 256:
        return _signalled(status % 256)
    if witness == "sh" and 128 < status <= 128 + 64:
        return _signalled(status - 128)
    if status > 255:
        raise ProtocolError("the shell inside reported no exit status")
    return status, None


def _signalled(number: int) -> tuple[int, int | None]:
    if not 0 < number < 128:
        raise ProtocolError("the shell inside reported no signal")
    return 128 + number, number
