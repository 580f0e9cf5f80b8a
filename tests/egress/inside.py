"""Programs in a sandbox, and what they met."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isobox import RunResult

PROGRAMS = Path(__file__).with_name("programs")
PROXY = "http://127.0.0.1:3128"


@dataclass(frozen=True)
class Outcome:
    """What a probe met: what it was told, and how that ended."""

    said: str
    end: str

    @property
    def status(self) -> int:
        """The status of the HTTP answer; 0 if it is none."""
        first = self.said.partition("\r\n")[0].split(" ")
        return int(first[1]) if first[0].startswith("HTTP/1.") else 0

    @property
    def denied(self) -> bool:
        """Whether the filter said that it denies it, as a proxy does."""
        return self.status == 403 and "x-isobox-denied:" in self.said.lower()

    @property
    def body(self) -> str:
        """What follows the head."""
        return self.said.partition("\r\n\r\n")[2]


async def probe(workspace, jobs: list[dict], at_once: int = 1) -> list[Outcome]:
    """Do jobs inside; see programs/probe.py."""
    result = await workspace.run(
        ["python3", "/lab/probe.py", str(at_once)],
        stdin=json.dumps(jobs),
        timeout=100,
    )
    assert result.exit_code == 0, result.stderr
    return [Outcome(**each) for each in json.loads(result.stdout)]


async def probe_one(workspace, **job) -> Outcome:
    """Do one job inside."""
    (outcome,) = await probe(workspace, [job])
    return outcome


async def run(workspace, *command: str, **options) -> RunResult:
    """Run a program inside, for at most a minute."""
    options.setdefault("timeout", 60)
    result = await workspace.run(list(command), **options)
    assert not result.timed_out, shlex.join(command)
    return result


async def curl(workspace, *arguments: str) -> RunResult:
    """Run curl, which prints the head of the answer too."""
    return await run(workspace, "curl", "-sS", "-i", "--max-time", "20", *arguments)


async def told(workspace, *arguments: str) -> dict:
    """Return what a server says it was asked by curl."""
    result = await run(workspace, "curl", "-sS", "--max-time", "20", *arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)
