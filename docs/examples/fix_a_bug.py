"""An agent fixes a bug with isobox's tools, and writes down what it did.

    python fix_a_bug.py > fix-a-bug.md

The agent is a script: what a model would say stands in `solve`. The package is
idna from the package index, with one line of it broken; without a network it is
the sample that `isobox demo` brings.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import isobox.cli
from isobox import BubblewrapWorkspace, LocalWorkspace

if TYPE_CHECKING:
    from isobox import Tool, ToolResult, WorkspaceBase

RELEASE = "idna==3.10"
#: Without -B, Python would take what it compiled within the same second for what
#: the file holds after an edit that keeps its length.
TESTS = "(set -o pipefail; python3 -B -m unittest -q 2>&1 | tail -n 12)"


@dataclass(frozen=True)
class Project:
    """A package with a bug.

    Attributes:
        name: What it is called.
        unpack: Script that puts its source into the directory `source`.
        file: Where the bug is, and how the line should be.
        wrong: The line with the bug.
        right: The line without it.
        hunch: What the agent thinks when it has seen the failure.
        clue: What it then looks for.
    """

    name: str
    unpack: str
    file: str
    wrong: str
    right: str
    hunch: str
    clue: str


IDNA = Project(
    name=RELEASE,
    unpack="mkdir source && tar xzf *.tar.gz -C source --strip-components=1",
    file="source/idna/core.py",
    wrong='    if label[3:5] == "--":\n',
    right='    if label[2:4] == "--":\n',
    hunch="`[V2]` is the rule on hyphens, and `bc--de` breaks it. Who checks that?",
    clue=r"def .*hyphen",
)
SAMPLE = Project(
    name="the sample of isobox demo",
    unpack="mkdir source && mv *.py source",
    file="source/roman.py",
    wrong="        if rest.startswith(digit):\n",
    right="        while rest.startswith(digit):\n",
    hunch="Numbers are read wrongly when a digit stands twice. Where are they read?",
    clue=r"startswith\(digit\)",
)


class Conversation:
    """Calls tools as a harness does for a model, and keeps the transcript."""

    def __init__(self, tools: list[Tool]) -> None:
        self.lines: list[str] = []
        self._tools = {tool.name: tool for tool in tools}

    def say(self, text: str) -> None:
        """Write down what the agent thinks."""
        self.lines += [text, ""]

    async def call(self, name: str, **arguments: object) -> ToolResult:
        """Call a tool and write down both sides."""
        result = await self._tools[name](**arguments)
        given = json.dumps(arguments, indent=2, ensure_ascii=False)
        self.lines += [f"**{name}**", "", "```json", given, "```", ""]
        self.lines += ["```text", _steady(result.text), "```", ""]
        return result


async def solve(agent: Conversation, project: Project) -> bool:
    """Find the bug and fix it; return whether the tests pass."""
    agent.say("I run the tests to see what fails.")
    first = await agent.call("Bash", command=f"cd source\n{TESTS}")
    agent.say(project.hunch)
    folder = project.file.rpartition("/")[0]
    found = await agent.call("Grep", pattern=project.clue, path=folder, type="py")
    line = next(int(each) for each in re.findall(r"(?m)^(\d+):", found.text))
    agent.say("I read the code around it.")
    await agent.call("Read", file_path=project.file, offset=max(1, line - 5), limit=20)
    agent.say("One line is wrong. I change it and nothing else.")
    edit = {"old_string": project.wrong, "new_string": project.right}
    await agent.call("Edit", file_path=project.file, edits=[edit])
    agent.say("The shell is still in `source`, so the tests run as before.")
    last = await agent.call("Bash", command=TESTS)
    passed = last.metadata["exit_code"] == 0
    agent.say("The tests pass." if passed else "The tests still fail.")
    return passed and first.metadata["exit_code"] != 0


async def plant(workspace: WorkspaceBase, project: Project) -> None:
    """Put the source with the bug into the workspace."""
    await workspace.run(project.unpack, check=True)
    await workspace.edit(project.file, project.right, project.wrong)


def fetched(directory: Path, *, offline: bool) -> Project:
    """Fetch a package's source into a directory and say which."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    pip += ["--no-binary", ":all:", "--dest", str(directory), RELEASE]
    if not offline:
        with contextlib.suppress(subprocess.SubprocessError):
            subprocess.run(pip, check=True, capture_output=True, timeout=60)
            return IDNA
    sample = Path(isobox.cli.__file__).with_name("sample")
    for file in sample.glob("*.py"):
        shutil.copy(file, directory)
    return SAMPLE


async def main(arguments: argparse.Namespace) -> bool:
    """Let the agent work, and print the transcript."""
    with tempfile.TemporaryDirectory() as folder:
        project = fetched(Path(folder), offline=arguments.offline)
        kind = LocalWorkspace if arguments.local else BubblewrapWorkspace
        async with kind(folder) as workspace:
            await plant(workspace, project)
            agent = Conversation(await workspace.list_tools())
            done = await solve(agent, project)
    print("# A bug is fixed\n")
    print(f"What [fix_a_bug.py](fix_a_bug.py) printed for {project.name}.\n")
    print("\n".join(agent.lines).rstrip())
    return done


def _steady(text: str) -> str:
    """Return a text without what differs from run to run."""
    return re.sub(r"in \d+\.\d+s", "in 1.0s", text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--offline", action="store_true", help="use the sample")
    parser.add_argument("--local", action="store_true", help="without a sandbox")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(not asyncio.run(main(_arguments())))
