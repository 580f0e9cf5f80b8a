"""Programs that do their own work, and can be told to run others on the way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from isobox._policy.shell import awk, find, sed
from isobox._policy.shell.options import Options, split, strange, values
from isobox._policy.shell.program_table import OPAQUE, OPAQUE_OPTIONS, RUNS
from isobox._policy.shell.streams import is_stream, names_stream
from isobox._policy.shell.wrappers import hand_on, join

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from isobox._policy.shell.reading import Call, Reading
    from isobox._policy.shell.words import Word


def examine(name: str, call: Call, reading: Reading) -> None:
    """Note what a program would run."""
    if name in OPAQUE:
        reading.doubt(f"{name} can run commands that are not read")
        _shown(name, call, reading)
    if name in RUNS:
        _options(name, call, reading)
    if name in OPAQUE_OPTIONS:
        for word in call.arguments:
            if word.may_be_option or OPAQUE_OPTIONS[name].fullmatch(word.text):
                reading.doubt(f"{name} is told to run other programs: {word.text}")
    if name in _EXAMINED:
        _EXAMINED[name](call, reading)


def _options(name: str, call: Call, reading: Reading) -> None:
    if any(each.may_be_option for each in call.arguments):
        reading.doubt(f"{name} is given what may be an option")
    for value in values(call.arguments, RUNS[name]):
        reading.doubt(f"{name} is told to run a program")
        hand_on(call, value, reading)


def _shown(name: str, call: Call, reading: Reading) -> None:
    """The commands of an editor that are in the open: `vim -c '!ls'`."""
    for word in call.arguments:
        found = re.fullmatch(r"(?:\+|-c)?:?!(.+)", word.text, re.DOTALL)
        if found is not None and not word.dynamic:
            reading.script(found[1], (*call.through, name))
    if name == "parallel":
        texts = [each.text for each in call.arguments]
        marks = [texts.index(m) for m in (":::", "::::") if m in texts]
        words = call.arguments[: min(marks, default=len(texts))]
        join(call, [w for w in words if not w.text.startswith("-")], reading)


def _tar(call: Call, reading: Reading) -> None:
    words = list(call.arguments)
    if any(each.may_be_option for each in words):
        reading.doubt("tar is given what may be an option")
    if words and not words[0].text.startswith("-") and re.search("[IF]", words[0].text):
        reading.doubt("tar is told to run a program")
    runs = frozenset(
        {
            "-I",
            "-F",
            "--use-compress-program",
            "--to-command",
            "--info-script",
            "--new-volume-script",
            "--rsh-command",
            "--rmt-command",
        }
    )
    lists = values(words, frozenset({"-T", "--files-from"}))
    if next(lists, None) is not None:
        reading.doubt("tar reads options from a file")
    for value in values(words, runs):
        reading.doubt("tar is told to run a program")
        hand_on(call, value, reading)
    for value in values(words, frozenset({"--checkpoint-action"})):
        action, _, _ = value.text.partition("=")
        if action == "exec" and not value.dynamic:
            hand_on(call, value.starting(5), reading)
        if value.dynamic or action not in ("dot", ".", "echo", "bell"):
            reading.doubt("tar is told to run a program")


def _fd(call: Call, reading: Reading) -> None:
    for at, word in enumerate(call.arguments):
        found = re.fullmatch(r"--exec(?:-batch)?(=.*)?|-[A-Za-z]*[xX](.*)", word.text)
        if found is not None:
            rest = list(call.arguments[at + 1 :])
            if found[1] or found[2]:
                reading.doubt("fd is told to run a program")
            ends = [i for i, each in enumerate(rest) if each.text == ";"]
            inner = rest[: ends[0]] if ends else rest
            run = [w.unknown() if "{" in w.text else w for w in inner]
            reading.invoke(call.inner([*run, _more()]))
            return


def _more() -> Word:
    from isobox._policy.shell.words import Word  # noqa: PLC0415

    return Word("", dynamic=True)


_SSH: Final = Options.of("BbcDEeFIiJLlmOoPpQRSWw", "46AaCfGgKkMNnqsTtVvXxYy")
_SSH_RUNS: Final = re.compile(
    r"(?:proxycommand|localcommand|knownhostscommand|remotecommand)[\s=]+(.*)",
    re.IGNORECASE | re.DOTALL,
)

_SSH_HARMLESS: Final = re.compile(
    r"(?:addressfamily|batchmode|bindaddress|checkhostip|compression|connectionattempts"
    r"|connecttimeout|controlmaster|controlpath|controlpersist|escapechar|forwardx11"
    r"|forwardagent|hashknownhosts|hostkeyalgorithms|hostname|identitiesonly"
    r"|identityfile|kexalgorithms|loglevel|passwordauthentication|port"
    r"|preferredauthentications|pubkeyauthentication|requesttty"
    r"|serveralivecountmax|serveraliveinterval|stricthostkeychecking|tcpkeepalive"
    r"|user|userknownhostsfile|visualhostkey|numberofpasswordprompts)[\s=]",
    re.IGNORECASE,
)


def _ssh(call: Call, reading: Reading) -> None:
    options, at = split(call.arguments, _SSH)
    for each in options:
        if not each.known or each.name in "FI":
            reading.doubt(strange("ssh", each))
        if each.name == "o" and each.value is not None:
            found = _SSH_RUNS.fullmatch(each.value.text.strip())
            if found is not None:
                reading.doubt("ssh is told to run a program")
                hand_on(call, each.value.starting(found.start(1)), reading)
            elif not _SSH_HARMLESS.match(each.value.text.strip()):
                reading.doubt(f"ssh has a setting that is not known: {each.value.text}")
    words: Sequence[Word] = call.arguments[at + 1 :]
    if words:
        join(call, words, reading)
    else:
        reading.doubt("ssh starts a shell elsewhere")


def _make(call: Call, reading: Reading) -> None:
    from isobox._policy.shell import naming  # noqa: PLC0415 - a cycle

    for word in call.arguments:
        name, equals, value = word.text.partition("=")
        if word.dynamic and not word.head.startswith("-j"):
            reading.doubt(f"make is given what may be a command: {word.text}")
        elif equals and not name.startswith("-"):
            shell = _MAKE_STEERS.fullmatch(name.rstrip(":?+"))
            odd = _MAKE_RUNS.search(value) or _MAKE_NAME.search(name)
            if shell or odd or naming.runs(value):
                reading.doubt(f"make is told to run other programs: {word.text}")
        elif re.match(r"--ev|-E", word.text) or word.text == "-":
            reading.doubt(f"make is told to run other programs: {word.text}")
    for file in values(call.arguments, frozenset({"-f", "--file", "--makefile"})):
        if is_stream(file):
            reading.doubt("make runs what it reads on its standard input")


_MAKE_STEERS: Final = re.compile(r"\.?SHELL(?:FLAGS)?|G?N?U?MAKE(?:FLAGS|FILES)")
_MAKE_RUNS: Final = re.compile(r"[$`;|&<>\n]")
_MAKE_NAME: Final = re.compile(r"[$!(){}\s]")


def _zip(call: Call, reading: Reading) -> None:
    for word in call.arguments:
        if re.match(r"-\w*TT|--unz", word.text):
            reading.doubt("zip is told to run a program")


def _su(call: Call, reading: Reading) -> None:
    options, at = split(call.arguments, _SU)
    user = any(each.name in ("u", "--user") for each in options)
    if call.kind == "runuser" and user:
        if at < len(call.arguments):
            reading.invoke(call.inner(call.arguments[at:]))
    elif not any(values(call.arguments, RUNS["su"])):
        reading.doubt(f"{call.name} starts a shell")


_SU: Final = Options.of(
    "cgGsuTw --command --session-command --group --supp-group --shell --user"
    " --whitelist-environment",
    "lmpfP --login --preserve-environment --fast --pty",
)


def _sg(call: Call, reading: Reading) -> None:
    words = [each for each in call.arguments if each.text not in ("-", "-c")]
    if len(words) > 1:
        join(call, words[1:], reading)
    else:
        reading.doubt("sg starts a shell")


def _script(call: Call, reading: Reading) -> None:
    if not any(values(call.arguments, RUNS["script"])):
        reading.doubt("script starts a shell, or a program")


def _renames(call: Call, reading: Reading) -> None:
    """`cp /bin/sh x`: what has another name is not known by it."""
    from isobox._policy.shell import naming  # noqa: PLC0415 - a cycle

    for text in (each.text for each in call.arguments if "/" in each.text):
        if names_stream(text) or (_SYSTEM.match(text) and naming.tells(text)):
            reading.doubt(f"{call.name} gives another name to {text}")


_SYSTEM: Final = re.compile(r"(?:if=)?/+(?:usr/+)?(?:local/+)?s?bin/")


def _coreutils(call: Call, reading: Reading) -> None:
    for at, word in enumerate(call.arguments):
        name = word.text.removeprefix("--coreutils-prog=")
        if name != word.text:
            rest = call.arguments[at + 1 :]
            reading.invoke(
                call.inner((word.starting(len(word.text) - len(name)), *rest))
            )
            return


def _cmake(call: Call, reading: Reading) -> None:
    texts = [each.text for each in call.arguments]
    if "-E" not in texts:
        return
    words = call.arguments[texts.index("-E") + 1 :]
    if words and words[0].text in ("env", "time"):
        rest = [w for w in words[1:] if not re.match(r"--|\w+=", w.text)]
        reading.invoke(call.inner(rest))
    else:
        reading.invoke(call.inner(words))


_EXAMINED: Final[dict[str, Callable[[Call, Reading], None]]] = {
    "awk": awk.examine,
    "cmake": _cmake,
    "coreutils": _coreutils,
    "fd": _fd,
    "fdfind": _fd,
    "find": find.examine,
    "gawk": awk.examine,
    "gmake": _make,
    "gsed": sed.examine,
    "gtar": _tar,
    **dict.fromkeys(("cp", "dd", "install", "ln", "mv"), _renames),
    "make": _make,
    "mawk": awk.examine,
    "nawk": awk.examine,
    "sed": sed.examine,
    "runuser": _su,
    "script": _script,
    "sg": _sg,
    "ssh": _ssh,
    "su": _su,
    "tar": _tar,
    "zip": _zip,
}

#: Every program that is examined here.
NAMES: Final = OPAQUE | RUNS.keys() | OPAQUE_OPTIONS.keys() | _EXAMINED.keys()
