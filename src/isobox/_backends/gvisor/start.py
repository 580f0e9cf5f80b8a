"""One start of a sandbox: what runsc is given, step by step."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from isobox import _workdir
from isobox._backends.gvisor import begin, binary, bounds, bundle
from isobox._core.paths import within
from isobox._guest import agent
from isobox._guest import bundle as guest
from isobox._linux import placing, seccomp, system
from isobox._linux.launching import (
    STAGE,
    IdMap,
    Opening,
    launch_command,
    launch_spec,
)
from isobox._linux.uids import HOST_UIDS
from isobox._workdir import protect, sweep
from isobox.errors import UnsupportedError

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Sequence

    from isobox._backends.gvisor.binary import Platform
    from isobox.abc import SandboxSpec

_SOURCE: Final = Path(begin.__file__)
_BEGIN: Final = "/run/isobox/begin"
_FILTERS: Final = ("/run/isobox/filter", "/run/isobox/filter-signals")


class Plan:
    """What one sandbox is made of.

    Started by root, gVisor's own processes have a host user that no other has,
    and see the owner's files as this user's through an id-mapped mount. Otherwise
    they run as the caller.

    Attributes:
        spec: What was asked.
        held: What lives as long as the sandbox, released in reverse order.
        runsc: The program.
        platform: How it runs the workload's code.
        uid: The host uid that its processes have.
        workdir: A descriptor of the directory that is the workspace.
        bounds: What it may use of the host.
        state: Where runsc keeps what it knows of the sandbox.
        descriptors: What the launcher inherits.
        sealed: Paths inside that commands must find read-only.
    """

    def __init__(
        self,
        spec: SandboxSpec,
        held: contextlib.ExitStack,
        *,
        rootfs: str | None,
        platform: Platform | None,
    ) -> None:
        _refuse(spec)
        self.spec = spec
        self.held = held
        self.runsc = binary.find()
        self.platform = self.runsc.platform(platform)
        self.descriptors: list[int] = []
        self.sealed: list[str] = []
        self._rootfs = rootfs
        self._idmaps: list[IdMap] = []
        self._openings: list[Opening] = []
        self.root = os.geteuid() == 0
        self.uid = os.geteuid()
        if self.root:
            self.uid = held.enter_context(HOST_UIDS.lease(spec.id)).uid
        self._folder = sweep.temporary(held)
        self.workdir = self._opened(spec.workdir or self._temporary())
        self.bounds = bounds.Bounds(spec, held)
        self.stage = STAGE if self.root else self._made("stage")
        self.tree = bundle.Tree(self._made("bundle/root"), self.stage)
        held.callback(self.close)

    def close(self) -> None:
        """Close the descriptors that the launcher has inherited by now."""
        for each in (self.descriptors, self.tree.descriptors):
            while each:
                os.close(each.pop())

    def _made(self, name: str) -> str:
        return bundle.made(os.path.join(self._folder, name))

    def _temporary(self) -> str:
        path = sweep.temporary(self.held)
        os.chown(path, self.uid, self.uid if self.root else -1)
        return path

    def _opened(self, path: str) -> int:
        fd = _workdir.opened(path)
        self.held.callback(os.close, fd)
        uid, gid = _workdir.owner(fd)
        if self.root and uid != self.uid:
            self._idmaps.append(IdMap(fd, uid, gid))
        return fd

    def command(self) -> Sequence[str]:
        """Return the argv that starts the sandbox.

        Raises:
            BackendUnavailableError: There is no interpreter for the guest.
            InvalidArgumentError: Something cannot be shown.
        """
        tree, spec = self.tree, self.spec
        self._system()
        bundle.places(tree, bounds.fitted(spec.limits))
        self._own_files()
        for source, target in system.mounts(spec.mounts, spec.workdir):
            tree.bind_opened(source, target)
        self._given_files()
        tree.mount(tree.staged(self.workdir), system.ROOT, writable=not spec.read_only)
        if spec.read_only:
            self.sealed.append(system.ROOT)
        elif spec.protect and spec.workdir is not None:
            self._protect()
        argv = [self.python, "-I", "-S", _BEGIN, system.PROGRAM, *_FILTERS]
        described = bundle.description(tree, argv, {"LANG": "C.UTF-8"}, "sandbox")
        bundle.written(os.path.join(self._folder, "bundle/config.json"), described)
        return self._launched()

    def _system(self) -> None:
        bundle.programs(self.tree, self._rootfs)
        if self._rootfs is not None:
            self.python = _python_of(self._rootfs)
            return
        self.python, prefix = system.interpreter("gvisor")
        if prefix is not None:
            self.tree.bind_opened(prefix, prefix)

    def _own_files(self) -> None:
        tree = self.tree
        rules = seccomp.build(
            "strict" if self.spec.strict else "standard", debug=self.spec.debug
        )
        tree.file(_BEGIN, _SOURCE.read_bytes())
        signals = seccomp.sparing_the_first()
        for place, each in zip(_FILTERS, (rules, signals), strict=True):
            tree.file(place, each)
        if self._rootfs is None:
            tree.file(system.PROGRAM, guest.program(self.python))
            return
        # SAFETY: no program of a root directory runs on the host, not even to
        # compile: that the guest's first program does, if it has to.
        tree.file(system.PROGRAM, guest.program(sys.executable))
        tree.file(f"{system.PROGRAM}.py", Path(agent.__file__).read_bytes())

    def _given_files(self) -> None:
        made_up = {path: text.encode() for path, text in system.FILES.items()}
        resolver = {} if self.spec.capture is None else system.RESOLVER
        given = resolver | {file.path: file.data for file in self.spec.files}
        for place, data in (made_up | given).items():
            if place in system.FILES:
                self.tree.file(place, data)
        for place, data in placing.places(given, self.tree.seen).items():
            self._show_file(place, data)

    def _show_file(self, place: str, data: bytes) -> None:
        if not any(within(place, target) for target in self.tree.seen):
            self.tree.file(place, data)
            return
        path = os.path.join(self._folder, secrets.token_hex(8))
        fd = self._tree_of(bundle.written(path, data))
        self.tree.mount(self.tree.staged(fd), place)

    def _protect(self) -> None:
        found = protect.hold(self.workdir, self.spec.unprotected, self.held)
        for path, writable in found.mounts:
            fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            self.descriptors.append(fd)
            self._openings.append(Opening(fd, self.workdir, path))
            source = self.tree.staged(fd)
            self.tree.mount(source, protect.inside(path), writable=writable)
        # gVisor connects to no socket of the host's: these need nothing.
        self.sealed.extend(protect.inside(path) for path in found.held)

    def _launched(self) -> Sequence[str]:
        tree = self.tree
        argv = [
            self.runsc.path,
            f"--root={tree.staged(self._tree_of(self._state()))}",
            f"--platform={self.platform}",
            "--rootless",
            "--network=none",
            # The launcher enters one that holds all of gVisor.
            "--ignore-cgroups",
            "run",
            f"--bundle={tree.staged(self._tree_of(self._folder + '/bundle'))}",
            f"isobox-{secrets.token_hex(8)}",
        ]
        entrances = self.bounds.entrances()
        self.descriptors.extend(entrances)
        mapped = {idmap.fd for idmap in self._idmaps}
        launch = launch_spec(
            argv,
            uid=self.uid,
            gid=self.uid if self.root else os.getegid(),
            parent=os.getpid(),
            idmaps=self._idmaps,
            trees=[*tree.descriptors, *{self.workdir} - mapped],
            openings=self._openings,
            shown=[opening.fd for opening in self._openings],
            groups=entrances,
            rlimits=self.bounds.of_the_host(),
            stage=self.stage,
        )
        spec = os.memfd_create("isobox", os.MFD_CLOEXEC)
        self.descriptors.append(spec)
        with open(spec, "wb", closefd=False) as file:
            file.write(launch)
        os.lseek(spec, 0, os.SEEK_SET)
        return launch_command(spec)

    def _state(self) -> str:
        self.state = self._made("state")
        os.chmod(self.state, 0o700)
        if self.root:
            os.chown(self.state, self.uid, self.uid)
        return self.state

    def _tree_of(self, path: str) -> int:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        self.tree.descriptors.append(fd)
        return fd

    def inherited(self) -> list[int]:
        """Return the descriptors that the launcher needs."""
        return [*self.descriptors, *self.tree.descriptors, self.workdir]

    def config(self) -> dict[str, object]:
        """Return what the guest is told."""
        env = system.environment(self.python) | dict(self.spec.env)
        return {
            "root": os.fsencode(system.ROOT),
            "confine": None,
            "sealed": [path.encode("utf-8", "surrogateescape") for path in self.sealed],
            "env": {name: os.fsencode(value) for name, value in env.items()},
            "pid_max": None,
            "rlimits": self.bounds.rlimits(),
        }


def _refuse(spec: SandboxSpec) -> None:
    if spec.mode == "copy":
        raise UnsupportedError(
            "the gvisor backend works on a directory itself; for a private view of "
            'it use BubblewrapWorkspace(mode="copy"), or copy the directory first',
            backend="gvisor",
        )


def _python_of(rootfs: str) -> str:
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if os.path.lexists(rootfs + path):
            return path
    raise binary.unavailable(
        f"rootfs: no Python in {rootfs} for the guest, which needs 3.8 or newer",
        f"chroot {rootfs} apt-get install python3-minimal",
    )
