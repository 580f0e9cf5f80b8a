"""What may never come to an end, in a process of its own that can be killed.

Expressions, patterns of names and files of rules are matched here against what
the sandbox has: a few characters of each can keep a processor busy for years.
It is started by its path, knows the standard library and the guest's module
alone, and takes and gives messages of the guest's codec.
"""

from __future__ import annotations

import importlib.util
import os
import re
import resource
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

_MEMORY = 2 << 30


class Keeping:
    """Chooses among the names below a directory as the guest's walk does.

    Args:
        agent: The guest's module.
        fields: What is asked: `top`, `root`, `rules`, `ignored`, `hidden`,
            `patterns`, `by_name`.
    """

    def __init__(self, agent: Any, fields: dict[str, Any]) -> None:  # noqa: ANN401 - a module
        self._agent = agent
        self._fields = fields
        self._rules = {path: agent.Rules(text) for path, text in fields["rules"]}
        self._base = len(fields["top"].rstrip(b"/")) + 1
        self._scopes: dict[bytes, Any] = {}

    def chosen(self, names: list[list[Any]]) -> Iterator[int]:
        """Yield the places of those that are wanted.

        Args:
            names: Paths in the order of a walk, each with whether it is a folder.
        """
        matches = self._matches()
        self._enter(self._fields["top"], self._above())
        for place, (path, folder) in enumerate(names):
            if self._seen(path, folder) and matches(path):
                yield place

    def _seen(self, path: bytes, folder: bool) -> bool:
        if self._fields["ignored"] and self._fields["hidden"]:
            return True
        above, _, name = path.rpartition(b"/")
        above = above or b"/"
        hidden = name.startswith(b".") and not self._fields["hidden"]
        if hidden or above not in self._scopes:
            return False
        scope = self._scopes[above]
        if scope is not None and scope.ignores(path, name, folder):
            return False
        if folder:
            self._enter(path, scope)
        return True

    def _enter(self, folder: bytes, above: Any) -> None:  # noqa: ANN401 - the guest's scope
        if not self._fields["ignored"]:
            above = self._scope_in(folder, above)
        self._scopes[folder] = above

    def _above(self) -> Any:  # noqa: ANN401 - the guest's scope
        if self._fields["ignored"]:
            return None
        scope = self._agent.Scope(None, 0, [None] * 4, False)
        above = [self._fields["top"]]
        while above[-1] not in (self._fields["root"], b"/"):
            above.append(above[-1].rpartition(b"/")[0] or b"/")
        for folder in reversed(above[1:]):
            scope = self._scope_in(folder, scope)
        return scope

    def _scope_in(self, folder: bytes, above: Any) -> Any:  # noqa: ANN401 - the guest's scope
        base = folder.rstrip(b"/") + b"/"
        names = {
            name.split(b"/")[0]
            for name in self._agent._RULE_FILES
            if base + name in self._rules
        }
        if folder in self._fields["repos"]:
            names.add(b".git")
        return self._agent.scope_in(folder, names, above, self._rules.get) or above

    def _matcher(self, pattern: str) -> Callable[[str], Any]:
        try:
            return re.compile(self._agent.translate_glob(pattern)).match
        except (re.error, RecursionError, OverflowError) as error:
            message = f"the pattern cannot be used: {error}"
            raise self._agent.Refused("invalid", message) from None

    def _matches(self) -> Callable[[bytes], bool]:
        fields = self._fields
        compiled = [self._agent._matcher(each) for each in fields["patterns"]]
        typed = [self._matcher(each) for each in fields["types"]]

        def matches(path: bytes) -> bool:
            text = os.fsdecode(path[self._base :])
            name = text.rpartition("/")[2]
            return all(match(text) for match in compiled) and (
                not typed or any(match(name) for match in typed)
            )

        return matches


class Looking:
    """Searches files, one batch after another.

    Args:
        agent: The guest's module.
        fields: What the guest's search takes.
    """

    def __init__(self, agent: Any, fields: dict[str, Any]) -> None:  # noqa: ANN401 - a module
        self._agent = agent
        self._found: list[bytes] = []
        self._search = agent.Search(fields, self._found.append)

    def look(self, files: list[list[bytes]]) -> dict[str, Any]:
        """Search some files; tells what was found, and whether to go on."""
        self._found.clear()
        more = True
        for path, data in files:
            text = self._agent.text_to_search(data)
            more = text is None or self._search.look(path, text)
            if not more:
                break
        cut = self._search.result()["truncated"]
        return {"found": b"".join(self._found), "more": more, "cut": cut}


def _answer(agent: Any, asked: dict[str, Any], state: dict[str, Any]) -> Any:  # noqa: ANN401 - a module, a message
    if "keep" in asked:
        kept = Keeping(agent, asked["keep"]).chosen(asked["names"])
        return {"kept": bytes(_marked(kept, asked))}
    if "search" in asked:
        state["looking"] = Looking(agent, asked["search"])
        return {"needed": agent.needed_text(asked["search"])}
    return state["looking"].look(asked["files"])


def _marked(kept: Iterator[int], asked: dict[str, Any]) -> bytearray:
    """Return a byte for each name: 1 for what is kept."""
    marks = bytearray(len(asked["names"]))
    for place in kept:
        marks[place] = 1
    return marks


def _serve(agent: Any, source: BinaryIO, sink: BinaryIO) -> None:  # noqa: ANN401 - a module
    state: dict[str, Any] = {}
    while len(size := source.read(8)) == 8:
        asked = agent.decode(source.read(int.from_bytes(size, "big")))
        try:
            told = _answer(agent, asked, state)
        except agent.Refused as refused:
            told = {"refused": refused.code, "message": refused.message}
        except (RecursionError, OverflowError, ValueError) as error:
            told = {"refused": "invalid", "message": str(error)[:500]}
        data = agent.encode(told)
        sink.write(len(data).to_bytes(8, "big") + data)
        sink.flush()


def _loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("agent", path)
    assert spec is not None  # noqa: S101 - it is a file of Python
    assert spec.loader is not None  # noqa: S101 - likewise
    module = importlib.util.module_from_spec(spec)
    sys.modules["agent"] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Serve standard input until it ends."""
    # SAFETY: what the sandbox has must not take the host's memory.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _serve(_loaded(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
