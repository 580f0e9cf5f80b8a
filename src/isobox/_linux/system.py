"""What of the host's system a sandbox sees, and what is made up for it."""

from __future__ import annotations

import glob
import os
import sys
from typing import TYPE_CHECKING, Final

from isobox._core.paths import within
from isobox.errors import BackendUnavailableError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from isobox.abc import Mount

ROOT: Final = "/workspace"
HOME: Final = "/home/agent"
PROGRAM: Final = "/run/isobox/guest"
UID: Final = 1000

#: A mount at one of these, or above it, would hide what the sandbox needs.
TAKEN: Final = (ROOT, PROGRAM, "/usr", "/etc/passwd", "/proc", "/dev", "/tmp")  # noqa: S108

#: Beside /usr, where these are no links into it.
SYSTEM: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")

#: Read-only, where the host has them. None holds secrets; none is /etc itself.
ETC: Final = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/java*",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/python3*",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)

#: Made up for the sandbox; a file of the spec takes the place of one.
FILES: Final = {
    "/etc/passwd": f"root:x:0:0:root:/root:/usr/sbin/nologin\n"
    f"agent:x:{UID}:{UID}:agent:{HOME}:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "/etc/group": f"root:x:0:\nagent:x:{UID}:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/resolv.conf": "",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}

#: Programs are looked for there, and where the guest's interpreter is.
PATH: Final = (
    "/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin",
)  # fmt: skip

#: Takes the place of an empty one where names are answered inside.
RESOLVER: Final = {"/etc/resolv.conf": b"nameserver 127.0.0.1\n"}


def most_files(size: int) -> int:
    """Return how many files a private place of so many bytes may hold.

    Each takes memory of the kernel that no size counts, were it empty.
    """
    return max(1024, size // 4096)


def etc() -> list[str]:
    """Return what of the host's /etc is shown."""
    return [path for pattern in ETC for path in sorted(glob.glob(pattern))]


def environment(python: str) -> dict[str, str]:
    """Return the variables that every command sees."""
    return {
        "PATH": ":".join(dict.fromkeys([*PATH, os.path.dirname(python)])),
        "HOME": HOME,
        "USER": "agent",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
    }


def mounts(wanted: Iterable[Mount], workdir: str | None) -> Iterator[tuple[str, str]]:
    """Yield source and target of each mount, if all can be shown.

    Raises:
        InvalidArgumentError: One does not exist, is neither a directory nor a
            file, would hide what the sandbox needs, or is reached by a link in
            the workspace, which commands may have put there.
    """
    for mount in wanted:
        source = os.path.realpath(mount.source)
        _check_source(mount, source, workdir)
        _check_target(mount)
        yield source, mount.target


def _check_source(mount: Mount, source: str, workdir: str | None) -> None:
    named = os.path.abspath(mount.source)
    if source != named and workdir is not None and within(named, workdir):
        raise InvalidArgumentError(
            f"mounts: {mount.source!r} is reached by a link in the workspace, "
            f"which commands can turn; name where it leads: {source}",
            path=mount.source,
        )
    if source == "/":
        raise InvalidArgumentError(
            "mounts: the whole host is not to be seen; name what is needed",
            path=mount.source,
        )
    if not (os.path.isdir(source) or os.path.isfile(source)):
        # A read-only mount of a socket does not stop anybody to connect.
        raise InvalidArgumentError(
            f"mounts: {mount.source!r} is neither a directory nor a file",
            path=mount.source,
        )


def _check_target(mount: Mount) -> None:
    if within(mount.target, ROOT):
        raise InvalidArgumentError(
            f"mounts: {mount.target!r} is in the workspace, where it would need "
            "something to stand on; choose a target outside",
            path=mount.target,
        )
    if any(within(taken, mount.target) for taken in TAKEN):
        raise InvalidArgumentError(
            f"mounts: {mount.target!r} would hide what the sandbox needs",
            path=mount.target,
        )


def interpreter(backend: str) -> tuple[str, str | None]:
    """Return a Python for the guest, and what must be shown for it beside /usr.

    The system's if there is one; else the one that runs isobox, wherever it
    lives.

    Raises:
        BackendUnavailableError: There is none that will do.
    """
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if os.path.realpath(path).startswith("/usr/") and os.access(path, os.X_OK):
            return path, None
    prefix = os.path.realpath(sys.base_prefix)
    path = os.path.join(prefix, "bin", "python{}.{}".format(*sys.version_info))
    if not os.access(path, os.X_OK):
        raise BackendUnavailableError(
            f"no Python for the guest: neither /usr/bin/python3 nor {path}",
            fix="apt-get install python3-minimal",
            backend=backend,
        )
    return path, None if prefix.startswith("/usr/") else prefix
