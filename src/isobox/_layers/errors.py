"""Turns what a backend raises into the error tree, with op and path."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from isobox._core.facts import path_of
from isobox._core.stack import CallerError
from isobox.errors import IsoboxError, SandboxLostError

if TYPE_CHECKING:
    from isobox._core.ops import Op
    from isobox._core.stack import Perform

R = TypeVar("R")


class Errors:
    """The innermost layer: nothing foreign leaves the sandbox."""

    def __init__(self, *, backend: str) -> None:
        self._backend = backend

    async def __call__(self, op: Op[R], inner: Perform, /) -> R:
        try:
            return await inner(op)
        except CallerError as wrapped:
            raise wrapped.error from wrapped.error.__cause__
        except IsoboxError as error:
            error.backend = error.backend or self._backend
            error.op = error.op or op.name
            error.path = error.path or path_of(op)
            raise
        except (OSError, EOFError) as error:
            raise SandboxLostError(
                f"the sandbox failed at {op.name}: {error}",
                backend=self._backend,
                op=op.name,
                path=path_of(op),
            ) from error
