"""Results and paths: no I/O."""

from __future__ import annotations

import posixpath
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox._core.paths import resolve, shown, within
from isobox._core.results import Captured, Entry, Ongoing, RunResult, signal_name
from isobox.errors import InvalidArgumentError, PathOutsideError

ROOT = "/workspace"
PATHS = st.text(alphabet="ab./\\ -~*\n", min_size=1, max_size=20)


# -- paths ------------------------------------------------------------------------


@given(PATHS)
def test_a_relative_path_is_below_the_root_or_refused(path):
    if path.startswith("/"):
        return
    try:
        found = resolve(path, root=ROOT, confined=False)
    except PathOutsideError:
        assert not within(posixpath.normpath(posixpath.join(ROOT, path)), ROOT)
        return
    assert within(found, ROOT)


@given(PATHS)
def test_confined_every_path_is_below_the_root_or_refused(path):
    try:
        found = resolve(path, root=ROOT, confined=True)
    except PathOutsideError:
        return
    assert within(found, ROOT)


@given(PATHS, st.booleans(), st.sampled_from(["/", "/w", "/a/b"]))
def test_a_path_is_absolute_and_has_no_steps_in_it(path, confined, root):
    try:
        found = resolve(path, root=root, confined=confined)
    except PathOutsideError:
        return
    assert found.startswith("/")
    assert not found.startswith("//")
    assert not {"", ".", ".."} & set(found.split("/")[1:]) or found == "/"
    assert resolve(found, root=root, confined=False) == found


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".", ROOT),
        ("a", ROOT + "/a"),
        ("a/../b", ROOT + "/b"),
        ("./a//b/", ROOT + "/a/b"),
        ("/etc/passwd", "/etc/passwd"),
        ("//etc", "/etc"),
        ("/../etc", "/etc"),
        ("...", ROOT + "/..."),
        ("~", ROOT + "/~"),
    ],
)
def test_a_path(path, expected):
    assert resolve(path, root=ROOT, confined=False) == expected


@pytest.mark.parametrize("path", ["..", "../x", "a/../../x", "../workspaced"])
def test_climbing_out_is_refused(path):
    with pytest.raises(PathOutsideError) as error:
        resolve(path, root=ROOT, confined=False)
    assert error.value.path == path
    assert isinstance(error.value, PermissionError)


@pytest.mark.parametrize(
    "path", ["/etc", "/workspaced", "/", "/workspace/../etc", "//workspaced"]
)
def test_confined_an_absolute_path_elsewhere_is_refused(path):
    with pytest.raises(PathOutsideError):
        resolve(path, root=ROOT, confined=True)


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(InvalidArgumentError):
        resolve(path, root=ROOT, confined=False)


def test_within_is_by_components():
    assert within("/a", "/a")
    assert within("/a/b", "/a")
    assert within("/a", "/")
    assert not within("/ab", "/a")
    assert not within("/", "/a")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a b/ü", "a b/ü"),
        ("a\nb", '"a\\nb"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        ("\udcff", '"\\udcff"'),
    ],
)
def test_a_path_is_shown_on_one_line_and_obeyed_by_no_terminal(path, expected):
    assert shown(path) == expected


# -- results ----------------------------------------------------------------------


@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(0, 100))
def test_what_was_captured_counts_what_is_missing(head, tail, missing):
    kept = Captured(head, tail, len(head) + len(tail) + missing)
    assert kept.data == head + tail
    assert kept.omitted == missing
    assert (f"{missing} bytes omitted" in kept.text) == bool(missing)


def test_text_is_text_whatever_the_bytes():
    assert Captured(b"\xffa", b"", 2).text == "\ufffda"
    assert RunResult(exit_code=0, output=Captured(b"a" * 3, b"z", 10)).truncated


def test_a_result_shows_what_was_printed():
    assert (
        repr(RunResult(exit_code=0)) == "RunResult(exit_code=0, stdout='', stderr='')"
    )
    long = RunResult(exit_code=3, output=Captured(b"a" * 999, b"", 999), signal="X")
    shown = f"exit_code=3, stdout='{'a' * 200}'..., stderr='', signal='X'"
    assert repr(long) == f"RunResult({shown})"


def test_ok_is_a_status_of_0_in_time():
    assert RunResult(exit_code=0).ok
    assert not RunResult(exit_code=1).ok
    assert not RunResult(exit_code=0, timed_out=True).ok


@pytest.mark.parametrize(
    ("number", "name"), [(9, "SIGKILL"), (15, "SIGTERM"), (50, "SIG50")]
)
def test_signals_have_names(number, name):
    assert signal_name(number) == name
    assert all(signal_name(each) for each in range(1, 128))
    assert signal_name(signal.SIGINT) == "SIGINT"


def test_an_entry_knows_its_name():
    entry = Entry("/workspace/a/b", "file", 5, 0o644, 1_500_000_000)
    assert (entry.name, entry.mtime, entry.is_file, entry.is_directory) == (
        "b",
        1.5,
        True,
        False,
    )
    assert Entry("/", "directory", 0, 0o755, 0).is_directory


def test_hooks_run_once_even_late():
    ongoing, told = Ongoing(), []
    ongoing.on_end(told.append)
    ongoing._ended({"n": 1})
    ongoing._ended({"n": 2})
    ongoing.on_end(told.append)
    assert told == [{"n": 1}, {"n": 1}]
