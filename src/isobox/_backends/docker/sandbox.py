"""Sandboxes in containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
from typing_extensions import override

from isobox._backends.docker import barriers
from isobox._backends.docker.options import ROOT
from isobox._channel.ends import explained
from isobox._channel.sandbox import ChannelSandbox
from isobox._shell.sandbox import ShellSandbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._backends.docker.ability import Ability
    from isobox._backends.docker.link import Link
    from isobox._backends.docker.recipe import Recipe
    from isobox._backends.docker.shell import Execs
    from isobox._backends.docker.tenancy import Tenancy
    from isobox._core import ops
    from isobox._core.isolation import Isolation
    from isobox._core.results import Exit, Usage
    from isobox.abc import Capability

_CAPABILITIES: Final[frozenset[Capability]] = frozenset(
    (
        "tty",
        "dial",
        "snapshot",
        "rlimits",
        "kill_tree",
        "isolated",
        "listen",
        "read_only",
        "persistent",
        "reattach",
    )
)
_CAPTURED: Final[frozenset[Capability]] = frozenset(("capture",))
_ALONE: Final[frozenset[Capability]] = frozenset(("no_network",))
_TERMINALS: Final[frozenset[Capability]] = frozenset(("tty",))
_OF_SHELL: Final[frozenset[Capability]] = frozenset(
    ("tty", "isolated", "no_network", "read_only", "persistent")
)


class DockerSandbox(ChannelSandbox):
    """A guest that is the first process of a container.

    Attributes:
        tenancy: The hold on the container.
    """

    def __init__(self, tenancy: Tenancy[Link], ability: Ability) -> None:
        recipe = tenancy.recipe
        super().__init__(
            tenancy.link.channel,
            backend="docker",
            root=ROOT,
            capabilities=_capabilities(recipe, ability),
            isolation=_isolation(tenancy, ability),
            caught=recipe.spec.capture,
        )
        self.tenancy = tenancy
        self._ability = ability
        self._lock = anyio.Lock()

    @property
    def container(self) -> str:
        """The container's id."""
        return self.tenancy.container

    @override
    async def ready(self) -> None:
        """Bring a named workspace back whose container was lost."""
        if self._is_lost():
            async with self._lock:
                if self._is_lost():
                    await self._come_back()

    def _is_lost(self) -> bool:
        named = self.tenancy.recipe.options.named
        return named and self.channel.failure is not None and not self._closed

    async def _come_back(self) -> None:
        outlet = None if self._trap is None else self._trap.outlet
        await self._untrap()
        await self.tenancy.link.aclose()
        await self.tenancy.come_back()
        self.channel = self.tenancy.link.channel
        self.channel.backend = self.backend
        self._isolation = _isolation(self.tenancy, self._ability)
        if outlet is not None:
            await self.capture(outlet)
        self.tenancy.tell()

    @override
    def _explainer(self, op: ops.Spawn) -> Callable[[Exit], Exit]:
        groups = self.tenancy.groups
        before = groups.tally()

        def explain(end: Exit) -> Exit:
            return explained(op, before, groups.tally(), end)

        return explain

    @override
    async def usage(self) -> Usage:
        await self.ready()
        self.channel.check()
        return await self.tenancy.usage()

    @override
    async def aclose(self) -> None:
        if self.tenancy.left and not self._closed:
            with anyio.CancelScope(shield=True):
                await self.channel.aclose(detach=True)
        await super().aclose()

    @override
    async def _release(self) -> None:
        await self.tenancy.link.aclose()
        await self.tenancy.release()


class DockerShellSandbox(ShellSandbox):
    """A container without any Python.

    Attributes:
        tenancy: The hold on the container.
    """

    tenancy: Tenancy[Execs]

    @classmethod
    async def inhabit(
        cls, tenancy: Tenancy[Execs], ability: Ability
    ) -> DockerShellSandbox:
        """Return a sandbox that is ready.

        Raises:
            BackendUnavailableError: There is too little inside.
        """
        recipe = tenancy.recipe
        env = {
            name: value.decode("utf-8", "surrogateescape")
            for name, value in recipe.environment().items()
        }
        made = await cls.open(
            tenancy.link,
            backend="docker",
            root=ROOT,
            env=env,
            capabilities=_OF_SHELL,
            isolation=barriers.achieved(recipe, ability, spared=False),
            limits=recipe.rlimits(),
            release=tenancy.release,
        )
        made.tenancy = tenancy
        tenancy.link.comes_back(tenancy)
        return made

    @property
    def container(self) -> str:
        """The container's id."""
        return self.tenancy.container

    @override
    async def usage(self) -> Usage:
        return await self.tenancy.usage()


def _isolation(tenancy: Tenancy[Link], ability: Ability) -> Isolation:
    # SAFETY: no command has run when the first process says so of itself.
    spared = tenancy.link.channel.hello.get("filtered") is True
    return barriers.achieved(tenancy.recipe, ability, spared=spared)


def _capabilities(recipe: Recipe, ability: Ability) -> frozenset[Capability]:
    captured = recipe.spec.capture is not None
    there = _CAPABILITIES | (_CAPTURED if captured else _ALONE)
    # gVisor's terminals tell nobody of a new size, nor of who is interrupted.
    return there - _TERMINALS if barriers.is_gvisor(recipe, ability) else there
