"""Commands of the shell itself that run text, or change what text means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.interpreters import is_stream
from isobox._policy.shell.names import listed
from isobox._policy.shell.options import values
from isobox._policy.shell.variables import names_in
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
    join(call, call.arguments, reading)


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
    """`read`, `mapfile`, `getopts`, `printf -v`, `declare`: names are set."""
    name = call.name or ""
    words = list(call.arguments)
    if name == "printf":
        words = list(values(words[:2], frozenset({"-v"})))
    elif name in ("mapfile", "readarray"):
        for callback in values(words, frozenset({"-C"})):
            hand_on(call, callback, reading)
    for word in words:
        _set_name(name, word.text, word.dynamic, reading)


def _set_name(program: str, text: str, dynamic: bool, reading: Reading) -> None:
    name, equals, value = text.partition("=")
    if _NAME.fullmatch(name):
        if program != "unset" or name != text:
            reading.assign(name, value if equals and not dynamic else None)
        else:
            reading.assign(name, "")
    elif text.startswith("-"):
        if program in _DECLARES and set(text) & set("nif"):
            reading.doubt(f"{program} {text} changes what a name means")
    elif dynamic or "[" in text:
        reading.doubt(f"{program} sets a variable that only running it tells")


def _test(call: Call, reading: Reading) -> None:
    for word in call.arguments:
        if "[" in word.text and re.search(r"[$`]", word.text):
            reading.doubt("tests a name that may hold a command")
    if any(re.fullmatch(r"-(eq|ne|lt|le|gt|ge)", w.text) for w in call.arguments):
        for word in call.arguments:
            reading.variables.sums |= names_in(word.text)


def _let(call: Call, reading: Reading) -> None:
    for word in call.arguments:
        reading.variables.sums |= names_in(word.text)
        if re.search(r"[$`\[]", word.text):
            reading.doubt("calculates with text that may hold a command")


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
    "alias": _alias,
    "bind": _opaque,
    "compgen": _options("CFW"),
    "complete": _opaque,
    "declare": _assigns,
    "enable": _options("fn"),
    "eval": _eval,
    "export": _assigns,
    "fc": _opaque,
    "getopts": _assigns,
    "hash": _options("p"),
    "history": _options("psanrw"),
    "jobs": _options("x"),
    "let": _let,
    "local": _assigns,
    "mapfile": _assigns,
    "printf": _assigns,
    "read": _assigns,
    "readarray": _assigns,
    "readonly": _assigns,
    "set": _set,
    "shopt": _shopt,
    "source": _source,
    "test": _test,
    "trap": _trap,
    "typeset": _assigns,
    "unset": _assigns,
}
