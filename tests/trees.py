"""The root file systems that tests run in, as archives.

debootstrap takes half a minute and the mirror of the distribution. With
`ISOBOX_TEST_CACHE`, a directory, it is asked once for each state of the recipe;
`python tests/trees.py DIRECTORY` does so ahead.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

MIRROR = "http://deb.debian.org/debian"
SUITE = "bookworm"
PYTHON = "3.11"
PACKAGES = ("python3", "bubblewrap", "busybox-static")
VERSION = 2
#: Debian's busybox has none, and the contract asks it for the environment.
_PRINTENV = r"""#!/bin/sh
[ $# = 0 ] && exec env
for name; do
  eval "[ \"\${$name+set}\" ]" || exit 1
  eval "printf '%s\n' \"\$$name\""
done
"""
BUSYBOX = "bin/busybox"
LEFT_OUT = ("var/cache/apt", "var/lib/apt/lists", BUSYBOX, "dev")
PLACES = ("bin", "dev", "etc", "proc", "sys", "tmp", "root", "var")
USERS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"


class RecipeError(Exception):
    """An archive could not be made; says why."""


class Archives(NamedTuple):
    """Where they are."""

    python: Path
    busybox: Path


def archives(place: Path) -> Archives:
    """Return the archives below `place`, made if they are not there."""
    recipe = repr((MIRROR, SUITE, PACKAGES, VERSION, os.uname().machine))
    state = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    found = Archives(place / f"python-{state}.tar", place / f"busybox-{state}.tar")
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(each.exists() for each in found):
            _make(place, found)
    return found


def unpack(archive: Path, directory: Path) -> Path:
    """Make the directory that an archive holds."""
    directory.mkdir()
    subprocess.run(["tar", "-C", directory, "-xpf", archive], check=True)
    return directory


def _make(place: Path, wanted: Archives) -> None:
    with tempfile.TemporaryDirectory(dir=place) as name:
        root, small = Path(name, "debian"), Path(name, "busybox")
        _debootstrap(root)
        _busybox(root / BUSYBOX, small)
        for each in LEFT_OUT:
            _empty(root / each)
        for tree, archive in ((small, wanted.busybox), (root, wanted.python)):
            made = Path(name, archive.name)
            subprocess.run(["tar", "-C", tree, "-cf", made, "."], check=True)
            made.rename(archive)


def _debootstrap(root: Path) -> None:
    done = subprocess.run(
        [
            # What it mounts is gone with it, also when it is ended in the middle.
            *("unshare", "--mount", "--propagation", "private", "--"),
            *("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"),
            *(SUITE, str(root), MIRROR),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        raise RecipeError(f"debootstrap: {done.stdout[-500:]}{done.stderr[-500:]}")


def _busybox(binary: Path, root: Path) -> None:
    for name in PLACES:
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc" / "passwd").write_text(USERS)
    shutil.copy2(binary, root / BUSYBOX)
    names = subprocess.run([binary, "--list"], capture_output=True, check=True)
    for name in names.stdout.decode().split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")
    add_printenv(root)


def add_printenv(root: Path) -> None:
    """Put a program there that Debian's busybox has not."""
    (root / "bin/printenv").write_text(_PRINTENV)
    (root / "bin/printenv").chmod(0o755)


def _empty(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
        path.mkdir()
    else:
        path.unlink()


if __name__ == "__main__":
    archives(Path(sys.argv[1]))
