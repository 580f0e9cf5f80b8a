"""awk: whether a program of it only prints what it reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.options import Options, split
from isobox._policy.shell.streams import names_stream

if TYPE_CHECKING:
    from isobox._policy.shell.reading import Call, Reading

#: Characters of the longest program that is read.
_LONGEST: Final = 2_000
_OPTIONS: Final = Options.of(
    "fFvemiEloWbBLp", "cCghMnNOPrsStV --version --help --posix"
)
_RUNS: Final = re.compile(
    r"\bsystem\b|\bgetline\b|(?<!\|)\|(?!\|)|@\s*(?:load|include)|/inet"
    r"|@\s*[A-Za-z_]\w*|\bprintf?\b[^;}\n]*>"
)
#: Even in a string, whose text may become a program's.
_NAMED: Final = re.compile(r"\bsystem\b|\bgetline\b|/inet|@")
_SYSTEM: Final = re.compile(r'\bsystem\s*\(\s*"((?:[^"\\]|\\.)*)"\s*\)')
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"', re.DOTALL)
#: A bracket in it may hold a slash or a quote: that is not read.
_PATTERN: Final = re.compile(r'/(?:[^/\\\n\["]|\\.|\[[^\]/\\"\n]+\])*/')
_COMMENT: Final = re.compile(r"#[^\n]*")
_JOINED: Final = re.compile(r"\\\n|(?<=[,{&|?:])\s*\n|\b(?:do|else)\s*\n")
#: After these, a slash opens a pattern rather than divides.
_BEFORE_PATTERN: Final = re.compile(
    r"(?:[(,{};!~&|=\n?:+\-*%<>^]|\b(?:print|printf|return|in|do|else|exit|case))$"
)


def examine(call: Call, reading: Reading) -> None:
    """Note what a program of awk would run or write."""
    options, at = split(call.arguments, _OPTIONS)
    name = call.name or ""
    if any(not o.known or o.name in "feEilW" for o in options):
        reading.doubt(f"{name} runs a program that is not read")
        return
    if at >= len(call.arguments) or call.arguments[at].dynamic:
        reading.doubt(f"{name} runs a program that only running it tells")
        return
    program = call.arguments[at].text
    if len(program) > _LONGEST or names_stream(program):
        reading.doubt(f"{name} can run commands or write files")
        return
    bare = _bare(program)
    if bare is None or _RUNS.search(bare) or _NAMED.search(program):
        reading.doubt(f"{name} can run commands or write files")
    for found in _SYSTEM.finditer(program):
        text = re.sub(r"\\(.)", r"\1", found[1])
        reading.script(text, (*call.through, name))


def _bare(program: str) -> str | None:
    """A program without what its strings, patterns and comments hold."""
    program = program.replace("\\\n", " ")
    found = ""
    at = 0
    while at < len(program):
        piece = _quoted(program, at, found)
        if piece is None:
            return None
        if piece:
            found += piece[0] * 2 if piece[0] != "#" else ""
            at += len(piece)
        else:
            found += program[at]
            at += 1
    return _JOINED.sub(" ", found)


def _opens(before: str) -> bool:
    last = before.rstrip(" \t")
    if last.endswith(("++", "--")):
        return False
    return not last or _BEFORE_PATTERN.search(last[-10:]) is not None


def _may_open(before: str) -> bool:
    """After these, what came before may be divided, or be over."""
    return before.rstrip(" \t").endswith((")", "++", "--"))


def _quoted(program: str, at: int, before: str) -> str | None:
    """What is quoted there; nothing where nothing is, None where none can tell."""
    sign = program[at]
    if sign == '"':
        match = _STRING.match(program, at)
    elif sign == "/" and _opens(before):
        match = _PATTERN.match(program, at)
    elif sign == "/" and _may_open(before) and "/" in program[at + 1 :]:
        return None
    elif sign == "#":
        match = _COMMENT.match(program, at)
    else:
        return ""
    return None if match is None else match[0]
