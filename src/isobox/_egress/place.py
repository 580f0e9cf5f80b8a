"""Where a request goes, as it says so."""

from __future__ import annotations

from dataclasses import dataclass

from isobox._core import hosts
from isobox.errors import InvalidArgumentError, IsoboxError


class BadRequestError(IsoboxError):
    """A request that no server should be asked to understand.

    Attributes:
        status: What it is answered.
    """

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Place:
    """Where requests go.

    Attributes:
        host: A name or an address, in the one form.
        port: The port there.
        secure: Whether it is spoken to over TLS.
    """

    host: str
    port: int
    secure: bool = False

    @property
    def authority(self) -> bytes:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.secure else 80
        return (host if self.port == usual else f"{host}:{self.port}").encode("ascii")


def absolute(target: bytes, *, secure: bool) -> tuple[Place, bytes]:
    """Read `http://HOST/PATH`; returns where it is and the path with its query.

    Raises:
        BadRequestError: It is none, or of another scheme.
    """
    scheme, mark, rest = target.partition(b"://")
    wanted = b"https" if secure else b"http"
    if not mark or scheme.lower() != wanted:
        raise BadRequestError(
            f"a target must begin with / or {wanted.decode('ascii')}://; for https, "
            "use CONNECT"
        )
    end = min((at for at in map(rest.find, (b"/", b"?")) if at >= 0), default=len(rest))
    path = rest[end:]
    if not path.startswith(b"/"):
        path = b"/" + path
    place = authority(rest[:end], port=443 if secure else 80, secure=secure)
    return place, path


def authority(given: bytes, *, port: int | None, secure: bool) -> Place:
    """Read `HOST` or `HOST:PORT`.

    Args:
        given: What is read.
        port: Where it names none; None if it must.
        secure: Whether it is spoken to over TLS.

    Raises:
        BadRequestError: It is neither.
    """
    text = given.decode("latin-1")
    host, colon, number = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, number = text, ""
    if not text.isascii() or (number and not (number.isdigit() and len(number) <= 5)):
        raise BadRequestError("not HOST or HOST:PORT")
    if ":" in host and not host.startswith("["):
        raise BadRequestError("an IPv6 address stands in brackets")
    if not number and port is None:
        raise BadRequestError("CONNECT needs HOST:PORT")
    found = int(number) if number else port or 0
    if not 0 < found < 65536:
        raise BadRequestError("no such port")
    try:
        return Place(hosts.normal(host), found, secure)
    except InvalidArgumentError as error:
        raise BadRequestError(str(error)) from None
