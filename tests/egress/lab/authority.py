"""Certificates: a test authority, and what is wrong with some of them."""

from __future__ import annotations

import datetime as dt
import ssl
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

DAY = dt.timedelta(days=1)
#: Java wants one; this is everybody's.
STORE_PASSWORD = b"changeit"
#: What a key may be used for, besides signing certificates.
OTHER_USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "encipher_only",
    "decipher_only",
)


class Authority:
    """Signs certificates for any name.

    Args:
        folder: Where keys and certificates are written.
        title: Its own name, also that of its files.
    """

    def __init__(self, folder: Path, title: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"isobox test {title}")
        self._certificate = (
            _builder(self._name, self._name, self._key, _today() - DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(
                    key_cert_sign=True,
                    crl_sign=True,
                    **dict.fromkeys(OTHER_USES, False),
                ),
                critical=True,
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / f"{title}.pem"
        self.file.write_bytes(self.pem)
        self.store = folder / f"{title}.p12"
        self.store.write_bytes(_java_store(self._certificate))

    @property
    def pem(self) -> bytes:
        """Its own certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def subject(self) -> str:
        """Its own name, as certificates show their issuer."""
        return self._name.rfc4514_string()

    def context(self, *names: str, start: dt.datetime | None = None) -> ssl.SSLContext:
        """Return what a server needs to answer to these names.

        Args:
            names: For which the certificate is.
            start: Since when it is valid, for two days; since yesterday if None.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_name(names[0]), self._name, key, start or _today() - DAY)
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName(name) for name in names]),
                critical=False,
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(
                    self._key.public_key()
                ),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        file = (
            self._folder
            / f"{names[0].replace('*', '_')}-{key.public_key().public_numbers().x:x}"
        )
        file.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        context.set_alpn_protocols(["http/1.1"])
        return context


def _java_store(certificate: x509.Certificate) -> bytes:
    entry = pkcs12.PKCS12Certificate(certificate, b"authority")
    encryption = serialization.BestAvailableEncryption(STORE_PASSWORD)
    return pkcs12.serialize_java_truststore([entry], encryption)


def _today() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    start: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + 2 * DAY)
    )
