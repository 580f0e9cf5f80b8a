"""A Python to bring along: for images that have none.

Made of the interpreter that runs isobox: the program, its loader, the libraries
that it needs and the part of the standard library that the guest uses, compiled.
With its own loader it runs on any root file system of the same kind of machine,
also on one without a C library or with another.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import marshal
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._guest import elf, modules
from isobox.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOADER, _PROGRAM, _LIBRARIES, _MANIFEST = "ld.so", "python3", "lib", "manifest.json"
_STAMP: Final = bytes(12)
_HELP: Final = "use an image that has Python 3.8 or newer"


@dataclass(frozen=True)
class CarriedPython:
    """An interpreter that needs nothing of what is around it.

    Attributes:
        directory: Where it is on the host: to be mounted read-only, as a whole.
        machine: The kind of machine that it is for, as `uname -m` names it.
        size: Bytes of all its files.
    """

    directory: str
    machine: str
    size: int
    linked: bool

    def argv(self, place: str) -> list[str]:
        """Return how it is started where `directory` is mounted at `place`.

        Options of Python and a program follow; with `-I -S`, since nothing but
        what the guest imports is there.
        """
        program = f"{place}/{_PROGRAM}"
        if not self.linked:
            return [program]
        libraries = f"{place}/{_LIBRARIES}"
        return [f"{place}/{_LOADER}", "--library-path", libraries, program]


def carried() -> CarriedPython:
    """Return the interpreter to bring along, made if it is not there yet.

    It is below `$XDG_CACHE_HOME/isobox/python`, by default below `~/.cache`, in
    a directory that is named by its contents. What is there is verified; what
    does not match is made anew. Making takes about a second, finding a tenth.

    Raises:
        BackendUnavailableError: This interpreter cannot be brought along, or the
            directory cannot be written or belongs to somebody else.
    """
    if sys.platform != "linux":
        raise BackendUnavailableError(
            "only the Python of a Linux host can be brought along", fix=_HELP
        )
    try:
        return _found_or_made(_own_directory())
    except elf.ElfError as error:
        raise BackendUnavailableError(
            f"this Python cannot be brought along: {error}", fix=_HELP
        ) from error
    except OSError as error:
        raise BackendUnavailableError(
            f"cannot keep a Python to bring along: {error}",
            fix="set XDG_CACHE_HOME to a directory that you may write",
        ) from error


@dataclass(frozen=True)
class _Recipe:
    """What it is made of: place in the directory to file on the host."""

    linked: bool
    programs: Mapping[str, str]
    sources: Mapping[str, str]

    def digest(self) -> str:
        whole = hashlib.sha256(importlib.util.MAGIC_NUMBER)
        for place, path in sorted({**self.programs, **self.sources}.items()):
            content = hashlib.sha256(_content(path)).hexdigest()
            whole.update(f"{place}\0{content}\n".encode())
        return whole.hexdigest()


def _found_or_made(base: str) -> CarriedPython:
    recipe = _recipe()
    directory = os.path.join(base, recipe.digest()[:32])
    size = _verified(directory)
    if size is None:
        _put(recipe, base, directory)
        size = _verified(directory)
    if size is None:
        raise OSError(f"{directory} is not what was just written there")
    return CarriedPython(directory, os.uname().machine, size, recipe.linked)


@functools.cache
def _recipe() -> _Recipe:
    program = elf.read(os.path.realpath(sys._base_executable))
    wanted = modules.needed()
    extensions = {name: elf.read(path) for name, path in wanted.extensions.items()}
    loader = os.path.basename(program.interpreter)
    libraries = elf.libraries([program, *extensions.values()], known=[loader])
    stdlib = f"{sys.platlibdir}/python{sysconfig.get_python_version()}"
    programs = {
        _PROGRAM: program.path,
        **{f"{_LIBRARIES}/{name}": path for name, path in libraries.items()},
        **{f"{stdlib}/lib-dynload/{n}": each.path for n, each in extensions.items()},
    }
    if program.interpreter:
        programs[_LOADER] = program.interpreter
    sources = {f"{stdlib}/{name}c": path for name, path in wanted.sources.items()}
    return _Recipe(bool(program.interpreter), programs, sources)


def _own_directory() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.expanduser("~/.cache")
    base = os.path.join(cache, "isobox", "python")
    os.makedirs(base, mode=0o700, exist_ok=True)
    about = os.lstat(base)
    # SAFETY: a program that others could write would run with the guest's rights.
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise OSError(f"{base} is not a directory of uid {os.geteuid()}")
    if about.st_mode & 0o022:
        raise OSError(f"{base} can be written by others (chmod 700 {base})")
    return base


def _put(recipe: _Recipe, base: str, directory: str) -> None:
    made = tempfile.mkdtemp(prefix="new-", dir=base)
    try:
        _write_all(recipe, made)
        with contextlib.suppress(FileNotFoundError):
            os.rename(directory, f"{made}.old")
        with contextlib.suppress(FileExistsError, OSError):
            # Another process may have been faster; the result is the same.
            os.rename(made, directory)
    finally:
        shutil.rmtree(made, ignore_errors=True)
        shutil.rmtree(f"{made}.old", ignore_errors=True)


def _write_all(recipe: _Recipe, made: str) -> None:
    manifest: dict[str, str] = {}
    for place, path in sorted(recipe.programs.items()):
        manifest[place] = _write(made, place, _content(path), 0o555)
    for place, path in sorted(recipe.sources.items()):
        manifest[place] = _write(made, place, _compiled(place, path), 0o444)
    _write(made, _MANIFEST, json.dumps(manifest, indent=1).encode(), 0o444)
    os.chmod(made, 0o755)


def _write(base: str, place: str, content: bytes, mode: int) -> str:
    path = os.path.join(base, place)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
    return hashlib.sha256(content).hexdigest()


def _compiled(place: str, path: str) -> bytes:
    # Named by its place: where the host keeps it is nobody's business inside.
    code = compile(_content(path), place.removesuffix("c"), "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + _STAMP + marshal.dumps(code)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _verified(directory: str) -> int | None:
    """Return the size of a directory that is as it was made, else None."""
    size = 0
    try:
        manifest = json.loads(_content(os.path.join(directory, _MANIFEST)))
        for place, digest in manifest.items():
            content = _content(os.path.join(directory, place))
            if hashlib.sha256(content).hexdigest() != digest:
                return None
            size += len(content)
    except (OSError, ValueError, AttributeError):
        return None
    return size
