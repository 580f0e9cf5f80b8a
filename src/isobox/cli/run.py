"""`isobox run`: one command in a workspace."""

from __future__ import annotations

import json
import os
import pwd
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast, get_args

from typing_extensions import override

from isobox._audit.asciicast import RecordedProcess, Recorder
from isobox._audit.sinks import refuse_inside
from isobox._core.results import RunResult
from isobox._core.spec import Limits, MinIsolation
from isobox._workspace.base import WorkspaceBase
from isobox._workspace.classes import mount, names
from isobox.cli import containers, network, policies, terminal
from isobox.cli.person import Person
from isobox.cli.status import TIMED_OUT, complain
from isobox.cli.streams import STDERR, STDIN, STDOUT, Collector, carry, copy, feed
from isobox.errors import (
    BackendMissingError,
    BackendUnavailableError,
    InvalidArgumentError,
    IsoboxError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from typing import Any

    from isobox._approval.question import Approve
    from isobox._core.network import Denial
    from isobox._core.results import ByteStream, Exit
    from isobox._core.spec import SandboxSpec
    from isobox._policy.network import Network
    from isobox._policy.policy import Policy

#: What isolates where nobody says what should.
DEFAULT = "seatbelt" if sys.platform == "darwin" else "bubblewrap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asked for."""

    command: tuple[str, ...]
    backend: str | None = None
    workdir: str | None = None
    image: str | None = None
    runtime: str | None = None
    user: str | None = None
    env: tuple[str, ...] = ()
    timeout: float | None = None
    memory: int | None = None
    mounts: tuple[str, ...] = ()
    unprotected: tuple[str, ...] = ()
    min_isolation: str = "full"
    network: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    ask_network: bool = False
    policies: tuple[str, ...] = ()
    preset: str | None = None
    ask: bool = False
    as_json: bool = False
    audit: str | None = None
    record: str | None = None

    @property
    def asks(self) -> bool:
        """Whether the person at the terminal is asked."""
        return self.ask or self.ask_network


async def run(request: Request) -> int:
    """Run the command and return the exit status that stands for its end.

    Raises:
        IsoboxError: isobox itself failed.
        BrokenPipeError: Nobody reads our output any more.
    """
    try:
        return await _run(request)
    except IsoboxError as error:
        if request.as_json:
            _print({"error": type(error).__name__, "message": str(error)})
        raise


async def _run(request: Request) -> int:
    _refuse_record(request)
    async with await opened(request) as workspace:
        if request.as_json:
            return await _captured(workspace, request)
        status = await _shown(workspace, request)
        network.tell(workspace.denials())
        return status


def _refuse_record(request: Request) -> None:
    shows = not request.as_json and not request.asks and _is_interactive()
    if request.record is not None and not shows:
        raise InvalidArgumentError(
            f"--record {request.record}: it records a terminal, and this is none; use "
            "a terminal, and not --json, --ask or --ask-network with it"
        )


def _is_interactive() -> bool:
    return os.isatty(STDIN) and os.isatty(STDOUT)


async def opened(
    request: Request,
    *,
    approve: Approve | None = None,
    mcps: Mapping[str, object] | None = None,
) -> _WithDirectory:
    """Return the workspace that a request asks for, open.

    Args:
        request: The request; its command is left alone.
        approve: Answers instead of the person at the terminal.
        mcps: MCP servers that it has.

    Raises:
        BackendUnavailableError: This machine cannot run it.
    """
    workspace = _workspace(request, approve, mcps or {})
    try:
        await workspace.initialize()
    except (BackendUnavailableError, BackendMissingError) as error:
        if request.backend is not None:
            raise
        raise BackendUnavailableError(
            f"{error}\n  or: choose another backend; `--backend local` isolates nothing"
        ) from error
    return workspace


async def _shown(workspace: _WithDirectory, request: Request) -> int:
    if request.asks:
        # The terminal is for the questions.
        piped = not os.isatty(STDIN)
        return await _streamed(workspace, request, workspace.person.show, piped=piped)
    return await shown(workspace, request)


async def shown(workspace: WorkspaceBase, request: Request) -> int:
    """Run the command before the user's terminal, or between pipes.

    Returns the exit status that stands for its end.
    """
    if _is_interactive():
        return await _interactive(workspace, request)
    return await _streamed(workspace, request, copy, piped=True)


async def _streamed(
    workspace: WorkspaceBase,
    request: Request,
    show: Callable[[ByteStream, int], Coroutine[Any, Any, None]],
    *,
    piped: bool,
) -> int:
    process = await workspace.start(
        request.command, stdin=piped, timeout=request.timeout
    )
    async with process:
        end = await carry(
            process,
            outputs=(
                partial(show, process.stdout, STDOUT),
                partial(show, process.stderr, STDERR),
            ),
            meanwhile=(partial(feed, process),) if piped else (),
        )
    _tell_limit(end, request)
    return _status(end)


async def _interactive(workspace: WorkspaceBase, request: Request) -> int:
    process = await workspace.start(
        request.command,
        tty=terminal.size(),
        env=_terminal_type(request),
        timeout=request.timeout,
    )
    if request.record is not None:
        process = RecordedProcess(process, _recorder(request.record))
    async with process:
        with terminal.raw():
            end = await carry(
                process,
                outputs=(partial(copy, process.stdout, STDOUT),),
                meanwhile=(partial(feed, process), partial(terminal.follow, process)),
            )
    _tell_limit(end, request)
    return _status(end)


def _recorder(path: str) -> Recorder:
    size = terminal.size()
    return Recorder(path, columns=size.columns, rows=size.rows)


async def _captured(workspace: _WithDirectory, request: Request) -> int:
    piped = not os.isatty(STDIN)
    process = await workspace.start(
        request.command, stdin=piped, timeout=request.timeout
    )
    output, errors = Collector(Limits().output), Collector(Limits().output)
    async with process:
        end = await carry(
            process,
            outputs=(
                partial(output.collect, process.stdout),
                partial(errors.collect, process.stderr),
            ),
            meanwhile=(partial(feed, process),) if piped else (),
        )
    denials = network.fields(workspace.denials())
    _print({**_fields(end, output, errors), "denials": denials})
    return _status(end)


def _print(fields: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _fields(end: Exit, output: Collector, errors: Collector) -> dict[str, object]:
    result = RunResult(
        exit_code=end.exit_code,
        signal=end.signal,
        output=output.captured(),
        errors=errors.captured(),
    )
    return {
        "exit_code": end.exit_code,
        "signal": end.signal,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "stdout_total": result.stdout_total,
        "stderr_total": result.stderr_total,
        "truncated": result.truncated,
        "timed_out": end.timed_out,
        "idle_timed_out": end.idle_timed_out,
        "oom_killed": end.oom_killed,
        "background": end.background,
        "limit": end.limit,
        "duration": end.duration,
    }


def _status(end: Exit) -> int:
    return TIMED_OUT if end.timed_out else end.exit_code


def _tell_limit(end: Exit, request: Request) -> None:
    """Say that memory ran out, which the kernel tells no program."""
    if end.limit != "memory" and not end.oom_killed:
        return
    limit = "the memory limit of the workspace"
    if request.memory is not None:
        limit = f"the memory limit, {request.memory} bytes (--memory)"
    what = "was killed: it reached" if end.oom_killed else "failed at"
    complain(f"the command {what} {limit}")


def _terminal_type(request: Request) -> dict[str, str | None]:
    if any(pair.startswith("TERM=") for pair in request.env):
        return {}
    return {"TERM": os.environ.get("TERM", "dumb")}


def _workspace(
    request: Request, approve: Approve | None, mcps: Mapping[str, object]
) -> _WithDirectory:
    backend = request.backend or DEFAULT
    options = containers.options(
        backend, image=request.image, runtime=request.runtime, whom=request.user
    )
    described = {"backend": backend, "_provider_options": options}
    kind: type[_WithDirectory] = type("Workspace", (_WithDirectory,), described)
    return kind(
        request.workdir or _current_directory(),
        request,
        approve=approve,
        mcps=mcps,
    )


class _WithDirectory(WorkspaceBase):
    def __init__(
        self,
        workdir: str,
        request: Request,
        *,
        approve: Approve | None,
        mcps: Mapping[str, object],
    ) -> None:
        self.person = Person()
        policy = policies.chosen(request.policies, request.preset, workdir)
        super().__init__(
            env=variables(request.env),
            audit=request.audit,
            limits=Limits(memory=request.memory),
            policy=policy,
            network=_network(request, policy),
            secrets=network.secrets(request.secrets),
            approve=self.person.approve if request.asks else approve,
            mcps=mcps,
        )
        self._workdir = os.path.abspath(workdir)
        self._request = request
        if request.record is not None:
            refuse_inside(self._workdir, request.record, what="--record")
        self._began = time.monotonic()

    def denials(self) -> tuple[Denial, ...]:
        """Return what the network filter has refused so far."""
        return self._denials(self._began)

    @override
    def _spec(self) -> SandboxSpec:
        return replace(
            super()._spec(),
            mounts=tuple(mount(path) for path in self._request.mounts),
            unprotected=names(self._request.unprotected),
            min_isolation=_least(self._request.min_isolation, self.backend),
        )


def _network(request: Request, policy: Policy) -> Network | None:
    if request.network:
        return network.network(request.network, ask=request.ask_network)
    if request.ask_network:
        return replace(policy.network, otherwise="ask")
    return None


def _least(word: str, backend: str) -> MinIsolation:
    known = get_args(MinIsolation)
    if word != "full" and backend != "bubblewrap":
        raise InvalidArgumentError(
            f"--min-isolation {word}: for bubblewrap; {backend} starts with all that "
            "it isolates, or not at all"
        )
    if word not in known:
        raise InvalidArgumentError(
            f"--min-isolation {word}: there are {', '.join(known)}"
        )
    return cast("MinIsolation", word)


def variables(pairs: Iterable[str]) -> dict[str, str]:
    """Return what `--env` names.

    Raises:
        InvalidArgumentError: One has no value.
    """
    named: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidArgumentError(f"--env {pair}: write it as NAME=VALUE")
        named[name] = value
    return named


def _current_directory() -> str:
    here = os.getcwd()
    for precious in ("/", *_homes()):
        if _holds(here, precious):
            raise InvalidArgumentError(
                f"the command could change all of {here}; go to a project's "
                f"directory, or insist with --workdir {here}"
            )
    return here


def _homes() -> list[str]:
    try:
        listed = [pwd.getpwuid(os.getuid()).pw_dir]
    except KeyError:
        listed = []
    return [os.path.realpath(home) for home in (os.path.expanduser("~"), *listed)]


def _holds(directory: str, path: str) -> bool:
    return os.path.commonpath((directory, path)) == directory
