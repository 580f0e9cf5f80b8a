"""The guest as compiled bytes for a given interpreter."""

from __future__ import annotations

import functools
import importlib.util
import marshal
import os
import re
import subprocess
import sys

from isobox.errors import BackendUnavailableError

_MODULE = "isobox._guest.agent"
_VERSIONED = re.compile(r"python(3\.\d+)")

#: Flags, time and size of a .pyc's header; nobody checks them for a program.
_STAMP = bytes(12)

#: Run by another interpreter: compile standard input, write a .pyc.
_COMPILER = (
    "import sys, marshal, _imp, importlib._bootstrap_external as b;"
    "c = compile(sys.stdin.buffer.read(), 'guest', 'exec', dont_inherit=True);"
    "sys.stdout.buffer.write(b.MAGIC_NUMBER + bytes(12) + marshal.dumps(c))"
)


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
        return importlib.util.MAGIC_NUMBER + _STAMP + marshal.dumps(_code())
    return _compiled_by(python)


def _same_version(python: str) -> bool:
    if python == os.path.realpath(sys.executable):
        return True
    named = _VERSIONED.fullmatch(os.path.basename(python))
    ours = "{}.{}".format(*sys.version_info)
    return bool(named) and named[1] == ours and sys.implementation.name == "cpython"


def _code() -> object:
    spec = importlib.util.find_spec(_MODULE)
    assert spec is not None  # noqa: S101 - it is part of this package
    return spec.loader.get_code(_MODULE)  # type: ignore[union-attr]


def _compiled_by(python: str) -> bytes:
    spec = importlib.util.find_spec(_MODULE)
    assert spec is not None  # noqa: S101 - it is part of this package
    source = spec.loader.get_data(spec.origin)  # type: ignore[union-attr]
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", _COMPILER],
            input=source,
            capture_output=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BackendUnavailableError(
            f"the interpreter {python} cannot compile the guest: {error}"
        ) from error
    return done.stdout
