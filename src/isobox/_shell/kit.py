"""What an image without Python has, found out once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from isobox._shell.quote import filled
from isobox.errors import BackendUnavailableError, ProtocolError

if TYPE_CHECKING:
    from isobox._shell.operators import Operator

#: Tells a signal from a status of over 128, which no shell can.
Witness = Literal["awk", "time", "sh"]

_NEEDED: Final = (
    "cat chmod cut dd env find grep head kill mkdir mkfifo mktemp mv od readlink rm "
    "sha256sum stat tar touch tr wc"
)
_PROBE: Final = """\
for p in {needed}; do command -v $p >/dev/null || printf '%s ' "$p"; done; echo
for p in bash setsid nc; do command -v $p >/dev/null && printf '%s ' $p; done; echo
awk 'BEGIN {{ print system("kill -9 $$") }}'; echo
command time -f %x sh -c 'kill -9 $$' 2>&1 | tr '\\n' ' '; echo
[ -r /proc/self/stat ] && [ -r /proc/self/environ ] && echo proc; echo
printf x | dd bs=2 count=1 iflag=fullblock; echo
"""


@dataclass(frozen=True, slots=True)
class Kit:
    """What there is.

    Attributes:
        shell: The program that scripts are for.
        setsid: Whether a command can have a session of its own.
        nc: Whether there is a program that dials.
        witness: What tells how a command ended.
    """

    shell: Literal["bash", "sh"]
    setsid: bool
    nc: bool
    witness: Witness


#: What every shell has.
LEAST: Final = Kit("sh", setsid=False, nc=False, witness="sh")


async def found(operator: Operator, *, backend: str) -> Kit:
    """Look at what is inside.

    Raises:
        BackendUnavailableError: It is too little.
        ProtocolError: The shell answers something else.
    """
    probe = filled(_PROBE.format(needed=_NEEDED))
    answer = (await operator.ask(probe, most=1 << 16)).decode("utf-8", "replace")
    lines = [line.strip() for line in answer.split("\n")]
    if len(lines) < 2:
        raise ProtocolError("the shell inside answers something else")
    missing, there = lines[0].split(), lines[1].split()
    if missing or "proc" not in lines or "x" not in lines:
        raise BackendUnavailableError(_lack(missing), backend=backend)
    return Kit(
        shell="bash" if "bash" in there else "sh",
        setsid="setsid" in there,
        nc="nc" in there,
        witness=_witness(lines),
    )


def _witness(lines: list[str]) -> Witness:
    if re.fullmatch(r"265|521", lines[2]):
        return "awk"
    told = " ".join(lines[3:6])
    return "time" if "terminated by signal 9" in told else "sh"


def _lack(missing: list[str]) -> str:
    what = " ".join(missing)[:200] or "a readable /proc, or `dd iflag=fullblock`"
    return (
        f"the image has no Python, and not enough for a shell alone: {what}; "
        "use an image of the class of busybox 1.30 or coreutils, or one with Python"
    )
