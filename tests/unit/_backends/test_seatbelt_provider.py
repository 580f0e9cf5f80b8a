"""The Seatbelt backend on any system: a stand-in keeps the profile, runs the rest."""

from __future__ import annotations

import os
import platform
import stat
import sys

import pytest
from tests.unit._backends.seatbelt_language import Policy, Request

from isobox import Limits, Mount, SeatbeltWorkspace, _registry
from isobox._backends.seatbelt import protect, provider
from isobox._core.isolation import DIMENSIONS
from isobox.errors import (
    BackendUnavailableError,
    InvalidArgumentError,
    UnsupportedError,
)

pytestmark = pytest.mark.anyio

STAND_IN = """#!/bin/sh
[ "$1" = -p ] || exit 64
printf %s "$2" > "$(dirname "$0")/profile"
shift 2
exec "$@"
"""


@pytest.fixture
def macos(monkeypatch, tmp_path):
    """Let this machine pass for a Mac; returns where the profile will be."""
    program = tmp_path / "bin" / "sandbox-exec"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(os, "geteuid", lambda: 501)
    monkeypatch.setattr(provider, "SANDBOX_EXEC", str(program))
    return program.parent / "profile"


@pytest.fixture
def project(tmp_path):
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
def repository(project):
    (project / ".git" / "hooks").mkdir(parents=True)
    (project / "vendor" / "sub" / ".git").mkdir(parents=True)
    return project


async def test_commands_run_and_files_are_read(macos, project):
    async with SeatbeltWorkspace(project) as ws:
        assert ws.root == os.path.realpath(project)
        await ws.write("a.txt", "content\n")
        result = await ws.run("cat a.txt; pwd; echo $HOME $TMPDIR; ls -A $HOME $TMPDIR")
        assert result.stdout.startswith(f"content\n{ws.root}\n")
        assert (project / "a.txt").read_text() == "content\n"


async def test_the_profile_is_about_this_sandbox(macos, project, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    async with SeatbeltWorkspace(project, mounts=[str(data)]) as ws:
        result = await ws.run("printf '%s\\n' $HOME $TMPDIR")
        home, tmp = result.stdout.splitlines()
        policy = Policy(macos.read_text())
        root = ws.root
    private = os.path.dirname(home)
    expected = {
        ("file-write-create", f"{root}/a"): True,
        ("file-write-create", f"{home}/a"): True,
        ("file-write-create", f"{tmp}/a"): True,
        ("file-read-data", f"{private}/guest.pyc"): True,
        ("file-write-data", f"{private}/guest.pyc"): False,
        ("file-read-data", f"{data}/a"): True,
        ("file-write-data", f"{data}/a"): False,
        ("process-exec", os.path.realpath(sys.executable)): True,
        ("file-write-create", f"{root}/.git/hooks/pre-commit"): False,
        ("file-read-data", f"{tmp_path}/other"): False,
    }
    assert {each: policy.allows(Request(*each)) for each in expected} == expected


async def test_nothing_private_is_left(macos, project):
    async with SeatbeltWorkspace(project) as ws:
        home = (await ws.run("printf %s $HOME")).stdout
        assert stat.S_IMODE(os.stat(os.path.dirname(home)).st_mode) == 0o700
        await ws.run("mkdir -p $HOME/a/b && chmod 0 $HOME/a/b")
    assert not os.path.exists(os.path.dirname(home))
    assert project.is_dir()


async def test_a_workspace_without_a_directory_has_one_of_its_own(macos):
    async with SeatbeltWorkspace() as ws:
        assert (await ws.run("mkdir .git && ls -A")).stdout == ".git\n"
        root = ws.root
        # Nobody else works in there: its names need no protection.
        policy = Policy(macos.read_text())
        assert policy.allows(Request("file-write-create", f"{root}/.git/config"))
    assert not os.path.exists(root)


async def test_a_sandbox_that_can_write_protected_names_is_refused(macos, repository):
    # The stand-in holds nothing, and the guest finds that out.
    with pytest.raises(BackendUnavailableError, match="write protected names"):
        await SeatbeltWorkspace(repository).initialize()
    policy, root = Policy(macos.read_text()), os.path.realpath(repository)
    for kept in (".git", "vendor", "vendor/sub", "vendor/sub/.git"):
        assert not policy.allows(Request("file-write-unlink", f"{root}/{kept}"))


async def test_the_hosts_environment_stays_outside(macos, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "1")
    async with SeatbeltWorkspace(env={"MORE": "2"}) as ws:
        names = {
            line.partition("=")[0] for line in (await ws.run("env")).stdout.splitlines()
        }
    assert {"HOME", "PATH", "TMPDIR", "MORE"} <= names
    assert "SECRET_OF_THE_HOST" not in names


async def test_what_the_program_complains_of_is_told(macos):
    program = macos.parent / "sandbox-exec"
    program.write_text("#!/bin/sh\necho sandbox_apply: not permitted >&2; exit 71\n")
    with pytest.raises(BackendUnavailableError, match="sandbox_apply: not permitted"):
        await SeatbeltWorkspace().initialize()
    found = await _registry.provider("seatbelt").probe()
    assert not found.ok
    assert "sandbox_apply" in found.reason


async def test_probe_on_a_mac(macos):
    found = await _registry.provider("seatbelt").probe()
    assert (found.backend, found.ok) == ("seatbelt", True)


@pytest.mark.skipif(sys.platform == "darwin", reason="this is a Mac")
async def test_probe_elsewhere_says_why_not():
    found = await _registry.provider("seatbelt").probe()
    assert (found.backend, found.ok) == ("seatbelt", False)
    assert found.reason == "Seatbelt is a part of macOS; this is Linux"


async def test_a_mac_without_the_program_says_so(macos, monkeypatch):
    monkeypatch.setattr(provider, "SANDBOX_EXEC", "/nonexistent/sandbox-exec")
    found = await _registry.provider("seatbelt").probe()
    assert found.reason == "/nonexistent/sandbox-exec is missing from this macOS"


async def test_root_is_refused(macos, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = await _registry.provider("seatbelt").probe()
    assert not found.ok
    assert found.fix == "run isobox as an ordinary user"


@pytest.mark.parametrize(
    ("name", "value"), [("memory", 1 << 30), ("cpus", 1), ("disk", 1 << 30)]
)
async def test_a_limit_that_nothing_keeps_is_refused(macos, name, value):
    ws = SeatbeltWorkspace(limits=Limits(**{name: value}))
    with pytest.raises(InvalidArgumentError, match="seatbelt has no"):
        await ws.initialize()


async def test_a_mount_elsewhere_is_refused(macos, tmp_path):
    ws = SeatbeltWorkspace()
    ws._mounts = (Mount(source=str(tmp_path), target="/data"),)
    with pytest.raises(InvalidArgumentError, match="nowhere else"):
        await ws.initialize()


@pytest.mark.parametrize("kind", ["missing", "fifo"])
async def test_a_mount_must_be_a_directory_or_a_file(macos, tmp_path, kind):
    path = tmp_path / "x"
    if kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(InvalidArgumentError, match="neither a directory nor a file"):
        await SeatbeltWorkspace(mounts=[str(path)]).initialize()


async def test_isolation_claims_nothing_that_was_not_measured(macos):
    async with SeatbeltWorkspace() as ws:
        said = ws.isolation()
        assert {said[name].level for name in DIMENSIONS} == {"partial"}
        with pytest.raises(UnsupportedError):
            await ws.run("true", user="somebody")


async def test_fork_has_the_same_options(macos, project):
    async with SeatbeltWorkspace(env={"A": "1"}, unprotected=[".git"]) as ws:
        await ws.write("a", "x")
        twin = await ws.fork()
        async with twin:
            assert (await twin.run("echo $A; cat a")).stdout == "1\nx"


# -- what is there ------------------------------------------------------------------


def survey(path, *unprotected: str) -> list[str]:
    root = os.path.realpath(path)
    found = protect.survey(root, frozenset(unprotected))
    return sorted(os.path.relpath(each, root) for each in found)


def test_survey_finds_names_at_every_depth(repository):
    (repository / "Jenkinsfile").touch()
    (repository / "src" / ".claude").mkdir(parents=True)
    (repository / "src" / ".bashrc").touch()
    (repository / "node_modules" / "x" / ".git").mkdir(parents=True)
    assert survey(repository) == [
        ".git",
        "Jenkinsfile",
        "src/.claude",
        "vendor/sub/.git",
    ]
    assert survey(repository, ".git") == ["Jenkinsfile", "src/.claude"]


def test_survey_knows_names_in_either_case(tmp_path):
    (tmp_path / ".GIT").mkdir()
    (tmp_path / "jenkinsfile").touch()
    assert survey(tmp_path) == [".GIT", "jenkinsfile"]


def test_survey_holds_where_a_link_leads_inside(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / ".git").symlink_to("real")
    (tmp_path / ".vscode").symlink_to("/etc")
    (tmp_path / ".idea").symlink_to(".")
    assert survey(tmp_path) == [".git", ".idea", ".vscode", "real"]


def test_survey_refuses_more_than_it_can_hold(tmp_path, monkeypatch):
    for number in range(4):
        (tmp_path / str(number) / ".git").mkdir(parents=True)
    monkeypatch.setattr(protect, "_MOST_NAMES", 3)
    with pytest.raises(InvalidArgumentError, match="protect=False"):
        survey(tmp_path)
    monkeypatch.setattr(protect, "_MOST_NAMES", 10)
    monkeypatch.setattr(protect, "_MOST_DIRECTORIES", 2)
    with pytest.raises(InvalidArgumentError, match="smaller directory"):
        survey(tmp_path)
