"""What holds a workload."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, get_args

import anyio
import pytest

from isobox._core.isolation import DIMENSIONS, Level
from isobox.testing.contract._base import SOON, Contract, Factory

if TYPE_CHECKING:
    from pathlib import Path

    from isobox import WorkspaceBase

_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2)
except OSError:
    sys.exit(7)
"""

#: Whoever runs the command is its parent, and the first process.
_REACH = """
import os, resource
reached = []
def attempt(name, *arguments):
    try:
        (getattr(os, name, None) or resource.prlimit)(*arguments)
        reached.append(name)
    except OSError:
        pass
none = os.sched_param(0)
for pid in (1, os.getppid()):
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS):
        attempt("prlimit", pid, limit, (3, 3))
    attempt("sched_setparam", pid, none)
    attempt("sched_setscheduler", pid, os.SCHED_IDLE, none)
    attempt("setpriority", os.PRIO_PROCESS, pid, 19)
    attempt("setpriority", os.PRIO_PGRP, os.getpgid(pid) or 1, 19)
attempt("setpriority", os.PRIO_USER, os.getuid(), 19)
attempt("sched_setaffinity", 1, {min(os.sched_getaffinity(0))})
print(reached)
"""

_OWN = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
resource.prlimit(0, resource.RLIMIT_NOFILE, (99, 100))
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
os.sched_setaffinity(0, os.sched_getaffinity(0))
before = os.nice(0)
os.setpriority(os.PRIO_PROCESS, 0, before + 3)
print(resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE), os.nice(1) - before)
"""

_PIN = """
import os
os.sched_setaffinity(os.getppid(), {min(os.sched_getaffinity(0))})
"""

_PROCESSORS = "import os; print(sorted(os.sched_getaffinity(0)))"


class IsolationContract(Contract):
    """What holds a workload."""

    async def test_isolation_names_every_dimension(
        self, workspace: WorkspaceBase
    ) -> None:
        said = workspace.isolation()
        assert said.backend == workspace.backend
        for dimension in DIMENSIONS:
            assert said[dimension].level in get_args(Level)
            assert said[dimension].mechanism

    async def test_isolation_is_plain_data(self, workspace: WorkspaceBase) -> None:
        said = workspace.isolation().as_dict()
        assert set(said) == set(DIMENSIONS)
        assert all(set(barrier) == {"level", "mechanism"} for barrier in said.values())

    @pytest.mark.requires("isolated")
    async def test_isolated_claims_are_not_none(self, workspace: WorkspaceBase) -> None:
        said = workspace.isolation()
        assert said.file_system.level != "none"
        assert said.process.level != "none"

    @pytest.mark.requires("isolated", "python3", "spared")
    async def test_limits_and_scheduling_of_what_runs_commands_are_not_changed(
        self, fresh_workspace: Factory
    ) -> None:
        workspace = await fresh_workspace()
        done = await workspace.run(["python3", "-c", _REACH])
        assert (done.stdout, done.stderr) == ("[]\n", "")
        assert (await workspace.run(["echo", "on"])).stdout == "on\n"
        await workspace.write("file", bytes(4096))

    @pytest.mark.requires("isolated", "python3", "spared")
    async def test_a_command_changes_its_own(self, workspace: WorkspaceBase) -> None:
        done = await workspace.run(["python3", "-c", _OWN])
        assert (done.stdout, done.stderr) == ("(99, 100) 4\n", "")

    @pytest.mark.requires("isolated", "python3", "spared")
    async def test_no_command_chooses_the_processors_of_the_next(
        self, workspace: WorkspaceBase
    ) -> None:
        before = (await workspace.run(["python3", "-c", _PROCESSORS])).stdout
        await workspace.run(["python3", "-c", _PIN])
        assert (await workspace.run(["python3", "-c", _PROCESSORS])).stdout == before

    @pytest.mark.requires("isolated", "posix_shell")
    async def test_a_file_of_the_host_is_not_seen(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        (tmp_path / "secret").write_text("host-only-secret")
        result = await workspace.run(["cat", str(tmp_path / "secret")])
        assert result.exit_code != 0
        assert "host-only-secret" not in result.stdout

    @pytest.mark.requires("isolated", "posix_shell")
    async def test_a_file_of_the_host_is_not_written(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        target = tmp_path / "file"
        target.write_text("kept")
        await workspace.run(f"echo broken > '{target}'; mkdir -p '{tmp_path}/new'")
        assert target.read_text() == "kept"
        assert os.listdir(tmp_path) == ["file"]

    @pytest.mark.requires("isolated", "posix_shell", "proc")
    async def test_no_process_of_the_host_is_seen(
        self, workspace: WorkspaceBase
    ) -> None:
        own = os.getpid()
        with open(f"/proc/{own}/cmdline", "rb") as file:
            line = file.read().replace(b"\0", b" ").decode("utf-8", "replace")
        assert line.strip() not in await self.command_lines(workspace)

    @pytest.mark.requires("isolated", "posix_shell")
    @pytest.mark.parametrize("directory", ["/", "/usr", "/etc", "/bin"])
    async def test_the_system_is_not_written(
        self, workspace: WorkspaceBase, directory: str
    ) -> None:
        result = await workspace.run(["touch", f"{directory}/isobox-contract"])
        assert result.exit_code != 0

    @pytest.mark.requires("isolated", "posix_shell")
    async def test_commands_are_not_root(self, workspace: WorkspaceBase) -> None:
        result = await workspace.run(["grep", "^CapEff", "/proc/self/status"])
        assert int(result.stdout.split()[1], 16) == 0

    @pytest.mark.requires("no_network", "python3")
    async def test_the_loopback_of_the_host_is_not_reached(
        self, workspace: WorkspaceBase
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
            command = ["python3", "-c", _CONNECT, "127.0.0.1", port]
            with anyio.fail_after(SOON):
                assert (await workspace.run(command)).exit_code == 7

    @pytest.mark.requires("no_network", "proc", "posix_shell")
    async def test_there_is_no_route_out(self, workspace: WorkspaceBase) -> None:
        routes = (await workspace.run(["cat", "/proc/net/route"])).stdout
        assert len(routes.splitlines()) <= 1
        devices = (await workspace.run(["cat", "/proc/net/dev"])).stdout
        names = [line.split(":")[0].strip() for line in devices.splitlines()[2:]]
        assert names == ["lo"]

    @pytest.mark.requires("no_network", "python3")
    async def test_an_address_outside_is_not_reached(
        self, workspace: WorkspaceBase
    ) -> None:
        command = ["python3", "-c", _CONNECT, "192.0.2.1", "80"]
        with anyio.fail_after(SOON):
            assert (await workspace.run(command)).exit_code == 7

    @pytest.mark.requires("isolated", "proc", "posix_shell")
    async def test_the_host_environment_is_in_no_process(
        self, workspace: WorkspaceBase
    ) -> None:
        result = await workspace.run("cat /proc/[0-9]*/environ 2>/dev/null; true")
        # Set by pytest itself in the process that runs this.
        assert "PYTEST_CURRENT_TEST" not in result.stdout
