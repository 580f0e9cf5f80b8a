"""What the guest does with the content of files, for files in memory."""

from __future__ import annotations

from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING

from isobox._channel import unpack
from isobox._channel.refusals import error_for
from isobox._channel.stream import GuestRefusal
from isobox._core.file_types import globs_of
from isobox._guest import agent
from isobox.abc import FileChange, Page, Patched, Scan
from isobox.errors import PathExistsError, PathMissingError
from isobox.testing._patterns import glob_pattern
from isobox.testing._tree import Node, Place, Tree, encoded, entry, join, require_file

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from isobox import abc

_STRIDE = 1 << 19


@contextmanager
def refusals(op: str, path: str) -> Generator[None]:
    """Turn the guest's refusals into errors of the tree."""
    try:
        yield
    except agent.Refused as refused:
        given = GuestRefusal(refused.code, refused.message, refused.number)
        raise error_for(given, op=op, path=path) from None


def page_of(op: abc.ReadLines, data: bytes, found: abc.Entry) -> Page:
    """Return the lines of a file that were asked for."""
    survey = agent.Survey()
    for at in range(0, len(data), _STRIDE):
        survey.add(data[at : at + _STRIDE])
    survey.end()
    text = bool(survey.encoding) or not data
    media = agent.media_type_of(survey.head, text)
    if not media.startswith("text/"):
        image = media.startswith("image/") and len(data) <= agent.LARGEST_IMAGE
        return Page(
            entry=found,
            media_type=media,
            encoding="",
            newline="",
            final_newline=False,
            data=data if image else None,
        )
    first = agent.first_line(op.start, survey.total)
    page = agent.Page(survey, first, op.count, op.width)
    if data:
        list(agent.fill(page, -1, data))
    return Page(
        entry=found,
        lines=tuple(page.lines),
        first=first + 1,
        total=survey.total,
        clipped=tuple(page.clipped),
        encoding=survey.encoding or "utf-8",
        newline=survey.newline,
        final_newline=survey.final_newline,
    )


def edited(op: abc.Edit, data: bytes) -> tuple[bytes, int, tuple[str, int]]:
    """Return new content, how often text was replaced, and the difference."""
    pieces = [[piece.old, piece.new, piece.every] for piece in op.replacements]
    with refusals("edit", op.path):
        content, told = agent.edited(data, pieces, op.text)
    return content, told["count"], unpack.difference(told, op.path)


def searched(op: abc.Search) -> tuple[agent.Search, list[bytes]]:
    """Return the guest's search, and the list to which it adds what it finds."""
    found: list[bytes] = []
    fields = {
        "pattern": op.pattern,
        "literal": op.literal,
        "ignore_case": op.ignore_case,
        "mode": op.mode,
        "multiline": op.multiline,
        "before": op.before,
        "after": op.after,
        "limit": op.limit,
        "offset": op.offset,
    }
    return agent.Search(fields, found.append), found


def matches_of(op: abc.Search, found: list[bytes]) -> tuple[abc.Match, ...]:
    """Return what the guest's search added to its list."""
    every = unpack.matches(b"".join(found), op.path, cut=False, mode=op.mode)
    return tuple(every)


def of_types(op: abc.Search, name: str) -> bool:
    """Whether a file of this name is of one of the types."""
    return not op.types or any(
        glob_pattern(glob).fullmatch(name) for glob in globs_of(op.types)
    )


def below(
    tree: Tree, op: abc.Scan | abc.Search, root: str
) -> Iterator[tuple[str, Node]]:
    """Yield what a scan or search is to look at, in path order."""
    depth = op.depth if isinstance(op, Scan) else None
    hidden = isinstance(op, Scan) or op.hidden
    scope = None if op.ignored else _scope_above(tree, op.path, root)
    found = _below(op.path, tree.node(op.path), depth, scope, hidden=hidden)
    yield from sorted(found, key=lambda each: encoded(each[0]))


def _below(
    path: str, node: Node, depth: int | None, scope: agent.Scope | None, *, hidden: bool
) -> Iterator[tuple[str, Node]]:
    if depth == 0:
        return
    if scope is not None:
        scope = _scope_in(path, node, scope) or scope
    deeper = None if depth is None else depth - 1
    for name, child in node.children.items():
        whole = join(path, name)
        folder = child.kind == "directory"
        if name.startswith(".") and not hidden:
            continue
        if scope is not None and scope.ignores(encoded(whole), encoded(name), folder):
            continue
        yield whole, child
        if folder:
            yield from _below(whole, child, deeper, scope, hidden=hidden)


def _scope_above(tree: Tree, top: str, root: str) -> agent.Scope:
    scope = agent.Scope(None, 0, [None] * 4, False)
    above = ""
    for name in top.removeprefix(root).split("/"):
        place = f"{root}{above}"
        if place != top:
            scope = _scope_in(place, tree.node(place), scope) or scope
        above = join(above, name) if name else above
    return scope


def _scope_in(path: str, node: Node, scope: agent.Scope | None) -> agent.Scope | None:
    def read(place: bytes) -> agent.Rules | None:
        found = node
        for name in place.decode().removeprefix(path).strip("/").split("/"):
            if name not in found.children:
                return None
            found = found.children[name]
        return agent.Rules(found.data)

    names = {encoded(name) for name in node.children}
    return agent.scope_in(encoded(path), names, scope, read)


def patched(tree: Tree, op: abc.Patch, root: str) -> Patched:
    """Change files, all or none."""
    trial = Tree()
    trial.top = deepcopy(tree.top)
    written: dict[str, str] = {}
    removed: dict[str, str] = {}
    for change in op.changes:
        gone, made = _change(trial, change, root)
        if gone is not None:
            removed[gone] = change.path
            written.pop(gone, None)
        if made is not None:
            written[made] = change.target or change.path
    tree.top = trial.top
    entries = [
        entry(path, trial.node(place), digest=True) for place, path in written.items()
    ]
    return Patched(tuple(entries), tuple(removed.values()))


def _change(tree: Tree, change: FileChange, root: str) -> tuple[str | None, str | None]:
    """Make a change; returns the real paths of what goes, and of what comes."""
    place = _place(tree, change.path, root, new=change.kind == "add")
    content, mode = b"", 0o644
    if place.node is not None:
        require_file(place.node, change.path)
        content, mode = place.node.data, place.node.mode
    fields = [
        {
            "body": "\n".join(hunk.body),
            "line": hunk.line,
            "anchors": list(hunk.anchors),
            "at_end": hunk.at_end,
            "newline": hunk.newline,
        }
        for hunk in change.hunks
    ]
    with refusals("patch", change.path):
        content = agent.patched(content, fields) if fields else content
        if change.kind == "delete" and fields and content:
            raise agent.Refused("hunk", "the file holds more than the patch removes")
    mode = change.mode if change.mode is not None else mode
    if change.kind == "delete":
        tree.drop(place.path)
        return place.path, None
    if change.target is None or change.target == change.path:
        tree.put(place.path, Node("file", mode, content))
        return None, place.path
    target = _place(tree, change.target, root, new=True)
    tree.drop(place.path)
    tree.put(target.path, Node("file", mode, content))
    return place.path, target.path


def _place(tree: Tree, path: str, root: str, *, new: bool) -> Place:
    if new:
        tree.make_directories(path.rsplit("/", 1)[0], confine=root)
    place = tree.place(path, follow=not new, confine=root)
    if new and place.node is not None:
        raise PathExistsError(f"{path} exists", path=path)
    if not new and place.node is None:
        raise PathMissingError(f"{path} does not exist", path=path)
    return place
