"""The Python to bring along: what it is made of, and what is refused."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from isobox._guest import carried, elf, modules
from isobox.errors import BackendUnavailableError

TRY = """
import sys, hashlib, re, tarfile, difflib, ctypes, socket, array, zlib
hashlib.sha256(b"x").hexdigest(), "x".encode("gb18030"), ctypes.CDLL(None).getpid()
names = [getattr(each, "__file__", None) for each in sys.modules.values()]
print(sys.prefix, [each for each in names if each and not each.startswith(sys.prefix)])
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "isobox" / "python"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield carried.carried()


def test_it_runs_with_its_own_files_only(made):
    command = [*made.argv(made.directory), "-I", "-S", "-c", TRY]
    done = subprocess.run(command, capture_output=True, text=True, env={}, check=False)
    assert (done.stdout, done.stderr) == (f"{made.directory} []\n", "")


def test_it_names_no_place_of_the_host(made):
    compiled = Path(made.directory).rglob("*.pyc")
    # Not its prefix: that may be /usr, which the library itself speaks of.
    library = os.fsencode(sysconfig.get_path("stdlib"))
    mentions = [path for path in compiled if library in path.read_bytes()]
    assert mentions == []


def test_every_user_can_use_it_and_none_can_write(made):
    paths = [Path(made.directory), *Path(made.directory).rglob("*")]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert modes == {0o755, 0o555, 0o444}


def test_a_narrow_umask_changes_nothing(cache):
    before = os.umask(0o077)
    try:
        test_every_user_can_use_it_and_none_can_write(carried.carried())
    finally:
        os.umask(before)


def test_it_is_made_once_and_again_where_it_was_changed(cache):
    first = carried.carried()
    made = Path(first.directory).stat().st_ino
    assert carried.carried() == first
    assert Path(first.directory).stat().st_ino == made
    program = Path(first.directory, "python3")
    program.chmod(0o755)
    program.write_bytes(b"something else")
    assert carried.carried() == first
    assert program.read_bytes().startswith(b"\x7fELF")
    assert sorted(p.name[:4] for p in cache.iterdir()) == sorted(
        [f"{first.directory.rpartition('/')[2]}"[:4]] * 2 + ["for-"]
    )


@pytest.mark.parametrize("manifest", ["[", '{"python3": 1}', "{}"])
def test_a_manifest_that_says_nothing_is_made_again(cache, made, manifest):
    cache.mkdir(parents=True, mode=0o700)
    name = Path(made.directory).name
    shutil.copytree(made.directory, cache / name)
    (cache / f"{name}.json").write_text(manifest)
    assert Path(carried.carried().directory) == cache / name
    assert "python3" in json.loads((cache / f"{name}.json").read_text())


def test_a_directory_that_others_can_write_is_refused(cache):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    with pytest.raises(BackendUnavailableError, match="can be written by others"):
        carried.carried()


def test_a_link_in_its_place_is_refused(cache, tmp_path):
    cache.parent.mkdir()
    cache.symlink_to(tmp_path)
    with pytest.raises(BackendUnavailableError, match="is not a directory of uid"):
        carried.carried()


def test_a_host_that_is_no_linux_is_told(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(BackendUnavailableError, match="Linux host"):
        carried.carried()


def test_a_library_that_is_not_there_is_named(monkeypatch):
    program = elf.read(os.path.realpath(sys.executable))
    lacking = elf.Elf(program.path, program.machine, "", ("libnowhere.so.1",), ())
    with pytest.raises(elf.ElfError, match=r"needs libnowhere\.so\.1"):
        elf.libraries([lacking])


def test_no_program_is_no_elf_file(tmp_path):
    (tmp_path / "script").write_text("#!/bin/sh\n")
    with pytest.raises(elf.ElfError, match="is not an ELF file"):
        elf.read(str(tmp_path / "script"))


@example(cut=58, at=39, value=128)  # where its segments are is beyond any file
@given(cut=st.integers(4, 4096), at=st.integers(4, 4095), value=st.integers(0, 255))
def test_a_broken_file_is_read_or_refused(tmp_path_factory, cut, at, value):
    raw = bytearray(Path("/proc/self/exe").read_bytes()[:4096])
    raw[at] = value
    path = tmp_path_factory.getbasetemp() / "broken"
    path.write_bytes(raw[:cut])
    with contextlib.suppress(elf.ElfError):
        elf.read(str(path))


def test_modules_that_relative_imports_name_are_there():
    found = modules.needed()
    assert {"re/_compiler.py", "os.py", "encodings/utf_8.py"} <= set(found.sources)
    assert "ssl.py" not in found.sources
