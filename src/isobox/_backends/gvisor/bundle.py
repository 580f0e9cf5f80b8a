"""What runsc is given: a root directory, and an OCI description of what runs on it."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from isobox._core.paths import within
from isobox._linux import system
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MiB: Final = 1024 * 1024

#: Private and writable: where, as large as what, and for whom.
_SCRATCH: Final = (
    ("/tmp", "tmp", "1777"),  # noqa: S108 - in the sandbox
    ("/var/tmp", "tmp", "1777"),  # noqa: S108 - in the sandbox
    (system.HOME, "tmp", "0700"),
    ("/dev/shm", "shm", "1777"),  # noqa: S108 - in the sandbox
)
_SHM: Final = 64 * MiB
#: Of the first program's capabilities, which gives them up.
_SETS: Final = ("bounding", "effective", "permitted")
_BY_GVISOR: Final = ("/proc", "/dev", "/sys")
#: What a root directory of the user's cannot bring: it is made for each sandbox.
_OURS: Final = frozenset(
    ("dev", "etc", "home", "proc", "run", "sys", "tmp", "var", "workspace")
)
_LARGEST_FILE: Final = MiB


def made(path: str) -> str:
    """Make a directory that everybody may enter, and those above it."""
    if not os.path.isdir(path):
        made(os.path.dirname(path))
        os.mkdir(path)
        # Whatever the umask is: gVisor's processes are somebody else.
        os.chmod(path, 0o755)  # noqa: S103 - it holds what everybody may read
    return path


def written(path: str, data: bytes) -> str:
    """Make a file that everybody may read."""
    with open(path, "wb") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(data)
    return path


@dataclass
class Tree:
    """A root directory in the making: what is in it, and what is mounted on it.

    Attributes:
        path: Where it is on the host.
        stage: Where the launcher shows what it is given by descriptor.
        mounts: Entries of the OCI description, in order.
        descriptors: What the launcher is given; closed by whoever made the tree.
        seen: Where which part of the host is seen, or would be but for links.
        links: Symlinks that were made.
        steady: What of `seen` nobody changes while the sandbox lives.
    """

    path: str
    stage: str
    mounts: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    descriptors: list[int] = field(default_factory=list[int])
    seen: dict[str, str] = field(default_factory=dict[str, str])
    links: set[str] = field(default_factory=set[str])
    steady: frozenset[str] = frozenset()

    def directory(self, path: str) -> None:
        """Make a directory, and those above it.

        Raises:
            InvalidArgumentError: A link is on the way.
        """
        # SAFETY: a link of a root directory may lead anywhere on the host.
        for link in self.links:
            if within(path, link):
                raise InvalidArgumentError(
                    f"{path!r} is reached by the link {link!r}; name where it leads",
                    path=path,
                )
        made(self.path + path)

    def file(self, path: str, data: bytes) -> None:
        """Make a file, in place of one, or of a link, that may be there.

        Raises:
            InvalidArgumentError: A link is on the way.
        """
        self.directory(os.path.dirname(path))
        if path in self.links:
            os.unlink(self.path + path)
            self.links.remove(path)
        written(self.path + path, data)

    def link(self, path: str, target: str) -> None:
        """Make a symlink."""
        self.directory(os.path.dirname(path))
        os.symlink(target, self.path + path)
        self.links.add(path)

    def bind(self, source: str, path: str) -> None:
        """Show what everybody finds at `source` on the host."""
        self.seen[path] = source
        self._stand(os.path.isdir(source), path)
        self.mount(source, path)

    def bind_opened(self, source: str, path: str) -> None:
        """Show what is at `source` now, which the sandbox's user may not find."""
        fd = os.open(source, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        self.descriptors.append(fd)
        self.seen[path] = source
        self._stand(stat.S_ISDIR(os.fstat(fd).st_mode), path)
        self.mount(self.staged(fd), path)

    def staged(self, fd: int) -> str:
        """Return where the launcher shows a descriptor."""
        return f"{self.stage}/{fd}"

    def _stand(self, directory: bool, path: str) -> None:
        if directory:
            self.directory(path)
        elif not os.path.lexists(self.path + path):
            self.file(path, b"")

    def mount(self, source: str, path: str, *, writable: bool = False) -> None:
        """Show what will be at `source`, on what is at `path` by then."""
        options = ["rbind", "rw" if writable else "ro", "nosuid", "nodev"]
        self._add("bind", source, path, options)

    def scratch(self, path: str, size: int, mode: str) -> None:
        """Show an empty private place of bounded size."""
        self.directory(path)
        # Where this gVisor knows no bound on files, it leaves that out.
        bounds = [f"size={size}", f"nr_inodes={system.most_files(size)}"]
        options = ["nosuid", "nodev", *bounds, f"mode={mode}"]
        self._add("tmpfs", "tmpfs", path, options)

    def _add(self, kind: str, source: str, path: str, options: list[str]) -> None:
        self.mounts.append(
            {
                "destination": path,
                "type": kind,
                "source": source,
                "options": options,
            }
        )


def programs(tree: Tree, rootfs: str | None) -> None:
    """Show the host's system, or that of a root directory of the user's.

    Raises:
        InvalidArgumentError: It is no root directory of a system.
    """
    if rootfs is None:
        _of_host(tree)
    else:
        _of_rootfs(tree, rootfs)
    tree.steady = frozenset(tree.seen)


def _of_host(tree: Tree) -> None:
    """Show the programs of this machine, and an /etc of few files."""
    tree.bind("/usr", "/usr")
    for name in system.SYSTEM:
        path = f"/{name}"
        if os.path.islink(path):
            tree.link(path, os.readlink(path))
            tree.seen[path] = path
        elif os.path.isdir(path):
            tree.bind(path, path)
    for path in system.etc():
        _etc(tree, path, path)


def _of_rootfs(tree: Tree, root: str) -> None:
    """Show a root directory, except what each sandbox has of its own."""
    if not os.path.isdir(os.path.join(root, "usr")):
        raise InvalidArgumentError(
            f"rootfs: {root!r} has no usr; name the root directory of a system, such "
            "as debootstrap makes",
            path=root,
        )
    for name in sorted(os.listdir(root)):
        path = os.path.join(root, name)
        if name in _OURS:
            continue
        if os.path.islink(path):
            tree.link(f"/{name}", os.readlink(path))
            tree.seen[f"/{name}"] = path
        elif os.path.isdir(path):
            tree.bind_opened(path, f"/{name}")
    for above in ("etc", "var"):
        _copied(tree, os.path.join(root, above), above)


def _copied(tree: Tree, folder: str, above: str) -> None:
    if not os.path.isdir(folder) or os.path.islink(folder):
        return
    for name in sorted(os.listdir(folder)):
        inside = f"/{above}/{name}"
        if inside not in ("/var/tmp", "/var/run", "/var/lock"):  # noqa: S108
            _etc(tree, os.path.join(folder, name), inside)


def _etc(tree: Tree, path: str, inside: str) -> None:
    """Show a file or a directory of /etc; small files cost less as copies."""
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        tree.link(inside, os.readlink(path))
    elif stat.S_ISDIR(found.st_mode):
        tree.bind_opened(path, inside)
    elif stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IROTH:
        _file(tree, path, inside, found.st_size)


def _file(tree: Tree, path: str, inside: str, size: int) -> None:
    if size > _LARGEST_FILE:
        tree.bind_opened(path, inside)
        return
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        tree.file(inside, file.read(_LARGEST_FILE))


def places(tree: Tree, tmp: int) -> None:
    """Give the private places, and stands for what gVisor mounts itself."""
    for path in _BY_GVISOR:
        tree.directory(path)
    tree.directory(system.ROOT)
    for path, kind, mode in _SCRATCH:
        tree.scratch(path, tmp if kind == "tmp" else _SHM, mode)
    if not os.path.lexists(f"{tree.path}/var/run"):
        tree.link("/var/run", "/run")


def description(
    tree: Tree, argv: Sequence[str], env: Mapping[str, str], hostname: str
) -> bytes:
    """Return the OCI description of a sandbox."""
    return json.dumps(
        {
            "ociVersion": "1.0.2",
            "hostname": hostname,
            "root": {"path": "root", "readonly": True},
            "process": {
                # On the host this is the sandbox's user; see `begin.py`.
                "user": {"uid": 0, "gid": 0},
                "args": list(argv),
                "env": [f"{name}={value}" for name, value in env.items()],
                "cwd": "/",
                "capabilities": {kind: ["CAP_CHOWN"] for kind in _SETS},
                "noNewPrivileges": True,
            },
            "mounts": [*_kernel(), *tree.mounts],
            "annotations": dict(_hints(tree)),
            "linux": {"namespaces": _namespaces()},
        }
    ).encode("utf-8", "surrogateescape")


def _hints(tree: Tree) -> Iterator[tuple[str, str]]:
    """Say of what nobody changes that it need not be looked at anew each time."""
    for number, mount in enumerate(tree.mounts):
        if mount["type"] == "bind" and mount["destination"] in tree.steady:
            name = f"dev.gvisor.spec.mount.seen{number}"
            yield f"{name}.source", str(mount["source"])
            yield f"{name}.type", "bind"
            yield f"{name}.share", "container"
            yield f"{name}.options", "ro"


def _kernel() -> Iterable[dict[str, object]]:
    yield {"destination": "/proc", "type": "proc", "source": "proc"}
    yield {
        "destination": "/dev",
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", "mode=755", "size=65536"],
    }
    yield {
        "destination": "/sys",
        "type": "sysfs",
        "source": "sysfs",
        "options": ["nosuid", "nodev", "noexec", "ro"],
    }

    yield {
        "destination": "/proc/sys",
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["ro", "nosuid", "nodev", "noexec", "size=4096", "mode=555"],
    }


def _namespaces() -> list[dict[str, str]]:
    kinds = ("pid", "network", "ipc", "uts", "mount")
    return [{"type": kind} for kind in kinds]
