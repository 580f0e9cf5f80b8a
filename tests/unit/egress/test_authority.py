"""The workspace's certificates, in real handshakes over loopback."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from cryptography import x509

from isobox._egress import authority as module
from isobox._egress import trust
from isobox._egress.authority import Authority, upstream_context

HOST = "api.example.org"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@contextmanager
def serving(context: ssl.SSLContext, answer=b"HTTP/1.1 200 OK\r\n\r\nhello"):
    """Serve TLS on loopback until the block ends; give the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                plain, _ = listener.accept()
            except TimeoutError:
                continue
            with plain:
                plain.settimeout(10)
                try:
                    with context.wrap_socket(plain, server_side=True) as secure:
                        secure.recv(65536)
                        secure.sendall(answer)
                except OSError:
                    continue

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        over.set()
        thread.join()
        listener.close()


def trusting(pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # What Python 3.13 asks for by default.
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=pem.decode())
    return context


def handshake(client: ssl.SSLContext, port: int, host: str) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    try:
        with client.wrap_socket(plain, server_hostname=host) as secure:
            secure.sendall(b"x")
            assert secure.recv(100)
            return secure
    finally:
        plain.close()


@pytest.mark.parametrize(
    "host",
    [HOST, "xn--bcher-kva.example", "a_b.example.org", "192.0.2.7", "2001:db8::7"],
)
def test_a_client_that_trusts_only_us_takes_exactly_that_host(authority, host):
    client = trusting(authority.certificate_pem)
    with serving(authority.context(host)) as port:
        handshake(client, port, host)
        for other in ("example.org", "a.api.example.org", "192.0.2.8"):
            with pytest.raises(ssl.SSLCertVerificationError):
                handshake(client, port, other)


def test_a_client_that_trusts_another_workspace_refuses(authority):
    client = trusting(Authority().certificate_pem)
    with (
        serving(authority.context(HOST)) as port,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        handshake(client, port, HOST)


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["h2", "http/1.1"], "http/1.1"), (["h2"], None), ([], None)],
)
def test_only_http_1_1_is_spoken(authority, offered, chosen):
    client = trusting(authority.certificate_pem)
    if offered:
        client.set_alpn_protocols(offered)
    plain, server = socket.socketpair()
    context = authority.context(HOST)
    thread = threading.Thread(
        target=lambda: context.wrap_socket(server, server_side=True).close()
    )
    with plain:
        thread.start()
        with client.wrap_socket(plain, server_hostname=HOST) as secure:
            assert secure.selected_alpn_protocol() == chosen
        thread.join()


def test_old_versions_are_not_spoken(authority):
    for context in (authority.context(HOST), upstream_context()):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_COMPRESSION


def test_the_certificates_say_what_clients_look_for(authority):
    root = x509.load_pem_x509_certificate(authority.certificate_pem)
    basic = root.extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical
    assert (basic.value.ca, basic.value.path_length) == (True, 0)
    lifetime = root.not_valid_after_utc - root.not_valid_before_utc
    assert lifetime.days == 91
    assert root.public_key().curve.name == "secp256r1"


def test_a_host_has_one_context_and_few_are_kept(authority, monkeypatch):
    monkeypatch.setattr(module, "_MOST", 3)
    fresh = Authority()
    first = fresh.context("1.example.org")
    for host in ("2.example.org", "3.example.org", "1.example.org", "4.example.org"):
        fresh.context(host)
    assert fresh.context("1.example.org") is first
    assert len(fresh._contexts) == 3
    assert "2.example.org" not in fresh._contexts


def test_a_key_is_in_no_file_that_stays(authority, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "other")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with module._file(b"key") as path:
        held = tmp_path / path
        assert held.read_bytes() == b"key"
        assert held.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == []


def test_upstream_is_verified_by_the_systems_roots_and_ours(authority):
    with serving(authority.context(HOST)) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(upstream_context(), port, HOST)
        client = upstream_context(authority.certificate_pem)
        handshake(client, port, HOST)
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(client, port, "other.example.org")


def test_upstream_trusts_what_the_variable_names(authority, monkeypatch, tmp_path):
    (tmp_path / "roots.pem").write_bytes(authority.certificate_pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "roots.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with serving(authority.context(HOST)) as port:
        handshake(upstream_context(), port, HOST)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent.pem"))
    assert upstream_context().get_ca_certs() == []


def test_an_interpreter_that_finds_no_roots_is_given_the_systems(
    authority, monkeypatch
):
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(
        ssl, "create_default_context", lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )
    monkeypatch.setattr(trust, "system_roots", lambda: authority.certificate_pem)
    with serving(authority.context(HOST)) as port:
        handshake(upstream_context(), port, HOST)
    monkeypatch.setattr(trust, "system_roots", lambda: b"")
    assert upstream_context().get_ca_certs() == []


def test_nobody_pays_for_cryptography_who_does_not_use_it():
    script = (
        "import isobox, isobox._egress.authority, isobox._egress.vault, sys;"
        "assert 'cryptography' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
