"""Commands on a kernel of their own in user space."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self, get_args

from typing_extensions import Unpack, override

from isobox._workspace.base import WorkspaceBase
from isobox._workspace.classes import mount, names
from isobox._workspace.verify import check_hidden
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from isobox._core.spec import Mount, SandboxSpec
    from isobox._workspace.options import Options
    from isobox.abc import Provider

#: How gVisor runs the code of commands.
Platform = Literal["systrap", "ptrace", "kvm"]


class GVisorWorkspace(WorkspaceBase):
    """Commands on gVisor's kernel, by `runsc` alone, without network.

    They see the system's programs read-only, a private /tmp and home, and the
    workspace at /workspace; their system calls do not reach the host's kernel.

    Args:
        workdir: Host directory that appears at /workspace; it must exist. Files
            made inside belong to its owner. A temporary one, removed at close,
            if None.
        rootfs: Host directory that is the root directory inside, read-only, such
            as debootstrap makes; it has a Python 3.8 or newer. A view of the
            host's own system if None. /home, /run and /tmp are private.
        mounts: What else of the host is seen, read-only: paths, or pairs of a
            path on the host and one inside.
        platform: How gVisor runs the commands' code; chosen if None.
        protect: Keep what the host executes from being written: `.git`,
            editors' and agents' configuration, hooks, rc and CI files.
        unprotected: Names of these that may be written all the same, such as
            `.git`.
        **options: See WorkspaceBase.

    Raises:
        InvalidArgumentError: An argument cannot be honoured.
    """

    backend: ClassVar[str] = "gvisor"

    def __init__(
        self,
        workdir: str | os.PathLike[str] | None = None,
        *,
        rootfs: str | os.PathLike[str] | None = None,
        mounts: Iterable[Mount | str | tuple[str, str]] = (),
        platform: Platform | None = None,
        protect: bool = True,
        unprotected: Iterable[str] = (),
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self._workdir = None if workdir is None else os.path.abspath(workdir)
        self._options = _Options(
            mounts=tuple(mount(each) for each in mounts),
            protect=protect,
            unprotected=names(unprotected),
        )
        self._runsc = _Runsc(
            rootfs=None if rootfs is None else os.path.realpath(rootfs),
            platform=_known(platform),
        )

    @override
    def _provider(self) -> Provider:
        # Not for those who import the class: it costs what they may not need.
        from isobox._backends.gvisor import GVisorProvider  # noqa: PLC0415

        return GVisorProvider(rootfs=self._runsc.rootfs, platform=self._runsc.platform)

    @override
    def _spec(self) -> SandboxSpec:
        return replace(super()._spec(), **vars(self._options))

    @override
    def _judge(self, mounts: Mapping[str, str]) -> GVisorWorkspace:
        seen = [each.source for each in self._options.mounts]
        seen += [self._workdir] if self._workdir is not None else []
        check_hidden(mounts.values(), seen)
        return GVisorWorkspace(
            rootfs=self._runsc.rootfs,
            mounts=[
                *self._options.mounts,
                *((source, target) for target, source in mounts.items()),
            ],
            platform=self._runsc.platform,
            limits=self._limits,
            env=self._env,
            labels=self._labels,
        )

    @override
    def _twin(self) -> Self:
        twin = super()._twin()
        twin._options, twin._runsc = self._options, self._runsc
        return twin


@dataclass(frozen=True, kw_only=True)
class _Options:
    """What such a workspace adds to a spec, under the same names."""

    mounts: tuple[Mount, ...]
    protect: bool
    unprotected: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class _Runsc:
    rootfs: str | None
    platform: Platform | None


def _known(platform: Platform | None) -> Platform | None:
    if platform is not None and platform not in get_args(Platform):
        raise InvalidArgumentError(
            f"platform={platform!r}: there are {', '.join(get_args(Platform))}"
        )
    return platform
