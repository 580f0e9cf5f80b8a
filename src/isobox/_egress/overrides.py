"""What a request asks for by headers that some servers heed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from isobox._egress.place import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from isobox._egress.request import Request

#: Frameworks take the method from these where it is a POST.
_METHODS: Final = (b"x-http-method-override", b"x-http-method", b"x-method-override")
#: Servers behind a gateway of IIS take the path from these.
_TARGETS: Final = (b"x-original-url", b"x-rewrite-url")
_MOST: Final = 3
#: Every byte that is no letter in lower case and no digit is a hyphen.
_ALIKE: Final = bytes(
    code if code in b"abcdefghijklmnopqrstuvwxyz0123456789" else 0x2D
    for code in range(256)
)


def overridden(request: Request) -> list[tuple[str, str]]:
    """Return each method and target that a server may take a request to have.

    The first are those that it says.

    Raises:
        BadRequestError: It says too many.
    """
    methods = _distinct(request, request.method, _METHODS)
    targets = _distinct(request, request.target, _TARGETS)
    return [(method, target) for method in methods for target in targets]


def is_overridden(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a server may take a request for one with another method or target."""
    return any(_heard(name) in _METHODS + _TARGETS for name, _ in headers)


def _distinct(request: Request, said: bytes, names: tuple[bytes, ...]) -> list[str]:
    values = [value for name, value in request.headers if _heard(name) in names]
    found = dict.fromkeys((said, *values))
    if len(found) > _MOST:
        raise BadRequestError("too many methods or paths in one request")
    return [value.decode("latin-1") for value in found]


def _heard(name: bytes) -> bytes:
    # CGI and what came of it (WSGI, PHP) have one name for `X_A` and `X-A`.
    return name.lower().translate(_ALIKE)
