"""What a container achieves, dimension by dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from isobox.abc import Barrier, Isolation

if TYPE_CHECKING:
    from isobox._backends.docker.ability import Ability
    from isobox._backends.docker.recipe import Recipe

MiB: Final = 1024 * 1024
#: Runtimes whose containers have a kernel of their own.
_GVISOR: Final = "runsc"
_KATA: Final = "kata"


def achieved(recipe: Recipe, ability: Ability, *, spared: bool) -> Isolation:
    """Return what holds a container that was made by `recipe`.

    Args:
        recipe: What it is made of.
        ability: What the engine can do.
        spared: Whether commands are kept from the guest's limits and scheduling.
    """
    reach = "cannot change" if spared else "can change"
    return Isolation(
        backend="docker",
        process=Barrier(
            "partial",
            "pid and ipc namespaces of the container; commands see the guest and its "
            f"relays in them, and {reach} limits and scheduling of the guest",
        ),
        file_system=_files(recipe),
        user_identity=_user(recipe, ability),
        network=_network(recipe),
        system_calls=_calls(recipe, ability),
        resources=_resources(recipe),
        secrets=_secrets(recipe, ability),
        tenant=_tenant(recipe, ability),
    )


def is_gvisor(recipe: Recipe, ability: Ability) -> bool:
    """Whether gVisor runs the container."""
    return _GVISOR in (recipe.options.runtime or ability.runtime)


def _files(recipe: Recipe) -> Barrier:
    parts = ["mount namespace over the image's files"]
    parts.append(
        "a read-only root, private /tmp and home"
        if recipe.options.read_only_root
        else "a root that can be written, which goes with the container"
    )
    if recipe.spec.workdir is not None:
        parts.append(
            "of the host the workspace's directory, names in it that the "
            "host executes and set-id bits included"
        )
    parts.append("the engine shows /sys, and devices or control groups read-only")
    return Barrier("partial", "; ".join(parts))


def _secrets(recipe: Recipe, ability: Ability) -> Barrier:
    held = "the image's environment and what was asked, nothing of the host"
    if is_gvisor(recipe, ability):
        return Barrier("partial", f"{held}; the guest's own can be read")
    return Barrier("strong", held)


def _user(recipe: Recipe, ability: Ability) -> Barrier:
    held = "no capabilities, no_new_privs"
    if recipe.user.uid and (ability.user_namespaces or is_gvisor(recipe, ability)):
        return Barrier(
            "strong", f"uid {recipe.user.uid} that is not the host's, {held}"
        )
    if recipe.user.uid:
        known = "in the host's user namespace"
        return Barrier("partial", f"uid {recipe.user.uid} {known}, {held}")
    if ability.rootless:
        return Barrier("strong", f"root of a user namespace, {held}")
    return Barrier("partial", f"root of the container, {held}")


def _network(recipe: Recipe) -> Barrier:
    alone = (
        "network namespace with nothing but a loopback; sockets to a hypervisor and "
        "of netlink are made where the engine's filter lets them"
    )
    if recipe.spec.capture is None:
        return Barrier("partial", alone)
    return Barrier(
        "partial", f"{alone}; what leaves passes the guest to the filter on the host"
    )


def _calls(recipe: Recipe, ability: Ability) -> Barrier:
    runtime = recipe.options.runtime or ability.runtime
    if is_gvisor(recipe, ability):
        return Barrier("partial", "gVisor: a kernel in user space answers them all")
    if _KATA in runtime:
        return Barrier("partial", "Kata: a virtual machine with its own kernel")
    if ability.seccomp:
        return Barrier("partial", "the engine's seccomp filter, made for any program")
    return Barrier("none", "the engine has no seccomp filter")


def _resources(recipe: Recipe) -> Barrier:
    limits = recipe.spec.limits
    held: list[str] = []
    if limits.memory is not None:
        held.append(f"{limits.memory // MiB} MiB of memory")
    if limits.processes is not None:
        held.append(f"{limits.processes} processes")
    if limits.cpus is not None:
        held.append(f"{limits.cpus:g} CPUs")
    parts = [f"a control group holds {', '.join(held)}"] if held else []
    parts.append("rlimits of each process, sized tmpfs")
    if limits.memory is None:
        parts.append("no bound on memory: none was asked")
    parts.append("no bound on the workspace's size")
    bounded = limits.memory is not None and limits.processes is not None
    return Barrier("strong" if bounded else "partial", "; ".join(parts))


def _tenant(recipe: Recipe, ability: Ability) -> Barrier:
    if ability.user_namespaces:
        return Barrier("strong", "a user namespace of the engine's")
    if is_gvisor(recipe, ability):
        return Barrier("strong", "gVisor's kernel is the container's own")
    return Barrier(
        "partial", f"the host knows uid {recipe.user.uid} too; containers may share it"
    )
