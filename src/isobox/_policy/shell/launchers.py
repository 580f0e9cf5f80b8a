"""Programs that run another one by a command of their own: `uv run pytest`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._policy.shell.options import Options, split, strange
from isobox._policy.shell.words import literal
from isobox._policy.shell.wrappers import hand_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._policy.shell.reading import Call, Reading
    from isobox._policy.shell.words import Word


@dataclass(frozen=True, slots=True)
class Launcher:
    """How a program runs another one.

    Attributes:
        commands: Its commands that do.
        options: Options of these.
        operands: Words between the command and the program.
    """

    commands: frozenset[str]
    options: Options
    operands: int


def _by(
    commands: str, valued: str = "", flags: str = "", operands: int = 0
) -> Launcher:
    names = frozenset(commands.split())
    return Launcher(names, Options.of(valued, flags), operands)


_EXEC: Final = _by("exec")
_RUN: Final = _by("run")
_CONDA: Final = _by(
    "run", "np --name --prefix --cwd", "v --no-capture-output --live-stream --dev"
)

LAUNCHERS: Final[dict[str, Launcher]] = {
    "aws-vault": _by("exec", operands=1),
    "bundle": _EXEC,
    "bundler": _EXEC,
    "composer": _EXEC,
    "conda": _CONDA,
    "direnv": _by("exec", operands=1),
    "dotenv": _by("run", "fe --file"),
    "distrobox": _by("enter", "n --name"),
    "doppler": _RUN,
    "flatpak": _by("run", "--command"),
    "gem": _EXEC,
    "hatch": _by("run", "e --env", "v"),
    "infisical": _RUN,
    "jj": _by("util", operands=1),
    "mamba": _CONDA,
    "micromamba": _CONDA,
    "mise": _by("exec x"),
    "nix": _by("run shell develop", "c --command", operands=1),
    "nodenv": _EXEC,
    "nvm": _by("exec run", "", "--silent", operands=1),
    "op": _by("run", "--env-file", "--no-masking"),
    "pdm": _by("run", "p", "s"),
    "perf": _by(
        "stat record trace mem c2c kvm lock sched",
        "eCorpFxnFj --event --output --repeat",
        "adgvsi --all-cpus --call-graph",
    ),
    "pipenv": _RUN,
    "pipx": _by("run", "--spec --python --pip-args", "q --no-cache"),
    "pnpm": _by("exec dlx x", "--filter --package C", "rcw --silent --recursive"),
    "podman": _by("unshare"),
    "poetry": _RUN,
    "pyenv": _EXEC,
    "rbenv": _EXEC,
    "rr": _by("record replay", "", "n"),
    "rustup": _by("run", "", "--install", operands=1),
    "rye": _RUN,
    "snap": _RUN,
    "toolbox": _by("run", "cdr --container"),
    "tox": _by("exec", "ec"),
    "uftrace": _by("record live"),
    "uv": _by(
        "run",
        "mpw --module --with --with-requirements --with-editable --python --project"
        " --directory --extra --group --only-group --env-file --package --index-url"
        " --refresh-package",
        "qvs --quiet --verbose --frozen --locked --no-sync --isolated --offline"
        " --no-project --all-extras --dev --no-dev --active --exact --script"
        " --all-groups"
        " --no-default-groups --no-cache --refresh --all-packages --no-env-file",
    ),
    "volta": _by("run", "--node --npm --yarn"),
    "yarn": _by("exec dlx", "p --package", "q --quiet --silent"),
}


def launch(call: Call, reading: Reading) -> None:
    """Note what a command of such a program runs."""
    launcher = LAUNCHERS[call.kind]
    texts = [each.text for each in call.arguments]
    places = [texts.index(each) for each in launcher.commands if each in texts]
    if not places:
        return
    at = min(places) + 1
    options, operand = split(call.arguments[at:], launcher.options)
    for each in options:
        if not each.known:
            reading.doubt(strange(call.name or "", each))
        if each.name in ("c", "--command"):
            reading.doubt(f"{call.name} is told to run a program")
            hand_on(call, each.value, reading)
        if each.name in ("m", "--module"):
            _module(call, each.value, reading)
            return
    words = call.arguments[at + operand + launcher.operands :]
    _invoke(call, words, reading)


def _invoke(call: Call, words: Sequence[Word], reading: Reading) -> None:
    if words and words[0].text == "--":
        words = words[1:]
    if words:
        reading.invoke(call.inner(words))


def _module(call: Call, name: Word | None, reading: Reading) -> None:
    if name is None:
        return
    at = call.arguments.index(name) + 1
    words = (literal("python3"), literal("-m"), name, *call.arguments[at:])
    _invoke(call, words, reading)
