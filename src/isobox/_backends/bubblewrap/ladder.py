"""With how much isolation a sandbox starts where not all of it is to be had.

    full        namespaces of every kind
    no_proc     the same without a /proc, which a container that masks parts of
                its own keeps us from mounting; Landlock beside it
    landlock    no namespaces: Landlock and seccomp alone, and a keeper process
                outside of them that kills what is left

A start goes down as far as it was allowed to and no further, and `isolation()`
says where it arrived.
"""

from __future__ import annotations

import glob
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final, get_args

from isobox._backends.bubblewrap import machine, view
from isobox._guest import bundle
from isobox._linux import confining, landlock, seccomp, system
from isobox._linux.uids import HOST_UIDS, UidRange
from isobox.abc import Barrier, MinIsolation
from isobox.errors import BackendUnavailableError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import TypeVar

    from isobox._backends.bubblewrap.plan import Plan
    from isobox.abc import Capability, Isolation, SandboxSpec

    Started = TypeVar("Started")

RUNGS: Final[tuple[MinIsolation, ...]] = get_args(MinIsolation)

#: Where `confine.py` and what it reads is seen in a sandbox without a /proc.
_CONFINE: Final = "/run/isobox/confine"
_DEVICES: Final = ("full", "null", "random", "urandom", "zero")
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
#: Of /etc, what the other rungs make up: here it is the machine's own.
_NAMES: Final = (
    "group",
    "host.conf",
    "hosts",
    "nsswitch.conf",
    "passwd",
    "resolv.conf",
)
#: Terminals are the user's own there, and there are no sockets.
_NEEDS_NAMESPACES: Final[frozenset[Capability]] = frozenset(
    ("tty", "dial", "listen", "capture", "read_only")
)


async def descend(
    spec: SandboxSpec, start: Callable[[MinIsolation], Awaitable[Started]]
) -> Started:
    """Start on the highest rung that this machine has, none below the one asked.

    Raises:
        BackendUnavailableError: There is none; it says what keeps the highest
            from being reached, and why the lowest that was allowed was not.
    """
    failures: list[BackendUnavailableError] = []
    for rung in RUNGS[: RUNGS.index(spec.min_isolation) + 1]:
        try:
            return await start(rung)
        except BackendUnavailableError as error:
            failures.append(error)
    first, last = failures[0], failures[-1]
    if last.message == first.message:
        raise first
    raise BackendUnavailableError(
        f"{brief(first)}; nor with {spec.min_isolation}: {brief(last)}",
        fix=first.fix,
        backend="bubblewrap",
    ) from last


def brief(error: BackendUnavailableError) -> str:
    """Return what is in the way, without what to do about it."""
    return error.message.partition("\n")[0]


# -- users ---------------------------------------------------------------------------


def uid_range(id_map: str) -> UidRange:
    """Return the ids for sandboxes where `id_map` says which there are.

    Raises:
        BackendUnavailableError: There are none but root's.
    """
    ranges = machine.id_ranges(id_map)
    if any(_holds(HOST_UIDS, first, count) for first, count in ranges):
        return HOST_UIDS
    first, count = max(ranges, key=lambda each: each[1], default=(0, 0))
    if count < 2:
        raise BackendUnavailableError(
            "this user namespace has no user id besides root's for a sandbox",
            fix="start isobox outside of it, as an ordinary user",
            backend="bubblewrap",
        )
    # The upper half: accounts of the container are found in the lower.
    size = min(count // 2, HOST_UIDS.size)
    return UidRange(base=first + count - size, size=size)


def _holds(wanted: UidRange, first: int, count: int) -> bool:
    return first <= wanted.base and wanted.base + wanted.size <= first + count


def lease(plan: Plan) -> int:
    """Return the host uid of a sandbox that root starts.

    Raises:
        BackendUnavailableError: There is none.
    """
    with open("/proc/self/uid_map", encoding="ascii") as file:
        available = uid_range(file.read())
    return plan.held.enter_context(available.lease(plan.spec.id)).uid


def owner_instead(path: str, owner: int) -> int:
    """Return whom root's sandbox runs as where a directory cannot be id-mapped.

    Raises:
        BackendUnavailableError: It would be root.
    """
    if owner != 0:
        return owner
    raise BackendUnavailableError(
        f"{path} is root's, and no sandbox runs as root: here, without CAP_SYS_ADMIN "
        "or without namespaces, it cannot be shown to another user",
        fix=f"chown -R 1000:1000 {path}, or start isobox as an ordinary user, or "
        "mode='copy'",
        backend="bubblewrap",
    )


def can_map(plan: Plan) -> bool:
    """Return whether root may show a directory as another user's."""
    return plan.rung != "landlock" and machine.may_mount()


# -- no /proc ------------------------------------------------------------------------


def without_proc(plan: Plan, guest: Sequence[str]) -> list[str]:
    """Return the argv that takes what namespaces leave, then runs the guest."""
    rules = confining.beside_namespaces(landlock.abi())
    spec = plan.shown.data(confining.confine_spec(guest, rules=rules))
    source = plan.shown.data(confining.SOURCE.read_bytes())
    plan.shown.add("--ro-bind-data", source, _CONFINE)
    command = confining.confine_command(int(spec), python=guest[0], program=_CONFINE)
    return list(command)


def highest_pid(plan: Plan) -> int | None:
    """Return the highest pid there can be, where no /proc tells the guest."""
    if plan.rung != "no_proc":
        return None
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        return int(file.read())


# -- no namespaces -------------------------------------------------------------------


def without_namespaces(plan: Plan) -> Sequence[str]:
    """Return the argv that starts a guest under Landlock and seccomp alone.

    Raises:
        BackendUnavailableError: The kernel's Landlock does not hold enough.
        UnsupportedError: Something was asked that only mounts can do.
    """
    _refuse_what_needs_mounts(plan.spec)
    version = landlock.abi()
    if lacking := machine.landlock_lacks(version, root=plan.root):
        raise BackendUnavailableError(
            f"Landlock cannot hold a sandbox alone: {lacking}", backend="bubblewrap"
        )
    shown, spec = plan.shown, plan.spec
    plan.python = view.interpreter(shown)
    guest = shown.data(bundle.program(plan.python))
    filters = (
        seccomp.build("strict" if spec.strict else "standard", debug=spec.debug),
        seccomp.without_namespaces(),
    )
    launch = confining.confine_spec(
        [plan.python, "-I", "-S", f"/dev/fd/{guest}"],
        rules=_rules(plan, version),
        keep=os.getpid(),
        user=plan.uid if plan.root else None,
        own_user=plan.own_uid,
        enter=plan.inside,
        filters=[int(shown.data(code)) for code in filters],
        groups=plan.entrances(),
    )
    return confining.confine_command(int(shown.data(launch)))


def _refuse_what_needs_mounts(spec: SandboxSpec) -> None:
    if spec.capture is not None:
        raise BackendUnavailableError(
            "without namespaces there is no network of the sandbox's own to lead to "
            "the filter; leave `network` out, or allow no less than namespaces",
            backend="bubblewrap",
        )
    if spec.files:
        raise UnsupportedError(
            f"without namespaces, {spec.files[0].path!r} cannot be shown",
            backend="bubblewrap",
            path=spec.files[0].path,
        )
    if spec.protect and spec.workdir is not None and spec.mode == "live":
        raise UnsupportedError(
            "without namespaces, protected names cannot be kept from being written: "
            "Landlock has no exceptions below a directory; use mode='copy', or "
            "protect=False if nothing on the host runs what is written there",
            backend="bubblewrap",
        )
    for mount in spec.mounts:
        if os.path.realpath(mount.source) != mount.target:
            raise UnsupportedError(
                f"without namespaces, {mount.source!r} is seen only at its own path, "
                f"not at {mount.target!r}",
                backend="bubblewrap",
                path=mount.source,
            )


def _rules(plan: Plan, version: int) -> confining.Rules:
    rules = confining.everything(version)
    rules.allow(confining.READ, *_readable(plan.python))
    rules.allow(confining.READ, *(mount.target for mount in plan.spec.mounts))
    rules.allow(confining.USE, *(f"/dev/{name}" for name in _DEVICES))
    # SAFETY: by descriptor, so that it is the directory that was checked.
    rules.allow(rules.files, f"/proc/self/fd/{plan.workdir}", plan.scratch)
    return rules


def _readable(python: str) -> list[str]:
    own = [path for pattern in system.ETC for path in glob.glob(pattern)]
    named = [f"/etc/{name}" for name in _NAMES]
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    wanted = dict.fromkeys([*_SYSTEM, *own, *named, "/proc", prefix])
    return [path for path in wanted if os.path.exists(path)]


def scratch(plan: Plan) -> str:
    """Return a private directory with a `tmp` and a `home` in it."""
    path = plan.temporary()
    for name in ("tmp", "home"):
        below = os.path.join(path, name)
        os.mkdir(below, 0o700)
        if plan.root:
            os.chown(below, plan.uid, plan.uid)
    return path


def environment(plan: Plan) -> dict[str, str]:
    """Return the variables that are other than with mounts."""
    if plan.rung != "landlock":
        return {}
    home, tmp = (os.path.join(plan.scratch, name) for name in ("home", "tmp"))
    # git gives up on a configuration that is there and does not open.
    return {"HOME": home, "TMPDIR": tmp, "GIT_CONFIG_NOSYSTEM": "1"}


# -- what was reached ----------------------------------------------------------------


_OWNERS: Final = Barrier(
    "partial", "started by root without CAP_SYS_ADMIN: as the directory's owner"
)


def capabilities(plan: Plan, full: frozenset[Capability]) -> frozenset[Capability]:
    """Return what a sandbox on this rung can do of what it could with all."""
    if plan.rung == "landlock":
        return full - _NEEDS_NAMESPACES
    lacking: set[Capability] = set() if plan.spec.read_only else {"read_only"}
    lacking.add("capture" if plan.spec.capture is None else "no_network")
    return full - lacking


def reached(plan: Plan, full: Isolation) -> Isolation:
    """Return what holds on this rung where `full` would hold on the highest."""
    if plan.root and not plan.own_uid:
        full = replace(full, tenant=_OWNERS)
    if plan.rung == "no_proc":
        return _reached_without_proc(full)
    if plan.rung == "landlock":
        return _reached_without_namespaces(full)
    return full


def _reached_without_proc(full: Isolation) -> Isolation:
    confined = confining.beside_namespaces(landlock.abi()) is not None
    beside = "Landlock refuses mounts and devices" if confined else "without Landlock"
    return replace(
        full,
        process=Barrier(
            "strong",
            "no_proc: pid and ipc namespaces, and no /proc at all; all of it dies with "
            "the guest as pid 1",
        ),
        user_identity=Barrier(
            "strong",
            "no_proc: user namespace, never host uid 0, no capabilities, no_new_privs; "
            f"further user namespaces are refused by the filter alone, {beside}",
        ),
    )


def _reached_without_namespaces(full: Isolation) -> Isolation:
    return replace(
        full,
        process=Barrier(
            "partial",
            "landlock: no pid namespace, other processes are listed in /proc; Landlock "
            "or a user of its own keeps signals and tracing inside, a keeper outside "
            "kills what is left",
        ),
        file_system=Barrier(
            "partial",
            "landlock: the system's programs read-only, the workspace and a private "
            "tmp and home writable, nothing else opens; names and metadata elsewhere "
            "are seen, and the user's own metadata can be changed",
        ),
        user_identity=Barrier(
            "partial",
            "landlock: no user namespace; never uid 0, no capabilities, no_new_privs",
        ),
        network=Barrier(
            "partial",
            "landlock: seccomp allows no sockets but connected pairs; the network "
            "namespace is the host's, and shows in /proc/net",
        ),
        system_calls=Barrier(
            "partial",
            f"landlock: {full.system_calls.mechanism}; no sockets, no System V and "
            "POSIX queues; processes without such a filter are in view",
        ),
        resources=Barrier(
            "partial", "landlock: rlimits of each process; tmp and home are on the disk"
        ),
        secrets=Barrier(
            "partial",
            "landlock: an environment built from nothing; the command lines of other "
            "processes can be read",
        ),
        tenant=Barrier(
            "partial",
            "landlock: nothing of another opens; its processes and names can be seen",
        ),
    )
