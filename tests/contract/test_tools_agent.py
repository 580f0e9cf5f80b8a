"""An agent that is a script fixes a real bug with the tools, tests and all."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from isobox import _registry

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TRANSCRIPT = EXAMPLES / "fix-a-bug.md"


def fixed(*options, folder):
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "fix_a_bug.py", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def bubblewrap():
    return asyncio.run(_registry.provider("bubblewrap").probe()).ok


@pytest.mark.parametrize("options", [(), ("--offline",)], ids=["idna", "sample"])
def test_a_bug_is_fixed(options, tmp_path):
    where = () if bubblewrap() else ("--local",)
    said = fixed(*options, *where, folder=tmp_path)
    assert "[exit code 1]" in said
    assert said.endswith("[exit code 0]\n```\n\nThe tests pass.\n")


def test_the_kept_transcript_is_of_a_real_package():
    said = TRANSCRIPT.read_text()
    assert "idna" in said.splitlines()[2]
    assert said.endswith("The tests pass.\n")
