"""The bubblewrap backend."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from typing_extensions import override

from isobox._backends.bubblewrap import (
    barriers,
    binary,
    ladder,
    machine,
    network,
)
from isobox._backends.bubblewrap.copy import noted
from isobox._backends.bubblewrap.plan import Plan
from isobox._channel.sandbox import ChannelSandbox
from isobox._channel.start import GuestChild, GuestFailedError
from isobox._workdir import sweep
from isobox.abc import (
    Availability,
    Capability,
    Provider,
    SandboxSpec,
)
from isobox.errors import BackendUnavailableError, SandboxLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._channel.trap import Trap
    from isobox._core import ops
    from isobox._core.results import Changes, Edited, Entry, Exit, Process, Usage
    from isobox.abc import Capture, MinIsolation, Outlet

#: A sandbox has one of "no_network" and "capture", as its spec asks.
_CAPABILITIES: Final[frozenset[Capability]] = frozenset(
    (
        "tty",
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


class BubblewrapProvider(Provider):
    """Starts guests under bubblewrap."""

    name = "bubblewrap"

    def __init__(self, kind: type[BubblewrapSandbox] | None = None) -> None:
        self._kind = kind or BubblewrapSandbox

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
                reason=ladder.brief(error) + await self._offer(),
                fix=error.fix,
            )
        return Availability(backend="bubblewrap", ok=True, reason=f"runs by {path}")

    async def _offer(self) -> str:
        """Return what starts here all the same, for those who allow it."""
        try:
            spec = SandboxSpec(id="probe", min_isolation="landlock")
            sandbox = await self.create(spec)
        except BackendUnavailableError:
            return ""
        await sandbox.aclose()
        return f'; min_isolation="{sandbox.rung}" starts with less'

    @override
    async def create(self, spec: SandboxSpec, /) -> BubblewrapSandbox:
        network.check(spec.capture)
        await sweep.once()
        return await ladder.descend(spec, functools.partial(self._create, spec))

    async def _create(self, spec: SandboxSpec, rung: MinIsolation) -> BubblewrapSandbox:
        with contextlib.ExitStack() as held:
            plan = Plan(spec, held, rung)
            if plan.private is not None:
                await plan.private.fill()
            child = await _start(plan)
            return self._kind(plan, child, held.pop_all())


class BubblewrapSandbox(ChannelSandbox):
    """A guest that is pid 1 of its own namespaces."""

    def __init__(
        self, plan: Plan, child: GuestChild, held: contextlib.ExitStack
    ) -> None:
        super().__init__(
            child.channel,
            backend="bubblewrap",
            root=plan.inside,
            capabilities=ladder.capabilities(plan, _CAPABILITIES),
            isolation=noted(
                ladder.reached(plan, barriers.achieved(plan)), plan.private
            ),
            caught=plan.spec.capture,
        )
        self.rung = plan.rung
        self._child = child
        self._held = held
        self._plan = plan
        self._spec = plan.spec
        self._private = plan.private
        self._control = plan.control
        self._control.begin(child.pid)

    @override
    async def spawn(self, op: ops.Spawn, /) -> Process:
        await self._control.admit()
        return await super().spawn(op)

    @override
    def _explainer(self, op: ops.Spawn) -> Callable[[Exit], Exit]:
        return functools.partial(self._control.explain, op, self._control.tally())

    @override
    async def write(self, op: ops.Write, /) -> Entry:
        await self._control.admit()
        return await super().write(op)

    @override
    async def edit(self, op: ops.Edit, /) -> Edited:
        await self._control.admit()
        return await super().edit(op)

    @override
    async def push(self, op: ops.Push, /) -> int:
        await self._control.admit()
        return await super().push(op)

    @override
    async def diff(self, op: ops.Diff, /) -> Changes:
        if self._private is None:
            return await super().diff(op)
        self.channel.check()
        return await self._private.diff(op)

    @override
    async def apply(self, op: ops.Apply, /) -> Changes:
        if self._private is None:
            return await super().apply(op)
        self.channel.check()
        return await self._private.apply(op)

    @override
    async def discard(self, op: ops.Discard, /) -> None:
        """Throw the changes away: every process ends, and a fresh start follows."""
        if self._private is None:
            await super().discard(op)
            return
        self.channel.check()
        with anyio.CancelScope(shield=True):
            outlet = None if self._trap is None else self._trap.outlet
            self.channel.fail(SandboxLostError("the view's changes were discarded"))
            await self._untrap()
            await self._release()
            self._become(await self._another(outlet))

    async def _another(self, outlet: Outlet | None) -> BubblewrapSandbox:
        fresh = await BubblewrapProvider(type(self)).create(self._spec)
        try:
            if outlet is not None:
                await fresh.capture(outlet)
        except BaseException:
            await fresh.aclose()
            raise
        return fresh

    def _become(self, fresh: BubblewrapSandbox) -> None:
        self.root, self.channel = fresh.root, fresh.channel
        self._isolation = fresh.isolation()
        self._child, self._held = fresh._child, fresh._held
        self._private, self._control = fresh._private, fresh._control
        self._plan, self._trap = fresh._plan, fresh._trap

    @override
    async def _lead(self, trap: Trap, capture: Capture) -> str:
        await trap.open(await network.planted(self._plan, self._child.pid, capture))
        return network.NAMES

    @override
    def _storage(self) -> str:
        return sweep.temporary(self._snapshots)

    @override
    async def usage(self) -> Usage:
        self.channel.check()
        return await anyio.to_thread.run_sync(self._control.usage)

    @override
    async def _release(self) -> None:
        await self._control.end()
        await self._child.aclose()
        if self._private is not None:
            await self._private.close()
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
            raise binary.diagnosis(str(error), machine.facts()) from error
    if child.channel.hello.get("unsealed") != []:
        # What is claimed is measured: a mount that does not hold is no start.
        await child.aclose()
        raise BackendUnavailableError(
            "protected paths are writable inside the sandbox", backend="bubblewrap"
        )
    return child
