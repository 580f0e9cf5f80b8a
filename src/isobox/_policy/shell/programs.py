"""Programs that do their own work, and can be told to run others on the way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.names import listed
from isobox._policy.shell.options import Options, split, strange, values
from isobox._policy.shell.words import Word
from isobox._policy.shell.wrappers import hand_on, join

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from isobox._policy.shell.reading import Call, Reading

#: Options whose value is a command.
_RUNS: Final[dict[str, frozenset[str]]] = {
    "bsdtar": frozenset({"--use-compress-program"}),
    "cpio": frozenset({"--rsh-command"}),
    "cvs": frozenset({"-e"}),
    "fzf": frozenset({"--preview", "--bind"}),
    "install": frozenset({"--strip-program"}),
    "man": frozenset({"-P", "--pager", "-H", "--html", "-C", "--config-file"}),
    "nc": frozenset({"-e", "-c"}),
    "ncat": frozenset({"-e", "-c", "--exec", "--sh-exec", "--lua-exec"}),
    "netcat": frozenset({"-e", "-c"}),
    "rg": frozenset({"--pre", "--hostname-bin"}),
    "rsync": frozenset({"-e", "--rsh", "--rsync-path"}),
    "runuser": frozenset({"-c", "--command", "--session-command"}),
    "scp": frozenset({"-S", "-o", "-F", "-D"}),
    "script": frozenset({"-c", "--command"}),
    "sftp": frozenset({"-S", "-o", "-F", "-D"}),
    "sort": frozenset({"--compress-program"}),
    "split": frozenset({"--filter"}),
    "su": frozenset({"-c", "--command", "--session-command", "--shell"}),
    "svn": frozenset({"--editor-cmd", "--diff-cmd", "--config-option"}),
    "tcpdump": frozenset({"-z"}),
    "wget": frozenset({"--use-askpass", "-e", "--execute", "--config"}),
    "zip": frozenset({"--unzip-command", "-TT"}),
}
#: Programs that run what their arguments, their files or a person tell them.
_OPAQUE: Final = listed(
    "at batch crontab dc ed emacs emacsclient ex gdb gview irb lldb m4 nvim"
    " parallel pdb rvim screen systemd-run tmux vi view vim vimdiff xterm entr"
    " socat hyperfine ipython ipython3 psql mysql sqlite3 telnet ftp busctl"
)
_OPAQUE_OPTIONS: Final[dict[str, re.Pattern[str]]] = {
    "apt": re.compile(r"-o.*|--option.*|-c.*|--config.*"),
    "apt-get": re.compile(r"-o.*|--option.*|-c.*|--config.*"),
    "cc": re.compile(r"-wrapper|-B.*|-fplugin.*|@.*|-specs.*"),
    "clang": re.compile(r"-B.*|-fplugin.*|-Xclang|@.*"),
    "curl": re.compile(r"-K.*|--config.*"),
    "docker": re.compile(r"-H.*|--host.*|--config.*"),
    "g++": re.compile(r"-wrapper|-B.*|-fplugin.*|@.*|-specs.*"),
    "gcc": re.compile(r"-wrapper|-B.*|-fplugin.*|@.*|-specs.*"),
    "gmake": re.compile(r"SHELL=.*|\.SHELLFLAGS=.*|--eval.*|-E.*|-f-|-"),
    "hg": re.compile(r"--config.*"),
    "ip": re.compile(r"netns|vrf|-b.*"),
    "less": re.compile(r"[+].*|-[kp].*|--lesskey.*"),
    "make": re.compile(r"SHELL=.*|\.SHELLFLAGS=.*|--eval.*|-E.*|-f-|-"),
    "more": re.compile(r"[+].*"),
    "nmap": re.compile(r"--script.*|--interactive"),
    "npm": re.compile(r"--script-shell.*|--node-options.*|exec|x"),
    "openssl": re.compile(r"-engine|-provider.*|-config"),
    "pip": re.compile(r"--python.*"),
    "rpm": re.compile(r"--pipe.*|-E.*|--eval.*|--define.*"),
}


def examine(name: str, call: Call, reading: Reading) -> None:
    """Note what a program would run."""
    if name in _OPAQUE:
        reading.doubt(f"{name} can run commands that are not read")
        _shown(name, call, reading)
    if name in _RUNS:
        _options(name, call, reading)
    if name in _OPAQUE_OPTIONS:
        for word in call.arguments:
            if word.may_be_option or _OPAQUE_OPTIONS[name].fullmatch(word.text):
                reading.doubt(f"{name} is told to run other programs: {word.text}")
    if name in _EXAMINED:
        _EXAMINED[name](call, reading)


def _options(name: str, call: Call, reading: Reading) -> None:
    if any(each.may_be_option for each in call.arguments):
        reading.doubt(f"{name} is given what may be an option")
    for value in values(call.arguments, _RUNS[name]):
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
    for value in values(words, runs):
        reading.doubt("tar is told to run a program")
        hand_on(call, value, reading)
    for value in values(words, frozenset({"--checkpoint-action"})):
        action, _, _ = value.text.partition("=")
        if action == "exec" and not value.dynamic:
            hand_on(call, value.starting(5), reading)
        if value.dynamic or action not in ("dot", ".", "echo", "bell"):
            reading.doubt("tar is told to run a program")


def _find(call: Call, reading: Reading) -> None:
    words = call.arguments
    at = 0
    while at < len(words):
        text = words[at].text
        at += 1
        if text in ("-exec", "-execdir", "-ok", "-okdir"):
            at = _until_end(call, at, reading)
        elif text in ("-fprint", "-fprint0", "-fprintf", "-fls") and at < len(words):
            reading.writes.append(None if words[at].dynamic else words[at].text)
        elif words[at - 1].may_be_option and not words[at - 1].head:
            reading.doubt("find is given what may be an action")


def _until_end(call: Call, at: int, reading: Reading) -> int:
    inner = list[Word]()
    words = call.arguments
    while at < len(words) and words[at].text != ";":
        if words[at].text == "+" and inner and inner[-1].text == "{}":
            break
        inner.append(words[at])
        at += 1
    run = [each.unknown() if "{}" in each.text else each for each in inner]
    reading.invoke(call.inner(run))
    return at + 1


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


#: Characters of the longest program of awk or sed that is read.
_LONGEST: Final = 2_000
_AWK: Final = Options.of("fFvemiEloWbBLp", "cCghMnNOPrsStV --version --help --posix")
_AWK_RUNS: Final = re.compile(
    r"\bsystem\b|\bgetline\b|(?<!\|)\|(?!\|)|@(?:load|include)|/inet|@[A-Za-z_]\w*\("
    r"|\bprintf?\b[^;}\n]*>"
)
_AWK_SYSTEM: Final = re.compile(r'\bsystem\s*\(\s*"((?:[^"\\]|\\.)*)"\s*\)')


def _awk(call: Call, reading: Reading) -> None:
    options, at = split(call.arguments, _AWK)
    name = call.name
    if any(not o.known or o.name in "feEilW" for o in options):
        reading.doubt(f"{name} runs a program that is not read")
        return
    if at >= len(call.arguments) or call.arguments[at].dynamic:
        reading.doubt(f"{name} runs a program that only running it tells")
        return
    program = call.arguments[at].text
    if len(program) > _LONGEST or _AWK_RUNS.search(program):
        reading.doubt(f"{name} can run commands or write files")
    if len(program) > _LONGEST:
        return
    for found in _AWK_SYSTEM.finditer(program):
        text = re.sub(r"\\(.)", r"\1", found[1])
        reading.script(text, (*call.through, name or ""))


_SED: Final = Options.of(
    "efl --expression --file --line-length",
    "nrEzsubi --quiet --silent --regexp-extended --null-data --in-place --posix"
    " --debug --sandbox --separate --follow-symlinks --version --help",
)
_SED_ADDRESS: Final = r"(?:[0-9]+(?:~[0-9]+)?|\$|/(?:[^/\\\n]|\\.)+/[IM]*)"
_SED_COMMAND: Final = re.compile(
    rf"\s*(?:{_SED_ADDRESS}(?:,(?:{_SED_ADDRESS}|[+~][0-9]+))?\s*!?\s*)?"
    r"(?:[{}pPdDqQnNgGhHxlzF=][0-9]*"
    r"|s(?P<d>[^\\\n\s])(?:(?!(?P=d))[^\\\n]|\\.)*(?P=d)"
    r"(?:(?!(?P=d))[^\\\n]|\\[^\n])*(?P=d)[gpiIM0-9]*"
    r"|y/(?:[^/\\\n]|\\.)*/(?:[^/\\\n]|\\.)*/"
    r"|[aic](?:\\\n|\s)[^\\\n]*)\s*(?:[;\n}]+|$)",
)


def _sed(call: Call, reading: Reading) -> None:
    arguments = call.arguments
    # In place may carry the ending of the copy: `-i.bak`.
    plain = [w for w in arguments if not re.fullmatch(r"-[nrEszu]*i\S*", w.text)]
    options, at = split(plain, _SED)
    scripts = [o.value for o in options if o.name in ("e", "--expression")]
    unknown = any(not o.known or o.name in ("f", "--file") for o in options)
    if not scripts and not unknown:
        scripts = [plain[at]] if at < len(plain) else [None]
    later = any(w.may_be_option for w in plain[at + 1 :])
    for script in scripts:
        if script is None or script.dynamic or not _is_plain_sed(script.text):
            unknown = True
    moved = any(w.text.startswith("-") for w in plain[at + 1 :])
    if unknown or later or moved:
        reading.doubt("sed can run commands or write files")


def _is_plain_sed(script: str) -> bool:
    at = 0 if len(script) <= _LONGEST else -1
    while 0 <= at < len(script):
        found = _SED_COMMAND.match(script, at)
        if found is None or found.end() == at:
            return False
        at = found.end()
    return at >= 0


_SSH: Final = Options.of("BbcDEeFIiJLlmOoPpQRSWw", "46AaCfGgKkMNnqsTtVvXxYy")
_SSH_RUNS: Final = re.compile(
    r"(?:proxycommand|localcommand|knownhostscommand|remotecommand)[\s=]+(.*)",
    re.IGNORECASE | re.DOTALL,
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
    words: Sequence[Word] = call.arguments[at + 1 :]
    if words:
        join(call, words, reading)
    else:
        reading.doubt("ssh starts a shell elsewhere")


_EXAMINED: Final[dict[str, Callable[[Call, Reading], None]]] = {
    "awk": _awk,
    "fd": _fd,
    "fdfind": _fd,
    "find": _find,
    "gawk": _awk,
    "gsed": _sed,
    "gtar": _tar,
    "mawk": _awk,
    "nawk": _awk,
    "sed": _sed,
    "ssh": _ssh,
    "tar": _tar,
}
