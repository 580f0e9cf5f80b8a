"""The example of a service prints what its page shows."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from isobox import _registry

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def test_the_page_shows_what_it_prints(tmp_path):
    found = asyncio.run(_registry.provider("bubblewrap").probe())
    if not found.ok:
        pytest.skip(f"bubblewrap does not run here: {found.reason}")
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "service.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    page = (EXAMPLES / "service.md").read_text()
    assert page.partition("```text\n")[2] == done.stdout + "```\n"
