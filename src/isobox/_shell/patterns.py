"""Patterns of names, matched on the host where nothing may hold it up."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from isobox._guest import agent
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable


@lru_cache(maxsize=64)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return what says whether a relative path matches.

    Raises:
        InvalidArgumentError: It is no pattern.
    """
    try:
        compiled = re.compile(agent.translate_glob(pattern))
    except re.error as error:
        raise InvalidArgumentError(f"{pattern!r} is no pattern: {error}") from None
    return lambda path: compiled.match(path) is not None
