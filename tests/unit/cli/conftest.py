"""The command line as tests use it."""

from __future__ import annotations

import subprocess

import pytest
from tests.unit.cli.command_line import ISOBOX, PATIENCE, Terminal


@pytest.fixture(name="isobox")
def command_line(tmp_path):
    """Runs the command line in an empty directory."""

    def run(*arguments, stdin=b"", cwd=tmp_path, **options):
        return subprocess.run(
            [*ISOBOX, *arguments],
            input=stdin,
            capture_output=True,
            cwd=cwd,
            timeout=PATIENCE,
            check=False,
            **options,
        )

    return run


@pytest.fixture
def terminal(tmp_path):
    opened = []

    def start(*arguments):
        opened.append(Terminal(*arguments, cwd=tmp_path))
        return opened[-1]

    yield start
    for each in opened:
        each.close()
