"""Names the model's tool on every operation that it performs."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

    from isobox._core.ops import Op

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


def named(op: Op[R]) -> Op[R]:
    """Return an operation with the name of the tool that is called, if one is."""
    caller = _CALLER.get()
    if caller is None or op.caller is not None:
        return op
    return replace(op, caller=caller)
