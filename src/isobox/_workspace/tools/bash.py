"""The Bash tool: commands in a shell that keeps its state."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from typing_extensions import override

from isobox._workspace.tools.ending import ending, network
from isobox._workspace.tools.jobs import start_job
from isobox._workspace.tools.offload import Offload
from isobox._workspace.tools.schema import flag, number, optional_text
from isobox._workspace.tools.tool import SessionTool
from isobox._workspace.tools.wording import MOST_TEXT, cut, failed, note, said
from isobox.errors import UnsupportedError

if TYPE_CHECKING:
    from isobox._core.results import RunResult
    from isobox._workspace.shell import Shell
    from isobox._workspace.tools.result import ToolResult
    from isobox._workspace.tools.session import Session

DEFAULT_TIMEOUT: Final = 120
MAX_TIMEOUT: Final = 600
#: Bytes of each output that hold MOST_TEXT characters, from head and tail.
_KEPT: Final = 4 * MOST_TEXT
#: What programs print that find no network: the C library's words, curl's, Node's.
_UNREACHED: Final = re.compile(
    "Network is unreachable|Temporary failure in name resolution|"
    "Name or service not known|Could not resolve host|EAI_AGAIN|ENETUNREACH"
)
_NO_BASH: Final = (
    "there is no bash here: sh ran this, and keeps no directory and no variables"
)


@dataclass(frozen=True, kw_only=True)
class BashArguments:
    """What Bash takes."""

    command: str | None = optional_text(
        "Script for bash, of any number of lines. May be left out with `restart`."
    )
    timeout: float = number(
        "Seconds until it is killed with everything that it started. Has no effect "
        "in the background.",
        default=DEFAULT_TIMEOUT,
        minimum=0.1,
        maximum=MAX_TIMEOUT,
    )
    separate_streams: bool = flag(
        "Show standard error after standard output instead of in order with it."
    )
    run_in_background: bool = flag(
        "Return at once with a job id, for BashOutput, BashInput and BashKill. The "
        "command has the shell's present directory and variables, and no timeout."
    )
    stdin: bool = flag(
        "With run_in_background: keep standard input open for BashInput. Without "
        "it, a command that reads finds the end."
    )
    restart: bool = flag(
        "Begin with a new shell: in the workspace's directory, without variables, "
        "and nothing that the old one started is left."
    )


class Bash(SessionTool[BashArguments]):
    """Runs commands in the session's shell, or beside it in the background."""

    name: str = "Bash"
    description = (
        "Run a script in a bash that keeps its working directory, variables and "
        "functions between calls. It returns what the script printed and its exit "
        f"code. Output over {MOST_TEXT:,} characters is shown without its middle "
        "and kept whole in a file that is named. Prefer Read, Write, Edit, Glob and "
        "Grep for files."
    )
    read_only: ClassVar[bool] = False
    arguments = BashArguments

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._bash = True

    @override
    async def _perform(self, given: BashArguments) -> ToolResult:
        if problem := _contradiction(given):
            return failed(f"Bash was not run: {problem}", error="arguments")
        shell = self.workspace.shell(self.session.id)
        if given.restart:
            await shell.restart()
        if given.command is None:
            return said(note(f"a new shell begins in {self.workspace.root}"))
        if given.run_in_background:
            return await start_job(
                self.session, shell, given.command, stdin=given.stdin
            )
        return await self._foreground(shell, given.command, given)

    async def _foreground(
        self, shell: Shell, command: str, given: BashArguments
    ) -> ToolResult:
        script = self._evaluated(command, merged=not given.separate_streams)
        offload = Offload(self.workspace, self.session.offload_path(), after=_KEPT)
        most = self.workspace._limits.max_timeout or MAX_TIMEOUT
        timeout = min(given.timeout, most)
        run = self._in_shell if self._bash else self._plain
        try:
            result = await run(shell, script, timeout, offload)
        except UnsupportedError:
            if not self._bash:
                raise
            self._bash = False
            script = self._evaluated(command, merged=not given.separate_streams)
            result = await self._plain(shell, script, timeout, offload)
        return self._told(shell, result, offload)

    def _evaluated(self, command: str, *, merged: bool) -> str:
        # A quoted eval keeps unfinished syntax, comments and `exec` within itself.
        # In a shell that lives on, a function or an alias may be called eval.
        word = "\\builtin eval" if self._bash else "eval"
        return f"{word} {shlex.quote(command)}" + (" 2>&1" if merged else "")

    async def _in_shell(
        self, shell: Shell, script: str, timeout: float, offload: Offload
    ) -> RunResult:
        async with offload.writing():
            result = await shell._run_into(offload, script, timeout=timeout, keep=_KEPT)
            offload.wanted = len(_printed(result)) > MOST_TEXT
            return result

    async def _plain(
        self, _: Shell, script: str, timeout: float, offload: Offload
    ) -> RunResult:
        result = await self.workspace.run(
            script, timeout=timeout, output_limit=_KEPT, spool=offload.path
        )
        if len(_printed(result)) <= MOST_TEXT:
            await self.workspace.remove(offload.path)
        return result

    def _told(self, shell: Shell, result: RunResult, offload: Offload) -> ToolResult:
        printed = _printed(result)
        cut_short = len(printed) > MOST_TEXT
        return said(
            cut(printed, _whereabouts(result, offload)) or note("no output"),
            note(_NO_BASH) if not self._bash else "",
            note(ending(result)),
            note(_begun_anew(self.workspace.root)) if self._lost(shell) else "",
            note("it left a process in the background") if result.background else "",
            *network(result.denials),
            note("this workspace has no network") if self._missed(result) else "",
            is_error=result.timed_out,
            metadata={
                "exit_code": result.exit_code,
                "signal": result.signal,
                "timed_out": result.timed_out,
                "background": result.background,
                "duration": result.duration,
                "full_output": offload.path if cut_short else None,
                "denials": [str(denial) for denial in result.denials],
            },
        )

    def _missed(self, result: RunResult) -> bool:
        """Whether a command failed for want of a network, where there is none."""
        workspace = self.workspace
        none = (
            workspace._gate is None and "no_network" in workspace._live().capabilities
        )
        return none and not result.ok and bool(_UNREACHED.search(_printed(result)))

    def _lost(self, shell: Shell) -> bool:
        return self._bash and shell.fresh


def _contradiction(given: BashArguments) -> str | None:
    if given.command is None and not given.restart:
        return "command is missing; give a script, or restart=true"
    if given.command is None and given.run_in_background:
        return "command is missing; give the script to run in the background"
    if given.stdin and not given.run_in_background:
        return (
            "stdin=true needs run_in_background=true; to give a command some input, "
            "write it in the script: command <<'END'"
        )
    if given.command is not None and "\0" in given.command:
        return "command holds a NUL character; write \\0 in a printf instead"
    return None


def _printed(result: RunResult) -> str:
    if not result.errors.total:
        return result.stdout
    parts = (result.stdout, note("standard error"), result.stderr)
    return "\n".join(part.removesuffix("\n") for part in parts if part)


def _whereabouts(result: RunResult, offload: Offload) -> str:
    total = result.stdout_total + result.stderr_total
    about = f"the middle of {total:,} bytes is left out; "
    if offload.failure is not None:
        return f"{about}it could not be kept in a file: {offload.failure}"
    extent = "all of it is" if offload.whole else "the first 256 MiB are"
    return f"{about}{extent} in {offload.path}"


def _begun_anew(root: str) -> str:
    return f"the shell ended with it; the next command finds a new one in {root}"
