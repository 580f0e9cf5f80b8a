"""Every command when who read its output has gone."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from tests.unit.cli.command_line import ISOBOX, PATIENCE
from tests.unit.cli.test_managed import Service, log_of

UNREAD = 128 + signal.SIGPIPE


@pytest.fixture
def service(tmp_path):
    """A manager's base directory with one workspace and its log."""
    service = Service(tmp_path / "workspaces")
    service.record = service.made("ada")
    log_of(service, service.record, "initialize", "close")
    return service


def unread(place, *arguments):
    """Run the command line with a standard output that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return subprocess.run(
            [*ISOBOX, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            cwd=place,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        os.close(writing)


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",
        "doctor",
        "doctor --json",
        "probe --backend local",
        "ls",
        "ls --json",
        "stats",
        "stats --json",
        "logs ID",
        "logs ID --json",
        "audit show LOG",
        "audit show --json LOG",
        "audit verify LOG",
        "audit head LOG",
        "policy schema",
        "policy explain --preset auto ls",
        "policy explain --preset auto --json ls",
        "mcp config --client claude-code",
        "run --backend local --workdir . --json true",
        "run --backend local --workdir . echo said",
    ],
)
def test_it_ends_quietly(command, service):
    log = str(service.path / service.record.place / "audit.jsonl")
    words = {"LOG": log, "ID": service.record.workspace_id}
    arguments = [words.get(word, word) for word in command.split()]
    done = unread(service.path.parent, *arguments)
    assert (done.returncode, done.stderr) == (UNREAD, b"")
