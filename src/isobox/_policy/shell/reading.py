"""Reading a script: everything in it, then everything that it hands on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from isobox._policy import python_code
from isobox._policy.environment import steers
from isobox._policy.shell import naming
from isobox._policy.shell import text as texts
from isobox._policy.shell.facts import Command, Facts
from isobox._policy.shell.names import KNOWN, RESERVED, basename, is_of_the_system
from isobox._policy.shell.streams import names_stream
from isobox._policy.shell.tree import PATIENCE
from isobox._policy.shell.variables import Assigned, Variables
from isobox._policy.shell.words import Word, literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._policy.python_code import PythonFacts

#: Nodes of all parse trees of one script.
NODES: Final = 10_000
#: Scripts in scripts in scripts.
DEPTH: Final = 12
#: Scripts that one script hands on.
_SCRIPTS: Final = 200
_COMMANDS: Final = 2_000
_WIDEST_DOUBT: Final = 200


@dataclass(frozen=True, slots=True)
class Call:
    """A command before what wraps it is taken off.

    Attributes:
        words: The program and its arguments.
        assignments: Variables set for it.
        through: Wrappers that were taken off.
        given: Text on its standard input, where the script holds it.
    """

    words: tuple[Word, ...]
    assignments: tuple[tuple[str, str | None], ...] = ()
    through: tuple[str, ...] = ()
    given: str | None = None

    @property
    def name(self) -> str | None:
        """Base name of the program, where it is known."""
        if not self.words or self.words[0].dynamic:
            return None
        return basename(self.words[0].text)

    @property
    def kind(self) -> str:
        """The program that the name means: `perl5.36.0` is perl."""
        return naming.kind_of(self.name or "")

    @property
    def arguments(self) -> tuple[Word, ...]:
        return self.words[1:]

    def inner(
        self,
        words: Sequence[Word],
        assignments: tuple[tuple[str, str | None], ...] = (),
    ) -> Call:
        """What this command runs in turn."""
        return replace(
            self,
            words=tuple(words),
            assignments=self.assignments + assignments,
            through=(*self.through, self.name or ""),
        )


@dataclass(slots=True)
class Reading:
    """What has been read so far, and what is still to be read."""

    commands: list[Command] = field(default_factory=list[Command])
    writes: list[str | None] = field(default_factory=list[str | None])
    reads: list[str | None] = field(default_factory=list[str | None])
    python: list[PythonFacts] = field(default_factory=list[python_code.PythonFacts])
    variables: Variables = field(default_factory=Variables)
    patience: float = PATIENCE
    _doubts: dict[str, None] = field(default_factory=dict[str, None])
    _scripts: deque[tuple[str, tuple[str, ...]]] = field(
        default_factory=deque[tuple[str, tuple[str, ...]]]
    )
    _handed: int = 0
    _nodes: int = NODES

    def doubt(self, why: str) -> None:
        """Note why the script is not understood."""
        shown = "".join(each if each.isprintable() else "?" for each in why)
        self._doubts.setdefault(shown[:_WIDEST_DOUBT])

    def spend(self) -> bool:
        """Take one node from the budget; False when there is none left."""
        self._nodes -= 1
        if self._nodes < 0:
            self.doubt("it is too long to be read")
        return self._nodes >= 0

    def script(self, text: str, through: tuple[str, ...]) -> None:
        """A script that something hands to a shell is read later."""
        self._handed += 1
        if len(through) > DEPTH or self._handed > _SCRIPTS:
            self.doubt("scripts are nested too deeply")
        else:
            self._scripts.append((text, through))

    def program_text(self, text: str, through: tuple[str, ...]) -> None:
        """A Python program in the script, and what it runs in turn."""
        found = python_code.facts(text)
        self.python.append(found)
        for each in found.scripts:
            self.script(each, through)
        for each in found.doubts:
            self.doubt(f"python: {each}")

    def assign(self, what: Assigned) -> None:
        """A variable of the shell is set."""
        self.variables.hold(what)
        self.steer(what.name, what.value)

    def steer(self, name: str, value: str | None) -> None:
        """A variable is set for programs."""
        if steers(name, value):
            self.doubt(f"sets {name}, which changes what other programs do")

    def command(self, call: Call) -> None:
        """Note a command as it is."""
        arguments = call.arguments
        if len(self.commands) >= _COMMANDS:
            self.doubt("it holds too many commands")
            return
        self.commands.append(
            Command(
                program=call.name,
                arguments=tuple(each.text for each in arguments),
                dynamic=frozenset(
                    i for i, each in enumerate(arguments) if each.dynamic
                ),
                heads=tuple(each.begins for each in arguments if each.dynamic),
                assignments=call.assignments,
                through=call.through,
                path=None if call.name is None else call.words[0].text,
            )
        )

    def invoke(self, call: Call) -> None:
        """Note a command, or what is left when its wrappers are taken off."""
        from isobox._policy.shell.unwrap import unwrap  # noqa: PLC0415 - a cycle

        following: Call | None = call
        while following is not None:
            if len(following.through) > DEPTH:
                self.doubt("wrappers are nested too deeply")
                self.command(following)
                return
            self._check(following)
            following = unwrap(following, self)

    def _check(self, call: Call) -> None:
        for variable, value in call.assignments:
            # `IFS= read` splits one line, and nothing after it.
            if (variable, call.name) != ("IFS", "read"):
                self.steer(variable, value)
            if steers(variable, value) or not call.words:
                continue
            if naming.runs(value or ""):
                self.doubt(f"sets {variable} to what may be run: {value}")
        if not call.words:
            return
        self._check_program(call.words[0].text, call.name)

    def _check_program(self, path: str, name: str | None) -> None:
        if name is None:
            self.doubt(f"which program {path} is, only running it tells")
        elif not name.isascii() or not name.isprintable() or not name.strip():
            self.doubt("the name of a program holds unusual characters")
        elif name in RESERVED:
            self.doubt(f"{name} is a word of the shell where a program stands")
        elif "/" in path and names_stream(path):
            self.doubt(f"which program {path} is, only running it tells")
        elif naming.is_disguised(name):
            self.doubt(f"{name} may be {naming.kind_of(name)} by another name")
        elif name in KNOWN and not is_of_the_system(path):
            self.doubt(f"{path} may be another program than the system's {name}")

    def finish(self) -> Facts:
        """Read what was handed on, then say what was found."""
        from isobox._policy.shell.walk import Walk  # noqa: PLC0415 - a cycle

        while self._scripts and self._nodes >= 0:
            text, through = self._scripts.popleft()
            unreadable = texts.unreadable(text)
            if unreadable is not None:
                self.doubt(unreadable)
                continue
            for each in texts.misleading(text):
                self.doubt(each)
            Walk(text.encode(), through, self).run()
        for name in sorted(self.variables.calculated()):
            self.doubt(f"calculates with {name}, which may hold a command")
        return Facts(
            tuple(self.commands),
            tuple(dict.fromkeys(self.writes)),
            tuple(dict.fromkeys(self.reads)),
            tuple(self.python),
            tuple(self._doubts),
        )


@lru_cache(maxsize=256)
def facts(script: str) -> Facts:
    """What a script would do, as far as reading it tells.

    The same script gives the same facts while the process runs. Nothing is
    executed, and no text raises.
    """
    reading = Reading()
    reading.script(script, ())
    return reading.finish()


def facts_of_argv(argv: Sequence[str]) -> Facts:
    """What a program with its arguments would do; no shell reads them."""
    reading = Reading()
    unreadable = next(filter(None, map(texts.unreadable, argv)), None)
    if unreadable is not None:
        reading.doubt(unreadable)
    else:
        reading.invoke(Call(tuple(map(literal, argv))))
    return reading.finish()
