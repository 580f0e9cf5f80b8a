"""From how a command ended to what a caller gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from isobox._core.results import Captured, Exit, RunResult
from isobox.errors import CommandFailedError, TimedOutError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Denials that an error lists.
_MOST: Final = 8


def result_of(end: Exit) -> RunResult:
    """Return the result that an end means."""
    return RunResult(
        exit_code=end.exit_code,
        signal=end.signal,
        output=end.stdout or Captured(),
        errors=end.stderr or Captured(),
        timed_out=end.timed_out,
        idle_timed_out=end.idle_timed_out,
        oom_killed=end.oom_killed,
        limit=end.limit,
        background=end.background,
        duration=end.duration,
        spool=end.spool,
    )


def checked(
    result: RunResult, command: str | Sequence[str], *, check: bool
) -> RunResult:
    """Return `result`, or raise what `check` asks for."""
    if not check or result.ok:
        return result
    shown = command if isinstance(command, str) else " ".join(command)
    shown = shown if len(shown) <= 200 else shown[:200] + "..."
    if result.timed_out:
        raise TimedOutError(
            _told(f"ran out of time after {result.duration:.1f} s: {shown}", result),
            result=result,
        )
    raise CommandFailedError(
        _told(f"exit status {result.exit_code}: {shown}", result), result=result
    )


def _told(what: str, result: RunResult) -> str:
    return f"{what}\n{result.stderr[-2000:]}".rstrip() + _refused(result)


def _refused(result: RunResult) -> str:
    """Return what of the network was refused, or failed, where anything was."""
    shown = [str(denial) for denial in result.denials[:_MOST]]
    if len(result.denials) > _MOST:
        shown.append(f"{len(result.denials) - _MOST} more")
    return f"\nnot reached: {'; '.join(shown)}" if shown else ""
