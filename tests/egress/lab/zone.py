"""Who lives where on the internet of the tests."""

from __future__ import annotations

import socket
from typing import Final

WEB: Final = "93.184.215.14"
PACKAGES: Final = "151.101.0.223"
FORGE: Final = "140.82.112.3"
EVIL: Final = "45.33.32.156"
WEB6: Final = "2606:2800:220:1::1"

#: The address of the machine on which the filter runs.
OWN: Final = "93.184.215.99"
METADATA: Final = "169.254.169.254"
PRIVATE: Final = "10.0.0.5"

#: Names that have addresses. A name that is not here does not exist.
ADDRESSES: Final[dict[str, tuple[str, ...]]] = {
    "www.example.org": (WEB,),
    "example.org": (WEB,),
    "api.example.org": (WEB,),
    "other.example.org": (WEB,),
    "own.example.org": (OWN,),
    "xn--bcher-kva.example.org": (WEB,),
    "static.cdn.example.org": (WEB,),
    "deep.static.cdn.example.org": (WEB,),
    "cdn.example.org": (WEB,),
    "app.pinned.example.org": (WEB,),
    "v6.example.org": (WEB6,),
    "both.example.org": (WEB, WEB6),
    "refused.example.org": (WEB,),
    "wrong.example.org": (WEB,),
    "expired.example.org": (WEB,),
    "unknown-authority.example.org": (WEB,),
    "pypi.example.org": (PACKAGES,),
    "registry.example.org": (PACKAGES,),
    "git.example.org": (FORGE,),
    "mcp.example.org": (WEB,),
    # What looks like an allowed name and is none.
    "evilexample.org": (EVIL,),
    "evilwww.example.org": (EVIL,),
    "www.example.org.evil.test": (EVIL,),
    "evil.test": (EVIL,),
    # Names of everybody's that lead into somebody's network.
    "metadata.evil.test": (METADATA,),
    "private.evil.test": (PRIVATE,),
    "loopback.evil.test": ("127.0.0.1",),
    "loopback6.evil.test": ("::1",),
    "mapped.evil.test": ("::ffff:10.0.0.5",),
    "nat64.evil.test": ("64:ff9b::a00:5",),
    "unique-local.evil.test": ("fd00::5",),
    "mixed.evil.test": (WEB, PRIVATE),
}

#: Names that the web servers have a certificate for that is good.
SECURE: Final = (
    "www.example.org",
    "api.example.org",
    "other.example.org",
    "*.cdn.example.org",
    "*.pinned.example.org",
    "v6.example.org",
    "pypi.example.org",
    "registry.example.org",
    "git.example.org",
    "mcp.example.org",
    "evil.test",
    "evilexample.org",
)

#: What answers on every address there is.
HTTP_PORTS: Final = (80, 8000, 8080)
HTTPS_PORTS: Final = (443, 8443)
BANNER_PORT: Final = 22
ECHO_PORT: Final = 7007
BANNER: Final = b"SSH-2.0-lab_1.0\r\n"
#: Where nothing listens.
CLOSED_PORT: Final = 81


def has_ipv6() -> bool:
    """Whether this machine has it: `run` has then made every address answer."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.connect((WEB6, 1))
            return True
    except OSError:
        return False
