"""What a start achieved, dimension by dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from isobox.abc import Barrier, Isolation

if TYPE_CHECKING:
    from isobox._backends.gvisor.bounds import Bounds
    from isobox._backends.gvisor.start import Plan

MiB: Final = 1024 * 1024

_NO_NETWORK: Final = Barrier(
    "strong", "gVisor's own network stack with nothing but a loopback"
)
_FILTERED: Final = Barrier(
    "strong",
    "gVisor's own network stack with nothing but a loopback; what the guest relays "
    "passes the filter on the host",
)
_OWN_USER: Final = Barrier(
    "strong", "started by root: a host uid of its own per sandbox"
)
_CALLERS: Final = Barrier("partial", "a kernel of its own, but the caller's uid")


def achieved(plan: Plan) -> Isolation:
    """Return what holds a sandbox that was started by `plan`."""
    return Isolation(
        backend="gvisor",
        process=Barrier(
            "partial",
            "processes of gVisor's kernel, which sees none of the host's; all of it "
            "dies with the host; inside, commands can list what the guest has open, "
            "though not take its channel",
        ),
        file_system=Barrier(
            "strong",
            "opened by a gofer process over an allowlist: the system's programs "
            "read-only, a private /tmp and home, the workspace; everything else does "
            "not exist",
        ),
        user_identity=Barrier(
            "strong",
            "rootless gVisor in a user namespace, never host uid 0; inside an ordinary "
            "user, no capabilities, no_new_privs",
        ),
        network=_NO_NETWORK if plan.spec.capture is None else _FILTERED,
        system_calls=Barrier(
            "strong",
            f"gVisor's kernel in user space, platform {plan.platform}, "
            f"version {plan.runsc.version}; "
            "inside it a seccomp denylist with a ceiling",
        ),
        resources=resources(plan.bounds),
        secrets=Barrier("strong", "an environment built from nothing"),
        tenant=_OWN_USER if plan.root else _CALLERS,
    )


def resources(bounds: Bounds) -> Barrier:
    """Return what bounds the use of the host."""
    held = bounds.held
    parts = [_group(bounds), "rlimits of each process, sized tmpfs"]
    if bounds.limits.memory is None:
        parts.append("no bound on memory: none was asked")
    bounded = held.memory is not None and held.pids is not None
    return Barrier("strong" if bounded else "partial", "; ".join(parts))


def _group(bounds: Bounds) -> str:
    if not bounds.grouped:
        own = ", a limit on gVisor's own tasks" if bounds.limits.processes else ""
        return f"no control group ({bounds.reason}){own}"
    held = bounds.held
    parts = [
        "a fair share of the processors" if held.cpus is None else f"{held.cpus:g} CPUs"
    ]
    if held.memory is not None:
        parts.append(f"{held.memory // MiB} MiB of memory, gVisor's own included")
    if held.pids is not None:
        parts.append(f"{held.pids} tasks of the host")
    return f"a control group holds {', '.join(parts)}"
