"""`isobox doctor`: which backends work here, and what the others need."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import anyio

from isobox import _registry
from isobox._backends.bubblewrap import binary
from isobox._core.spec import Availability
from isobox.cli.status import printable
from isobox.errors import BackendUnavailableError, IsoboxError

if TYPE_CHECKING:
    from rich.table import Table

_PATIENCE = 30  # seconds for one backend to answer
_ISOLATES_NOTHING = "local"
_UNKNOWN = "unknown"


async def doctor(*, as_json: bool = False) -> int:
    """Examine every backend; return 0 when one that isolates works, else 1."""
    found = [await _examine(name) for name in _registry.names()]
    facts = await machine()
    if as_json:
        report = {"backends": [asdict(each) for each in found], "machine": facts}
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        _show(found, facts)
    works = any(each.ok for each in found if each.backend != _ISOLATES_NOTHING)
    return 0 if works else 1


async def machine() -> dict[str, str]:
    """Return what decides here which backends work."""
    return {
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "user": f"uid {os.getuid()}",
        "user namespaces": _user_namespaces(),
        "bubblewrap": await _bubblewrap(),
        "python": f"{platform.python_version()} ({sys.executable})",
        "ripgrep": shutil.which("rg") or "not on PATH; searches use Python",
    }


async def _examine(name: str) -> Availability:
    try:
        with anyio.fail_after(_PATIENCE):
            return await _registry.provider(name).probe()
    except TimeoutError:
        reason = f"did not answer within {_PATIENCE} s"
        return Availability(backend=name, ok=False, reason=reason)
    except IsoboxError as error:
        return Availability(backend=name, ok=False, reason=str(error))


def _user_namespaces() -> str:
    settings = {
        "user.max_user_namespaces": "0",
        "kernel.unprivileged_userns_clone": "0",
        "kernel.apparmor_restrict_unprivileged_userns": "1",
    }
    blocking = [f"{k} = {v}" for k, v in settings.items() if _setting(k) == v]
    return f"blocked: {', '.join(blocking)}" if blocking else "not blocked by sysctl"


def _setting(name: str) -> str:
    try:
        with open("/proc/sys/" + name.replace(".", "/")) as file:
            return file.read().strip()
    except OSError:
        return _UNKNOWN


async def _bubblewrap() -> str:
    try:
        path = binary.find()
    except BackendUnavailableError as error:
        return error.message.partition("\n")[0]
    with anyio.move_on_after(5):
        done = await anyio.run_process([path, "--version"], check=False)
        return f"{done.stdout.decode('utf-8', 'replace').strip()} ({path})"
    return f"{path} does not answer"


def _show(found: list[Availability], facts: dict[str, str]) -> None:
    # Here and not above: `--json` needs none of it.
    from rich.console import Console  # noqa: PLC0415

    console = Console(highlight=False)
    console.print(_backends(found))
    console.print(_machine(facts))
    for each in found:
        if each.fix:
            console.print(f"{each.backend}:", style="bold", markup=False)
            console.print(f"  {printable(each.fix)}", markup=False, soft_wrap=True)


def _backends(found: list[Availability]) -> Table:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title="Backends")
    for heading in ("backend", "works", "reason"):
        table.add_column(heading, overflow="fold")
    for each in found:
        works = Text("yes", "green") if each.ok else Text("no", "bold red")
        table.add_row(each.backend, works, Text(printable(each.reason)))
    return table


def _machine(facts: dict[str, str]) -> Table:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title="This machine", show_header=False)
    for name, fact in facts.items():
        table.add_row(name, Text(printable(fact)))
    return table
