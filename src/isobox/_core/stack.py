"""The one funnel that every operation goes through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from isobox._core.ops import Op
    from isobox._core.sandbox import Sandbox

R = TypeVar("R")


class Perform(Protocol):
    """Performs operations."""

    def __call__(self, op: Op[R], /) -> Coroutine[Any, Any, R]: ...


class CallerError(Exception):
    """What an iterator of the caller raised while its bytes were sent.

    It says nothing about the sandbox, and leaves the stack as it was raised.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Layer(Protocol):
    """What an operation passes on its way to the sandbox."""

    def __call__(self, op: Op[R], inner: Perform, /) -> Coroutine[Any, Any, R]: ...


class _Bottom(Perform):
    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    @override
    async def __call__(self, op: Op[R], /) -> R:
        if op.inside:
            await self._sandbox.ready()
        return await op.on(self._sandbox)


class _Bound(Perform):
    def __init__(self, layer: Layer, inner: Perform) -> None:
        self._layer = layer
        self._inner = inner

    @override
    def __call__(self, op: Op[R], /) -> Coroutine[Any, Any, R]:
        # The layer's own coroutine, and none around it: each op passes four.
        return self._layer(op, self._inner)


def compose(sandbox: Sandbox, layers: Sequence[Layer]) -> Perform:
    """Put layers over a sandbox, the first one outermost."""
    perform: Perform = _Bottom(sandbox)
    for layer in reversed(layers):
        perform = _Bound(layer, perform)
    return perform
