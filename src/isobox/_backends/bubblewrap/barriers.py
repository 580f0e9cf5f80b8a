"""What a start achieved, dimension by dimension."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from isobox._backends.bubblewrap import network
from isobox.abc import Barrier, Isolation

if TYPE_CHECKING:
    from isobox._backends.bubblewrap.control import Control
    from isobox._backends.bubblewrap.plan import Plan
    from isobox.abc import Limits

MiB: Final = 1024 * 1024


#: What every full start has; `achieved` says the rest.
ISOLATION: Final = Isolation(
    backend="bubblewrap",
    process=Barrier(
        "strong", "pid and ipc namespaces; all of it dies with the guest as pid 1"
    ),
    file_system=Barrier(
        "strong",
        "mount namespace over an allowlist: the system's programs read-only, a "
        "private /tmp and home, the workspace; everything else does not exist",
    ),
    user_identity=Barrier(
        "strong",
        "user namespace, never host uid 0, no capabilities, no_new_privs, no "
        "further user namespaces",
    ),
    network=Barrier("strong", "network namespace with nothing but a loopback"),
    system_calls=Barrier(
        "strong", "seccomp denylist with a ceiling: unknown calls do not exist"
    ),
    resources=Barrier("partial", "rlimits of each process, sized tmpfs"),
    secrets=Barrier("strong", "an environment built from nothing, for bwrap as well"),
    tenant=Barrier("partial", "namespaces of its own, but the caller's uid"),
)


def achieved(plan: Plan) -> Isolation:
    """Return what holds a sandbox that was started by `plan`."""
    held = resources(plan.control, plan.spec.limits, counted=plan.has_stage)
    found = replace(ISOLATION, resources=held)
    if plan.spec.capture is not None:
        found = replace(found, network=network.BARRIER)
    if not plan.root:
        return found
    tenant = Barrier("strong", "started by root: a host uid of its own per sandbox")
    return replace(found, tenant=tenant)


def resources(control: Control, limits: Limits, *, counted: bool) -> Barrier:
    """Return what bounds the use of the host.

    Args:
        control: What bounds it as a whole.
        limits: What was asked.
        counted: Whether private places hold so many files and no more.
    """
    held = control.held
    bounded = held.memory is not None and held.pids is not None
    parts = [*_by_group(control), *_by_watching(control, limits)]
    parts.append("rlimits of each process, sized tmpfs")
    if not counted:
        parts.append("no bound on how many files are in it")
    if limits.memory is None:
        parts.append("no bound on memory: none was asked")
    if limits.cpus is not None and held.cpus is None:
        parts.append("no bound on processors")
    return Barrier("strong" if bounded else "partial", "; ".join(parts))


def _by_group(control: Control) -> list[str]:
    if not control.grouped:
        return [f"no control group ({control.reason})"]
    held = control.held
    bounds = [
        "a fair share of the processors" if held.cpus is None else f"{held.cpus:g} CPUs"
    ]
    if held.memory is not None:
        bounds.append(f"{held.memory // MiB} MiB of memory")
    if held.pids is not None:
        bounds.append(f"{held.pids} processes")
    return [f"a control group holds {', '.join(bounds)}"]


def _by_watching(control: Control, limits: Limits) -> list[str]:
    watched: list[str] = []
    if limits.memory is not None and control.held.memory is None:
        watched.append(f"memory above {limits.memory // MiB} MiB")
    if limits.disk is not None:
        watched.append(f"a directory above {limits.disk // MiB} MiB")
    return [f"a watcher ends {' and '.join(watched)}"] if watched else []
