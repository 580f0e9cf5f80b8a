"""What a hostile program attempts in the demo, and who says that it failed.

The program's own report is believed only when it admits success. Whether it was
stopped is seen from the host, wherever the host can see it.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

import anyio

from isobox.cli.status import printable
from isobox.errors import IsoboxError, SandboxLostError

if TYPE_CHECKING:
    from isobox._core.results import RunResult
    from isobox._workspace.base import WorkspaceBase
    from isobox.cli.stage import Stage

_PLACE = "hostile"
_PROGRAM = f"{_PLACE}/hostile.py"
_PATIENCE = 20.0  # seconds for one attempt
_FLOOD = 2.0  # seconds of output without end
_MiB = 1024 * 1024
_MEMORY = 512 * _MiB  # of one process


@dataclass(frozen=True, slots=True)
class Scene:
    """Where an attempt is made, and what came of it."""

    stage: Stage
    workspace: WorkspaceBase
    result: RunResult
    seconds: float
    growth: int


#: Says what got through, seen from the host; None when nothing did.
Evidence = Callable[[Scene], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One harmful thing.

    Attributes:
        name: The function in the hostile program.
        title: What it attempts.
        barrier: What is there to stop it.
        harm: Looks for harm on the host.
        patience: Seconds until it is ended.
        needs: A fact without which there is nothing to attempt.
        to_its_end: It is stopped by being ended, not by an error.
    """

    name: str
    title: str
    barrier: str
    harm: Evidence
    patience: float = _PATIENCE
    needs: str | None = None
    to_its_end: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt went.

    Attributes:
        title: What was attempted.
        stopped_by: What stopped it, or what got through.
        held: Nothing got through.
    """

    title: str
    stopped_by: str
    held: bool


async def bring(workspace: WorkspaceBase) -> None:
    """Put the hostile program into a workspace."""
    with as_file(files("isobox.cli") / "hostile" / "hostile.py") as program:
        await workspace.upload(program, _PROGRAM)


async def clear(workspace: WorkspaceBase) -> None:
    """Take away the hostile program and what it planted."""
    with contextlib.suppress(SandboxLostError):
        await workspace.remove(_PLACE, recursive=True)


async def make(attempt: Attempt, stage: Stage, workspace: WorkspaceBase) -> Outcome:
    """Let the hostile program make one attempt, and look for harm."""
    try:
        scene = await _played(attempt, stage, workspace)
        harm = await _harm(attempt, scene)
    except SandboxLostError as error:
        return Outcome(attempt.title, printable(f"it ended: {error}"), held=False)
    if harm is not None:
        return Outcome(attempt.title, printable(harm), held=False)
    return Outcome(
        attempt.title, f"{attempt.barrier} ({_end(scene.result)})", held=True
    )


async def _played(attempt: Attempt, stage: Stage, workspace: WorkspaceBase) -> Scene:
    before, started = _resident(), time.monotonic()
    result = await workspace.run(
        ["python3", "-B", "hostile.py", attempt.name, json.dumps(stage.facts)],
        cwd=_PLACE,
        timeout=attempt.patience,
        output_limit=_MiB,
        limits={"as": _MEMORY},
    )
    return Scene(
        stage, workspace, result, time.monotonic() - started, _resident() - before
    )


def after_closing(outcome: Outcome, stage: Stage) -> Outcome:
    """Look, once the workspace is closed, for what `LEAVE_BEHIND` left."""
    harm = stage.survivors()
    stage.put_down()
    if harm is not None:
        return Outcome(outcome.title, harm, held=False)
    return outcome


async def _harm(attempt: Attempt, scene: Scene) -> str | None:
    said = _last_line(scene.result)
    if said.startswith("GOT"):
        return f"it says: {said}"
    # A program that did not run was not stopped by anything.
    if not (said.startswith("STOPPED") or _was_ended(attempt, scene.result)):
        return f"it did not run: {scene.result.stderr[-200:].strip() or said[:200]}"
    return (
        scene.stage.leaked(scene.result.stdout_bytes + scene.result.stderr_bytes)
        or await attempt.harm(scene)
        or await _unresponsive(scene)
    )


async def _unresponsive(scene: Scene) -> str | None:
    done = await scene.workspace.run(["true"], timeout=5)
    return None if done.ok else "the workspace does not answer any more"


def _was_ended(attempt: Attempt, result: RunResult) -> bool:
    return attempt.to_its_end and (result.timed_out or result.signal is not None)


def _end(result: RunResult) -> str:
    last = _last_line(result)
    if last.startswith("STOPPED "):
        return printable(last.removeprefix("STOPPED ")[:60])
    if result.timed_out:
        return f"ended at {result.duration:.1f} s"
    return result.signal or "ended by force"


def _last_line(result: RunResult) -> str:
    return result.stdout.strip().rpartition("\n")[2]


def _resident() -> int:
    with open("/proc/self/statm") as memory:
        return int(memory.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- evidence ---------------------------------------------------------------


async def _only_what_was_said(_: Scene) -> str | None:
    return None


async def _changed(scene: Scene) -> str | None:
    return scene.stage.changed()


async def _made_in_system(scene: Scene) -> str | None:
    return scene.stage.made_in_system()


async def _mounted(scene: Scene) -> str | None:
    return scene.stage.mounted()


async def _bystander_harmed(scene: Scene) -> str | None:
    return scene.stage.bystander_harmed()


def _reached(name: str) -> Evidence:
    async def harm(scene: Scene) -> str | None:
        return scene.stage.reached(name)

    return harm


async def _flooded(scene: Scene) -> str | None:
    if scene.growth > 64 * _MiB:
        return f"the host's memory grew by {scene.growth // _MiB} MiB"
    late = scene.seconds > _FLOOD + 1
    return f"it took {scene.seconds:.1f} s to stop it" if late else None


async def _links_followed(scene: Scene) -> str | None:
    for path in ("report.txt", "up", "all/secret.txt"):
        try:
            content = await scene.workspace.read_bytes(f"{_PLACE}/loot/{path}")
        except IsoboxError:
            continue
        if leak := scene.stage.leaked(content):
            return f"the host followed {path}: {leak}"
    return await _downloaded(scene, f"{_PLACE}/loot", scene.stage.leads_out)


async def _set_user_id_taken(scene: Scene) -> str | None:
    stage = scene.stage
    return await _downloaded(
        scene, f"{_PLACE}/helper", stage.set_user_id
    ) or stage.set_user_id(stage.workdir)


async def _downloaded(
    scene: Scene, path: str, examine: Callable[[str], str | None]
) -> str | None:
    with tempfile.TemporaryDirectory(dir=scene.stage.directory) as directory:
        try:
            await scene.workspace.download(path, os.path.join(directory, "taken"))
        except IsoboxError:
            return None
        return examine(directory)


async def _fifo_waited_on(scene: Scene) -> str | None:
    with anyio.move_on_after(5) as patience:
        try:
            await scene.workspace.read_bytes(f"{_PLACE}/notes.txt")
        except IsoboxError:
            return None
    return "the host waited" if patience.cancelled_caught else "the host read it"


ATTEMPTS = (
    Attempt(
        "read_secret",
        "read a host secret",
        "not in its root",
        _only_what_was_said,
    ),
    Attempt(
        "read_home",
        "read a secret in the user's home",
        "a home of its own",
        _only_what_was_said,
        needs="home_secret",
    ),
    Attempt(
        "read_environments",
        "read host processes' environment",
        "own processes only",
        _only_what_was_said,
    ),
    Attempt(
        "read_own_environment",
        "find isobox's own environment",
        "none is passed on",
        _only_what_was_said,
    ),
    Attempt(
        "write_outside",
        "change a file outside",
        "not in its root",
        _changed,
    ),
    Attempt(
        "write_system",
        "write into /usr, /etc, /",
        "read-only",
        _made_in_system,
    ),
    Attempt(
        "reach_internet",
        "reach the internet",
        "no route out",
        _only_what_was_said,
    ),
    Attempt(
        "reach_metadata",
        "reach a cloud's metadata service",
        "no route out",
        _only_what_was_said,
    ),
    Attempt(
        "reach_loopback",
        "reach the host's loopback",
        "own loopback",
        _reached("loopback_port"),
    ),
    Attempt(
        "reach_host_address",
        "reach the host by its address",
        "no route out",
        _reached("host_address"),
        needs="host_address",
    ),
    Attempt(
        "reach_socket_files",
        "reach Docker's and other sockets",
        "not in its root",
        _reached("socket_file"),
    ),
    Attempt(
        "reach_abstract_socket",
        "reach the host's abstract sockets",
        "own namespace",
        _reached("abstract_socket"),
    ),
    Attempt(
        "open_raw_socket",
        "open a raw socket",
        "no capabilities",
        _only_what_was_said,
    ),
    Attempt(
        "kill_host_process",
        "kill a host process, and all it can",
        "own processes only",
        _bystander_harmed,
    ),
    Attempt(
        "attack_guest",
        "take over the sandbox's pid 1",
        "not dumpable",
        _only_what_was_said,
    ),
    Attempt(
        "mount_something",
        "mount, or get a user namespace",
        "no capabilities",
        _mounted,
    ),
    Attempt(
        "change_kernel_setting",
        "change a kernel setting",
        "no capabilities",
        _only_what_was_said,
    ),
    Attempt(
        "become_root",
        "become root",
        "no new privileges",
        _only_what_was_said,
    ),
    Attempt(
        "plant_set_user_id",
        "hand the host a set-user-id file",
        "set-id bits stay inside",
        _set_user_id_taken,
    ),
    Attempt(
        "raise_limits",
        "raise its own limits",
        "hard limits",
        _only_what_was_said,
    ),
    Attempt(
        "fork_bomb",
        "fork without end",
        "process limit",
        _only_what_was_said,
        to_its_end=True,
    ),
    Attempt(
        "fill_memory",
        "fill the memory",
        "memory limit",
        _only_what_was_said,
        to_its_end=True,
    ),
    Attempt(
        "fill_temporary",
        "fill /tmp, /dev, /run, home",
        "sized or read-only",
        _only_what_was_said,
    ),
    Attempt(
        "fill_workspace",
        "write a file without end",
        "file size limit",
        _only_what_was_said,
    ),
    Attempt(
        "flood_output",
        "drown the host in output",
        "bounded buffers",
        _flooded,
        patience=_FLOOD,
        to_its_end=True,
    ),
    Attempt(
        "plant_links",
        "have the host follow planted links",
        "the host opens none",
        _links_followed,
    ),
    Attempt(
        "plant_fifo",
        "have the host hang on a FIFO",
        "regular files only",
        _fifo_waited_on,
    ),
)

#: Whether it was held is seen when the workspace has closed.
LEAVE_BEHIND = Attempt(
    "leave_behind",
    "leave a process behind",
    "dies with pid 1",
    _only_what_was_said,
)
