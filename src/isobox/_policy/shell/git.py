"""git: settings, aliases and options that run programs."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.names import listed
from isobox._policy.shell.options import Options, split, strange, values
from isobox._policy.shell.words import Word, literal
from isobox._policy.shell.wrappers import hand_on, join

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._policy.shell.reading import Call, Reading

_OPTIONS: Final = Options.of(
    "cC --git-dir --work-tree --namespace --exec-path --config-env --super-prefix",
    "pPhv --paginate --no-pager --bare --no-replace-objects --literal-pathspecs"
    " --glob-pathspecs --noglob-pathspecs --icase-pathspecs --no-optional-locks"
    " --version --help --html-path --man-path --info-path",
)
#: Settings that run nothing.
_HARMLESS: Final = re.compile(
    r"user\.(?:name|email)|color\..*|advice\..*|init\.defaultbranch|safe\.directory"
    r"|core\.(?:quotepath|autocrlf|eol|filemode|longpaths|safecrlf|abbrev|ignorecase)"
    r"|commit\.gpgsign|tag\.gpgsign|pull\.(?:rebase|ff)|push\.default"
    r"|push\.autosetupremote|merge\.(?:ff|conflictstyle)|rebase\.autostash"
    r"|diff\.(?:algorithm|renames|context|noprefix|mnemonicprefix)|log\.\w+"
    r"|fetch\.prune|gc\.auto|status\.\w+|column\.\w+|grep\.\w+|versionsort\..*"
    r"|maintenance\.auto|http\.(?:lowspeedlimit|lowspeedtime|postbuffer|version)"
)
#: Settings that name what shows or edits text.
_SHOWS: Final = re.compile(r"core\.(?:pager|editor)|sequence\.editor|pager\..*")
#: Settings whose value a shell reads.
_RUNS: Final = re.compile(
    r"core\.(?:pager|sshcommand|editor|fsmonitor|askpass)|sequence\.editor|pager\..*"
    r"|diff\.external|diff\..*\.(?:command|textconv)|.*tool\..*\.cmd"
    r"|filter\..*\.(?:clean|smudge|process)|credential\.(?:.*\.)?helper"
    r"|merge\..*\.driver|interactive\.difffilter|uploadpack\.packobjectshook"
)
#: Section, maybe a part of it, and name; a path has a slash before its dot.
_SETTING: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*\..*[A-Za-z0-9-]")
#: Characters of the longest name of a setting that is read.
_LONGEST: Final = 200
_ALWAYS: Final = listed(
    "citool cvsexportcommit cvsimport cvsserver daemon filter-branch filter-repo"
    " for-each-repo gui hook imap-send instaweb maintenance merge-index mergetool p4"
    " quiltimport remote-ext remote-fd send-email shell svn web--browse"
)
#: Commands of git; another one is an alias, or a program in the path.
_COMMANDS: Final = listed(
    "add am annotate apply archive bisect blame branch bundle cat-file check-attr"
    " check-ignore check-mailmap check-ref-format checkout checkout-index cherry"
    " cherry-pick clean clone column commit commit-graph commit-tree config"
    " count-objects credential credential-cache credential-store describe diagnose diff"
    " diff-files diff-index diff-tree difftool fast-export fast-import fetch fetch-pack"
    " fmt-merge-msg for-each-ref format-patch fsck gc get-tar-commit-id grep"
    " hash-object help index-pack init interpret-trailers lfs log ls-files ls-remote"
    " ls-tree mailinfo mailsplit merge merge-base merge-file merge-tree mktag mktree mv"
    " multi-pack-index name-rev notes pack-objects pack-refs patch-id prune"
    " prune-packed pull push range-diff read-tree rebase reflog remote repack replace"
    " replay request-pull rerere reset restore rev-list rev-parse revert rm"
    " send-pack receive-pack upload-pack shortlog show show-branch show-index show-ref"
    " sparse-checkout stage stash status stripspace submodule switch symbolic-ref tag"
    " unpack-file unpack-objects update-index update-ref update-server-info"
    " var verify-commit verify-pack verify-tag version whatchanged worktree write-tree"
)
_RUNNING: Final[dict[str, frozenset[str]]] = {
    "archive": frozenset({"--exec", "--remote"}),
    "clone": frozenset({"--upload-pack", "-u", "--template"}),
    "difftool": frozenset({"--extcmd", "-x"}),
    "fetch": frozenset({"--upload-pack"}),
    "fetch-pack": frozenset({"--upload-pack", "--exec"}),
    "grep": frozenset({"--open-files-in-pager", "-O"}),
    "init": frozenset({"--template"}),
    "ls-remote": frozenset({"--upload-pack", "--exec"}),
    "pull": frozenset({"--upload-pack"}),
    "push": frozenset({"--receive-pack", "--exec"}),
    "rebase": frozenset({"--exec", "-x"}),
    "send-pack": frozenset({"--receive-pack", "--exec"}),
}


#: Options by which git runs programs, or obeys settings, from elsewhere.
_ELSEWHERE: Final = frozenset({"--exec-path", "--config-env", "--git-dir"})


def examine_part(call: Call, reading: Reading) -> None:
    """Note what a program of git's own runs: `git-push` is `git push`."""
    command = (call.name or "").removeprefix("git-")
    words = (literal("git"), literal(command), *call.arguments)
    reading.invoke(call.inner(words))


def examine(call: Call, reading: Reading) -> None:
    """Note what a git command would run."""
    arguments = call.arguments
    options, at = split(arguments, _OPTIONS)
    for each in options:
        if not each.known or each.name in _ELSEWHERE:
            reading.doubt(strange("git", each))
        if each.name == "c" and each.value is not None:
            _setting(call, each.value, reading)
    rest = arguments[at:]
    if rest:
        _command(call, rest[0], rest[1:], reading)


def _setting(call: Call, word: Word, reading: Reading) -> None:
    name, _, _ = word.text.partition("=")
    _configure(call, name, word.starting(len(name) + 1), reading)


def _configure(call: Call, name: str, value: Word, reading: Reading) -> None:
    key = name.lower()
    alias = key.startswith("alias.")
    if len(key) > _LONGEST:
        reading.doubt("git is told to use a setting with a long name")
        return
    if _HARMLESS.fullmatch(key):
        return
    if (
        _SHOWS.fullmatch(key)
        and value.text in ("", "cat", "true")
        and not value.dynamic
    ):
        return
    reading.doubt(f"git is told to use {name}, which may run a program")
    if value.text and not value.dynamic and (_RUNS.fullmatch(key) or alias):
        if value.text.startswith("!"):
            hand_on(call, value.starting(1), reading)
        elif not alias:
            hand_on(call, value, reading)


def _command(
    call: Call, command: Word, arguments: Sequence[Word], reading: Reading
) -> None:
    name = command.text
    if command.dynamic:
        reading.doubt("which command of git it is, only running it tells")
    elif name not in _COMMANDS | _ALWAYS:
        reading.doubt(f"{name[:40]} is no command of git that is known")
    if any(each.may_be_option for each in _before_dashes(arguments)):
        reading.doubt("git is given what may be an option")
    if any(each.text.startswith("ext::") for each in arguments):
        reading.doubt("git is given an address that runs a program")
    _told(call, name, arguments, reading)
    if name == "config":
        _config(call, arguments, reading)
    elif name in ("bisect", "submodule"):
        _running(call, name, arguments, reading)
    if name in _ALWAYS or _starts(name, arguments):
        reading.doubt(f"git {name} runs other programs")


#: Options of commands that start an editor or a browser.
_STARTS: Final = {
    "help": re.compile(r"-w|--web"),
    "rebase": re.compile(r"-[A-Za-z]*i[A-Za-z]*|--interactive|--edit-todo"),
}


def _told(call: Call, name: str, arguments: Sequence[Word], reading: Reading) -> None:
    for value in values(arguments, _RUNNING.get(name, frozenset())):
        reading.doubt(f"git {name} is told to run a program")
        hand_on(call, value, reading)
    if name in ("clone", "init"):
        for value in values(arguments, frozenset({"-c", "--config"})):
            _setting(call, value, reading)


def _starts(name: str, arguments: Sequence[Word]) -> bool:
    pattern = _STARTS.get(name)
    return pattern is not None and any(pattern.fullmatch(w.text) for w in arguments)


def _before_dashes(arguments: Sequence[Word]) -> Sequence[Word]:
    texts = [each.text for each in arguments]
    return arguments[: texts.index("--")] if "--" in texts else arguments


def _config(call: Call, arguments: Sequence[Word], reading: Reading) -> None:
    texts = [each.text for each in arguments]
    if "--edit" in texts or "-e" in texts:
        reading.doubt("git config starts an editor")
    if "--rename-section" in texts or "rename-section" in texts:
        reading.doubt("git config gives settings another name")
    words = [w for w in arguments if not w.text.startswith("-")]
    for name, value in pairwise(words):
        if _SETTING.fullmatch(name.text[:_LONGEST]) and not name.dynamic:
            _configure(call, name.text, value, reading)


def _running(
    call: Call, name: str, arguments: Sequence[Word], reading: Reading
) -> None:
    texts = [each.text for each in arguments]
    mark = {"bisect": "run", "submodule": "foreach"}[name]
    if mark in texts:
        rest = [
            each
            for each in arguments[texts.index(mark) + 1 :]
            if each.text not in ("--recursive", "--quiet", "-q")
        ]
        join(call, rest, reading)
