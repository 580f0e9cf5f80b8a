"""What an engine can do, as it says itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from isobox._backends.docker.engine import Answer


@dataclass(frozen=True, slots=True)
class Ability:
    """An engine's ability.

    Attributes:
        name: What it is, with its version.
        rootless: Whether a user runs it, not root.
        user_namespaces: Whether containers' uids are not the host's.
        seccomp: Whether containers get a filter of system calls.
        runtime: What runs containers where nothing is asked.
        runtimes: What could.
        podman: Whether it is Podman.
    """

    name: str
    rootless: bool
    user_namespaces: bool
    seccomp: bool
    runtime: str
    runtimes: frozenset[str]
    podman: bool

    @classmethod
    def of(cls, info: Answer) -> Ability:
        """Read what the engine says."""
        options: object = info.get("SecurityOptions")
        lines = cast("list[object]", options) if isinstance(options, list) else []
        told = {str(line).partition(",")[0].removeprefix("name=") for line in lines}
        known: object = info.get("Runtimes")
        runtimes = (
            cast("dict[object, object]", known) if isinstance(known, dict) else {}
        )
        podman = "podman" in str(info.get("ServerVersion", "")).lower() or (
            "BuildahVersion" in info
        )
        rootless = "rootless" in told
        return cls(
            name=f"{'Podman' if podman else 'Docker'} {info.get('ServerVersion', '')}",
            rootless=rootless,
            user_namespaces=rootless or "userns" in told,
            seccomp="seccomp" in told,
            runtime=str(info.get("DefaultRuntime", "")),
            runtimes=frozenset(map(str, runtimes)),
            podman=podman,
        )
