"""The guest as compiled bytes for a given interpreter."""

from __future__ import annotations

import functools
import importlib.util
import marshal
import os
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING

from isobox.errors import BackendUnavailableError

if TYPE_CHECKING:
    from types import CodeType

_PACKAGE = "isobox._guest"
_VERSIONED = re.compile(r"python(3\.\d+)")

#: Flags, time and size of a .pyc's header; nobody checks them for a program.
STAMP = bytes(12)

#: Run by another interpreter: compile standard input, write a .pyc.
_COMPILER = (
    "import sys, marshal, _imp, importlib._bootstrap_external as b;"
    "c = compile(sys.stdin.buffer.read(), 'guest', 'exec', dont_inherit=True);"
    "sys.stdout.buffer.write(b.MAGIC_NUMBER + bytes(12) + marshal.dumps(c))"
)


def source(name: str) -> bytes:
    """Return the text of one of this package's programs."""
    loader = _loader(name)
    return loader.get_data(loader.path)


def program(python: str) -> bytes:
    """Return the guest compiled for the interpreter at `python`.

    Compiling takes longer than everything else that a guest does to start, so
    it is done once per interpreter and process.

    Raises:
        BackendUnavailableError: The interpreter does not run.
    """
    return _program(os.path.realpath(python))


@functools.lru_cache(maxsize=8)
def _program(python: str) -> bytes:
    if _same_version(python):
        return importlib.util.MAGIC_NUMBER + STAMP + marshal.dumps(_code())
    return _compiled_by(python)


def _same_version(python: str) -> bool:
    if python == os.path.realpath(sys.executable):
        return True
    named = _VERSIONED.fullmatch(os.path.basename(python))
    ours = "{}.{}".format(*sys.version_info)
    if named is None or sys.implementation.name != "cpython":
        return False
    return named[1] == ours


def _code() -> CodeType:
    code = _loader("agent").get_code(f"{_PACKAGE}.agent")
    assert code is not None  # noqa: S101 - it is part of this package
    return code


def _loader(name: str) -> SourceFileLoader:
    module = f"{_PACKAGE}.{name}"
    spec = importlib.util.find_spec(module)
    assert spec is not None  # noqa: S101 - it is part of this package
    assert spec.origin is not None  # noqa: S101 - it is a file
    # Not the spec's own loader: a test runner may have put one there that
    # changes what it loads.
    return SourceFileLoader(module, spec.origin)


def _compiled_by(python: str) -> bytes:
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", _COMPILER],
            input=source("agent"),
            capture_output=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BackendUnavailableError(
            f"the interpreter {python} cannot compile the guest: {error}"
        ) from error
    return done.stdout
