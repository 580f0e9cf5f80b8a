"""System calls that the standard library does not wrap."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from typing import Final, Literal

from isobox.errors import BackendUnavailableError

Arch = Literal["x86_64", "aarch64"]

RESOLVE_NO_XDEV: Final = 0x01
RESOLVE_NO_MAGICLINKS: Final = 0x02
RESOLVE_NO_SYMLINKS: Final = 0x04
RESOLVE_BENEATH: Final = 0x08
RESOLVE_IN_ROOT: Final = 0x10

PR_SET_PDEATHSIG: Final = 1
PR_SET_NO_NEW_PRIVS: Final = 38

# Calls newer than 2018 have one number on every architecture.
_OPENAT2: Final = 437

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def architecture() -> Arch:
    """Return the machine's architecture.

    Raises:
        BackendUnavailableError: It is neither x86_64 nor aarch64.
    """
    machine = platform.machine()
    if machine == "x86_64":
        return "x86_64"
    if machine == "aarch64":
        return "aarch64"
    raise BackendUnavailableError(
        f"isobox knows the system calls of x86_64 and aarch64, not of {machine}"
    )


def syscall(number: int, *arguments: object) -> int:
    """Make a system call; integers travel as words, the rest as pointers.

    Raises:
        OSError: The kernel refused.
    """
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *words))


def openat2(
    dirfd: int, path: bytes | str, flags: int, mode: int = 0, resolve: int = 0
) -> int:
    """Open `path` below `dirfd` under the rules in `resolve` (`RESOLVE_*`).

    Returns:
        A descriptor that is closed on exec.

    Raises:
        OSError: The kernel refused; EXDEV or ELOOP where a rule was broken.
        ValueError: `path` holds a NUL.
    """
    how = _OpenHow(flags | os.O_CLOEXEC, mode, resolve)
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("embedded null byte")
    return syscall(_OPENAT2, dirfd, name, ctypes.byref(how), ctypes.sizeof(how))


def setns(fd: int, kind: int = 0) -> None:
    """Enter the namespace of `fd`, which must be of `kind` (`CLONE_NEW*`) if given.

    Raises:
        OSError: The kernel refused.
    """
    _checked(_libc.setns(fd, kind))


def unshare(flags: int) -> None:
    """Leave the namespaces in `flags` (`CLONE_NEW*`) for new ones.

    Raises:
        OSError: The kernel refused.
    """
    _checked(_libc.unshare(flags))


def prctl(option: int, *arguments: int) -> int:
    """Make the call prctl; arguments not given are 0.

    Raises:
        OSError: The kernel refused.
    """
    padded = [*arguments, 0, 0, 0, 0][:4]
    return _checked(_libc.prctl(option, *map(ctypes.c_ulong, padded)))


def pidfd_open(pid: int) -> int:
    """Return a descriptor for process `pid`, closed on exec.

    Raises:
        ProcessLookupError: There is no such process.
        OSError: The kernel refused.
    """
    return os.pidfd_open(pid)


def pidfd_kill(pidfd: int) -> bool:
    """Send SIGKILL; return False if the process is gone already.

    Raises:
        OSError: The kernel refused.
    """
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
