"""The `runsc` program: which one, and what it can do."""

from __future__ import annotations

import functools
import os
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from typing import Final, Literal, get_args

from isobox.errors import BackendUnavailableError

Platform = Literal["systrap", "ptrace", "kvm"]

PLATFORMS: Final[tuple[Platform, ...]] = get_args(Platform)

#: Taken when none is named: what needs nothing of the machine, the faster first.
_EVERYWHERE: Final[tuple[Platform, ...]] = ("systrap", "ptrace")
_INSTALL: Final = "apt-get install runsc, or see gvisor.dev for a newer one"
_SYSTEM: Final = "/usr/bin/runsc"
_VERSION: Final = re.compile(r"runsc version ([!-~]{1,60})")
_CHOICES: Final = re.compile(
    r"-platform .*?which platform to use: ([^.\n]*)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Runsc:
    """A runsc that will do.

    Attributes:
        path: Where it is.
        version: What it calls itself.
        platforms: How it can run the workload's code.
    """

    path: str
    version: str
    platforms: tuple[Platform, ...]

    def platform(self, wanted: Platform | None) -> Platform:
        """Return how the workload's code is to be run.

        Raises:
            BackendUnavailableError: Not in the wanted way.
        """
        usable = self.platforms if wanted else _EVERYWHERE
        for each in (wanted,) if wanted else _EVERYWHERE:
            if each in self.platforms:
                return each
        raise unavailable(
            f"runsc {self.version} has no platform {wanted or ' or '.join(usable)}; "
            f"it has {', '.join(self.platforms) or 'none that is known'}",
            "leave `platform` out" if wanted else _INSTALL,
        )


def find() -> Runsc:
    """Return the runsc of this machine.

    Raises:
        BackendUnavailableError: There is none, or none that will do; the
            message says what to install.
    """
    if not sys.platform.startswith("linux"):
        raise unavailable("gVisor runs on Linux only", None)
    for path in _candidates():
        if os.stat(path).st_mode & stat.S_ISUID:
            raise unavailable(
                f"{path} has the set-uid bit: a privileged program in itself, which "
                "a sandbox should not lean on",
                f"chmod u-s {path}",
            )
        return _examined(path)
    raise unavailable("runsc is not installed", _INSTALL)


def _candidates() -> list[str]:
    # A relative entry of the PATH may be the workspace.
    named = [shutil.which("runsc"), _SYSTEM]
    return [path for path in named if path and os.path.isabs(path) and _is_file(path)]


def _is_file(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


@functools.lru_cache(maxsize=8)
def _examined(path: str) -> Runsc:
    version = _VERSION.search(_said(path, "--version"))
    choices = _CHOICES.search(_said(path, "flags"))
    if version is None or choices is None:
        raise unavailable(f"{path} is no runsc that isobox knows", _INSTALL)
    named = set(re.findall(r"[a-z]+", choices[1]))
    known: list[Platform] = [each for each in PLATFORMS if each in named]
    return Runsc(path, version[1], tuple(known))


def _said(path: str, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise unavailable(f"{path} does not run: {error}", _INSTALL) from error
    return done.stdout.decode("utf-8", "replace")


def unavailable(message: str, fix: str | None) -> BackendUnavailableError:
    """Return the error that says why gVisor cannot be used here."""
    return BackendUnavailableError(message, fix=fix, backend="gvisor")
