"""A Seatbelt profile for one sandbox: text in, text out.

Of the rules that match, the last one decides. What no rule names is denied.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._backends.seatbelt import protect
from isobox._backends.seatbelt.sbpl import allow, both, deny, named
from isobox._core.paths import within
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: macOS's and its tools' own programs. None holds what belongs to a user.
SYSTEM: Final = (
    "/Applications/Xcode.app",
    "/Library/Apple",
    "/Library/Developer/CommandLineTools",
    "/Library/Frameworks",
    "/Library/Java",
    "/System/Cryptexes",
    "/System/Library",
    "/System/Volumes/Preboot/Cryptexes",
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/lib",
    "/usr/libexec",
    "/usr/sbin",
    "/usr/share",
    "/private/var/db/dyld",
    "/private/var/db/timezone",
    "/private/var/select",
)
#: Package managers; not their `etc` and `var`, where services keep secrets.
_PREFIXES = ("/opt/homebrew", "/opt/local", "/usr/local")
_OF_A_PREFIX = (
    "Cellar", "Frameworks", "bin", "include", "lib", "libexec", "opt", "sbin",
    "share",
)  # fmt: skip
PACKAGES: Final = tuple(f"{p}/{name}" for p in _PREFIXES for name in _OF_A_PREFIX)

_FILES = (
    "/",
    "/private/etc/bashrc",
    "/private/etc/group",
    "/private/etc/hosts",
    "/private/etc/localtime",
    "/private/etc/passwd",
    "/private/etc/profile",
    "/private/etc/protocols",
    "/private/etc/services",
    "/private/etc/shells",
    "/private/etc/ssl/cert.pem",
    "/private/etc/ssl/openssl.cnf",
    "/private/var/db/xcode_select_link",
)
#: Links that lead to /private.
_LINKS = ("/etc", "/tmp", "/var")  # noqa: S108 - looked at, not used

_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty")

#: Users and groups by name, notices of changed settings, the system's log. None
#: starts a program or hands out what belongs to a user: no LaunchServices, no
#: keychain, no pasteboard, no preferences, no Apple events, no file events.
_SERVICES = (
    "com.apple.logd",
    "com.apple.system.logger",
    "com.apple.system.notification_center",
    "com.apple.system.opendirectoryd.libinfo",
    "com.apple.system.opendirectoryd.membership",
)

#: What the machine is. Nothing about other processes (`kern.proc`,
#: `kern.procargs2`), the network (`net`) or the boot (`kern.bootargs`).
_SYSCTLS = (
    "hw.activecpu", "hw.availcpu", "hw.byteorder", "hw.cacheconfig",
    "hw.cachelinesize", "hw.cachelinesize_compat", "hw.cpufamily",
    "hw.cpufrequency", "hw.cpufrequency_compat", "hw.cpusubfamily",
    "hw.cpusubtype", "hw.cputype", "hw.cpu64bit_capable", "hw.l1dcachesize",
    "hw.l1dcachesize_compat", "hw.l1icachesize", "hw.l1icachesize_compat",
    "hw.l2cachesize", "hw.l2cachesize_compat", "hw.l3cachesize",
    "hw.l3cachesize_compat", "hw.logicalcpu", "hw.logicalcpu_max",
    "hw.machine", "hw.memsize", "hw.model", "hw.ncpu", "hw.nperflevels",
    "hw.packages", "hw.pagesize", "hw.pagesize_compat", "hw.physicalcpu",
    "hw.physicalcpu_max", "hw.tbfrequency", "hw.tbfrequency_compat",
    "hw.vectorunit", "kern.argmax", "kern.hostname", "kern.hv_vmm_present",
    "kern.maxfilesperproc", "kern.maxproc", "kern.ngroups",
    "kern.osproductversion", "kern.osproductversioncompat", "kern.osrelease",
    "kern.ostype", "kern.osvariant_status", "kern.osversion",
    "kern.secure_kernel", "kern.usrstack64", "kern.version",
    "security.mac.lockdown_mode_state", "sysctl.proc_cputype",
    "sysctl.proc_native", "sysctl.proc_translated", "vm.loadavg",
)  # fmt: skip
_SYSCTL_PREFIXES = ("hw.optional.", "hw.perflevel", "machdep.cpu.")

_READING: Final = "file-read* file-test-existence"
_RUNNING: Final = f"{_READING} file-map-executable process-exec*"
_LOOKING: Final = "file-read-metadata file-test-existence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """What one sandbox may do; every path is absolute and leads over no link.

    Attributes:
        root: The workspace's directory.
        scratch: Directories that it may write besides.
        readable: Directories that it may read and run programs of.
        files: Files that it may read.
        protect: Whether names that the host executes are kept.
        unprotected: Names of these that may be written all the same.
        held: Paths that may not be written, nor anything below them.
    """

    root: str
    scratch: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    protect: bool = True
    unprotected: frozenset[str] = frozenset()
    held: tuple[str, ...] = ()


def profile(grants: Grants) -> str:
    """Return the profile for `sandbox-exec -p`.

    Raises:
        InvalidArgumentError: A path is not absolute, cannot be written in a
            profile, or the workspace overlaps with what it must not change.
    """
    _check(grants)
    return "".join(
        (
            "(version 1)\n",
            "(deny default)\n",
            *_processes(),
            *_machine(),
            *_reading(grants),
            *_devices(),
            *_writing(grants),
            *_protecting(grants),
            *_denying(grants),
        )
    )


def _processes() -> Iterable[str]:
    yield allow("process-fork dynamic-code-generation")
    yield allow("signal process-info*", ["(target same-sandbox)"])
    yield allow("process-info-listpids")


def _machine() -> Iterable[str]:
    yield allow("mach-lookup", named("global-name", *_SERVICES))
    names = named("sysctl-name", *_SYSCTLS)
    prefixes = named("sysctl-name-prefix", *_SYSCTL_PREFIXES)
    yield allow("sysctl-read", [*names, *prefixes])
    shared = named("ipc-posix-name", "apple.shm.notification_center")
    yield allow("ipc-posix-shm-read-data", shared)
    # The names that Python's multiprocessing gives to its own.
    yield allow("ipc-posix-sem", named("ipc-posix-name-regex", "^/mp-"))
    yield allow("ipc-posix-shm*", named("ipc-posix-name-regex", "^/psm_"))
    # To make a pair of sockets; to bind or connect one is the network.
    yield allow("system-socket", ["(socket-domain AF_UNIX)"])


def _reading(grants: Grants) -> Iterable[str]:
    folders = (*SYSTEM, *PACKAGES, *grants.readable, grants.root, *grants.scratch)
    files = (*_FILES, *grants.files)
    above = sorted({up for path in (*folders, *files) for up in _above(path)})
    yield allow(_LOOKING, named("literal", *above, *_LINKS))
    yield allow(_READING, named("literal", *files))
    yield allow(_RUNNING, named("subpath", *folders))


def _devices() -> Iterable[str]:
    # The devices themselves, or what a program has open already.
    usual = [*named("literal", *_DEVICES), *named("subpath", "/dev/fd")]
    yield allow(f"{_READING} file-write-data file-ioctl", usual)
    yield allow("pseudo-tty")
    using = f"{_READING} file-write* file-ioctl"
    yield allow(using, named("literal", "/dev/ptmx"))
    # The extension tells a terminal made in here from one of the user's.
    ours = named("extension", "com.apple.sandbox.pty")
    yield allow(using, [both(*named("regex", "^/dev/ttys[0-9]+$"), *ours)])


def _writing(grants: Grants) -> Iterable[str]:
    yield allow("file-write*", named("subpath", grants.root, *grants.scratch))


def _protecting(grants: Grants) -> Iterable[str]:
    if not grants.protect:
        return
    root, unprotected = grants.root, grants.unprotected
    yield deny("file-write*", _below(root, protect.always(root, unprotected)))
    yield allow("file-write*", _below(root, protect.generated(root)))
    yield deny("file-write*", _below(root, protect.after_all(root, unprotected)))


def _below(root: str, patterns: Iterable[str]) -> list[str]:
    inside = named("subpath", root)
    return [both(*inside, *named("regex", pattern)) for pattern in patterns]


def _denying(grants: Grants) -> Iterable[str]:
    shown = [p for p in _shown(grants) if within(p, grants.root)]
    yield deny("file-write*", named("subpath", *grants.held, *shown))
    # Whoever moves a directory above something moves that along.
    kept = (grants.root, *grants.scratch, *grants.held, *shown)
    above = sorted({*kept, *(up for path in kept for up in _above(path))})
    yield deny("file-write-unlink", named("literal", *above))
    # A link would lend its place's rights to a file of another place.
    yield deny("file-link file-write-setugid network*")


def _shown(grants: Grants) -> tuple[str, ...]:
    return (*grants.readable, *grants.files)


def _above(path: str) -> Iterable[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path


def _check(grants: Grants) -> None:
    for path in _paths(grants):
        if not path.startswith("/") or posixpath.normpath(path) != path:
            raise InvalidArgumentError(f"{path!r} is not absolute, or not normal")
    # SAFETY: whatever the workspace overlaps with could be written.
    for path in (*SYSTEM, *PACKAGES, *grants.scratch, "/dev", "/private/etc"):
        if within(path, grants.root) or within(grants.root, path):
            raise InvalidArgumentError(
                f"the workspace {grants.root!r} overlaps with {path}; choose a "
                "directory of your own",
                path=grants.root,
            )


def _paths(grants: Grants) -> Iterable[str]:
    return (grants.root, *grants.scratch, *_shown(grants), *grants.held)
