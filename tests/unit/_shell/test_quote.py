"""Any bytes reach a program as they are."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobox._shell.quote import decoded, encoded, filled, loading, quoted

_SHELLS = [["dash"], ["busybox", "ash"], ["bash"]]
#: What shells treat apart: control bytes of their own, quotes, newlines.
_BYTES = st.lists(
    st.one_of(
        st.sampled_from(
            [b"'", b'"', b"\\", b"\n", b"$(id)", b"`id`", b"*", b"~", b"-", b"%s"]
        ),
        st.integers(1, 255).map(lambda number: bytes([number])),
    ),
    max_size=40,
).map(b"".join)


def _ran(shell, program, data=b""):
    if shutil.which(shell[0]) is None:
        pytest.skip(f"no {shell[0]}")
    argv = [*shell, *loading(program)[1:]]
    done = subprocess.run(
        argv, input=program + data, capture_output=True, check=True, timeout=20
    )
    return done.stdout


@pytest.mark.parametrize("shell", _SHELLS, ids=lambda shell: shell[-1])
@given(words=st.lists(_BYTES, max_size=8))
@settings(max_examples=60, deadline=None)
def test_words_arrive_whole(shell, words):
    code = filled("printf '<%s>' <words>; echo", words=words)
    expected = b"".join(b"<" + word + b">" for word in words) or b"<>"
    assert _ran(shell, code) == expected + b"\n"


@pytest.mark.parametrize("shell", _SHELLS, ids=lambda shell: shell[-1])
@given(value=_BYTES, rest=_BYTES)
@settings(max_examples=40, deadline=None)
def test_what_follows_a_program_is_its_input(shell, value, rest):
    code = filled("export A=<value>; printf '%s.' \"$A\"; cat", value=value)
    assert _ran(shell, code, rest) == value + b"." + rest


@pytest.mark.parametrize("shell", _SHELLS, ids=lambda shell: shell[-1])
def test_a_program_of_megabytes_is_loaded(shell):
    code = filled("a=<a>; printf %s ${#a}", a="x" * (3 << 20))
    assert _ran(shell, code, b"rest") == str(3 << 20).encode()


@given(st.binary(max_size=60))
def test_paths_of_any_bytes_come_back(data):
    assert encoded(decoded(data)) == data


def test_what_stands_in_a_word_is_not_filled():
    assert filled("<a> <b>", a="<b>", b="c") == b"'<b>' 'c'"
    assert filled("<n> <other>", n=7) == b"7 <other>"
    assert quoted("it's") == b"'it'\\''s'"
