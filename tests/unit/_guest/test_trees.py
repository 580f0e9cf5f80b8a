"""Trees as tar streams, and the network inside."""

from __future__ import annotations

import io
import os
import socket
import stat
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from isobox._guest import agent

if TYPE_CHECKING:
    from tests.unit._guest.client import Answer, Guest


def pull(guest: Guest, path: Path) -> tarfile.TarFile:
    answer = guest.open("pull", path=bytes(path))
    guest.result(answer)
    return tarfile.open(fileobj=io.BytesIO(answer.bytes()), mode="r:")


def push(guest: Guest, path: Path, data: bytes, *, clear: bool = False) -> Answer:
    answer = guest.open("push", path=bytes(path), clear=clear)
    guest.data(answer, data, agent.BODY)
    guest.end(answer, agent.BODY)
    return guest.wait(answer)


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


@pytest.fixture
def tree(tmp_path):
    tree = tmp_path / "tree"
    (tree / "deep/er").mkdir(parents=True)
    (tree / "deep/er/f").write_bytes(os.urandom(300_000))
    (tree / "deep/er/f").chmod(0o750)
    (tree / "link").symlink_to("deep/er/f")
    (tree / "name\n\udcff").touch()
    os.link(tree / "deep/er/f", tree / "hard")
    os.utime(tree / "deep/er/f", (1000, 1234567890.5))
    return tree


def facts(tree: Path) -> dict[str, tuple]:
    found = {}
    for folder, folders, files in os.walk(tree):
        for name in folders + files:
            path = Path(folder, name)
            st = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(st.st_mode) else None
            target = os.readlink(path) if path.is_symlink() else None
            found[str(path.relative_to(tree))] = (st.st_mode, content, target)
    return found


def test_a_tree_comes_and_goes_unchanged(guest, tree, tmp_path):
    answer = guest.open("pull", path=bytes(tree))
    guest.result(answer)
    assert push(guest, tmp_path / "copy", answer.bytes()).result == {"count": 7}
    assert facts(tmp_path / "copy") == facts(tree)
    assert (tmp_path / "copy/deep/er/f").stat().st_mtime == pytest.approx(1234567890.5)


def test_devices_fifos_and_sockets_are_left_out(guest, tree):
    os.mkfifo(tree / "fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tree / "socket"))
        answer = guest.open("pull", path=bytes(tree))
        guest.result(answer)
    with tarfile.open(fileobj=io.BytesIO(answer.bytes())) as tar:
        names = tar.getnames()
    assert not {"./fifo", "./socket", "fifo", "socket"} & set(names)


def test_one_file_is_a_tree_of_its_own(guest, tree):
    with pull(guest, tree / "deep/er/f") as tar:
        assert tar.getnames() == ["f"]


def test_what_is_not_there_is_missing(guest, tmp_path):
    assert (
        guest.refusal(guest.open("pull", path=bytes(tmp_path / "absent"))) == "missing"
    )


def test_pushing_clears_only_if_asked(guest, tmp_path):
    data = archive((member("new"), b"x"))
    target = tmp_path / "to"
    (target / "old/deep").mkdir(parents=True)
    push(guest, target, data)
    assert sorted(os.listdir(target)) == ["new", "old"]
    push(guest, target, data, clear=True)
    assert os.listdir(target) == ["new"]


def test_set_id_bits_do_not_come(guest, tmp_path):
    push(guest, tmp_path / "to", archive((member("f", mode=0o6755), b"")))
    assert stat.S_IMODE((tmp_path / "to/f").stat().st_mode) == 0o755


def outside(tmp_path: Path) -> list[str]:
    return sorted(set(os.listdir(tmp_path)) - {"to"})


@pytest.mark.parametrize(
    "members",
    [
        [(member("/absolute"), b"x")],
        [(member("../up"), b"x")],
        [(member("a/../../up"), b"x")],
        [(member("l", tarfile.SYMTYPE, ".."), b""), (member("l/up"), b"x")],
        [(member("l", tarfile.SYMTYPE, "/tmp"), b""), (member("l/up"), b"x")],
        [
            (member("l", tarfile.SYMTYPE, ".."), b""),
            (member("l", tarfile.DIRTYPE), b""),
        ],
        [(member("h", tarfile.LNKTYPE, "../up"), b"")],
        [(member("fifo", tarfile.FIFOTYPE), b"")],
        [(member("dev", tarfile.CHRTYPE), b"")],
        [
            (member("x", tarfile.SYMTYPE, "."), b""),
            (member("y", tarfile.SYMTYPE, "x/.."), b""),
            (member("y/up"), b"x"),
        ],
    ],
)
def test_a_member_that_leaves_the_directory_is_refused(guest, tmp_path, members):
    answer = push(guest, tmp_path / "to", archive(*members))
    assert answer.error is not None
    assert answer.error["code"] == "archive"
    assert outside(tmp_path) == []


def test_a_refusal_of_a_long_name_is_short(guest, tmp_path):
    answer = push(guest, tmp_path / "to", archive((member("../" + "x" * 200_000), b"")))
    assert answer.error is not None
    assert len(answer.error["message"]) <= 500


def test_a_file_replaces_a_link_not_its_target(guest, tmp_path):
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "to").mkdir()
    (tmp_path / "to/f").symlink_to("../kept")
    push(guest, tmp_path / "to", archive((member("f"), b"new")))
    assert (tmp_path / "kept").read_text() == "kept"
    assert (tmp_path / "to/f").read_text() == "new"


@pytest.mark.parametrize("data", [b"no archive at all" * 100, os.urandom(5000)])
def test_what_is_no_archive_is_refused(guest, tmp_path, data):
    answer = push(guest, tmp_path / "to", data)
    assert answer.error is not None
    assert answer.error["code"] == "archive"


def test_an_archive_that_is_cut_is_refused(guest, tmp_path):
    data = archive((member("f"), bytes(100_000)))
    answer = push(guest, tmp_path / "to", data[:50_000])
    assert answer.error is not None
    assert answer.error["code"] == "archive"


def test_pushing_is_cancelled_half_way(guest, tmp_path):
    answer = guest.open("push", path=bytes(tmp_path / "to"), clear=False)
    guest.data(answer, archive((member("f"), bytes(100_000)))[:50_000], agent.BODY)
    guest.control(answer, "cancel")
    assert guest.refusal(answer) == "cancelled"


def test_pulling_waits_for_its_reader_and_is_cancelled(guest, tmp_path):
    (tmp_path / "f").write_bytes(bytes(5_000_000))
    guest.generous = False
    answer = guest.open("pull", path=bytes(tmp_path))
    guest.until(lambda: len(answer.bytes()) >= agent.WINDOW)
    assert guest.ping() < 5
    assert len(answer.bytes()) == agent.WINDOW
    guest.control(answer, "cancel")
    assert guest.refusal(answer) == "cancelled"


# -- the network inside ---------------------------------------------------------


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        yield server


def dial(guest: Guest, server: socket.socket) -> tuple[Answer, socket.socket]:
    answer = guest.open("dial", host="127.0.0.1", port=server.getsockname()[1])
    peer, _ = server.accept()
    peer.settimeout(10)
    guest.until(lambda: bool(answer.events))
    return answer, peer


def test_bytes_go_both_ways_and_each_side_ends(guest, server):
    answer, peer = dial(guest, server)
    with peer:
        guest.data(answer, b"question", agent.BODY)
        assert peer.recv(100) == b"question"
        guest.end(answer, agent.BODY)
        assert peer.recv(100) == b""
        peer.sendall(b"answer")
    guest.wait(answer)
    assert answer.bytes() == b"answer"
    assert answer.result == {}


def test_nobody_listens(guest):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    assert guest.refusal(guest.open("dial", host="127.0.0.1", port=port)) == "refused"


def test_a_slow_reader_is_waited_for_both_ways(guest, server):
    guest.generous = False
    answer, peer = dial(guest, server)
    with peer:
        peer.settimeout(0.2)
        with pytest.raises(TimeoutError):
            peer.sendall(bytes(20_000_000))
        guest.ping()
        assert len(answer.bytes()) <= agent.WINDOW
        guest.data(answer, bytes(agent.WINDOW), agent.BODY)
        guest.ping()
        assert answer.granted <= agent.WINDOW
        guest.control(answer, "cancel")
        guest.wait(answer)


def test_a_port_inside_is_listened_on(guest):
    answer = guest.open("listen", port=0)
    guest.until(lambda: bool(answer.events))
    port = answer.events[0]["port"]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        guest.until(lambda: any(each & agent.ACCEPTED for each in guest.answers))
        accepted = next(
            each for each in guest.answers.values() if each.number & agent.ACCEPTED
        )
        client.sendall(b"hello")
        guest.until(lambda: accepted.bytes() == b"hello")
        guest.data(accepted, b"back", agent.BODY)
        assert client.recv(10) == b"back"
    guest.control(answer, "cancel")
    assert guest.result(answer) == {}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=10)


def test_a_taken_port_is_refused(guest, server):
    answer = guest.open("listen", port=server.getsockname()[1])
    assert guest.refusal(answer) == "storage"
