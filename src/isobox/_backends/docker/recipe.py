"""What a spec becomes in the engine's words."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from isobox import _workdir
from isobox._backends.docker import labels
from isobox._backends.docker.interpreter import PLACE
from isobox._backends.docker.options import HOME, ROOT, DockerOptions, User, user
from isobox._backends.docker.sources import Sources, refuse_inside
from isobox._core.paths import within
from isobox._linux import sparing
from isobox._linux.system import most_files
from isobox._workdir.state import made_beneath
from isobox.errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from isobox._backends.docker.engine import Answer
    from isobox._backends.docker.places import Place
    from isobox._backends.docker.sources import Bind
    from isobox.abc import Mount, SandboxSpec

MiB: Final = 1024 * 1024

#: Processes that are ours: the guest and its helpers, and relays.
_OURS: Final = 16
_DEFAULT_USER: Final = User(1000, 1000)
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: What a private place may be as a part of the memory that holds it.
_SHARE: Final = 6
#: Where commands write, and what is not the image's.
_WRITTEN: Final = (
    *(ROOT, HOME, "/tmp", "/var/tmp", "/run", "/var/run"),  # noqa: S108
    *("/proc", "/sys", "/dev"),
)
_OPTIONS: Final = "rw,exec,nosuid,nodev"


@dataclass(frozen=True, slots=True)
class Image:
    """What the engine says of an image, checked.

    Attributes:
        id: Its digest.
        env: Its variables.
        user: Whom it names.
        machine: The kind of machine that it is for, as the engine names it.
    """

    id: str
    env: Mapping[str, str]
    user: str
    machine: str

    @classmethod
    def of(cls, answer: Answer) -> Image:
        """Read the engine's description."""
        config: object = answer.get("Config")
        fields = cast("Answer", config) if isinstance(config, dict) else {}
        given: object = fields.get("Env")
        lines = cast("list[object]", given) if isinstance(given, list) else []
        pairs = (str(line).partition("=") for line in lines)
        return cls(
            id=str(answer.get("Id", "")),
            env={name: value for name, sign, value in pairs if name and sign},
            user=str(fields.get("User") or ""),
            machine=str(answer.get("Architecture", "")),
        )


class Recipe:
    """One container: what it is made of, and what its guest is told.

    Attributes:
        spec: What was asked.
        options: What was asked of a container.
        image: The image.
        place: Where the engine is.
        user: Who commands are.
        tmp: Bytes of each private place.
        shown: Host files to show, by the path inside.
        brought: Host directory with a Python for the guest.
    """

    def __init__(
        self, spec: SandboxSpec, options: DockerOptions, image: Image, place: Place
    ) -> None:
        _refuse(spec, place)
        self.spec = spec
        self.options = options
        self.image = image
        self.place = place
        self._sources = Sources(spec.workdir, place)
        self.check_sources()
        self.user = _who(spec, options, image)
        self.tmp = _fitted(spec)
        self.shown: dict[str, str] = {}
        self.brought: str | None = None

    # The engine's part.

    def config(self, command: list[str], key: str, kind: str) -> dict[str, object]:
        """Return the engine's description of the container to make."""
        spec = self.spec
        return {
            "Image": self.image.id,
            "Entrypoint": [],
            "Cmd": command,
            # The image's variables are for commands; the guest tells them.
            "Env": [
                *(f"{name}=" for name in self.image.env if name != "PATH"),
                f"PATH={self._trusted_path()}",
            ],
            # A guest protects itself from commands; a shell cannot.
            "User": self.user.nobody if kind == "none" else str(self.user),
            "WorkingDir": "/",
            "Hostname": "isobox",
            "OpenStdin": True,
            "StdinOnce": True,
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": False,
            # The first process takes no signal from inside; commands have its uid.
            "StopSignal": "SIGKILL",
            "Healthcheck": {"Test": ["NONE"]},
            "NetworkDisabled": False,
            "Labels": {
                **{f"{labels.OF_USER}{name}": v for name, v in spec.labels.items()},
                labels.WORKSPACE: spec.id,
                labels.PARTS: json.dumps(self.digests()),
                labels.KEY: key,
                labels.KIND: kind,
                labels.ANONYMOUS: "0" if self.options.named else "1",
            },
            "HostConfig": {**self.host(), **self.limits()},
        }

    def hand(self) -> dict[str, object]:
        """Return the description of a container that only holds the volume."""
        # What commands may not write, it has to make theirs all the same.
        volume = {**self._workspace(), "ReadOnly": False}
        return {
            "Image": self.image.id,
            "Cmd": ["-"],
            "NetworkDisabled": True,
            "Labels": {labels.ANONYMOUS: "1", labels.HAND: self.spec.id},
            "HostConfig": {"NetworkMode": "none", "Mounts": [volume]},
        }

    def turn(self) -> dict[str, object]:
        """Return the description of a container that only has a name."""
        return {
            "Image": self.image.id,
            "Cmd": ["-"],
            "NetworkDisabled": True,
            "Labels": {labels.ANONYMOUS: "1", labels.TURN: self.spec.id},
            "HostConfig": {"NetworkMode": "none"},
        }

    def host(self) -> dict[str, object]:
        """Return what holds the container, its limits aside."""
        options = self.options
        held: dict[str, object] = {
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true"],
            "Privileged": False,
            "NetworkMode": "none",
            "IpcMode": "private",
            "PidMode": "",
            "UTSMode": "",
            "CgroupnsMode": "private",
            "ReadonlyRootfs": options.read_only_root,
            "Tmpfs": self._private_places(),
            "ShmSize": self._shm,
            "Mounts": self._mounts(),
            "Sysctls": {"net.ipv4.ip_unprivileged_port_start": "0"},
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none", "Config": {}},
            # The guest reaps, and being the first process it cannot be killed.
            "Init": False,
            "AutoRemove": False,
            "OomScoreAdj": 0,
        }
        if self.spec.capture is not None:
            held["Dns"] = ["127.0.0.1"]
        if options.runtime is not None:
            held["Runtime"] = options.runtime
        return held

    def limits(self) -> dict[str, int]:
        """Return the limits that a container may be given while it runs."""
        asked = self.spec.limits
        wanted: dict[str, int] = {}
        if asked.processes is not None:
            wanted["PidsLimit"] = asked.processes + _OURS
        if asked.memory is not None:
            wanted["Memory"] = wanted["MemorySwap"] = asked.memory
        if asked.cpus is not None:
            wanted["NanoCpus"] = int(asked.cpus * 1e9)
        return wanted

    def check_sources(self) -> None:
        """See that what is shown of the host may be, and is what it was.

        Raises:
            InvalidArgumentError: It leads to the engine, or through a link.
            PathError: The workspace's directory is none.
            ConflictError: It is another than it was.
        """
        self._sources.check(self._binds())

    def check_shown(self, container: str, pid: int) -> None:
        """See that a container that was started shows just that; see `Sources`.

        Raises:
            ConflictError: It shows another.
        """
        self._sources.check_shown(list(self._binds()), container, pid)

    @property
    def _shm(self) -> int:
        return min(self.tmp, 64 * MiB)

    def _private_places(self) -> dict[str, str]:
        size = _bounded(self.tmp)
        own = f"uid={self.user.uid},gid={self.user.gid},mode=0700"
        places = {
            "/tmp": f"{_OPTIONS},{size},mode=1777",  # noqa: S108 - the container's
            HOME: f"{_OPTIONS},{size},{own}",
        }
        # The engine's own has no bound on how many files are in it.
        shm = f"rw,noexec,nosuid,nodev,{_bounded(self._shm)},mode=1777"
        places["/dev/shm"] = shm  # noqa: S108
        if self.options.read_only_root:
            places["/var/tmp"] = places["/tmp"]  # noqa: S108
            places["/run"] = f"{_OPTIONS},{_bounded(16 * MiB)},mode=0755"
        return places

    def _mounts(self) -> list[dict[str, object]]:
        return [
            self._workspace(),
            *self._remembered(),
            *(_bind(each.source, each.target) for each in self.spec.mounts),
            *(_bind(source, inside) for inside, source in self.shown.items()),
            *self._python(),
        ]

    def _binds(self) -> Iterator[Bind]:
        """Return what is shown that is not isobox's alone to write.

        The workspace's directory is looked at before anything is made in it.
        """
        if self.spec.workdir is not None:
            yield self.spec.workdir, ROOT
        for each in self._remembered():
            yield str(each["Source"]), str(each["Target"])
        for mount in self.spec.mounts:
            yield mount.source, mount.target

    def _python(self) -> list[dict[str, object]]:
        if self.brought is None:
            return []
        return [_bind(self.brought, PLACE)]

    def _remembered(self) -> list[dict[str, object]]:
        """Keep what isobox remembers of directories from being written."""
        workdir = self.spec.workdir
        path = None if workdir is None else made_beneath(workdir)
        if workdir is None or path is None:
            return []
        steps = path.split("/")
        above = ["/".join(steps[:count]) for count in range(1, len(steps))]
        held = _bind(os.path.join(workdir, path), f"{ROOT}/{path}")
        # A directory above could be renamed, were it no mount.
        return [
            *(
                _bind(os.path.join(workdir, each), f"{ROOT}/{each}", read_only=False)
                for each in ([] if self.spec.read_only else above)
            ),
            held,
        ]

    def _workspace(self) -> dict[str, object]:
        spec = self.spec
        if spec.workdir is not None:
            return _bind(spec.workdir, ROOT, read_only=spec.read_only)
        return {
            "Type": "volume",
            "Source": labels.volume(spec.id),
            "Target": ROOT,
            "ReadOnly": spec.read_only,
            "VolumeOptions": {
                "NoCopy": True,
                "Labels": {
                    labels.WORKSPACE: spec.id,
                    labels.ANONYMOUS: "0" if self.options.named else "1",
                },
            },
        }

    def digests(self) -> dict[str, str]:
        """Return digests of the parts that a running container is measured by."""
        host = self.host()
        for told_otherwise in ("Mounts", "Tmpfs", "ShmSize"):
            host.pop(told_otherwise)
        runtime = host.pop("Runtime", None)
        return labels.digests(
            {
                "image": self.image.id,
                "runtime": runtime,
                "user": str(self.user),
                "mounts": [self._workspace(), *map(_pair, self.spec.mounts)],
                "files": sorted(self.shown),
                "tmp": self.tmp,
                "read_only_root": host.pop("ReadonlyRootfs"),
                "network": host.pop("Dns", None),
                "hardening": {**host, "path": self._trusted_path()},
                "rlimits": self.rlimits(),
            }
        )

    def _trusted_path(self) -> str:
        """Return where programs are that isobox starts, some as another user.

        SAFETY: commands can put nothing there, unlike along a PATH of theirs.
        """
        mounts = tuple(each.target for each in self.spec.mounts)
        written = (*_WRITTEN, *mounts)
        usual = _PATH.split(":")
        given = self.image.env.get("PATH", _PATH).split(":")
        if not self.options.read_only_root:
            # The image may give directories of its own to the commands' user.
            given = [each for each in given if each in usual]
        safe = [each for each in given if _is_apart(each, written)]
        return ":".join(safe) or _PATH

    # The guest's part.

    def guest(self) -> dict[str, object]:
        """Return what the guest is told at its start, its key aside."""
        return {
            "root": ROOT.encode(),
            "confine": None,
            "filter": sparing.everywhere(),
            "sealed": [ROOT.encode()] if self.spec.read_only else [],
            "env": self.environment(),
            "pid_max": None,
            "rlimits": self.rlimits(),
            "linger": float(self.options.stays),
            "workload": self.user.uid,
        }

    def environment(self) -> dict[str, bytes]:
        """Return the variables of commands: the image's, ours, the caller's."""
        env = {
            "PATH": _PATH,
            "LANG": "C.UTF-8",
            **self.image.env,
            "HOME": HOME,
            "USER": "agent",
            "TERM": "dumb",
            "TMPDIR": "/tmp",  # noqa: S108 - the container's
            **self.spec.env,
        }
        return {name: os.fsencode(value) for name, value in env.items()}

    def rlimits(self) -> dict[str, int]:
        """Return the limits of each command, by setrlimit's names."""
        # The number of processes is the group's: by the uid it would count those
        # of other containers.
        limits = self.spec.limits
        wanted = {"nofile": limits.open_files, "fsize": limits.file_size, "core": 0}
        return {name: value for name, value in wanted.items() if value is not None}


def _who(spec: SandboxSpec, options: DockerOptions, image: Image) -> User:
    if options.user is not None:
        return user(options.user)
    if spec.workdir is not None:
        return _owner(spec.workdir)
    try:
        named = user(image.user)
    except InvalidArgumentError:
        return _DEFAULT_USER
    return named if named.uid else _DEFAULT_USER


def _owner(workdir: str) -> User:
    fd = _workdir.opened(workdir)
    try:
        found = User(*_workdir.owner(fd))
    finally:
        os.close(fd)
    if not found.uid:
        raise InvalidArgumentError(
            f"the workspace's directory {workdir!r} belongs to root, and so would "
            "commands; change its owner, or name a user, such as 1000: user=, or "
            "--user of isobox run",
            path=workdir,
        )
    return found


def _fitted(spec: SandboxSpec) -> int:
    """Return the bytes of a private place, which must not fill the memory alone."""
    limits = spec.limits
    if limits.memory is None:
        return limits.tmp
    return min(limits.tmp, max(limits.memory // _SHARE, MiB))


def _bounded(size: int) -> str:
    return f"size={size},nr_inodes={most_files(size)}"


def _bind(source: str, target: str, *, read_only: bool = True) -> dict[str, object]:
    return {
        "Type": "bind",
        "Source": source,
        "Target": target,
        "ReadOnly": read_only,
        # What the host mounts below it later is not for the container.
        "BindOptions": {"Propagation": "rprivate"},
    }


def _is_apart(path: str, places: Iterable[str]) -> bool:
    """Whether a path that is written plainly leads to none of some places."""
    plain = path.startswith("/") and not path.startswith("//")
    if not plain or os.path.normpath(path) != (path.rstrip("/") or "/"):
        return False
    return path != "/" and not any(within(path, each) for each in places)


def _pair(mount: Mount) -> list[str]:
    return [mount.source, mount.target]


def _refuse(spec: SandboxSpec, place: Place) -> None:
    """Refuse what a container cannot hold, and what would open it."""
    limits = spec.limits
    asked = {
        'mode="copy"': spec.mode != "live",
        "strict": spec.strict,
        "debug": spec.debug,
        "unprotected": bool(spec.unprotected),
    }
    if wanted := [name for name, given in asked.items() if given]:
        raise UnsupportedError(
            f"the docker backend has no {', '.join(wanted)}", backend="docker"
        )
    if limits.disk is not None:
        raise UnsupportedError(
            "the docker backend cannot hold limits.disk: engines bound a container's "
            "own layer at most, and no directory or volume; leave it out",
            backend="docker",
        )
    sources = [each.source for each in spec.mounts]
    if spec.workdir is not None:
        sources.append(spec.workdir)
    if sources and not place.is_local:
        raise UnsupportedError(
            f"the engine at {place.url} does not see the directories of this machine; "
            "leave workdir and mounts out, and upload",
            backend="docker",
        )
    for each in spec.mounts:
        refuse_inside(each.source, spec.workdir)
        _refuse_target(each.target)


def _refuse_target(target: str) -> None:
    closed = (ROOT, "/proc", "/sys", "/dev", HOME, "/run", PLACE)
    if target == "/" or any(within(target, each) for each in closed):
        raise InvalidArgumentError(
            f"mounts: {target!r} cannot be covered; choose another path inside"
        )
