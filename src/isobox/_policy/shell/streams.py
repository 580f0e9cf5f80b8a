"""Names of files that are no files, but what a program is given to read."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from isobox._policy.shell.words import Word

#: Absolute, or from a directory that only running the script tells.
_STREAM: Final = re.compile(
    r"-|(?:.*/)?(?:dev/(?:std\w+|fd(?:/.*)?|tty.*|pts/.*|console|ptmx|tcp/.*|udp/.*)"
    r"|proc(?:/.*)?)|(?:fd/)?[0-9]+|stdin|tty"
)


def is_stream(word: Word) -> bool:
    """Whether a file name is not that of a file, or may not be."""
    return word.dynamic or names_stream(word.text)


def names_stream(text: str) -> bool:
    """Whether a path leads to a stream, as far as the path tells."""
    path = "/" + posixpath.normpath(text).lstrip("/") if text[:1] == "/" else text
    plain = posixpath.normpath(path) if path else path
    return _STREAM.fullmatch(plain) is not None
