"""Which modules of the standard library the guest needs."""

from __future__ import annotations

import ast
import glob
import os
import sysconfig
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What an interpreter imports to start, what starts the guest or leads to it,
#: and what the guest's modules import only when they are called.
_ROOTS: Final = (
    *("array", "codecs", "io", "marshal", "os", "runpy", "select", "socket"),
    *("struct", "zlib"),
    *("_md5", "_sha1", "_sha2", "_sha256", "_sha512", "_sha3", "_blake2"),
    *("_multibytecodec", "unicodedata"),
)
#: Its place is taken by the modules above; it needs all of OpenSSL.
_LEFT_OUT: Final = frozenset({"_hashlib", "_ssl"})
AGENT: Final = os.path.join(os.path.dirname(__file__), "agent.py")


@dataclass
class Modules:
    """Files of the standard library.

    Attributes:
        sources: Path below the standard library to path on the host.
        extensions: File name of an extension module to path on the host.
    """

    sources: dict[str, str] = field(default_factory=dict[str, str])
    extensions: dict[str, str] = field(default_factory=dict[str, str])


def needed() -> Modules:
    """Return what the guest imports, and all that is imported with it."""
    stdlib = sysconfig.get_path("stdlib")
    places = [stdlib, os.path.join(stdlib, "lib-dynload")]
    found = Modules()
    seen = {"", *_LEFT_OUT}
    waiting = [*_ROOTS, *_encodings(stdlib), *_imports(_tree(AGENT), "", inner=True)]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += _added(name, places, found)
    return found


def _encodings(stdlib: str) -> Iterator[str]:
    for path in glob.glob(os.path.join(stdlib, "encodings", "*.py")):
        yield f"encodings.{os.path.basename(path).removesuffix('.py')}"


def _added(name: str, places: list[str], found: Modules) -> list[str]:
    origin = _origin(name, places)
    if origin is None:
        return []
    if origin.endswith(tuple(EXTENSION_SUFFIXES)):
        found.extensions[os.path.basename(origin)] = origin
        return []
    found.sources[os.path.relpath(origin, places[0])] = origin
    parent = name.rpartition(".")[0]
    package = name if os.path.basename(origin) == "__init__.py" else parent
    return [parent, *_imports(_tree(origin), package, inner=False)]


def _origin(name: str, places: list[str]) -> str | None:
    """Return the file of a module, None where it has none or is no module."""
    parts = name.split(".")
    here = places
    for depth in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:depth]), here)
        if spec is None or spec.origin is None:
            return None
        if depth == len(parts):
            return spec.origin
        here = list(spec.submodule_search_locations or ())
    return None


def _tree(path: str) -> ast.Module:
    with open(path, "rb") as file:
        return ast.parse(file.read())


def _imports(node: ast.AST, package: str, *, inner: bool) -> Iterator[str]:
    """Return names that may be modules; with `inner` those in functions too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            module = _absolute(child, package)
            yield module
            yield from (f"{module}.{alias.name}" for alias in child.names)
        elif inner or not _is_apart(child):
            yield from _imports(child, package, inner=inner)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    parents = package.split(".")[: 1 - node.level or None] if node.level else []
    return ".".join([*parents, *([node.module] if node.module else [])])


def _is_apart(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return "__main__" in ast.dump(node.test)
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.expr))
