"""A Python to bring along: for images that have none.

Made of the interpreter that runs isobox: the program, its loader, the libraries
that it needs and the part of the standard library that the guest uses, compiled.
With its own loader it runs on any root file system of the same kind of machine,
also on one without a C library or with another.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import json
import marshal
import os
import stat
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._guest import elf, modules
from isobox.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LOADER, _PROGRAM, _LIBRARIES = "ld.so", "python3", "lib"
_ENTERED_BY_ALL: Final = 0o755
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
    a directory that is named by its contents. What is there is read and verified;
    it is made anew where it does not match, or the host's files have changed.
    Making takes about two seconds, finding a tenth of one.

    Raises:
        BackendUnavailableError: This interpreter cannot be brought along, or the
            directory cannot be written or belongs to somebody else.
    """
    if sys.platform != "linux":
        raise BackendUnavailableError(
            "only the Python of a Linux host can be brought along", fix=_HELP
        )
    try:
        base = _own_directory()
        return _loaded(os.path.join(base, _key())) or _made(base)
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

    programs: Mapping[str, str]
    sources: Mapping[str, str]

    def files(self) -> Iterator[tuple[str, str, bytes, int]]:
        """Give each file: its place, where it is from, its content and mode."""
        for place, path in sorted(self.programs.items()):
            yield place, path, _content(path), 0o555
        for place, path in sorted(self.sources.items()):
            yield place, path, _compiled(place, path), 0o444

    def digest(self) -> str:
        whole = hashlib.sha256(importlib.util.MAGIC_NUMBER)
        for place, path in sorted({**self.programs, **self.sources}.items()):
            whole.update(f"{place} {_digest(_content(path))}\n".encode())
        return whole.hexdigest()[:32]


def _recipe() -> _Recipe:
    program = elf.read(_interpreter())
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
    return _Recipe(programs, sources)


def _interpreter() -> str:
    # In a virtual environment, the one that it was made from.
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def _key() -> str:
    """Return the name of the link for this interpreter and this guest."""
    which = [_interpreter(), sys.version, _digest(_content(modules.AGENT))]
    return f"for-{_digest(repr(which).encode())[:32]}"


def _own_directory() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.expanduser("~/.cache")
    base = os.path.join(cache, "isobox", "python")
    os.makedirs(base, mode=0o700, exist_ok=True)
    about = os.lstat(base)
    # SAFETY: what others could write there would run as the guest.
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise PermissionError(f"{base} is not a directory of uid {os.geteuid()}")
    if about.st_mode & 0o022:
        raise PermissionError(f"{base} can be written by others (chmod 700 {base})")
    return base


def _made(base: str) -> CarriedPython:
    recipe = _recipe()
    directory = os.path.join(base, recipe.digest())
    made = _loaded(directory)
    if made is None:
        _put(recipe, base, directory)
        made = _loaded(directory)
    if made is None:
        raise OSError(f"{directory} is not what was just written there")
    with tempfile.TemporaryDirectory(prefix="new-", dir=base) as place:
        link = os.path.join(place, "link")
        os.symlink(os.path.basename(directory), link)
        os.replace(link, os.path.join(base, _key()))
    return made


def _put(recipe: _Recipe, base: str, directory: str) -> None:
    with tempfile.TemporaryDirectory(prefix="new-", dir=base) as place:
        made = os.path.join(place, "made")
        manifest = _write_all(recipe, made)
        with contextlib.suppress(FileNotFoundError):
            os.rename(directory, os.path.join(place, "old"))
        try:
            os.rename(made, directory)
        except OSError as error:
            # Another process was faster; what it made is the same.
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        # Beside it: where the host keeps its files is nobody's business inside.
        _write(os.path.join(place, "manifest"), manifest, 0o600)
        os.replace(os.path.join(place, "manifest"), f"{directory}.json")


def _write_all(recipe: _Recipe, made: str) -> bytes:
    manifest: dict[str, list[object]] = {}
    for place, path, content, mode in recipe.files():
        _write(os.path.join(made, place), content, mode)
        manifest[place] = [_digest(content), path, *_state(path)]
    for directory, _, _ in os.walk(made):
        os.chmod(directory, _ENTERED_BY_ALL)
    return json.dumps(manifest).encode()


def _write(path: str, content: bytes, mode: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)


def _compiled(place: str, path: str) -> bytes:
    # Named by its place inside, not by where the host keeps it.
    code = compile(_content(path), place.removesuffix("c"), "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + _STAMP + marshal.dumps(code)


def _loaded(path: str) -> CarriedPython | None:
    """Return what is at `path` if it is as it was made, and would be made again."""
    directory = os.path.realpath(path)
    size = 0
    try:
        manifest = json.loads(_content(f"{directory}.json"))
        if _PROGRAM not in manifest:
            return None
        for place, (digest, source, *state) in manifest.items():
            content = _content(os.path.join(directory, place))
            if _digest(content) != digest or _state(source) != state:
                return None
            size += len(content)
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    linked = _LOADER in manifest
    return CarriedPython(directory, os.uname().machine, size, linked)


def _state(path: str) -> list[int]:
    about = os.stat(path)
    return [about.st_size, about.st_mtime_ns]


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
