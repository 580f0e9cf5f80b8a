"""What makes programs inside trust the workspace's certificate authority."""

from __future__ import annotations

import os
import re
import ssl
import warnings
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from isobox._core.spec import File

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cryptography import x509

#: Ours alone, ours with the system's roots, and those for Java.
CA: Final = "/etc/isobox/ca.pem"
BUNDLE: Final = "/etc/isobox/ca-bundle.pem"
TRUST_STORE: Final = "/etc/isobox/truststore.p12"
#: A trust store has no secret; its password is the one that every JDK's has.
_PASSWORD: Final = "changeit"  # noqa: S105

#: Where systems keep their roots: Debian, Arch and Alpine; Fedora and its kin;
#: SUSE; Alpine and macOS.
_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_CERTIFICATE: Final = re.compile(
    _BEGIN + rb"[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----"
)

#: These take the place of the roots that a program has.
_REPLACING: Final = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
    "PIP_CERT", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "npm_config_cafile",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS", "NIX_SSL_CERT_FILE",
)  # fmt: skip
#: These are trusted besides them.
_ADDING: Final = ("NODE_EXTRA_CA_CERTS", "DENO_CERT")


@dataclass(frozen=True, slots=True)
class Trust:
    """What a sandbox is given.

    Attributes:
        files: Certificates.
        environment: Variables that lead programs to them.
    """

    files: tuple[File, ...]
    environment: Mapping[str, str]


def trust(certificate: bytes, *, java_options: Sequence[str] = ()) -> Trust:
    """Return what makes programs trust a certificate besides the system's roots.

    Args:
        certificate: In PEM.
        java_options: What every Java program is told besides, such as its proxy.
    """
    roots = system_roots()
    bundle = roots.rstrip(b"\n") + b"\n" + certificate if roots else certificate
    files = {CA: certificate, BUNDLE: bundle, TRUST_STORE: _java_store(bundle)}
    files |= dict.fromkeys(_shown_bundles(), bundle)
    environment: dict[str, str] = dict.fromkeys(_REPLACING, BUNDLE)
    environment |= dict.fromkeys(_ADDING, CA)
    environment["JAVA_TOOL_OPTIONS"] = " ".join(
        (
            f"-Djavax.net.ssl.trustStore={TRUST_STORE}",
            f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
            "-Djavax.net.ssl.trustStoreType=PKCS12",
            *java_options,
        )
    )
    return Trust(
        tuple(File(path=path, data=data) for path, data in files.items()), environment
    )


def system_roots() -> bytes:
    """Return the certificates that the host's programs trust, in PEM.

    They are those of `SSL_CERT_FILE`, else the system's, else the ones of
    `certifi`, else none.
    """
    found = (_read(path) for path in _candidates())
    return next((roots for roots in found if _BEGIN in roots), b"")


def _candidates() -> Iterable[str]:
    yield os.environ.get("SSL_CERT_FILE", "")
    yield from _BUNDLES
    yield ssl.get_default_verify_paths().openssl_cafile
    with suppress(ImportError):
        yield str(import_module("certifi").where())


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _shown_bundles() -> Iterable[str]:
    # A link is followed here: it cannot be mounted upon, and inside it leads to
    # the same place.
    return dict.fromkeys(os.path.realpath(p) for p in _BUNDLES if os.path.isfile(p))


def _java_store(bundle: bytes) -> bytes:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        BestAvailableEncryption,
        pkcs12,
    )

    entries = [
        pkcs12.PKCS12Certificate(certificate, f"isobox-{number}".encode())
        for number, certificate in enumerate(_certificates(bundle))
    ]
    return pkcs12.serialize_java_truststore(
        entries, BestAvailableEncryption(_PASSWORD.encode())
    )


def _certificates(bundle: bytes) -> Iterable[x509.Certificate]:
    """Return those that can be read; systems carry some that break the rules."""
    from cryptography import x509  # noqa: PLC0415
    from cryptography.utils import CryptographyDeprecationWarning  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for pem in _CERTIFICATE.findall(bundle):
            with suppress(ValueError):
                yield x509.load_pem_x509_certificate(pem)
