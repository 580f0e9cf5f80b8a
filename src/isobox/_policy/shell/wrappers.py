"""Programs that only run another program: which words are that program."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.options import Option, Options, split, strange
from isobox._policy.shell.words import Word, literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._policy.shell.reading import Call, Reading

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How a program names the one that it runs.

    Attributes:
        options: Its own options.
        operands: Words before the program, such as the duration of `timeout`.
        assigns: Whether `NAME=value` before the program sets a variable.
        scripts: Options whose value a shell reads.
        writes: Options whose value is a file that it writes.
        shells: Options that start a shell when no program is named.
        looks_up: Options that only print what a name stands for.
    """

    options: Options
    operands: int = 0
    assigns: bool = False
    scripts: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    shells: frozenset[str] = frozenset()
    looks_up: frozenset[str] = frozenset()


_NONE: Final = Wrapper(Options.of())
_NICE: Final = Wrapper(Options.of("n --adjustment", "0123456789 --help --version"))

WRAPPERS: Final[dict[str, Wrapper]] = {
    "builtin": _NONE,
    "busybox": _NONE,
    "catchsegv": _NONE,
    "chroot": Wrapper(Options.of("--userspec --groups", "--skip-chdir"), operands=1),
    "chrt": Wrapper(Options.of("pTPD", "abdfimorv"), operands=1),
    "command": Wrapper(Options.of("", "pvV"), looks_up=frozenset("vV")),
    "coproc": _NONE,
    "doas": Wrapper(Options.of("uC", "Lns"), assigns=True, shells=frozenset("s")),
    "env": Wrapper(
        Options.of(
            "uCS --unset --chdir --split-string",
            "i0v --ignore-environment --null --debug",
        ),
        assigns=True,
        scripts=frozenset({"S", "--split-string"}),
    ),
    "exec": Wrapper(Options.of("a", "cl")),
    "fakeroot": _NONE,
    "flock": Wrapper(
        Options.of(
            "wEc --timeout --command --conflict-exit-code",
            "snxuoFv --shared --nonblock --exclusive --unlock --close --no-fork",
        ),
        operands=1,
        scripts=frozenset({"c", "--command"}),
    ),
    "gosu": Wrapper(Options.of(), operands=1),
    "ionice": Wrapper(Options.of("cn --class --classdata", "t --ignore")),
    "linux32": _NONE,
    "linux64": _NONE,
    "ltrace": Wrapper(Options.of("oeaAnpsuDlxFw", "bcCfiLrStT"), writes=frozenset("o")),
    "nice": _NICE,
    "nohup": _NONE,
    "nsenter": Wrapper(
        Options.of(
            "tSGW --target --setuid --setgid --wdns",
            "amuinpUCTFZrwe --all --mount --uts --ipc --net --pid --user --cgroup"
            " --time --no-fork --preserve-credentials",
        ),
        shells=frozenset({"t", "--target", "a", "--all"}),
    ),
    "proxychains": Wrapper(Options.of("f", "q")),
    "proxychains4": Wrapper(Options.of("f", "q")),
    "rlwrap": _NONE,
    "setarch": Wrapper(Options.of("", "RBFILSTXZ3v"), operands=1),
    "setsid": Wrapper(Options.of("", "cfw --ctty --fork --wait")),
    "stdbuf": Wrapper(Options.of("ioe --input --output --error")),
    "strace": Wrapper(
        Options.of(
            "oeapsuEPSbIOX --output --trace --attach --string-limit",
            "cCdfhiqrtTvVxyYzZFDknw --follow-forks --summary-only",
        ),
        writes=frozenset({"o", "--output"}),
    ),
    "su-exec": Wrapper(Options.of(), operands=1),
    "sudo": Wrapper(
        Options.of(
            "ugCpThUrtDR --user --group --prompt --host --chdir --chroot --role"
            " --type --close-from --command-timeout --other-user",
            "AbEHnPSkKBNVvlisel --preserve-env --non-interactive --login --shell"
            " --stdin --background --set-home --askpass --list --validate --edit"
            " --reset-timestamp --remove-timestamp --version --help",
        ),
        assigns=True,
        shells=frozenset({"i", "s", "--login", "--shell"}),
    ),
    "taskset": Wrapper(Options.of("", "ac --all-tasks --cpu-list"), operands=1),
    "time": Wrapper(
        Options.of("of --output --format", "apvqV --append --portability --verbose"),
        writes=frozenset({"o", "--output"}),
    ),
    "timeout": Wrapper(
        Options.of(
            "ks --kill-after --signal", "vf --foreground --preserve-status --verbose"
        ),
        operands=1,
    ),
    "torsocks": _NONE,
    "toybox": _NONE,
    "tsocks": _NONE,
    "unbuffer": Wrapper(Options.of("", "p")),
    "unshare": Wrapper(
        Options.of(
            "SGRw --setuid --setgid --root --wd --propagation --map-user --map-group",
            "muinpUCTfrc --mount --uts --ipc --net --pid --user --cgroup --time"
            " --fork --map-root-user --map-current-user --mount-proc --kill-child",
        ),
        shells=frozenset("muinpUCTfr"),
    ),
    "watch": Wrapper(
        Options.of(
            "nq --interval --equexit",
            "bcdegptwxr --beep --color --differences --errexit --chgexit --no-title"
            " --precise --exec --no-wrap",
        ),
    ),
    "xargs": Wrapper(
        Options.of(
            "IndPaELs --max-args --delimiter --max-procs --arg-file --max-chars"
            " --process-slot-var",
            "0rtpxoil --null --no-run-if-empty --verbose --interactive --exit"
            " --open-tty --replace --max-lines --eof",
        ),
    ),
    "xvfb-run": Wrapper(Options.of("nswefp", "al --auto-servernum")),
}

#: Options after the operands whose value a shell reads: `flock FILE -c SCRIPT`.
_SCRIPTS: Final = frozenset({"-c", "--command"})
#: Wrappers that hand their words to a shell, joined by blanks.
_JOINS: Final = frozenset({"watch"})


def peel(call: Call, reading: Reading) -> Call | None:
    """What a wrapper runs, or None where it runs nothing that is named."""
    name = call.name or ""
    wrapper = WRAPPERS[name]
    options, at = split(call.arguments, wrapper.options)
    _note(name, wrapper, options, call, reading)
    words = list(call.arguments[at:])
    assignments = list[tuple[str, str | None]]()
    if wrapper.assigns:
        assignments, words = _assigned(words)
    words = words[wrapper.operands :]
    if words and wrapper.operands and words[0].text in _SCRIPTS:
        join(call, words[1:2], reading)
        return call.inner(())
    given = {each.name for each in options}
    if given & wrapper.looks_up:
        return None
    if name == "xargs":
        words = _with_input(options, words)
    if name in _JOINS and not given & {"x", "--exec"} and words:
        join(call, words, reading)
        return call.inner((), tuple(assignments))
    if not words:
        if given & wrapper.shells:
            reading.doubt(f"{name} starts a shell")
        for variable, value in assignments:
            reading.steer(variable, value)
        return None
    return call.inner(words, tuple(assignments))


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
    mark = next((o.value for o in options if o.name == "I" and o.value), None)
    braces = any(o.name in ("i", "--replace") for o in options)
    text = mark.text if mark is not None else "{}" if braces else None
    if text is None:
        return [*words, Word("", dynamic=True)]
    return [each.unknown() if text in each.text else each for each in words]


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
