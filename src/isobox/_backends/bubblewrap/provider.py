"""The bubblewrap backend."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import anyio.to_thread
from typing_extensions import override

from isobox._backends.bubblewrap import binary, view
from isobox._backends.bubblewrap.plan import Plan
from isobox._channel.sandbox import ChannelSandbox
from isobox._channel.start import GuestChild, GuestFailedError
from isobox.abc import (
    Availability,
    Barrier,
    Capability,
    Isolation,
    Provider,
    SandboxSpec,
)
from isobox.errors import BackendUnavailableError

if TYPE_CHECKING:
    from isobox.abc import Sandbox

_CAPABILITIES: Final[frozenset[Capability]] = frozenset(
    (
        "tty",
        "dial",
        "snapshot",
        "rlimits",
        "kill_tree",
        "isolated",
        "no_network",
        "persistent",
    )
)

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
    resources=Barrier(
        "partial", "rlimits of each process, sized tmpfs; no bound on memory"
    ),
    secrets=Barrier("strong", "an environment built from nothing, for bwrap as well"),
    tenant=Barrier("strong", "started by root: a host uid of its own per sandbox"),
)


class BubblewrapProvider(Provider):
    """Starts guests under bubblewrap."""

    name = "bubblewrap"

    @override
    async def probe(self) -> Availability:
        try:
            path = binary.find()
            sandbox = await self.create(SandboxSpec(id="probe"))
            await sandbox.aclose()
        except BackendUnavailableError as error:
            return Availability(
                backend="bubblewrap",
                ok=False,
                reason=error.message.partition("\n  fix: ")[0],
                fix=error.fix,
            )
        return Availability(backend="bubblewrap", ok=True, reason=f"runs by {path}")

    @override
    async def create(self, spec: SandboxSpec, /) -> Sandbox:
        with contextlib.ExitStack() as held:
            child = await _start(Plan(spec, held))
            return BubblewrapSandbox(child, held.pop_all())


class BubblewrapSandbox(ChannelSandbox):
    """A guest that is pid 1 of its own namespaces."""

    def __init__(self, child: GuestChild, held: contextlib.ExitStack) -> None:
        super().__init__(
            child.channel,
            backend="bubblewrap",
            root=view.ROOT,
            capabilities=_CAPABILITIES,
            isolation=ISOLATION,
        )
        self._child = child
        self._held = held

    @override
    async def _release(self) -> None:
        await self._child.aclose()
        await anyio.to_thread.run_sync(self._held.close)


async def _start(plan: Plan) -> GuestChild:
    with contextlib.closing(plan.shown):
        command = plan.command()
        try:
            child = await GuestChild.start(
                command,
                config=plan.config(),
                env={},
                cwd="/",
                pass_fds=plan.shown.descriptors,
            )
        except (OSError, GuestFailedError) as error:
            raise binary.diagnosis(str(error)) from error
    if child.channel.hello.get("unsealed") != []:
        # What is claimed is measured: a mount that does not hold is no start.
        await child.aclose()
        raise BackendUnavailableError(
            "protected paths are writable inside the sandbox", backend="bubblewrap"
        )
    return child
