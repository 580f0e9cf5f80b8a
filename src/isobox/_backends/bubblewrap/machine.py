"""What this machine allows, and what to do about what it does not."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from isobox._linux import landlock
from isobox._linux.syscalls import openat2
from isobox._linux.wsl import wsl_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from isobox.abc import MinIsolation

Cause = Literal[
    "system",
    "wsl1",
    "kernel",
    "user_namespaces",
    "sysctl",
    "apparmor",
    "seccomp",
    "proc_masked",
    "proc_hidden",
    "root_in_container",
    "id_maps",
    "user_ids",
]

CAP_SYS_ADMIN: Final = 21
_SECCOMP_FILTER: Final = 2
#: Mounted on directories that are always empty: the kernel looks past them.
_HARMLESS: Final = ("/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd")
_HIDING: Final = frozenset(
    f"hidepid={how}" for how in ("1", "2", "4", "noaccess", "invisible", "ptraceable")
)
_APPARMOR: Final = "kernel.apparmor_restrict_unprivileged_userns"
#: Settings that block user namespaces, and with which value; and the usual one.
_BLOCKING: Final = {
    _APPARMOR: "1",
    "kernel.unprivileged_userns_clone": "0",
    "user.max_user_namespaces": "0",
}
_USUAL: Final = {
    _APPARMOR: "0",
    "kernel.unprivileged_userns_clone": "1",
    "user.max_user_namespaces": "15000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was found, without a judgement.

    The defaults are those of a machine where everything works.

    Attributes:
        system: The operating system.
        release: The kernel's version, its first two numbers.
        version: The text of /proc/version.
        root: Whether root asks.
        capabilities: Those in effect, as bits.
        seccomp: 0 without a system call filter, 2 with one.
        apparmor: The AppArmor profile that confines us; empty if none.
        container: The kind of container that we are in; empty if none.
        sysctls: Settings of the kernel, where there are such.
        user_namespaces: Whether the kernel knows them.
        openat2: Whether the kernel has this call.
        landlock: The version of Landlock; 0 is none.
        masks: What is mounted over parts of /proc.
        proc_options: How /proc itself is mounted.
        user_ids: How many user ids there are here.
    """

    system: str = "Linux"
    release: tuple[int, int] = (6, 12)
    version: str = ""
    root: bool = False
    capabilities: int = 0
    seccomp: int = 0
    apparmor: str = ""
    container: str = ""
    sysctls: Mapping[str, str] = field(default_factory=dict[str, str])
    user_namespaces: bool = True
    openat2: bool = True
    landlock: int = 6
    masks: tuple[str, ...] = ()
    proc_options: frozenset[str] = frozenset()
    user_ids: int = 1 << 32


@dataclass(frozen=True, slots=True)
class Finding:
    """What is in the way of a sandbox.

    Attributes:
        cause: A word for it.
        message: What it is, in a sentence.
        fix: The command that helps.
        leaves: The best isolation that it leaves; None leaves nothing.
    """

    cause: Cause
    message: str
    fix: str
    leaves: MinIsolation | None


def recognise(facts: Facts) -> list[Finding]:
    """Return what may be in the way here, what weighs most first."""
    found = [*_of_the_system(facts), *_of_user_namespaces(facts), *_of_proc(facts)]
    if facts.root:
        found += _of_root(facts)
    return found


def _of_the_system(facts: Facts) -> Iterator[Finding]:
    if facts.system != "Linux":
        yield Finding(
            "system",
            f"bubblewrap runs on Linux, this is {facts.system}",
            "use a Linux machine or a container",
            None,
        )
    elif wsl_version(facts.version) == 1:
        yield Finding(
            "wsl1",
            "WSL 1 imitates Linux without namespaces",
            "wsl --set-version DISTRIBUTION 2",
            None,
        )
    elif not facts.openat2:
        yield Finding(
            "kernel",
            "the system call openat2 is missing or blocked; Linux 5.6 has it, this is "
            f"{_dotted(facts.release)}",
            _container_fix(facts) if facts.container else "run Linux 5.6 or newer",
            None,
        )


def _of_user_namespaces(facts: Facts) -> Iterator[Finding]:
    leaves = _without_namespaces(facts)
    if not facts.user_namespaces:
        yield Finding(
            "user_namespaces",
            "this kernel was built without user namespaces",
            "run a kernel with CONFIG_USER_NS=y",
            leaves,
        )
    off = [name for name in blocking(facts.sysctls) if name != _APPARMOR]
    if off:
        usual = " ".join(f"{name}={_USUAL[name]}" for name in off)
        yield Finding(
            "sysctl",
            f"user namespaces are switched off: {', '.join(off)}",
            f"sysctl -w {usual}",
            leaves,
        )
    if facts.seccomp == _SECCOMP_FILTER:
        yield _filtered(facts, leaves)
    if _confined(facts.apparmor):
        yield Finding(
            "apparmor",
            f"the AppArmor profile {facts.apparmor} of this container forbids mounts",
            _container_fix(facts),
            leaves,
        )
    if _APPARMOR in blocking(facts.sysctls):
        yield Finding(
            "apparmor",
            "AppArmor gives user namespaces no rights, except to programs with a "
            "profile that says so (Ubuntu 23.10 and newer)",
            f"sysctl -w {_APPARMOR}={_USUAL[_APPARMOR]}",
            leaves,
        )


def blocking(sysctls: Mapping[str, str]) -> list[str]:
    """Return the settings that keep user namespaces from programs."""
    return [name for name, value in _BLOCKING.items() if sysctls.get(name) == value]


def _filtered(facts: Facts, leaves: MinIsolation | None) -> Finding:
    if facts.container:
        return Finding(
            "seccomp",
            f"this {facts.container} container's seccomp profile blocks user "
            "namespaces",
            _container_fix(facts),
            leaves,
        )
    return Finding(
        "seccomp",
        "a seccomp filter that we inherit blocks user namespaces",
        "start isobox outside of the sandbox that it runs in, or, from systemd, "
        "without RestrictNamespaces= and SystemCallFilter=",
        leaves,
    )


def _of_proc(facts: Facts) -> Iterator[Finding]:
    if facts.masks:
        some = ", ".join(facts.masks[:3])
        yield Finding(
            "proc_masked",
            f"parts of /proc are masked here ({some}, ...), so the kernel lets nobody "
            "mount a fresh one",
            _container_fix(facts) if facts.container else f"umount {facts.masks[0]}",
            "no_proc",
        )
    if "subset=pid" in facts.proc_options:
        yield Finding(
            "proc_hidden",
            "/proc shows processes only (subset=pid), and bwrap needs more of it",
            "mount -t proc proc /proc",
            _without_namespaces(facts),
        )
    hiding = facts.proc_options & _HIDING
    if hiding:
        yield Finding(
            "proc_hidden",
            f"/proc hides other users' processes ({', '.join(hiding)}), and the kernel "
            "may refuse a fresh one",
            "mount -o remount,hidepid=0 /proc",
            "no_proc",
        )


def _of_root(facts: Facts) -> Iterator[Finding]:
    if not _mounts(facts.capabilities):
        yield Finding(
            "root_in_container",
            "root without CAP_SYS_ADMIN, as in a container, cannot show a directory "
            "of one user to another",
            "chown -R 1000:1000 DIRECTORY, or start isobox as an ordinary user",
            None,
        )
    if facts.release < (5, 12):
        yield Finding(
            "id_maps",
            f"id-mapped mounts need Linux 5.12, this is {_dotted(facts.release)}",
            "start isobox as an ordinary user",
            None,
        )
    if facts.user_ids < 2:
        yield Finding(
            "user_ids",
            "this user namespace has no user id besides root's for a sandbox",
            "start isobox outside of it, as an ordinary user",
            None,
        )


def _without_namespaces(facts: Facts) -> MinIsolation | None:
    return None if landlock_lacks(facts.landlock, root=facts.root) else "landlock"


def landlock_lacks(version: int, *, root: bool) -> str:
    """Return what Landlock cannot hold where it has to stand alone; empty if all."""
    if version == 0:
        return "it is not there (Linux 5.13 has it, where it is in `lsm=`)"
    if version < 3:
        return f"version {version} lets files be truncated; Linux 6.2 does not"
    if version < 6 and not root:
        return (
            f"version {version} does not hold signals to the user's own processes; "
            "Linux 6.12 does, and so does a start by root, with a user for the sandbox"
        )
    return ""


def _confined(profile: str) -> bool:
    return profile.startswith(("docker-", "containers-", "cri-", "crio-", "lxc-"))


def _container_fix(facts: Facts) -> str:
    if facts.container == "kubernetes":
        return (
            "in the pod's securityContext: seccompProfile: {type: Unconfined}, "
            "procMount: Unmasked"
        )
    masked = "unmask=ALL" if facts.container == "podman" else "systempaths=unconfined"
    options = {
        "seccomp=unconfined": facts.seccomp == _SECCOMP_FILTER,
        "apparmor=unconfined": _confined(facts.apparmor),
        masked: bool(facts.masks),
    }
    engine = "podman" if facts.container == "podman" else "docker"
    wanted = [f"--security-opt {name}" for name, needed in options.items() if needed]
    return " ".join([engine, "run", *wanted, "..."])


def _dotted(release: Iterable[int]) -> str:
    return ".".join(map(str, release))


# -- reading -------------------------------------------------------------------------


def facts() -> Facts:
    """Return what is found here; what cannot be read counts as absent."""
    status = dict(_pairs(_text("/proc/self/status")))
    masks, options = proc_mounts(_text("/proc/self/mountinfo"))
    return Facts(
        system=platform.system(),
        release=release(platform.release()),
        version=_text("/proc/version"),
        root=os.geteuid() == 0,
        capabilities=int(status.get("CapEff", "0"), 16),
        seccomp=int(status.get("Seccomp", "0")),
        apparmor=_text("/proc/self/attr/current").strip("\0\n").partition(" ")[0],
        container=_container(),
        sysctls=_settings(),
        user_namespaces=os.path.exists("/proc/self/ns/user"),
        openat2=_has_openat2(),
        landlock=landlock.abi(),
        masks=masks,
        proc_options=options,
        user_ids=sum(count for _, count in id_ranges(_text("/proc/self/uid_map"))),
    )


def may_mount() -> bool:
    """Return whether the kernel lets us mount."""
    status = dict(_pairs(_text("/proc/self/status")))
    return _mounts(int(status.get("CapEff", "0"), 16))


def _mounts(capabilities: int) -> bool:
    return bool(capabilities >> CAP_SYS_ADMIN & 1)


def release(text: str) -> tuple[int, int]:
    """Return the first two numbers of a kernel's release."""
    numbers = re.match(r"(\d+)\.(\d+)", text)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def proc_mounts(mountinfo: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return what lies over parts of /proc, and how /proc itself is mounted."""
    masks: list[str] = []
    options: frozenset[str] = frozenset()
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 6:
            continue
        if fields[4] == "/proc":
            options = frozenset(f"{fields[5]},{after.split()[-1]}".split(","))
        elif fields[4].startswith("/proc/") and fields[4] not in _HARMLESS:
            masks.append(fields[4])
    return tuple(masks), options


def id_ranges(id_map: str) -> list[tuple[int, int]]:
    """Return first id and count of each line of a `uid_map`."""
    lines = [line.split() for line in id_map.splitlines()]
    return [(int(line[0]), int(line[2])) for line in lines if len(line) == 3]


def _container() -> str:
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if os.path.exists("/run/.containerenv"):
        return "podman"
    if os.path.exists("/.dockerenv"):
        return "docker"
    return ""


def _settings() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _BLOCKING:
        text = _text("/proc/sys/" + name.replace(".", "/")).strip()
        if text:
            found[name] = text
    return found


def _has_openat2() -> bool:
    try:
        os.close(openat2(-1, "/", os.O_PATH))
    except OSError as error:
        return error.errno not in (errno.ENOSYS, errno.EPERM)
    return True


def _pairs(status: str) -> Iterator[tuple[str, str]]:
    for line in status.splitlines():
        name, _, value = line.partition(":")
        yield name, value.strip()


def _text(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
        return file.read()
    return ""
