"""A backend whose root has nothing but busybox, and a Python brought along."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from isobox import WorkspaceBase, _workdir
from isobox._backends.local.provider import LocalSandbox
from isobox._channel.start import GuestChild
from isobox._guest import bundle, carried
from isobox.abc import Availability, Provider

if TYPE_CHECKING:
    from pathlib import Path

PLACE = "/.python"
ROOT = "/workspace"
ENV = {"PATH": b"/bin", "HOME": b"/tmp", "LANG": b"C.UTF-8", "TERM": b"dumb"}


class CarriedSandbox(LocalSandbox):
    """A guest in another root, and its directory on the host."""

    def __init__(self, child: GuestChild, host: str) -> None:
        super().__init__(child, root=ROOT, temporary=False)
        self._host = host

    @override
    async def _release(self) -> None:
        await super()._release()
        _workdir.sweep_tree(self._host)


class CarriedProvider(Provider):
    """Starts guests by bubblewrap on the tree of an image."""

    name = "carried"

    def __init__(self, tree: Path) -> None:
        self._tree = tree

    @override
    async def probe(self):
        return Availability(backend="carried", ok=True, reason="for tests")

    @override
    async def create(self, spec, /):
        host = os.path.realpath(tempfile.mkdtemp())
        config = {
            "root": ROOT.encode(),
            "confine": ROOT.encode(),
            "sealed": [],
            "env": {**ENV, **{k: os.fsencode(v) for k, v in spec.env.items()}},
            "rlimits": {},
        }
        with open(os.memfd_create("guest"), "wb", buffering=0) as program:
            program.write(bundle.program(sys.executable))
            child = await GuestChild.start(
                self._command(host, program.fileno()),
                config=config,
                env={},
                cwd="/",
                pass_fds=[program.fileno()],
            )
        return CarriedSandbox(child, host)

    def _command(self, host: str, program: int) -> list[str]:
        python = carried.carried()
        return [
            *("bwrap", "--unshare-all", "--die-with-parent", "--as-pid-1"),
            *("--tmpfs", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
            *("--ro-bind", f"{self._tree}/bin", "/bin"),
            *("--ro-bind", python.directory, PLACE, "--bind", host, ROOT),
            *(*python.argv(PLACE), "-I", "-S", f"/dev/fd/{program}"),
        ]


class CarriedWorkspace(WorkspaceBase):
    """A workspace over such a sandbox."""

    backend: ClassVar[str] = "carried"

    def __init__(self, tree: Path, **options) -> None:
        super().__init__(**options)
        self._tree = tree

    @override
    def _provider(self):
        return CarriedProvider(self._tree)
