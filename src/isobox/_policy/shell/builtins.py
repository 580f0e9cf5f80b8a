"""Commands of the shell itself that run text, or change what text means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.arithmetic import calculate
from isobox._policy.shell.conditions import check_words, expect_words
from isobox._policy.shell.names import listed
from isobox._policy.shell.options import Options, split, values
from isobox._policy.shell.streams import is_stream
from isobox._policy.shell.variables import COUNTERS, Assigned
from isobox._policy.shell.wrappers import hand_on, join

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._policy.shell.reading import Call, Reading
    from isobox._policy.shell.words import Word

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_HARMLESS_SET: Final = re.compile(r"[-+][euxCfhmvET]*o?")
_HARMLESS_OPTIONS: Final = listed(
    "errexit nounset pipefail xtrace verbose noclobber errtrace functrace monitor"
    " noglob notify"
)
_HARMLESS_SHOPT: Final = listed(
    "nullglob globstar dotglob failglob nocaseglob nocasematch lastpipe"
    " inherit_errexit checkwinsize"
)


def _eval(call: Call, reading: Reading) -> None:
    words = call.arguments
    join(call, words[1:] if words and words[0].text == "--" else words, reading)


def _trap(call: Call, reading: Reading) -> None:
    words = [each for each in call.arguments if each.text != "--"]
    if len(words) < 2 or words[0].text in ("-", "-l", "-p", "-P", ""):
        return
    hand_on(call, words[0], reading)


def _source(call: Call, reading: Reading) -> None:
    words = [each for each in call.arguments if each.text != "--"]
    if not words or is_stream(words[0]):
        reading.doubt(f"{call.name} runs a file that only running it tells")


def _alias(call: Call, reading: Reading) -> None:
    if any("=" in each.text or each.dynamic for each in call.arguments):
        reading.doubt("defines an alias")


def _set(call: Call, reading: Reading) -> None:
    named = False
    for word in call.arguments:
        text = word.text
        if text in ("--", "-"):
            return
        harmless = text in _HARMLESS_OPTIONS if named else _is_harmless(word)
        if not harmless:
            reading.doubt("changes how the shell reads scripts")
            return
        named = text[:1] in "+-" and text.endswith("o")


def _is_harmless(word: Word) -> bool:
    if word.may_be_option:
        return False
    return word.text[:1] not in ("-", "+") or bool(_HARMLESS_SET.fullmatch(word.text))


def _shopt(call: Call, reading: Reading) -> None:
    for word in call.arguments:
        if not word.text.startswith("-") and word.text not in _HARMLESS_SHOPT:
            reading.doubt("changes how the shell reads scripts")
            return


def _assigns(call: Call, reading: Reading) -> None:
    """`getopts`, `declare`, `unset` and the like: names are set."""
    for word in call.arguments:
        _set_name(call.name or "", word, reading)


def _declares(call: Call, reading: Reading) -> None:
    if _prints(call):
        return
    _assigns(call, reading)
    flags = "".join(w.text for w in call.arguments if w.text.startswith("-"))
    if call.name != "readonly" and "r" not in flags:
        return
    # It holds that in later scripts too, whatever they assign.
    if any(value is None or "[" in value for _, value in call.assignments):
        reading.doubt("sets for good what only running it tells")


def _prints(call: Call) -> bool:
    """Whether it shows functions and variables, and changes none."""
    words = call.arguments
    flags = {word.text for word in words if word.text.startswith("-")}
    if call.name not in ("declare", "typeset") or call.assignments:
        return False
    plain = all(not word.dynamic and "=" not in word.text for word in words)
    return plain and bool(flags) and flags <= {"-f", "-F", "-p"}


def _printf(call: Call, reading: Reading) -> None:
    first = call.arguments[:1]
    if first and first[0].may_be_option:
        expect_words(first[0], reading)
    for word in values(call.arguments[:2], frozenset({"-v"})):
        _set_name("printf", word, reading)


_READ: Final = Options.of("adinNptu", "ers")
_MAPFILE: Final = Options.of("dnOsuCc", "t")


def _read(call: Call, reading: Reading) -> None:
    options, at = split(call.arguments, _READ)
    names = [each.value for each in options if each.name == "a"]
    for word in [*names, *call.arguments[at:]]:
        if word is not None:
            _set_name("read", word, reading)


def _mapfile(call: Call, reading: Reading) -> None:
    options, at = split(call.arguments, _MAPFILE)
    for each in options:
        if each.name == "C":
            hand_on(call, each.value, reading)
    for word in call.arguments[at:]:
        _set_name(call.name or "", word, reading)


def _wait(call: Call, reading: Reading) -> None:
    for word in call.arguments:
        if word.dynamic:
            expect_words(word, reading)
    for word in values(call.arguments, frozenset({"-p"})):
        _set_name("wait", word, reading)


def _set_name(program: str, word: Word, reading: Reading) -> None:
    text = word.text
    name, equals, value = text.partition("=")
    if _NAME.fullmatch(name):
        _named(program, name, value if equals and not word.dynamic else None, reading)
    elif text.startswith("-"):
        if program in _DECLARES and set(text) & set("nif"):
            reading.doubt(f"{program} {text} changes what a name means")
    elif word.dynamic or "[" in text:
        reading.doubt(f"{program} sets a variable that only running it tells")


def _named(program: str, name: str, value: str | None, reading: Reading) -> None:
    if program in _DECLARES and value is None:
        reading.steer(name, None)
        return
    if value.startswith("(") if value else False:
        reading.doubt(f"{program} reads a list in text, which may hold a command")
    reading.assign(Assigned(name, value))
    if program == "unset" and name in COUNTERS:
        reading.doubt(f"unset {name} makes another variable of it")


def _test(call: Call, reading: Reading) -> None:
    words = call.arguments
    ends = call.name == "[" and words and words[-1].text == "]"
    check_words(words[:-1] if ends else words, reading)


def _let(call: Call, reading: Reading) -> None:
    for word in call.arguments:
        if word.dynamic:
            reading.doubt("calculates with what only running it tells")
        for note in calculate(word.text, (), reading):
            note()


def _opaque(call: Call, reading: Reading) -> None:
    reading.doubt(f"{call.name} changes or runs what is not in the script")


def _options(letters: str) -> Callable[[Call, Reading], None]:
    def examine(call: Call, reading: Reading) -> None:
        for word in call.arguments:
            if word.may_be_option or (
                word.text.startswith("-") and set(word.text[1:]) & set(letters)
            ):
                _opaque(call, reading)
                return

    return examine


_DECLARES: Final = frozenset({"declare", "export", "local", "readonly", "typeset"})

EXAMINED: Final[dict[str, Callable[[Call, Reading], None]]] = {
    ".": _source,
    "[": _test,
    "alias": _alias,
    "bind": _opaque,
    "compgen": _options("CFW"),
    "complete": _opaque,
    "declare": _declares,
    "enable": _options("fn"),
    "eval": _eval,
    "export": _declares,
    "fc": _opaque,
    "getopts": _assigns,
    "hash": _options("p"),
    "history": _options("psanrw"),
    "jobs": _options("x"),
    "let": _let,
    "local": _declares,
    "mapfile": _mapfile,
    "printf": _printf,
    "read": _read,
    "readarray": _mapfile,
    "readonly": _declares,
    "set": _set,
    "shopt": _shopt,
    "source": _source,
    "test": _test,
    "trap": _trap,
    "typeset": _declares,
    "unset": _assigns,
    "wait": _wait,
}
