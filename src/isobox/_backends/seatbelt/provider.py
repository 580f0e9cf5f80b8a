"""The Seatbelt backend: a guest under `sandbox-exec`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import stat
import sys
import tempfile
from typing import TYPE_CHECKING, Final

import anyio.to_thread
from typing_extensions import override

from isobox import _workdir
from isobox._backends.seatbelt import protect
from isobox._backends.seatbelt.profile import Grants, profile
from isobox._channel.sandbox import ChannelSandbox
from isobox._channel.start import GuestChild, GuestFailedError
from isobox._guest import bundle
from isobox.abc import (
    Availability,
    Barrier,
    Capability,
    Isolation,
    Provider,
    SandboxSpec,
)
from isobox.errors import (
    BackendUnavailableError,
    InvalidArgumentError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from isobox.abc import Limits, Mount, Sandbox

#: By its full name: another one on the PATH could do anything.
SANDBOX_EXEC: Final = "/usr/bin/sandbox-exec"

_CAPABILITIES: Final[frozenset[Capability]] = frozenset(
    ("tty", "snapshot", "rlimits", "isolated", "no_network", "persistent")
)

#: No level is `strong`: nobody has measured it yet.
ISOLATION: Final = Isolation(
    backend="seatbelt",
    process=Barrier(
        "partial",
        "Seatbelt: signals and facts about processes within the sandbox only; a "
        "command can outlive its timeout, and the workspace",
    ),
    file_system=Barrier(
        "partial",
        "Seatbelt, deny by default: the system's programs read-only, a private "
        "TMPDIR and home, the workspace; names above these can be looked up; "
        "not measured yet",
    ),
    user_identity=Barrier(
        "partial",
        "commands run as the user who runs isobox; no set-user-id program starts",
    ),
    network=Barrier(
        "partial",
        "Seatbelt: no socket binds or connects, on loopback neither; not measured yet",
    ),
    system_calls=Barrier(
        "partial",
        "no filter of system calls; Mach services and kernel settings by "
        "allowlist, no IOKit",
    ),
    resources=Barrier("partial", "rlimits of each process; no bound on the whole"),
    secrets=Barrier(
        "partial",
        "an environment built from nothing; no keychain, no agent's socket; the "
        "host's name can be read",
    ),
    tenant=Barrier(
        "partial",
        "all sandboxes run as the same user; none can write, signal or examine another",
    ),
)


class SeatbeltProvider(Provider):
    """Starts guests under `sandbox-exec`."""

    name = "seatbelt"

    @override
    async def probe(self) -> Availability:
        try:
            sandbox = await self.create(SandboxSpec(id="probe"))
            await sandbox.aclose()
        except BackendUnavailableError as error:
            return Availability(
                backend="seatbelt",
                ok=False,
                reason=error.message.partition("\n  fix: ")[0],
                fix=error.fix,
            )
        return Availability(backend="seatbelt", ok=True, reason=f"by {SANDBOX_EXEC}")

    @override
    async def create(self, spec: SandboxSpec, /) -> Sandbox:
        _require_macos()
        _refuse_what_cannot_be(spec)
        with contextlib.ExitStack() as held:
            place = _Place(spec, held)
            grants = await anyio.to_thread.run_sync(place.grants, spec)
            child = await _start(spec, place, grants)
            return SeatbeltSandbox(child, root=place.root, held=held.pop_all())


class SeatbeltSandbox(ChannelSandbox):
    """A guest under a profile, and its private directories."""

    def __init__(
        self, child: GuestChild, *, root: str, held: contextlib.ExitStack
    ) -> None:
        super().__init__(
            child.channel,
            backend="seatbelt",
            root=root,
            capabilities=_CAPABILITIES,
            isolation=ISOLATION,
        )
        self._child = child
        self._held = held

    @override
    async def _release(self) -> None:
        await self._child.aclose()
        await anyio.to_thread.run_sync(self._held.close)


class _Place:
    """Where one sandbox lives, with every path as the kernel spells it.

    Attributes:
        root: The workspace's directory.
        tmp: A private TMPDIR.
        home: A private home.
        program: The guest, which the sandbox can only read.
    """

    def __init__(self, spec: SandboxSpec, held: contextlib.ExitStack) -> None:
        private = tempfile.mkdtemp(prefix="isobox-")
        held.callback(_workdir.sweep_tree, os.path.realpath(private))
        private = _spelled(private)
        self.tmp = _made(private, "tmp")
        self.home = _made(private, "home")
        self.root = _workspace(spec.workdir or _made(private, "workspace"))
        self.program = os.path.join(private, "guest.pyc")
        with open(self.program, "xb") as file:
            file.write(bundle.program(_interpreter()))

    def grants(self, spec: SandboxSpec) -> Grants:
        """Return what the sandbox may do."""
        folders, files = _shown(spec.mounts)
        # Nobody else comes to a directory that goes with the sandbox.
        protects = spec.protect and spec.workdir is not None
        return Grants(
            root=self.root,
            scratch=(self.tmp, self.home),
            readable=(*folders, _spelled(sys.base_prefix)),
            files=(*files, self.program),
            protect=protects,
            unprotected=spec.unprotected,
            held=tuple(protect.survey(self.root, spec.unprotected) if protects else ()),
        )


async def _start(spec: SandboxSpec, place: _Place, grants: Grants) -> GuestChild:
    guest = [_interpreter(), "-I", "-S", place.program]
    try:
        child = await GuestChild.start(
            [SANDBOX_EXEC, "-p", profile(grants), *guest],
            config={
                "root": os.fsencode(place.root),
                "confine": None,
                "sealed": [os.fsencode(path) for path in grants.held],
                "env": _environment(spec, place),
                "rlimits": _rlimits(spec.limits),
            },
            env={"TMPDIR": place.tmp},
            cwd="/",
            pass_fds=[],
        )
    except (OSError, GuestFailedError) as error:
        raise _unavailable(f"the sandbox does not start: {error}") from error
    if child.channel.hello.get("unsealed") != []:
        await child.aclose()
        raise _unavailable("the sandbox could write protected names")
    return child


def _require_macos() -> None:
    system = platform.system()
    if system != "Darwin":
        raise _unavailable(f"Seatbelt is a part of macOS; this is {system}")
    if not os.access(SANDBOX_EXEC, os.X_OK):
        raise _unavailable(f"{SANDBOX_EXEC} is missing from this macOS")
    if os.geteuid() == 0:
        raise _unavailable(
            "commands would run as root, whom Seatbelt alone does not hold",
            fix="run isobox as an ordinary user",
        )


def _refuse_what_cannot_be(spec: SandboxSpec) -> None:
    if spec.capture is not None:
        raise UnsupportedError(
            "seatbelt cannot filter the network: no socket connects, on loopback "
            "neither; leave `network` out",
            backend="seatbelt",
        )
    wanted = {
        "files of its own": bool(spec.files),
        'mode="copy"': spec.mode == "copy",
        "strict": spec.strict,
        "debug": spec.debug,
        "a limit of memory": spec.limits.memory is not None,
        "a limit of processors": spec.limits.cpus is not None,
        "a limit of disk": spec.limits.disk is not None,
    }
    for name, asked in wanted.items():
        if asked:
            raise InvalidArgumentError(f"seatbelt has no {name}; leave it out")


def _workspace(path: str) -> str:
    fd = _workdir.opened(path)
    try:
        return _spelled_by(fd, path)
    finally:
        os.close(fd)


def _shown(mounts: tuple[Mount, ...]) -> tuple[list[str], list[str]]:
    folders: list[str] = []
    files: list[str] = []
    for mount in mounts:
        path = _mounted(mount)
        (folders if os.path.isdir(path) else files).append(path)
    return folders, files


def _mounted(mount: Mount) -> str:
    if mount.source != mount.target:
        raise InvalidArgumentError(
            f"mounts: seatbelt shows {mount.source!r} where it is, and nowhere else",
            path=mount.source,
        )
    try:
        mode = os.stat(mount.source).st_mode
    except OSError:
        mode = 0
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise InvalidArgumentError(
            f"mounts: {mount.source!r} is neither a directory nor a file",
            path=mount.source,
        )
    return _spelled(mount.source)


def _made(parent: str, name: str) -> str:
    path = os.path.join(parent, name)
    os.mkdir(path, 0o700)
    return path


def _interpreter() -> str:
    return os.path.realpath(sys.executable)


def _spelled(path: str) -> str:
    """Return a host path as the kernel spells it; that is what rules compare."""
    real = os.path.realpath(path)
    fd = os.open(real, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _spelled_by(fd, real)
    finally:
        os.close(fd)


def _spelled_by(fd: int, path: str) -> str:
    # Disks of macOS take `Project` for `project`, and a letter with an accent
    # for two characters; rules do not.
    if sys.platform == "darwin":
        return os.fsdecode(fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return path


def _environment(spec: SandboxSpec, place: _Place) -> dict[str, bytes]:
    env = {
        "PATH": "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": place.home,
        "USER": "agent",
        "LANG": "en_US.UTF-8",
        "TERM": "dumb",
        "TMPDIR": place.tmp,
        # Git gives up where it may not even look.
        "GIT_CONFIG_NOSYSTEM": "1",
        **spec.env,
    }
    return {name: os.fsencode(value) for name, value in env.items()}


def _rlimits(limits: Limits) -> dict[str, int]:
    # Not the number of processes: macOS counts all that the user runs.
    wanted = {"nofile": limits.open_files, "fsize": limits.file_size, "core": 0}
    return {name: value for name, value in wanted.items() if value is not None}


def _unavailable(message: str, *, fix: str | None = None) -> BackendUnavailableError:
    return BackendUnavailableError(message, fix=fix, backend="seatbelt")
