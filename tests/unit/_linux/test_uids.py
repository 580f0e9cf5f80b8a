from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from isobox._linux.uids import HOST_UIDS, UidRange
from isobox.errors import BackendUnavailableError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def three(tmp_path):
    return UidRange(base=5000, size=3, run=str(tmp_path.resolve()))


def test_two_leases_differ(three):
    with three.lease("a") as first, three.lease("a") as second:
        assert first.uid != second.uid
        assert {first.uid, second.uid} < {5000, 5001, 5002}


def test_a_workspace_gets_the_same_uid_when_it_is_free(three):
    first = three.lease("a")
    first.close()
    first.close()
    with three.lease("a") as second:
        assert second.uid == first.uid


def test_workspaces_start_in_different_places():
    with HOST_UIDS.lease("one") as one, HOST_UIDS.lease("two") as two:
        assert abs(one.uid - two.uid) > 1
        assert 0x70000000 <= one.uid < 0x70000000 + 65536


def locks(three):
    return os.listdir(f"{three.run}/isobox/uids")


def test_a_lease_that_has_ended_leaves_no_lock(three):
    with three.lease("a") as first:
        assert locks(three) == [str(first.uid - 5000)]
    assert locks(three) == []


def test_the_lock_of_the_next_is_not_removed(three):
    first = three.lease("a")
    name = str(first.uid - 5000)
    os.unlink(f"{three.run}/isobox/uids/{name}")
    with three.lease("a") as second:
        first.close()
        assert locks(three) == [name]
        assert second.uid == first.uid


def test_a_lock_that_was_just_removed_is_taken_anew(three, monkeypatch):
    place = f"{three.run}/isobox/uids"
    three.lease("a").close()
    opened = os.open

    def raced(name, *arguments, **options):
        fd = opened(name, *arguments, **options)
        if name.isdigit():
            monkeypatch.setattr(os, "open", opened)
            os.unlink(f"{place}/{name}")
        return fd

    monkeypatch.setattr(os, "open", raced)
    with three.lease("a") as lease:
        assert locks(three) == [str(lease.uid - 5000)]


def test_exhaustion_is_an_error(three):
    leases = [three.lease("x") for _ in range(3)]
    with pytest.raises(BackendUnavailableError, match="all 3 user ids"):
        three.lease("x")
    leases[1].close()
    with three.lease("x") as again:
        assert again.uid == leases[1].uid
    leases[0].close()
    leases[2].close()


def test_a_killed_process_leaves_its_uid_free(three):
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from isobox._linux.uids import UidRange
lease = UidRange(base=5000, size=1, run={three.run!r}).lease("x")
print(lease.uid, flush=True)
sys.stdin.read()
"""
    only = UidRange(base=5000, size=1, run=three.run)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"5000\n"
        with pytest.raises(BackendUnavailableError):
            only.lease("x")
        holder.send_signal(signal.SIGKILL)
    only.lease("x").close()


def test_close_ends_a_lease_that_a_forked_child_inherited(three):
    lease = three.lease("x")
    release_end, release = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(release)
        os.read(release_end, 1)
        os._exit(0)
    os.close(release_end)
    lease.close()
    with three.lease("x") as again:
        assert again.uid == lease.uid
    os.close(release)
    os.waitpid(pid, 0)


def test_the_locks_are_roots_alone(three, tmp_path):
    with three.lease("x"):
        assert (tmp_path / "isobox").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "isobox/uids").stat().st_mode & 0o777 == 0o700


def test_an_ordinary_user_gets_none(three):
    os.seteuid(65534)
    try:
        with pytest.raises(BackendUnavailableError, match="only root"):
            three.lease("x")
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("loosen", ["mode", "owner", "link", "file"])
def test_a_directory_that_others_control_is_refused(three, tmp_path, loosen):
    directory = tmp_path / "isobox"
    if loosen == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        directory.symlink_to(tmp_path / "elsewhere")
    elif loosen == "file":
        directory.touch()
    else:
        directory.mkdir(mode=0o700)
    if loosen == "mode":
        directory.chmod(0o755)
    if loosen == "owner":
        os.chown(directory, 65534, 65534)
    with pytest.raises(BackendUnavailableError, match="only root can enter"):
        three.lease("x")


def test_a_planted_link_is_not_followed(three, tmp_path):
    three.lease("x").close()
    target = tmp_path / "target"
    for index in range(3):
        lock = tmp_path / f"isobox/uids/{index}"
        lock.unlink(missing_ok=True)
        lock.symlink_to(target)
    with pytest.raises(BackendUnavailableError):
        three.lease("x")
    assert not target.exists()
