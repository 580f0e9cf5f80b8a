"""What was written verifies, and nothing else does."""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobox._audit import records as module
from isobox._audit import tail
from isobox._audit.head import SIZE, Head, HeadError, read_head
from isobox._audit.records import GENESIS, LONGEST, Place, Seal, fields_of
from isobox._audit.sinks import JsonlSink
from isobox._audit.verify import verify
from isobox.errors import InvalidArgumentError

KEY = b"0123456789abcdef"
TEXTS = st.text(st.characters(exclude_categories=()), max_size=40)
RECORDS = st.dictionaries(
    TEXTS.filter(lambda name: name not in ("seq", "prev", "hash")),
    st.none() | st.booleans() | st.integers() | TEXTS | st.lists(TEXTS, max_size=3),
    min_size=1,
    max_size=5,
)
KEYS = st.sampled_from([None, KEY])


def write(path, records, **options):
    sink = JsonlSink(path, **options)
    for record in records:
        sink.put(record)
    sink.close()


def wrongs(path, key=None, expect=None):
    return [each.wrong for each in verify(path, key=key, expect=expect).findings]


def hash_of(path, number=-1):
    return json.loads(Path(path).read_bytes().splitlines()[number])["hash"]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path, [{"n": number, "text": "x" * number} for number in range(10)])
    return path


# -- properties -------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(RECORDS, max_size=6), max_size=4), KEYS, st.booleans())
def test_what_was_written_verifies(runs, key, rotates):
    with TemporaryDirectory() as directory:
        path = Path(directory) / "a.jsonl"
        size = 1024 if rotates else None
        for run in runs:
            write(path, run, key=key, max_bytes=size)
        if not runs:
            return
        report = verify(path, key=key)
        assert (report.findings, report.notes) == ([], [])
        kept = [
            fields
            for file in report.files
            for line in Path(file).read_bytes().splitlines()
            if (fields := json.loads(line)).get("kind") != "chain"
        ]
        for fields in kept:
            del fields["seq"], fields["prev"], fields["hash"]
        assert kept == [record for run in runs for record in run]


@st.composite
def damaged(draw, content):
    """Return content with one thing changed, and what was done."""
    lines = content.splitlines(keepends=True)
    line = st.integers(0, len(lines) - 1)
    how = draw(st.sampled_from(["byte", "bit", "add", "drop", "swap", "twice", "cut"]))
    at = draw(st.integers(0, len(content) - 1))
    one, other = draw(line), draw(line)
    match how:
        case "byte":
            new = draw(st.integers(0, 255))
            made = content[:at] + bytes([new]) + content[at + 1 :]
        case "bit":
            new = content[at] ^ (1 << draw(st.integers(0, 7)))
            made = content[:at] + bytes([new]) + content[at + 1 :]
        case "add":
            made = content[:at] + draw(st.binary(min_size=1, max_size=9)) + content[at:]
        case "drop":
            made = b"".join(lines[:one] + lines[one + 1 :])
        case "swap":
            lines[one], lines[other] = lines[other], lines[one]
            made = b"".join(lines)
        case "twice":
            made = b"".join([*lines[:other], lines[one], *lines[other:]])
        case _:
            made = content[:at]
    return how, made


@settings(max_examples=500, deadline=None)
@given(st.data(), KEYS, st.booleans())
def test_nothing_that_was_changed_verifies(data, key, rotates):
    with TemporaryDirectory() as directory:
        path = Path(directory) / "a.jsonl"
        records = [{"n": number, "text": "ab\ncd"} for number in range(14)]
        with patch("isobox._audit.tail.time", time=lambda: 1.5):
            write(path, records, key=key, max_bytes=1024 if rotates else None)
        files = [Path(each) for each in verify(path, key=key).files]
        assert len(files) == (3 if rotates else 1)
        file = data.draw(st.sampled_from(files))
        content = file.read_bytes()
        how, made = data.draw(damaged(content))
        file.write_bytes(made)
        assert bool(wrongs(path, key)) == (made != content), how


@settings(max_examples=300, deadline=None)
@given(st.data(), KEYS)
def test_no_head_that_was_changed_is_taken(data, key):
    seal = Seal(key)
    content = Head(3, "a" * 64, 10, 20, 1, closed=False, next="b" * 64).sealed(seal)
    _, made = data.draw(damaged(content))
    if made in (content, b""):
        return
    with pytest.raises(HeadError):
        read_head(made, seal)


TWO = f"{'b' * 64},{'c' * 64}"


def test_the_largest_head_has_its_size():
    huge = Head(10**18, "a" * 64, 10**15, 10**15, 10**6, closed=False, next=TWO)
    assert len(huge.sealed(Seal())) == SIZE


@given(st.binary(max_size=600) | st.text().map(str.encode))
def test_nothing_read_as_a_head_or_a_record_crashes(content):
    assert Seal().opened(content) is None
    fields_of(content)
    if content:
        with pytest.raises(HeadError):
            read_head(content, Seal())


@pytest.mark.parametrize(
    "field", ["seq", "start", "end", "files", "closed", "hash", "next"]
)
@pytest.mark.parametrize("value", [None, "x", 1.5, [], {}, True, 10**400])
def test_no_odd_head_is_taken(field, value):
    fields = json.loads(Head().sealed(Seal())) | {field: value}
    text = json.dumps(fields).encode()
    with pytest.raises(HeadError):
        read_head(text.ljust(SIZE), Seal())


# -- what is said -----------------------------------------------------------------


def forged(line, key=None):
    """Return what follows a line, made by whoever can read it."""
    fields = json.loads(line)
    place = Place(fields["seq"], fields["hash"])
    return Seal(key).line({"kind": "answer", "answer": "allow once by me"}, place)[0]


def edit(path, change):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(change(lines)))


@pytest.mark.parametrize(
    ("change", "wrong", "line", "said"),
    [
        (lambda x: [x[0].replace(b'"n":0', b'"n":9'), *x[1:]], "changed", 1, "changed"),
        (lambda x: [*x[:-1], x[-1].replace(b'"n":9', b'"n":8')], "changed", 10, "10"),
        (lambda x: x[:3] + x[5:], "removed", 4, "4 to 5"),
        (lambda x: x[1:], "removed", 1, "record 1 "),
        (lambda x: [*x[:3], x[4], x[3], *x[5:]], "removed", 4, "moved"),
        (lambda x: [*x[:4], x[3], *x[4:]], "moved", 5, "repeated"),
        (lambda x: x[:-1], "cut", 10, "ends with record 9"),
        (lambda x: [*x[:-1], x[-1][:-20]], "cut", 10, "record 10"),
        (lambda x: [*x[:-1], x[-1][:-1]], "torn", 10, "no end"),
        (lambda _: [], "cut", 1, "ends with record 0"),
        (lambda x: [*x, b'{"kind":"chain"}\n'], "added", 11, "17 bytes"),
        (lambda x: [*x, b"xx\n"], "added", 11, "3 bytes that isobox did not write"),
        (lambda x: [*x, b"xx"], "added", 11, "2 bytes"),
        (lambda x: [*x, b"\n"], "added", 11, "1 bytes"),
        (lambda x: [*x, forged(x[-1])], "ahead", 11, "after record 10"),
        (lambda x: [*x, forged(x[-1], KEY)], "changed", 11, "not record 11"),
        (lambda x: [*x, forged(x[-1])[:40]], "torn", 11, "40 bytes"),
    ],
)
def test_each_kind_of_damage_is_named_with_its_line(log, change, wrong, line, said):
    edit(log, change)
    (finding,) = verify(log).findings
    assert (finding.wrong, finding.line) == (wrong, line)
    assert said in finding.message


def test_an_older_copy_is_found(log, tmp_path):
    older = shutil.copy(log, tmp_path / "older")
    write(log, [{"n": 10}])
    shutil.copy(older, log)
    assert wrongs(log) == ["cut"]


def test_another_log_in_its_place_is_found(log, tmp_path):
    write(tmp_path / "other", [{"m": number} for number in range(10)])
    shutil.copy(tmp_path / "other", log)
    assert wrongs(log) == ["replaced"]


def test_a_record_of_another_log_is_found(log, tmp_path):
    write(tmp_path / "other", [{"m": number} for number in range(10)])
    others = (tmp_path / "other").read_bytes().splitlines(keepends=True)
    edit(log, lambda lines: [*lines[:4], others[4], *lines[5:]])
    assert wrongs(log) == ["foreign"]


def test_only_a_hash_kept_elsewhere_finds_an_older_copy_of_both(log, tmp_path):
    head = Path(f"{log}.head")
    older = [shutil.copy(each, f"{each}.old") for each in (log, head)]
    write(log, [{"n": 10}])
    anchor = hash_of(log)
    assert wrongs(log, expect=anchor) == []
    shutil.copy(older[0], log)
    shutil.copy(older[1], head)
    assert wrongs(log) == []
    assert wrongs(log, expect=anchor) == ["expected"]
    assert wrongs(log, expect=hash_of(log, 3)) == []


def test_a_head_that_is_gone_is_missed(log):
    Path(f"{log}.head").unlink()
    assert wrongs(log) == ["head"]
    assert wrongs(log, expect=hash_of(log)) == []
    assert wrongs(log, expect=hash_of(log, 3)) == ["head"]
    Path(f"{log}.head").touch()
    assert wrongs(log) == ["ahead"]


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("count", [1, 3])
def test_an_older_head_is_found(tmp_path, key, count):
    path, head = tmp_path / "a", tmp_path / "a.head"
    write(path, [{"n": 0}] * 4, key=key)
    older = head.read_bytes()
    write(path, [{"n": number} for number in range(count)], key=key)
    head.write_bytes(older)
    (finding,) = verify(path, key=key).findings
    assert (finding.wrong, finding.line) == ("ahead", 5)
    assert "come after record 4, the last that the head knows" in finding.message
    assert "older head" in finding.message


def add(path, count, key=None):
    """Append records as whoever has no key does, or the one who has."""
    for _ in range(count):
        last = path.read_bytes().splitlines()[-1]
        with path.open("ab") as file:
            file.write(forged(last, key))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("opened", [True, False])
def test_records_that_were_added_stay_told(log, count, opened):
    sink = JsonlSink(log) if opened else None
    add(log, count)
    assert [(each.wrong, each.line) for each in verify(log).findings] == [("ahead", 11)]
    sink = sink or JsonlSink(log)
    for number in range(3):
        sink.put({"n": number})
    sink.close()
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]
    told = lines[10 + count]
    assert (told["kind"], told["event"]) == ("chain", "recovered")
    digest = lines[9 + count]["hash"]
    assert told["ahead"] == {"head": 10, "records": count, "digest": digest}
    for _ in range(2):
        (finding,) = verify(log).findings
        assert (finding.wrong, finding.line) == ("ahead", 11 + count)
        assert f"{count} records before it came after record 10" in finding.message
        write(log, [{"n": 1}])
    edit(log, lambda lines: [*lines[: 10 + count], *lines[11 + count :]])
    assert wrongs(log) == ["removed"]


def test_without_the_key_nothing_is_added(tmp_path):
    path = tmp_path / "a"
    write(path, [{"n": 1}], key=KEY)
    add(path, 1)
    assert wrongs(path, KEY) == ["changed"]
    with pytest.raises(OSError, match=r"verify` names the line.*move the log"):
        JsonlSink(path, key=KEY)
    assert wrongs(path, KEY) == ["changed"]


@pytest.mark.parametrize(
    "ahead", [None, [], {}, {"records": "x", "head": {}}, {"records": 10**4000}]
)
def test_what_a_forged_record_says_of_the_head_is_told(log, ahead):
    write(log, [{"kind": "chain", "event": "recovered", "ahead": ahead}])
    (finding,) = verify(log).findings
    assert (finding.wrong, finding.line) == ("ahead", 11)
    assert "was not expected" in finding.message


def test_an_emptied_head_launders_nothing(log):
    Path(f"{log}.head").write_bytes(b"")
    write(log, [{"n": 1}])
    (finding,) = verify(log).findings
    assert "10 records before it came after record 0" in finding.message


def test_the_head_expects_one_record_only(log):
    """Whoever is killed between a record and the head leaves that one."""
    seal, head = Seal(), Path(f"{log}.head")
    known = read_head(head.read_bytes(), seal)
    line = forged(log.read_bytes().splitlines()[-1])
    head.write_bytes(known._replace(next=json.loads(line)["hash"]).sealed(seal))
    assert wrongs(log) == []
    with log.open("ab") as file:
        file.write(line)
    assert wrongs(log) == []
    add(log, 1)
    (finding,) = verify(log).findings
    assert (finding.wrong, finding.line) == ("ahead", 12)
    write(log, [{"n": 1}])
    assert "1 records before it" in verify(log).findings[0].message


@pytest.mark.parametrize("written", [1, 2])
def test_the_head_expects_two_records_that_are_written_at_once(log, written):
    seal, head = Seal(), Path(f"{log}.head")
    known = read_head(head.read_bytes(), seal)
    first = forged(log.read_bytes().splitlines()[-1])
    second = forged(first)
    hashes = ",".join(json.loads(each)["hash"] for each in (first, second))
    head.write_bytes(known._replace(next=hashes).sealed(seal))
    with log.open("ab") as file:
        file.write(first + second[: len(second) * (written - 1)])
    assert wrongs(log) == []
    write(log, [{"n": 1}])
    assert wrongs(log) == []
    assert verify(log).records == 11 + written


def test_a_record_that_another_took_the_place_of_is_not_expected(log):
    seal, head = Seal(), Path(f"{log}.head")
    known = read_head(head.read_bytes(), seal)
    first = forged(log.read_bytes().splitlines()[-1])
    other = json.loads(forged(first))["hash"]
    head.write_bytes(known._replace(next=f"{'b' * 64},{other}").sealed(seal))
    with log.open("ab") as file:
        file.write(first)
    assert wrongs(log) == ["ahead"]
    write(log, [{"n": 1}])
    assert wrongs(log) == ["ahead"]


def test_a_full_disk_at_the_mark_of_a_begun_record_hides_nothing(log, monkeypatch):
    with log.open("ab") as file:
        file.write(forged(log.read_bytes().splitlines()[-1])[:40])
    monkeypatch.setattr(tail.os, "write", lambda _, data: 0)
    with pytest.raises(OSError, match="part of a record"):
        JsonlSink(log)
    monkeypatch.undo()
    write(log, [{"n": 1}])
    assert wrongs(log) == ["ahead"]


def test_a_begun_record_that_the_head_did_not_expect_stays_told(log):
    with log.open("ab") as file:
        file.write(forged(log.read_bytes().splitlines()[-1])[:40])
    write(log, [{"n": 1}])
    (finding,) = verify(log).findings
    assert (finding.wrong, finding.line) == ("ahead", 12)
    assert "40 bytes before it came after record 10" in finding.message


def test_a_file_that_is_gone_is_missed(log):
    log.unlink()
    assert wrongs(log) == ["missing"]


def test_a_log_that_was_emptied_with_its_head_is_missed(log):
    head = Path(f"{log}.head")
    head.write_bytes(b"")
    log.write_bytes(b"")
    assert wrongs(log) == ["head"]
    log.unlink()
    report = verify(log)
    assert (report.findings, report.records) == ([], 0)
    assert "or both were emptied" in report.notes[0]


def test_nothing_yet_is_nothing_wrong(tmp_path):
    write(tmp_path / "a", [])
    assert wrongs(tmp_path / "a") == []
    (tmp_path / "a").unlink()
    assert wrongs(tmp_path / "a") == []
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "absent")


# -- keys -------------------------------------------------------------------------


def test_only_its_key_verifies_a_log(tmp_path):
    path = tmp_path / "a"
    write(path, [{"n": 1}], key=KEY)
    assert wrongs(path, KEY) == []
    assert wrongs(path) == wrongs(path, KEY[::-1]) == ["head"]
    Path(f"{path}.head").unlink()
    assert wrongs(path) == wrongs(path, KEY[::-1]) == ["changed"]


def test_a_log_that_was_made_without_the_key_is_none(tmp_path):
    path = tmp_path / "a"
    write(path, [{"n": 1}])
    report = verify(path, key=KEY)
    assert [each.wrong for each in report.findings] == ["head"]
    assert "without yours" in report.findings[0].message


@pytest.mark.parametrize(("first", "then"), [(None, KEY), (KEY, None), (KEY, KEY * 2)])
def test_one_log_has_one_key(tmp_path, first, then):
    write(tmp_path / "a", [{"n": 1}], key=first)
    with pytest.raises(OSError, match="sealed with"):
        JsonlSink(tmp_path / "a", key=then)
    assert wrongs(tmp_path / "a", first) == []


def test_a_short_key_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="16"):
        JsonlSink(tmp_path / "a", key=b"short")


# -- lines ------------------------------------------------------------------------


def test_the_hash_is_of_the_line_before_it(log):
    before = GENESIS
    for line in log.read_bytes().splitlines():
        body, _, tail = line.rpartition(b',"hash":"')
        assert hashlib.sha256(body + b"}").hexdigest() == tail[:-2].decode()
        assert json.loads(line)["prev"] == before
        before = tail[:-2].decode()


@pytest.mark.parametrize("record", [{}, {"seq": 1}, {"prev": 1}, {"a": 1, "hash": 2}])
def test_fields_of_the_chain_are_refused(tmp_path, record):
    sink = JsonlSink(tmp_path / "a")
    with pytest.raises(InvalidArgumentError, match="seq, prev or hash"):
        sink.put(record)
    sink.put({"n": 1})
    sink.close()
    assert wrongs(tmp_path / "a") == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), b"x"])
def test_what_is_no_json_is_refused(tmp_path, value):
    sink = JsonlSink(tmp_path / "a")
    with pytest.raises((ValueError, TypeError)):
        sink.put({"value": value})
    sink.close()
    assert wrongs(tmp_path / "a") == []


def test_a_line_has_a_limit():
    with pytest.raises(InvalidArgumentError, match="bytes"):
        Seal().line({"text": "x" * LONGEST}, Place())


@given(st.binary(min_size=16, max_size=200), st.binary(max_size=200))
def test_a_key_makes_the_usual_hmac(key, data):
    assert Seal(key).digest(data) == hmac.digest(key, data, "sha256").hex()


@given(RECORDS)
def test_a_line_is_the_same_with_and_without_the_compiled_encoder(record):
    line = Seal().line(record, Place())
    with patch("json.encoder.c_make_encoder", None):
        plain = module._encoder()
    with patch.object(module, "_encode", plain):
        assert Seal().line(record, Place()) == line


def test_a_record_that_holds_itself_is_refused(tmp_path):
    sink = JsonlSink(tmp_path / "a")
    record = {"inner": [0]}
    record["inner"].append(record)
    with pytest.raises(ValueError, match="holds itself"):
        sink.put(record)
    sink.put({"n": 1})
    sink.close()
    assert wrongs(tmp_path / "a") == []
