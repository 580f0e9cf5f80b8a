"""Programs that only run another program: which words are that program."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.options import Option, split, strange
from isobox._policy.shell.words import Word, literal
from isobox._policy.shell.wrapper_table import WRAPPERS, Wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._policy.shell.reading import Call, Reading

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)


_MACHINE: Final = re.compile(
    r"linux(?:32|64)|i[3-6]86|x86_64|athlon|uname26|aarch64|ia64"
    r"|(?:ppc|powerpc|sparc|s390|mips|alpha|arm|parisc|riscv|loongarch)\w*"
)
#: Options after the operands whose value a shell reads: `flock FILE -c SCRIPT`.
_SCRIPTS: Final = frozenset({"-c", "--command"})
#: Wrappers that hand their words to a shell, joined by blanks.
_JOINS: Final = frozenset({"watch"})
#: Options of `xargs` whose value, or `{}`, is replaced with what it reads.
_MARKS: Final = frozenset({"I", "i", "--replace"})


def peel(call: Call, reading: Reading) -> Call | None:
    """What a wrapper runs, or None where it runs nothing that is named."""
    name = call.name or ""
    wrapper = WRAPPERS[call.kind]
    options, at = split(call.arguments, wrapper.options)
    _note(name, wrapper, options, call, reading)
    words = list(call.arguments[at:])
    assignments = list[tuple[str, str | None]]()
    if wrapper.assigns:
        assignments, words = _assigned(words)
    if call.kind == "setarch":
        words = _without_machine(words, call, reading)
    words = words[wrapper.operands :]
    if words and wrapper.operands and words[0].text in _SCRIPTS:
        join(call, words[1:2], reading)
        return call.inner(())
    given = {each.name for each in options}
    if call.kind == "env" and given & wrapper.scripts and words:
        reading.doubt("env puts words of its own before a command")
    if given & (wrapper.looks_up | wrapper.edits):
        if given & wrapper.edits:
            reading.doubt(f"{name} starts an editor")
        return None
    if call.kind == "xargs":
        words = _with_input(options, words)
    if call.kind in _JOINS and not given & {"x", "--exec"} and words:
        join(call, words, reading)
        return call.inner((), tuple(assignments))
    if not words:
        _alone(call, wrapper.shells & given, assignments, reading)
        return None
    return call.inner(words, tuple(assignments))


def _alone(
    call: Call,
    shells: frozenset[str],
    assignments: Sequence[tuple[str, str | None]],
    reading: Reading,
) -> None:
    if shells:
        reading.doubt(f"{call.name} starts a shell")
    for variable, value in assignments:
        reading.steer(variable, value)


def _without_machine(words: list[Word], call: Call, reading: Reading) -> list[Word]:
    """`setarch` takes the name of a machine before its options, and need not."""
    if not words or not _MACHINE.fullmatch(words[0].text):
        return words
    wrapper = WRAPPERS[call.kind]
    more, at = split(words[1:], wrapper.options)
    _note(call.name or "", wrapper, more, call, reading)
    return words[1 + at :]


def _note(
    name: str, wrapper: Wrapper, options: Sequence[Option], call: Call, reading: Reading
) -> None:
    for each in options:
        if not each.known:
            reading.doubt(strange(name, each))
        if each.name in wrapper.scripts:
            hand_on(call, each.value, reading)
        if each.name in wrapper.writes and each.value is not None:
            reading.writes.append(None if each.value.dynamic else each.value.text)
            if each.value.text.startswith(("|", "!")):
                reading.doubt(f"{name} runs a command on its output")


def _assigned(
    words: Sequence[Word],
) -> tuple[list[tuple[str, str | None]], list[Word]]:
    found = list[tuple[str, str | None]]()
    for at, word in enumerate(words):
        match = _ASSIGNMENT.fullmatch(word.text)
        if match is None and word.text != "-":
            return found, list(words[at:])
        if match is not None:
            found.append((match[1], None if word.dynamic else match[2]))
    return found, []


def _with_input(options: Sequence[Option], words: Sequence[Word]) -> list[Word]:
    """What `xargs` runs: its input becomes arguments, or replaces a mark."""
    if not words:
        return [literal("echo"), Word("", dynamic=True)]
    given = [o.value or literal("{}") for o in options if o.name in _MARKS]
    if not given:
        return [*words, Word("", dynamic=True)]
    if any(each.dynamic or not each.text for each in given):
        return [each.unknown() for each in words]
    for mark in (each.text for each in given):
        words = [each.filled(mark) if mark in each.text else each for each in words]
    return list(words)


def join(call: Call, words: Sequence[Word], reading: Reading) -> None:
    """Words that a program joins by blanks and hands to a shell."""
    if any(each.dynamic for each in words):
        reading.doubt(f"{call.name} runs a command that only running it tells")
    else:
        text = " ".join(each.text for each in words)
        reading.script(text, (*call.through, call.name or ""))


def hand_on(call: Call, word: Word | None, reading: Reading) -> None:
    """A word that a program hands to a shell."""
    join(call, [] if word is None else [word], reading)
