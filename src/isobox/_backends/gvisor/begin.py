"""The first program of a sandbox: makes an ordinary user of itself, then the guest.

Stands alone: run inside gVisor as `python3 -I -S begin.py GUEST FILTER...`, where
GUEST is compiled, and GUEST.py its source for another interpreter. There it is
user 0, since on the host this number alone is mapped to the sandbox's user, with
the one capability that it takes to give /dev away. A user namespace of gVisor's
own shows it as an ordinary one, as programs expect; a system call filter then keeps
it and all that it starts from what no workload needs. Files that it makes belong to
the sandbox's user as before.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import sys
from _frozen_importlib_external import MAGIC_NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

UID = 1000
NOBODY = 65534
CLONE_NEWUSER = 0x10000000
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION = 0x20080522
#: A compiled program starts with as many bytes that are none of its code.
HEADER = 16

libc = ctypes.CDLL(None, use_errno=True)


class Program(ctypes.Structure):
    """The kernel's `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


class Header(ctypes.Structure):
    """The kernel's `struct __user_cap_header_struct`."""

    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def main() -> None:
    """Become the guest; returns when the host has hung up."""
    code, filters = program(sys.argv[1]), [read(path) for path in sys.argv[2:]]
    give_devices_away()
    become_ordinary()
    drop_capabilities()
    for rules in filters:
        restrict(rules)
    exec(code, {"__name__": "__main__"})  # noqa: S102 - it is the guest


def program(path: str) -> CodeType:
    compiled = read(path)
    if compiled.startswith(MAGIC_NUMBER):
        code: CodeType = marshal.loads(compiled[HEADER:])  # noqa: S302 - the host made it
        return code
    return compile(read(path + ".py"), "guest", "exec", dont_inherit=True)


def read(path: str) -> bytes:
    with open(path, "rb", 0) as file:
        return file.read()


def give_devices_away() -> None:
    """Leave /dev to somebody else, without what few programs need."""
    for name in ("/dev/fuse", "/dev/net/tun"):
        if os.path.lexists(name):
            os.unlink(name)
    os.chown("/dev", NOBODY, NOBODY)


def become_ordinary() -> None:
    check(libc.unshare(CLONE_NEWUSER))
    for name in ("uid_map", "gid_map"):
        with open("/proc/self/" + name, "wb", 0) as file:
            file.write(b"%d 0 1" % UID)


def drop_capabilities() -> None:
    """Give up what the namespace gave, and what it could give again."""
    number = 0
    while libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    header = Header(CAPABILITY_VERSION, 0)
    check(libc.capset(ctypes.byref(header), (ctypes.c_uint32 * 6)()))


def restrict(rules: bytes) -> None:
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    program = Program(len(rules) // 8, rules)
    mode = SECCOMP_MODE_FILTER
    check(libc.prctl(PR_SET_SECCOMP, mode, ctypes.byref(program), 0, 0))


def check(result: int) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


if __name__ == "__main__":
    main()
