"""Descriptions of images: what is refused, and that nothing else is raised."""

from __future__ import annotations

import contextlib
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox._images.spec import ImageSpec, load, parse
from isobox.errors import InvalidArgumentError, PathMissingError

GOOD = 'name = "x"\nbase = "debian"\n'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "name"),
        ('name = "x"', "base"),
        ('name = "x"\nbase = "a"\nrootfs = "b"', "rootfs"),
        ('name = "X y"\nbase = "a"', "name"),
        ('name = "../x"\nbase = "a"', "name"),
        ('name = "x:latest"\nbase = "a"', "name"),
        ('name = "x"\nbase = "-a"', "base"),
        ('name = "x"\nbase = "a b"', "base"),
        ('name = "x"\nbase = 7', "base"),
        ('name = "x"\nrootfs = "/etc"', "rootfs"),
        ('name = "x"\nrootfs = "../etc"', "rootfs"),
        ('name = "x"\nrootfs = "a/../../etc"', "rootfs"),
        (f"{GOOD}privileged = true", "privileged"),
        (f'{GOOD}packages = "git"', "packages"),
        (f'{GOOD}packages = ["git"]', "manager"),
        (f'{GOOD}packages = ["git"]\nmanager = "sh"', "manager"),
        (f'{GOOD}packages = ["--option"]\nmanager = "apt"', "packages"),
        (f'{GOOD}packages = ["a; reboot"]\nmanager = "apt"', "packages"),
        (f'{GOOD}packages = ["./a.deb"]\nmanager = "apt"', "packages"),
        (f'{GOOD}packages = ["a\\n"]\nmanager = "apt"', "packages"),
        (f"{GOOD}packages = [1]", "packages"),
        (f"{GOOD}python = true", "manager"),
        (f'{GOOD}python = "yes"', "python"),
        (f"{GOOD}network = true", "network"),
        (f'{GOOD}network = "container:other"', "network"),
        (f"{GOOD}network = []", "network"),
        (f'{GOOD}user = "root; x"', "user"),
        (f'{GOOD}user = "-1"', "user"),
        (f'{GOOD}env = {{ "A=B" = "c" }}', "env"),
        (f'{GOOD}env = {{ A = "\\u0000" }}', "env"),
        (f"{GOOD}env = {{ A = 1 }}", "env"),
        (f'{GOOD}env = "A=1"', "env"),
        (f'{GOOD}files = [{{ to = "/a" }}]', "files"),
        (f'{GOOD}files = [{{ to = "/a", content = "", from = "b" }}]', "files"),
        (f'{GOOD}files = [{{ to = "a", content = "" }}]', "files"),
        (f'{GOOD}files = [{{ to = "/", content = "" }}]', "files"),
        (f'{GOOD}files = [{{ to = "/a/../b", content = "" }}]', "files"),
        (f'{GOOD}files = [{{ to = "/a/", content = "" }}]', "files"),
        (f'{GOOD}files = [{{ to = "/proc/1/mem", content = "" }}]', "files"),
        (f'{GOOD}files = [{{ to = "/dev", content = "" }}]', "files"),
        (f'{GOOD}files = [{{ to = "/a\\u0000", content = "" }}]', "files"),
        (f'{GOOD}files = [{{ to = "/a", from = "/etc/shadow" }}]', "files"),
        (f'{GOOD}files = [{{ to = "/a", from = "../secret" }}]', "files"),
        (f'{GOOD}files = [{{ to = "/a", content = "", mode = "4755" }}]', "files"),
        (f'{GOOD}files = [{{ to = "/a", content = "", mode = 493 }}]', "mode"),
        (f'{GOOD}files = [{{ to = "/a", content = "", owner = "x" }}]', "owner"),
        (f"{GOOD}files = [1]", "files"),
        (f"{GOOD}packages = {['a'] * 1001}", "packages"),
        ("name = ", "description"),
        (f"x = {'[' * 5000}", "description"),
    ],
)
def test_a_value_that_cannot_be_honoured_is_named(text, names):
    with pytest.raises(InvalidArgumentError, match=names):
        parse(text.encode())


def test_a_good_one_is_what_it_says(tmp_path):
    (tmp_path / "image.toml").write_text(
        f'{GOOD}packages = ["git=1:2.39-1~deb12"]\nmanager = "apt"\npython = true\n'
        'network = true\nenv = { A = "b" }\nuser = "1000:1000"\n'
        'files = [{ to = "/usr/local/bin/x", from = "tools/x", mode = "755" }]'
    )
    spec = load(tmp_path / "image.toml")
    assert spec.installed == ("git=1:2.39-1~deb12", "python3")
    assert (spec.network, spec.directory) == ("default", str(tmp_path))
    assert (spec.files[0].source, spec.files[0].mode) == ("tools/x", 0o755)


def test_a_file_that_is_not_there_or_too_long(tmp_path):
    with pytest.raises(PathMissingError):
        load(tmp_path / "none.toml")
    (tmp_path / "long.toml").write_text("#" * (1 << 21))
    with pytest.raises(InvalidArgumentError, match="longer"):
        load(tmp_path / "long.toml")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_description_or_refused(raw):
    with contextlib.suppress(InvalidArgumentError):
        assert isinstance(parse(raw), ImageSpec)


VALUES = st.recursive(
    st.text(max_size=20) | st.booleans() | st.integers(-9, 9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["to", "from", "A"]), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["name", "base", "rootfs", "packages", "manager", "network", "files", "env", "user"]
)


@given(st.dictionaries(KEYS, VALUES))
def test_any_values_are_a_description_or_refused(given_values):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tomllib, "loads", lambda _: given_values)
        with contextlib.suppress(InvalidArgumentError):
            parse(b"")
