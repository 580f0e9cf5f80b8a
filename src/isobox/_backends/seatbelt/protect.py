"""Names that commands must not write, as patterns and as what is there now.

A pattern holds at any depth and for names that do not exist yet. But a directory
could be moved out of the patterns' reach, changed there and moved back: so what
is there when the sandbox starts is found, and what is above it cannot be moved.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from isobox._core.paths import within
from isobox._core.protected import ANYWHERE, IN_ROOT, SKIPPED
from isobox._workdir.state import made_beneath
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_MOST_NAMES: Final = 300
_MOST_DIRECTORIES: Final = 50_000

_BELOW: Final = "/(.*/)?"
_ENDS: Final = "(/|$)"
#: The file system may take a letter of another script for an ASCII one, such as
#: U+017F for the s of `.vscode`.
_LOOKALIKE: Final = r"\.[^/]*[^ -~][^/]*"


def always(root: str, unprotected: frozenset[str]) -> list[str]:
    """Return patterns of names that are held wherever they are below `root`."""
    names = ANYWHERE - unprotected
    return [_pattern(root, _BELOW, [*_folded(names), _LOOKALIKE])] if names else []


def generated(root: str) -> list[str]:
    """Return patterns of what tools generate, where nothing is held."""
    return [_pattern(root, _BELOW, _folded(SKIPPED), ends="/")]


def after_all(root: str, unprotected: frozenset[str]) -> list[str]:
    """Return patterns of names that are held although they look generated."""
    above, inside = ANYWHERE - unprotected, IN_ROOT - unprotected
    patterns = [_pattern(root, "/", _folded(inside))] if inside else []
    if above:
        tail = f"{_BELOW}({'|'.join(_folded(SKIPPED))}){_ENDS}"
        patterns.append(_pattern(root, _BELOW, _folded(above), ends=tail))
    return patterns


def _pattern(root: str, between: str, names: Iterable[str], ends: str = _ENDS) -> str:
    # The root is told by its depth, not by its name: nothing in a path of the
    # caller's can then change what a pattern means.
    depth = root.rstrip("/").count("/")
    return f"^{'/[^/]+' * depth}{between}({'|'.join(names)}){ends}"


def _folded(names: Collection[str]) -> list[str]:
    # Most disks of macOS take `.GIT` for `.git`.
    return ["".join(map(_either_case, name)) for name in sorted(names)]


def _either_case(char: str) -> str:
    if char.isalpha():
        return f"[{char.lower()}{char.upper()}]"
    return char if char.isalnum() or char in "-_" else f"\\{char}"


def survey(root: str, unprotected: frozenset[str]) -> list[str]:
    """Return the protected paths that exist below `root`, and where links lead.

    Raises:
        InvalidArgumentError: There are more than can be held.
    """
    held: list[str] = []
    anywhere, in_root = _known(ANYWHERE - unprotected), _known(IN_ROOT - unprotected)
    for path, name, depth in _walk(root):
        if name not in (anywhere if depth else in_root):
            continue
        held.append(path)
        target = os.path.realpath(path)
        if target not in (path, root) and within(target, root):
            held.append(target)
        if len(held) > _MOST_NAMES:
            raise _too_many(f"more than {_MOST_NAMES} protected names")
    # SAFETY: who could write what isobox remembers would answer for a person.
    remembered = made_beneath(root)
    return held if remembered is None else [*held, os.path.join(root, remembered)]


def _known(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.casefold() for name in names)


#: Nothing is looked for below these.
_ENOUGH: Final = _known(ANYWHERE | SKIPPED)


def _walk(root: str) -> Iterator[tuple[str, str, int]]:
    todo = [(root, 0)]
    count = 0
    while todo:
        folder, depth = todo.pop()
        count += 1
        if count > _MOST_DIRECTORIES:
            raise _too_many(f"more than {_MOST_DIRECTORIES} directories")
        for name in _names(folder):
            path = os.path.join(folder, name)
            known = name.casefold()
            yield path, known, depth
            if known not in _ENOUGH and _is_directory(path):
                todo.append((path, depth + 1))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _too_many(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the workspace has {what}; open a smaller directory, or open it with "
        "protect=False if nothing on the host runs what is written there"
    )
