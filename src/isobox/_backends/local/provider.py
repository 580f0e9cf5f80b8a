"""The local backend: a guest that nothing isolates."""

from __future__ import annotations

import os
import pwd
import sys
import tempfile
from typing import TYPE_CHECKING, Final

import anyio.to_thread
from typing_extensions import override

from isobox import _workdir
from isobox._channel.sandbox import ChannelSandbox
from isobox._channel.start import GuestChild, GuestFailedError
from isobox._guest import bundle
from isobox.abc import Availability, Barrier, Capability, Isolation, Provider
from isobox.errors import (
    BackendUnavailableError,
    InvalidArgumentError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from isobox.abc import Sandbox, SandboxSpec

_CAPABILITIES: Final[frozenset[Capability]] = frozenset(
    ("tty", "dial", "snapshot", "rlimits", "kill_tree", "persistent")
)
_NOTHING = Barrier("none", "commands run as the user who runs isobox")

ISOLATION = Isolation(
    backend="local",
    process=_NOTHING,
    file_system=Barrier(
        "none", "file operations stay below the directory, commands do not"
    ),
    user_identity=_NOTHING,
    network=Barrier("none", "commands have the host's network"),
    system_calls=_NOTHING,
    resources=Barrier("none", "setrlimit where it was asked for"),
    secrets=Barrier(
        "none", "the host's environment is not passed on, but can be found"
    ),
    tenant=_NOTHING,
)


class LocalProvider(Provider):
    """Starts guests as plain children of the host."""

    name = "local"

    @override
    async def probe(self) -> Availability:
        return Availability(
            backend="local", ok=True, reason="runs everywhere; isolates nothing"
        )

    @override
    async def create(self, spec: SandboxSpec, /) -> Sandbox:
        _refuse(spec)
        temporary = None if spec.workdir else tempfile.mkdtemp(prefix="isobox-")
        root = spec.workdir or os.path.realpath(temporary or "")
        try:
            os.close(_workdir.opened(root))
            child = await self._start(spec, root)
        except BaseException:
            if temporary is not None:
                _workdir.sweep_tree(root)
            raise
        return LocalSandbox(child, root=root, temporary=temporary is not None)

    async def _start(self, spec: SandboxSpec, root: str) -> GuestChild:
        program = os.memfd_create("isobox-guest", os.MFD_CLOEXEC)
        try:
            os.write(program, bundle.program(sys.executable))
            return await GuestChild.start(
                [sys.executable, "-I", "-S", f"/dev/fd/{program}"],
                config={
                    "root": os.fsencode(root),
                    "confine": os.fsencode(root),
                    "sealed": [],
                    "env": _environment(spec),
                    "rlimits": {},
                },
                env={},
                cwd="/",
                pass_fds=[program],
            )
        except (OSError, GuestFailedError) as error:
            raise BackendUnavailableError(
                f"the guest does not start: {error}", backend="local"
            ) from error
        finally:
            os.close(program)


class LocalSandbox(ChannelSandbox):
    """A guest and, where none was given, its temporary directory."""

    def __init__(self, child: GuestChild, *, root: str, temporary: bool) -> None:
        super().__init__(
            child.channel,
            backend="local",
            root=root,
            capabilities=_CAPABILITIES,
            isolation=ISOLATION,
        )
        self._child = child
        self._temporary = temporary

    @override
    async def _release(self) -> None:
        await self._child.aclose()
        if self._temporary:
            await anyio.to_thread.run_sync(_workdir.sweep_tree, self.root)


def _refuse(spec: SandboxSpec) -> None:
    """Refuse what only an isolating backend can give."""
    if spec.capture is not None:
        raise UnsupportedError(
            "the local backend cannot filter the network, since commands have the "
            "host's own; choose another, such as bubblewrap",
            backend="local",
        )
    asked = {
        "mounts": bool(spec.mounts),
        "files": bool(spec.files),
        "unprotected": bool(spec.unprotected),
        "mode": spec.mode != "live",
        "memory": spec.limits.memory is not None,
        "cpus": spec.limits.cpus is not None,
        "disk": spec.limits.disk is not None,
    }
    if wanted := [name for name, given in asked.items() if given]:
        raise InvalidArgumentError(
            f"the local backend cannot honour {', '.join(wanted)}, since it isolates "
            "nothing; choose another",
            backend="local",
        )


def _environment(spec: SandboxSpec) -> dict[str, bytes]:
    user = pwd.getpwuid(os.geteuid())
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        **spec.env,
    }
    return {name: os.fsencode(value) for name, value in env.items()}
