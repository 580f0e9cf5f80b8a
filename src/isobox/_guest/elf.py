"""What a dynamic ELF file asks for: its loader, and its libraries."""

from __future__ import annotations

import glob
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MAGIC: Final = b"\x7fELF"
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 15, 29
_BOTH: Final = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")


class ElfError(ValueError):
    """The file is no dynamic ELF file of this kind of machine."""


@dataclass(frozen=True)
class Elf:
    """One file.

    Attributes:
        path: Where it is.
        machine: What it is for: class, byte order and machine of its header.
        interpreter: The loader that it names; empty for a library.
        needed: Names of the libraries that it needs.
        runpath: Directories where it wants them looked for first.
    """

    path: str
    machine: bytes
    interpreter: str
    needed: tuple[str, ...]
    runpath: tuple[str, ...]


@dataclass(frozen=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def read(path: str) -> Elf:
    """Read what the file at `path` asks for.

    Raises:
        ElfError: It is not an ELF file, or is broken.
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        raw = file.read()
    if not raw.startswith(_MAGIC):
        raise ElfError(f"{path} is not an ELF file")
    try:
        return _parsed(path, raw)
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise ElfError(f"{path} is a broken ELF file: {error}") from error


def _parsed(path: str, raw: bytes) -> Elf:
    order = "<" if raw[5] == 1 else ">"
    segments = list(_segments(raw, order, wide=raw[4] == 2))
    entries = list(_dynamic(raw, segments, order, wide=raw[4] == 2))
    names = _names_at(raw, segments, dict(entries).get(_DT_STRTAB, 0))
    told = [v for tag, v in entries if tag in (_DT_RPATH, _DT_RUNPATH)]
    return Elf(
        path=path,
        machine=raw[4:6] + raw[18:20],
        interpreter=_interpreter(raw, segments),
        needed=tuple(_text(names, v) for tag, v in entries if tag == _DT_NEEDED),
        runpath=tuple(each for v in told for each in _text(names, v).split(":")),
    )


def _segments(raw: bytes, order: str, *, wide: bool) -> Iterator[_Segment]:
    (start,) = struct.unpack_from(
        order + ("Q" if wide else "I"), raw, 32 if wide else 28
    )
    size, count = struct.unpack_from(order + "HH", raw, 54 if wide else 42)
    for index in range(count):
        place = start + index * size
        if wide:
            kind, _, offset, address, _, length = struct.unpack_from(
                order + "IIQQQQ", raw, place
            )
        else:
            kind, offset, address, _, length = struct.unpack_from(
                order + "IIIII", raw, place
            )
        yield _Segment(kind, offset, address, length)


def _dynamic(
    raw: bytes, segments: Sequence[_Segment], order: str, *, wide: bool
) -> Iterator[tuple[int, int]]:
    form = struct.Struct(order + ("QQ" if wide else "II"))
    for segment in segments:
        if segment.kind == _PT_DYNAMIC:
            whole = segment.size // form.size * form.size
            body = raw[segment.offset : segment.offset + whole]
            for tag, value in form.iter_unpack(body):
                if tag == _DT_NULL:
                    return
                yield tag, value


def _names_at(raw: bytes, segments: Sequence[_Segment], address: int) -> bytes:
    for each in segments:
        if each.kind == _PT_LOAD and each.address <= address < each.address + each.size:
            return raw[each.offset + address - each.address :]
    return b""


def _text(names: bytes, offset: int) -> str:
    return os.fsdecode(names[offset : names.index(b"\0", offset)])


def _interpreter(raw: bytes, segments: Sequence[_Segment]) -> str:
    for each in segments:
        if each.kind == _PT_INTERP:
            return os.fsdecode(raw[each.offset : each.offset + each.size].rstrip(b"\0"))
    return ""


def libraries(files: Sequence[Elf], *, known: Sequence[str] = ()) -> dict[str, str]:
    """Return the libraries that files need, and those need, as name to path.

    Args:
        files: The files.
        known: Names that need not be found, as that of the loader.

    Raises:
        ElfError: One is not found, or broken.
        OSError: One cannot be read.
    """
    found: dict[str, str] = {}
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        for name in file.needed:
            if name not in found and name not in known:
                library = _library(name, file)
                found[name] = library.path
                waiting.append(library)
    return found


def _library(name: str, user: Elf) -> Elf:
    for directory in _directories(user):
        path = os.path.join(directory, name)
        if os.path.isfile(path):
            library = read(os.path.realpath(path))
            if library.machine == user.machine:
                return library
    raise ElfError(f"{user.path} needs {name}, which is not found")


def _directories(user: Elf) -> Iterator[str]:
    origin = os.path.dirname(user.path)
    for each in user.runpath:
        yield each.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
    # Where its neighbours are, a library is found that was found by a RUNPATH.
    yield origin
    yield from _configured("/etc/ld.so.conf")
    for musl in glob.glob("/etc/ld-musl-*.path"):
        with open(musl, encoding="utf-8") as file:
            yield from file.read().replace(":", "\n").split()
    for directory in _BOTH:
        yield from sorted(glob.glob(f"{directory}/*-linux-*"))
        yield directory


def _configured(path: str, depth: int = 0) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.partition("#")[0].split() for line in file]
    except OSError:
        return
    for words in filter(None, lines):
        if words[0] == "include" and depth < 4:
            for pattern in words[1:]:
                for each in sorted(glob.glob(os.path.join("/etc", pattern))):
                    yield from _configured(each, depth + 1)
        elif words[0].startswith("/"):
            yield words[0]
