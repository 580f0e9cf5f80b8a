"""Plants decoys, runs the probes inside a backend's sandbox, and judges."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from importlib import resources
from typing import TYPE_CHECKING

import anyio

from isobox import _workdir
from isobox._probe import inside
from isobox._probe.report import ANSWER_LIMIT, judge, parse, plain
from isobox._workspace.base import WorkspaceBase
from isobox.errors import ProtocolError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping

    from isobox._probe.report import Outcome, Report

_PROGRAM = "isobox-probe.py"
_PYTHONS = ("python3", "/usr/bin/python3", "/usr/local/bin/python3")
_FLAGS = ("-I", "-S")
_DECOYS_LIMIT = 4096
_PLANTING_TIMEOUT = 30.0
_PROBING_TIMEOUT = 300.0

_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
# Not /usr: a sandbox may well share the system's programs.
_DIRECTORIES = (
    "/",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/media",
    "/mnt",
    "/opt",
    "/root",
    "/run",
    "/srv",
    "/tmp",  # noqa: S108 - looked at, not used
    "/var",
)


async def measure(backend: str, *options: object, owner: int | None = None) -> Report:
    """Probe one backend from inside and compare with what it claims.

    Two sandboxes are made: the probes run in one, in a directory of the host,
    and look for the other and for the host.

    Args:
        backend: Its name.
        *options: What its provider is made with.
        owner: The uid that the directory belongs to; the caller's if None.

    Raises:
        BackendMissingError: There is no such backend.
        BackendUnavailableError: This machine cannot run it.
        UnsupportedError: There is no Python inside.
        ProtocolError: The answer from inside is not the program's.
    """
    async with AsyncExitStack() as stack:
        secret = stack.enter_context(_secret_in_our_environment())
        host = await stack.enter_async_context(host_decoys())
        directory = stack.enter_context(_directory(owner))
        subject = await stack.enter_async_context(
            _workspace(backend, options, directory)
        )
        other = await stack.enter_async_context(_workspace(backend, options))
        neighbour = await stack.enter_async_context(_neighbour_decoys(other))
        plan = {
            "host": host,
            "neighbour": neighbour,
            "facts": {**facts(), "secret_variable": secret},
        }
        return judge(subject.isolation(), await _outcomes(subject, plan))


def _workspace(
    backend: str, options: tuple[object, ...], directory: str | None = None
) -> WorkspaceBase:
    described = {"backend": backend, "_provider_options": options}
    kind: type[WorkspaceBase] = type("Workspace", (WorkspaceBase,), described)
    workspace = kind()
    workspace._workdir = directory
    return workspace


@contextmanager
def _directory(owner: int | None) -> Generator[str]:
    # Not one that the backend makes for itself: in there nobody but the sandbox
    # does anything, so its names may be nobody's concern.
    path = os.path.realpath(tempfile.mkdtemp(prefix="isobox-probe-"))
    if owner is not None:
        os.chown(path, owner, owner)
    try:
        yield path
    finally:
        _workdir.sweep_tree(path)


async def _outcomes(
    workspace: WorkspaceBase, plan: Mapping[str, object]
) -> dict[str, tuple[Outcome, str]]:
    result = await workspace.run(
        [*await _program(workspace), json.dumps(plan)],
        timeout=_PROBING_TIMEOUT,
        output_limit=2 * ANSWER_LIMIT,
    )
    if not result.ok:
        raise ProtocolError(
            f"the probe ended inside with status {result.exit_code}: "
            f"{plain(result.stderr[-300:])}"
        )
    return parse(result.output.data)


async def _program(workspace: WorkspaceBase) -> list[str]:
    """Put the program into the workspace and return the command that runs it."""
    await workspace.write(_PROGRAM, _source())
    for python in _PYTHONS:
        if (await workspace.run([python, *_FLAGS, "-c", "pass"])).ok:
            return [python, *_FLAGS, _PROGRAM]
    raise UnsupportedError(
        f"no Python runs inside (tried {', '.join(_PYTHONS)}); "
        "the probe needs version 3.8 or newer of the system's or image's own, for the "
        "one that isobox brings along has only what the guest needs. Probe an image "
        "with Python: what holds is the backend's",
        backend=workspace.backend,
    )


def _source() -> str:
    return resources.files("isobox._probe").joinpath("inside.py").read_text("utf-8")


# -- decoys ---------------------------------------------------------------------


@asynccontextmanager
async def host_decoys() -> AsyncGenerator[dict[str, object]]:
    """Plant on the host what no sandbox should reach; it is gone after."""
    token = _token()
    process = await anyio.open_process(
        [sys.executable, *_FLAGS, "-c", _source(), "plant", token],
        env={_variable(token): token},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None,
    )
    async with process:
        assert process.stdin is not None  # noqa: S101 - asked for
        assert process.stdout is not None  # noqa: S101 - asked for
        try:
            yield await _decoys(process.stdout.receive)
        finally:
            # The end of its input makes it clean up and leave.
            with anyio.CancelScope(shield=True):
                await process.stdin.aclose()
                await process.wait()


@asynccontextmanager
async def _neighbour_decoys(
    workspace: WorkspaceBase,
) -> AsyncGenerator[dict[str, object]]:
    token = _token()
    command = [*await _program(workspace), "plant", token]
    process = await workspace.start(command, stdin=True, env={_variable(token): token})
    async with process:
        yield await _decoys(process.stdout.receive)
        await process.write_eof()
        await process.wait()


async def _decoys(receive: Callable[[], Awaitable[bytes]]) -> dict[str, object]:
    """Read the one line that the planting program prints.

    SAFETY: a neighbour's line comes from a sandbox. It is bounded and handed
    to the other sandbox only; the host uses nothing of it.
    """
    line = b""
    with anyio.move_on_after(_PLANTING_TIMEOUT), suppress(anyio.EndOfStream):
        while not line.endswith(b"\n"):
            piece = await receive()
            line += piece
            if not piece or len(line) > _DECOYS_LIMIT:
                break
    try:
        decoys: dict[str, object] = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("the decoys could not be planted") from error
    return decoys


@contextmanager
def _secret_in_our_environment() -> Generator[str]:
    token = _token()
    name = _variable(token)
    os.environ[name] = token
    try:
        yield name
    finally:
        os.environ.pop(name, None)


def _token() -> str:
    return secrets.token_hex(8)


def _variable(token: str) -> str:
    return f"ISOBOX_PROBE_{token}"


# -- facts ----------------------------------------------------------------------


def facts() -> dict[str, object]:
    """Describe the host, so that a sandbox can tell whether it sees it."""
    found: dict[str, object] = {
        "directories": _identities(),
        "home": os.path.expanduser("~"),
        "hostname": os.uname().nodename,
        "namespaces": _namespaces(),
        "processors": os.cpu_count(),
    }
    with suppress(OSError):
        found["boot_id"] = inside.boot_id()
    for name, path in (("passwd", "/etc/passwd"), ("machine_id", "/etc/machine-id")):
        with suppress(OSError):
            found[name] = inside.digest(path)
    return found


def _identities() -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for path in _DIRECTORIES:
        with suppress(OSError):
            status = os.stat(path)
            found[path] = (status.st_dev, status.st_ino)
    return found


def _namespaces() -> dict[str, str]:
    found: dict[str, str] = {}
    for kind in _NAMESPACES:
        with suppress(OSError):
            found[kind] = os.readlink(f"/proc/self/ns/{kind}")
    return found
