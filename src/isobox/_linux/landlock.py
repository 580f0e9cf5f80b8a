"""Landlock: what this process and its children may touch, for ever after."""

from __future__ import annotations

import ctypes
import os
import stat
from typing import TYPE_CHECKING, Final, Literal

from isobox._linux.syscalls import PR_SET_NO_NEW_PRIVS, prctl, syscall
from isobox.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

Scope = Literal["abstract_unix_sockets", "signals"]

# Newer than 2018: the same numbers on every architecture.
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446

_ASK_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_NET_PORT: Final = 2
_CONNECT_TCP: Final = 2
_BIND_AND_CONNECT: Final = 3
_SCOPES: Final[dict[Scope, int]] = {"abstract_unix_sockets": 1, "signals": 2}

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_READ_ONLY: Final = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

# Below the third version a file that may not be written can still be emptied.
_FILES_ABI: Final = 3
_NETWORK_ABI: Final = 4
_DEVICES_ABI: Final = 5
_SCOPES_ABI: Final = 6
_FILE_RIGHTS: Final = (1 << 15) - 1


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


class _NetPort(ctypes.Structure):
    _fields_ = (("allowed_access", ctypes.c_uint64), ("port", ctypes.c_uint64))


def abi() -> int:
    """Return the version of Landlock that the kernel has; 0 is none."""
    try:
        return syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def restrict(
    *,
    ro: Iterable[str],
    rw: Iterable[str],
    tcp_connect: Collection[int] | None = None,
    scopes: Collection[Scope] = (),
) -> tuple[str, ...]:
    """Restrict this thread, and what it starts, for as long as they live.

    Files outside `ro` and `rw` can be looked up and their metadata read, not
    opened. Not covered by Landlock: UDP, change of mode and owner, and sockets
    that have a path.

    Args:
        ro: Files and directories to read and execute, all below included.
        rw: Those to change as well.
        tcp_connect: The only ports to connect to, and no port to listen on; None
            leaves TCP alone.
        scopes: Reach only processes under the same restriction by these means.

    Returns:
        What the kernel is too old to hold although nothing here asked to let it
        through.

    Raises:
        BackendUnavailableError: The kernel cannot hold what the arguments ask;
            nothing was restricted.
        OSError: A path does not open, or the kernel refused; the same.
    """
    version = abi()
    _require(version, network=tcp_connect is not None, scopes=bool(scopes))
    devices = _IOCTL_DEV if version >= _DEVICES_ABI else 0
    rights = _FILE_RIGHTS | devices
    ruleset = _create(
        rights,
        0 if tcp_connect is None else _BIND_AND_CONNECT,
        sum(_SCOPES[scope] for scope in set(scopes)),
    )
    try:
        for path in ro:
            _allow_path(ruleset, path, _READ_ONLY)
        for path in rw:
            _allow_path(ruleset, path, rights)
        for port in tcp_connect or ():
            _allow_port(ruleset, port)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return () if devices else ("ioctl on devices",)


def _require(version: int, *, network: bool, scopes: bool) -> None:
    needs = {
        "files": _FILES_ABI,
        "TCP": _NETWORK_ABI if network else 0,
        "signals and abstract sockets": _SCOPES_ABI if scopes else 0,
    }
    lacking = [what for what, needed in needs.items() if version < needed]
    if lacking:
        raise BackendUnavailableError(
            f"Landlock version {version} cannot hold {' and '.join(lacking)}; "
            f"version {max(needs.values())} is needed"
        )


def _create(files: int, network: int, scopes: int) -> int:
    attributes = _RulesetAttributes(files, network, scopes)
    # A kernel that does not know the last fields takes them where they are 0.
    size = ctypes.sizeof(attributes)
    return syscall(_CREATE_RULESET, ctypes.byref(attributes), size, 0)


def _allow_path(ruleset: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _OF_FILES
        rule = _PathBeneath(rights, fd)
        syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(fd)


def _allow_port(ruleset: int, port: int) -> None:
    rule = _NetPort(_CONNECT_TCP, port)
    syscall(_ADD_RULE, ruleset, _NET_PORT, ctypes.byref(rule), 0)
