"""Which parts of a script may be skipped, or are run elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from isobox._policy.shell.variables import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tree_sitter import Node

#: Nodes in which what is assigned is not, or may not be, assigned after them.
OWN: Final = frozenset(
    {
        "c_style_for_statement",
        "case_item",
        "command_substitution",
        "elif_clause",
        "else_clause",
        "for_statement",
        "function_definition",
        "if_statement",
        "pipeline",
        "process_substitution",
        "redirected_statement",
        "subshell",
        "while_statement",
    }
)


@dataclass(frozen=True, slots=True)
class Apart:
    """A node whose assignments hold in it only."""

    node: Node


#: What is to be walked, or done on the way.
Placed: TypeAlias = "Node | Callable[[], None]"
Step: TypeAlias = "Placed | Apart"


def scoped(
    node: Node, following: Sequence[Step], scope: Scope
) -> list[tuple[Placed, Scope]]:
    """What is to be walked next, and where it is."""
    found: list[tuple[Placed, Scope]] = []
    inner = scope
    for at, step in enumerate(following):
        if isinstance(step, Apart):
            found.append((step.node, Scope(scope)))
            continue
        if not callable(step):
            inner = Scope(scope) if _skips(node, step) else inner
        apart = node.type == "pipeline" or _is_behind(following, at)
        found.append((step, Scope(inner) if apart else inner))
    return found


def _skips(node: Node, child: Node) -> bool:
    """Whether what begins there is not always run."""
    return (node.type == "if_statement" and child.type == "then") or (
        node.type == "list" and child.type in ("&&", "||")
    )


def _is_behind(following: Sequence[Step], at: int) -> bool:
    """Whether a step runs while the script goes on."""
    after = following[at + 1] if at + 1 < len(following) else None
    return after is not None and getattr(after, "type", None) == "&"
