"""The project that the demo works on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from isobox._workspace.base import WorkspaceBase

_PATIENCE = 45  # seconds for an index that is slow, or not there

# Named by its content: pip prepares a source distribution's metadata on the
# host, and only these bytes are trusted with that.
_REQUIREMENT = (
    "idna==3.10 --hash="
    "sha256:12f65c9b470abda6dc35cf8e63cc574b1c52b11df2c86030af0ac09b01b13ea9\n"
)
_ARCHIVE = "idna-3.10.tar.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An edit that the demo makes."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What to unpack, how to test it, and what to change in it.

    Attributes:
        name: As people call it.
        source: Where it came from, in words.
        archive: Its source distribution on the host; None for the bundled one.
        suite: The command that runs its own tests.
        change: What the demo edits.
    """

    name: str
    source: str
    archive: str | None
    suite: tuple[str, ...]
    change: Change


async def fetch(directory: str) -> Project:
    """Have pip fetch a project into a directory; the bundled one if it cannot."""
    requirements = os.path.join(directory, "requirements.txt")
    await anyio.Path(requirements).write_text(_REQUIREMENT)
    failure = await _download(requirements, directory)
    archive = os.path.join(directory, _ARCHIVE)
    if failure is None and await anyio.Path(archive).is_file():
        return _fetched(archive)
    return _bundled(failure or "pip left no archive")


async def unpack(project: Project, workspace: WorkspaceBase) -> None:
    """Put the project's files into a workspace.

    SAFETY: the archive is unpacked inside; the host never opens it.
    """
    if project.archive is None:
        with as_file(files("isobox.cli") / "sample") as directory:
            for name in ("roman.py", "test_roman.py"):
                await workspace.upload(directory / name, name)
        return
    await workspace.upload(project.archive, "source.tar.gz")
    unpacking = ["tar", "-xzf", "source.tar.gz", "--strip-components=1"]
    await workspace.run(unpacking, check=True, timeout=60)
    await workspace.remove("source.tar.gz")


async def _download(requirements: str, directory: str) -> str | None:
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input"),
        *("--disable-pip-version-check", "--retries", "0", "--timeout", "10"),
        *("--no-deps", "--no-binary", "idna", "--require-hashes"),
        *("--dest", directory, "--requirement", requirements),
    ]
    with anyio.move_on_after(_PATIENCE):
        done = await anyio.run_process(
            command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            check=False,
            cwd=directory,
        )
        return None if done.returncode == 0 else _last_line(done.stdout)
    return f"pip took more than {_PATIENCE} s"


def _last_line(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "pip failed without a word"


def _fetched(archive: str) -> Project:
    return Project(
        name="idna 3.10",
        source="its source distribution, fetched by pip, checked by hash",
        archive=archive,
        suite=("python3", "-m", "unittest", "discover", "-s", "tests", "-t", "."),
        change=Change(
            path="idna/core.py",
            old='        raise IDNAError("Empty domain")\n    if labels[-1]',
            new='        raise IDNAError("Empty domain: nothing to encode")\n'
            "    if labels[-1]",
        ),
    )


def _bundled(failure: str) -> Project:
    return Project(
        name="roman",
        source=f"a small project that ships with isobox; {failure}",
        archive=None,
        suite=("python3", "-m", "unittest", "discover"),
        change=Change(
            path="roman.py",
            old='raise ValueError("out of range")',
            new='raise ValueError(f"{number} is not between 1 and 3999")',
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """How the project's own tests went.

    Attributes:
        ok: They passed, and there were some.
        tests: How many ran.
        seconds: How long they took.
        said: The end of what they printed.
    """

    ok: bool
    tests: int
    seconds: float
    said: str


async def test(project: Project, workspace: WorkspaceBase) -> Suite:
    """Run the project's own tests inside."""
    result = await workspace.run(project.suite, timeout=120)
    ran = re.search(r"^Ran (\d+) tests?", result.stderr, re.MULTILINE)
    tests = int(ran[1]) if ran else 0
    return Suite(
        ok=result.ok and tests > 0,
        tests=tests,
        seconds=result.duration,
        said=result.stderr[-2000:],
    )
