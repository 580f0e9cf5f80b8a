"""What `import isobox` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import isobox

PUBLIC = [
    "Answer",
    "ApprovalsWarning",
    "AuditSink",
    "Availability",
    "Barrier",
    "BubblewrapWorkspace",
    "Budget",
    "Captured",
    "Change",
    "Changes",
    "DataBlock",
    "Denial",
    "DockerWorkspace",
    "Edited",
    "Entry",
    "Exit",
    "GVisorWorkspace",
    "IsoboxError",
    "Isolation",
    "JsonlSink",
    "Limits",
    "Listing",
    "LocalWorkspace",
    "Match",
    "Matches",
    "Mcp",
    "McpServer",
    "McpStatus",
    "McpWarning",
    "MemorySink",
    "Mount",
    "Network",
    "NetworkRule",
    "Offloader",
    "OtelSink",
    "Pending",
    "Policy",
    "Process",
    "ProcessInfo",
    "Question",
    "RecordedProcess",
    "Recorder",
    "Retention",
    "Rule",
    "RunResult",
    "SeatbeltWorkspace",
    "Secret",
    "SecretError",
    "Shell",
    "SigV4",
    "Skill",
    "SkillsWarning",
    "SnapshotRef",
    "Spent",
    "TextBlock",
    "Tool",
    "ToolResult",
    "Usage",
    "Verdict",
    "WorkspaceBase",
    "load_policy",
]
HEAVY = (
    "anyio",
    "asyncio",
    "typer",
    "click",
    "rich",
    "pydantic",
    "pytest",
    "h11",
    "idna",
    "cryptography",
    "yaml",
)


def loaded_after(statement):
    script = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_public_names_are_pinned():
    assert isobox.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_is_importable(name):
    assert getattr(isobox, name) is not None
    assert name in dir(isobox)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = isobox.no_such_name


@pytest.mark.parametrize("statement", ["import isobox", "import isobox.cli"])
def test_import_loads_nothing_heavy(statement):
    assert loaded_after(statement).isdisjoint(HEAVY)


def test_typer_without_rich_tables_starts_a_run():
    assert "pydantic" not in loaded_after("import isobox.cli.app, isobox.cli.run")
    assert "rich" not in loaded_after("import isobox.cli.run")


def test_every_public_name_is_there_without_extras():
    extras = "mcp mcp_types opentelemetry bandit aiodocker sqlalchemy prometheus_client"
    script = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({extras.split()!r}))\n"
        "from isobox import *\n"
        "print(McpStatus.__name__, OtelSink.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.stdout) == ("", "McpStatus OtelSink\n")
