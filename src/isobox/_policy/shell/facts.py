"""The facts of a script: its commands, its files, and what is in doubt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isobox._policy.python_code import PythonFacts


@dataclass(frozen=True, slots=True)
class Command:
    """One command that a script would run.

    Attributes:
        program: Base name of the program, after what wraps it was taken off;
            None where only running the script tells it (`"$X"`).
        arguments: Its arguments after quote removal. Those in `dynamic` are
            as the script writes them.
        dynamic: Indexes of the arguments that only running the script tells:
            they hold a variable, a substitution, a pattern or a brace
            expansion, and may become any number of arguments. An empty one
            stands for what a wrapper such as `xargs` adds.
        heads: What those in `dynamic` begin with for certain, in their order,
            however many arguments each becomes.
        assignments: Variables set for it, by itself or by `env`; None where
            only running the script tells the value.
        through: What wraps it, outermost first: `sudo`, `xargs`, `bash`.
        path: The program as written (`./x`, `/usr/bin/git`), or None.
    """

    program: str | None
    arguments: tuple[str, ...] = ()
    dynamic: frozenset[int] = frozenset()
    heads: tuple[str, ...] = ()
    assignments: tuple[tuple[str, str | None], ...] = ()
    through: tuple[str, ...] = ()
    path: str | None = None

    def heads_by_index(self) -> list[tuple[int, str]]:
        """Return the indexes in `dynamic`, each with its head."""
        heads = (*self.heads, *("" for _ in self.dynamic))
        return list(zip(sorted(self.dynamic), heads, strict=False))


@dataclass(frozen=True, slots=True)
class Facts:
    """What a script would do, as far as reading it tells.

    Attributes:
        commands: Every command anywhere in it: pipelines, lists, functions,
            substitutions, scripts handed to a shell, commands handed to a
            wrapper. A command comes before those in its own arguments, and
            those in a script handed on come last. The tests `[`, `[[` and
            `((` are none.
        writes: Files that redirections write or create; None where only
            running the script tells.
        reads: Files that redirections read; None likewise.
        python: Facts of each Python program that the script holds.
        doubts: Why it is not understood, each a short text for a person.
    """

    commands: tuple[Command, ...] = ()
    writes: tuple[str | None, ...] = ()
    reads: tuple[str | None, ...] = ()
    python: tuple[PythonFacts, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def understood(self) -> bool:
        """Whether every command is known; False asks a person."""
        return not self.doubts
