"""Workspaces: everything a user does with a sandbox, written once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import anyio
import anyio.lowlevel

from isobox import _registry
from isobox._approval.project import Project
from isobox._approval.question import Answers
from isobox._audit.sinks import refuse_within, sink_for
from isobox._channel.background import Background, collapsed
from isobox._core import patch, paths
from isobox._core.budget import Budget, Spent
from isobox._core.file_types import globs_of
from isobox._core.given import is_number
from isobox._core.ops import (
    Attach,
    Checkpoint,
    Dial,
    Diff,
    Edit,
    Op,
    Patch,
    Pull,
    Push,
    Read,
    ReadLines,
    Remove,
    Replacement,
    Restore,
    Running,
    Scan,
    Search,
    Snapshot,
    Spawn,
    WindowSize,
    Write,
)
from isobox._core.results import ProcessInfo, SnapshotRef
from isobox._core.spec import Limits, SandboxSpec
from isobox._core.stack import Perform, compose
from isobox._layers import Audit, Errors, Guard, Ledger, Limited
from isobox._layers.reader import SHARED
from isobox._policy.policy import without_runs
from isobox._workspace import arguments, transfer
from isobox._workspace.activity import Activity
from isobox._workspace.expose import Exposed
from isobox._workspace.forward import Forward
from isobox._workspace.mcp.mcps import Mcps
from isobox._workspace.offload.retention import Retention
from isobox._workspace.outcome import checked, result_of
from isobox._workspace.redacted import RedactedProcess
from isobox._workspace.shell import Shell
from isobox._workspace.verify import Hashed, Verdict
from isobox.errors import (
    BudgetError,
    InvalidArgumentError,
    IsoboxError,
    PathMissingError,
    UnsupportedError,
    WorkspaceClosedError,
    WrongEncodingError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Self

    from isobox._approval.question import Approve
    from isobox._audit.sinks import AuditSink
    from isobox._core.isolation import Isolation
    from isobox._core.network import Denial
    from isobox._core.ops import Body, SearchMode
    from isobox._core.patch import PatchFormat
    from isobox._core.results import (
        Edited,
        Entry,
        Exit,
        Listing,
        Matches,
        Page,
        Patched,
        Process,
        RunResult,
        Usage,
    )
    from isobox._core.sandbox import Provider, Sandbox
    from isobox._core.stack import R
    from isobox._egress.denial import Denials
    from isobox._egress.gate import Gate
    from isobox._egress.redact import Redactor
    from isobox._egress.secret import Secret
    from isobox._policy.policy import Policy
    from isobox._workspace.arguments import NetworkOption
    from isobox._workspace.mcp.mcps import Answering
    from isobox._workspace.mcp.server import McpServer, McpStatus
    from isobox._workspace.mcp.speech import Mcp
    from isobox._workspace.offload.offloads import Offloads
    from isobox._workspace.options import Options
    from isobox._workspace.skills.installed import Skill
    from isobox._workspace.skills.package import Source
    from isobox._workspace.skills.seeds import Seeds
    from isobox._workspace.tools.session import Session
    from isobox._workspace.tools.tool import Tool

_LIMITS = Limits()


class WorkspaceBase:
    """A place where commands run and files live, isolated as its class says.

    Use it as an async context manager, or call `initialize` and `close`. Paths
    are relative to the workspace's root, or absolute inside it. Every method
    raises WorkspaceClosedError before `initialize` and after `close`, and
    SandboxLostError, at once, when the sandbox is gone.

    Args:
        workspace_id: Names the workspace: lower-case letters, digits and `-`,
            at most 63. A new random one if None.
        policy: What may happen; everything if None.
        audit: A file's path or a sink for the records of every operation. The
            file must not be below the workspace's directory.
        network: What may be reached outside: `"none"`; a list of hosts such as
            `["pypi.org", "*.example.org", "git.example.org:22", "!a.example.org"]`
            or of NetworkRules; a Network; or `"open"`, which is everything but
            private addresses, this host and clouds' metadata. None leaves it to
            the policy and the backend: a sandbox has no network then.
        secrets: What is attached to requests on the way out. Inside there is a
            placeholder only.
        approve: Answers what a rule asks a person. Nobody, which is a no, if
            None.
        budget: The most that it may spend in its life, over every reset.
        env: Variables that every command sees. The host's own are not passed. None
            may be the variable of a secret.
        limits: Limits of the workspace and of its commands.
        labels: Free text that travels with the sandbox.
        mcps: MCP servers for every agent and session: McpServers, or a mapping
            of names to what JSON files have, such as
            `{"git": {"command": "mcp-server-git"}}`.
        max_mcps: MCP servers that run at once; the one that was used least
            recently makes room for another.
        elicit: Answers MCP servers' questions to the user, as the official
            SDK's `elicitation_callback`. They are refused if None.
        sample: Asks a model on MCP servers' behalf, as the SDK's
            `sampling_callback`. That is refused if None.
        skills: What `add_skill` takes, put in once for a directory: a skill that
            was removed there stays away.
        retention: How long offloads are kept, and how much of them; for good if
            None.

    Raises:
        InvalidArgumentError: An argument cannot be honoured.
    """

    backend: ClassVar[str]
    #: Whether several processes may have one sandbox open at once.
    _shared: ClassVar[bool] = False
    #: What the backend's provider is made with.
    _provider_options: tuple[object, ...] = ()

    def __init__(
        self,
        *,
        workspace_id: str | None = None,
        policy: Policy | None = None,
        audit: AuditSink | str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        labels: Mapping[str, str] | None = None,
        network: NetworkOption = None,
        secrets: Iterable[Secret] = (),
        approve: Approve | None = None,
        budget: Budget | None = None,
        mcps: Mapping[str, object] | Iterable[McpServer] = (),
        max_mcps: int = 40,
        elicit: Answering | None = None,
        sample: Answering | None = None,
        skills: Iterable[Source] = (),
        retention: Retention | None = None,
    ) -> None:
        self.workspace_id = arguments.identifier(workspace_id)
        self._policy = arguments.policy(policy, network)
        self._secrets = arguments.attached(secrets)
        self._approve = arguments.approve(approve)
        self._budget = arguments.instance("budget", budget, Budget)
        self._spent_up: BudgetError | None = None
        self._ledger = None if budget is None else Ledger(budget, self.usage)
        self._closing: asyncio.Task[None] | None = None
        self._activity = Activity()
        #: Whether the manager that made it has closed it, so that it stays closed.
        self._retired = False
        self._gate = self._way_out()
        self._unexposed: Denials | None = None
        self._limits = arguments.instance("limits", limits, Limits) or _LIMITS
        self._env = arguments.environment(env or {})
        if self._gate is not None:
            self._gate.check_environment(self._env)
        self._labels = arguments.labels(labels or {})
        self._sink = sink_for(audit)
        self._audit = Audit(
            self._sink,
            workspace=self.workspace_id,
            backend=self.backend,
            redact=self._redacted if self._secrets else None,
        )
        self._workdir: str | None = None
        self._mcps = Mcps(self, mcps, most=max_mcps, elicit=elicit, sample=sample)
        self._skills = arguments.sources(skills)
        self._seeds: Seeds | None = None
        self._retention = arguments.instance("retention", retention, Retention)
        self._offloads: Offloads | None = None
        self._sandbox: Sandbox | None = None
        self._perform: Perform | None = None
        self._shells: dict[str, Shell] = {}
        self._processes: dict[str, Process] = {}
        self._infos: dict[str, ProcessInfo] = {}
        self._sessions: dict[str, Session] = {}
        self._exits = contextlib.AsyncExitStack()
        self._lock = anyio.Lock()

    # -- life ---------------------------------------------------------------

    async def _watch_budget(self) -> None:
        """Close the workspace when its budget is spent, if the budget says so."""
        ledger, budget = self._ledger, self._budget
        if ledger is None or budget is None or not budget.close:
            return
        watch = Background()
        await watch.open()
        self._exits.push_async_callback(watch.aclose)

        async def watched() -> None:
            error = await ledger.exhausted()
            self._audit.lifecycle("budget", spent=error.budget)
            self._spent_up = error
            # Closing ends this task: the closing has to be another's.
            self._closing = asyncio.ensure_future(self.close())

        watch.start(watched)

    def _enforced(self, sandbox: Sandbox) -> Policy:
        """Return the policy, with rules for what the sandbox does not hold."""
        if self._policy.read_only and "read_only" not in sandbox.capabilities:
            return without_runs(self._policy)
        return self._policy

    def _way_out(self) -> Gate | None:
        if not self._policy.network:
            if self._secrets:
                raise InvalidArgumentError(
                    "secrets are attached to what leaves, and nothing may: name "
                    "their hosts in `network`"
                )
            return None
        # The filter is many modules, and most workspaces have no network.
        from isobox._egress.gate import Gate  # noqa: PLC0415

        return Gate(self._policy.network, self._secrets)

    def _project(self, sandbox: Sandbox) -> Project | None:
        """Return what keeps answers, unless commands could write them themselves."""
        if self._workdir is None or "isolated" not in sandbox.capabilities:
            return None
        return Project(self._workdir)

    def _provider(self) -> Provider:
        return _registry.provider(self.backend, *self._provider_options)

    async def initialize(self) -> None:
        """Make the sandbox; the workspace is ready when this returns.

        Raises:
            BackendUnavailableError: This machine cannot run the backend; the
                message has the command that helps.
            PathError: The working directory cannot be used.
            InvalidArgumentError: The audit file is below the working directory,
                where commands could change it; or one of `skills` is no skill.
            ArchiveError: A member of one of `skills` is refused.
        """
        async with self._lock:
            if self._sandbox is not None:
                return
            if self._retired:
                raise self._closed_error()
            refuse_within(self._workdir, self._sink)
            sandbox = await self._provider().create(self._spec())
            try:
                await self._open(sandbox)
            except BaseException:
                # SAFETY: what the audit log has not been told of does not go on.
                with anyio.CancelScope(shield=True):
                    await self._release(sandbox)
                raise
        if self._skills:
            await self._plant()

    async def _open(self, sandbox: Sandbox) -> None:
        """Put the layers on a sandbox, and record that it is there."""
        answers = Answers(
            self._approve,
            workspace=self.workspace_id,
            record=self._audit.question,
            redact=self._redacted if self._secrets else None,
            project=self._project(sandbox),
        )
        self._exits.push_async_callback(answers.aclose)
        self._exits.push_async_callback(self._mcps.aclose)
        guard = Guard(self._enforced(sandbox), answers, sandbox.root, sandbox.places)
        perform = compose(
            sandbox,
            [
                self._activity,
                self._audit,
                guard,
                Limited(self._limits, self._ledger),
                Errors(backend=self.backend),
            ],
        )
        if self._gate is not None:
            await self._gate.open(sandbox, perform, self.workspace_id)
        if self._policy.looks_inside:
            self._exits.callback(SHARED.hold())
        await self._watch_budget()
        self._audit.lifecycle("initialize", isolation=sandbox.isolation().as_dict())
        self._sandbox, self._perform = sandbox, perform

    async def _release(self, sandbox: Sandbox) -> None:
        """Close a sandbox and all that is open for it."""
        self._sandbox, self._perform = None, None
        try:
            await self._exits.aclose()
        finally:
            await sandbox.aclose()
            if self._gate is not None:
                await self._gate.aclose()

    async def _plant(self) -> None:
        """Put in the skills that the workspace begins with, or close it."""
        from isobox._workspace.skills.seeds import Seeds  # noqa: PLC0415

        self._seeds = self._seeds or Seeds(self, self._skills)
        try:
            await self._seeds.plant()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Kill every process and release the sandbox; safe to call again."""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                if self._ledger is not None and self._sandbox is not None:
                    # The next sandbox's processor time begins at nothing.
                    await self._ledger.look()
                sandbox = self._sandbox
                self._shells.clear()
                self._processes.clear()
                self._sessions.clear()
                self._offloads = None
                self._activity.begin_anew()
                if sandbox is not None:
                    await self._release(sandbox)
                    self._audit.lifecycle("close")

    async def reset(self) -> None:
        """Give a fresh sandbox: no process is left, /tmp and home are empty.

        Files below a working directory that was given stay; a temporary one
        starts empty.
        """
        await self.close()
        await self.initialize()

    def _is_lost(self) -> bool:
        """Whether its sandbox is not open, or known to be gone."""
        return self._sandbox is None or self._sandbox.lost

    async def _answers(self, timeout: float) -> bool:
        """Whether its sandbox is open and answers in time; it is no operation."""
        sandbox = self._sandbox
        if sandbox is None or sandbox.lost:
            return False
        with anyio.move_on_after(timeout):
            return await sandbox.answers()
        return False

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- commands -----------------------------------------------------------

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        output_limit: int | None = None,
        spool: str | None = None,
        user: str | None = None,
        limits: Mapping[str, int] | None = None,
        check: bool = False,
        session_id: str | None = None,
    ) -> RunResult:
        """Run a command to its end and return what it printed.

        Nothing of the command runs when this returns or is cancelled, except
        background processes that the command left when it ended by itself.

        Args:
            command: A string is a script for the workspace's shell (bash, else
                sh), of any length; a sequence is a program and its arguments,
                never split, never interpreted.
            cwd: Directory to run in; the workspace's root if None.
            env: Variables to add for this command; None as a value removes one.
            stdin: What the command reads; at its end if None.
            timeout: Seconds until it is killed with every descendant; the
                partial output is in the result.
            idle_timeout: Seconds without any output until the same.
            output_limit: Bytes kept of each output, half from its head and
                half from its tail.
            spool: Path in the workspace for the full standard output and error,
                in the order in which they arrived.
            user: Name or id to run as, where the backend can.
            limits: Resource limits by setrlimit's name in lower case, such as
                `{"nofile": 64, "cpu": 10}`.
            check: Raise when the command fails.
            session_id: Run a string in this persistent shell; see `shell`. It
                has its own directory and variables, so `cwd`, `env`, `stdin`,
                `idle_timeout`, `spool`, `user` and `limits` do not go with it.

        Raises:
            CommandFailedError: `check`, and the status is not 0.
            TimedOutError: `check`, and the time ran out.
            PathMissingError: `cwd` does not exist.
            SandboxLostError: The sandbox is gone.
        """
        if session_id is not None:
            arguments.nothing_but_a_script(
                cwd=cwd,
                env=env,
                stdin=stdin,
                idle_timeout=idle_timeout,
                spool=spool,
                user=user,
                limits=limits,
            )
            return await self._run_in_shell(
                command,
                session_id,
                timeout=timeout,
                output_limit=output_limit,
                check=check,
            )
        fed = arguments.stdin(stdin)
        began = time.monotonic()
        process = await self._spawn(
            command,
            cwd=cwd,
            env=env,
            stdin=fed is not None,
            timeout=timeout,
            idle_timeout=idle_timeout,
            capture=self._limits.output if output_limit is None else output_limit,
            spool=spool,
            user=user,
            limits=limits,
        )
        try:
            end = await _fed(process, fed)
        finally:
            await process.aclose()
        result = replace(result_of(end), denials=self._denials(began))
        return checked(result, command, check=check)

    def _redacted(self, text: str) -> str:
        """Return a text without the values of secrets that were read by now."""
        return (
            text if self._gate is None else (self._gate.vault.known().redact_text(text))
        )

    def _denials(self, since: float) -> tuple[Denial, ...]:
        """Return what was refused, or failed, on its way out since a moment."""
        refused = () if self._gate is None else self._gate.denials(since)
        unexposed = () if self._unexposed is None else self._unexposed.since(since)
        return (*refused, *unexposed)

    def _not_exposed(self, port: int) -> Callable[[IsoboxError], None]:
        """Return what remembers why an exposed port of the host was not reached."""
        from isobox._egress.denial import Denials, denial_of  # noqa: PLC0415

        unexposed = self._unexposed = self._unexposed or Denials()

        def failed(error: IsoboxError) -> None:
            denial = denial_of(error, Exposed.host, port)
            if denial is not None:
                unexposed.add(denial)

        return failed

    async def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        stdin: bool = False,
        tty: bool | WindowSize = False,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        user: str | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> Process:
        """Start a command and return it, running.

        Iterate over it, or over its `stdout` and `stderr`, to read what it
        prints; a reader that is slow slows the command down, nothing is lost
        and nothing piles up. It runs until it ends, until `kill`, or until the
        workspace closes. See `run` for the arguments.

        Args:
            stdin: Keep its standard input open for `write`.
            tty: Run it on a terminal, 80 by 24 or of the given size; implies
                `stdin`, and everything it prints arrives on `stdout`.

        Raises:
            PathMissingError: `cwd` does not exist.
            UnsupportedError: The backend has no terminals.
        """
        size = WindowSize() if tty is True else (tty or None)
        process = await self._spawn(
            command,
            cwd=cwd,
            env=env,
            stdin=stdin or size is not None,
            tty=size,
            timeout=timeout,
            idle_timeout=idle_timeout,
            user=user,
            limits=limits,
        )
        self._processes[process.id] = process
        self._infos[process.id] = ProcessInfo(
            id=process.id,
            command=command if isinstance(command, str) else tuple(command),
            cwd=self._path(cwd or "."),
            since=time.time(),
        )
        process.on_end(lambda _: self._forget(process))
        return process

    def _forget(self, process: Process) -> None:
        self._processes.pop(process.id, None)
        self._infos.pop(process.id, None)

    async def attach(
        self, process_id: str, *, stdout_from: int = 0, stderr_from: int = 0
    ) -> Process:
        """Return the process of this id: the object that `start` returned, if any.

        Where the sandbox outlives its host (the capability `reattach`), commands
        that another host started are found as well, for as long as they run and
        the last 64 of them for ten minutes after their end. What they print is
        kept up to 1 MiB for each output while nobody reads it; how much of what
        is asked for is lost, the `lost` of `stdout` and `stderr` says. While
        somebody reads, nothing is lost: a slow reader slows the command down.

        Args:
            process_id: Its `id`, from here or from `processes`.
            stdout_from: Bytes of its standard output that are passed over: how
                many were read before.
            stderr_from: The same for its standard error.

        Raises:
            PathMissingError: There is no such process.
            InvalidArgumentError: It has not printed so many bytes.
            UnsupportedError: An offset, and the backend cannot go back.
        """
        reattach = "reattach" in self._live().capabilities
        first = arguments.count("stdout_from", stdout_from) or 0
        second = arguments.count("stderr_from", stderr_from) or 0
        known = self._processes.get(process_id)
        if known is not None and not (first or second):
            return known
        if known is None and not reattach:
            raise PathMissingError(
                f"no process {process_id!r} runs in this workspace", path=process_id
            )
        redactor = await self._redactor()
        process = await self._do(Attach(id=process_id, stdout=first, stderr=second))
        return process if redactor is None else RedactedProcess(process, redactor)

    async def processes(self) -> tuple[ProcessInfo, ...]:
        """Return the commands that run, by the id that `attach` takes.

        Where the sandbox outlives its host (the capability `reattach`), all of
        them, whoever started them, and those that have lately ended; else those
        that `start` returned here and that run.
        """
        if "reattach" in self._live().capabilities:
            return await self._do(Running())
        return tuple(self._infos[each] for each in self._processes)

    def shell(self, session_id: str = "default") -> Shell:
        """Return the persistent shell of this name.

        It keeps its working directory, variables and functions between calls.
        It starts with its first command.
        """
        self._live()
        if session_id not in self._shells:
            self._shells[session_id] = Shell(
                self._session,
                self._do,
                session_id,
                limits=self._limits,
                denials=self._denials,
            )
        return self._shells[session_id]

    async def _session(self, argv: Sequence[str], label: str) -> Process:
        return await self._spawn(argv, stdin=True, report=True, label=label)

    async def _run_in_shell(
        self,
        command: str | Sequence[str],
        session_id: str,
        *,
        timeout: float | None,
        output_limit: int | None,
        check: bool,
    ) -> RunResult:
        if not isinstance(command, str):
            raise InvalidArgumentError(
                "a session runs scripts; give the command as one string"
            )
        return await self.shell(session_id).run(
            command, timeout=timeout, output_limit=output_limit, check=check
        )

    async def _spawn(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        stdin: bool = False,
        tty: WindowSize | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        capture: int | None = None,
        spool: str | None = None,
        user: str | None = None,
        limits: Mapping[str, int] | None = None,
        report: bool = False,
        label: str | None = None,
    ) -> Process:
        argv, script = arguments.command(command)
        redactor = await self._redactor()
        process = await self._do(
            Spawn(
                argv=argv,
                script=script,
                cwd=self._path(cwd or "."),
                env=arguments.environment(env or {}),
                stdin=stdin,
                tty=tty,
                timeout=arguments.seconds("timeout", timeout),
                idle_timeout=arguments.seconds("idle_timeout", idle_timeout),
                capture=arguments.count("output_limit", capture),
                spool=self._path(spool) if spool is not None else None,
                user=user,
                limits=arguments.limits(limits or {}),
                report=report,
                label=label,
            )
        )
        return process if redactor is None else RedactedProcess(process, redactor)

    async def _redactor(self) -> Redactor | None:
        """Return what masks the values of secrets; None if there are none."""
        if self._gate is None or not self._secrets:
            return None
        return await self._gate.vault.redactor()

    # -- files --------------------------------------------------------------

    async def read_bytes(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> bytes:
        """Return a file's content, or `length` bytes of it from `offset`.

        Raises:
            PathMissingError: There is no such file.
            PathIsDirectoryError: It is a directory.
            NotRegularFileError: It is a FIFO, a socket or a device; it was not
                opened, so nothing hangs.
        """
        op = Read(
            path=self._path(path),
            offset=arguments.count("offset", offset) or 0,
            length=arguments.count("length", length),
        )
        async with await self._do(op) as stream:
            return await stream.read()

    async def read_text(self, path: str, *, encoding: str = "utf-8") -> str:
        """Return a file's content as text; line ends are kept.

        Raises:
            WrongEncodingError: It is not in that encoding.
            InvalidArgumentError: There is no such encoding.
        """
        arguments.encoding(encoding)
        data = await self.read_bytes(path)
        try:
            return data.decode(encoding)
        except UnicodeDecodeError as error:
            raise WrongEncodingError(error, path=path) from None

    async def read_lines(
        self, path: str, *, start: int = 1, count: int = 2000, width: int = 2000
    ) -> Page:
        """Return lines of a text file, or what else the file turns out to be.

        The encoding is found out: UTF-8, UTF-16 or else Latin-1, unless there
        are control characters, which no text has. An image of up to 5 MiB comes
        as data. Memory is bounded, however large the file or one line is.

        Args:
            start: Number of the first line, from 1; negative numbers count from
                the end, so that -20 begins the last 20.
            count: The most lines.
            width: Characters beyond which a line is clipped.

        Raises:
            PathMissingError: There is no such file.
            PathIsDirectoryError: It is a directory.
            NotRegularFileError: It is a FIFO, a socket or a device.
            InvalidArgumentError: `start` is 0, or it is a text of over 4 GiB.
        """
        if start == 0:
            raise InvalidArgumentError(
                "start=0: lines are numbered from 1; -1 is the last one"
            )
        return await self._do(
            ReadLines(
                path=self._path(path),
                start=start,
                count=arguments.count("count", count) or 0,
                width=arguments.count("width", width) or 0,
            )
        )

    async def write(
        self,
        path: str,
        data: str | Body,
        *,
        mode: int | None = None,
        if_match: str | None = None,
    ) -> Entry:
        """Replace a file's content atomically and return its entry, with digest.

        Missing directories are made. An existing file keeps its mode and
        owner; a symlink is written through.

        Args:
            data: Text (written as UTF-8), bytes, or pieces that arrive.
            mode: Permission bits, such as 0o755.
            if_match: Write only if the content's SHA-256 in hex is this; ""
                only if the file does not exist.

        Raises:
            ConflictError: The file is not the one that `if_match` named.
            PathIsDirectoryError: It is a directory.
            StorageError: The file system is full or read-only.
        """
        op = Write(
            path=self._path(path),
            body=arguments.body(data),
            mode=arguments.mode(mode),
            if_match=if_match,
        )
        return await self._do(op)

    async def edit(
        self,
        path: str,
        old: str,
        new: str,
        *,
        replace_all: bool = False,
        if_match: str | None = None,
    ) -> Edited:
        """Replace `old` by `new` in a file, atomically.

        See `edit_all`.

        Raises:
            EditMismatchError: `old` is not there, or more than once and not
                `replace_all`.
            InvalidArgumentError: `old` is empty, or the same as `new`.
            ConflictError: The file is not the one that `if_match` named.
        """
        return await self.edit_all(
            path, [(old, new)], replace_all=replace_all, if_match=if_match
        )

    async def edit_all(
        self,
        path: str,
        replacements: Sequence[tuple[str, str]],
        *,
        replace_all: bool = False,
        if_match: str | None = None,
    ) -> Edited:
        """Make several replacements in a file, all or none, atomically.

        Each is a pair of old and new text, and applies to what the one before
        it left. Text is found in the decoded file; in one whose lines end with
        CRLF, LF matches that and becomes it. Encoding, byte order mark, final
        newline and mode stay. A file that is no text is edited as bytes.

        Args:
            replace_all: An old text may stand in more than one place.
            if_match: Edit only if the content's SHA-256 in hex is this.

        Raises:
            EditMismatchError: An old text is not there, or more than once and
                not `replace_all`; the message shows the closest lines.
            ConflictError: The file is not the one that `if_match` named.
            InvalidArgumentError: The file's encoding lacks a character, or the
                file is over 64 MiB; an old text is empty, or the same as its new
                one.
        """
        pieces = tuple(
            Replacement(_utf8(old), _utf8(new), replace_all)
            for old, new in replacements
        )
        if not all(piece.old for piece in pieces):
            raise InvalidArgumentError("the text to replace is empty")
        if any(piece.old == piece.new for piece in pieces):
            raise InvalidArgumentError(
                "the old and the new text are the same; give what is to stand there "
                "instead"
            )
        return await self._do(
            Edit(path=self._path(path), replacements=pieces, if_match=if_match)
        )

    async def apply_patch(
        self,
        text: str,
        *,
        format: PatchFormat | None = None,  # noqa: A002 - what it is called
    ) -> Patched:
        """Apply a patch to the files that it names, all or none.

        Understood are unified diffs, with git's headers for new, deleted and
        renamed files and for modes, and Codex's `*** Begin Patch`. Context must
        be exact but for line ends; a hunk of a unified diff may have moved by
        up to 500 lines.

        Args:
            text: The patch; paths in it are relative to the root, or absolute.
            format: `unified` or `codex`; found out if None.

        Raises:
            InvalidArgumentError: It is no patch, or asks for what is not
                supported; the message names the line.
            EditMismatchError: A hunk is not in its file; the message shows the
                closest lines.
            PathMissingError: A file to change is not there.
            PathExistsError: A file to make is there already.
            PathOutsideError: A path leaves the workspace.
            ConflictError: A file changed meanwhile.
        """
        changes = patch.parse(text, format)
        return await self._do(
            Patch(changes=tuple(each.resolved(self._path) for each in changes))
        )

    async def scan(
        self,
        path: str = ".",
        *,
        depth: int | None = 1,
        limit: int = 100_000,
        digest: bool = False,
    ) -> Listing:
        """Describe what a directory holds, `depth` levels deep, None for all.

        Entries come sorted by path; links are described, not followed.

        Raises:
            PathMissingError: There is nothing at the path.
            PathNotDirectoryError: It is not a directory.
        """
        return await self._do(
            Scan(
                path=self._path(path),
                depth=arguments.count("depth", depth),
                limit=arguments.count("limit", limit) or 0,
                digest=digest,
            )
        )

    async def stat(
        self, path: str, *, follow: bool = True, digest: bool = False
    ) -> Entry:
        """Describe one path; the target of a link unless `follow` is false.

        Raises:
            PathMissingError: There is nothing at the path.
        """
        op = Scan(path=self._path(path), depth=0, follow=follow, digest=digest)
        return (await self._do(op)).entries[0]

    async def exists(self, path: str) -> bool:
        """Whether there is anything at the path; a dangling link counts."""
        try:
            await self.stat(path, follow=False)
        except (PathMissingError, NotADirectoryError):
            return False
        return True

    async def glob(
        self,
        pattern: str,
        *,
        path: str = ".",
        ignored: bool = True,
        files_only: bool = False,
        newest: bool = False,
        limit: int = 100_000,
        offset: int = 0,
    ) -> Listing:
        """Return what below `path` matches `**`, `*`, `?`, `[...]`, `{a,b}`.

        Links are described, never followed.

        Args:
            pattern: Relative to `path`, or absolute.
            ignored: Return what `.gitignore`, `.ignore` and `.rgignore` files
                leave out, and directories of version control, as well.
            files_only: Only regular files and links.
            newest: The newest first, not in path order.
            limit: The most entries.
            offset: Entries to pass over first.

        Raises:
            PathMissingError: There is nothing at `path`.
            PathOutsideError: An absolute pattern leaves the workspace.
            InvalidArgumentError: The pattern is empty, or no string.
        """
        if not arguments.text("pattern", pattern):
            raise InvalidArgumentError(
                "the pattern is empty; give one such as '**/*.py'"
            )
        above, pattern = paths.split_pattern(paths.referred(pattern))
        return await self._do(
            Scan(
                path=self._path(above or path),
                depth=None,
                limit=arguments.count("limit", limit) or 0,
                offset=arguments.count("offset", offset) or 0,
                pattern=pattern,
                ignored=ignored,
                files_only=files_only,
                newest=newest,
            )
        )

    async def grep(
        self,
        pattern: str,
        *,
        path: str = ".",
        mode: SearchMode = "content",
        glob: str | None = None,
        types: Sequence[str] = (),
        literal: bool = False,
        ignore_case: bool = False,
        multiline: bool = False,
        ignored: bool = True,
        hidden: bool = True,
        context: int = 0,
        before: int | None = None,
        after: int | None = None,
        limit: int = 1000,
        offset: int = 0,
        timeout: float = 30.0,
    ) -> Matches:
        """Find lines that match a regular expression in the files below `path`.

        Where the sandbox has ripgrep, that finds the files of a large tree for
        expressions without a text that each match must hold; expressions that
        only Python has, and `multiline`, do without. Files
        that hold a NUL are binary and passed over, unless they begin with a
        UTF-16 mark. What was found within `timeout` seconds is returned, with
        `timed_out`, so that no expression can hang.

        Args:
            pattern: A Python regular expression, or plain text with `literal`.
            mode: `content` finds lines; `files` the files that have any;
                `count` these with the number of their matches.
            glob: Only files whose path relative to `path` matches.
            types: Only files of these types, as ripgrep calls them: `py`, `js`.
            multiline: Match across lines, with `.` for line ends as well.
            ignored: Search what `.gitignore`, `.ignore` and `.rgignore` files
                leave out, and directories of version control, as well.
            hidden: Search names that begin with a dot as well.
            context: Lines of context around a match, at most 100 a side.
            before: Lines of context before it instead.
            after: Lines of context after it instead.
            limit: The most matches, or files.
            offset: Matches, or files, to pass over first.

        Raises:
            InvalidArgumentError: The expression does not compile, or there is
                no such type.
            PathMissingError: There is nothing at `path`.
        """
        if mode not in ("content", "files", "count"):
            raise InvalidArgumentError(
                f"mode={mode!r} is none of content, files and count"
            )
        globs_of(types)
        return await self._do(
            Search(
                path=self._path(path),
                pattern=pattern,
                mode=mode,
                literal=literal,
                ignore_case=ignore_case,
                multiline=multiline,
                glob=glob,
                types=tuple(types),
                ignored=ignored,
                hidden=hidden,
                before=arguments.count("before", context if before is None else before)
                or 0,
                after=arguments.count("after", context if after is None else after)
                or 0,
                limit=arguments.count("limit", limit) or 0,
                offset=arguments.count("offset", offset) or 0,
                timeout=arguments.seconds("timeout", timeout) or 0.0,
            )
        )

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a link, or a directory, with all in it if `recursive`.

        Raises:
            PathMissingError: There is nothing at the path.
            PathIsDirectoryError: It is a directory and not `recursive`.
            InvalidArgumentError: It is the workspace's root, or above it.
        """
        await self._do(Remove(path=self._path(path), recursive=recursive))

    async def upload(self, local: str | os.PathLike[str], remote: str) -> None:
        """Copy a host file or directory into the workspace.

        A file replaces `remote`; a directory's content goes into `remote`.
        Modes and times are kept.

        Raises:
            PathMissingError: There is nothing at `local`.
        """
        await transfer.upload(self._funnel(), local, self._path(remote))

    async def download(self, remote: str, local: str | os.PathLike[str]) -> None:
        """Copy a file or directory of the workspace to the host.

        A file replaces `local`; a directory's content goes into `local`. Only
        regular files, directories and links that stay inside are made; set-id
        bits are dropped.

        Raises:
            PathMissingError: There is nothing at `remote`.
            ArchiveError: The sandbox sent what may not come to the host.
        """
        await transfer.download(self._funnel(), self._path(remote), local)

    # -- tools ----------------------------------------------------------------

    async def list_tools(
        self, *, session_id: str = "default", agent_id: str | None = None
    ) -> list[Tool]:
        """Return the tools that a model works with in this workspace.

        Bash, Read, Write, Edit, Glob and Grep, then those for commands in the
        background and for patches. Tools of one session share a shell and know
        which files the session has read; those of another know nothing of it.

        After them Skill, if there are skills, and those of MCP servers, which start
        now. A server that fails hides
        none of the others: `list_mcps` says why.

        Args:
            session_id: Names the session, as for `shell`.
            agent_id: Names the agent, for the MCP servers that it alone has.
        """
        session, own = await self._own_tools(session_id)
        return [*own, *await self._mcps.tools(session, agent_id)]

    async def _own_tools(self, session_id: str) -> tuple[Session, list[Tool]]:
        # Tools are many modules, and most users of a workspace need none.
        from isobox._workspace.skills.tool import skill_tools  # noqa: PLC0415
        from isobox._workspace.tools import tools_of  # noqa: PLC0415
        from isobox._workspace.tools.session import Session  # noqa: PLC0415

        self.shell(session_id)
        if session_id not in self._sessions:
            self._sessions[session_id] = Session(self, session_id)
        session = self._sessions[session_id]
        return session, [*tools_of(session), *await skill_tools(session)]

    async def _end_session(self, session_id: str) -> None:
        """End a session that nobody comes back to, with all that it runs."""
        session = self._sessions.pop(session_id, None)
        shell = self._shells.pop(session_id, None)
        if session is not None:
            for job in session.jobs.values():
                await job.process.aclose()
        if shell is not None:
            await shell.aclose()
        await self._mcps.end_session(session_id)

    async def _tool(self, name: str, session_id: str) -> Tool | None:
        """Return one tool; only the server that it would be of may start."""
        session, tools = await self._own_tools(session_id)
        if name.startswith("mcp__"):
            server = name.split("__")[1]
            tools = await self._mcps.tools(session, None, only=server)
        return next((tool for tool in tools if tool.name == name), None)

    async def add_mcp(
        self,
        server: McpServer,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> None:
        """Declare an MCP server; it starts when it is first needed.

        Where the workspace has a directory of the host's, the declaration is kept
        outside of it and holds for later workspaces of that directory.

        Args:
            server: The server.
            agent_id: The agent that has it; every one if None.
            session_id: The session that has it; every one if None.

        Raises:
            InvalidArgumentError: They have one of that name.
            BackendMissingError: The SDK is missing: `isobox[mcp]`.
            StorageError: The declaration cannot be kept.
        """
        await self._mcps.add(server, (agent_id, session_id))

    async def remove_mcp(
        self, name: str, *, agent_id: str | None = None, session_id: str | None = None
    ) -> None:
        """End an MCP server and forget it, for the same whom it was added for.

        Raises:
            InvalidArgumentError: They have none of that name.
            StorageError: Its declaration cannot be removed.
        """
        await self._mcps.remove(name, (agent_id, session_id))

    async def list_mcps(
        self, *, agent_id: str | None = None, session_id: str = "default"
    ) -> list[McpStatus]:
        """Return how each MCP server does that an agent has in a session."""
        return self._mcps.status(agent_id, session_id)

    def mcp(
        self, name: str, *, agent_id: str | None = None, session_id: str = "default"
    ) -> Mcp:
        """Return what speaks with an MCP server: tools, resources, prompts.

        Raises:
            InvalidArgumentError: There is none of that name.
        """
        return self._mcps.speech(name, agent_id, session_id)

    async def get_instructions(self) -> str:
        """Return a fragment for a model's system prompt.

        It says in which directory the tools work, which limits hold, whether
        there is a network, what is protected and how to ask for more.
        """
        from isobox._workspace.instructions import instructions  # noqa: PLC0415
        from isobox._workspace.skills import tool  # noqa: PLC0415

        about = instructions(self._live(), self._spec(), self._policy)
        return about + await tool.instructions(self)

    # -- skills and offload -----------------------------------------------------

    async def list_skills(self) -> list[Skill]:
        """Return the skills that are installed, in the order of their names.

        A bad one is among them and says in `problems` what is wrong with it. At
        most 256 directories are looked at.

        Raises:
            PathError: `skills` is no directory of the workspace.
        """
        from isobox._workspace.skills.installed import skills_of  # noqa: PLC0415

        return await skills_of(self)

    async def add_skill(self, source: Source, *, replace: bool = False) -> Skill:
        """Install a skill, whole or not at all, and return it.

        It goes to `skills/<name>`, by the name in its SKILL.md. Nothing in it may
        be a link or a device, and an archive neither leave its directory nor be a
        bomb: at most 5,000 members, 100 MiB of content and 64 MiB of archive.

        Args:
            source: A host path of a directory, or of a zip, tar or tar.gz; or the
                bytes of such an archive. It holds SKILL.md at its top, or one
                directory that does.
            replace: Take the place of a skill of its name.

        Raises:
            PathExistsError: There is a skill of its name, and not `replace`.
            InvalidArgumentError: It is no skill; the message names the source and
                says what is wrong.
            ArchiveError: A member is refused; the message names it.
            PathMissingError: There is nothing at the path.
            StorageError: The host or the workspace has no place for it.
        """
        from isobox._workspace.skills.installed import install  # noqa: PLC0415

        return await install(self, source, replace=replace)

    async def remove_skill(self, name: str) -> None:
        """Remove a skill, by the name of its directory.

        Raises:
            PathMissingError: There is none of this name.
            InvalidArgumentError: It cannot be the name of one.
        """
        from isobox._workspace.skills.installed import remove  # noqa: PLC0415

        await remove(self, name)

    async def offload_context(self, session_id: str, messages: Iterable[object]) -> str:
        """Append messages to a session's context and return a reference to it.

        They are lines of JSON in `sessions/<session_id>/context.jsonl`, whatever
        that holds by now: what an append costs does not grow with it. Several
        workspaces may append at once. Each line is whole, or cut off by the next
        append if a writer was killed. Base64 and texts over 256 KiB go to
        `data/<sha256>.<ext>`, once, with a reference in their place. Values of
        secrets are masked. Every tool and method takes the reference as a path.

        Args:
            session_id: Names the session. One that is no plain name in lower case
                is represented by a digest in paths.
            messages: Mappings that JSON can hold, with bytes anywhere in them, or
                objects with pydantic's `model_dump`.

        Raises:
            InvalidArgumentError: The id is none, or JSON cannot hold a message.
            NotRegularFileError: Something else than a file is in its place.
            LimitError: A message has over 8 MiB, or `retention` has no room.
            StorageError: It cannot be written, or others hold its lock.
        """
        return await self._offloading().context(session_id, messages)

    async def offload_tool_result(
        self, session_id: str, result: object, *, call_id: str | None = None
    ) -> str:
        """Keep a tool's result and return a reference to it.

        Its text goes to `sessions/<session_id>/tool_result-<call_id>.txt`, where
        data has a line with its reference; bytes that are no text go to
        `data/<sha256>.bin`. Values of secrets are masked.

        Args:
            session_id: Names the session, as for `offload_context`.
            result: A text, bytes, a ToolResult, or what model providers and MCP
                have as a result.
            call_id: Names the call; a random name if None. A second result of the
                same name gets a random one besides.

        Raises:
            InvalidArgumentError: An id is none, or JSON cannot hold the result.
            LimitError: `retention` has no room for it.
            StorageError: It cannot be written.
        """
        return await self._offloading().tool_result(session_id, result, call_id)

    def _offloading(self) -> Offloads:
        from isobox._workspace.offload.offloads import Offloads  # noqa: PLC0415

        self._live()
        if self._offloads is None:
            self._offloads = Offloads(self, self._retention)
        return self._offloads

    # -- network, state, facts ------------------------------------------------

    async def forward(self, port: int, *, local_port: int = 0) -> Forward:
        """Make a port inside reachable on the host's loopback.

        Returns a Forward whose `port` is the host's; it ends with `aclose` or
        with the workspace. Each connection is an operation of its own.

        Raises:
            OSError: `local_port` is taken.
        """
        perform = self._funnel()
        if not 0 < port < 65536:
            raise InvalidArgumentError(f"port={port} is not between 1 and 65535")
        opened = Forward(lambda: perform(Dial(port=port)), port=local_port)
        await opened.open()
        self._exits.push_async_callback(opened.aclose)
        return opened

    async def expose_host_port(
        self, port: int, *, inside: int | None = None
    ) -> Exposed:
        """Make a port of the host's loopback reachable from inside.

        Programs connect to 127.0.0.1 and the returned Exposed's `port`; it ends
        with `aclose` or with the workspace. Nothing else of the host is reached
        by it. Each connection is an operation of its own.

        Args:
            port: The host's port.
            inside: The port inside, the same number if None; 0 lets the sandbox
                choose. Ports below 1024, and those that the network filter
                catches, are taken there.

        Raises:
            UnsupportedError: The backend cannot.
            StorageError: The port inside is taken.
        """
        for number in (port, port if inside is None else inside):
            if not (0 < number < 65536 or (number == 0 and inside == 0)):
                raise InvalidArgumentError(f"port {number} is not from 1 to 65535")
        exposed = Exposed(
            self._funnel(),
            port,
            port=port if inside is None else inside,
            failed=self._not_exposed(port),
        )
        await exposed.open()
        self._exits.push_async_callback(exposed.aclose)
        return exposed

    async def snapshot(self) -> SnapshotRef:
        """Save the workspace's files where the sandbox cannot reach them.

        Raises:
            UnsupportedError: The backend cannot.
        """
        return await self._do(Snapshot())

    async def restore(self, snapshot: SnapshotRef) -> None:
        """Make the workspace's files those of a snapshot.

        Raises:
            InvalidArgumentError: No such snapshot.
        """
        if not isinstance(snapshot, SnapshotRef):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentError(
                f"snapshot={snapshot!r:.200} is no SnapshotRef; give what snapshot() "
                "returned"
            )
        await self._do(Restore(snapshot=snapshot))

    async def fork(self, *, budget: Budget | None = None) -> Self:
        """Return a new, initialised workspace with a copy of the files.

        It has the same options, its own sandbox and a temporary directory.

        Args:
            budget: What it may spend by itself. If None, it spends of what this
                workspace has: both are refused once that is gone, and `spent` of
                each says what all spent together.
        """
        twin = await self._forked()
        twin._draw_on(self._ledger, budget)
        await twin.initialize()
        try:
            async with await self._do(Pull(path=self.root)) as files:
                await twin._do(Push(path=twin.root, body=files))
        except BaseException:
            await twin.close()
            raise
        return twin

    def _draw_on(self, ledger: Ledger | None, budget: Budget | None) -> None:
        """Spend of a budget, or of what another workspace has."""
        if budget is not None:
            self._budget, self._ledger = budget, Ledger(budget, self.usage)
        elif ledger is not None:
            self._ledger = ledger.shared(self.usage)

    async def checkpoint(self, stage: str, text: str | None = None) -> None:
        """Stop until the policy, or a person whom it asks, lets the work go on.

        It returns once that is allowed. The policy's rules on `checkpoint` say
        whether somebody is asked: the preset `auto` asks.

        Args:
            stage: Which stage, such as `plan` or `apply`.
            text: What there is to judge. For a workspace with a private view, the
                changes that it holds if None.

        Raises:
            PolicyDeniedError: It may not go on; the message says why.
        """
        if text is None:
            text = await self._changes_text()
        await self._do(Checkpoint(stage=stage, text=text))

    async def _changes_text(self) -> str:
        """Return the changes of a private view; nothing where there is none."""
        if self._spec().mode != "copy":
            return ""
        return str(await self._do(Diff(digest=True)))

    async def verify(
        self,
        command: str | Sequence[str],
        *,
        mounts: Mapping[str, str | os.PathLike[str]] | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        output_limit: int | None = None,
    ) -> Verdict:
        """Judge the files in a fresh sandbox, with material that nobody saw here.

        A copy of the files comes to a sandbox of its own, without network and
        secrets, where `mounts` are seen read-only; nothing flows back. Whatever
        runs here can change neither the command nor the material, and what it
        did to tests, hooks or configuration counts only as far as the command
        looks at it. The audit log has what is done there, under an id of the
        judge's own that the verdict's record names, and the verdict.

        What is judged runs in the same sandbox as its judge: let the command run
        it as a process of its own where it could pretend to be done, and keep
        the judge from reading its configuration (`python -I`, `pytest -c`).

        Args:
            command: What judges, see `run`.
            mounts: Host paths by the absolute path inside, outside of all that
                this workspace sees; none if None.
            env: Variables for the command.
            timeout: Seconds until it is killed, which is no pass.
            output_limit: Bytes kept of each output.

        Raises:
            InvalidArgumentError: A mount is where this workspace can see it.
            UnsupportedError: The backend has no mounts.
        """
        # A local directory is resolved before anything inside could change it.
        shown = (mounts or {}).items()
        given = {path: os.path.abspath(source) for path, source in shown}
        judge = self._judge(given)
        judge._recorded_with(self)
        async with judge:
            async with await self._do(Pull(path=self.root)) as files:
                hashed = Hashed(files)
                await judge._do(Push(path=judge.root, body=hashed))
            result = await judge.run(
                command, env=env, timeout=timeout, output_limit=output_limit
            )
        verdict = Verdict(result.ok, result, hashed.digest)
        self._audit.lifecycle(
            "verify",
            judge=judge.workspace_id,
            command=command if isinstance(command, str) else list(command),
            mounts=given,
            passed=verdict.passed,
            exit_code=result.exit_code,
            digest=verdict.digest,
        )
        return verdict

    def _judge(self, mounts: Mapping[str, str]) -> WorkspaceBase:
        """Return a workspace of the same kind that sees `mounts` besides."""
        del mounts
        raise UnsupportedError(
            f"{self.backend} has no mounts, and so nothing that its commands do not "
            "see; verify in a sandbox such as bubblewrap"
        )

    def _recorded_with(self, other: WorkspaceBase) -> None:
        """Record to another workspace's sink, and mask what is masked there."""
        self._sink = other._sink
        self._audit = Audit(
            self._sink,
            workspace=self.workspace_id,
            backend=self.backend,
            redact=other._redacted if other._secrets else None,
        )

    async def _forked(self) -> Self:
        """Return a twin that has, besides the files, what else a fork carries."""
        return self._twin()

    def _twin(self) -> Self:
        """Return a workspace with the same options and a directory of its own."""
        return type(self)(**self._inherited())

    def _inherited(self) -> Options:
        """Return the options that a twin has too."""
        return {
            "policy": self._policy,
            "audit": self._sink,
            "env": self._env,
            "limits": self._limits,
            "labels": self._labels,
            "secrets": self._secrets,
            "approve": self._approve,
            "budget": self._budget,
            "mcps": self._mcps.given,
            "max_mcps": self._mcps.most,
            "elicit": self._mcps.elicit,
            "sample": self._mcps.sample,
            "retention": self._retention,
        }

    def spend(self, cost: float) -> None:
        """Count units of the budget's `cost`, such as the price of a model's turn.

        Raises:
            BudgetError: More than the budget are spent.
            InvalidArgumentError: It is no number from 0 on.
        """
        if not (is_number(cost) and 0 <= cost < float("inf")):
            raise InvalidArgumentError(f"cost={cost!r:.200} is no number from 0 on")
        if self._ledger is not None:
            self._ledger.spend(cost)

    def spent(self) -> Spent:
        """Return what the workspace has spent of its budget; nothing without one."""
        return Spent() if self._ledger is None else self._ledger.spent()

    async def usage(self) -> Usage:
        """Say what the sandbox uses: memory, processor time, processes, disk."""
        return await self._live().usage()

    def isolation(self) -> Isolation:
        """Say what holds the workload, dimension by dimension."""
        return self._live().isolation()

    @property
    def root(self) -> str:
        """Absolute path of the workspace's directory, as commands see it."""
        return self._live().root

    # -- the funnel -----------------------------------------------------------

    async def _do(self, op: Op[R]) -> R:
        perform = self._funnel()
        # Who is cancelled already starts nothing.
        await anyio.lowlevel.checkpoint_if_cancelled()
        return await perform(op)

    def _why_closed(self) -> str:
        if self._retired:
            return (
                "was closed by its manager, which alone opens it again: ask the "
                "manager for it (get_workspace)"
            )
        if self._spent_up is None:
            return "is not open: call initialize() first, or use it in a `with` block"
        return (
            f"was closed because its budget is spent: {self._spent_up.message}; "
            "nothing more happens in it, so use another, with a larger one"
        )

    def _funnel(self) -> Perform:
        self._live()
        assert self._perform is not None  # noqa: S101 - set with the sandbox
        return self._perform

    def _live(self) -> Sandbox:
        if self._sandbox is None:
            raise self._closed_error()
        return self._sandbox

    def _closed_error(self) -> WorkspaceClosedError:
        return WorkspaceClosedError(
            f"workspace {self.workspace_id} {self._why_closed()}",
            backend=self.backend,
        )

    def _path(self, path: str) -> str:
        sandbox = self._live()
        confined = "isolated" not in sandbox.capabilities
        arguments.text("path", path)
        return paths.resolve(path, root=sandbox.root, confined=confined)

    def _spec(self) -> SandboxSpec:
        spec = SandboxSpec(
            id=self.workspace_id,
            workdir=self._workdir,
            env=self._env,
            limits=self._limits,
            labels=self._labels,
            read_only=self._policy.read_only,
        )
        return spec if self._gate is None else self._gate.spec(spec)


async def _fed(process: Process, data: bytes | None) -> Exit:
    if data is not None:
        with collapsed():
            async with anyio.create_task_group() as group:
                group.start_soon(_feed, process, data)
                await process.wait()
                group.cancel_scope.cancel()
    return await process.wait()


async def _feed(process: Process, data: bytes) -> None:
    # A command that closes its standard input early is not an error.
    with contextlib.suppress(BrokenPipeError):
        await process.write(data)
        await process.write_eof()


def _utf8(text: str) -> bytes:
    arguments.text("the text", text)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(
            "the text holds half a surrogate pair, which no file can"
        ) from None
