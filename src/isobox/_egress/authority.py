"""A workspace's own certificate authority, and TLS on both sides of the filter."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
import sys
import tempfile
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from isobox._egress import trust

if TYPE_CHECKING:
    from collections.abc import Generator

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

#: How long certificates hold. The key never leaves memory and nothing but the
#: workspace trusts it, so that is as long as a workspace may reasonably be open.
_VALID: Final = dt.timedelta(days=90)
#: For clocks that are behind.
_BACKDATED: Final = dt.timedelta(days=1)
#: Contexts kept at once; the next one takes the place of the longest unused.
_MOST: Final = 1000

#: Who sets one of these has said whom to trust.
_TRUST: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_ALPN: Final = ["http/1.1"]


class Authority:
    """Makes the certificates that a workspace's programs are shown.

    Its keys are new, and only in memory.

    Attributes:
        certificate_pem: What programs inside have to trust.
    """

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

        self._key = ec.generate_private_key(ec.SECP256R1())
        # One for all leaves: they are all this filter.
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = _root(self._key)
        self._leaf_key_pem = _key_pem(self._leaf_key)
        self.certificate_pem: bytes = _pem(self._certificate)
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()

    def context(self, host: str) -> ssl.SSLContext:
        """Return what serves TLS as `host` and nobody else, over HTTP/1.1.

        Args:
            host: A name or an IP address in the one form.
        """
        context = self._contexts.pop(host, None) or self._made(host)
        self._contexts[host] = context
        if len(self._contexts) > _MOST:
            self._contexts.popitem(last=False)
        return context

    def _made(self, host: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(_ALPN)
        # Programs inside seldom come back with one, and to make two takes as long
        # as to sign a handshake.
        context.num_tickets = 0
        leaf = _leaf(host, self._leaf_key, self._certificate, self._key)
        with _file(_pem(leaf) + self._leaf_key_pem) as path:
            context.load_cert_chain(path)
        return context


def upstream_context(extra_ca: bytes | None = None) -> ssl.SSLContext:
    """Return what verifies servers as the host's own programs do.

    Args:
        extra_ca: Certificates in PEM that are trusted besides the system's.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_ALPN)
    if not context.get_ca_certs() and os.environ.keys().isdisjoint(_TRUST):
        # An interpreter that was built elsewhere looks where this system has none.
        roots = trust.system_roots().decode("ascii", "ignore")
        if roots:
            context.load_verify_locations(cadata=roots)
    if extra_ca is not None:
        context.load_verify_locations(cadata=extra_ca.decode("ascii"))
    return context


def _root(key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415

    name = _name(f"isobox workspace CA {os.urandom(4).hex()}")
    return (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _leaf(
    host: str,
    key: EllipticCurvePrivateKey,
    issuer: x509.Certificate,
    issuer_key: EllipticCurvePrivateKey,
) -> x509.Certificate:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: PLC0415

    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(
        issuer_key.public_key()
    )
    return (
        _builder(_name("isobox"), issuer.subject, key)
        .add_extension(
            x509.SubjectAlternativeName([_alternative(host)]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
            critical=False,
        )
        .add_extension(identifier, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    from cryptography import x509  # noqa: PLC0415

    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _VALID)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509  # noqa: PLC0415

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@contextmanager
def _file(data: bytes) -> Generator[str]:
    """Give data a path for a moment: OpenSSL's reader takes nothing else."""
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("leaf"), "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile() as file:  # of mode 0600
        file.write(data)
        file.flush()
        yield file.name
