"""A file's next content inside: beside the old one until it takes its place."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from isobox._shell import answers
from isobox._shell.exec import PIECE
from isobox._shell.quote import filled
from isobox.errors import ProtocolError, SandboxLostError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from isobox._core.results import Entry
    from isobox._shell.operators import Operator, Operators

#: Says the file that is written, and the topmost directory that was made.
_BEGIN: Final = """\
( umask 022; p=<path>; d=${p%/*}; d=${d:-/}; f=
[ -d "$p" ] && no is_directory
[ -e "$p" ] && [ ! -f "$p" ] && no not_regular
if [ ! -d "$d" ]; then
  [ -e "$d" ] && no not_directory
  if [ <parents> = 0 ]; then why "$d"; fi
  q=$d; while [ ! -e "$q" ] && [ ! -L "$q" ]; do f=$q; q=${q%/*}; q=${q:-/}; done
  [ -d "$q" ] || no not_directory
  m=$(mkdir -p -- "$d" 2>&1) || no error "${m##*: }"
fi
real "$p"
h=${t%/*}; n=$h/<name>
umask 077
m=$( ( : >"$n" ) 2>&1 ) || no error "${m##*: }"
rm -f -- "$n"
printf 'ok\\n%s\\0%s\\0%s' "$t" "$n" "$f" )"""
_ADD: Final = """\
m=$(umask 077; dd bs=<size> count=1 iflag=fullblock 2>&1 >><draft>) || m="no error ${m%%
*}"
case $m in no*) printf '%s\\n' "$m";; *) echo ok;; esac"""
_SEAL: Final = """\
( t=<target>; n=<draft>; mode=<mode>; when=<when>; umask 077; : >>"$n"
if [ -f "$t" ]; then
  [ -n "$mode" ] || mode=$(stat -c %a -- "$t")
  o=$(stat -c %u:%g -- "$t")
  [ "$o" = "$(stat -c %u:%g -- "$n")" ] || chown "$o" "$n"
fi
s=$(sha256sum <"$n")
chmod "${mode:-644}" "$n"
[ -z "$when" ] || touch -d "@$when" "$n" || touch -d "@${when%.*}" "$n"
printf 'ok\\n%s\\n' "$s" )"""
_PUBLISH: Final = """\
( t=<target>; n=<draft>; w=<wanted>
[ -d "$t" ] && no is_directory
if [ -z "$w" ]; then [ -e "$t" ] || [ -L "$t" ] && no conflict
elif [ "$w" != any ]; then
  [ -f "$t" ] || no conflict
  c=$(sha256sum <"$t"); [ "${c%% *}" = "$w" ] || no conflict
fi
m=$(mv -f -- "$n" "$t" 2>&1) || no error "${m##*: }"
echo ok; stat -c <format> -- "$t" )"""
_DISCARD: Final = """\
rm -f -- <draft>
[ -z <made> ] || find <made> -depth -type d -exec rmdir {} \\;"""


@dataclass(slots=True)
class Draft:
    """A file that is being written.

    Attributes:
        shown: The path as the caller named it.
        target: Where it will be, links followed.
        place: Where it is until then.
        made: The topmost directory that was made for it, or nothing.
    """

    operator: Operator
    op: str
    shown: str
    target: bytes
    place: bytes
    made: bytes
    digest: str = ""

    @classmethod
    async def begin(
        cls, operator: Operator, path: str, *, op: str, parents: bool
    ) -> Draft:
        """Make an empty one.

        Raises:
            PathError: Nothing can be written at the path.
            StorageError: The file system refuses.
        """
        answers.check_length(path, op=op)
        name = f".isobox-{secrets.token_hex(8)}"
        code = filled(_BEGIN, path=path, parents=int(parents), name=name)
        answer = answers.check(await operator.ask(code), op=op, path=path)
        told = answer.split(b"\0")
        if len(told) != 3 or not told[1].endswith(b"/" + name.encode()):
            raise ProtocolError("the shell inside writes something else")
        target, place, made = told
        return cls(operator, op, path, target, place, made)

    async def add(self, data: bytes) -> None:
        """Append to it.

        Raises:
            StorageError: The file system is full.
        """
        for at in range(0, len(data), PIECE):
            piece = data[at : at + PIECE]
            await self.operator.tell(filled(_ADD, size=len(piece), draft=self.place))
            await self.operator.send(piece)
            answer = await self.operator.rest()
            answers.check(answer, op=self.op, path=self.shown)

    async def seal(
        self, digest: str, *, mode: int | None, mtime_ns: int | None
    ) -> None:
        """Give it mode, owner and time, and see that it is what was sent.

        Raises:
            ProtocolError: It is not.
        """
        when = "" if mtime_ns is None else _seconds(mtime_ns)
        code = filled(
            _SEAL,
            target=self.target,
            draft=self.place,
            mode="" if mode is None else f"{mode:o}",
            when=when,
        )
        answer = answers.check(
            await self.operator.ask(code), op=self.op, path=self.shown
        )
        # SAFETY: what came through is compared, not believed.
        if answers.digest_in(answer) != digest:
            raise ProtocolError("the shell inside wrote something else")
        self.digest = digest

    async def publish(self, if_match: str | None) -> Entry:
        """Put it in the place of what is there.

        Raises:
            ConflictError: `if_match` is not the digest of that.
            StorageError: The file system refuses.
        """
        nonce = secrets.token_hex(8)
        code = filled(
            _PUBLISH,
            target=self.target,
            draft=self.place,
            wanted="any" if if_match is None else if_match.lower(),
            format=answers.FORMAT.format(nonce),
        )
        answer = answers.check(
            await self.operator.ask(code), op=self.op, path=self.shown
        )
        found = answers.records(answer, nonce)
        if len(found) != 1:
            raise ProtocolError("the shell inside describes something else")
        return answers.entry(found[0], self.shown, self.digest)


@contextlib.asynccontextmanager
async def drafting(
    operators: Operators, operator: Operator, path: str, *, op: str, parents: bool
) -> AsyncGenerator[Draft]:
    """Have a draft; unless it is published, nothing of it stays."""
    draft = await Draft.begin(operator, path, op=op, parents=parents)
    try:
        yield draft
    except BaseException:
        with anyio.CancelScope(shield=True), contextlib.suppress(SandboxLostError):
            if not operator.free:
                await operators.end(operator)
            await discard(operators, draft)
        raise


async def discard(operators: Operators, draft: Draft) -> None:
    """Remove a draft and the directories that were made for it."""
    async with operators.one(spare=True) as operator:
        await operator.ask(filled(_DISCARD, draft=draft.place, made=draft.made))


class Counted:
    """The digest and the size of what passes."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.size = 0

    def add(self, data: bytes) -> None:
        """Take a piece."""
        self._digest.update(data)
        self.size += len(data)

    @property
    def digest(self) -> str:
        """Of all that has passed, in hex."""
        return self._digest.hexdigest()


def _seconds(mtime_ns: int) -> str:
    whole, fraction = divmod(mtime_ns, 10**9)
    return f"{whole}.{fraction:09}" if fraction else str(whole)
