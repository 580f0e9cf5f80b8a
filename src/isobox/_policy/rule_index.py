"""Rules found by what an operation does, rather than tried one after the other."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from isobox._policy.part import GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from isobox._policy.op_rule import Rule
    from isobox._policy.part import Part

_EVERY: Final = frozenset[str]().union(*GROUPS.values())
_WILD: Final = frozenset("*?[")


class RuleIndex:
    """Rules by the operation, and by the program, that they name."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._plain: defaultdict[str, list[Rule]] = defaultdict(list)
        self._programs: defaultdict[tuple[str, str], list[Rule]] = defaultdict(list)
        self._commands: defaultdict[str, list[Rule]] = defaultdict(list)
        #: Whether scripts are read, for rules about commands or redirections.
        self.looks_inside = False
        on_paths = set[str]()
        for rule in rules:
            if rule.paths:
                on_paths |= _ops(rule)
            self.looks_inside = self.looks_inside or _reads_scripts(rule)
            for op in _ops(rule):
                self._add(op, rule)
        #: Operations with rules about their paths.
        self.on_paths = frozenset(on_paths)

    def _add(self, op: str, rule: Rule) -> None:
        if not rule.looks_inside:
            self._plain[op].append(rule)
        elif rule.programs and not any(_WILD & set(name) for name in rule.programs):
            for name in rule.programs:
                self._programs[op, name].append(rule)
        else:
            self._commands[op].append(rule)

    def __contains__(self, op: str) -> bool:
        """Whether a rule can be about such an operation, commands left aside."""
        return op in self._plain

    def about(self, part: Part) -> Sequence[Rule]:
        """Return the rules that can be about a part of an operation."""
        plain = self._plain.get(part.op, [])
        if part.command is None or not self.looks_inside:
            return plain
        exact = self._programs.get((part.op, part.command.program or ""), [])
        return [*plain, *exact, *self._commands.get(part.op, [])]

    def names_paths(self, part: Part, root: str) -> bool:
        """Whether a rule is about a part for the path that it has."""
        return any(
            rule.paths and rule.fits(part, root)
            for rule in self._plain.get(part.op, ())
        )


def _reads_scripts(rule: Rule) -> bool:
    """Whether only what a script says tells if a rule is about it."""
    if rule.looks_inside:
        return True
    by_path = rule.paths and rule.verdict != "allow" and "write" in _ops(rule)
    # Neither hosts nor sizes are known of a redirection.
    return bool(by_path) and not rule.hosts and rule.larger_than is None


def _ops(rule: Rule) -> frozenset[str]:
    if not rule.ops:
        return _EVERY
    named = (GROUPS.get(op, frozenset((op,))) for op in rule.ops)
    return frozenset[str]().union(*named)
