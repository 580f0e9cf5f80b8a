"""Paths inside a workspace: text, never looked up on the host."""

from __future__ import annotations

import json
import posixpath
from typing import Final
from urllib.parse import quote, unquote

from isobox.errors import InvalidArgumentError, PathOutsideError

#: What a reference to something below a workspace's root begins with.
SCHEME: Final = "workspace://"


def reference(relative: str) -> str:
    """Return the reference to a path that is relative to a workspace's root."""
    return f"{SCHEME}/{quote(relative, errors='surrogateescape')}"


def referred(path: str) -> str:
    """Return the path that a reference names, relative to the workspace's root.

    What is no reference comes back as it is. There is one workspace, so that two
    slashes say the same as three.

    Raises:
        InvalidArgumentError: It names no text.
    """
    if not path.startswith(SCHEME):
        return path
    try:
        named = unquote(path[len(SCHEME) :].lstrip("/"), errors="strict")
    except UnicodeDecodeError:
        named = "/"
    if named.startswith("/"):
        raise InvalidArgumentError(
            f"{shown(path)} is no reference such as {SCHEME}/data/name"
        )
    return named or "."


def resolve(path: str, *, root: str, confined: bool) -> str:
    """Return `path` as an absolute path inside the sandbox.

    A relative path is below `root` and may not climb above it, nor may a reference
    such as `workspace:///data/x`. An absolute one names a place inside the sandbox;
    with `confined` it must be below `root`.
    This is arithmetic on text: what the path leads to is the sandbox's affair.

    Raises:
        InvalidArgumentError: The path is empty, holds a NUL, or is a reference
            that names nothing below the root.
        PathOutsideError: It leaves the workspace.
    """
    if not path:
        raise InvalidArgumentError("the path is empty; name a file or directory")
    path = referred(path)
    if "\0" in path:
        raise InvalidArgumentError(f"the path holds a NUL byte: {path!r}")
    absolute = _normalised(posixpath.join(root, path))
    climbs = not path.startswith("/") or confined
    if climbs and not within(absolute, root):
        raise PathOutsideError(
            f"{path!r} is outside the workspace; name a path below {root}",
            path=path,
        )
    return absolute


def within(path: str, root: str) -> bool:
    """Whether `path` is `root` or below it, component by component."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def shown(path: str) -> str:
    """Return `path` as a message names it, on one line.

    SAFETY: a name from a sandbox may hold line ends, which would look like
    lines of the message, and what a terminal obeys.
    """
    return path if path.isprintable() else json.dumps(path)


def split_pattern(pattern: str) -> tuple[str | None, str]:
    """Split an absolute pattern, or one with `..`, into a directory and the rest.

    Any other has no directory of its own.

    Raises:
        InvalidArgumentError: `..` stands after a wildcard, where it means
            nothing.
    """
    names = [name for name in pattern.split("/") if name != "."]
    if ".." not in names and not pattern.startswith("/"):
        return None, "/".join(names)
    wild = (i for i, name in enumerate(names) if any(c in name for c in "*?[{\\"))
    first = min(next(wild, len(names)), len(names) - 1)
    if ".." in names[first:]:
        raise InvalidArgumentError(
            f"{pattern!r}: `..` stands last or after a wildcard; give path= instead"
        )
    return "/".join(names[:first]) or "/", "/".join(names[first:])


def _normalised(path: str) -> str:
    # POSIX lets "//" mean something of its own; here it never does.
    return "/" + posixpath.normpath(path).lstrip("/")
