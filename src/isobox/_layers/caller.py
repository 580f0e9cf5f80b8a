"""Names the model's tool on every operation that it performs."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

    from isobox._core.ops import Op
    from isobox._core.stack import Perform

R = TypeVar("R")

#: The tool that is called; tasks that it starts inherit it.
_CALLER: Final[ContextVar[str | None]] = ContextVar("isobox_caller", default=None)


@contextlib.contextmanager
def calling(tool: str) -> Generator[None]:
    """Have every operation meanwhile, in this task and those it starts, bear a name."""
    token = _CALLER.set(tool)
    try:
        yield
    finally:
        _CALLER.reset(token)


class Caller:
    """The layer before all others: rules and records see who performs."""

    async def __call__(self, op: Op[R], inner: Perform, /) -> R:
        caller = _CALLER.get()
        if caller is not None and op.caller is None:
            op = replace(op, caller=caller)
        return await inner(op)
