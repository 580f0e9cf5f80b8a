"""Text that a shell calculates with, where a subscript can hold a command.

`x='a[$(id)]'; echo $((x))` runs `id`, and so do `[[ $x -eq 1 ]]` and `${a[$x]}`.
What is calculated with is therefore a number for certain, or in doubt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from isobox._policy.shell.reading import Reading

#: Stands for an expansion within an expression.
HOLE: Final = "\0"
_PLAIN: Final = re.compile(r"[\w\s+\-*/%<>=!&|^~?:,().#\[\]@\0]*", re.ASCII)
_QUOTES: Final = {ord(each): None for each in "\"'"}
#: An expansion that is a part of a name, or of another expansion.
_PASTED: Final = re.compile(r"\w\0|\0[\w\0\[]", re.ASCII)
_TOKEN: Final = re.compile(
    r"0[xX][0-9a-fA-F]+|[0-9]+#[\w@]*|[0-9]\w*|([A-Za-z_]\w*)", re.ASCII
)
_TARGET: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)", re.ASCII)
_BRANCHES: Final = re.compile(r"[(?]|&&|\|\|")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
#: The value of a variable, or of one in a list.
NAMED: Final = re.compile(
    r"\$([A-Za-z_]\w*)|\$\{([A-Za-z_]\w*)(?:\[[^\[\]{}]*\])?\}", re.ASCII
)
_COUNT: Final = re.compile(r"\$[#?$!]|\$\{#(?:\w+(?:\[[^\[\]{}]*\])?)?\}", re.ASCII)

_WORD: Final = r"(?:[\w./:=+-]+|'[^'\n]*'|\"[^\"$`\\\n]*\")"
#: Commands that print a number and nothing else, at the end of a pipeline.
_COUNTING: Final = re.compile(
    r"\$\((?:(?:[^;&|\n`()<>{}#\\]|2>(?:/dev/null|&1))+\|)*\s*"
    r"(?:nproc(?:\s+--all)?|wc\s+-[lwcm]|date\s+\+%s|id\s+-[ug]"
    r"|seq(?:\s+-?[0-9]{1,9}){1,3}"
    rf"|grep\s+-[ciEFwxv]*c[ciEFwxv]*\s+{_WORD}(?:\s+{_WORD})?)"
    r"(?:\s+2>/dev/null|\s*<\s*[\w./-]+|\s*<\s*\"\$\w+\")*\s*\)",
    re.ASCII,
)
#: Characters of the longest command that is compared to these.
_LONGEST: Final = 500


def is_number(text: str) -> bool:
    """Whether a text is a number, or is nothing."""
    return not text or _NUMBER.fullmatch(text) is not None


def counts(written: str) -> bool:
    """Whether an expansion, as written, is a number for certain."""
    if written.startswith(("$((", "$[")):
        return True
    if _COUNT.fullmatch(written):
        return True
    return len(written) <= _LONGEST and _COUNTING.fullmatch(written) is not None


def variable(written: str) -> str | None:
    """The variable of which an expansion, as written, is the value."""
    found = NAMED.fullmatch(written)
    return None if found is None else found[1] or found[2]


def calculate(
    text: str, holes: Sequence[str], reading: Reading
) -> list[Callable[[], None]]:
    """Note what an expression is calculated with.

    Args:
        text: The expression, with a `HOLE` for each expansion.
        holes: The expansions as written, in their order.
        reading: What has been read so far.

    Returns:
        What is to be noted once all of it was looked at: the variables that it
        sets, which are numbers from then on.
    """
    expression = text.translate(_QUOTES)
    if not _PLAIN.fullmatch(expression) or _PASTED.search(expression):
        reading.doubt("calculates with text that may hold a command")
        return []
    for each in holes:
        _operand(each, reading)
    # Behind a condition, it may not come to a second one.
    once = _BRANCHES.search(expression) is not None
    pieces = [expression] if once else expression.split(",")
    noted = list[re.Match[str]]()
    for piece in pieces:
        target = _TARGET.match(piece)
        if target is not None:
            noted.append(target)
        at = 0 if target is None else target.end()
        for found in _TOKEN.finditer(piece, at):
            if found[1]:
                listed = piece[found.end() :].lstrip().startswith("[")
                reading.variables.calculate(found[1], listed=listed)
    names = [target[1] for target in noted]
    for name in names:
        reading.steer(name, None)
    return [reading.variables.sure(name) for name in names]


def _operand(written: str, reading: Reading) -> None:
    name = variable(written)
    if name is not None:
        reading.variables.calculate(name, listed=written.endswith("]}"))
    elif not counts(written):
        reading.doubt("calculates with what only running it tells")
