"""`isobox egress`: what the network filters of a user decide, live."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Final

from isobox._egress.watch import Watcher
from isobox.cli.status import complain, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from isobox._egress.watch import Event

_STYLES: Final = {"allowed": "green", "refused": "bold red", "ended": "dim"}
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


async def egress(*, as_json: bool = False) -> int:
    """Print events as they come, until a signal comes.

    Raises:
        PermissionError: The place for the socket is somebody else's.
        BrokenPipeError: Nobody reads it any more.
    """
    with Watcher() as watcher:
        complain("watching the network filters of your workspaces; Ctrl-C ends it")
        console = None if as_json else _console()
        async for event in watcher:
            if console is None:
                print(json.dumps(event), flush=True)  # noqa: T201
            elif not _is_idle(event):
                print(_styled(console, event), end="", flush=True)  # noqa: T201
    return 0


def line(event: Event) -> str:
    """Return what there is to know of an event, in one line.

    SAFETY: hosts and targets come from a sandbox; nothing in the line is obeyed by
    a terminal.
    """
    place = _joined(event, "host", "port", by=":")
    parts = [
        _clock(event.get("time")),
        _joined(event, "workspace"),
        _joined(event, "event").ljust(7),
        place,
        _joined(event, "via"),
        _joined(event, "method", "target"),
        _amounts(event),
        _why(event),
        f"({event['lost']} events before it were lost)" if "lost" in event else "",
    ]
    return one_line("  ".join(part for part in parts if part))


def _styled(console: Console, event: Event) -> str:
    from rich.text import Text  # noqa: PLC0415

    style = _STYLES.get(str(event.get("event")), "")
    with console.capture() as captured:
        console.print(Text(line(event), style), soft_wrap=True)
    return captured.get()


def _console() -> Console:
    # Here and not above: `--json` needs none of it.
    from rich.console import Console  # noqa: PLC0415

    return Console(highlight=False, file=sys.stdout)


def _is_idle(event: Event) -> bool:
    """Whether it is the end of a decision only: nothing more is to be said."""
    return event.get("event") == "ended" and "bytes_in" not in event


def _joined(event: Event, *names: str, by: str = " ") -> str:
    values = [event[name] for name in names if event.get(name) is not None]
    return by.join(map(str, values))


def _clock(moment: object) -> str:
    try:
        return time.strftime("%H:%M:%S", time.localtime(float(str(moment))))
    except (ValueError, OverflowError, OSError):
        return "--:--:--"


def _amounts(event: Event) -> str:
    if "bytes_in" not in event:
        return ""
    received, sent = (_size(event.get(name)) for name in ("bytes_in", "bytes_out"))
    return f"in {received}, out {sent}"


def _size(count: object) -> str:
    if isinstance(count, int):
        for unit, name in _UNITS:
            if count >= unit:
                return f"{count / unit:.1f} {name}"
    return f"{count} B"


def _why(event: Event) -> str:
    rule = event.get("rule")
    reason = _joined(event, "reason")
    # Most reasons name the rule already.
    if rule is None or f"rule {rule!r}" in reason:
        return reason
    return f"{reason} (rule {rule!r})"
