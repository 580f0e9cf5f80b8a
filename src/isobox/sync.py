"""The same workspaces for blocking code.

Every name stands for the one of `isobox` and behaves as it: only the waiting
differs. What is `aclose` there is `close` here, and pieces that arrive come
from an `Iterable`. All workspaces share one event loop, in a thread that lives
as long as one of them is open; any thread may call them. An interrupted call
(Ctrl-C) is cancelled as its asynchronous twin would be.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from anyio import to_thread
from anyio.from_thread import BlockingPortalProvider
from typing_extensions import Unpack, override

from isobox._workspace import base, classes, docker, gvisor
from isobox.errors import InvalidArgumentError
from isobox.manager import manager
from isobox.manager.keys import PER_AGENT
from isobox.manager.keywords import kind_of

if TYPE_CHECKING:
    import os
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Generator,
        Iterator,
        Mapping,
        Sequence,
    )
    from typing import Self

    import mcp_types as types

    from isobox._backends.docker.arrival import Arrival
    from isobox._backends.docker.options import PythonOption
    from isobox._core import results
    from isobox._core.budget import Budget, Spent
    from isobox._core.isolation import Isolation
    from isobox._core.ops import SearchMode, WindowSize
    from isobox._core.patch import PatchFormat
    from isobox._core.results import (
        Changes,
        Edited,
        Entry,
        Exit,
        Listing,
        Matches,
        Page,
        Patched,
        ProcessInfo,
        RunResult,
        SnapshotRef,
        Usage,
    )
    from isobox._core.spec import MinIsolation, Mode, Mount
    from isobox._workspace import expose, forward, shell
    from isobox._workspace.gvisor import Platform
    from isobox._workspace.mcp import speech
    from isobox._workspace.mcp.server import McpServer, McpStatus
    from isobox._workspace.mcp.speech import Progress
    from isobox._workspace.options import Options
    from isobox._workspace.skills.installed import Skill
    from isobox._workspace.skills.package import Source
    from isobox._workspace.tools import tool as tools
    from isobox._workspace.tools.result import Json, ToolResult
    from isobox._workspace.verify import Verdict
    from isobox.manager.clock import Clock
    from isobox.manager.events import OnEvent, Stats
    from isobox.manager.keys import Sharing
    from isobox.manager.making import Options as ManagedOptions
    from isobox.manager.manager import Entitled
    from isobox.manager.records import Record, State
    from isobox.manager.store import Store

__all__ = [
    "Body",
    "BubblewrapWorkspace",
    "ByteStream",
    "Connection",
    "DockerWorkspace",
    "Exposed",
    "Forward",
    "GVisorWorkspace",
    "LocalWorkspace",
    "Mcp",
    "Process",
    "SeatbeltWorkspace",
    "Shell",
    "Tool",
    "WorkspaceBase",
    "WorkspaceManager",
]

#: Content to write: bytes at hand, or pieces that arrive.
Body = bytes | Iterable[bytes]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_loop = BlockingPortalProvider()


def _wait(
    function: Callable[_P, Awaitable[_T]], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    with _loop as portal:
        future = portal.start_task_soon(partial(function, *args, **kwargs))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _call(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    with _loop as portal:
        return portal.call(partial(function, *args, **kwargs))


class ByteStream:
    """See `isobox.abc.ByteStream`; iterate over it, or `receive`."""

    def __init__(self, stream: results.ByteStream) -> None:
        self._stream = stream

    @property
    def lost(self) -> int:
        """Bytes that were asked for and are no longer kept."""
        return self._stream.lost

    def on_end(self, hook: Callable[[dict[str, object]], None]) -> None:
        """Call `hook` with facts about the end, in the event loop's thread."""
        _call(self._stream.on_end, hook)

    def receive(self) -> bytes:
        """Return the next piece, b"" at the end."""
        return _wait(self._stream.receive)

    def receive_nowait(self) -> bytes:
        """Return everything that has arrived, without waiting."""
        return _call(self._stream.receive_nowait)

    def read(self) -> bytes:
        """Return everything up to the end."""
        return _wait(self._stream.read)

    def close(self) -> None:
        """Stop reading and release what the stream holds."""
        _wait(self._stream.aclose)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.receive, b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Connection(ByteStream):
    """See `isobox.abc.Connection`."""

    def __init__(self, connection: results.Connection) -> None:
        super().__init__(connection)
        self._connection = connection

    def send(self, data: bytes) -> None:
        """Send all of `data`, waiting while the other side is slow."""
        _wait(self._connection.send, data)

    def send_eof(self) -> None:
        """Tell the other side that nothing more will be sent."""
        _wait(self._connection.send_eof)

    def abort(self) -> None:
        """Close it so that the other side sees that it was broken off."""
        _wait(self._connection.abort)


class Process:
    """See `isobox.Process`.

    Attributes:
        id: Names it within its workspace.
        pid: Its process id as the sandbox sees it, 0 if it never started.
        stdout: Its standard output; everything when it runs on a tty.
        stderr: Its standard error; empty on a tty.
    """

    def __init__(self, process: results.Process) -> None:
        self._process = process
        self.id = process.id
        self.pid = process.pid
        self.stdout = ByteStream(process.stdout)
        self.stderr = ByteStream(process.stderr)

    @property
    def report(self) -> ByteStream:
        """Its descriptor 3, where that was asked for."""
        return ByteStream(self._process.report)

    def on_end(self, hook: Callable[[dict[str, object]], None]) -> None:
        """Call `hook` with facts about the end, in the event loop's thread."""
        _call(self._process.on_end, hook)

    def write(self, data: bytes) -> None:
        """Write all of `data` to its standard input."""
        _wait(self._process.write, data)

    def write_nowait(self, data: bytes) -> bool:
        """Write all of `data` if that takes no waiting, else nothing.

        Returns:
            Whether it was written.
        """
        return _call(self._process.write_nowait, data)

    def write_eof(self) -> None:
        """Close its standard input; on a tty, send end-of-file."""
        _wait(self._process.write_eof)

    def wait(self) -> Exit:
        """Return how it ended, waiting until it has."""
        return _wait(self._process.wait)

    def signal(self, number: int) -> None:
        """Send a signal to its process group; no effect once it has ended."""
        _wait(self._process.signal, number)

    def kill(self) -> None:
        """Kill it and every descendant; they are gone when this returns."""
        _wait(self._process.kill)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of its tty."""
        _wait(self._process.resize, columns, rows)

    def close(self) -> None:
        """Kill it if it still runs, and release its streams."""
        _wait(self._process.aclose)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Shell:
    """See `isobox.Shell`."""

    def __init__(self, session: shell.Shell) -> None:
        self._shell = session
        self.session_id = session.session_id

    @property
    def fresh(self) -> bool:
        """Whether the next command starts a new shell."""
        return self._shell.fresh

    def run(
        self,
        script: str,
        *,
        timeout: float | None = None,
        output_limit: int | None = None,
        check: bool = False,
    ) -> RunResult:
        """Run a script in this shell; see `isobox.Shell.run`."""
        return _wait(
            self._shell.run,
            script,
            timeout=timeout,
            output_limit=output_limit,
            check=check,
        )

    def restart(self) -> None:
        """End the shell with all that it runs; the next command starts anew."""
        _wait(self._shell.restart)

    def close(self) -> None:
        """End the shell with all that it runs; safe to call again."""
        _wait(self._shell.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Tool:
    """See `isobox.Tool`.

    Attributes:
        name: What the model calls it by.
        description: What the model reads about it.
        read_only: It changes nothing in the workspace.
    """

    def __init__(self, tool: tools.Tool) -> None:
        self._tool = tool
        self.name = tool.name
        self.description = tool.description
        self.read_only = tool.read_only

    @property
    def input_schema(self) -> Json:
        """JSON Schema of the arguments; nothing beyond it is taken."""
        return self._tool.input_schema

    @property
    def strict_schema(self) -> Json:
        """The same, with every argument required and null for "left out"."""
        return self._tool.strict_schema

    def __call__(self, **arguments: object) -> ToolResult:
        """Do it and return what the model is to see."""
        return _wait(self._tool, **arguments)

    def to_anthropic(self) -> Json:
        """Return its definition for Anthropic's Messages API."""
        return self._tool.to_anthropic()

    def to_openai(self, *, api: Literal["responses", "chat"] = "responses") -> Json:
        """Return its definition as a strict function for OpenAI's APIs."""
        return self._tool.to_openai(api=api)

    def to_mcp(self) -> Json:
        """Return its definition as MCP's `tools/list` has it."""
        return self._tool.to_mcp()


class Mcp:
    """An MCP server as an agent has it in a session; see `isobox.Mcp`.

    Attributes:
        name: The server's name.
    """

    def __init__(self, opened: speech.Mcp) -> None:
        self._mcp = opened
        self.name = opened.name

    def tools(self) -> list[types.Tool]:
        """Return the tools that it has."""
        return _wait(self._mcp.tools)

    def resources(self) -> list[types.Resource]:
        """Return the resources that it has."""
        return _wait(self._mcp.resources)

    def templates(self) -> list[types.ResourceTemplate]:
        """Return the templates of resources that it has."""
        return _wait(self._mcp.templates)

    def prompts(self) -> list[types.Prompt]:
        """Return the prompts that it has."""
        return _wait(self._mcp.prompts)

    def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> types.CallToolResult:
        """Call a tool and return what it answers.

        Args:
            tool: Its name, as the server has it.
            arguments: What it is given.
            timeout: Seconds; what the server was declared with if None.
            progress: Awaited in the thread of the workspaces' event loop.
        """
        return _wait(
            self._mcp.call, tool, arguments, timeout=timeout, progress=progress
        )

    def read(
        self, uri: str, *, timeout: float | None = None
    ) -> types.ReadResourceResult:
        """Read a resource."""
        return _wait(self._mcp.read, uri, timeout=timeout)

    def prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> types.GetPromptResult:
        """Fetch a prompt."""
        return _wait(self._mcp.prompt, name, arguments, timeout=timeout)


class Forward:
    """Carries connections to a host port into the sandbox.

    Attributes:
        host: Always the loopback, 127.0.0.1.
        port: The host's port.
    """

    def __init__(self, opened: forward.Forward) -> None:
        self._forward = opened
        self.host = opened.host
        self.port = opened.port

    def open(self) -> None:
        """Begin to listen; `WorkspaceBase.forward` has done it."""
        _wait(self._forward.open)

    def close(self) -> None:
        """Stop to listen and end every connection; safe to call again."""
        _wait(self._forward.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Exposed:
    """Carries connections from a port inside to a port of the host's loopback.

    Attributes:
        host: Where programs inside connect to: their loopback, 127.0.0.1.
        port: The port there.
    """

    def __init__(self, opened: expose.Exposed) -> None:
        self._exposed = opened
        self.host = opened.host
        self.port = opened.port

    def open(self) -> None:
        """Begin to listen; `WorkspaceBase.expose_host_port` has done it."""
        _wait(self._exposed.open)

    def close(self) -> None:
        """Stop to listen and end every connection; safe to call again."""
        _wait(self._exposed.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WorkspaceBase:
    """Any workspace of `isobox`, for blocking code; see `isobox.WorkspaceBase`.

    Use it as a context manager, or call `initialize` and `close`. Each method
    does and raises what the method of the same name there does and raises.

    Args:
        workspace: The workspace to drive; nothing else may drive it.
    """

    def __init__(self, workspace: base.WorkspaceBase) -> None:
        self._workspace = workspace
        self._leases = ExitStack()

    @property
    def workspace_id(self) -> str:
        """Its name."""
        return self._workspace.workspace_id

    @property
    def backend(self) -> str:
        """Name of its backend."""
        return self._workspace.backend

    @property
    def root(self) -> str:
        """Absolute path of the workspace's directory, as commands see it."""
        return self._workspace.root

    # -- life ---------------------------------------------------------------

    def initialize(self) -> None:
        """Make the sandbox; the workspace is ready when this returns."""
        self._open(self._workspace.initialize)

    def close(self) -> None:
        """Kill every process and release the sandbox; safe to call again."""
        with self._leases:
            _wait(self._workspace.close)

    def reset(self) -> None:
        """Give a fresh sandbox: no process is left, /tmp and home are empty."""
        self._open(self._workspace.reset)

    def __enter__(self) -> Self:
        self.initialize()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- commands -----------------------------------------------------------

    def run(
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
        """Run a command to its end and return what it printed."""
        return _wait(
            self._workspace.run,
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            timeout=timeout,
            idle_timeout=idle_timeout,
            output_limit=output_limit,
            spool=spool,
            user=user,
            limits=limits,
            check=check,
            session_id=session_id,
        )

    def start(
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
        """Start a command and return it, running."""
        return Process(
            _wait(
                self._workspace.start,
                command,
                cwd=cwd,
                env=env,
                stdin=stdin,
                tty=tty,
                timeout=timeout,
                idle_timeout=idle_timeout,
                user=user,
                limits=limits,
            )
        )

    def attach(
        self, process_id: str, *, stdout_from: int = 0, stderr_from: int = 0
    ) -> Process:
        """Return the process of this id: the object that `start` returned, if any."""
        return Process(
            _wait(
                self._workspace.attach,
                process_id,
                stdout_from=stdout_from,
                stderr_from=stderr_from,
            )
        )

    def processes(self) -> tuple[ProcessInfo, ...]:
        """Return the commands that run, by the id that `attach` takes."""
        return _wait(self._workspace.processes)

    def shell(self, session_id: str = "default") -> Shell:
        """Return the persistent shell of this name."""
        return Shell(self._workspace.shell(session_id))

    # -- files --------------------------------------------------------------

    def read_bytes(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> bytes:
        """Return a file's content, or `length` bytes of it from `offset`."""
        return _wait(self._workspace.read_bytes, path, offset=offset, length=length)

    def read_text(self, path: str, *, encoding: str = "utf-8") -> str:
        """Return a file's content as text; line ends are kept."""
        return _wait(self._workspace.read_text, path, encoding=encoding)

    def read_lines(
        self, path: str, *, start: int = 1, count: int = 2000, width: int = 2000
    ) -> Page:
        """Return lines of a text file, or what else the file turns out to be."""
        return _wait(
            self._workspace.read_lines, path, start=start, count=count, width=width
        )

    def write(
        self,
        path: str,
        data: str | Body,
        *,
        mode: int | None = None,
        if_match: str | None = None,
    ) -> Entry:
        """Replace a file's content atomically and return its entry."""
        return _wait(
            self._workspace.write, path, _arriving(data), mode=mode, if_match=if_match
        )

    def edit(
        self,
        path: str,
        old: str,
        new: str,
        *,
        replace_all: bool = False,
        if_match: str | None = None,
    ) -> Edited:
        """Replace `old` by `new` in a file, atomically."""
        return _wait(
            self._workspace.edit,
            path,
            old,
            new,
            replace_all=replace_all,
            if_match=if_match,
        )

    def edit_all(
        self,
        path: str,
        replacements: Sequence[tuple[str, str]],
        *,
        replace_all: bool = False,
        if_match: str | None = None,
    ) -> Edited:
        """Make several replacements in a file, all or none, atomically."""
        return _wait(
            self._workspace.edit_all,
            path,
            replacements,
            replace_all=replace_all,
            if_match=if_match,
        )

    def apply_patch(
        self,
        text: str,
        *,
        format: PatchFormat | None = None,  # noqa: A002 - what it is called
    ) -> Patched:
        """Apply a patch to the files that it names, all or none."""
        return _wait(self._workspace.apply_patch, text, format=format)

    def scan(
        self,
        path: str = ".",
        *,
        depth: int | None = 1,
        limit: int = 100_000,
        digest: bool = False,
    ) -> Listing:
        """Describe what a directory holds, `depth` levels deep, None for all."""
        return _wait(
            self._workspace.scan, path, depth=depth, limit=limit, digest=digest
        )

    def stat(self, path: str, *, follow: bool = True, digest: bool = False) -> Entry:
        """Describe one path; the target of a link unless `follow` is false."""
        return _wait(self._workspace.stat, path, follow=follow, digest=digest)

    def exists(self, path: str) -> bool:
        """Whether there is anything at the path; a dangling link counts."""
        return _wait(self._workspace.exists, path)

    def glob(
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
        """Return what below `path` matches `**`, `*`, `?`, `[...]`, `{a,b}`."""
        return _wait(
            self._workspace.glob,
            pattern,
            path=path,
            ignored=ignored,
            files_only=files_only,
            newest=newest,
            limit=limit,
            offset=offset,
        )

    def grep(
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
        """Find lines that match a regular expression in the files below `path`."""
        return _wait(
            self._workspace.grep,
            pattern,
            path=path,
            mode=mode,
            glob=glob,
            types=types,
            literal=literal,
            ignore_case=ignore_case,
            multiline=multiline,
            ignored=ignored,
            hidden=hidden,
            context=context,
            before=before,
            after=after,
            limit=limit,
            offset=offset,
            timeout=timeout,
        )

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a link, or a directory, with all in it if `recursive`."""
        _wait(self._workspace.remove, path, recursive=recursive)

    def upload(self, local: str | os.PathLike[str], remote: str) -> None:
        """Copy a host file or directory into the workspace."""
        _wait(self._workspace.upload, local, remote)

    def download(self, remote: str, local: str | os.PathLike[str]) -> None:
        """Copy a file or directory of the workspace to the host."""
        _wait(self._workspace.download, remote, local)

    # -- tools ----------------------------------------------------------------

    def list_tools(
        self, *, session_id: str = "default", agent_id: str | None = None
    ) -> list[Tool]:
        """Return the tools that a model works with in this workspace."""
        found = _wait(
            self._workspace.list_tools, session_id=session_id, agent_id=agent_id
        )
        return [Tool(each) for each in found]

    def add_mcp(
        self,
        server: McpServer,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> None:
        """Declare an MCP server; it starts when it is first needed."""
        _wait(self._workspace.add_mcp, server, agent_id=agent_id, session_id=session_id)

    def remove_mcp(
        self, name: str, *, agent_id: str | None = None, session_id: str | None = None
    ) -> None:
        """End an MCP server and forget it, for the same whom it was added for."""
        _wait(
            self._workspace.remove_mcp, name, agent_id=agent_id, session_id=session_id
        )

    def list_mcps(
        self, *, agent_id: str | None = None, session_id: str = "default"
    ) -> list[McpStatus]:
        """Return how each MCP server does that an agent has in a session."""
        return _wait(
            self._workspace.list_mcps, agent_id=agent_id, session_id=session_id
        )

    def mcp(
        self, name: str, *, agent_id: str | None = None, session_id: str = "default"
    ) -> Mcp:
        """Return what speaks with an MCP server: tools, resources, prompts."""
        opened = _call(
            self._workspace.mcp, name, agent_id=agent_id, session_id=session_id
        )
        return Mcp(opened)

    def get_instructions(self) -> str:
        """Return a fragment for a model's system prompt."""
        return _wait(self._workspace.get_instructions)

    # -- skills and offload -----------------------------------------------------

    def list_skills(self) -> list[Skill]:
        """Return the skills that are installed, in the order of their names."""
        return _wait(self._workspace.list_skills)

    def add_skill(self, source: Source, *, replace: bool = False) -> Skill:
        """Install a skill, whole or not at all, and return it."""
        return _wait(self._workspace.add_skill, source, replace=replace)

    def remove_skill(self, name: str) -> None:
        """Remove a skill, by the name of its directory."""
        _wait(self._workspace.remove_skill, name)

    def offload_context(self, session_id: str, messages: Iterable[object]) -> str:
        """Append messages to a session's context and return a reference to it."""
        return _wait(self._workspace.offload_context, session_id, messages)

    def offload_tool_result(
        self, session_id: str, result: object, *, call_id: str | None = None
    ) -> str:
        """Keep a tool's result and return a reference to it."""
        return _wait(
            self._workspace.offload_tool_result, session_id, result, call_id=call_id
        )

    # -- network, state, facts ------------------------------------------------

    def forward(self, port: int, *, local_port: int = 0) -> Forward:
        """Make a port inside reachable on the host's loopback."""
        return Forward(_wait(self._workspace.forward, port, local_port=local_port))

    def expose_host_port(self, port: int, *, inside: int | None = None) -> Exposed:
        """Make a port of the host's loopback reachable from inside."""
        return Exposed(_wait(self._workspace.expose_host_port, port, inside=inside))

    def snapshot(self) -> SnapshotRef:
        """Save the workspace's files where the sandbox cannot reach them."""
        return _wait(self._workspace.snapshot)

    def restore(self, snapshot: SnapshotRef) -> None:
        """Make the workspace's files those of a snapshot."""
        _wait(self._workspace.restore, snapshot)

    def fork(self, *, budget: Budget | None = None) -> Self:
        """Return a new, initialised workspace with a copy of the files."""
        return self._around(_wait(self._workspace.fork, budget=budget))

    def checkpoint(self, stage: str, text: str | None = None) -> None:
        """Stop until the policy, or a person whom it asks, lets the work go on."""
        _wait(self._workspace.checkpoint, stage, text)

    def verify(
        self,
        command: str | Sequence[str],
        *,
        mounts: Mapping[str, str | os.PathLike[str]] | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        output_limit: int | None = None,
    ) -> Verdict:
        """Judge the files in a fresh sandbox, with material that nobody saw here."""
        return _wait(
            self._workspace.verify,
            command,
            mounts=mounts,
            env=env,
            timeout=timeout,
            output_limit=output_limit,
        )

    def spend(self, cost: float) -> None:
        """Count units of the budget's `cost`, such as the price of a model's turn."""
        self._workspace.spend(cost)

    def spent(self) -> Spent:
        """Return what the workspace has spent of its budget; nothing without one."""
        return self._workspace.spent()

    def usage(self) -> Usage:
        """Say what the sandbox uses: memory, processor time, processes, disk."""
        return _wait(self._workspace.usage)

    def isolation(self) -> Isolation:
        """Say what holds the workload, dimension by dimension."""
        return self._workspace.isolation()

    def _open(self, opening: Callable[[], Awaitable[None]]) -> None:
        with ExitStack() as lease:
            lease.enter_context(_loop)
            _wait(opening)
            self._leases.push(lease.pop_all())

    @classmethod
    def _around(cls, opened: base.WorkspaceBase) -> Self:
        made = cls.__new__(cls)
        WorkspaceBase.__init__(made, opened)
        made._leases.enter_context(_loop)
        return made


class LocalWorkspace(WorkspaceBase):
    """See `isobox.LocalWorkspace`: it isolates nothing."""

    @override
    def __init__(
        self,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            classes.LocalWorkspace(
                workdir,
                **options,
            )
        )


class BubblewrapWorkspace(WorkspaceBase):
    """See `isobox.BubblewrapWorkspace`."""

    _workspace: classes.BubblewrapWorkspace

    @override
    def __init__(
        self,
        host_workdir: str | os.PathLike[str] | None = None,
        *,
        mode: Mode = "live",
        mounts: Iterable[Mount | str | tuple[str, str]] = (),
        protect: bool = True,
        unprotected: Iterable[str] = (),
        strict: bool = False,
        debug: bool = False,
        min_isolation: MinIsolation = "full",
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            classes.BubblewrapWorkspace(
                host_workdir,
                mode=mode,
                mounts=mounts,
                protect=protect,
                unprotected=unprotected,
                strict=strict,
                debug=debug,
                min_isolation=min_isolation,
                **options,
            )
        )

    def diff(self) -> Changes:
        """Return what the private view has that the directory has not."""
        return _wait(self._workspace.diff)

    def apply(
        self, paths: Iterable[str] | None = None, *, skip_refused: bool = False
    ) -> Changes:
        """Bring the private view's changes to the directory; returns them."""
        return _wait(self._workspace.apply, paths, skip_refused=skip_refused)

    def discard(self) -> None:
        """Throw the private view's changes away; it is as the directory is."""
        _wait(self._workspace.discard)


class DockerWorkspace(WorkspaceBase):
    """See `isobox.DockerWorkspace`."""

    _workspace: docker.DockerWorkspace

    @override
    def __init__(
        self,
        workdir: str | os.PathLike[str] | None = None,
        *,
        image: str,
        runtime: str | None = None,
        python: PythonOption = "auto",
        user: str | int | None = None,
        engine: str | None = None,
        linger: float | None = None,
        read_only_root: bool = True,
        mounts: Iterable[Mount | str | tuple[str, str]] = (),
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            docker.DockerWorkspace(
                workdir,
                image=image,
                runtime=runtime,
                python=python,
                user=user,
                engine=engine,
                linger=linger,
                read_only_root=read_only_root,
                mounts=mounts,
                **options,
            )
        )

    @property
    def arrival(self) -> Arrival:
        """How the workspace came to its container, the last time."""
        return self._workspace.arrival

    def detach(self) -> None:
        """Close the workspace here and leave it as it is, commands included."""
        _wait(self._workspace.detach)
        self._leases.close()


class GVisorWorkspace(WorkspaceBase):
    """See `isobox.GVisorWorkspace`."""

    @override
    def __init__(
        self,
        workdir: str | os.PathLike[str] | None = None,
        *,
        rootfs: str | os.PathLike[str] | None = None,
        mounts: Iterable[Mount | str | tuple[str, str]] = (),
        platform: Platform | None = None,
        protect: bool = True,
        unprotected: Iterable[str] = (),
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            gvisor.GVisorWorkspace(
                workdir,
                rootfs=rootfs,
                mounts=mounts,
                platform=platform,
                protect=protect,
                unprotected=unprotected,
                **options,
            )
        )


class SeatbeltWorkspace(WorkspaceBase):
    """See `isobox.SeatbeltWorkspace`."""

    @override
    def __init__(
        self,
        host_workdir: str | os.PathLike[str] | None = None,
        *,
        mounts: Iterable[str] = (),
        protect: bool = True,
        unprotected: Iterable[str] = (),
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            classes.SeatbeltWorkspace(
                host_workdir,
                mounts=mounts,
                protect=protect,
                unprotected=unprotected,
                **options,
            )
        )


class WorkspaceManager:
    """See `isobox.manager.WorkspaceManager`; use it as a context manager.

    `kind` may be a class of this module, too. What `on_event`, `options` and
    `entitled` name is called in the thread of the workspaces' event loop.
    """

    def __init__(
        self,
        kind: type[WorkspaceBase | base.WorkspaceBase],
        *,
        basedir: str | os.PathLike[str],
        store: Store | str | os.PathLike[str] | None = None,
        options: ManagedOptions | None = None,
        isolation: Sharing = PER_AGENT,
        ttl: float = 3600,
        retention: float | None = None,
        max_live: int | None = None,
        max_live_per_user: int | None = None,
        max_creating: int = 4,
        creation_rate: float | None = None,
        queue_timeout: float = 60,
        queue_limit: int = 1000,
        prewarm: int = 0,
        evict_after: float = 60,
        handover_after: float = 1.0,
        sweep_interval: float | None = None,
        heartbeat: float = 5.0,
        holder_timeout: float = 20.0,
        audit: bool = True,
        on_event: OnEvent | None = None,
        entitled: Entitled | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._manager = manager.WorkspaceManager(
            _waiting(kind),
            basedir=basedir,
            store=store,
            options=options,
            isolation=isolation,
            ttl=ttl,
            retention=retention,
            max_live=max_live,
            max_live_per_user=max_live_per_user,
            max_creating=max_creating,
            creation_rate=creation_rate,
            queue_timeout=queue_timeout,
            queue_limit=queue_limit,
            prewarm=prewarm,
            evict_after=evict_after,
            handover_after=handover_after,
            sweep_interval=sweep_interval,
            heartbeat=heartbeat,
            holder_timeout=holder_timeout,
            audit=audit,
            on_event=on_event,
            entitled=entitled,
            clock=clock,
        )
        self._leases = ExitStack()
        #: One for each workspace, as long as somebody has it.
        self._given: WeakValueDictionary[base.WorkspaceBase, WorkspaceBase] = (
            WeakValueDictionary()
        )
        self._giving = Lock()

    def open(self) -> None:
        """Connect to the store, and begin to sweep."""
        with ExitStack() as lease:
            lease.enter_context(_loop)
            _wait(self._manager.open)
            self._leases.push(lease.pop_all())

    def close(self) -> None:
        """Close what is open, or leave it to others where it can be; files stay."""
        _wait(self._manager.aclose)
        self._leases.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_workspace(
        self,
        user_id: str,
        agent_id: str,
        session_id: str,
        workspace_id: str | None = None,
    ) -> WorkspaceBase:
        """Return the live workspace of a session; it is made if there is none."""
        return self._driven(
            _wait(
                self._manager.get_workspace,
                user_id,
                agent_id,
                session_id,
                workspace_id=workspace_id,
            )
        )

    @contextmanager
    def lease(
        self,
        user_id: str,
        agent_id: str,
        session_id: str,
        workspace_id: str | None = None,
    ) -> Generator[WorkspaceBase]:
        """Have a session's workspace; it is not closed for want of use meanwhile."""
        leased = self._manager.lease(
            user_id, agent_id, session_id, workspace_id=workspace_id
        )
        with _loop as portal, portal.wrap_async_context_manager(leased) as opened:
            yield self._driven(opened)

    def close_workspace(self, workspace_id: str, *, user_id: str | None = None) -> bool:
        """Close a workspace that this process has open; its files stay."""
        return _wait(self._manager.close_workspace, workspace_id, user_id=user_id)

    def delete_workspace(
        self, workspace_id: str, *, user_id: str | None = None
    ) -> None:
        """Close a workspace and delete it with its files, for good."""
        _wait(self._manager.delete_workspace, workspace_id, user_id=user_id)

    def list_workspaces(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        states: Sequence[State] = (),
        after: str | None = None,
        limit: int = 1000,
    ) -> Sequence[Record]:
        """Return workspaces in the order of their names, of all processes."""
        return _wait(
            self._manager.list_workspaces,
            user_id,
            agent_id,
            session_id,
            states=states,
            after=after,
            limit=limit,
        )

    def purge_session(self, user_id: str, agent_id: str, session_id: str) -> None:
        """Remove what a session has left."""
        _wait(self._manager.purge_session, user_id, agent_id, session_id)

    def purge_agent(self, user_id: str, agent_id: str) -> None:
        """Remove what an agent has left for a user: workspaces, or its sessions."""
        _wait(self._manager.purge_agent, user_id, agent_id)

    def sweep(self) -> None:
        """Close and delete what is due, now."""
        _wait(self._manager.sweep)

    def rebuild(self) -> int:
        """Enter workspaces that directories and engines have and the store has not."""
        return _wait(self._manager.rebuild)

    def stats(self) -> Stats:
        """Return what this process has, and what has happened in it."""
        return self._manager.stats()

    def _driven(self, opened: base.WorkspaceBase) -> WorkspaceBase:
        with self._giving:
            given = self._given.get(opened)
            if given is None:
                given = self._given[opened] = _driven(opened)
            return given


#: The classes of this module that a manager can make.
_WAITING: dict[type[WorkspaceBase], type[base.WorkspaceBase]] = {
    LocalWorkspace: classes.LocalWorkspace,
    BubblewrapWorkspace: classes.BubblewrapWorkspace,
    DockerWorkspace: docker.DockerWorkspace,
    GVisorWorkspace: gvisor.GVisorWorkspace,
    SeatbeltWorkspace: classes.SeatbeltWorkspace,
}


def _waiting(kind: object) -> type[base.WorkspaceBase]:
    for blocking, waiting in _WAITING.items():
        if kind is blocking:
            return waiting
    if _blocks(kind):
        raise InvalidArgumentError(
            f"{kind!r:.200} is a class for blocking code without one of `isobox` "
            "behind it; name that one"
        )
    return kind_of(kind)


def _blocks(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, WorkspaceBase)


def _driven(opened: base.WorkspaceBase) -> WorkspaceBase:
    """Return a manager's workspace, whose loop the manager keeps running."""
    blocking = {waiting: kind for kind, waiting in _WAITING.items()}
    made = (kind := blocking.get(type(opened), WorkspaceBase)).__new__(kind)
    WorkspaceBase.__init__(made, opened)
    return made


def _arriving(data: str | Body) -> str | bytes | AsyncIterator[bytes]:
    return data if isinstance(data, str | bytes) else _pieces(data)


async def _pieces(body: Iterable[bytes]) -> AsyncIterator[bytes]:
    # In a thread: what produces the pieces may wait, and the loop must not.
    pieces = iter(body)
    while (piece := await to_thread.run_sync(next, pieces, None)) is not None:
        yield piece
