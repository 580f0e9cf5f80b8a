"""The spec of `confine.py`, from this side."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Standard error starts with this where the program failed, not what it runs.
FAILURE: Final = "isobox-confine: "

SOURCE: Final = Path(__file__).with_name("confine.py")

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 0x1, 0x2, 0x4, 0x8
MAKE_CHAR, MAKE_BLOCK, REFER = 0x40, 0x800, 0x2000
TRUNCATE, IOCTL_DEV = 0x4000, 0x8000
READ: Final = EXECUTE | READ_FILE | READ_DIR
USE: Final = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV

#: From which version of Landlock on it can hold what.
REFER_ABI, TRUNCATE_ABI, NETWORK_ABI, DEVICES_ABI, SCOPES_ABI = 2, 3, 4, 5, 6

_BIND_AND_CONNECT: Final = 0x3
_SIGNALS_AND_ABSTRACT_SOCKETS: Final = 0x3


@dataclass
class Rules:
    """What Landlock takes, and what of that is kept where.

    Attributes:
        files: Rights on files that are taken.
        network: Rights on TCP that are taken.
        scopes: What reaches only others under the same rules.
        allowed: Rights that are kept, each with a path.
    """

    files: int
    network: int
    scopes: int
    allowed: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def allow(self, rights: int, *paths: str) -> None:
        """Keep `rights` at `paths` and below."""
        self.allowed += [(rights, path) for path in paths]


def everything(version: int) -> Rules:
    """Return rules that take every right which Landlock `version` knows."""
    return Rules(
        files=(TRUNCATE << 1) - 1 | (IOCTL_DEV if version >= DEVICES_ABI else 0),
        network=_BIND_AND_CONNECT if version >= NETWORK_ABI else 0,
        scopes=_scopes(version),
    )


def beside_namespaces(version: int) -> Rules | None:
    """Return rules that take what nothing needs inside namespaces.

    Devices, and, with any rule on files, every mount: even where a further user
    namespace could be had.
    """
    if version < REFER_ABI:
        return None
    # Renames between directories are refused unless they are named and allowed.
    rules = Rules(MAKE_CHAR | MAKE_BLOCK | REFER, 0, _scopes(version))
    rules.allow(REFER, "/")
    return rules


def _scopes(version: int) -> int:
    return _SIGNALS_AND_ABSTRACT_SOCKETS if version >= SCOPES_ABI else 0


def confine_command(
    spec_fd: int, *, python: str = sys.executable, program: str = str(SOURCE)
) -> tuple[str, ...]:
    """Return the argv that runs the program on the spec in `spec_fd`."""
    return (python, "-I", "-S", program, str(spec_fd))


def confine_spec(
    argv: Sequence[str],
    *,
    rules: Rules | None,
    keep: int | None = None,
    user: int | None = None,
    own_user: bool = False,
    enter: str | None = None,
    filters: Iterable[int] = (),
    groups: Iterable[int] = (),
) -> bytes:
    """Return what the program reads.

    Args:
        argv: What it executes, by absolute path, with an empty environment.
        rules: What Landlock takes.
        keep: The process that starts it. A keeper then stays behind, and kills
            all that was started when the program or that process ends.
        own_user: Nobody else is `user`: at the end, all that is theirs is killed.
        user: Host user and group that it becomes; not 0. None stays who it is.
        enter: A directory that the user must be able to enter by name.
        filters: Descriptors of system call filters.
        groups: Descriptors of `cgroup.procs` of control groups to enter.

    Raises:
        InvalidArgumentError: Root was asked for, `argv` is empty, or it holds a
            NUL.
    """
    if user is not None and user < 1:
        raise InvalidArgumentError("a sandbox never runs as host user or group 0")
    if not argv:
        raise InvalidArgumentError("argv is empty; name the program to execute")
    fields: list[object] = []
    for group in groups:
        fields += ["join", group]
    if keep is not None:
        fields += ["keep", keep, user if user and own_user else 0]
    if user is not None:
        fields += ["user", user, user]
    if rules is not None:
        fields += ["landlock", rules.files, rules.network, rules.scopes]
        for rights, path in rules.allowed:
            fields += ["allow", rights, path]
    if enter is not None:
        fields += ["enter", enter]
    for filter_fd in filters:
        fields += ["seccomp", filter_fd]
    return b"".join(map(_field, [*fields, "exec", *argv]))


def _field(value: object) -> bytes:
    field = os.fsencode(str(value))
    if b"\0" in field:
        raise InvalidArgumentError(f"a NUL byte in {value!r}")
    return field + b"\0"
