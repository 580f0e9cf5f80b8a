"""Where the paths of operations lead: links are other names of what rules name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from isobox._core.ops import (
    Edit,
    Patch,
    Pull,
    Push,
    Read,
    ReadLines,
    Remove,
    Scan,
    Search,
    Spawn,
    Write,
)
from isobox.errors import PathError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from isobox._core.ops import Op, Place
    from isobox._core.sandbox import Sandbox

#: Links that are followed for one path; the kernel follows as many.
_MOST: Final = 40


def asked_of(op: Op[object]) -> list[tuple[str, bool]]:
    """Return an operation's paths, and whether the last name of each is followed."""
    return list(dict.fromkeys(_asked(op)))


def _asked(op: Op[object]) -> Iterator[tuple[str, bool]]:
    match op:
        case Spawn():
            yield op.cwd, True
            if op.spool is not None:
                yield op.spool, False
        case Patch():
            yield from _of_patch(op)
        case Write():
            yield op.path, not op.append
        case Scan():
            yield op.path, op.follow
        case Push():
            yield op.path, op.whole is None
        case Read() | ReadLines() | Edit() | Search():
            yield op.path, True
        case Pull() | Remove():
            yield op.path, False
        case _:
            pass


def _of_patch(op: Patch) -> Iterator[tuple[str, bool]]:
    for change in op.changes:
        for path in filter(None, (change.path, change.target)):
            # What a link leads to is read where the link itself goes, too.
            yield from ((path, False), (path, True))


def elsewhere(op: Op[object]) -> list[Place]:
    """Return those places of an operation that are not where its paths say."""
    return [place for place in op.places if place.real != place.path]


def led(op: Op[object]) -> Iterator[Op[object]]:
    """Yield the operation again for where its paths lead, if that is elsewhere."""
    for follow in (False, True):
        real = {
            place.path: place.real for place in elsewhere(op) if place.follow is follow
        }
        if real:
            yield _renamed(op, real)


def _renamed(op: Op[object], real: Mapping[str, str]) -> Op[object]:
    def renamed(path: str) -> str:
        return real.get(path, path)

    match op:
        case Spawn():
            spool = None if op.spool is None else renamed(op.spool)
            return replace(op, cwd=renamed(op.cwd), spool=spool)
        case Patch():
            changes = tuple(change.resolved(renamed) for change in op.changes)
            return replace(op, changes=changes)
        case (
            Read() | ReadLines() | Write() | Edit() | Scan() | Search() | Pull()
            | Push() | Remove()
        ):  # fmt: skip
            return replace(op, path=renamed(op.path))
        case _:
            return op


async def real_path(sandbox: Sandbox, path: str, *, follow: bool) -> str:
    """Return a path without links, by a look at each name on its way.

    What is missing leads to itself.

    Raises:
        PathError: Links lead in a circle.
    """
    todo, here, links = path.split("/")[::-1], list[str](), 0
    while todo:
        name = todo.pop()
        if name == "..":
            here[-1:] = []
        if name in ("", ".", ".."):
            continue
        here.append(name)
        target = await _target(sandbox, here) if todo or follow else None
        if target is None:
            continue
        links += 1
        if links > _MOST:
            raise PathError(f"links lead in a circle at {path!r}", path=path)
        here = [] if target.startswith("/") else here[:-1]
        todo += target.split("/")[::-1]
    return "/" + "/".join(here)


async def _target(sandbox: Sandbox, names: list[str]) -> str | None:
    try:
        op = Scan(path="/" + "/".join(names), depth=0, follow=False)
        return (await sandbox.scan(op)).entries[0].target
    except PathError:
        return None
