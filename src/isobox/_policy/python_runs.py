"""What Python code runs in turn: the commands that it hands to the system."""

from __future__ import annotations

import ast
import shlex
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Functions that hand text to a shell.
_SHELLS: Final = frozenset(
    {"os.system", "os.popen", "posix.system", "posix.popen", "subprocess.getoutput"}
    | {"subprocess.getstatusoutput", "asyncio.create_subprocess_shell"}
)
#: Functions that run a program with its arguments, or text with `shell=True`.
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
    | {"spawn", "subprocess_exec", "subprocess_shell"}
)
_ALL: Final = _SHELLS | _PROGRAMS | _WORDS
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
        last = node.attr if isinstance(node, ast.Attribute) else (name or "")
        if name in _ALL or last.rpartition(".")[2] in _TELLING:
            if isinstance(node, ast.Attribute) or name != node.id:
                self.doubts[_UNKNOWN] = None
        elif name in _MODULES:
            self.doubts[f"it passes on {name}, which runs programs"] = None
        if isinstance(node, ast.Attribute):
            self._called |= {id(each) for each in _roots(node)}

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


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _roots(node: ast.AST) -> Iterator[ast.AST]:
    """What an attribute is one of, down to the name that it begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
        yield node
