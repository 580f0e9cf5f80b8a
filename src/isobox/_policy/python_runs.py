"""What Python code runs in turn: the commands that it hands to the system."""

from __future__ import annotations

import ast
import shlex
from typing import TYPE_CHECKING, Final

from isobox._policy.environment import steers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Functions that hand text to a shell.
_SHELLS: Final = frozenset(
    {"os.system", "os.popen", "posix.system", "posix.popen", "subprocess.getoutput"}
    | {"subprocess.getstatusoutput", "asyncio.create_subprocess_shell"}
)
#: Functions that run a program with its arguments, or text for a shell.
_PROGRAMS: Final = frozenset(
    {"subprocess.run", "subprocess.call", "subprocess.check_call"}
    | {"subprocess.check_output", "subprocess.Popen", "pty.spawn"}
)
#: Functions of which every argument is a word of the command.
_WORDS: Final = frozenset({"asyncio.create_subprocess_exec"})
#: Modules that are never passed on: what is called by way of them has a name.
_MODULES: Final = frozenset(
    {"os", "posix", "nt", "pty", "subprocess", "_posixsubprocess"}
)
#: Names of functions that run programs, by whatever way they are reached.
_TELLING: Final = frozenset(
    {"system", "popen", "Popen", "check_call", "check_output", "getoutput"}
    | {"getstatusoutput", "create_subprocess_exec", "create_subprocess_shell"}
    | {"posix_spawn", "posix_spawnp", "startfile", "fork_exec", "forkpty"}
    | {f"exec{each}" for each in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")}
    | {f"spawn{each}" for each in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")}
    | {"spawn", "subprocess_exec", "subprocess_shell", "putenv", "load_extension"}
)
_ALL: Final = _SHELLS | _PROGRAMS | _WORDS
_LASTS: Final = frozenset(each.rpartition(".")[2] for each in _ALL)
#: Keywords of these that do not change what is run.
_HARMLESS: Final = frozenset(
    {"args", "bufsize", "capture_output", "check", "close_fds", "cwd", "encoding"}
    | {"errors", "input", "shell", "stderr", "stdin", "stdout", "text", "timeout"}
    | {"universal_newlines", "start_new_session", "limit", "cmd", "command"}
)
_UNKNOWN: Final = "it runs a program that only running it tells"
#: A word that only running it tells, as a shell writes it.
_WORD: Final = '"$word"'


class Runs:
    """Collects what a program runs, and why nobody can tell.

    Attributes:
        scripts: What it runs, as a shell would be told.
        doubts: Why it is not understood.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._called = set[int]()
        self.scripts: dict[str, None] = {}
        self.doubts: dict[str, None] = {}

    def look(self, node: ast.AST) -> None:
        """Look at a node; those around it were looked at before."""
        if isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, (ast.Attribute, ast.Name)):
            self._reference(node)
        elif isinstance(node, ast.Subscript):
            self._environment(node)

    def _call(self, node: ast.Call) -> None:
        name = self._name(node.func)
        if name not in _ALL:
            return
        self._called.add(id(node.func))
        script = self._script(name, node)
        if script is None:
            self.doubts[_UNKNOWN] = None
        else:
            self.scripts[script] = None

    def _reference(self, node: ast.Attribute | ast.Name) -> None:
        if id(node) in self._called:
            self._called |= {id(each) for each in _roots(node)}
            return
        name = self._name(node)
        if self._runs(node, name):
            self.doubts[_UNKNOWN] = None
        if name in _MODULES or any(map(self._is_hidden, (node, *_roots(node)))):
            self.doubts["it passes on a module that runs programs"] = None
        self._called |= {id(each) for each in _roots(node)}

    def _runs(self, node: ast.Attribute | ast.Name, name: str | None) -> bool:
        if isinstance(node, ast.Attribute):
            return name in _ALL or node.attr in _TELLING
        return name is not None and name != node.id and _last(name) in _TELLING | _LASTS

    def _is_hidden(self, node: ast.AST) -> bool:
        """`shutil.os` is `os`, whatever it is called by."""
        name = self._name(node)
        if name in _MODULES or name == "asyncio.subprocess":
            return False
        if isinstance(node, ast.Attribute):
            return node.attr in _MODULES
        return name is not None and _last(name) in _MODULES

    def _environment(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Load) or self._name(node.value) != "os.environ":
            return
        key = _text(node.slice)
        if key is None or steers(key):
            self.doubts["it changes what the programs that it runs do"] = None

    def _name(self, node: ast.AST) -> str | None:
        parts = list[str]()
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._names:
            return None
        return ".".join([self._names[node.id], *reversed(parts)])

    def _script(self, name: str, node: ast.Call) -> str | None:
        keywords = {each.arg: each.value for each in node.keywords}
        if not keywords.keys() <= _HARMLESS:
            return None
        if name in _WORDS:
            return self._words(node.args)
        what = node.args[0] if node.args else None
        for each in ("args", "cmd", "command"):
            what = keywords.get(each, what)
        if what is None or len(node.args) > (2 if name in _SHELLS else 1):
            return None
        text = _text(what)
        if name in _SHELLS:
            return text
        return self._program(what, text, keywords.get("shell"))

    def _program(
        self, what: ast.expr, text: str | None, shell: ast.expr | None
    ) -> str | None:
        in_shell = False
        if shell is not None:
            if not isinstance(shell, ast.Constant):
                return None
            in_shell = bool(shell.value)
        if text is not None:
            return text if in_shell else shlex.quote(text)
        if isinstance(what, (ast.List, ast.Tuple)) and not in_shell:
            return self._words(what.elts)
        return None

    def _words(self, nodes: Sequence[ast.expr]) -> str | None:
        words = [self._word(each) for each in nodes]
        if not words or any(isinstance(each, ast.Starred) for each in nodes[:1]):
            return None
        return " ".join(words)

    def _word(self, node: ast.expr) -> str:
        if isinstance(node, ast.Starred):
            return "$words"
        if self._name(node) == "sys.executable":
            return "python3"
        text = _text(node)
        return _WORD if text is None else shlex.quote(text)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _roots(node: ast.AST) -> Iterator[ast.AST]:
    """What an attribute is one of, down to the name that it begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
        yield node
