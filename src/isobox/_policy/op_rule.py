"""Rules on what an operation does."""

from __future__ import annotations

import functools
import math
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from isobox._core import given, hosts
from isobox._policy import arguments
from isobox._policy.decision import Verdict
from isobox._policy.part import GROUPS
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._policy.part import Part
    from isobox._policy.shell import Command

#: Wildcards of one pattern: each may be tried at each place of a text.
_MOST_WILDCARDS: Final = 8
_LONGEST: Final = 1024
_WILDCARD: Final = re.compile(r"\*+")
_KNOWN: Final = frozenset[str]().union(*GROUPS.values())
#: Operations whose commands are known.
_COMMANDS: Final = frozenset(("spawn", "script"))
#: What a rule lists, each with an example.
_LISTED: Final = {
    "ops": "write",
    "tools": "Bash",
    "programs": "git",
    "arguments": "push",
    "paths": "src/**",
    "hosts": "example.org",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is said of operations that do something in particular.

    A rule is about a part of an operation that fits everything it names: a rule
    that names nothing is about everything. Deny beats ask beats allow.

    Attributes:
        verdict: `allow`, `ask` a person, or `deny`.
        name: What a person knows it by; its words if empty.
        ops: Names of operations, or of their groups: `read`, `write`, `run`,
            `network`, `tool`.
        tools: Patterns for the model's tool that performs it, or the server
            that asks.
        programs: Patterns for the program that a command runs, without its
            directory (`git`, wherever it is); wrappers such as env, sudo and
            xargs are looked through.
        arguments: Patterns of which each must fit one argument of the command.
            Where only running it tells one that could fit, a rule that asks or
            denies asks.
        paths: Patterns for the path: below the workspace's root, or absolute;
            `**` is any number of directories. A rule that asks or denies is
            about what holds such a path as well, where all that it holds is
            written or read: a tree that is unpacked, a directory's removal.
        hosts: Names of hosts, `*.example.org` for those below it.
        larger_than: Bytes that are written; fits what is larger, and, where it
            asks or denies, what may be, as nobody can tell before it is there.
        reason: Why, for a person or a model.
        source: Where it stands, such as `policy.toml:12`.

    Raises:
        InvalidArgumentError: A name or a pattern is none, a list is one text, or
            a program has a directory.
    """

    verdict: Verdict
    name: str = ""
    ops: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    larger_than: int | None = None
    reason: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        self._check_types()
        if self.verdict not in get_args(Verdict):
            raise InvalidArgumentError(
                f"rule {self.title}: verdict {self.verdict!r} is not allow, ask or deny"
            )
        for op in self.ops:
            if op not in GROUPS and op not in _KNOWN:
                raise InvalidArgumentError(
                    f"rule {self.title}: no operation {op!r}; there are "
                    f"{', '.join(GROUPS)}, and {', '.join(sorted(_KNOWN))}"
                )
        for pattern in (*self.tools, *self.programs, *self.arguments, *self.paths):
            _check(self.title, pattern)
        for program in self.programs:
            _check_program(self.title, program)
        for host in self.hosts:
            hosts.pattern(host)

    def _check_types(self) -> None:
        for name in ("name", "reason", "source"):
            given.text(f"Rule: {name}", getattr(self, name))
        for name, example in _LISTED.items():
            texts = given.texts(f"Rule: {name}", getattr(self, name), example=example)
            object.__setattr__(self, name, texts)
        if self.larger_than is not None:
            given.whole("Rule: larger_than", self.larger_than, 0)

    @property
    def title(self) -> str:
        """Its name, or the words that stand for one."""
        return self.name or " ".join(self._words()) or "everything"

    @property
    def is_about_everything(self) -> bool:
        """Whether it names nothing, and so is about every operation."""
        return (
            not any(
                (
                    self.ops,
                    self.tools,
                    self.programs,
                    self.arguments,
                    self.paths,
                    self.hosts,
                )
            )
            and self.larger_than is None
        )

    @property
    def is_about_nothing(self) -> bool:
        """Whether it is about commands, and only about operations without any."""
        named = set(self.ops).union(*(GROUPS.get(op, ()) for op in self.ops))
        return self.looks_inside and bool(named) and named.isdisjoint(_COMMANDS)

    @property
    def looks_inside(self) -> bool:
        """Whether it is about the commands of a script."""
        return bool(self.programs or self.arguments)

    def fits(self, part: Part, root: str) -> bool:
        """Whether it is about a part of an operation.

        Args:
            part: The part.
            root: Absolute path inside of the workspace's directory.
        """
        return self._fits_but_for_path(part) and self._has_path(part, root)

    def may_fit(self, part: Part, root: str) -> bool:
        """Whether it asks or denies, and could be about a part once that runs.

        Args:
            part: The part, of which the path or arguments are not sure.
            root: Absolute path inside of the workspace's directory.
        """
        if self.verdict == "allow" or not self._fits_outside(part):
            return False
        if part.unsure and self.paths:
            return self._has_command(part)
        return self._may_have_command(part) and self._has_path(part, root)

    def _fits_but_for_path(self, part: Part) -> bool:
        return self._fits_outside(part) and self._has_command(part)

    def _fits_outside(self, part: Part) -> bool:
        """Whether it fits, path and command left aside."""
        return (
            self._has_op(part.op)
            and self._has_tool(part)
            and self._has_host(part.host)
            and self._has_size(part.size)
        )

    def _has_tool(self, part: Part) -> bool:
        return _any(self.tools, part.caller) or _any(self.tools, part.label)

    def _has_size(self, size: float | None) -> bool:
        if self.larger_than is None:
            return True
        if size is None or (size == math.inf and self.verdict == "allow"):
            return False
        return size > self.larger_than

    def _has_op(self, op: str) -> bool:
        return not self.ops or any(
            op == name or op in GROUPS.get(name, ()) for name in self.ops
        )

    def _has_command(self, part: Part) -> bool:
        if not self.looks_inside:
            return True
        command = part.command
        if command is None or not _any(self.programs, command.program):
            return False
        if self.verdict == "allow" and not _is_plain(command):
            return False
        return arguments.fit(self.arguments, command)

    def _may_have_command(self, part: Part) -> bool:
        command = part.command
        return (
            command is not None
            and _any(self.programs, command.program)
            and arguments.may_fit(self.arguments, command)
        )

    def _has_path(self, part: Part, root: str) -> bool:
        if not self.paths:
            return True
        path = root if part.path is None and part.below else part.path
        if path is None or (part.unsure and self.verdict == "allow"):
            return False
        below = part.below and self.verdict != "allow"
        path = _absolute(path, root)
        return any(
            _is_path(_anchored(pattern, root), path, below=below)
            for pattern in self.paths
        )

    def _has_host(self, host: str | None) -> bool:
        if not self.hosts:
            return True
        return host is not None and any(
            hosts.matches(hosts.pattern(pattern), host) for pattern in self.hosts
        )

    def _words(self) -> Iterable[str]:
        yield str(self.verdict)
        for texts in (
            self.ops, self.tools, self.programs, self.arguments, self.paths, self.hosts
        ):  # fmt: skip
            yield from texts
        if self.larger_than is not None:
            yield f"over {self.larger_than} bytes"


def rules_of(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return rules of which each is one.

    Raises:
        InvalidArgumentError: They are no list, or something in it is no Rule.
    """
    if not isinstance(rules, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentError(f"rules={rules!r:.200}: give a list of Rules")
    listed = tuple(rules)
    for rule in listed:
        if not isinstance(rule, Rule):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentError(
                f'rules: {rule!r:.200} is no Rule; give Rule(verdict="deny", ...)'
            )
    return listed


def _is_plain(command: Command) -> bool:
    """Whether a command is surely what it looks like, so that it can be allowed.

    Not what runs by way of another program, nor a program of that name in a
    directory that anybody can write to, nor arguments that only running it tells.
    """
    # A command was read, and with it the grammar is there.
    from isobox._policy.shell.names import is_of_the_system  # noqa: PLC0415

    known = is_of_the_system(command.path or "")
    return known and not command.dynamic and not command.through


def _check(title: str, pattern: str) -> None:
    if not pattern or len(pattern) > _LONGEST or "\0" in pattern:
        raise InvalidArgumentError(f"rule {title}: {pattern[:64]!r} is no pattern")
    if len(_WILDCARD.findall(pattern)) > _MOST_WILDCARDS:
        raise InvalidArgumentError(
            f"rule {title}: {pattern!r} has more than {_MOST_WILDCARDS} wildcards"
        )


def _check_program(title: str, pattern: str) -> None:
    if "/" in pattern:
        name = pattern.rstrip("/").rpartition("/")[2] or "git"
        raise InvalidArgumentError(
            f"rule {title}: programs are named without their directory: write "
            f"{name!r}, not {pattern!r}"
        )


def _any(patterns: tuple[str, ...], text: str | None) -> bool:
    if not patterns:
        return True
    return text is not None and any(
        arguments.matches(pattern, text) for pattern in patterns
    )


def _anchored(pattern: str, root: str) -> str:
    return pattern if pattern.startswith(("/", "**")) else f"{root}/{pattern}"


def _absolute(path: str, root: str) -> str:
    path = path if path.startswith("/") else f"{root}/{path}"
    # A script may write `./a` or `b/../a` for the same file.
    return "/" + posixpath.normpath(path).lstrip("/")


@functools.lru_cache(maxsize=1024)
def _signs(pattern: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\*\*/|\*\*|\*|\?|[^*?]", pattern, re.DOTALL))


def _is_path(pattern: str, path: str, *, below: bool = False) -> bool:
    """Whether a path is one that a pattern names; or what is `below` it can be.

    All the ways in which the pattern can have come so far are followed at once:
    no pattern takes longer than its length times the path's.
    """
    signs = _signs(pattern)
    places = _skipped({0}, signs, at_start=True)
    for character in path:
        places = _skipped(set(_stepped(places, signs, character)), signs)
        if not places:
            return False
    if len(signs) in places:
        return True
    if below and not path.endswith("/"):
        places = _skipped(set(_stepped(places, signs, "/")), signs)
    return below and bool(places)


def _stepped(places: set[int], signs: tuple[str, ...], character: str) -> Iterator[int]:
    for place in places:
        sign = signs[place] if place < len(signs) else ""
        if sign in ("**", "**/"):
            yield place
        if sign == "**/" and character == "/":
            yield place + 1
        if sign == "*" and character != "/":
            yield place
        if sign == character or (sign == "?" and character != "/"):
            yield place + 1


def _skipped(
    places: set[int], signs: tuple[str, ...], *, at_start: bool = False
) -> set[int]:
    """Add where one comes by wildcards that stand for nothing."""
    found, waiting = set(places), list(places)
    while waiting:
        place = waiting.pop()
        sign = signs[place] if place < len(signs) else ""
        # `**/` is any number of directories, none included, where one begins.
        begins = at_start or (place > 0 and signs[place - 1] in ("/", "**/"))
        passes = sign in ("*", "**") or (sign == "**/" and begins)
        if passes and place + 1 not in found:
            found.add(place + 1)
            waiting.append(place + 1)
    return found
