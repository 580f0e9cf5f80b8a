"""The Windows Subsystem for Linux: which one, from what its kernel says."""

from __future__ import annotations

import re
from typing import Final, Literal

_VERSION_1: Final = re.compile(r"-Microsoft\b")
_VERSION_2: Final = re.compile(r"-microsoft\b|WSL2")


def wsl_version(text: str) -> Literal[1, 2] | None:
    """Return the version of WSL that `text`, from /proc/version, is of.

    None for any other Linux, and for a kernel of version 2 that somebody has
    built under another name: it is a Linux kernel like any other.
    """
    # The words after the release tell who built it, for Azure too.
    words = text.split(" ", 3)
    if words[:2] != ["Linux", "version"] or len(words) < 3:
        return None
    release = words[2]
    if _VERSION_2.search(release):
        return 2
    return 1 if _VERSION_1.search(release) else None
