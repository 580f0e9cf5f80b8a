"""An audit file that is cut, full, shared, put aside, or left by the dead."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

from isobox._audit import files, tail
from isobox._audit.jsonl import JsonlSink
from isobox._audit.reading import files_of
from isobox._audit.verify import verify
from isobox.errors import InvalidArgumentError

KEY = b"0123456789abcdef"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.jsonl"


@pytest.fixture
def make(path):
    """Makes sinks, and closes them."""
    made = []

    def sink(**options):
        made.append(JsonlSink(path, **options))
        return made[-1]

    yield sink
    for each in made:
        each.close()


def texts(path):
    """Return the records of all files, those of the chain by their event."""
    lines = [
        line
        for file in files_of(str(path))
        for line in Path(file).read_bytes().splitlines()
    ]
    found = []
    for line in lines:
        with suppress(ValueError):
            fields = json.loads(line)
            found.append(fields.get("event") or fields["n"])
    return found


def wrongs(path, key=None):
    return [each.wrong for each in verify(path, key=key).findings]


# -- what happens to the file meanwhile -------------------------------------------


def remove(path):
    path.unlink()


def cut(path):
    os.truncate(path, path.stat().st_size - 1)


def change(path):
    path.write_bytes(path.read_bytes().replace(b'"n":2', b'"n":3'))


def replace_older(path):
    lines = path.read_bytes().splitlines(keepends=True)
    new = path.with_name("new")
    new.write_bytes(lines[0])
    new.rename(path)


def empty(path):
    path.write_bytes(b"")


def link(path):
    shutil.copy(path, path.with_name("elsewhere"))
    path.unlink()
    path.symlink_to("elsewhere")


def append(path):
    with path.open("ab") as file:
        file.write(path.read_bytes())


def lose_head(path):
    Path(f"{path}.head").unlink()


def change_head(path):
    head = Path(f"{path}.head")
    head.write_bytes(head.read_bytes().replace(b'"seq":2', b'"seq":1'))


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize(
    "damage",
    [remove, cut, replace_older, empty, link, append, lose_head, change_head],
)
def test_a_damaged_log_takes_no_record(path, make, damage, opened):
    sink = make()
    sink.put({"n": 1})
    sink.put({"n": 2})
    damage(path)
    after = path.read_bytes() if path.exists() else None
    with pytest.raises(OSError, match=r"audit|head|No such file|symbolic"):
        (sink if opened else make()).put({"n": 3})
    assert (path.read_bytes() if path.exists() else None) == after
    assert wrongs(path) if damage is not link else True


def test_a_changed_last_record_is_seen_by_who_opens_the_file(path, make):
    make().put({"n": 2})
    change(path)
    with pytest.raises(OSError, match="last one"):
        make()


def test_an_older_head_is_seen_by_who_knows_better(path, make):
    sink, head = make(), Path(f"{path}.head")
    sink.put({"n": 1})
    older, lines = head.read_bytes(), path.read_bytes()
    sink.put({"n": 2})
    head.write_bytes(older)
    path.write_bytes(lines)
    with pytest.raises(OSError, match="older"):
        sink.put({"n": 3})


def test_a_head_that_was_put_back_is_gone_on_with(path, make):
    sink, head = make(), Path(f"{path}.head")
    sink.put({"n": 1})
    copy = shutil.copy(head, f"{head}.copy")
    os.replace(copy, head)
    sink.put({"n": 2})
    assert texts(path) == [1, 2]
    assert wrongs(path) == []


def test_a_file_without_a_chain_is_refused(path, make):
    path.write_text('{"n":1}\n')
    with pytest.raises(OSError, match=r"head is missing"):
        make()
    assert not Path(f"{path}.head").exists()


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.head"])
@pytest.mark.parametrize("kind", ["fifo", "directory", "link"])
def test_what_is_no_file_is_refused(path, make, name, kind):
    at = path.with_name(name)
    match kind:
        case "fifo":
            os.mkfifo(at)
        case "directory":
            at.mkdir()
        case _:
            at.symlink_to(path.with_name("elsewhere"))
    with pytest.raises(
        OSError, match=r"regular file|directory|symbolic|No such device"
    ):
        make()
    assert not path.with_name("elsewhere").exists()


def test_both_files_are_for_the_owner(path, make):
    before = os.umask(0)
    try:
        make().put({"n": 1})
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()]
    assert modes == [0o600, 0o600]


def test_a_closed_sink_takes_nothing(path, make):
    sink = make()
    sink.close()
    sink.close()
    with pytest.raises(OSError, match="closed"):
        sink.put({"n": 1})
    assert texts(path) == []


def test_a_full_disk_is_gone_on_with_when_there_is_room(path, make, monkeypatch):
    sink, write = make(), os.write
    sink.put({"n": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, data[:20]))
        for _ in range(2):
            with pytest.raises(OSError, match="only part") as error:
                sink.put({"n": 2})
            assert error.value.errno == errno.ENOSPC
    assert wrongs(path) == ["torn"]
    sink.put({"n": 3})
    assert texts(path) == [1, "torn", 3]
    report = verify(path)
    assert report.findings == []
    assert ":4: 40 bytes before it" in report.notes[0]


# -- put aside --------------------------------------------------------------------


def test_full_files_are_put_aside_and_the_chain_goes_on(path, make):
    sink = make(max_bytes=1024, key=KEY)
    for number in range(30):
        sink.put({"n": number})
    report = verify(path, key=KEY)
    assert (report.findings, report.notes) == ([], [])
    assert (
        report.files
        == [*(f"{path}.{n}" for n in range(1, 6)), str(path)][-len(report.files) :]
    )
    assert [each for each in texts(path) if isinstance(each, int)] == list(range(30))
    events = [each for each in texts(path) if isinstance(each, str)]
    assert events == ["closed", "opened"] * (len(report.files) - 1)
    for each in report.files[:-1]:
        assert Path(each).stat().st_size < 2048
        alone = verify(each, key=KEY)
        assert alone.findings == []
        assert "put aside" in alone.notes[0]


def test_a_part_that_was_put_aside_is_missed_or_found_changed(path, make):
    sink = make(max_bytes=1024)
    for number in range(20):
        sink.put({"n": number})
    first, second = (Path(f"{path}.{number}") for number in (1, 2))
    kept = first.read_bytes()
    first.write_bytes(kept[: kept.rindex(b"\n", 0, -1) + 1])
    assert wrongs(first) == ["head"]
    assert wrongs(path) == ["removed"]
    first.write_bytes(b"".join(kept.splitlines(keepends=True)[1:]))
    assert wrongs(first) == ["removed"]
    first.write_bytes(second.read_bytes())
    assert wrongs(path) == ["removed"]
    first.unlink()
    assert wrongs(path) == ["missing"]


def test_nothing_is_overwritten_by_what_is_put_aside(path, make):
    sink = make(max_bytes=1024)
    Path(f"{path}.1").write_text("mine")
    while path.stat().st_size < 1024:
        sink.put({"n": 1})
    with pytest.raises(FileExistsError):
        sink.put({"n": 5})
    assert Path(f"{path}.1").read_text() == "mine"
    Path(f"{path}.1").unlink()
    sink.put({"n": 20})
    assert wrongs(path) == []


def test_a_small_limit_is_refused(make):
    with pytest.raises(InvalidArgumentError, match="1024"):
        make(max_bytes=10)


# -- several ----------------------------------------------------------------------


def test_sinks_of_one_process_take_turns(path, make):
    sinks = [make(max_bytes=4096) for _ in range(3)]
    with ThreadPoolExecutor(6) as pool:
        for number in range(300):
            pool.submit(sinks[number % 3].put, {"n": number})
    assert wrongs(path) == []
    assert set(texts(path)) == {*range(300), "closed", "opened"}


WRITER = """
import sys
from isobox._audit.jsonl import JsonlSink
sink = JsonlSink(sys.argv[1], max_bytes=8192)
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    sink.put({"n": number, "text": "x" * 300})
    print(number, flush=True)
"""


def writer(path, first, last):
    arguments = [sys.executable, "-c", WRITER, str(path), str(first), str(last)]
    return subprocess.Popen(arguments, env=ENVIRONMENT, stdout=subprocess.PIPE)


def test_processes_take_turns(path):
    running = [writer(path, first, first + 200) for first in (0, 200, 400)]
    for each in running:
        each.communicate(timeout=60)
        assert each.returncode == 0
    assert wrongs(path) == []
    counts = Counter(each for each in texts(path) if isinstance(each, int))
    assert counts == dict.fromkeys(range(600), 1)
    assert len(files_of(str(path))) > 10


def test_a_child_of_a_fork_takes_turns_with_its_parent(path, make):
    sink = make()
    child = os.fork()
    if not child:
        with suppress(BaseException):
            for number in range(200):
                sink.put({"n": number})
        os._exit(0)
    for number in range(200, 400):
        sink.put({"n": number})
    assert os.waitpid(child, 0)[1] == 0
    assert wrongs(path) == []
    assert sorted(texts(path)) == list(range(400))


def test_who_holds_the_lock_is_not_waited_for_for_ever(path, make, monkeypatch):
    monkeypatch.setattr(files, "_PATIENCE", 0.05)
    sink = make()
    with open(f"{path}.head") as head:
        fcntl.flock(head, fcntl.LOCK_EX)
        for call in (lambda: sink.put({"n": 1}), lambda: verify(path)):
            with pytest.raises(TimeoutError, match="is it stopped"):
                call()
    sink.put({"n": 2})
    assert texts(path) == [2]


def test_a_file_that_cannot_be_put_aside_is_closed_once(path, make, monkeypatch):
    sink = make(max_bytes=1024)

    def refused(*_):
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(tail.os, "rename", refused)
    number = 0
    with suppress(PermissionError):
        while True:
            sink.put({"n": number})
            number += 1
    for _ in range(3):
        with pytest.raises(PermissionError):
            sink.put({"n": -1})
    assert path.read_bytes().count(b'"closed"') == 1
    monkeypatch.undo()
    sink.put({"n": number})
    assert verify(path).findings == []
    assert texts(path) == [*range(number), "closed", "opened", number]


@pytest.mark.parametrize(
    ("room", "kept"), [(0, 0), (1, 0), (40, 0), (10**6, 2), ("head", 2), ("line", 1)]
)
def test_what_of_two_records_was_kept_is_said(path, make, monkeypatch, room, kept):
    sink, write, pwrite = make(), os.write, os.pwrite
    sink.put({"n": 0})
    length = len(path.read_bytes())

    def short(file, data):
        least = {"line": data.index(b"\n") + 9, "head": len(data)}.get(room, room)
        return write(file, data[:least])

    def full(file, data, at):
        if room in ("head", 10**6) and path.stat().st_size > length:
            raise OSError(errno.ENOSPC, "full")
        return pwrite(file, data, at)

    monkeypatch.setattr(tail.os, "write", short)
    monkeypatch.setattr(tail.os, "pwrite", full)
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the class counts
        sink.put_all([{"n": 1}, {"n": 2}])
    assert getattr(caught.value, "kept", 0) == kept
    monkeypatch.undo()
    sink.put({"n": 3})
    kinds = [each for each in texts(path) if each != "torn"]
    assert kinds == [0, *range(1, kept + 1), 3]
    assert verify(path).findings == []


# -- the dead ---------------------------------------------------------------------


class Killed(BaseException):
    """Ends a writer as a signal would, wherever it is."""


def dies_at(monkeypatch, number, *, share):
    """Let the system call of a number do a share of its work, and be the last."""
    calls = 0

    def wrap(call, partly):
        def wrapped(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls >= number:
                if calls == number:
                    partly(*arguments)
                raise Killed
            return call(*arguments, **options)

        return wrapped

    write, pwrite, rename = os.write, os.pwrite, os.rename

    def half(file, data):
        if length := int(len(data) * share):
            write(file, data[:length])

    # A head is written whole or not at all.
    monkeypatch.setattr(tail.os, "write", wrap(write, half))
    monkeypatch.setattr(
        tail.os,
        "pwrite",
        wrap(pwrite, lambda *a: pwrite(*a) if share == 1 else None),
    )
    monkeypatch.setattr(
        tail.os,
        "rename",
        wrap(rename, lambda *a: rename(*a) if share == 1 else None),
    )
    return lambda: calls < number


@pytest.mark.parametrize("together", [1, 2, 3])
@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.999, 1])
def test_who_is_killed_anywhere_leaves_a_log_that_goes_on(
    tmp_path, share, key, together
):
    ended = False
    number = 0
    while not ended:
        number += 1
        path = tmp_path / str(number)
        kept = []
        with pytest.MonkeyPatch.context() as patch:
            survived = dies_at(patch, number, share=share)
            with suppress(Killed):
                sink = JsonlSink(path, max_bytes=1024, key=key)
                for first in range(0, 14, together):
                    some = range(first, first + together)
                    sink.put_all([{"n": each} for each in some])
                    kept.extend(some)
            ended = survived()
        sink = None
        before = verify(path, key=key)
        assert {each.wrong for each in before.findings} <= {"torn"}
        # The next one dies as well, at another place.
        with pytest.MonkeyPatch.context() as patch:
            dies_at(patch, 1 + number % 4, share=0.5)
            with suppress(Killed):
                JsonlSink(path, max_bytes=1024, key=key)
        sink = JsonlSink(path, max_bytes=1024, key=key)
        sink.put({"n": 100})
        sink.close()
        assert verify(path, key=key).findings == []
        numbers = [each for each in texts(path) if isinstance(each, int)]
        more = len(numbers) - 1 - len(kept)
        assert numbers[:-1] == list(range(len(kept) + more))
        assert 0 <= more <= together
        assert numbers[-1] == 100
    assert number > 25


def stopped(path, make):
    """Leave three records that did not reach the head, as a machine may."""
    sink, head = make(), Path(f"{path}.head")
    sink.put({"n": 1})
    older = head.read_bytes()
    for number in (2, 3, 4):
        sink.put({"n": number})
    head.write_bytes(older)


@pytest.mark.parametrize("rest", [b"", b"{", b"\0" * 9000, b'{"seq"\0\0\n\n{"se'])
def test_a_machine_that_was_stopped_leaves_a_log_that_goes_on(path, make, rest):
    stopped(path, make)
    with path.open("ab") as file:
        file.write(rest)
    make().put({"n": 5})
    assert texts(path) == [1, 2, 3, 4, "torn" if rest else "recovered", 5]
    (finding,) = verify(path).findings
    assert finding.wrong == "ahead"
    assert "3 records before it came after record 1" in finding.message
    make().put({"n": 6})
    assert wrongs(path) == ["ahead"]


@pytest.mark.parametrize("rest", [b"xx\n", b"\n", b"xx", b"x\n\nx", b"{}\n"])
def test_what_nobody_of_isobox_wrote_is_refused(path, make, rest):
    make().put({"n": 1})
    before = path.read_bytes()
    with path.open("ab") as file:
        file.write(rest)
    for _ in range(2):
        with pytest.raises(OSError, match=r"did not write.*names the line.*move"):
            make()
        assert wrongs(path) == ["added"]
    path.write_bytes(before)
    make().put({"n": 2})
    assert wrongs(path) == []


def test_an_open_sink_goes_on_once_what_was_added_is_removed(path, make):
    stopped(path, make)
    sink, before = make(), path.read_bytes()
    with path.open("ab") as file:
        file.write(b"xx\n")
    with pytest.raises(OSError, match="did not write"):
        sink.put({"n": 5})
    os.truncate(path, len(before))
    sink.put({"n": 5})
    assert texts(path) == [1, 2, 3, 4, "recovered", 5]


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_who_is_killed_while_it_tells_of_added_records_hides_none(
    path, make, number, share
):
    stopped(path, make)
    with pytest.MonkeyPatch.context() as patch:
        dies_at(patch, number, share=share)
        with suppress(Killed):
            JsonlSink(path).put({"n": 5})
    assert "ahead" in wrongs(path) or wrongs(path) == ["torn"]
    make().put({"n": 6})
    assert set(wrongs(path)) == {"ahead"}


def test_a_closed_file_that_the_head_did_not_expect_is_put_aside(path, make):
    sink, head = make(max_bytes=1024), Path(f"{path}.head")
    number = 0
    while path.stat().st_size < 1024:
        older = head.read_bytes()
        sink.put({"n": number})
        number += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail.os, "rename", Mock(side_effect=OSError("stopped")))
        with pytest.raises(OSError, match="stopped"):
            sink.put({"n": number})
    head.write_bytes(older)
    make(max_bytes=1024).put({"n": number})
    assert texts(path) == [*range(number), "closed", "closed", "opened", number]
    assert wrongs(path) == ["ahead"]
    assert wrongs(f"{path}.1") == ["ahead"]


def test_what_is_too_long_to_be_a_record_is_not_marked_as_one(path, make):
    make().put({"n": 1})
    os.truncate(path, 100 << 20)
    with pytest.raises(OSError, match="changed"):
        make()
    assert wrongs(path) == ["changed"]


def test_processes_that_are_killed_leave_a_log_that_goes_on(path):
    chance = random.Random(5)
    told = set()
    for turn in range(12):
        process = writer(path, turn * 10_000, (turn + 1) * 10_000)
        assert process.stdout.readline()
        time.sleep(chance.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        told |= {int(line) for line in process.communicate()[0].split(b"\n")[:-1]}
        assert set(wrongs(path)) <= {"torn"}
    JsonlSink(path).close()
    assert wrongs(path) == []
    assert told <= set(texts(path))


def test_syncing_writes_the_same(path, make, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    make(sync="always").put({"n": 1})
    assert len(set(synced)) == 2
    assert wrongs(path) == []
