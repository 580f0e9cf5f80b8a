"""What a caller gives to be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isobox._core.stack import CallerError
from isobox.errors import IsoboxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from isobox._core.ops import Body


async def pieces_of(body: Body) -> AsyncIterator[bytes]:
    """Yield what a caller gives, and set the errors of its iterator apart.

    Raises:
        CallerError: It raised what is not ours.
    """
    if isinstance(body, bytes):
        if body:
            yield body
        return
    try:
        async for piece in body:
            if piece:
                yield piece
    except IsoboxError:
        raise
    except Exception as error:
        raise CallerError(error) from error
