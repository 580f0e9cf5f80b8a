"""The gVisor backend."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from typing_extensions import override

from isobox._backends.gvisor import barriers, bounds, terminals
from isobox._backends.gvisor.binary import unavailable
from isobox._backends.gvisor.start import Plan
from isobox._channel.sandbox import ChannelSandbox
from isobox._channel.start import GuestChild, GuestFailedError
from isobox._core.ops import Spawn
from isobox._workdir import sweep
from isobox.abc import Availability, Capability, Provider, SandboxSpec
from isobox.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._backends.gvisor.binary import Platform
    from isobox._core import ops
    from isobox._core.results import Exit, Usage

_CAPABILITIES: Final[frozenset[Capability]] = frozenset(
    (
        "dial",
        "snapshot",
        "rlimits",
        "kill_tree",
        "isolated",
        "no_network",
        "listen",
        "capture",
        "read_only",
        "persistent",
    )
)
_TERMINALS: Final[frozenset[Capability]] = frozenset(("tty",))
_FIX: Final = (
    'run `isobox doctor`; platform="ptrace" needs least of the machine, '
    'platform="kvm" needs /dev/kvm'
)


class GVisorProvider(Provider):
    """Starts guests under runsc.

    Args:
        rootfs: The root directory that sandboxes see; None is a view of the
            host's system.
        platform: How the workload's code is run; None chooses.
    """

    name = "gvisor"

    def __init__(
        self, *, rootfs: str | None = None, platform: Platform | None = None
    ) -> None:
        self._rootfs = rootfs
        self._platform: Platform | None = platform

    @override
    async def probe(self) -> Availability:
        try:
            sandbox = await self.create(SandboxSpec(id="probe"))
            try:
                lacking = await _lacking(sandbox)
            finally:
                await sandbox.aclose()
        except BackendUnavailableError as error:
            return Availability(
                backend="gvisor", ok=False, reason=error.message, fix=error.fix
            )
        runsc = sandbox.plan.runsc
        return Availability(
            backend="gvisor",
            ok=True,
            reason=f"runs by {runsc.path} {runsc.version}, platform "
            f"{sandbox.plan.platform}{lacking}",
        )

    @override
    async def create(self, spec: SandboxSpec, /) -> GVisorSandbox:
        await sweep.once()
        with contextlib.ExitStack() as held:
            plan = Plan(spec, held, rootfs=self._rootfs, platform=self._platform)
            child = await _start(plan)
            sandbox = GVisorSandbox(plan, child, held.pop_all())
        try:
            if await terminals.usable(sandbox, plan.runsc, plan.python):
                sandbox.capabilities |= _TERMINALS
        except BaseException:
            with anyio.CancelScope(shield=True):
                await sandbox.aclose()
            raise
        return sandbox


async def _lacking(sandbox: GVisorSandbox) -> str:
    """Return what commands will miss with this runsc; empty if nothing is known."""
    lists = Spawn(argv=("ls", "/"), cwd=sandbox.root, timeout=10, capture=0)
    process = await sandbox.spawn(lists)
    try:
        if (await process.wait()).exit_code == 0:
            return ""
    finally:
        await process.aclose()
    return "; too old for this system's `ls` and `stat`, which need a newer runsc"


class GVisorSandbox(ChannelSandbox):
    """A guest that is pid 1 of a kernel of its own."""

    def __init__(
        self, plan: Plan, child: GuestChild, held: contextlib.ExitStack
    ) -> None:
        unsure = "no_network" if plan.spec.capture is not None else "capture"
        lacking: set[Capability] = set() if plan.spec.read_only else {"read_only"}
        super().__init__(
            child.channel,
            backend="gvisor",
            root="/workspace",
            capabilities=_CAPABILITIES - lacking - {unsure},
            isolation=barriers.achieved(plan),
            caught=plan.spec.capture,
        )
        self.plan = plan
        self.child = child
        self._held = held
        self.channel.on_lost = functools.partial(_explain, plan, child)

    @override
    def _explainer(self, op: ops.Spawn) -> Callable[[Exit], Exit]:
        return bounds.explained

    @override
    def _storage(self) -> str:
        return sweep.temporary(self._snapshots)

    @override
    async def usage(self) -> Usage:
        self.channel.check()
        plan = self.plan
        return await anyio.to_thread.run_sync(plan.bounds.usage, plan.workdir)

    @override
    async def _release(self) -> None:
        await self.child.aclose()
        await anyio.to_thread.run_sync(self._held.close)


def _explain(plan: Plan, child: GuestChild) -> None:
    """Add to the channel's failure what the sandbox may have died of."""
    child.explain()
    failure, reason = child.channel.failure, plan.bounds.struck()
    if failure is not None and reason:
        failure.message = f"{failure.message}: {reason}"


async def _start(plan: Plan) -> GuestChild:
    command = await anyio.to_thread.run_sync(plan.command)
    with contextlib.closing(plan):
        try:
            child = await GuestChild.start(
                command,
                config=plan.config(),
                env={},
                cwd="/",
                pass_fds=plan.inherited(),
            )
        except (OSError, GuestFailedError) as error:
            raise unavailable(f"runsc does not start: {error}", _FIX) from error
    if child.channel.hello.get("unsealed") != []:
        # What is claimed is measured: a mount that does not hold is no start.
        await child.aclose()
        raise unavailable("protected paths are writable inside the sandbox", None)
    return child
