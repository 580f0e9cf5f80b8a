"""Private views: what is seen of them, and what comes to the host."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import TYPE_CHECKING

import pytest
from tests.descriptors import none_left_open

from isobox import BubblewrapWorkspace
from isobox._backends.bubblewrap import copy
from isobox._core.ops import Apply, Diff
from isobox._linux import trees
from isobox.errors import (
    ArchiveError,
    ConflictError,
    IsoboxError,
    PathOutsideError,
    SandboxLostError,
    StorageError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

SECRET = "a secret of the host"
TREE = {
    "README": "one\ntwo\n",
    "src/main.py": "print(1)\n",
    "src/deep/down/file": "deep\n",
    "tool": "#!/bin/sh\n",
}


@pytest.fixture(params=["overlay", "copy"])
def mechanism(request, monkeypatch):
    if request.param == "copy":
        monkeypatch.setattr(copy, "refusal", lambda layer: "not in this test")
    return request.param


@pytest.fixture
def host(tmp_path):
    folder = tmp_path / "host"
    for name, text in TREE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "tool").chmod(0o755)
    (folder / "link").symlink_to("README")
    (tmp_path / "secret").write_text(SECRET)
    return folder


@pytest.fixture
async def workspace(host, mechanism):
    async with BubblewrapWorkspace(host, mode="copy") as opened:
        yield opened


def contents(folder) -> dict[str, object]:
    """Everything below a directory: text, where a link leads, or None."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        else:
            found[name] = path.read_text() if path.is_file() else None
    return found


async def changed(workspace) -> dict[str, str]:
    return {each.path: each.change for each in (await workspace.diff()).changes}


# -- seeing what changed ------------------------------------------------------


async def test_the_mechanism_is_named(workspace, mechanism):
    said = workspace.isolation().file_system.mechanism
    names = {"overlay": ["overlayfs"], "copy": ["a copy", "reflinks"]}[mechanism]
    assert any(f"private view of the directory by {name}" in said for name in names)
    assert ("not in this test" in said) == (mechanism == "copy")


async def test_nothing_has_changed_at_first(workspace, host):
    before = contents(host)
    assert (await workspace.diff()).changes == ()
    assert (await workspace.apply()).changes == ()
    assert contents(host) == before


async def test_the_view_is_what_the_directory_is(workspace, host):
    found = await workspace.run("cat README src/deep/down/file; readlink link; ./tool")
    assert found.stdout == "one\ntwo\ndeep\nREADME\n"
    assert (await workspace.stat("tool")).mode == 0o755
    there = (host / "README").stat().st_mtime_ns
    assert (await workspace.stat("README")).mtime_ns == there


async def test_the_directory_is_untouched_until_apply(workspace, host):
    before = contents(host)
    await workspace.run("echo x >> README; rm -r src; mkdir new; rm link", check=True)
    assert contents(host) == before


async def test_a_diff_names_every_path(workspace):
    script = """
        echo three >> README; rm src/main.py; mkdir new; echo n > new/file
        ln -sfn tool link; chmod 700 tool; rm -r src/deep; mkdir src/deep
        echo other > src/deep/other; touch -d @1 src/deep
    """
    await workspace.run(script, check=True)
    assert await changed(workspace) == {
        "README": "modified",
        "link": "modified",
        "new": "added",
        "new/file": "added",
        "src/deep/down": "removed",
        "src/deep/down/file": "removed",
        "src/deep/other": "added",
        "src/main.py": "removed",
        "tool": "modified",
    }


async def test_a_diff_is_a_patch(workspace):
    await workspace.run("echo three >> README; printf new > new", check=True)
    assert str(await workspace.diff()) == (
        "--- a/README\n+++ b/README\n@@ -1,2 +1,3 @@\n one\n two\n+three\n"
        "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+new\n"
        "\\ No newline at end of file\n"
    )


async def test_a_diff_says_what_is_binary(workspace):
    await workspace.write("README", b"\0\1")
    await workspace.write("large", b"x" * 300_000)
    assert str(await workspace.diff()) == (
        "modified file README (2 bytes)\n"
        "added file large (300000 bytes; mode 0644)\n"
        "Binary files a/README and b/README differ\n"
        "Binary files /dev/null and b/large differ\n"
    )


async def test_a_name_cannot_look_like_lines_of_a_patch(workspace):
    await workspace.write("x\n+++ b/y", b"text\n")
    assert '+++ "b/x\\n+++ b/y"\n' in str(await workspace.diff())


async def test_a_change_that_keeps_size_and_time_is_seen(workspace):
    script = "stamp=$(stat -c %y README); printf 'ONE\\ntwo\\n' > README; "
    await workspace.run(script + 'touch -d "$stamp" README', check=True)
    assert await changed(workspace) == {"README": "modified"}


async def test_what_is_as_it_was_is_no_change(workspace):
    await workspace.run(
        "cp README copy; rm README; mv copy README; touch tool; echo >> link; "
        "printf 'one\\ntwo\\n' > README; rm -r src/deep; mkdir -p src/deep/down; "
        "echo deep > src/deep/down/file",
        check=True,
    )
    assert await changed(workspace) == {}


async def test_notes_of_the_kernel_cannot_be_forged(workspace, host):
    script = """
import os
for name in ("user.overlay.opaque", "trusted.overlay.opaque", "user.overlay.whiteout"):
    for path in ("src", "README"):
        try:
            os.setxattr(path, name, b"y")
        except OSError:
            pass
try:
    os.mknod("whiteout", 0o20666, 0)
except OSError:
    pass
"""
    await workspace.run(["python3", "-c", script], check=True)
    await workspace.write("src/new", b"")
    found = {each.path: each for each in (await workspace.diff()).changes}
    # The kernel lets anybody make this device, which is none.
    device = found.pop("whiteout", None)
    assert device is None or device.refused == "it is a device"
    assert list(found) == ["src/new"]


# -- bringing it to the host --------------------------------------------------


async def test_apply_makes_the_directory_what_the_view_is(workspace, host):
    script = """
        echo three >> README; rm src/main.py; mkdir -p new/deep; echo n > new/deep/file
        ln -sfn tool link; chmod 700 tool; rm -r src/deep; echo flat > src/deep
        touch -d @1000000000 README new/deep; chmod 555 new/deep
        ln -s ../README src/up; rm -f gone
    """
    await workspace.run(script, check=True)
    before = await workspace.diff()
    assert (await workspace.apply()) == before
    assert contents(host) == {
        "README": "one\ntwo\nthree\n",
        "link": ("link", "tool"),
        "new": None,
        "new/deep": None,
        "new/deep/file": "n\n",
        "src": None,
        "src/deep": "flat\n",
        "src/up": ("link", "../README"),
        "tool": "#!/bin/sh\n",
    }
    assert (host / "README").stat().st_mtime == 10**9
    assert (host / "new/deep").stat().st_mtime == 10**9
    assert stat.S_IMODE((host / "new/deep").stat().st_mode) == 0o555
    assert stat.S_IMODE((host / "tool").stat().st_mode) == 0o700
    (host / "new/deep").chmod(0o755)


async def test_what_comes_belongs_to_the_owner_of_the_directory(tmp_path, mechanism):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    folder = tmp_path / "owned"
    folder.mkdir(mode=0o700)
    os.chown(folder, 4321, 4322)
    async with BubblewrapWorkspace(folder, mode="copy") as workspace:
        await workspace.run("mkdir d; echo x > d/f; ln -s f d/l", check=True)
        await workspace.apply()
    for name in ("d", "d/f", "d/l"):
        found = (folder / name).lstat()
        assert (found.st_uid, found.st_gid) == (4321, 4322)


async def test_files_of_others_stay_closed(host, mechanism):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    (host / "other").write_text(SECRET)
    (host / "other").chmod(0o600)
    os.chown(host / "other", 4321, 4322)
    async with BubblewrapWorkspace(host, mode="copy") as workspace:
        found = await workspace.run("cat other; stat -c %u other")
        assert found.stdout == "65534\n"


async def test_after_apply_work_goes_on(workspace, host):
    await workspace.run("echo 1 > new; rm tool; rm -r src", check=True)
    await workspace.apply()
    assert await changed(workspace) == {}
    await workspace.run("echo 2 > new; mkdir src; echo t > tool", check=True)
    assert await changed(workspace) == {
        "new": "modified",
        "src": "added",
        "tool": "added",
    }
    await workspace.apply()
    assert await changed(workspace) == {}
    assert (host / "new").read_text() == "2\n"
    assert (host / "tool").read_text() == "t\n"


async def test_nothing_else_is_left_in_the_directory(workspace, host):
    await workspace.run("echo x > README; rm tool", check=True)
    await workspace.apply()
    assert sorted(os.listdir(host)) == ["README", "link", "src"]


async def test_only_some_paths(workspace, host):
    script = "echo x > README; mkdir -p a/b a/c; echo 1 > a/b/f; echo 2 > a/c/f"
    await workspace.run(script, check=True)
    done = await workspace.apply(["a/b", "/workspace/nothing"])
    assert [change.path for change in done.changes] == ["a", "a/b", "a/b/f"]
    assert not (host / "a/c").exists()
    assert await changed(workspace) == {
        "README": "modified",
        "a/c": "added",
        "a/c/f": "added",
    }
    with pytest.raises(PathOutsideError):
        await workspace.apply(["../secret"])


async def test_holes_stay_holes(workspace, host):
    await workspace.run("truncate -s 10G sparse; echo x >> sparse", check=True)
    await workspace.apply()
    found = (host / "sparse").stat()
    assert found.st_size == 10 * 1024**3 + 2
    assert found.st_blocks * 512 < 1024**2


REFUSED = {
    "git": ("mkdir -p .git/hooks; echo x > .git/hooks/pre-commit", ".git is protected"),
    "nested": ("mkdir -p src/.GIT; echo x > src/.GIT/config", ".git is protected"),
    "editor": ("mkdir .vscode; echo x > .vscode/tasks.json", ".vscode is protected"),
    "rc": ("echo x > .bashrc", ".bashrc is protected"),
    "absolute": ("ln -s /etc/passwd out", "the link leaves the directory"),
    "climbing": ("ln -s ../../secret src/out", "the link leaves the directory"),
    "roundabout": ("ln -s src/../../secret out", "the link leaves the directory"),
    "chained": ("ln -s . a; ln -s a/../x b", "the link leaves the directory"),
    "replaced": ("ln -sfn ../secret link", "the link leaves the directory"),
    "swap": ("rm -r src; ln -s . src", "a link would take a directory's place"),
    "fifo": ("mkfifo pipe", "it is a fifo"),
    "socket": (
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
        "it is a socket",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_apply_refuses(case, workspace, host):
    script, reason = REFUSED[case]
    before = contents(host)
    await workspace.run(script + "; echo fine > fine", check=True)
    refused = [each for each in (await workspace.diff()).changes if each.refused]
    assert reason in {each.refused for each in refused}
    with pytest.raises(ArchiveError, match=reason):
        await workspace.apply()
    assert contents(host) == before
    done = await workspace.apply(skip_refused=True)
    assert "fine" in [each.path for each in done.changes]
    left = contents(host)
    assert left.pop("fine") == "fine\n"
    for name in ("a", "src/deep"):
        left.pop(name, None), before.pop(name, None)
    assert {name: left[name] for name in before} == before
    assert (host.parent / "secret").read_text() == SECRET


async def test_a_link_through_the_hosts_own_link_is_refused(host, mechanism):
    (host / "out").symlink_to(host.parent)
    async with BubblewrapWorkspace(host, mode="copy") as workspace:
        await workspace.run("ln -s out/secret stolen", check=True)
        with pytest.raises(ArchiveError, match="stolen: the link leaves"):
            await workspace.apply()


async def test_set_id_bits_are_refused(workspace, host):
    await workspace.run("cp /bin/true program", check=True)
    # The filter keeps commands from setting them; a hole in it must not matter.
    layer = workspace._sandbox._private.layer
    os.chmod("program", 0o4755, dir_fd=layer)
    with pytest.raises(ArchiveError, match="set-user-id"):
        await workspace.apply()
    assert not (host / "program").exists()


async def test_unprotected_names_may_come(host, mechanism):
    async with BubblewrapWorkspace(host, mode="copy", unprotected=[".git"]) as ws:
        await ws.run("mkdir .git .vscode; echo x > .git/config", check=True)
        done = await ws.apply(skip_refused=True)
        assert [each.path for each in done.changes] == [".git", ".git/config"]


async def test_a_directory_that_holds_what_is_protected_is_not_removed(host, mechanism):
    (host / "sub/.git").mkdir(parents=True)
    (host / "sub/.git/config").write_text("kept")
    (host / "sub/file").write_text("gone")
    async with BubblewrapWorkspace(host, mode="copy") as workspace:
        await workspace.run("rm -r sub", check=True)
        with pytest.raises(ArchiveError, match="sub: it holds what may not be removed"):
            await workspace.apply()
        await workspace.apply(skip_refused=True)
    assert contents(host / "sub") == {".git": None, ".git/config": "kept"}


# -- conflicts ----------------------------------------------------------------

CONFLICTS = {
    "both wrote": ("echo agent > README", "README", "user"),
    "same size": ("echo agent > README", "README", "ONE\ntwo\n"),
    "both added": ("echo agent > new", "new", "user"),
    "removed there": ("echo agent > README", "README", None),
    "removed here": ("rm README", "README", "user"),
    "a file below": ("rm -r src", "src/late", "user"),
}


@pytest.mark.parametrize("case", CONFLICTS)
async def test_a_file_that_the_user_changed_is_kept(case, workspace, host):
    script, name, text = CONFLICTS[case]
    await workspace.run(script, check=True)
    if text is None:
        (host / name).unlink()
    else:
        (host / name).write_text(text)
    before = contents(host)
    with pytest.raises(ConflictError, match="nothing was changed"):
        await workspace.apply()
    assert contents(host) == before


async def test_what_the_user_changed_elsewhere_is_no_conflict(workspace, host):
    await workspace.run("echo agent > README; rm src/main.py", check=True)
    (host / "tool").write_text("user")
    (host / "src/late").write_text("user")
    await workspace.apply()
    assert (host / "README").read_text() == "agent\n"
    assert (host / "tool").read_text() == "user"
    assert (host / "src/late").read_text() == "user"


async def test_a_failure_in_the_middle_is_undone(workspace, host, monkeypatch):
    script = """
        echo agent > README; mkdir a; echo 1 > a/f; rm -r src; ln -sfn tool link
        echo last > zzz; chmod 700 tool
    """
    await workspace.run(script, check=True)
    before = contents(host)
    real = trees.rename_new

    def failing(old, new):
        if new[1] == "zzz":
            raise OSError(28, "No space left on device")
        real(old, new)

    monkeypatch.setattr(trees, "rename_new", failing)
    with pytest.raises(StorageError, match=r"'zzz': No space left .* nothing was"):
        await workspace.apply()
    assert contents(host) == before
    assert stat.S_IMODE((host / "tool").stat().st_mode) == 0o755
    monkeypatch.undo()
    await workspace.apply()
    assert (host / "zzz").read_text() == "last\n"
    assert not (host / "src").exists()


async def test_a_file_system_without_exchange_will_do(workspace, host, monkeypatch):
    await workspace.run("echo agent > README; echo new > new", check=True)
    monkeypatch.setattr(trees, "_renamed", lambda old, new, flags: False)
    await workspace.apply()
    assert (host / "README").read_text() == "agent\n"
    assert (host / "new").read_text() == "new\n"


async def test_a_change_in_the_last_moment_is_kept(workspace, host, monkeypatch):
    await workspace.run("echo agent > README", check=True)
    real = trees.exchange

    def late(one, other):
        (host / "README").write_text("the user's last word")
        return real(one, other)

    monkeypatch.setattr(trees, "exchange", late)
    with pytest.raises(ConflictError):
        await workspace.apply()
    assert (host / "README").read_text() == "the user's last word"


# -- throwing away, and the rest of life --------------------------------------


async def test_discard_brings_back_what_the_directory_is(workspace, host):
    await workspace.run("rm -r src README; echo x > new; touch /tmp/x", check=True)
    running = await workspace.start(["sleep", "1000"])
    (host / "tool").write_text("by the user meanwhile")
    await workspace.discard()
    with pytest.raises(SandboxLostError, match="discarded"):
        await running.wait()
    assert await changed(workspace) == {}
    assert (await workspace.run("cat src/main.py tool; ls /tmp")).stdout == (
        "print(1)\nby the user meanwhile"
    )
    await workspace.run("echo again > new", check=True)
    assert await changed(workspace) == {"new": "added"}


async def test_a_snapshot_can_be_restored_after_discard(workspace):
    await workspace.run("echo kept > new; rm tool", check=True)
    saved = await workspace.snapshot()
    await workspace.discard()
    await workspace.restore(saved)
    assert await changed(workspace) == {"new": "added", "tool": "removed"}


async def test_restore_to_the_beginning_leaves_no_change(workspace):
    saved = await workspace.snapshot()
    await workspace.run("rm -r src; mkdir src; echo x > README; ln -s x y", check=True)
    await workspace.restore(saved)
    assert await changed(workspace) == {}


async def test_nothing_is_left_behind(host, mechanism, tmp_path, monkeypatch):
    place = tmp_path / "temporary"
    place.mkdir(mode=0o711)
    tmp_path.chmod(0o711)
    monkeypatch.setattr("tempfile.tempdir", str(place))
    with none_left_open():
        async with BubblewrapWorkspace(host, mode="copy") as workspace:
            await workspace.run(
                "d=; for i in $(seq 300); do mkdir d; cd d; done; chmod 0 .;"
                "cd /workspace; mkdir closed; echo x > closed/f; chmod 0 closed",
            )
            await workspace.diff()
            await workspace.discard()
            await workspace.run("echo x > closed")
            assert list(place.glob("isobox-*"))
    assert list(place.glob("isobox-*")) == []


async def test_deep_trees_are_compared_and_removed(workspace):
    script = """
import os
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
"""
    await workspace.run(["python3", "-c", script], check=True)
    changes = (await workspace.diff()).changes
    assert changes[0].path == "d"
    assert changes[-1].refused == "its path is too long"
    with pytest.raises(ArchiveError, match="its path is too long"):
        await workspace.apply()


async def test_live_workspaces_have_no_view(host):
    async with BubblewrapWorkspace(host) as workspace:
        for call in (workspace.diff, workspace.apply, workspace.discard):
            with pytest.raises(UnsupportedError, match='mode="copy"'):
                await call()


# -- races --------------------------------------------------------------------

FLIPPER = """
import os, socket
secret, canary = "../../../secret", "../../../canary"
os.makedirs("race/inner", exist_ok=True)
def write(path):
    with open(path, "w") as file:
        file.write("harmless")
def quiet(call, *arguments):
    try:
        call(*arguments)
    except OSError:
        pass
step = 0
while True:
    step += 1
    for name in ("race/file", "README"):
        quiet(write, name + ".new")
        quiet(os.rename, name + ".new", name)
        quiet(os.symlink, secret, name + ".new")
        quiet(os.rename, name + ".new", name)
        quiet(os.symlink, canary, name + ".new")
        quiet(os.rename, name + ".new", name)
        quiet(os.unlink, name)
        quiet(os.mkfifo, name)
        quiet(os.unlink, name)
    quiet(write, "race/inner/file")
    quiet(os.rename, "race/inner", "race/away")
    quiet(os.symlink, "../..", "race/inner")
    quiet(os.unlink, "race/inner")
    quiet(os.symlink, "/", "race/inner")
    quiet(os.unlink, "race/inner")
    quiet(os.rename, "race/away", "race/inner")
    quiet(os.mkdir, "race/inner")
"""


@pytest.mark.timeout(180)
async def test_flipping_names_leads_nowhere(host, mechanism, tmp_path):
    canary = host.parent.parent / "canary"
    for folder in (host.parent, host.parent.parent):
        (folder / "secret").write_text(SECRET)
        (folder / "canary").write_text("alive")
    target = tmp_path / "downloaded"
    seen: list[str] = []
    rounds = 0
    async with BubblewrapWorkspace(host, mode="copy") as workspace:
        for _ in range(2):
            await workspace.start(["python3", "-c", FLIPPER])
        until = time.monotonic() + 10
        while rounds < 4 or time.monotonic() < until:
            rounds += 1
            seen.append(str(await workspace.diff()))
            with contextlib.suppress(IsoboxError):
                await workspace.apply(skip_refused=True)
            with contextlib.suppress(IsoboxError):
                await workspace.download("race", target)
    assert SECRET not in "".join(seen)
    for folder in (host, target):
        check_confined(folder)
    for folder in (host.parent, host.parent.parent):
        assert (folder / "secret").read_text() == SECRET
        assert (folder / "canary").read_text() == "alive"
    assert canary.read_text() == "alive"


def check_confined(folder: Path) -> None:
    for path in folder.rglob("*"):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            assert path.resolve().is_relative_to(folder.resolve())
        elif stat.S_ISREG(found.st_mode):
            assert SECRET not in path.read_text()
        else:
            assert stat.S_ISDIR(found.st_mode)


# -- what is said of names ------------------------------------------------------------


async def test_a_refused_name_forges_no_line_and_reaches_no_terminal(workspace):
    await workspace.run("ln -s /etc/passwd $'bad\\n  fine: \\e[31m'", check=True)
    with pytest.raises(ArchiveError) as caught:
        await workspace.apply()
    assert "\x1b" not in str(caught.value)
    assert r'"bad\n  fine: \u001b[31m": ' in str(caught.value)


async def test_neither_does_one_in_conflict(workspace, host):
    name = "bad\n\x1b[31m"
    await workspace.write(name, b"theirs")
    (host / name).write_text("ours")
    with pytest.raises(ConflictError) as caught:
        await workspace.apply()
    assert "\x1b" not in str(caught.value)
    assert r'"bad\n\u001b[31m"' in str(caught.value)


# -- what a person has seen --------------------------------------------------------


@pytest.fixture
def bound(mechanism, host):
    return BubblewrapWorkspace(host, mode="copy")


async def seen(workspace, paths=None):
    return (await workspace._do(Diff(paths=paths, digest=True))).changes


TURNS = {
    "content": "echo evil > README",
    "content of the same size": "printf 'TWO\ntwo\n' > README",
    "binary": "printf '\\0\\2' > binary",
    "mode": "chmod 755 README",
    "more": "echo x > more",
    "less": "rm new/file",
    "other kind": "rm README; ln -s tool README",
    "where a link leads": "ln -sfn tool made",
    "removed": "rm README",
}


@pytest.mark.parametrize("turn", TURNS)
async def test_only_what_was_shown_is_applied(bound, host, turn):
    async with bound as ws:
        script = "printf 'one\nTWO\n' > README; printf '\\0\\1' > binary; "
        script += "mkdir new; echo n > new/file; ln -s README made; rm src/main.py"
        await ws.run(script, check=True)
        shown, before = await seen(ws), contents(host)
        await ws.run(TURNS[turn], check=True)
        with pytest.raises(ConflictError, match="no longer those that were shown"):
            await ws._do(Apply(shown=shown))
        assert contents(host) == before
        await ws._do(Apply(shown=await seen(ws)))
        assert (await ws.diff()).changes == ()


async def test_what_is_copied_is_compared_and_not_what_is_there(bound, host):
    """The view changes between the comparison and the copying."""
    async with bound as ws:
        await ws.write("README", b"good\n")
        shown = await seen(ws)
        real = trees.copy_content

        def copy_content(source, target, **more):
            with open(f"/proc/self/fd/{source}", "r+b") as file:
                file.write(b"evil")
            return real(source, target, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trees, "copy_content", copy_content)
            with pytest.raises(ConflictError, match="README"):
                await ws._do(Apply(shown=shown))
            assert (host / "README").read_text() == TREE["README"]
            # Without a person it is what there is.
            await ws._do(Apply())
        assert (host / "README").read_text() == "evil\n"


async def test_what_is_chosen_is_shown_with_what_holds_it(bound, host):
    async with bound as ws:
        await ws.run("mkdir -p new/deep; touch new/deep/a new/deep/b .git", check=True)
        shown = await seen(ws, ("new/deep/a",))
        assert [each.path for each in shown] == ["new", "new/deep", "new/deep/a"]
        await ws.run("echo x > README", check=True)
        await ws._do(Apply(paths=("new/deep/a",), shown=shown))
        assert sorted(os.listdir(host / "new/deep")) == ["a"]
        everything = await seen(ws)
        assert [each.path for each in everything if each.refused] == [".git"]
        with pytest.raises(ArchiveError):
            await ws._do(Apply(shown=everything))
        await ws._do(Apply(shown=everything, skip_refused=True))
        assert (host / "README").read_text() == "x\n"


async def test_nothing_was_shown_and_nothing_is_applied(bound, host):
    async with bound as ws:
        await ws.write("README", b"new")
        with pytest.raises(ConflictError):
            await ws._do(Apply(shown=()))
    assert (host / "README").read_text() == TREE["README"]


async def test_a_file_that_is_mostly_holes_is_not_hashed_for_hours(bound):
    async with bound as ws:
        await ws.run("truncate -s 6T huge", check=True)
        began = time.monotonic()
        (change,) = await seen(ws)
        assert time.monotonic() - began < 20
        assert (change.size, change.digest) == (6 << 40, None)
