"""Names that the host executes later stay as they are, whatever commands do."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from isobox import BubblewrapWorkspace
from isobox._backends.bubblewrap import ladder
from isobox._core.protected import ABSENT
from isobox._workdir import protect, stand_ins
from isobox.errors import InvalidArgumentError, SandboxLostError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        not os.path.exists("/usr/bin/bwrap"), reason="needs /usr/bin/bwrap"
    ),
]

PATIENCE = 15
HOOK = ".git/hooks/pre-commit"


@pytest.fixture
def repo(tmp_path):
    """A repository with another below, as its user left them."""
    for top in (tmp_path, tmp_path / "vendor/sub"):
        (top / ".git/hooks").mkdir(parents=True)
        (top / ".git/config").write_text("[core]\n")
    (tmp_path / ".gitmodules").write_text("theirs")
    return tmp_path


def tree(path: Path) -> dict[str, str]:
    """Return what is below: each path, and what it is."""
    return {
        str(each.relative_to(path)): _described(each)
        for each in sorted(path.rglob("*"))
    }


def _described(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return path.read_text() if path.is_file() else "/"


def aside(folder: Path, name: str) -> list[Path]:
    """Return what was put aside of a name."""
    return list(folder.glob(f"{name}.isobox-*"))


async def until_lost(workspace) -> SandboxLostError:
    """Wait for a sandbox to end, as its commands see it."""
    with anyio.fail_after(PATIENCE):
        while True:
            try:
                await workspace.run(["sleep", "0.05"])
            except SandboxLostError as error:
                return error


# -- what is there -------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [".git", "vendor", "vendor/sub", "vendor/sub/.git", ".gitmodules"]
)
async def test_what_leads_to_a_held_name_is_not_renamed(repo, path):
    before = tree(repo)
    async with BubblewrapWorkspace(repo) as workspace:
        result = await workspace.run(["mv", "-T", path, f"{path}.old"])
        assert result.exit_code == 1
        assert "Device or resource busy" in result.stderr
    assert tree(repo) == before


@pytest.mark.parametrize("where", [".", "vendor/sub"])
async def test_copy_and_swap_plants_no_hook(repo, where):
    before = tree(repo)
    async with BubblewrapWorkspace(repo) as workspace:
        await workspace.run(
            f"cd {where}; cp -a .git copy && echo evil > copy/hooks/pre-commit;"
            "mv .git old; mv -T copy .git; rm -rf .git; cp -a copy/. .git/;"
            f"ln -sfn copy .git; rm -rf copy; echo evil > {HOOK}"
        )
    assert tree(repo) == before


async def test_nested_repositories_are_held(repo):
    before = tree(repo)
    async with BubblewrapWorkspace(repo) as workspace:
        result = await workspace.run(f"echo evil > vendor/sub/{HOOK}")
        assert "Read-only file system" in result.stderr
    assert tree(repo) == before


async def test_the_pointer_of_a_worktree_is_held(tmp_path):
    pointer = tmp_path / "work/.git"
    pointer.parent.mkdir()
    pointer.write_text("gitdir: /somewhere\n")
    async with BubblewrapWorkspace(tmp_path) as workspace:
        result = await workspace.run(
            "cd work; echo 'gitdir: /workspace/evil' > .git; rm -f .git; mv .git x;"
            "echo 'gitdir: evil' > new; mv -f new .git; true"
        )
        assert "Read-only file system" in result.stderr
        assert "Device or resource busy" in result.stderr
    assert pointer.read_text() == "gitdir: /somewhere\n"


async def test_a_hook_that_file_operations_write_is_refused(repo):
    before = tree(repo)
    async with BubblewrapWorkspace(repo) as workspace:
        with pytest.raises(OSError, match="hooks"):
            await workspace.write(HOOK, "evil")
        with pytest.raises(OSError, match=r"\.git"):
            await workspace.remove(".git", recursive=True)
    assert tree(repo) == before


async def test_restore_leaves_what_is_held(repo):
    async with BubblewrapWorkspace(repo) as workspace:
        await workspace.write("file", "old")
        snapshot = await workspace.snapshot()
        (repo / HOOK).write_text("the user's, made since")
        await workspace.write("file", "new")
        await workspace.restore(snapshot)
        assert (await workspace.run(["cat", "file"])).stdout == "old"
    assert (repo / HOOK).read_text() == "the user's, made since"
    assert (repo / "vendor/sub/.git/config").read_text() == "[core]\n"


async def test_a_directory_on_the_path_is_held(tmp_path, monkeypatch):
    tool = tmp_path / "venv/bin/tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("theirs")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tool.parent}")
    async with BubblewrapWorkspace(tmp_path) as workspace:
        result = await workspace.run(
            "echo evil > venv/bin/tool; echo evil > venv/bin/ls; mv venv other; true"
        )
        assert result.stderr.count("Read-only file system") == 2
        assert "Device or resource busy" in result.stderr
    assert tree(tmp_path) == {"venv": "/", "venv/bin": "/", "venv/bin/tool": "theirs"}


async def test_unprotected_names_can_be_written(repo):
    (repo / ".envrc").write_text("theirs")
    async with BubblewrapWorkspace(repo, unprotected=[".git", ".zed"]) as workspace:
        await workspace.run(f"echo mine > {HOOK}; mkdir .zed; echo evil > .envrc")
    assert (repo / HOOK).read_text() == "mine\n"
    assert (repo / "vendor/sub/.git/config").is_file()
    assert (repo / ".zed").is_dir()
    assert (repo / ".envrc").read_text() == "theirs"
    assert not aside(repo, ".zed")


# -- what is absent ------------------------------------------------------------


async def test_absent_names_cannot_be_made(tmp_path):
    async with BubblewrapWorkspace(tmp_path) as workspace:
        for name in sorted(ABSENT):
            result = await workspace.run(
                f"echo evil > {name}; echo evil > {name}/x; rmdir {name};"
                f"mv {name} away; echo evil > file; mv -fT file {name}"
            )
            assert result.exit_code != 0
            assert "Read-only file system" in result.stderr
        await workspace.run(["rm", "-f", "file"])
    assert os.listdir(tmp_path) == []


async def test_absent_names_below_new_directories_are_put_aside(tmp_path):
    async with BubblewrapWorkspace(tmp_path) as workspace:
        await workspace.run(
            "mkdir -p new/.claude new/deep/.vscode; echo s > new/.claude/settings;"
            "echo t > new/deep/.vscode/tasks; echo e > new/.envrc; echo b > .bashrc"
        )
    assert not [path for path in tree(tmp_path) if Path(path).name in ABSENT]
    [settings] = aside(tmp_path / "new", ".claude")
    assert (settings / "settings").read_text() == "s\n"
    [tasks] = aside(tmp_path / "new/deep", ".vscode")
    assert (tasks / "tasks").read_text() == "t\n"
    [envrc] = aside(tmp_path / "new", ".envrc")
    assert envrc.read_text() == "e\n"
    [bashrc] = aside(tmp_path, ".bashrc")
    assert bashrc.read_text() == "b\n"


@pytest.mark.skipif(not os.path.exists("/usr/bin/git"), reason="needs git")
async def test_a_new_repository_is_put_aside_with_all_in_it(tmp_path):
    async with BubblewrapWorkspace(tmp_path) as workspace:
        result = await workspace.run(
            "git init -q new && cd new && echo x > file && git add . &&"
            "git -c user.name=a -c user.email=b commit -qm first"
        )
        assert result.exit_code == 0, result.stderr
    assert not (tmp_path / "new/.git").exists()
    [kept] = aside(tmp_path / "new", ".git")
    log = subprocess.run(
        ["/usr/bin/git", "--git-dir", kept, "log", "--format=%s"],
        capture_output=True,
        text=True,
        check=True,
        env={"GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(tmp_path)},
    )
    assert log.stdout == "first\n"


@pytest.mark.parametrize("where", [".", "sub"])
async def test_a_directory_that_git_would_take_for_a_repository_is_undone(
    tmp_path, where
):
    async with BubblewrapWorkspace(tmp_path) as workspace:
        await workspace.run(
            f"mkdir -p {where}; cd {where}; mkdir objects refs; echo r > HEAD;"
            "printf '[core]\\n\\tfsmonitor = touch /tmp/evil\\n' > config"
        )
    place = tmp_path / where
    assert not (place / "HEAD").exists()
    [head] = aside(place, "HEAD")
    assert head.read_text() == "r\n"
    assert (place / "config").is_file()


async def test_stand_ins_go_and_the_users_own_stay(tmp_path):
    (tmp_path / ".vscode").mkdir()
    async with BubblewrapWorkspace(tmp_path):
        assert set(os.listdir(tmp_path)) == ABSENT
    assert os.listdir(tmp_path) == [".vscode"]


HOST = """
import asyncio, sys
from isobox import BubblewrapWorkspace

async def main():
    async with BubblewrapWorkspace(sys.argv[1]):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_stand_ins_of_a_killed_host_go_when_the_next_starts(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOST, tmp_path], stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "ready\n"
        host.send_signal(signal.SIGKILL)
    assert set(os.listdir(tmp_path)) == ABSENT
    with anyio.fail_after(PATIENCE):
        # Its processes may hold the record a moment longer than it lived.
        while os.listdir(tmp_path):
            stand_ins.sweep()
            await anyio.sleep(0.01)


@pytest.mark.timeout(300)
async def test_sandboxes_that_share_a_directory_never_lose_what_is_held(tmp_path):
    async def one() -> None:
        for _ in range(25):
            async with BubblewrapWorkspace(tmp_path) as workspace:
                result = await workspace.run(
                    "mkdir .claude; echo evil > .claude/x; rmdir .vscode; touch .git/x"
                )
                assert result.exit_code != 0
                assert "evil" not in result.stderr
                assert not (tmp_path / ".claude/x").exists()
                assert (tmp_path / ".vscode").is_dir()

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(one)
    assert os.listdir(tmp_path) == []


async def test_a_start_while_another_closes_makes_its_own_stand_ins(
    tmp_path, monkeypatch
):
    first = os.open(tmp_path, os.O_RDONLY)
    other = stand_ins.StandIns(first, ABSENT)
    take = stand_ins._shared

    def after_the_other_closed(record: str) -> int:
        other.release()
        return take(record)

    monkeypatch.setattr(stand_ins, "_shared", after_the_other_closed)
    async with BubblewrapWorkspace(tmp_path) as workspace:
        assert set(os.listdir(tmp_path)) == ABSENT
        assert (await workspace.run("touch .vscode/x")).exit_code == 1
    os.close(first)
    assert os.listdir(tmp_path) == []


# -- links ---------------------------------------------------------------------

LINKS = {
    "dangling": "nothing/there",
    "outside": "/etc/hostname",
    "directory": "data",
    "circle": ".vscode",
    "above": "../..",
}


@pytest.mark.parametrize("target", LINKS.values(), ids=LINKS)
async def test_a_link_in_the_place_of_a_name_starts_and_is_put_back(tmp_path, target):
    (tmp_path / "data").mkdir()
    names = (".git", ".vscode", ".envrc", ".bashrc", "data/.claude")
    for name in names:
        (tmp_path / name).symlink_to(target)
    before = tree(tmp_path)
    async with BubblewrapWorkspace(tmp_path) as workspace:
        assert (await workspace.run(["true"])).exit_code == 0
        for name in names:
            await workspace.run(f"rm -f {name}; mkdir {name} && echo evil > {name}/x")
    after = tree(tmp_path)
    assert {path: after[path] for path in before} == before
    assert not [path for path in after if path.split("/")[0] in ABSENT - set(names)]
    for name in names:
        for kept in aside((tmp_path / name).parent, Path(name).name):
            assert (kept / "x").read_text() == "evil\n"


@pytest.mark.parametrize("target", ["real", "./real", "data/../real", "{}/real"])
async def test_what_a_link_leads_to_is_held(tmp_path, target):
    (tmp_path / "data").mkdir()
    (tmp_path / "real").write_text("theirs")
    (tmp_path / ".envrc").symlink_to(target.format(tmp_path))
    async with BubblewrapWorkspace(tmp_path) as workspace:
        await workspace.run("echo evil > real; rm -f real; mv real x; ln -sf x real")
    assert (tmp_path / "real").read_text() == "theirs"


async def test_what_a_link_leads_to_by_another_link_is_held(tmp_path):
    (tmp_path / "real").write_text("theirs")
    (tmp_path / "between").symlink_to("real")
    (tmp_path / ".envrc").symlink_to("between")
    async with BubblewrapWorkspace(tmp_path) as workspace:
        await workspace.run("echo evil > real; echo evil > evil; ln -sf evil between")
    assert (tmp_path / ".envrc").read_text() == "theirs"


# -- what the host does meanwhile ----------------------------------------------


@pytest.mark.parametrize("mode", [0o644, 0o444], ids=oct)
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_a_held_file_that_the_host_replaces_ends_the_sandbox(repo, mode, busy):
    async with BubblewrapWorkspace(repo) as workspace:
        if busy:
            await workspace.start(["sleep", "60"])
        (repo / "new").write_text("by rename, as git writes it")
        (repo / "new").chmod(mode)
        (repo / "new").rename(repo / ".gitmodules")
        error = await until_lost(workspace)
        assert "the host replaced or removed '/workspace/.gitmodules'" in str(error)
    assert (repo / ".gitmodules").read_text() == "by rename, as git writes it"


async def test_a_link_cannot_pose_as_what_the_host_replaced(repo):
    (repo / "spare").symlink_to("/usr")
    async with BubblewrapWorkspace(repo) as workspace:
        (repo / "spare").rename(repo / ".gitmodules")
        assert ".gitmodules" in str(await until_lost(workspace))


async def test_a_held_directory_that_the_host_moves_ends_the_sandbox(repo):
    async with BubblewrapWorkspace(repo) as workspace:
        await workspace.run(["true"])
        (repo / ".git").rename(repo / "moved")
        (repo / ".git").mkdir()
        assert "'/workspace/.git'" in str(await until_lost(workspace))


async def test_without_proc_names_are_held_and_watched_too(repo, monkeypatch):
    monkeypatch.setattr(ladder, "RUNGS", ("no_proc",))
    async with BubblewrapWorkspace(repo, min_isolation="no_proc") as workspace:
        result = await workspace.run("touch .git/x .vscode/x")
        assert result.stderr.count("Read-only file system") == 2
        (repo / ".git").rename(repo / "moved")
        assert "'/workspace/.git'" in str(await until_lost(workspace))


async def test_a_stand_in_that_the_host_removes_ends_the_sandbox(tmp_path):
    async with BubblewrapWorkspace(tmp_path) as workspace:
        await workspace.run(["true"])
        (tmp_path / ".vscode").rmdir()
        assert "'/workspace/.vscode'" in str(await until_lost(workspace))
    assert os.listdir(tmp_path) == []


async def test_a_repository_that_the_host_makes_meanwhile_is_kept(tmp_path):
    async with BubblewrapWorkspace(tmp_path) as workspace:
        (tmp_path / ".git/hooks").mkdir()
        (tmp_path / HOOK).write_text("the user's")
        assert (await workspace.run(f"echo evil > {HOOK}")).exit_code == 1
    assert (tmp_path / HOOK).read_text() == "the user's"
    assert os.listdir(tmp_path) == [".git"]


# -- what cannot be held -------------------------------------------------------


async def test_a_held_file_with_another_name_is_refused(tmp_path):
    (tmp_path / "other").write_text("theirs")
    os.link(tmp_path / "other", tmp_path / ".envrc")
    with pytest.raises(InvalidArgumentError, match=r"'\.envrc'.*hard links"):
        await BubblewrapWorkspace(tmp_path).initialize()
    assert sorted(os.listdir(tmp_path)) == [".envrc", "other"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's files run as root")
async def test_a_set_id_file_is_refused_to_root(tmp_path):
    (tmp_path / "deep").mkdir()
    program = tmp_path / "deep/program"
    program.write_text("theirs")
    program.chmod(0o4755)
    with pytest.raises(InvalidArgumentError, match=r"'deep/program' runs as its owner"):
        await BubblewrapWorkspace(tmp_path).initialize()
    assert os.listdir(tmp_path) == ["deep"]


def _as_nobody(root: int) -> str:
    """Return what a survey says to somebody without rights."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            if os.geteuid() == 0:
                os.setresuid(65534, 65534, 65534)
            try:
                protect.survey(root, frozenset())
            except InvalidArgumentError as error:
                os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


def test_a_directory_that_its_user_cannot_read_is_refused(tmp_path):
    closed = tmp_path / "deep/closed"
    closed.mkdir(parents=True)
    closed.chmod(0)
    root = os.open(tmp_path, os.O_RDONLY)
    tmp_path.chmod(0o755)
    try:
        assert "'deep/closed' cannot be read" in _as_nobody(root)
    finally:
        closed.chmod(0o700)
        os.close(root)


@pytest.mark.parametrize("where", [".", "deep", ".git", "deep/.git"])
async def test_sockets_of_the_host_are_not_connected_to(
    tmp_path_factory, where, monkeypatch
):
    top = tmp_path_factory.mktemp("s")
    (top / where).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(top)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{where}/agent.sock")
        server.listen()
        server.setblocking(False)
        Path(where, "agent.sock").chmod(0o777)
        async with BubblewrapWorkspace(top) as workspace:
            result = await workspace.run(
                ["python3", "-c", CONNECT, f"{where}/agent.sock"]
            )
            assert result.exit_code == 7, result.stderr
            await workspace.run(f"cd {where}; mv agent.sock x; rm -f agent.sock")
        with pytest.raises(BlockingIOError):
            server.accept()


CONNECT = """
import socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except OSError:
    sys.exit(7)
"""
