"""Workspaces in containers of Docker or Podman."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Self, cast, get_args

from typing_extensions import Unpack, override

from isobox._backends.docker.options import DockerOptions, PythonOption, user
from isobox._workspace.base import WorkspaceBase
from isobox._workspace.classes import mount
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from isobox._backends.docker.arrival import Arrival
    from isobox._backends.docker.provider import DockerProvider
    from isobox._backends.docker.sandbox import DockerSandbox
    from isobox._backends.docker.tenancy import Tenancy
    from isobox._core.spec import Mount, SandboxSpec
    from isobox._workspace.options import Options


class DockerWorkspace(WorkspaceBase):
    """Commands in a container of Docker or Podman, without network.

    They have no capabilities and no way to more privileges; the root is
    read-only, /tmp and home are private and of the size that `limits` names.
    The workspace is at /workspace.

    With a `workspace_id` the workspace is found again: by another process, after
    a crash of this one, and after the container was stopped, removed, paused or
    killed. Calls in flight then raise SandboxLostError, and the next use brings
    it back with its files. `arrival` says what had to be done for it.

    `close` removes the container and, without `workdir`, its files; `detach`
    leaves both.

    Args:
        workdir: Host directory that appears at /workspace; it must exist, and
            commands run as its owner. A volume that goes with the workspace, if
            None.
        image: Name or id of an image that the engine has.
        runtime: What runs the container, by the engine's name for it, such as
            `runsc` (gVisor) or `kata`; the engine's default if None.
        python: Where the guest's Python comes from: the image's own (`image`),
            else one that is brought along read-only (`bring`), else none
            (`none`: slower, by a shell); `auto` tries them in this order.
        user: `UID` or `UID:GID` of commands. The owner of `workdir`, else the
            image's user if that is a number and not root, else 1000, if None.
        engine: The engine's address, such as `unix:///var/run/docker.sock`. What
            DOCKER_HOST or CONTAINER_HOST names, else the usual sockets, if None.
        linger: Seconds that the container stays without any host: 3600 with a
            `workspace_id`, else 10, if None.
        read_only_root: Whether only /workspace, /tmp and home can be written.
        mounts: What else of the host is seen, read-only: paths, or pairs of a
            host path and the path inside.
        **options: See WorkspaceBase.

    Raises:
        InvalidArgumentError: An argument cannot be honoured.
    """

    backend: ClassVar[str] = "docker"
    _shared: ClassVar[bool] = True

    def __init__(
        self,
        workdir: str | os.PathLike[str] | None = None,
        *,
        image: str,
        runtime: str | None = None,
        python: PythonOption = "auto",
        user: str | int | None = None,
        engine: str | None = None,
        linger: float | None = None,
        read_only_root: bool = True,
        mounts: Iterable[Mount | str | tuple[str, str]] = (),
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self._workdir = None if workdir is None else os.path.abspath(os.fspath(workdir))
        self._mounts = tuple(mount(each) for each in mounts)
        self._resetting = False
        self._take(
            DockerOptions(
                image=_named("image", image),
                runtime=None if runtime is None else _named("runtime", runtime),
                python=_python(python),
                user=_user(user),
                engine=engine,
                linger=_seconds(linger),
                read_only_root=read_only_root,
                named=options.get("workspace_id") is not None,
            )
        )

    @property
    def arrival(self) -> Arrival:
        """How the workspace came to its container, the last time.

        Raises:
            WorkspaceClosedError: It is not open.
        """
        return self._container.arrival

    async def detach(self) -> None:
        """Close the workspace here and leave it as it is, commands included.

        Who opens it by its `workspace_id` finds it as it is. The container ends
        when nobody does within `linger` seconds; then commands are gone, and the
        files stay.

        Raises:
            InvalidArgumentError: It has no `workspace_id` to be found by.
        """
        if not self._options.named:
            raise InvalidArgumentError(
                "nobody could find this workspace again: give it a workspace_id"
            )
        self._container.left = True
        await self.close()

    @override
    async def initialize(self) -> None:
        await super().initialize()
        if self._container.on_arrival is None:
            self._container.on_arrival = self._arrived
            try:
                self._arrived(self.arrival)
            except BaseException:
                await self.close()
                raise

    @override
    async def close(self) -> None:
        try:
            await super().close()
        finally:
            if self._options.disposable and not self._resetting:
                await self._docker().forget_image()

    @override
    async def reset(self) -> None:
        self._resetting = True
        try:
            await super().reset()
        finally:
            self._resetting = False

    @property
    def _container(self) -> Tenancy[object]:
        sandbox = cast("DockerSandbox", self._live())
        return cast("Tenancy[object]", sandbox.tenancy)

    def _docker(self) -> DockerProvider:
        return cast("DockerProvider", self._provider())

    def _arrived(self, arrival: Arrival) -> None:
        """Note how a container was come to, now or after it was lost."""
        because = list(arrival.because)
        self._audit.lifecycle("container", how=arrival.how, because=because)

    @override
    def _spec(self) -> SandboxSpec:
        return replace(super()._spec(), mounts=self._mounts)

    @override
    async def _forked(self) -> Self:
        if self._options.read_only_root:
            return self._twin()
        image = await self._container.commit()
        return self._twin_of(replace(self._options, image=image, disposable=True))

    @override
    def _twin(self) -> Self:
        return self._twin_of(self._options)

    def _twin_of(self, options: DockerOptions) -> Self:
        twin = type(self)(image=options.image, mounts=self._mounts, **self._inherited())
        twin._take(replace(options, named=False))
        return twin

    def _take(self, options: DockerOptions) -> None:
        self._options = options
        self._provider_options = (options,)


def _named(what: str, name: str) -> str:
    if not name or name.startswith("-") or any(char.isspace() for char in name):
        raise InvalidArgumentError(f"{what}={name!r} is no name")
    return name


def _python(word: str) -> PythonOption:
    if word not in get_args(PythonOption):
        known = ", ".join(get_args(PythonOption))
        raise InvalidArgumentError(f"python={word!r}: there are {known}")
    return cast("PythonOption", word)


def _user(given: str | int | None) -> str | None:
    return None if given is None else str(user(str(given)))


def _seconds(linger: float | None) -> float | None:
    try:
        is_good = linger is None or 0 < linger < float("inf")
    except TypeError:
        is_good = False
    if not is_good:
        raise InvalidArgumentError(f"linger={linger!r}: give seconds, more than 0")
    return linger
