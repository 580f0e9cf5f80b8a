"""What a sandbox sees: an allowlist that begins with nothing."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from isobox._linux import system
from isobox._linux.launching import Scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from isobox.abc import Limits, Mount

MiB = 1024 * 1024
_PAGE: Final = 4096

#: What a /proc of the sandbox's own still tells about the host: its hardware,
#: disks and boot, when its devices interrupt, other users' keys and processes.
#: What commands need stays: cpuinfo, meminfo, stat, loadavg, mounts and such.
_TELLING = (
    "acpi",
    "asound",
    "bus",
    "cmdline",
    "diskstats",
    "driver",
    "fs",
    "interrupts",
    "irq",
    "kallsyms",
    "key-users",
    "keys",
    "latency_stats",
    "mdstat",
    "modules",
    "partitions",
    "sched_debug",
    "scsi",
    "swaps",
    "timer_list",
    "timer_stats",
)


@dataclass
class View:
    """Arguments of bwrap, and the descriptors that they name.

    The descriptors stay open until `close`; bwrap inherits them.

    Attributes:
        arguments: What bwrap is told.
        descriptors: What it inherits.
        trees: Those of `descriptors` that root's launcher makes reachable.
        scratches: Private places that the launcher makes.
    """

    arguments: list[str] = field(default_factory=list[str])
    descriptors: list[int] = field(default_factory=list[int])
    trees: list[int] = field(default_factory=list[int])
    scratches: list[Scratch] = field(default_factory=list[Scratch])

    def add(self, *arguments: str) -> None:
        """Append arguments."""
        self.arguments.extend(arguments)

    def data(self, content: bytes) -> str:
        """Return the number of a descriptor that reads as `content`."""
        fd = os.memfd_create("isobox", os.MFD_CLOEXEC)
        self.descriptors.append(fd)
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        return str(fd)

    def opened(self, path: str) -> int:
        """Return a descriptor of a trusted host path."""
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        self.descriptors.append(fd)
        return fd

    def tree(self, path: str) -> str:
        """Return the number of a descriptor of what is to be mounted.

        bwrap looks it up by name again, so root's launcher puts it where the
        sandbox's user can reach it.
        """
        self.trees.append(self.opened(path))
        return str(self.trees[-1])

    def scratch(self, path: str, size: int, mode: str) -> None:
        """Have the launcher make a private place, and show it at `path`.

        bwrap bounds the bytes of one, and not how many files it holds.
        """
        fd = self.opened(os.devnull)
        files = system.most_files(size)
        self.scratches.append(Scratch(fd, size, files, mode))
        self.add("--bind-fd", str(fd), path)

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self.descriptors:
            os.close(fd)
        self.descriptors.clear()


def isolate(view: View, *, proc: bool = True) -> None:
    """Take namespaces of every kind, and no privilege.

    Where `/proc` is masked its sysctls are read-only, so that bwrap cannot switch
    further user namespaces off.
    """
    if proc:
        view.add("--disable-userns")
    view.add(
        "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
        "--unshare-cgroup-try", "--unshare-net",
        "--uid", str(system.UID), "--gid", str(system.UID), "--hostname", "sandbox",
        "--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
        "--clearenv",
    )  # fmt: skip


def programs(view: View, given: Mapping[str, bytes]) -> None:
    """Show the system's programs, and an /etc of few files, some of them given."""
    view.add("--ro-bind", "/usr", "/usr")
    for name in system.SYSTEM:
        path = f"/{name}"
        if os.path.islink(path):
            view.add("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            view.add("--ro-bind", path, path)
    view.add("--dir", "/etc")
    for path in system.etc():
        view.add("--ro-bind", path, path)
    for path, text in system.FILES.items():
        content = given.get(path, text.encode())
        view.add("--ro-bind-data", view.data(content), path)


def scratch(
    view: View, limits: Limits, *, proc: bool = True, staged: bool = False
) -> None:
    """Give /proc, /dev and private writable places of bounded size.

    Where the launcher has a stage to make them on, they are of so many files too.
    """
    if proc:
        view.add("--proc", "/proc", "--dev", "/dev")
        _mask(view, "/proc")
    else:
        view.add("--dir", "/proc", "--dev", "/dev")
    for path, size, mode in (
        ("/dev/shm", 64 * MiB, "1777"),  # noqa: S108 - in the sandbox
        ("/tmp", limits.tmp, "1777"),  # noqa: S108 - in the sandbox
        ("/var/tmp", limits.tmp, "1777"),  # noqa: S108 - in the sandbox
        (system.HOME, limits.tmp, "0700"),
    ):
        if staged:
            view.scratch(path, size, mode)
        else:
            _tmpfs(view, path, size, mode)
    _tmpfs(view, "/run", 4 * MiB, "0755")


def _mask(view: View, proc: str) -> None:
    # Each mask costs 0.1 ms at start: none for what shows nothing anyway.
    for name in _TELLING:
        shown, path = f"/proc/{name}", os.path.join(proc, name)
        if not _readable_by_all(path):
            continue
        if not os.path.isdir(path):
            view.add("--ro-bind", "/dev/null", shown)
        elif os.listdir(path):
            _tmpfs(view, shown, _PAGE, "0555")
            view.add("--remount-ro", shown)


def _readable_by_all(path: str) -> bool:
    # A sandbox has no capability and is not the host's root, to whom these
    # belong: what is not for all is not for it.
    try:
        return bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


def _tmpfs(view: View, path: str, size: int, mode: str) -> None:
    view.add("--size", str(size), "--perms", mode, "--tmpfs", path)


def seal(view: View) -> None:
    """Make everything read-only that is not meant to be written."""
    view.add("--remount-ro", "/run", "--remount-ro", "/dev", "--remount-ro", "/")


def mounts(view: View, wanted: Iterable[Mount], workdir: str | None) -> None:
    """Show host directories and files read-only.

    Raises:
        InvalidArgumentError: One cannot be shown.
    """
    for source, target in system.mounts(wanted, workdir):
        view.add("--ro-bind-fd", view.tree(source), target)


def interpreter(view: View) -> str:
    """Return a Python for the guest, as the sandbox sees it.

    It is bound by descriptor, so that no directory above it must be open to the
    sandbox's user.

    Raises:
        BackendUnavailableError: There is none that will do.
    """
    path, prefix = system.interpreter("bubblewrap")
    if prefix is not None:
        view.add("--ro-bind-fd", view.tree(prefix), prefix)
    return path
