"""What a sandbox should be, as data."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - read by dataclasses
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from isobox._core.network import Capture  # noqa: TC001 - read by dataclasses
from isobox.errors import InvalidArgumentError

MiB = 1024 * 1024

#: Below these a sandbox could not even start.
_LEAST: dict[str, float] = {
    "timeout": 0,
    "max_timeout": 0,
    "output": 0,
    "processes": 8,
    "open_files": 64,
    "file_size": 1,
    "memory": 32 * MiB,
    "tmp": MiB,
    "cpus": 0.05,
    "disk": 1,
}
_FRACTIONS = frozenset(("timeout", "max_timeout", "cpus"))


def _check(name: str, value: object, least: float) -> None:
    if value is None and name not in ("output", "tmp"):
        return
    kinds = (int, float) if name in _FRACTIONS else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds):
        kind = "a number" if name in _FRACTIONS else "a whole number"
        raise InvalidArgumentError(f"Limits: {name}={value!r} is not {kind}")
    if value < least:
        raise InvalidArgumentError(
            f"Limits: {name}={value!r} is too little; the least is {least}"
        )
    if not isfinite(value):
        raise InvalidArgumentError(
            f"Limits: {name}={value!r} limits nothing; leave it out"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a workspace and of each command in it.

    Attributes:
        timeout: Seconds that a command may take when the call names none; None
            is without end.
        max_timeout: The most seconds that a call may name.
        output: Bytes kept of each output of `run` when the call names none.
        processes: Processes alive at once.
        cpus: Processors' worth of time, such as 1.5.
        disk: Bytes that the workspace's own directory may grow to, where the
            backend can watch it.
        open_files: Descriptors that one process may have open.
        file_size: Bytes of the largest file that a process may write.
        memory: Bytes of memory that the whole workspace may use.
        tmp: Bytes that /tmp holds; the private home holds as many.

    Raises:
        InvalidArgumentError: A limit is no number, or too small for a start.
    """

    timeout: float | None = None
    max_timeout: float | None = None
    output: int = 8 * MiB
    processes: int | None = 1024
    open_files: int | None = 4096
    file_size: int | None = None
    memory: int | None = None
    cpus: float | None = None
    disk: int | None = None
    tmp: int = 256 * MiB

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            _check(name, getattr(self, name), least)


#: `live`: commands work on the directory itself. `copy`: on a private view of
#: it, which is applied to the directory when somebody says so.
Mode = Literal["live", "copy"]

#: How much isolation is asked at least: all of it; all but a /proc; Landlock
#: and seccomp alone, where no namespaces are to be had.
MinIsolation = Literal["full", "no_proc", "landlock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A host directory or file that a sandbox sees read-only.

    Attributes:
        source: Absolute path on the host.
        target: Absolute path inside.
    """

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A read-only file that a sandbox sees, whatever the host has there.

    Attributes:
        path: Absolute path inside.
        data: Its content.
    """

    path: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What a provider is asked to make.

    Attributes:
        id: Names the workspace: lower-case letters, digits, `-`.
        workdir: Host directory that becomes the workspace's root; None asks
            for a temporary one that goes when the sandbox closes.
        env: Variables that every command sees, besides the backend's own.
        limits: Limits of the workspace.
        mode: Whether commands work on the directory or on a copy of it.
        mounts: What else is seen of the host, read-only.
        protect: Keep names that the host executes from being written: `.git`,
            editors' and agents' configuration, hooks, rc files.
        unprotected: Names of these that may be written all the same.
        read_only: Show the workspace's directory without the right to write. A
            sandbox that has it so has the capability of that name.
        strict: The narrower system call filter.
        debug: Let processes trace one another, as debuggers need.
        min_isolation: Refuse to start with less.
        labels: Free text that travels with the sandbox.
        files: Read-only files that it sees, such as /etc/resolv.conf.
        capture: What of its network traffic is led to `Sandbox.capture`; None
            is no network at all. A provider that cannot do so refuses.
    """

    id: str
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Limits = field(default_factory=Limits)
    mode: Mode = "live"
    mounts: tuple[Mount, ...] = ()
    protect: bool = True
    unprotected: frozenset[str] = frozenset()
    read_only: bool = False
    strict: bool = False
    debug: bool = False
    min_isolation: MinIsolation = "full"
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    files: tuple[File, ...] = ()
    capture: Capture | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether a backend runs on this machine.

    Attributes:
        backend: Its name.
        ok: Whether it does.
        reason: Why not, or what was found.
        fix: The command that helps, where there is one.
    """

    backend: str
    ok: bool
    reason: str
    fix: str | None = None
