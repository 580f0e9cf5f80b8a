"""What a sandbox's own /proc does not tell about the host, and what it still does."""

from __future__ import annotations

import json
import shutil

import pytest

from isobox import BubblewrapWorkspace, _registry
from isobox._backends.bubblewrap import view

pytestmark = pytest.mark.anyio

LOOK = """
import json, os, sys
def seen(path):
    try:
        if os.path.isdir(path):
            return sorted(os.listdir(path))
        with open(path, "rb") as file:
            return file.read(4096).decode("utf-8", "replace")
    except OSError as error:
        return error.__class__.__name__
print(json.dumps({name: seen("/proc/" + name) for name in sys.argv[1:]}))
"""
NEEDED = ("cpuinfo", "loadavg", "meminfo", "mounts", "stat", "uptime", "vmstat")
TOOLS = {
    "ps": "ps aux",
    "free": "free",
    "uptime": "uptime",
    "top": "TERM=dumb top -b -n 1",
    "vmstat": "vmstat",
    "nproc": "nproc",
    "java": "java -version",
    "node": "node -e 'const os = require(\"os\"); os.cpus()[0].model; os.freemem()'",
    "git": "git init -q repository && git -C repository status",
    "gcc": "echo 'int main(){return 0;}' > a.c && gcc a.c && ./a.out",
}


@pytest.fixture(scope="module")
async def workspace():
    found = await _registry.provider("bubblewrap").probe()
    if not found.ok:
        pytest.skip(found.reason)
    async with BubblewrapWorkspace() as opened:
        yield opened


@pytest.fixture(scope="module")
async def proc(workspace):
    names = [*view._TELLING, *NEEDED]
    result = await workspace.run(["python3", "-c", LOOK, *names], check=True)
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", view._TELLING)
async def test_nothing_is_told_by(name, proc):
    assert proc[name] in ("", [], "FileNotFoundError", "PermissionError")


@pytest.mark.parametrize("name", NEEDED)
async def test_commands_keep(name, proc):
    assert len(proc[name]) > 10


@pytest.mark.parametrize("tool", TOOLS)
async def test_tool_works(tool, workspace):
    if not shutil.which(tool, path="/usr/bin:/bin"):
        pytest.skip(f"{tool} is not installed")
    result = await workspace.run(TOOLS[tool], timeout=60)
    assert result.ok, result.stderr


async def test_a_masked_directory_holds_nothing_and_takes_nothing(workspace):
    result = await workspace.run(
        "chmod 0777 /proc/bus; touch /proc/bus/x || echo refused", timeout=10
    )
    assert result.stdout == "refused\n"


def arguments(tmp_path) -> list[str]:
    shown = view.View()
    view._mask(shown, str(tmp_path))
    return shown.arguments


def test_what_is_not_there_is_not_masked(tmp_path):
    assert arguments(tmp_path) == []


def test_what_only_root_reads_is_not_masked(tmp_path):
    (tmp_path / "timer_list").touch(0o400)
    assert arguments(tmp_path) == []


def test_an_empty_directory_is_not_masked(tmp_path):
    (tmp_path / "acpi").mkdir()
    assert arguments(tmp_path) == []


def test_a_file_is_masked_by_one_that_cannot_be_opened(tmp_path):
    (tmp_path / "sched_debug").touch(0o444)
    assert arguments(tmp_path) == ["--ro-bind", "/dev/null", "/proc/sched_debug"]


def test_a_directory_is_masked_by_a_small_one_that_is_read_only(tmp_path):
    (tmp_path / "scsi" / "device").mkdir(parents=True)
    assert arguments(tmp_path) == [
        *("--size", "4096", "--perms", "0555", "--tmpfs", "/proc/scsi"),
        *("--remount-ro", "/proc/scsi"),
    ]
