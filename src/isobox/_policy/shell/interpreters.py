"""Programs that run code: shells, Python, and others that are not read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.names import listed
from isobox._policy.shell.options import Option, Options, split, strange
from isobox._policy.shell.streams import is_stream, names_stream
from isobox._policy.shell.words import literal
from isobox._policy.shell.wrappers import hand_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._policy.shell.reading import Call, Reading
    from isobox._policy.shell.words import Word

_LIKE_BASH: Final = frozenset({"ash", "bash", "dash", "rbash", "sh"})
SHELLS: Final = _LIKE_BASH | {
    *("csh", "elvish", "es", "fish", "ksh", "ksh93", "ksh93u", "lksh", "loksh", "mksh"),
    *("nu", "oil", "oksh", "osh", "posh", "powershell", "pwsh", "rc", "rksh", "rzsh"),
    *("sash", "scsh", "tcsh", "xonsh", "yash", "ysh", "zsh"),
}
_SHELL: Final = Options.of(
    "oO --rcfile --init-file",
    "abcefhiklmnprstuvxBCDEHPT --login --posix --norc --noprofile --restricted"
    " --verbose --noediting --version --help",
)
_PYTHON: Final = re.compile(r"(?:python|pypy)[0-9.]*[a-z]?(?:-[\w-]+)?")
_PYTHON_OPTIONS: Final = Options.of(
    "cmWXQ --check-hash-based-pycs", "bBdEhiIOPqRsSuvVx? --version --help"
)
_NODE: Final = frozenset(
    {"--eval", "--print", "--require", "--import", "-r", "--loader", "--interactive"}
    | {
        "--experimental-loader",
        "-i",
        "--env-file",
        "--experimental-default-config-file",
    }
)
#: Interpreters whose code is not read, and the letters and names that hold it.
OTHERS: Final[dict[str, tuple[str, frozenset[str]]]] = {
    "bun": ("ep", frozenset({"--eval", "--print", "--preload", "-r", "x", "exec"})),
    "deno": ("", frozenset({"eval", "repl"})),
    "elixir": ("er", frozenset({"--eval", "--rpc-eval", "--require"})),
    "erl": ("", frozenset({"-eval", "-run", "-s"})),
    "expect": ("c", frozenset()),
    "ghc": ("e", frozenset({"--interactive"})),
    "gnuplot": ("e", frozenset()),
    "groovy": ("e", frozenset()),
    "guile": ("cle", frozenset()),
    "iex": ("er", frozenset()),
    "jshell": ("", frozenset({"--startup"})),
    "julia": ("eEL", frozenset({"--eval", "--print", "--load"})),
    "lua": ("el", frozenset()),
    "luajit": ("ebl", frozenset()),
    "node": ("ep", _NODE),
    "nodejs": ("ep", _NODE),
    "ocaml": ("e", frozenset({"-init"})),
    "octave": ("", frozenset({"--eval", "--persist"})),
    "osascript": ("e", frozenset()),
    "perl": ("eEdMm", frozenset()),
    "php": ("rBREda", frozenset({"--run", "--process-code", "--define"})),
    "R": ("e", frozenset({"--interactive"})),
    "racket": ("elr", frozenset({"--eval", "--lib"})),
    "Rscript": ("e", frozenset()),
    "ruby": ("er", frozenset()),
    "runghc": ("", frozenset()),
    "sbcl": ("", frozenset({"--eval", "--load"})),
    "scala": ("e", frozenset()),
    "swift": ("e", frozenset({"repl"})),
    "tcc": ("", frozenset({"-run", "-"})),
    "tclsh": ("", frozenset()),
    "wish": ("", frozenset()),
}
_ASKS: Final = frozenset({"--version", "--help", "-V", "-v", "-h"})
_ORDINARY: Final = frozenset({"--version", "--help"})
#: Options that bash knows with one dash as well.
_LONG: Final = re.compile(r"-(?:rcfile|init-file|norc|noprofile|posix|login|debugger)")
#: Modules that run code, or a program, that they are given.
_RUNNING_MODULES: Final = frozenset(
    {"IPython", "asyncio", "bdb", "bpython", "cProfile", "code", "codeop", "idlelib"}
    | {"pdb", "profile", "ptpython", "pty", "runpy", "timeit", "trace", "pydoc"}
    | {"ipdb", "pudb", "webbrowser", "invoke", "fabric", "xonsh", "subprocess"}
)
#: Modules that are programs, which rules are about.
_PROGRAMS: Final = {
    **{
        each: each
        for each in listed(
            "ansible conda flit hatch pdm pip pipenv pipx poetry twine uv virtualenv"
        )
    },
    "awscli": "aws",
}


def shell(call: Call, reading: Reading) -> bool:
    """Read the script that a shell is handed; False where it is in a file."""
    name = call.name or ""
    arguments = [word for word in call.arguments if not word.text.startswith("+")]
    if any(
        w.text[:2] in ("+o", "+O") or _LONG.fullmatch(w.text) for w in call.arguments
    ):
        reading.doubt(f"{name} has options that are not read")
    options, at = split(arguments, _SHELL)
    given = {each.name for each in options}
    for each in options:
        if not each.known or each.name in ("--rcfile", "--init-file", "O"):
            reading.doubt(strange(name, each))
    if given & {"--version", "--help"}:
        return False
    if call.kind not in _LIKE_BASH:
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
    return name in OTHERS or _PYTHON.fullmatch(name) is not None


def examine(call: Call, reading: Reading) -> None:
    """Read Python code; note that other code is not read."""
    if call.kind in OTHERS:
        _other(call, reading)
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
        _python_option(call, each, reading)
        if each.name == "c":
            code = None if each.value is None or each.value.dynamic else each.value.text
            _python_code(call, code, reading)
            return
        if each.name == "m":
            _module(call, each.value, reading)
            return
        if each.name in ("V", "h", "?", *_ORDINARY):
            return
    operand = arguments[at] if at < len(arguments) else None
    if operand is None or names_stream(operand.text):
        _python_code(call, call.given, reading)
    elif operand.dynamic:
        reading.doubt(f"{name} runs a file that only running it tells")


def _python_option(call: Call, option: Option, reading: Reading) -> None:
    value = "" if option.value is None else option.value.text
    dynamic = option.value is not None and option.value.dynamic
    # A warning's category is a class of a module, which is imported.
    imports = option.name == "W" and (dynamic or "." in value)
    if option.name == "i" or imports or (option.name == "X" and "presite" in value):
        reading.doubt(f"{call.name} runs code that is not read")


def _module(call: Call, name: Word | None, reading: Reading) -> None:
    if name is None or name.dynamic:
        reading.doubt(f"{call.name} runs a module that only running it tells")
        return
    if name.text.partition(".")[0] in _RUNNING_MODULES:
        reading.doubt(f"{call.name} -m {name.text} runs code that is not read")
    program = _PROGRAMS.get(name.text.removesuffix(".__main__"))
    if program is not None:
        texts = [each.text for each in call.arguments]
        at = next(i for i, each in enumerate(texts) if each.endswith(name.text))
        reading.invoke(call.inner((literal(program), *call.arguments[at + 1 :])))


def _python_code(call: Call, code: str | None, reading: Reading) -> None:
    if code is None:
        reading.doubt(f"{call.name} runs code that only running it tells")
    else:
        reading.program_text(code, (*call.through, call.name or ""))


def _other(call: Call, reading: Reading) -> None:
    name = call.name or ""
    letters, names = OTHERS[call.kind]
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
    if _reads_program(words):
        reading.doubt(f"{name} runs what it reads on its standard input")


def _reads_program(words: Sequence[Word]) -> bool:
    """Whether there is no file among the words, as far as they tell."""
    after_option = False
    seen = False
    for word in words:
        if word.text in _ASKS:
            return False
        if word.text.startswith("-") and word.text != "-":
            after_option = True
            continue
        if is_stream(word):
            return True
        seen = True
        # The word after an option may be its value, or the file.
        if not after_option:
            return False
        after_option = False
    return not seen
