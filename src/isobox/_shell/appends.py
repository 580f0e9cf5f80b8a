"""Whole lines, added to the end of a file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import anyio

from isobox._core.ops import Scan
from isobox._guest import agent
from isobox._shell import answers
from isobox._shell.answers import refused
from isobox._shell.bodies import pieces_of
from isobox._shell.drafts import Draft
from isobox._shell.listing import described
from isobox._shell.quote import encoded, filled
from isobox._shell.readings import opened
from isobox.errors import ProtocolError

if TYPE_CHECKING:
    from isobox._core.ops import Write
    from isobox._core.results import Entry
    from isobox._shell.operators import Operator, Operators

_APPEND: Final = """\
( umask 022; p=<path>; d=${p%/*}; d=${d:-/}; mode=<mode>
[ -L "$p" ] && no not_regular
[ -d "$p" ] && no is_directory
[ -e "$p" ] && [ ! -f "$p" ] && no not_regular
if [ ! -d "$d" ]; then
  [ -e "$d" ] && no not_directory
  [ <parents> = 1 ] || why "$d"
  m=$(mkdir -p -- "$d" 2>&1) || no error "${m##*: }"
fi
if [ ! -e "$p" ]; then
  m=$( ( : >"$p" ) 2>&1 ) || no error "${m##*: }"
  [ -z "$mode" ] || chmod "$mode" "$p"
fi
[ -w "$p" ] || no access
printf 'ok %s %d\\n' "$(stat -c %s -- "$p")" $(tail -c 1 "$p" | wc -l) )"""
_TRUNCATE: Final = "dd if=/dev/null of=<path> bs=1 seek=<size> count=0"


async def append(operators: Operators, op: Write) -> Entry:
    """Add lines to the end of a file, all of them or none.

    Who calls it sees to it that nobody else does meanwhile.

    Raises:
        InvalidArgumentError: There is too much, or the file is not of lines.
        PathError: The file cannot be written.
    """
    body = b"".join([piece async for piece in pieces_of(op.body)])
    if len(body) > agent.LARGEST_APPEND:
        raise refused(
            "invalid", op.path, "more than 16 MiB to append at once", op="write"
        )
    async with operators.one() as operator:
        size = await _lines_end(operators, operator, op)
        place = encoded(op.path)
        try:
            await Draft(operator, "write", op.path, place, place, b"").add(body)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await _truncate(operators, op.path, size)
            raise
        return await described(operator, Scan(path=op.path, depth=0))


async def _lines_end(operators: Operators, operator: Operator, op: Write) -> int:
    """Return where the last whole line of a file ends; nothing is behind it."""
    answers.check_length(op.path, op="write")
    code = filled(
        _APPEND,
        path=op.path,
        mode="" if op.mode is None else f"{op.mode:o}",
        parents=int(op.parents),
    )
    answer = await operator.ask(code)
    answers.check(answer, op="write", path=op.path)
    told = re.fullmatch(rb"ok (\d{1,18}) ([01])\n", answer)
    if told is None:
        raise ProtocolError("the shell inside did not say how long a file is")
    size = int(told[1])
    if not size or told[2] == b"1":
        return size
    begin = max(0, size - agent.LARGEST_APPEND)
    last = await _part(operators, op.path, begin, size - begin)
    end = last.rfind(b"\n") + 1
    if not end and begin:
        raise refused(
            "invalid", op.path, "the file to append to is not of lines", op="write"
        )
    await _truncate(operators, op.path, begin + end)
    return begin + end


async def _part(operators: Operators, path: str, offset: int, length: int) -> bytes:
    reading, _ = await opened(operators, path, offset=offset, length=length, op="write")
    async with reading:
        return await reading.read()


async def _truncate(operators: Operators, path: str, size: int) -> None:
    async with operators.one(spare=True) as operator:
        await operator.ask(filled(_TRUNCATE, path=path, size=size))
