"""What a private view of a directory has that the directory has not."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from isobox._core.paths import within
from isobox._core.protected import rule_for
from isobox._linux import overlay, trees
from isobox._linux.trees import join

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from isobox._core.results import ChangeKind, Kind

_MOST: Final = 100_000
#: The kernel takes no path of 4096 bytes.
_LONGEST_PATH: Final = 3500
_MOST_LINKS: Final = 40

Found = os.stat_result


class State(NamedTuple):
    """What tells one state of a file from another; names do not change it."""

    mode: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, found: Found) -> State:
        """Return the state of what was found; a directory's names do not count."""
        if stat.S_ISDIR(found.st_mode):
            return cls(found.st_mode, found.st_ino, 0, 0)
        return cls(found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns)


def stamp(found: Found) -> int:
    """Return a number that changes whenever a file does.

    The time of the last change of the inode is in it, which nobody can set.
    """
    changed = 0 if stat.S_ISDIR(found.st_mode) else found.st_ctime_ns
    return hash((*State.of(found), changed))


@dataclass(kw_only=True)
class Private:
    """A private view, from the host's side.

    Attributes:
        view: What the view has: the layer of an overlay, or a copy.
        host: The directory.
        layered: Whether `view` is a layer, in which what is absent is unchanged.
        base: Stamps of the directory's files as they were, by path.
        copied: Stamps of the copies as they were, by path.
        protect: Whether protected names are refused.
        unprotected: Names of these that may come all the same.
        remembered: Where isobox keeps what it remembers, if below the directory.
    """

    view: int
    host: int
    layered: bool
    base: dict[str, int]
    copied: Mapping[str, int]
    protect: bool = True
    unprotected: frozenset[str] = frozenset()
    remembered: str | None = None


@dataclass(slots=True)
class Item:
    """One path that differs.

    Attributes:
        path: Relative to the directory.
        change: What became of it.
        view: What the view has, None if nothing.
        host: What the directory has, None if nothing.
        content: Whether the bytes differ, not only the mode.
        target: Where the view's link leads.
        refused: Why it may not come to the host.
        conflict: The directory has changed here since the view began.
    """

    path: str
    change: ChangeKind
    view: Found | None
    host: Found | None
    content: bool = True
    target: str | None = None
    refused: str | None = None
    conflict: bool = False

    @property
    def kind(self) -> Kind:
        """What it is now; what it was if it was removed."""
        found = self.view or self.host
        assert found is not None  # noqa: S101 - one of them is there
        return trees.kind_of(found.st_mode)

    @property
    def is_directory(self) -> bool:
        """Whether the view has a directory here."""
        return self.view is not None and stat.S_ISDIR(self.view.st_mode)

    @property
    def was_directory(self) -> bool:
        """Whether the directory has a directory here."""
        return self.host is not None and stat.S_ISDIR(self.host.st_mode)


@dataclass(slots=True)
class Items:
    """All that differs, parents first; `truncated` if there is more."""

    found: list[Item] = field(default_factory=list[Item])
    truncated: bool = False


def compare(private: Private, chosen: Iterable[str] | None = None) -> Items:
    """Find what differs, in all of the directory or at and below some paths.

    Files are compared by their content, except copies whose inode has not
    changed since they were made.
    """
    wanted = None if chosen is None else frozenset(chosen)
    items = Items()
    for item in _Comparison(private).run():
        if wanted is not None and not _is_wanted(item, wanted):
            continue
        if len(items.found) == _MOST:
            items.truncated = True
            break
        items.found.append(item)
    items.found.sort(key=lambda item: item.path.split("/"))
    _judge(private, items.found)
    return items


def _is_wanted(item: Item, wanted: frozenset[str]) -> bool:
    parts = item.path.split("/")
    above = {"/".join(parts[:count]) for count in range(len(parts) + 1)}
    if above & wanted:
        return True
    # What is wanted below a new directory needs the directory.
    made = item.is_directory and not item.was_directory
    return made and any(path.startswith(item.path + "/") for path in wanted)


class _Comparison:
    def __init__(self, private: Private) -> None:
        self._private = private
        # Directories to compare, and whether the layer hides what is below.
        self._todo = [("", not private.layered)]

    def run(self) -> Iterator[Item]:
        while self._todo:
            yield from self._directory(*self._todo.pop())

    def _directory(self, path: str, hidden: bool) -> Iterator[Item]:
        held = _view_entries(self._private.view, path)
        if held is None:
            return
        seen, opaque = held
        hidden = hidden or opaque
        below = _host_entries(self._private.host, path, None if hidden else seen)
        for name, found in seen.items():
            yield from self._entry(join(path, name), found, below.get(name), hidden)
        for name in below.keys() - seen.keys():
            where = join(path, name)
            # What the directory got meanwhile was never in the view.
            if where in self._private.base:
                yield from self._removed(where, below[name])

    def _entry(
        self,
        path: str,
        found: Found,
        host: Found | None,
        hidden: bool,
    ) -> Iterator[Item]:
        if self._private.layered and overlay.is_whiteout(found):
            if host is not None:
                yield from self._removed(path, host)
            return
        yield from self._one(path, found, host)
        is_directory = stat.S_ISDIR(found.st_mode)
        if host is not None and stat.S_ISDIR(host.st_mode) and not is_directory:
            yield from self._below(path)
        if is_directory and len(os.fsencode(path)) < _LONGEST_PATH:
            self._todo.append((path, hidden))

    def _one(self, path: str, found: Found, host: Found | None) -> Iterator[Item]:
        if self._is_as_copied(path, found):
            return
        item = Item(path, "added" if host is None else "modified", found, host)
        item.conflict = not self._is_as_it_was(path, host)
        try:
            self._look_into(item)
            if host is not None:
                item.content = self._differs(item, host)
        except OSError as error:
            item.refused = f"it cannot be read: {error.strerror}"
        if item.content or item.refused or _mode_differs(found, host):
            yield item

    def _is_as_copied(self, path: str, found: Found) -> bool:
        # A directory that comes after another may get its inode.
        known = path in self._private.base
        return known and self._private.copied.get(path) == stamp(found)

    def _look_into(self, item: Item) -> None:
        if item.kind == "symlink":
            item.target = _target(self._private.view, item.path)
        elif item.kind == "directory":
            os.close(trees.directory(self._private.view, item.path))

    def _differs(self, item: Item, host: Found) -> bool:
        """Whether more than the permissions differ."""
        assert item.view is not None  # noqa: S101 - it was found
        if stat.S_IFMT(item.view.st_mode) != stat.S_IFMT(host.st_mode):
            return True
        if stat.S_ISLNK(host.st_mode):
            return item.target != _target(self._private.host, item.path)
        if not stat.S_ISREG(host.st_mode):
            return False
        if item.view.st_size != host.st_size:
            return True
        return not _same(self._private, item.path)

    def _removed(self, path: str, host: Found) -> Iterator[Item]:
        yield self._gone(path, host)
        if stat.S_ISDIR(host.st_mode):
            yield from self._below(path)

    def _below(self, path: str) -> Iterator[Item]:
        for below, found in trees.walk(self._private.host, path):
            yield self._gone(below, found)

    def _gone(self, path: str, host: Found) -> Item:
        conflict = not self._is_as_it_was(path, host)
        return Item(path, "removed", None, host, conflict=conflict)

    def _is_as_it_was(self, path: str, host: Found | None) -> bool:
        was = self._private.base.get(path)
        return was == (None if host is None else stamp(host))


def _mode_differs(found: Found, host: Found | None) -> bool:
    if host is None or stat.S_ISLNK(found.st_mode):
        return False
    return bool((found.st_mode ^ host.st_mode) & 0o777)


def _view_entries(view: int, path: str) -> tuple[dict[str, Found], bool] | None:
    try:
        folder = trees.directory(view, path)
    except OSError:
        # Closed to us, as was said of it; or something else by now.
        return None
    try:
        return trees.entries(folder), overlay.is_opaque(folder)
    finally:
        os.close(folder)


def _host_entries(
    host: int, path: str, names: Iterable[str] | None
) -> dict[str, Found]:
    """Describe what the directory has at `path`: of these names, or all."""
    try:
        folder = trees.directory(host, path)
    except OSError:
        return {}
    try:
        if names is None:
            return trees.entries(folder)
        found: dict[str, Found] = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found[name] = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return found
    finally:
        os.close(folder)


def _same(private: Private, path: str) -> bool:
    one = trees.regular(private.view, path)
    try:
        other = trees.regular(private.host, path)
        try:
            return trees.same_content(one, other)
        finally:
            os.close(other)
    finally:
        os.close(one)


def _target(root: int, path: str) -> str:
    folder, _, name = path.rpartition("/")
    fd = trees.directory(root, folder)
    try:
        return os.readlink(name, dir_fd=fd)
    finally:
        os.close(fd)


# -- what may not come --------------------------------------------------------


def _judge(private: Private, items: list[Item]) -> None:
    """Say of each item why it may not come, if so; parents come first."""
    links = _Links(private, items)
    for item in items:
        item.refused = item.refused or _reason(private, item, links)
    _keep_what_holds_refused(items)
    _keep_what_is_below_refused(items)


def _reason(private: Private, item: Item, links: _Links) -> str | None:
    rule = rule_for(item.path, unprotected=private.unprotected)
    if private.protect and rule is not None:
        return f"{rule} is protected"
    if private.remembered is not None and within(item.path, private.remembered):
        return "it is what isobox remembers"
    if len(os.fsencode(item.path)) >= _LONGEST_PATH:
        return "its path is too long"
    if item.view is None:
        return None
    if item.kind == "symlink":
        if item.was_directory:
            return "a link would take a directory's place"
        if links.leave(item.path, item.target or ""):
            return "the link leaves the directory"
        return None
    if item.kind == "file" and item.view.st_mode & (stat.S_ISUID | stat.S_ISGID):
        return "it is set-user-id or set-group-id"
    return None if item.kind in ("file", "directory") else f"it is a {item.kind}"


def _keep_what_holds_refused(items: list[Item]) -> None:
    """A directory does not go if something in it may not."""
    kept: set[str] = set()
    for item in reversed(items):
        if item.path in kept and item.was_directory and not item.is_directory:
            item.refused = item.refused or "it holds what may not be removed"
        if item.refused is not None and item.host is not None:
            kept.add(item.path.rpartition("/")[0])


def _keep_what_is_below_refused(items: list[Item]) -> None:
    reasons: dict[str, str] = {}
    for item in items:
        reason = reasons.get(item.path.rpartition("/")[0])
        if reason is None and item.view is not None:
            reason = item.refused
        if reason is not None:
            reasons[item.path] = reason
            item.refused = item.refused or reason


class _Links:
    """Where links would lead, in the directory as it would be."""

    def __init__(self, private: Private, items: Iterable[Item]) -> None:
        self._host = private.host
        self._items = {item.path: item for item in items}

    def leave(self, path: str, target: str) -> bool:
        """Whether a link at `path` leads out of the directory, now or later.

        `..` is taken only where it stands first: behind a name, it would lead
        elsewhere once something else has that name.
        """
        parts = target.split("/")
        while parts and parts[0] in ("..", "."):
            del parts[0]
        return ".." in parts or self._leads_out(path.split("/")[:-1], target)

    def _leads_out(self, here: list[str], target: str) -> bool:
        todo = target.split("/")[::-1]
        followed = 0
        if target.startswith("/"):
            return True
        while todo:
            part = todo.pop()
            if part == "..":
                if not here:
                    return True
                here.pop()
            elif part not in ("", "."):
                here.append(part)
                further = self._read("/".join(here))
                if further is not None:
                    here.pop()
                    todo += further.split("/")[::-1]
                    followed += 1
                    if further.startswith("/") or followed > _MOST_LINKS:
                        return True
        return False

    def _read(self, path: str) -> str | None:
        if path in self._items:
            return self._items[path].target
        try:
            return _target(self._host, path)
        except OSError:
            return None
