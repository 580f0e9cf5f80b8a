"""What a shell says of paths, true or not."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox import errors
from isobox._shell import answers

_NONCE = "0123456789abcdef"


def _described(argv, path):
    done = subprocess.run(
        [*argv, "-c", answers.FORMAT.format(_NONCE), "--", path],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C", "TZ": "UTC0", "QUOTING_STYLE": "literal", **_PATH},
    )
    (fields,) = answers.records(done.stdout, _NONCE)
    return answers.entry(fields, os.fsdecode(path))


_PATH = {"PATH": os.environ["PATH"]}
_STATS = [["stat"], ["busybox", "stat"]]


@pytest.mark.parametrize("argv", _STATS, ids=lambda argv: argv[0])
@pytest.mark.parametrize(
    "name", [b"plain", b"two\nlines", b"it's -> 'here'", b"\xff\xfe", b"-rf", b"a b"]
)
@pytest.mark.parametrize("target", [b"nowhere", b"a\nb", b"' -> '", b"\xff'"])
def test_links_are_described(tmp_path, argv, name, target):
    assert shutil.which(argv[0])
    path = os.path.join(os.fsencode(tmp_path), name)
    os.symlink(target, path)
    found = _described(argv, path)
    assert found.kind == "symlink"
    assert found.target == os.fsdecode(target)


@pytest.mark.parametrize("argv", _STATS, ids=lambda argv: argv[0])
def test_files_are_described(tmp_path, argv):
    path = os.path.join(os.fsencode(tmp_path), b"file/../file"[:4])
    with open(path, "wb") as file:
        file.write(b"12345")
    os.chmod(path, 0o640)
    os.utime(path, ns=(10**18 + 123456789, 10**18 + 123456789))
    found = _described(argv, path)
    assert (found.kind, found.size, found.mode) == ("file", 5, 0o640)
    assert found.mtime_ns == 10**18 + 123456789


@given(st.binary(max_size=300))
def test_lies_are_no_entries(data):
    mark = f"/{_NONCE}/".encode()
    for lie in (data, data + mark + b"\n", mark.join([data, data, b""]) + b"\n"):
        try:
            for fields in answers.records(lie, _NONCE):
                found = answers.entry(fields, "/shown")
        except errors.ProtocolError:
            continue
        else:
            if lie.endswith(mark + b"\n"):
                assert stat.S_IMODE(found.mode) == found.mode


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"no error No such file or directory\n", errors.PathMissingError),
        (b"no error Filename too long\n", errors.StorageError),
        (b"no error Symbolic link loop\n", errors.PathError),
        (b"no error Not a directory\n", errors.PathNotDirectoryError),
        (b"no error Permission denied\n", errors.PathAccessError),
        (b"no error No space left on device\n", errors.StorageError),
        (b"no error what nobody knows\n", errors.StorageError),
        (b"no not_regular\n", errors.NotRegularFileError),
        (b"no conflict\n", errors.ConflictError),
        (b"no way\n", errors.ProtocolError),
        (b"perhaps\n", errors.ProtocolError),
        (b"", errors.ProtocolError),
    ],
)
def test_refusals_are_errors_of_the_tree(line, kind):
    with pytest.raises(kind):
        answers.check(line, op="read", path="/p")


def test_the_text_of_an_error_is_a_number():
    refused = answers.refusal(b"no error Read-only file system\n")
    assert refused is not None
    assert refused.number == errno.EROFS


@given(st.binary(max_size=200))
def test_no_answer_is_taken_for_another(data):
    try:
        answers.check(data, op="read", path="/p")
    except errors.IsoboxError:
        return
    assert data.startswith(b"ok")


@pytest.mark.parametrize("text", [b"", b"abc", b"z" * 64, b"0" * 63])
def test_no_digest_is_no_digest(text):
    with pytest.raises(errors.ProtocolError):
        answers.digest_in(text)
