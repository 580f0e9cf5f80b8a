"""What Python code would do, as facts: used to ask more, never to allow more."""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import logging
import warnings
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from isobox._policy.python_runs import Runs

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

#: Bytes of the longest code, and nodes of the largest tree, that are read.
LONGEST: Final = 64 * 1024
NODES: Final = 10_000

#: A name in no package, so that bandit looks for none on the disk.
_FILE: Final = "./code.py"
_DYNAMIC: Final = frozenset(
    {"__import__", "compile", "eval", "exec", "importlib.import_module", "input"}
    | {"builtins.eval", "builtins.exec", "builtins.compile", "builtins.__import__"}
    | {"runpy.run_path", "runpy.run_module", "code.interact", "marshal.loads"}
    | {"pickle.load", "pickle.loads", "types.FunctionType", "types.CodeType"}
    | {"getattr", "globals", "locals", "vars", "breakpoint", "setattr", "delattr"}
    | {"operator.attrgetter", "operator.methodcaller", "webbrowser.open"}
    | {"timeit.timeit", "timeit.repeat", "timeit.Timer", "cProfile.run", "profile.run"}
    | {"cProfile.runctx", "profile.runctx", "pdb.run", "pdb.runeval", "pdb.set_trace"}
    | {"doctest.testmod", "doctest.testfile", "logging.config.dictConfig"}
    | {"logging.config.fileConfig", "yaml.load", "yaml.unsafe_load", "dill.loads"}
    | {"dill.load", "joblib.load", "shelve.open", "pickle.Unpickler", "pydoc.locate"}
    | {"pkgutil.resolve_name", "imp.load_source", "site.addsitedir", "bdb.Bdb"}
    | {"importlib.reload", "importlib.util.spec_from_file_location"}
)
_FOREIGN: Final = frozenset(
    {"ctypes", "cffi", "_ctypes", "gc", "codeop", "code", "_posixsubprocess", "sh"}
    | {
        "pipes",
        "tkinter",
        "_tkinter",
        "plumbum",
        "pexpect",
        "fabric",
        "invoke",
        "ptyprocess",
        "_winapi",
        "inspect",
    }
)
_OPENS: Final = frozenset({"open", "io.open", "codecs.open", "builtins.open"})
_WRITING: Final = frozenset("wax+")


@dataclass(frozen=True, slots=True)
class PythonFacts:
    """What a Python program would do, as far as reading it tells.

    Attributes:
        imports: Modules and names that it imports, such as `os.path`.
        calls: Dotted names that it calls, by the names that they are imported
            from: `import os as o; o.system()` is `os.system`.
        writes: Files that it opens to write; None where only running tells.
        scripts: What it runs in turn, as a shell would be told; what only
            running it tells is a variable in it.
        findings: What bandit says, as `B602 HIGH line 3: text`, in its order;
            none where it is not installed (`pip install "isobox[bandit]"`).
        doubts: Why it is not understood.
    """

    imports: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    writes: tuple[str | None, ...] = ()
    findings: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()

    @property
    def understood(self) -> bool:
        """Whether every call has a name; False asks a person."""
        return not self.doubts


@dataclass(slots=True)
class _Found:
    imports: dict[str, None] = field(default_factory=dict[str, None])
    calls: dict[str, None] = field(default_factory=dict[str, None])
    writes: dict[str | None, None] = field(default_factory=dict[str | None, None])
    doubts: dict[str, None] = field(default_factory=dict[str, None])
    names: dict[str, str] = field(default_factory=dict[str, str])


def facts(source: str) -> PythonFacts:
    """What a Python program would do. Nothing is executed; no text raises."""
    tree = _parsed(source)
    if isinstance(tree, str):
        return PythonFacts(doubts=(tree,))
    nodes = list(_walk(tree))
    found = _Found()
    if len(nodes) > NODES:
        found.doubts["it is too long to be read"] = None
    for node in nodes:
        _imports(node, found)
    runs = Runs(found.names)
    for node in nodes:
        _names(node, found)
        runs.look(node)
    found.doubts |= runs.doubts
    said = () if len(nodes) > NODES else _findings(source, found)
    return PythonFacts(
        imports=tuple(found.imports),
        calls=tuple(found.calls),
        writes=tuple(found.writes),
        findings=said,
        doubts=tuple(found.doubts),
        scripts=tuple(runs.scripts),
    )


def _parsed(source: str) -> ast.Module | str:
    try:
        if len(source.encode()) > LONGEST:
            return "it is longer than 64 KiB"
        with warnings.catch_warnings():
            # Odd escapes in hostile text are no warning about our own code.
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        # SystemError: CPython before 3.11.8, where one parse interrupts another.
        return "it is not Python that can be read"


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes in the order of the source, one more than the bound at most."""
    stack = [tree]
    count = 0
    while stack and count <= NODES:
        node = stack.pop()
        count += 1
        yield node
        stack.extend(reversed(list(ast.iter_child_nodes(node))))


def _imports(node: ast.AST, found: _Found) -> None:
    if isinstance(node, ast.Import):
        for each in node.names:
            found.imports[each.name] = None
            top = each.name.split(".")[0]
            _name(each.asname or top, each.name if each.asname else top, found)
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for each in node.names:
            found.imports[f"{module}.{each.name}"] = None
            _name(each.asname or each.name, f"{module}.{each.name}", found)
            if each.name == "*":
                found.doubts[f"it imports every name of {module}"] = None
    for name in _FOREIGN & {each.split(".")[0] for each in found.imports}:
        found.doubts[f"it imports {name}, which reaches outside Python"] = None


def _name(name: str, means: str, found: _Found) -> None:
    if found.names.setdefault(name, means) != means:
        found.doubts[f"{name} is the name of more than one thing"] = None


def _names(node: ast.AST, found: _Found) -> None:
    if isinstance(node, ast.Call):
        _call(node, found)
    elif isinstance(node, ast.Attribute):
        _reached(node, found)
    elif isinstance(node, ast.Name):
        _used(node.id, found)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        for each in node.decorator_list:
            name = _dotted(each, found)
            if name is not None:
                found.calls[name] = None


def _reached(node: ast.Attribute, found: _Found) -> None:
    if node.attr in _HIDDEN:
        found.doubts[f"it uses {node.attr}"] = None
    _passed_on(_dotted(node, found), found)


def _used(name: str, found: _Found) -> None:
    if name in ("__builtins__", "__loader__"):
        found.doubts[f"it uses {name}"] = None
    if name != "input":
        _passed_on(found.names.get(name, name), found)


def _passed_on(name: str | None, found: _Found) -> None:
    if name in _DYNAMIC and _calls(name) not in found.doubts:
        found.doubts[f"it passes on {name}"] = None


def _calls(name: str) -> str:
    return f"it calls {name}, so that only running it tells more"


#: Names that lead from any object to every other.
_HIDDEN: Final = frozenset(
    {"__bases__", "__builtins__", "__class__", "__code__", "__dict__"}
    | {"__getattribute__", "__globals__", "__import__", "__loader__", "__mro__"}
    | {"__subclasses__", "__self__", "__func__", "__wrapped__", "__reduce__", "modules"}
)


def _call(node: ast.Call, found: _Found) -> None:
    name = _dotted(node.func, found)
    if name is None:
        if not isinstance(node.func, ast.Attribute):
            found.doubts["it calls what only running it tells"] = None
            return
        name = f"?.{node.func.attr}"
    found.calls[name] = None
    if name in _DYNAMIC:
        found.doubts[_calls(name)] = None
    if name in _OPENS:
        _opened(node, 1, _literal(node.args[0]) if node.args else None, found)
    elif name.endswith((".write_text", ".write_bytes", ".open")):
        at = 0 if name.endswith(".open") else -1
        _opened(node, at, None, found)


def _dotted(node: ast.AST, found: _Found) -> str | None:
    """`a.b.c` by the name that `a` was imported as, or None."""
    parts = list[str]()
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    parts.append(found.names.get(node.id, node.id))
    return ".".join(reversed(parts))


def _opened(node: ast.Call, at: int, path: str | None, found: _Found) -> None:
    mode: str | None = "w" if at < 0 else "r"
    if 0 <= at < len(node.args):
        mode = _literal(node.args[at])
    for each in node.keywords:
        if each.arg in ("mode", None):
            mode = _literal(each.value)
    if mode is None or set(mode) & _WRITING:
        found.writes[path] = None


def _literal(node: ast.expr) -> str | None:
    return (
        node.value
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        else None
    )


@cache
def _bandit() -> Callable[[bytes], list[str]] | None:
    """Bandit's tests on code, or None where it is not installed."""
    # Bandit has no types, and is an extra.
    core: Any
    try:
        with _quiet():
            core = importlib.import_module("bandit.core")
            for each in ("config", "meta_ast", "metrics", "node_visitor", "test_set"):
                importlib.import_module(f"bandit.core.{each}")
            tests = core.test_set.BanditTestSet(core.config.BanditConfig())
    except ImportError:
        return None

    def run(code: bytes) -> list[str]:
        counts = core.metrics.Metrics()
        counts.begin(_FILE)
        tree = core.meta_ast.BanditMetaAst()
        # No line is excused: the code could say `# nosec` itself.
        visitor = core.node_visitor.BanditNodeVisitor(
            _FILE, io.BytesIO(code), tree, tests, False, {}, counts
        )
        with _quiet():
            visitor.process(code)
        return [
            f"{each.test_id} {each.severity} line {each.lineno}: {each.text}"
            for each in visitor.tester.results
        ]

    return run


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Without what bandit and its loader say about themselves."""
    loggers = [logging.getLogger(each) for each in ("stevedore.extension", "bandit")]
    before = [each.disabled for each in loggers]
    try:
        for each in loggers:
            each.disabled = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for each, disabled in zip(loggers, before, strict=True):
            each.disabled = disabled


def _findings(source: str, found: _Found) -> tuple[str, ...]:
    run = _bandit()
    if run is None:
        return ()
    try:
        return tuple(run(source.encode()))
    except RecursionError:
        found.doubts["it is nested too deeply to be checked"] = None
        return ()
