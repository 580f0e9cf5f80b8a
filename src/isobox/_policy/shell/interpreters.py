"""Programs that run code: shells, Python, and others that are not read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.options import Options, split, strange
from isobox._policy.shell.wrappers import hand_on

if TYPE_CHECKING:
    from isobox._policy.shell.reading import Call, Reading
    from isobox._policy.shell.words import Word

_LIKE_BASH: Final = frozenset({"ash", "bash", "dash", "rbash", "sh"})
SHELLS: Final = _LIKE_BASH | {
    "csh",
    "fish",
    "ksh",
    "ksh93",
    "mksh",
    "nu",
    "pwsh",
    "tcsh",
    "xonsh",
    "yash",
    "zsh",
}
_SHELL: Final = Options.of(
    "oO --rcfile --init-file",
    "abcefhiklmnprstuvxBCDEHPT --login --posix --norc --noprofile --restricted"
    " --verbose --noediting --version --help",
)
_PYTHON: Final = re.compile(r"(?:python|pypy)[0-9.]*")
_PYTHON_OPTIONS: Final = Options.of(
    "cmWXQ --check-hash-based-pycs", "bBdEhiIOPqRsSuvVx? --version --help"
)
#: Interpreters whose code is not read, and the letters and names that hold it.
_OTHERS: Final[dict[str, tuple[str, frozenset[str]]]] = {
    "bun": ("e", frozenset({"--eval", "--print"})),
    "deno": ("", frozenset({"eval", "repl"})),
    "expect": ("c", frozenset()),
    "groovy": ("e", frozenset()),
    "julia": ("eE", frozenset({"--eval", "--print"})),
    "lua": ("e", frozenset()),
    "luajit": ("e", frozenset()),
    "node": ("ep", frozenset({"--eval", "--print", "--require", "--import", "-r"})),
    "nodejs": ("ep", frozenset({"--eval", "--print", "--require", "--import", "-r"})),
    "osascript": ("e", frozenset()),
    "perl": ("eEdM", frozenset()),
    "php": ("rBRE", frozenset({"--run"})),
    "Rscript": ("e", frozenset()),
    "ruby": ("er", frozenset()),
    "tclsh": ("", frozenset()),
}
_ASKS: Final = frozenset({"--version", "--help", "-V", "-v", "-h"})
_STREAMS: Final = re.compile(r"-|/dev/(?:stdin|fd/.*|tty)|/proc/[^/]*/fd/.*")


def is_stream(word: Word) -> bool:
    """Whether a file name is not that of a file, or may not be."""
    return word.dynamic or _STREAMS.fullmatch(word.text) is not None


def shell(call: Call, reading: Reading) -> bool:
    """Read the script that a shell is handed; False where it is in a file."""
    name = call.name or ""
    arguments = [word for word in call.arguments if not word.text.startswith("+")]
    options, at = split(arguments, _SHELL)
    given = {each.name for each in options}
    for each in options:
        if not each.known or each.name in ("--rcfile", "--init-file", "O"):
            reading.doubt(strange(name, each))
    if given & {"--version", "--help"}:
        return False
    if name not in _LIKE_BASH:
        reading.doubt(f"{name} reads scripts in a language of its own")
    operand = arguments[at] if at < len(arguments) else None
    if "c" in given:
        hand_on(call, operand, reading)
        return operand is None or not operand.dynamic
    if operand is None or "s" in given:
        reading.doubt(f"{name} runs what it reads on its standard input")
        if call.given is not None:
            reading.script(call.given, (*call.through, name))
    elif is_stream(operand):
        reading.doubt(f"{name} runs a script that only running it tells")
    return False


def examines(name: str) -> bool:
    """Whether a program runs code in another language."""
    return name in _OTHERS or _PYTHON.fullmatch(name) is not None


def examine(call: Call, reading: Reading) -> None:
    """Read Python code; note that other code is not read."""
    name = call.name or ""
    if name in _OTHERS:
        _other(name, call, reading)
    else:
        _python(call, reading)


def _python(call: Call, reading: Reading) -> None:
    name = call.name or ""
    arguments = call.arguments
    # What follows `-c` and its code, or `-m` and its name, is the program's own.
    options, at = split(arguments, _PYTHON_OPTIONS)
    for each in options:
        if not each.known:
            reading.doubt(strange(name, each))
        if each.name == "c":
            _python_code(
                name,
                None if each.value is None or each.value.dynamic else each.value.text,
                reading,
            )
            return
        if each.name in ("m", "V", "h", "?", "--version", "--help"):
            return
    operand = arguments[at] if at < len(arguments) else None
    if operand is None or operand.text in ("-", "/dev/stdin"):
        _python_code(name, call.given, reading)
    elif is_stream(operand):
        reading.doubt(f"{name} runs a file that only running it tells")


def _python_code(name: str, code: str | None, reading: Reading) -> None:
    if code is None:
        reading.doubt(f"{name} runs code that only running it tells")
    else:
        reading.program_text(code)


def _other(name: str, call: Call, reading: Reading) -> None:
    letters, names = _OTHERS[name]
    words = call.arguments
    for word in words:
        if word.may_be_option and not word.head:
            reading.doubt(f"{name} is given what may be an option")
            return
        text = word.text
        cluster = text.startswith("-") and not text.startswith("--")
        if text.partition("=")[0] in names or (
            cluster and set(text[1:]) & set(letters)
        ):
            reading.doubt(f"{name} runs code that is not read")
            return
        if not text.startswith("-"):
            break
    if not words or (is_stream(words[-1]) and len(words) == 1):
        reading.doubt(f"{name} runs what it reads on its standard input")
