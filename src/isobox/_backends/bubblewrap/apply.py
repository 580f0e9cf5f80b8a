"""Bringing a private view's changes to its directory: all, or none.

What is new is first copied beside the directory's files, into a directory of
the host's own; then names are exchanged with it, each atomically. So the old
files are at hand until the last name is in place, and come back if one is not.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import TYPE_CHECKING, Final, Self

from isobox._backends.bubblewrap.changes import State, stamp
from isobox._core.paths import shown
from isobox._linux import trees
from isobox.errors import ArchiveError, ConflictError, IsoboxError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from isobox._backends.bubblewrap.changes import Item, Private
    from isobox._core.results import Change

_CREATE_TO_READ: Final = (
    os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
)
_PREFIX: Final = ".isobox-apply-"
_MOST_NAMED: Final = 20


def admissible(items: Sequence[Item], *, skip_refused: bool) -> list[Item]:
    """Return what may come to the host.

    Raises:
        ArchiveError: Something may not, and is not to be skipped.
        ConflictError: The directory has changed at such a path.
    """
    refused = [item for item in items if item.refused is not None]
    if refused and not skip_refused:
        reasons = [f"{shown(item.path)}: {item.refused}" for item in refused]
        raise ArchiveError(
            f"apply: {len(refused)} of the changes may not come to the host; "
            "nothing was changed. Leave them out with skip_refused=True:\n  "
            + _listed(reasons),
            path=refused[0].path,
        )
    left = [item for item in items if item.refused is None]
    if conflicts := [item.path for item in left if item.conflict]:
        raise ConflictError(
            "apply: the directory has changed meanwhile; nothing was changed. "
            "Apply other paths, or begin anew with discard():\n  "
            + _listed([shown(path) for path in conflicts]),
            path=conflicts[0],
        )
    return left


def _listed(lines: list[str]) -> str:
    more = len(lines) - _MOST_NAMED
    rest = [f"and {more} more"] if more > 0 else []
    return "\n  ".join(lines[:_MOST_NAMED] + rest)


def compare_with_shown(changes: Sequence[Change], seen: Sequence[Change]) -> None:
    """Return if changes are those that a person has seen, but for files' content.

    Raises:
        ConflictError: They are not.
    """
    wanted = {change.path: _outline(change) for change in seen if not change.refused}
    found = {change.path: _outline(change) for change in changes}
    differing = [
        path
        for path in sorted(wanted.keys() | found.keys())
        if wanted.get(path) != found.get(path)
    ]
    if differing:
        raise _not_shown(differing)


def _outline(change: Change) -> tuple[object, ...]:
    return change.change, change.kind, change.mode, change.old_mode, change.target


def _not_shown(paths: list[str]) -> ConflictError:
    return ConflictError(
        "apply: these changes are no longer those that were shown, or could not be "
        "shown; nothing was applied. Wait until no command writes, and ask again:\n  "
        + _listed([shown(path) for path in paths]),
        path=paths[0],
    )


def apply(
    private: Private, items: Sequence[Item], seen: Sequence[Change] | None = None
) -> None:
    """Make the directory's files those of the view, at the items' paths.

    `private.base` follows.

    Args:
        private: The view and the directory.
        items: What differs and is to come.
        seen: What a person has seen and allowed; None where nobody was asked.

    Raises:
        ConflictError: The directory or the view changes while this runs, or what
            comes is not what was seen.
        StorageError: The file system refused; nothing was changed, or the
            message says what was.
    """
    try:
        with _Transaction(private, seen) as transaction:
            transaction.stage(items)
            transaction.commit(items)
    except IsoboxError:
        for item in items:
            _settle_back(private, item)
        raise
    for item in items:
        _settle(private, item.path)


def _settle(private: Private, path: str) -> None:
    found = _found(private.host, path)
    private.base.pop(path, None)
    if found is not None:
        private.base[path] = stamp(found)


def _settle_back(private: Private, item: Item) -> None:
    """Know a file again that was moved away and came back."""
    found = _found(private.host, item.path)
    if found is None or item.host is None:
        return
    remade = item.was_directory and stat.S_ISDIR(found.st_mode)
    if remade or State.of(found) == State.of(item.host):
        private.base[item.path] = stamp(found)


def _found(root: int, path: str) -> os.stat_result | None:
    folder, _, name = path.rpartition("/")
    try:
        fd = trees.directory(root, folder)
    except OSError:
        return None
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    finally:
        os.close(fd)


class _Transaction:
    def __init__(self, private: Private, seen: Sequence[Change] | None) -> None:
        self._private = private
        self._seen = None if seen is None else {each.path: each for each in seen}
        self._undo: list[tuple[str, Callable[[], None]]] = []
        self._slots: dict[str, str] = {}
        self._name = _PREFIX + secrets.token_hex(8)
        self._stage = -1
        self._used = 0
        self._now = ""
        self._owner: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        host = self._private.host
        with self._reported():
            os.mkdir(self._name, 0o700, dir_fd=host)
            self._stage = trees.directory(host, self._name)
        if os.geteuid() == 0:
            found = os.fstat(host)
            self._owner = found.st_uid, found.st_gid
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._stage)
        trees.remove(self._private.host, self._name)

    @contextlib.contextmanager
    def _reported(self) -> Generator[None]:
        try:
            yield
        except FileExistsError as error:
            raise ConflictError(
                f"apply: {self._now!r} appeared meanwhile; nothing was changed",
                path=self._now,
            ) from error
        except OSError as error:
            raise StorageError(
                f"apply: {self._now!r}: {error.strerror}; nothing was changed",
                code=error.errno or 0,
                path=self._now,
            ) from error

    # Copying what is new, where nothing refers to it yet.

    def stage(self, items: Sequence[Item]) -> None:
        """Copy every new file and link into the transaction's own directory."""
        for item in items:
            self._now = item.path
            if item.kind == "symlink" and item.view is not None:
                with self._reported():
                    self._stage_link(item)
            elif item.kind == "file" and item.view is not None:
                with self._reported():
                    self._stage_file(item)

    def _stage_link(self, item: Item) -> None:
        slot = self._slot(item)
        # SAFETY: the target that was judged, not what the view has by now.
        os.symlink(item.target or "", slot, dir_fd=self._stage)
        self._give(slot)

    def _stage_file(self, item: Item) -> None:
        try:
            source = trees.regular(self._private.view, item.path)
        except OSError as error:
            raise ConflictError(
                f"apply: {item.path!r} changed in the workspace meanwhile; nothing "
                "was changed",
                path=item.path,
            ) from error
        try:
            self._copy(item, source)
        finally:
            os.close(source)

    def _copy(self, item: Item, source: int) -> None:
        found = os.fstat(source)
        slot = self._slot(item)
        target = os.open(slot, _CREATE_TO_READ, 0o600, dir_fd=self._stage)
        try:
            trees.copy_content(source, target)
            self._check_seen(item, target, found.st_mode & 0o777)
            self._give(slot)
            # SAFETY: set-id bits do not pass, whatever the view has by now.
            os.fchmod(target, found.st_mode & 0o777)
            os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns))
        finally:
            os.close(target)

    def _check_seen(self, item: Item, copied: int, mode: int) -> None:
        """Refuse a copy that is not what a person has seen."""
        if self._seen is None:
            return
        # SAFETY: of the copy, which nobody inside reaches: the view may change at
        # any moment, between a comparison and the copying too.
        seen = self._seen.get(item.path)
        known = seen is not None and seen.digest is not None and seen.mode == mode
        if seen is None or not known or trees.digest(copied) != seen.digest:
            raise _not_shown([item.path])

    def _slot(self, item: Item) -> str:
        slot = self._slots[item.path] = self._free_slot()
        return slot

    def _free_slot(self) -> str:
        self._used += 1
        return str(self._used)

    def _give(self, slot: str) -> None:
        """Let the directory's owner have a file of ours, as all the others."""
        if self._owner is not None:
            os.chown(slot, *self._owner, dir_fd=self._stage, follow_symlinks=False)

    # Putting it in place.

    def commit(self, items: Sequence[Item]) -> None:
        """Bring every item to its place, or undo what was done."""
        try:
            with self._reported():
                for item in reversed(items):
                    self._now = item.path
                    self._clear(item)
                for item in items:
                    self._now = item.path
                    self._place(item)
                for item in reversed(items):
                    self._finish(item)
        except BaseException as error:
            self._roll_back(error)
            raise

    def _clear(self, item: Item) -> None:
        """Take away what is removed, or is of another kind."""
        if item.host is None or (item.was_directory and item.is_directory):
            return
        replaced = item.view is not None and not item.was_directory
        if replaced and not item.is_directory:
            return
        folder, name = self._parent(item.path)
        try:
            if item.was_directory:
                self._remove_directory(item, folder, name)
            else:
                self._take(item, folder, name)
        finally:
            os.close(folder)

    def _remove_directory(self, item: Item, folder: int, name: str) -> None:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        os.rmdir(name, dir_fd=folder)
        self._undone_by(item.path, lambda: self._make(item.path, found.st_mode))

    def _take(self, item: Item, folder: int, name: str) -> None:
        slot = self._free_slot()
        os.rename(name, slot, src_dir_fd=folder, dst_dir_fd=self._stage)
        self._undone_by(item.path, lambda: self._bring_back(item.path, slot))
        self._check(item, slot)

    def _place(self, item: Item) -> None:
        if item.view is None:
            return
        if item.is_directory:
            self._place_directory(item)
            return
        folder, name = self._parent(item.path)
        try:
            self._place_file(item, folder, name)
        finally:
            os.close(folder)

    def _place_directory(self, item: Item) -> None:
        assert item.view is not None  # noqa: S101 - it is placed
        if not item.was_directory:
            self._make(item.path, 0o700)
            self._undone_by(item.path, lambda: self._unmake(item.path))
            return
        assert item.host is not None  # noqa: S101 - it was one
        before = item.host.st_mode & 0o7777
        kept = before & ~0o777
        self._set_mode(item.path, kept | item.view.st_mode & 0o777)
        self._undone_by(item.path, lambda: self._set_mode(item.path, before))

    def _place_file(self, item: Item, folder: int, name: str) -> None:
        slot = self._slots[item.path]
        there, ours = (folder, name), (self._stage, slot)
        if item.host is None or item.was_directory:
            trees.rename_new(ours, there)
            self._undone_by(item.path, lambda: self._withdraw(item.path, slot))
        elif trees.exchange(ours, there):
            self._undone_by(item.path, lambda: self._swap_back(item.path, slot))
            self._check(item, slot)
        else:
            self._replace(item, folder, name, slot)

    def _replace(self, item: Item, folder: int, name: str, slot: str) -> None:
        """Exchange names where the file system cannot do it at once."""
        self._take(item, folder, name)
        trees.rename_new((self._stage, slot), (folder, name))
        self._undone_by(item.path, lambda: self._withdraw(item.path, slot))

    def _check(self, item: Item, slot: str) -> None:
        """What was taken must be what was compared."""
        assert item.host is not None  # noqa: S101 - it was taken
        taken = os.stat(slot, dir_fd=self._stage, follow_symlinks=False)
        if State.of(taken) != State.of(item.host):
            raise ConflictError(
                f"apply: {item.path!r} changed meanwhile; nothing was changed",
                path=item.path,
            )

    def _finish(self, item: Item) -> None:
        """Give a new directory its mode and time, now that nothing comes to it."""
        if item.view is None or not item.is_directory or item.was_directory:
            return
        fd = trees.directory(self._private.host, item.path)
        try:
            inherited = os.fstat(fd).st_mode & stat.S_ISGID
            os.fchmod(fd, inherited | item.view.st_mode & 0o777)
            os.utime(fd, ns=(item.view.st_mtime_ns, item.view.st_mtime_ns))
        finally:
            os.close(fd)

    # Going back.

    def _undone_by(self, path: str, step: Callable[[], None]) -> None:
        self._undo.append((path, step))

    def _roll_back(self, error: BaseException) -> None:
        left: list[str] = []
        while self._undo:
            path, step = self._undo.pop()
            try:
                step()
            except OSError:
                left.append(path)
        if left:
            raise StorageError(
                f"apply: {error}; and these could not be brought back:\n  "
                + _listed([shown(path) for path in left]),
                path=left[0],
            ) from error

    def _bring_back(self, path: str, slot: str) -> None:
        folder, name = self._parent(path)
        try:
            os.rename(slot, name, src_dir_fd=self._stage, dst_dir_fd=folder)
        finally:
            os.close(folder)

    def _withdraw(self, path: str, slot: str) -> None:
        folder, name = self._parent(path)
        try:
            os.rename(name, slot, src_dir_fd=folder, dst_dir_fd=self._stage)
        finally:
            os.close(folder)

    def _swap_back(self, path: str, slot: str) -> None:
        folder, name = self._parent(path)
        try:
            trees.exchange((self._stage, slot), (folder, name))
        finally:
            os.close(folder)

    # Directories.

    def _parent(self, path: str) -> tuple[int, str]:
        above, _, name = path.rpartition("/")
        return trees.directory(self._private.host, above), name

    def _make(self, path: str, mode: int) -> None:
        folder, name = self._parent(path)
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
            fd = trees.directory(folder, name)
        finally:
            os.close(folder)
        try:
            if self._owner is not None:
                os.fchown(fd, *self._owner)
            inherited = os.fstat(fd).st_mode & stat.S_ISGID
            os.fchmod(fd, inherited | mode & 0o777)
        finally:
            os.close(fd)

    def _unmake(self, path: str) -> None:
        folder, name = self._parent(path)
        try:
            os.rmdir(name, dir_fd=folder)
        finally:
            os.close(folder)

    def _set_mode(self, path: str, mode: int) -> None:
        fd = trees.directory(self._private.host, path)
        try:
            os.fchmod(fd, mode)
        finally:
            os.close(fd)
