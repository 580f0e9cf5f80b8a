"""Make listening sockets in another network namespace, and hand them back.

Stands alone: run as `python3 -I -S plant.py FIELD...`, with a connected
SOCK_SEQPACKET socket as its standard input. Each socket goes there by itself, in
a message of one byte; then `done`, or one line `STEP: REASON` if it failed. It
joins no other namespace than those of the user and the network, so nothing in
the sandbox sees it, and it ends at once. The fields:

    user UID GID            whom root becomes first: who owns the namespaces
    process PID PARENT      whose network namespace it is; PARENT is its parent
    routes                  make every address there a local one
    tcp4 ADDRESS PORT       listen there
    tcp6 ADDRESS PORT       likewise; left out where there is no IPv6
    udp4 ADDRESS PORT       receive datagrams there, each with where it was sent
    udp6 ADDRESS PORT       likewise; left out where there is no IPv6
"""

from __future__ import annotations

import _socket
import ctypes
import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# `socket` and its like cost more than all the work done here.

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
NS_GET_USERNS = 0xB701

AF_NETLINK = 16
RTM_NEWADDR = 20
RTM_NEWROUTE = 24
#: NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE
NEW = 0x1 | 0x4 | 0x400 | 0x100
RTA_OIF = 4
IFA_ADDRESS, IFA_LOCAL = 1, 2
RT_TABLE_LOCAL = 255
RTPROT_STATIC = 4
RT_SCOPE_HOST = 254
RTN_LOCAL = 2
LOOPBACK = 1

IP_PKTINFO = 8
IPV6_RECVPKTINFO = 49
#: An answer leaves from an address that no interface has.
IPV6_FREEBIND = 78

#: As many as may wait: what the namespace's `somaxconn` allows.
BACKLOG = 4096

libc = ctypes.CDLL(None, use_errno=True)

Wanted = tuple[str, str, int]


class Spec:
    """What the fields ask for."""

    def __init__(self, fields: list[str]) -> None:
        self.uid = 0
        self.gid = 0
        self.pid = 0
        self.parent = 0
        self.routes = False
        self.sockets: list[Wanted] = []
        rest = iter(fields)
        for name in rest:
            self._take(name, rest)
        if min(self.uid, self.gid, self.pid, self.parent) < 1:
            raise ValueError("user and process must be there, and none be 0")

    def _take(self, name: str, rest: Iterator[str]) -> None:
        if name == "user":
            self.uid, self.gid = int(next(rest)), int(next(rest))
        elif name == "process":
            self.pid, self.parent = int(next(rest)), int(next(rest))
        elif name == "routes":
            self.routes = True
        elif name in ("tcp4", "tcp6", "udp4", "udp6"):
            self.sockets.append((name, next(rest), int(next(rest))))
        else:
            raise ValueError(f"unknown field {name!r}")


def main() -> None:
    """Do what the arguments ask, and say how it went."""
    host = _socket.socket(fileno=0)
    try:
        plant(Spec(sys.argv[1:]), host)
        said = "done"
    except OSError as error:
        said = f"{error.filename or 'network'}: {error.strerror}"
    except (ValueError, StopIteration) as error:
        said = f"spec: {error}"
    host.send(said.encode())


def plant(spec: Spec, host: _socket.socket) -> None:
    become(spec.uid, spec.gid)
    enter(spec.pid, spec.parent)
    families = [_socket.AF_INET, *([_socket.AF_INET6] if has_ipv6() else [])]
    if spec.routes:
        for family in families:
            make_all_local(family)
        give_address()
        let_wait()
    for kind, address, port in spec.sockets:
        if family_of(kind) in families:
            give(host, opened(kind, address, port))


def become(uid: int, gid: int) -> None:
    """Be who owns the namespaces: root need not be able to do all of this."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


def enter(pid: int, parent: int) -> None:
    """Enter the user and network namespaces of a process.

    Raises:
        OSError: The kernel refused.
        ValueError: It is no longer that process, or it is in our own.
    """
    process = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)
    # SAFETY: through one descriptor, so that it is the process that was checked.
    if parent_of(process) != parent:
        raise ValueError(f"process {pid} is not a child of {parent}")
    network = os.open("ns/net", os.O_RDONLY, dir_fd=process)
    # SAFETY: whatever went wrong before, no socket is ever made on the host.
    if os.path.samestat(os.fstat(network), os.stat("/proc/self/ns/net")):
        raise ValueError(f"process {pid} is in the network namespace of the host")
    owner = check("NS_GET_USERNS", libc.ioctl(network, NS_GET_USERNS))
    check("setns to the user namespace", libc.setns(owner, CLONE_NEWUSER))
    check("setns to the network namespace", libc.setns(network, CLONE_NEWNET))


def parent_of(process: int) -> int:
    fd = os.open("stat", os.O_RDONLY, dir_fd=process)
    # The name is in parentheses and may itself hold any of them.
    return int(os.read(fd, 4096).rpartition(b")")[2].split()[1])


def has_ipv6() -> bool:
    try:
        with open("/proc/sys/net/ipv6/conf/lo/disable_ipv6", "rb") as file:
            return file.read(1) == b"0"
    except OSError:
        return False


def make_all_local(family: int) -> None:
    """Do as `ip route add local default dev lo` does."""
    scope = RT_SCOPE_HOST if family == _socket.AF_INET else 0
    route = struct.pack(
        "BBBBBBBBI",
        *(family, 0, 0, 0, RT_TABLE_LOCAL, RTPROT_STATIC, scope, RTN_LOCAL, 0),
    )
    route += struct.pack("HHi", 8, RTA_OIF, LOOPBACK)
    ask_kernel(RTM_NEWROUTE, route, f"route for family {int(family)}")


def give_address() -> None:
    """Do as `ip address add 198.19.255.254/32 dev lo` does.

    Programs that ask for names only of families that the machine has an address
    of (AI_ADDRCONFIG) do not count loopback ones. No name is given this one.
    """
    address = _socket.inet_aton("198.19.255.254")
    told = struct.pack("BBBBI", _socket.AF_INET, 32, 0, 0, LOOPBACK)
    for kind in (IFA_LOCAL, IFA_ADDRESS):
        told += struct.pack("HH4s", 8, kind, address)
    ask_kernel(RTM_NEWADDR, told, "address")


def ask_kernel(kind: int, body: bytes, what: str) -> None:
    header = struct.pack("IHHII", 16 + len(body), kind, NEW, 1, 0)
    netlink = _socket.socket(AF_NETLINK, _socket.SOCK_RAW, 0)
    netlink.send(header + body)
    code = struct.unpack_from("i", netlink.recv(4096), 16)[0]
    netlink.close()
    if code:
        raise OSError(-code, os.strerror(-code), what)


def let_wait() -> None:
    """Have connections that find no room try again.

    With cookies, some would look open to who made them and be forgotten here.
    """
    try:
        with open("/proc/sys/net/ipv4/tcp_syncookies", "wb", 0) as file:
            file.write(b"0")
    except OSError:
        pass  # in a container it may be read-only: then some have to time out


def family_of(kind: str) -> int:
    return _socket.AF_INET6 if kind.endswith("6") else _socket.AF_INET


def opened(kind: str, address: str, port: int) -> _socket.socket:
    datagrams = kind.startswith("udp")
    sort = _socket.SOCK_DGRAM if datagrams else _socket.SOCK_STREAM
    sock = _socket.socket(family_of(kind), sort)
    if kind.endswith("6"):
        sock.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 1)
    if datagrams:
        tell_destinations(sock, kind)
    else:
        sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    try:
        sock.bind((address, port))
        if not datagrams:
            sock.listen(BACKLOG)
    except OSError as error:
        error.filename = f"{kind} port {port}"
        raise
    return sock


def tell_destinations(sock: _socket.socket, kind: str) -> None:
    if kind == "udp4":
        sock.setsockopt(_socket.IPPROTO_IP, IP_PKTINFO, 1)
    else:
        sock.setsockopt(_socket.IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)
        sock.setsockopt(_socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)


def give(host: _socket.socket, sock: _socket.socket) -> None:
    rights = struct.pack("i", sock.fileno())
    host.sendmsg([b"+"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    sock.close()


def check(step: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), step)
    return result


if __name__ == "__main__":
    main()
