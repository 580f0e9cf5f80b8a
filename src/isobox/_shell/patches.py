"""Several files changed together, all or none."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from isobox._core.results import Patched
from isobox._guest import agent
from isobox._shell import answers
from isobox._shell.answers import refused
from isobox._shell.drafts import Draft, discard
from isobox._shell.quote import decoded, filled
from isobox._shell.readings import content
from isobox.errors import PathMissingError, ProtocolError

if TYPE_CHECKING:
    from isobox._core.ops import Patch
    from isobox._core.patch import FileChange
    from isobox._core.results import Entry
    from isobox._shell.operators import Operator, Operators

#: Bytes of one file, and of the files of one patch together.
LARGEST: Final = 64 << 20
_TOGETHER: Final = 256 << 20
#: Where a name really is: links are followed, but for the last if it is to stay.
_PLACE: Final = """\
( p=<path>
if [ <follow> = 1 ]; then real "$p"; else
  d=${p%/*}; d=${d:-/}; q=$d
  while [ ! -d "$q" ]; do [ -e "$q" ] && no not_directory; q=${q%/*}; q=${q:-/}; done
  real "$q"; t=${t%/}${d#"${q%/}"}/${p##*/}
fi
if [ -e "$t" ] || [ -L "$t" ]; then x=1; else x=0; fi
if [ $x = 1 ] && [ <follow> = 0 ] && [ -L "$t" ]; then x=2; fi
m=$(stat -c %a -- "$t" 2>/dev/null)
printf 'ok\\n%s\\0%s\\0%s' "$t" $x "${m:-644}" )"""
_SAVE: Final = """\
( t=<target>; b=<backup>
c=$(sha256sum <"$t"); [ "${c%% *}" = <digest> ] || no conflict
m=$(<how> -- "$t" "$b" 2>&1) || no error "${m##*: }"
echo ok )"""
_UNDO: Final = "mv -f -- <backup> <target>"
_REMOVE: Final = "rm -f -- <path>"


@dataclass(slots=True)
class Held:
    """What a file holds while a patch goes over it; no content once it is gone.

    Attributes:
        target: Where it really is.
        shown: The name under which it is told of.
        before: The digest of what was there, or None.
        content: What it is to hold.
        mode: Permission bits.
        taken: Whether the name is in use now.
    """

    target: bytes
    shown: str
    before: str | None
    content: bytes | None
    mode: int
    taken: bool


class Patching:
    """One patch.

    Args:
        operators: The sandbox's shells.
        operator: The one that writes.
        op: What is to change.
    """

    def __init__(self, operators: Operators, operator: Operator, op: Patch) -> None:
        self._operators = operators
        self._operator = operator
        self._op = op
        self._held: dict[bytes, Held] = {}
        self._drafts: list[tuple[Held, Draft]] = []
        self._backups: list[tuple[bytes, bytes]] = []
        self._published: list[tuple[bytes, bytes]] = []

    async def perform(self) -> Patched:
        """Read and match everything, then write it.

        Raises:
            EditMismatchError: A hunk is not in its file.
            ConflictError: A file changed meanwhile.
            PathError: A file is not there, or is.
        """
        for change in self._op.changes:
            await self._match(change)
        gone = [each for each in self._held.values() if each.content is None]
        gone = [each for each in gone if each.before is not None]
        try:
            entries = await self._write()
            for held in gone:
                await self._save(held, move=True)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._undo()
            raise
        for backup, _ in self._backups:
            await self._operator.ask(filled(_REMOVE, path=backup))
        return Patched(tuple(entries), tuple(each.shown for each in gone))

    async def _match(self, change: FileChange) -> None:
        to = change.target or change.path
        moves = to != change.path
        adds = change.kind == "add"
        follow = change.kind == "update" and not moves
        source = await self._hold(change.path, follow=follow)
        if adds and source.taken:
            raise refused("exists", change.path, op="patch")
        if not adds and source.content is None:
            raise PathMissingError(
                f"there is nothing at {change.path!r}", op="patch", path=change.path
            )
        text = _patched(change, b"" if adds else source.content or b"")
        if change.kind == "delete":
            source.content, source.taken = None, False
            return
        target = source
        if moves:
            target = await self._hold(to, follow=False)
            if target.taken:
                raise refused("exists", to, op="patch")
            target.mode = source.mode
            source.content, source.taken = None, False
        target.content, target.taken = text, True
        if change.mode is not None:
            target.mode = change.mode
        if sum(len(each.content or b"") for each in self._held.values()) > _TOGETHER:
            raise refused(
                "invalid", change.path, "the patched files are too large", op="patch"
            )

    async def _hold(self, path: str, *, follow: bool) -> Held:
        code = filled(_PLACE, path=path, follow=int(follow))
        answer = answers.check(await self._operator.ask(code), op="patch", path=path)
        target, _, rest = answer.partition(b"\0")
        there, _, mode = rest.partition(b"\0")
        if not target.startswith(b"/") or there not in (b"0", b"1", b"2"):
            raise ProtocolError("the shell inside patches something else")
        if target not in self._held:
            self._held[target] = await self._read(target, path, there, mode)
        held = self._held[target]
        held.shown = path
        return held

    async def _read(self, target: bytes, path: str, there: bytes, mode: bytes) -> Held:
        if there == b"0":
            return Held(target, path, None, None, 0o644, taken=False)
        if there == b"2":
            return Held(target, path, None, None, 0o644, taken=True)
        pieces = content(self._operators, decoded(target), op="patch", most=LARGEST)
        data = b"".join([piece async for piece in pieces])
        bits = int(mode, 8) & 0o777 if mode.isdigit() else 0o644
        digest = hashlib.sha256(data).hexdigest()
        return Held(target, path, digest, data, bits, taken=True)

    async def _write(self) -> list[Entry]:
        for held in self._held.values():
            if held.content is not None:
                draft = await Draft.begin(
                    self._operator, decoded(held.target), op="patch", parents=True
                )
                self._drafts.append((held, draft))
                draft.shown = held.shown
                await draft.add(held.content)
                digest = hashlib.sha256(held.content).hexdigest()
                await draft.seal(digest, mode=held.mode, mtime_ns=None)
        return [await self._publish(held, draft) for held, draft in self._drafts]

    async def _publish(self, held: Held, draft: Draft) -> Entry:
        if held.before is not None:
            await self._save(held, move=False)
        found = await draft.publish(held.before or "")
        self._published.append((held.target, draft.place))
        return found

    async def _save(self, held: Held, *, move: bool) -> None:
        backup = held.target.rpartition(b"/")[0] + b"/.isobox-"
        backup += secrets.token_hex(8).encode()
        code = filled(
            _SAVE.replace("<how>", "mv -f" if move else "ln"),
            target=held.target,
            backup=backup,
            digest=held.before or "",
        )
        answers.check(await self._operator.ask(code), op="patch", path=held.shown)
        self._backups.append((backup, held.target))

    async def _undo(self) -> None:
        async with self._operators.one(spare=True) as operator:
            saved = {target for _, target in self._backups}
            for target, _ in reversed(self._published):
                if target not in saved:
                    await operator.ask(filled(_REMOVE, path=target))
            for backup, target in reversed(self._backups):
                await operator.ask(filled(_UNDO, backup=backup, target=target))
        for _, draft in reversed(self._drafts):
            await discard(self._operators, draft)


def _patched(change: FileChange, data: bytes) -> bytes:
    hunks = [
        {
            "body": "\n".join(hunk.body),
            "line": hunk.line,
            "anchors": list(hunk.anchors),
            "at_end": hunk.at_end,
            "newline": hunk.newline,
        }
        for hunk in change.hunks
    ]
    try:
        data = agent.patched(data, hunks) if hunks else data
    except agent.Refused as no:
        raise refused(no.code, change.path, no.message, op="patch") from None
    if change.kind == "delete" and hunks and data:
        raise refused(
            "hunk",
            change.path,
            "the file holds more than the patch removes",
            op="patch",
        )
    return data
