"""overlayfs: whether it may be mounted here, and what it writes down."""

from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._linux import launching, trees
from isobox._linux.launching import (
    FAILURE,
    IdMap,
    Overlay,
    launch_command,
    launch_spec,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What the layer's directory is called below the state directory.
UPPER, WORK, STAGE = "upper", "work", "stage"

#: By the devices of the directory and of its state.
_known: dict[tuple[int, int], str | None] = {}

_XATTRS: Final = ("trusted.overlay.opaque", "user.overlay.opaque")


def is_whiteout(found: os.stat_result) -> bool:
    """Whether an entry of the layer says that a name below is gone."""
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def is_opaque(folder: int) -> bool:
    """Whether a directory of the layer hides what is below it.

    SAFETY: inside, names of this kind can neither be set nor seen, so what a
    sandbox writes cannot pass for the kernel's note.
    """
    name = _XATTRS[0] if os.geteuid() == 0 else _XATTRS[1]
    try:
        return os.getxattr(folder, name) == b"y"
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Layer:
    """A directory to be overlaid, and where its changes go.

    Attributes:
        lower: A descriptor of the directory.
        state: A descriptor of the directory that holds `upper`, `work`, `stage`.
        path: The path of `state`.
        uid: The user who works on it.
        idmaps: How the directory's owner becomes that user.
    """

    lower: int
    state: int
    path: str
    uid: int
    idmaps: Sequence[IdMap] = ()

    @property
    def stage(self) -> str:
        """Where the launcher makes its mounts."""
        if os.geteuid() == 0:
            return launching.STAGE
        return os.path.join(self.path, STAGE)


def refusal(layer: Layer) -> str | None:
    """Return why this kernel does not overlay this directory, or None.

    It is tried, in a mount namespace that ends with the attempt.
    """
    devices = os.fstat(layer.lower).st_dev, os.fstat(layer.state).st_dev
    if devices not in _known:
        _known[devices] = _tried(layer)
    return _known[devices]


def _tried(layer: Layer) -> str | None:
    spec = launch_spec(
        ["/bin/true"],
        uid=layer.uid,
        gid=layer.uid if os.geteuid() == 0 else os.getegid(),
        parent=os.getpid(),
        idmaps=layer.idmaps,
        overlays=[Overlay(layer.lower, layer.state)],
        stage=layer.stage,
    )
    fd = os.memfd_create("isobox", os.MFD_CLOEXEC)
    try:
        os.write(fd, spec)
        os.lseek(fd, 0, os.SEEK_SET)
        ended = subprocess.run(
            launch_command(fd),
            pass_fds=(fd, layer.lower, layer.state),
            env={},
            cwd="/",
            capture_output=True,
            check=False,
            timeout=30,
        )
    finally:
        os.close(fd)
        # A view that was once mounted without waiting for a disk is not again.
        trees.remove(layer.state, WORK)
        os.mkdir(WORK, 0o700, dir_fd=layer.state)
    if ended.returncode == 0:
        return None
    said = ended.stderr.decode("utf-8", "replace").strip()
    return said.removeprefix(FAILURE) or f"status {ended.returncode}"
