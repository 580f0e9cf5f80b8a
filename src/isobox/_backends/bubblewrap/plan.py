"""One start of a sandbox: what it is given, step by step."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from isobox import _workdir
from isobox._backends.bubblewrap import (
    binary,
    control,
    ladder,
    network,
    view,
)
from isobox._backends.bubblewrap.control import Control
from isobox._backends.bubblewrap.copy import PrivateView
from isobox._guest import bundle
from isobox._linux import placing, seccomp, system
from isobox._linux.launching import (
    STAGE,
    IdMap,
    Opening,
    Overlay,
    launch_command,
    launch_spec,
)
from isobox._workdir import protect, sweep

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Sequence

    from isobox.abc import MinIsolation, SandboxSpec


class Plan:
    """What one sandbox is made of.

    Started by root, a sandbox gets a host uid that no other has, and sees the
    owner's files as its own through an id-mapped mount. Otherwise it runs as
    the caller.

    Attributes:
        spec: What was asked.
        rung: With how much isolation it starts.
        held: What lives as long as the sandbox, released in reverse order.
        shown: What the sandbox will see.
        root: Whether root starts it.
        uid: The host uid that it runs as.
        own_uid: Whether nothing else has this uid.
        workdir: A descriptor of the directory that is the workspace.
        inside: The path that commands know it by.
        scratch: A private directory, where there are no mounts to make one.
        idmaps: Directories that the launcher maps to the sandbox's user.
        openings: What the launcher opens below them.
        overlays: Directories that the launcher shows as private views.
        stage: Where the launcher makes its mounts.
        private: The private view of the directory, in mode `copy`.
        sealed: Paths inside that commands must find read-only.
        control: What bounds its use of the host.
    """

    def __init__(
        self,
        spec: SandboxSpec,
        held: contextlib.ExitStack,
        rung: MinIsolation = "full",
    ) -> None:
        self.spec = spec
        self.rung: MinIsolation = rung
        self.held = held
        self.shown = view.View()
        held.callback(self.shown.close)
        self.root = os.geteuid() == 0
        self.uid = os.geteuid()
        self.own_uid = self.root
        self.idmaps: list[IdMap] = []
        self.openings: list[Opening] = []
        self.overlays: list[Overlay] = []
        self.stage = STAGE
        self.sealed: list[str] = []
        self.bwrap = "" if rung == "landlock" else binary.find()
        if self.root:
            self.uid = ladder.lease(self)
        path = spec.workdir or self.temporary()
        self.workdir = self._opened(path)
        self.inside = path if rung == "landlock" else system.ROOT
        self.scratch = ladder.scratch(self) if rung == "landlock" else ""
        self.private = PrivateView(self) if spec.mode == "copy" else None
        measured = self.workdir if self.private is None else self.private.layer
        self.control = Control(spec, measured, held)

    def temporary(self) -> str:
        """Return a new directory of the sandbox's, which goes when it closes."""
        path = sweep.temporary(self.held)
        if self.root:
            os.chown(path, self.uid, self.uid)
        return path

    def _opened(self, path: str) -> int:
        fd = _workdir.opened(path)
        self.shown.descriptors.append(fd)
        uid, gid = _workdir.owner(fd)
        if self.root and uid != self.uid and ladder.can_map(self):
            self.idmaps.append(IdMap(fd, uid, gid))
        elif self.root and uid != self.uid and self.spec.mode == "live":
            self.uid, self.own_uid = ladder.owner_instead(path, uid), False
        return fd

    def beneath(self, path: str) -> str:
        """Return the number of a descriptor of `path` below the workspace.

        Where the workspace is id-mapped, so is this: the launcher opens it.

        Raises:
            StorageError: A link is on the way, or nothing is there.
        """
        if not self.idmaps:
            fd = protect.open_beneath(self.workdir, path)
        else:
            fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            self.openings.append(Opening(fd, self.workdir, path))
        self.shown.descriptors.append(fd)
        return str(fd)

    def command(self) -> Sequence[str]:
        """Return the argv that starts the sandbox.

        Raises:
            BackendUnavailableError: There is no interpreter for the guest.
            InvalidArgumentError: A mount cannot be shown.
        """
        if self.rung == "landlock":
            return ladder.without_namespaces(self)
        shown, spec = self.shown, self.spec
        proc = self.rung == "full"
        view.isolate(shown, proc=proc)
        given = network.files(spec)
        view.programs(shown, given)
        self.python = view.interpreter(shown)
        limits = control.fitted(spec.limits)
        view.scratch(shown, limits, proc=proc, staged=self.has_stage)
        shown.add(
            "--ro-bind-data", shown.data(bundle.program(self.python)), system.PROGRAM
        )
        view.mounts(shown, spec.mounts, spec.workdir)
        seen = placing.of_host(spec.mounts)
        for place, data in placing.places(given, seen).items():
            shown.add("--ro-bind-data", shown.data(data), place)
        bind = "--ro-bind-fd" if spec.read_only else "--bind-fd"
        shown.add(bind, str(self.workdir), system.ROOT)
        if spec.read_only:
            self.sealed.append(system.ROOT)
        elif spec.protect and spec.workdir is not None and self.private is None:
            self._protect()
        guest = [self.python, "-I", "-S", system.PROGRAM]
        if not proc:
            guest = ladder.without_proc(self, guest)
        view.seal(shown)
        shown.add("--chdir", "/", "--seccomp", shown.data(self._filter()))
        return self._launched(guest)

    def _protect(self) -> None:
        found = protect.hold(self.workdir, self.spec.unprotected, self.held)
        for path, writable in found.mounts:
            bind = "--bind-fd" if writable else "--ro-bind-fd"
            self.shown.add(bind, self.beneath(path), protect.inside(path))
        for path in found.sockets:
            empty = self.shown.data(b"")
            self.shown.add("--ro-bind-data", empty, protect.inside(path))
        self.sealed.extend(protect.inside(path) for path in found.held)

    def _filter(self) -> bytes:
        return seccomp.build(
            "strict" if self.spec.strict else "standard", debug=self.spec.debug
        )

    @property
    def has_stage(self) -> bool:
        """Whether the launcher takes a mount namespace in any case."""
        return ladder.can_map(self) if self.root else bool(self.overlays)

    def entrances(self) -> list[int]:
        """Return descriptors of the control groups that it is to enter."""
        entrances = self.control.entrances()
        self.shown.descriptors.extend(entrances)
        return entrances

    def _launched(self, guest: Sequence[str]) -> Sequence[str]:
        shown = self.shown
        arguments = b"".join(os.fsencode(part) + b"\0" for part in shown.arguments)
        argv = [self.bwrap, "--args", shown.data(arguments), "--", *guest]
        entrances = self.entrances()
        if not self.root and not entrances and not self.overlays:
            return argv
        argv[0] = f"/proc/self/fd/{shown.opened(self.bwrap)}"
        launch = launch_spec(
            argv,
            uid=self.uid,
            gid=self.uid if self.root else os.getegid(),
            parent=os.getpid(),
            idmaps=self.idmaps,
            trees=self.shown.trees if self.root and ladder.can_map(self) else (),
            openings=self.openings,
            overlays=self.overlays,
            scratches=shown.scratches,
            groups=entrances,
            stage=self.stage,
        )
        return launch_command(int(shown.data(launch)))

    def config(self) -> dict[str, object]:
        """Return what the guest is told."""
        return {
            "root": os.fsencode(self.inside),
            "confine": None,
            "sealed": [path.encode("utf-8", "surrogateescape") for path in self.sealed],
            "env": _environment(self),
            "pid_max": ladder.highest_pid(self),
            "rlimits": self.control.rlimits(),
        }


def _environment(plan: Plan) -> dict[str, bytes]:
    env = {
        **system.environment(plan.python),
        **ladder.environment(plan),
        **plan.spec.env,
    }
    return {name: os.fsencode(value) for name, value in env.items()}
