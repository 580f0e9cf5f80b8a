"""The spec of `launch.py`, from this side."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

#: Standard error starts with this where the launcher failed, not bubblewrap.
FAILURE: Final = "isobox-launch: "

STAGE: Final = "/run/isobox"

#: Imported, not run as a file, so that it is compiled once and not each time.
_BOOT: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import launch; launch.main()"
)


@dataclass(frozen=True, slots=True)
class IdMap:
    """A directory whose files the workload is to see as its own.

    Attributes:
        fd: An open directory, inherited by the launcher. bubblewrap finds the
            id-mapped mount of it under the same number.
        uid: User who owns the files on disk.
        gid: Group that owns them.
    """

    fd: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Opening:
    """What is to be opened below an id-mapped directory, through no link.

    Attributes:
        fd: An inherited descriptor whose number it gets.
        root: The descriptor of the directory, as in its `IdMap`.
        path: Relative to the directory.
    """

    fd: int
    root: int
    path: str


@dataclass(frozen=True, slots=True)
class Overlay:
    """A directory that becomes a private view of itself.

    Attributes:
        fd: An inherited descriptor of it; its number becomes the view's.
        state: An inherited descriptor of a directory with an empty `upper`,
            where what changes goes, and an empty `work`. The launcher closes it.
    """

    fd: int
    state: int


@dataclass(frozen=True, slots=True)
class Scratch:
    """An empty private place of the workload's.

    Attributes:
        fd: An inherited descriptor whose number it gets.
        size: Bytes that it holds at most.
        files: Files that it holds at most, directories and links among them.
        mode: Its mode, in octal.
    """

    fd: int
    size: int
    files: int
    mode: str


def launch_command(spec_fd: int) -> tuple[str, ...]:
    """Return the argv that runs the launcher on the spec in `spec_fd`."""
    here = str(Path(__file__).parent)
    return (sys.executable, "-I", "-S", "-c", _BOOT, here, str(spec_fd))


def launch_spec(
    argv: Sequence[str],
    *,
    uid: int,
    gid: int,
    parent: int,
    idmaps: Iterable[IdMap] = (),
    trees: Iterable[int] = (),
    openings: Iterable[Opening] = (),
    groups: Iterable[int] = (),
    overlays: Iterable[Overlay] = (),
    scratches: Iterable[Scratch] = (),
    shown: Iterable[int] = (),
    rlimits: Mapping[int, tuple[int, int]] | None = None,
    oom_score_adj: int | None = None,
    stage: str = STAGE,
) -> bytes:
    """Return what the launcher reads.

    Args:
        argv: What it executes, by absolute path, with an empty environment.
        uid: Host user that it becomes; not 0. Who is not root stays who they are.
        gid: Host group; not 0.
        parent: Process that starts it, and with which it dies. The kernel means
            the thread: start it from one that lives as long as the sandbox.
        idmaps: Directories to hand over.
        trees: Descriptors of what the user may not reach by name.
        openings: What to open below the directories.
        shown: Descriptors of `openings` to be found below `stage` by number,
            where all of `idmaps` and `trees` is found.
        overlays: Directories to show private views of.
        scratches: Private places to make.
        groups: Entrances of control groups to enter first; the launcher closes
            them.
        rlimits: Soft and hard limit by number of `resource`; -1 has no end.
        oom_score_adj: -1000 to 1000, or None to inherit it.
        stage: Directory that exists and whose parents everybody may enter. Only
            the sandbox's mount namespace sees what is mounted on it.

    Raises:
        InvalidArgumentError: Root was asked for, `argv` is empty, or it holds a
            NUL.
    """
    if min(uid, gid) < 1:
        raise InvalidArgumentError("a sandbox never runs as host user or group 0")
    if not argv:
        raise InvalidArgumentError("argv is empty; name the program to execute")
    fields: list[object] = ["parent", parent, "user", uid, gid, "stage", stage]
    for name, each in (("join", groups), ("tree", trees), ("show", shown)):
        for fd in each:
            fields += [name, fd]
    for idmap in idmaps:
        fields += ["idmap", idmap.fd, idmap.uid, idmap.gid]
    for overlay in overlays:
        fields += ["overlay", overlay.fd, overlay.state]
    for opening in openings:
        fields += ["open", opening.fd, opening.root, opening.path]
    fields += _bounds(scratches, rlimits or {})
    if oom_score_adj is not None:
        fields += ["oom_score_adj", oom_score_adj]
    return b"".join(map(_field, [*fields, "exec", *argv]))


def _bounds(
    scratches: Iterable[Scratch], rlimits: Mapping[int, tuple[int, int]]
) -> Iterator[object]:
    for place in scratches:
        yield from ("scratch", place.fd, place.size, place.files, place.mode)
    for number, limits in rlimits.items():
        yield from ("rlimit", number, *limits)


def _field(value: object) -> bytes:
    field = os.fsencode(str(value))
    if b"\0" in field:
        raise InvalidArgumentError(f"a NUL byte in {value!r}")
    return field + b"\0"
