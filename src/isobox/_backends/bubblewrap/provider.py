"""The bubblewrap backend."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import TYPE_CHECKING, Final

import anyio.to_thread
from typing_extensions import override

from isobox import _workdir
from isobox._backends.bubblewrap import binary, view
from isobox._channel.sandbox import ChannelSandbox
from isobox._channel.start import GuestChild, GuestFailedError
from isobox._guest import bundle
from isobox._linux import seccomp
from isobox._linux.launching import IdMap, launch_command, launch_spec
from isobox._linux.uids import UidRange
from isobox.abc import (
    Availability,
    Barrier,
    Capability,
    Isolation,
    Provider,
    SandboxSpec,
)
from isobox.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox.abc import Limits, Sandbox

_CAPABILITIES: Final[frozenset[Capability]] = frozenset(
    (
        "tty",
        "dial",
        "snapshot",
        "rlimits",
        "kill_tree",
        "isolated",
        "no_network",
        "persistent",
    )
)

ISOLATION: Final = Isolation(
    backend="bubblewrap",
    process=Barrier(
        "strong", "pid and ipc namespaces; all of it dies with the guest as pid 1"
    ),
    file_system=Barrier(
        "strong",
        "mount namespace over an allowlist: the system's programs read-only, a "
        "private /tmp and home, the workspace; everything else does not exist",
    ),
    user_identity=Barrier(
        "strong",
        "user namespace, never host uid 0, no capabilities, no_new_privs, no "
        "further user namespaces",
    ),
    network=Barrier("strong", "network namespace with nothing but a loopback"),
    system_calls=Barrier(
        "strong", "seccomp denylist with a ceiling: unknown calls do not exist"
    ),
    resources=Barrier(
        "partial", "rlimits of each process, sized tmpfs; no bound on memory"
    ),
    secrets=Barrier("strong", "an environment built from nothing, for bwrap as well"),
    tenant=Barrier("strong", "started by root: a host uid of its own per sandbox"),
)


class BubblewrapProvider(Provider):
    """Starts guests under bubblewrap."""

    name = "bubblewrap"

    @override
    async def probe(self) -> Availability:
        try:
            path = binary.find()
            sandbox = await self.create(SandboxSpec(id="probe"))
            await sandbox.aclose()
        except BackendUnavailableError as error:
            return Availability(
                backend="bubblewrap",
                ok=False,
                reason=error.message.partition("\n  fix: ")[0],
                fix=error.fix,
            )
        return Availability(backend="bubblewrap", ok=True, reason=f"runs by {path}")

    @override
    async def create(self, spec: SandboxSpec, /) -> Sandbox:
        held = contextlib.ExitStack()
        try:
            child = await _start(spec, held)
        except BaseException:
            held.close()
            raise
        return BubblewrapSandbox(child, held)


class BubblewrapSandbox(ChannelSandbox):
    """A guest that is pid 1 of its own namespaces."""

    def __init__(self, child: GuestChild, held: contextlib.ExitStack) -> None:
        super().__init__(
            child.channel,
            backend="bubblewrap",
            root=view.ROOT,
            capabilities=_CAPABILITIES,
            isolation=ISOLATION,
        )
        self._child = child
        self._held = held

    @override
    async def _release(self) -> None:
        await self._child.aclose()
        await anyio.to_thread.run_sync(self._held.close)


async def _start(spec: SandboxSpec, held: contextlib.ExitStack) -> GuestChild:
    bwrap = binary.find()
    identity = _Identity(spec, held)
    shown = view.View()
    held_during_start = contextlib.closing(shown)
    with held_during_start:
        command = _command(shown, identity, spec, bwrap)
        try:
            return await GuestChild.start(
                command,
                config={
                    "root": view.ROOT.encode(),
                    "confine": None,
                    "env": _environment(spec),
                    "rlimits": _rlimits(spec.limits),
                },
                env={},
                cwd="/",
                pass_fds=[*shown.descriptors, *identity.descriptors],
            )
        except (OSError, GuestFailedError) as error:
            raise binary.diagnosis(str(error)) from error
        finally:
            identity.started()


class _Identity:
    """Whose files the workspace's are, and as whom the sandbox runs.

    Started by root, a sandbox gets a host uid that no other has, and sees the
    owner's files as its own through an id-mapped mount. Otherwise it runs as
    the caller.
    """

    def __init__(self, spec: SandboxSpec, held: contextlib.ExitStack) -> None:
        self.root = os.geteuid() == 0
        self.uid = held.enter_context(UidRange().lease(spec.id)).uid if self.root else 0
        self.idmaps: list[IdMap] = []
        path = spec.workdir or self._temporary(held)
        self.workdir = _workdir.opened(path)
        self.descriptors = [self.workdir]
        uid, gid = _workdir.owner(self.workdir)
        if self.root and uid != self.uid:
            self.idmaps.append(IdMap(self.workdir, uid, gid))

    def _temporary(self, held: contextlib.ExitStack) -> str:
        path = os.path.realpath(tempfile.mkdtemp(prefix="isobox-"))
        held.callback(_workdir.sweep_tree, path)
        if self.root:
            os.chown(path, self.uid, self.uid)
        return path

    def started(self) -> None:
        """Close what only the start needs."""
        os.close(self.workdir)


def _command(
    shown: view.View, identity: _Identity, spec: SandboxSpec, bwrap: str
) -> Sequence[str]:
    view.isolate(shown)
    view.system(shown)
    python = view.interpreter(shown)
    view.scratch(shown, spec.limits)
    shown.add("--ro-bind-data", shown.data(bundle.program(python)), view.PROGRAM)
    shown.add("--bind-fd", str(identity.workdir), view.ROOT)
    view.seal(shown)
    shown.add("--chdir", "/", "--seccomp", shown.data(seccomp.build()))
    arguments = b"".join(os.fsencode(part) + b"\0" for part in shown.arguments)
    argv = [bwrap, "--args", shown.data(arguments), "--"]
    argv += [python, "-I", "-S", view.PROGRAM]
    if not identity.root:
        return argv
    argv[0] = f"/proc/self/fd/{shown.directory(bwrap)}"
    launch = launch_spec(
        argv,
        uid=identity.uid,
        gid=identity.uid,
        parent=os.getpid(),
        idmaps=identity.idmaps,
    )
    return launch_command(int(shown.data(launch)))


def _environment(spec: SandboxSpec) -> dict[str, bytes]:
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": view.HOME,
        "USER": "agent",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
        **spec.env,
    }
    return {name: os.fsencode(value) for name, value in env.items()}


def _rlimits(limits: Limits) -> dict[str, int]:
    wanted = {
        "nproc": limits.processes,
        "nofile": limits.open_files,
        "fsize": limits.file_size,
        "core": 0,
    }
    return {name: value for name, value in wanted.items() if value is not None}
