"""AWS's Signature Version 4, made again with the real key.

The algorithm is that of "Create a signed AWS API request" in the IAM user guide.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from isobox._egress.request import Headers, Request, with_header
from isobox.errors import PolicyDeniedError

if TYPE_CHECKING:
    from isobox._egress.secret import SigV4

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_BODY: Final = b"X-Amz-Content-Sha256"
#: The one service that takes a body without its hash, and wants the header.
_S3: Final = "s3"
#: What the client's own signature consists of.
_OLD: Final = frozenset((b"authorization", b"x-amz-date", b"x-amz-security-token"))
#: Signed besides `host` and `x-amz-*`: what a proxy on the way leaves alone.
_SIGNED: Final = frozenset((b"content-type", b"content-md5"))


@dataclass(frozen=True, slots=True)
class Keys:
    """What a request is signed with."""

    identity: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def needs_body(sent: Request, how: SigV4) -> bool:
    """Whether a signature covers a body whose hash no header tells."""
    return (
        how.service != _S3
        and not is_presigned(sent)
        and _header(sent.headers, _BODY) is None
    )


def is_presigned(sent: Request) -> bool:
    """Whether the signature is in the query, so that the request has all it needs."""
    return b"x-amz-signature=" in sent.target.lower()


def sign(sent: Request, keys: Keys, how: SigV4, *, now: float | None = None) -> Request:
    """Return the request with a signature of `keys` in place of the client's.

    A presigned one comes back as it is: it may be somebody else's.

    Args:
        sent: The request.
        keys: What it is signed with.
        how: The region and the service.
        now: Seconds since 1970; None is the present.

    Raises:
        PolicyDeniedError: Each piece of its body carries a signature of its own,
            which only the client could make again.
    """
    if is_presigned(sent):
        return sent
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    body = _header(sent.headers, _BODY) or _hash(sent.body, how.service)
    if body.startswith(b"STREAMING-AWS4-"):
        raise PolicyDeniedError(
            "a body signed in pieces cannot be signed again; let the client send "
            "it unsigned or whole (botocore: payload_signing_enabled=False)",
            rule="secrets",
        )
    headers = tuple(h for h in sent.headers if h[0].lower() not in _OLD)
    headers = with_header(headers, b"X-Amz-Date", stamp.encode())
    if how.service == _S3:
        headers = with_header(headers, _BODY, body)
    if keys.token is not None:
        headers = with_header(headers, b"X-Amz-Security-Token", keys.token.encode())
    sent = replace(sent, headers=headers)
    names, canonical = _canonical(sent, body.decode("latin-1"), how.service)
    scope = f"{stamp[:8]}/{how.region}/{how.service}/aws4_request"
    signature = _signature(keys.secret, scope, stamp, canonical)
    return sent.with_header(
        b"Authorization",
        f"{_ALGORITHM} Credential={keys.identity}/{scope}, "
        f"SignedHeaders={names}, Signature={signature}".encode(),
    )


def _hash(body: bytes, service: str) -> bytes:
    if service == _S3:
        return b"UNSIGNED-PAYLOAD"
    return hashlib.sha256(body).hexdigest().encode()


def _signature(secret: str, scope: str, stamp: str, canonical: str) -> str:
    digest = hashlib.sha256(canonical.encode("latin-1")).hexdigest()
    key = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{digest}"
    return hmac.digest(key, text.encode(), "sha256").hex()


def _canonical(sent: Request, body: str, service: str) -> tuple[str, str]:
    """Return the names of the signed headers, and the canonical request."""
    signed: dict[str, list[str]] = {}
    for name, value in sent.headers:
        key = name.lower()
        if key == b"host" or key in _SIGNED or key.startswith(b"x-amz-"):
            text = re.sub(r" +", " ", value.decode("latin-1").strip())
            signed.setdefault(key.decode("latin-1"), []).append(text)
    path, _, query = sent.target.partition(b"?")
    names = ";".join(sorted(signed))
    lines = [
        sent.method.decode("latin-1"),
        _path(path, service),
        _query(query),
        *(f"{name}:{','.join(signed[name])}" for name in sorted(signed)),
        "",
        names,
        body,
    ]
    return names, "\n".join(lines)


def _path(path: bytes, service: str) -> str:
    if service == _S3:
        return quote(unquote_to_bytes(path), safe="/~") or "/"
    # All others normalise the path, and quote what is quoted already.
    return quote(_normal(path), safe="/~")


def _normal(path: bytes) -> bytes:
    kept: list[bytes] = []
    for segment in path.split(b"/"):
        if segment == b"..":
            del kept[-1:]
        elif segment not in (b"", b"."):
            kept.append(segment)
    slash = b"/" if path.endswith(b"/") and kept else b""
    return b"/" + b"/".join(kept) + slash


def _query(query: bytes) -> str:
    pairs = [pair.partition(b"=") for pair in query.split(b"&") if pair]
    return "&".join(
        f"{name}={value}"
        for name, value in sorted((_quoted(n), _quoted(v)) for n, _, v in pairs)
    )


def _quoted(text: bytes) -> str:
    return quote(unquote_to_bytes(text), safe="~")


def _header(headers: Headers, name: bytes) -> bytes | None:
    return next((v for key, v in headers if key.lower() == name.lower()), None)
