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
from isobox._backends.bubblewrap import binary, machine
from isobox._core.spec import Availability
from isobox.cli.status import printable
from isobox.errors import (
    BackendMissingError,
    BackendUnavailableError,
    IsoboxError,
)

if TYPE_CHECKING:
    from rich.table import Table

_PATIENCE = 30  # seconds for one backend to answer
_ISOLATES_NOTHING = "local"


async def doctor(*, as_json: bool = False) -> int:
    """Examine every backend; return 0 when one that isolates works, else 1."""
    found = [await _examine(name) for name in _registry.names()]
    about = await facts()
    causes = [] if _isolates(found) else machine.recognise(machine.facts())
    if as_json:
        report = {
            "backends": [asdict(each) for each in found],
            "causes": [asdict(each) for each in causes],
            "machine": about,
        }
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        _show(found, causes, about)
    return 0 if _isolates(found) else 1


def _isolates(found: list[Availability]) -> bool:
    return any(each.ok for each in found if each.backend != _ISOLATES_NOTHING)


async def facts() -> dict[str, str]:
    """Return what decides here which backends work."""
    here = machine.facts()
    return {
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "user": f"uid {os.getuid()}",
        "user namespaces": _user_namespaces(here),
        "/proc": _proc(here),
        "Landlock": f"version {here.landlock}" if here.landlock else "not there",
        "container": here.container or "none known",
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
    except BackendMissingError as error:
        return Availability(
            backend=name, ok=False, reason=str(error), fix=_registry.fix(name)
        )
    except IsoboxError as error:
        return Availability(backend=name, ok=False, reason=str(error))


def _user_namespaces(here: machine.Facts) -> str:
    if not here.user_namespaces:
        return "not in this kernel"
    blocking = [f"{k} = {here.sysctls[k]}" for k in machine.blocking(here.sysctls)]
    if here.seccomp:
        blocking.append("a seccomp filter")
    return f"may be blocked: {', '.join(blocking)}" if blocking else "not blocked"


def _proc(here: machine.Facts) -> str:
    if here.masks:
        return f"masked: {', '.join(here.masks)}"
    return ", ".join(sorted(here.proc_options))


async def _bubblewrap() -> str:
    try:
        path = binary.find()
    except BackendUnavailableError as error:
        return error.message.partition("\n")[0]
    with anyio.move_on_after(5):
        done = await anyio.run_process([path, "--version"], check=False)
        return f"{done.stdout.decode('utf-8', 'replace').strip()} ({path})"
    return f"{path} does not answer"


def _show(
    found: list[Availability], causes: list[machine.Finding], about: dict[str, str]
) -> None:
    # Here and not above: `--json` needs none of it.
    from isobox.cli.consoles import PipedConsole  # noqa: PLC0415

    console = PipedConsole(highlight=False)
    console.print(_backends(found))
    console.print(_machine(about))
    for each in found:
        if each.fix:
            name = printable(each.backend)
            console.print(f"{name}:", style="bold", markup=False)
            console.print(f"  {printable(each.fix)}", markup=False, soft_wrap=True)
    if causes:
        console.print("What may be in the way here:", style="bold")
    for cause in causes:
        for line in (f"  {cause.message}", f"    {cause.fix}"):
            console.print(printable(line), markup=False, soft_wrap=True)


def _backends(found: list[Availability]) -> Table:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title="Backends")
    for heading in ("backend", "works", "reason"):
        table.add_column(heading, overflow="fold")
    for each in found:
        works = Text("yes", "green") if each.ok else Text("no", "bold red")
        name = Text(printable(each.backend))
        table.add_row(name, works, Text(printable(each.reason)))
    return table


def _machine(about: dict[str, str]) -> Table:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title="This machine", show_header=False)
    for name, fact in about.items():
        table.add_row(name, Text(printable(fact)))
    return table
