"""The workspaces by name; each only chooses its provider and its directory."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar, get_args

from typing_extensions import Unpack, override

from isobox._core.ops import Apply, Diff, Discard
from isobox._core.protected import IN_ROOT, known
from isobox._core.spec import MinIsolation, Mode, Mount
from isobox._workspace.base import WorkspaceBase
from isobox._workspace.verify import check_hidden
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from isobox._core.results import Changes
    from isobox._core.spec import SandboxSpec
    from isobox._workspace.options import Options


class LocalWorkspace(WorkspaceBase):
    """Commands as plain children of the host: it isolates nothing.

    For trusted code and for machines that are a sandbox themselves. The host's
    environment is not passed on, and file operations stay below `workdir`.

    Args:
        workdir: Host directory that is the workspace's root; it must exist. A
            temporary one, removed at close, if None.
        **options: See WorkspaceBase.
    """

    backend: ClassVar[str] = "local"

    def __init__(
        self,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self._workdir = _host_path(workdir)


class BubblewrapWorkspace(WorkspaceBase):
    """Commands in namespaces of their own, without network, as no host user.

    They see the system's programs read-only, a private /tmp and home, and the
    workspace at /workspace.

    Args:
        host_workdir: Host directory that appears at /workspace; it must exist.
            Files made inside belong to its owner. A temporary one, removed at
            close, if None.
        mode: `live` works on the directory itself; `copy` on a private view of
            it: see `diff`, `apply` and `discard`.
        mounts: What else of the host is seen, read-only: paths, or pairs of a
            host path and the path inside.
        protect: Keep what the host executes from being written: `.git`,
            editors' and agents' configuration, hooks, rc and CI files.
        unprotected: Names of these that may be written all the same, such as
            `.git`.
        strict: Filter system calls more narrowly: no UNIX sockets, and fewer
            calls that few programs need.
        debug: Let processes trace one another, as debuggers need.
        min_isolation: Start with less where the machine allows no more, as in
            containers: `no_proc` without a /proc, `landlock` without
            namespaces. What was achieved is in `isolation()`.
        **options: See WorkspaceBase.

    Raises:
        InvalidArgumentError: An argument cannot be honoured.
    """

    backend: ClassVar[str] = "bubblewrap"

    def __init__(
        self,
        host_workdir: str | os.PathLike[str] | None = None,
        *,
        mode: Mode = "live",
        mounts: Iterable[Mount | str | tuple[str, str]] = (),
        protect: bool = True,
        unprotected: Iterable[str] = (),
        strict: bool = False,
        debug: bool = False,
        min_isolation: MinIsolation = "full",
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self._workdir = _host_path(host_workdir)
        self._options = _Options(
            mode=_one_of("mode", mode, get_args(Mode)),
            mounts=tuple(mount(each) for each in mounts),
            protect=protect,
            unprotected=names(unprotected),
            strict=strict,
            debug=debug,
            min_isolation=_one_of(
                "min_isolation", min_isolation, get_args(MinIsolation)
            ),
        )
        if mode == "copy" and self._workdir is None:
            raise InvalidArgumentError(
                'mode="copy" works on a view of host_workdir; name one'
            )

    async def diff(self) -> Changes:
        """Return what the private view has that the directory has not.

        Raises:
            UnsupportedError: The mode is not `copy`.
        """
        return await self._do(Diff())

    async def apply(
        self, paths: Iterable[str] | None = None, *, skip_refused: bool = False
    ) -> Changes:
        """Bring the private view's changes to the directory; returns them.

        Protected names, links that leave the tree, devices and set-id bits are
        refused; then nothing of the directory is changed.

        Args:
            paths: Only these and what is below them, relative to the root.
            skip_refused: Leave out what may not come instead of refusing all.

        Raises:
            UnsupportedError: The mode is not `copy`.
            ArchiveError: A change may not come to the host.
            ConflictError: The directory has changed meanwhile, at such a path.
        """
        chosen = None if paths is None else tuple(paths)
        return await self._do(Apply(paths=chosen, skip_refused=skip_refused))

    async def discard(self) -> None:
        """Throw the private view's changes away; it is as the directory is.

        Every command, shell and forwarded port of the workspace ends.

        Raises:
            UnsupportedError: The mode is not `copy`.
        """
        await self._do(Discard())
        self._shells.clear()
        self._processes.clear()

    @override
    def _spec(self) -> SandboxSpec:
        return replace(super()._spec(), **vars(self._options))

    @override
    def _judge(self, mounts: Mapping[str, str]) -> BubblewrapWorkspace:
        options = self._options
        seen = [each.source for each in options.mounts]
        seen += [self._workdir] if self._workdir is not None else []
        check_hidden(mounts.values(), seen)
        return BubblewrapWorkspace(
            mounts=[
                *options.mounts,
                *((source, target) for target, source in mounts.items()),
            ],
            strict=options.strict,
            min_isolation=options.min_isolation,
            limits=self._limits,
            env=self._env,
            labels=self._labels,
        )

    @override
    def _twin(self) -> Self:
        twin = super()._twin()
        # Its directory is a temporary one of its own: nothing to copy from.
        twin._options = replace(self._options, mode="live")
        return twin


class SeatbeltWorkspace(WorkspaceBase):
    """Commands under macOS's sandbox, Seatbelt, without network.

    They run as the user who runs isobox, and see the system's programs, a
    private TMPDIR and home, and the workspace where it is on the host.

    Args:
        host_workdir: Host directory that is the workspace's root; it must
            exist. A temporary one, removed at close, if None.
        mounts: What else of the host is seen, read-only, where it is.
        protect: Keep what the host executes from being written: `.git`,
            editors' and agents' configuration, hooks, rc and CI files.
        unprotected: Names of these that may be written all the same, such as
            `.git`.
        **options: See WorkspaceBase.

    Raises:
        InvalidArgumentError: An argument cannot be honoured.
    """

    backend: ClassVar[str] = "seatbelt"

    def __init__(
        self,
        host_workdir: str | os.PathLike[str] | None = None,
        *,
        mounts: Iterable[str] = (),
        protect: bool = True,
        unprotected: Iterable[str] = (),
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self._workdir = _host_path(host_workdir)
        self._mounts = tuple(mount(each) for each in mounts)
        self._protect = protect
        self._unprotected = frozenset(unprotected)

    @override
    def _spec(self) -> SandboxSpec:
        return replace(
            super()._spec(),
            mounts=self._mounts,
            protect=self._protect,
            unprotected=self._unprotected,
        )

    @override
    def _twin(self) -> Self:
        twin = super()._twin()
        twin._mounts, twin._protect = self._mounts, self._protect
        twin._unprotected = self._unprotected
        return twin


@dataclass(frozen=True, kw_only=True)
class _Options:
    """What a bubblewrap workspace adds to a spec, under the same names."""

    mode: Mode
    mounts: tuple[Mount, ...]
    protect: bool
    unprotected: frozenset[str]
    strict: bool
    debug: bool
    min_isolation: MinIsolation


def mount(given: Mount | str | tuple[str, str]) -> Mount:
    """Return the mount that a path, a pair of paths or a mount stands for.

    Raises:
        InvalidArgumentError: A path is not absolute.
    """
    if isinstance(given, Mount):
        given = (given.source, given.target)
    source, target = (given, given) if isinstance(given, str) else given
    source = os.path.expanduser(source)
    target = os.path.expanduser(target)
    if not (source.startswith("/") and target.startswith("/")):
        raise InvalidArgumentError(f"mounts: {given!r} is not absolute")
    return Mount(source=source, target=os.path.normpath(target))


def names(given: Iterable[str]) -> frozenset[str]:
    """Return the protected names that may be written all the same.

    Raises:
        InvalidArgumentError: One is not protected in the first place.
    """
    if isinstance(given, str):
        raise InvalidArgumentError(
            f"unprotected={given!r}: give a list of names, such as [{given!r}]"
        )
    names = frozenset(given)
    if unknown := sorted(name for name in names if not known(name)):
        raise InvalidArgumentError(
            f"unprotected: {', '.join(unknown)}: not protected in the first place; "
            f"names that are: {', '.join(sorted(IN_ROOT))}"
        )
    return names


_Word = TypeVar("_Word", bound=str)


def _one_of(name: str, word: _Word, known: tuple[str, ...]) -> _Word:
    if word not in known:
        raise InvalidArgumentError(f"{name}={word!r}: there are {', '.join(known)}")
    return word


def _host_path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.path.abspath(os.fspath(path))
