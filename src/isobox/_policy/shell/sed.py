"""sed: whether a script of it only changes what it reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.options import Options, split

if TYPE_CHECKING:
    from isobox._policy.shell.reading import Call, Reading

#: Characters of the longest script that is read.
_LONGEST: Final = 2_000
_OPTIONS: Final = Options.of(
    "efl --expression --file --line-length",
    "nrEzsubi --quiet --silent --regexp-extended --null-data --in-place --posix"
    " --debug --sandbox --separate --follow-symlinks --version --help",
)
_ADDRESS: Final = r"(?:[0-9]+(?:~[0-9]+)?|\$|/(?:[^/\\\n]|\\.)+/[IM]*)"
_COMMAND: Final = re.compile(
    rf"\s*(?:{_ADDRESS}(?:,(?:{_ADDRESS}|[+~][0-9]+))?\s*!?\s*)?"
    r"(?:[{}pPdDqQnNgGhHxlzF=][0-9]*"
    r"|s(?P<d>[^\\\n\s])(?:(?!(?P=d))[^\\\n]|\\.)*(?P=d)"
    r"(?:(?!(?P=d))[^\\\n]|\\[^\n])*(?P=d)[gpiIM0-9]*"
    r"|y/(?:[^/\\\n]|\\.)*/(?:[^/\\\n]|\\.)*/"
    r"|[aic](?:\\\n|\s)[^\\\n]*)\s*(?:[;\n}]+|$)",
)


def examine(call: Call, reading: Reading) -> None:
    """Note what a script of sed would run or write."""
    arguments = call.arguments
    # In place may carry the ending of the copy: `-i.bak`.
    plain = [w for w in arguments if not re.fullmatch(r"-[nrEszu]*i\S*", w.text)]
    options, at = split(plain, _OPTIONS)
    scripts = [o.value for o in options if o.name in ("e", "--expression")]
    unknown = any(not o.known or o.name in ("f", "--file") for o in options)
    if not scripts and not unknown:
        scripts = [plain[at]] if at < len(plain) else [None]
    later = any(w.may_be_option for w in plain[at + 1 :])
    for script in scripts:
        if script is None or script.dynamic or not _is_plain(script.text):
            unknown = True
    moved = any(w.text.startswith("-") for w in plain[at + 1 :])
    if unknown or later or moved:
        reading.doubt("sed can run commands or write files")


def _is_plain(script: str) -> bool:
    at = 0 if len(script) <= _LONGEST else -1
    while 0 <= at < len(script):
        found = _COMMAND.match(script, at)
        if found is None or found.end() == at:
            return False
        at = found.end()
    return at >= 0
