"""The network of the egress bench, and the server that everything asks.

Nothing of it is seen outside of the namespaces that `enter` makes.
"""

import contextlib
import datetime as dt
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from measure import MB

ADDRESS = "203.0.113.1"  # of RFC 5737: nobody's
OPEN, SECRET = "open.test", "secret.test"
VALUE = "Bearer 0123456789abcdefghijklmnopqrstuvwxyz"
SMALL, LARGE = "/small", "/large"
SIZE, LENGTH = 1024, 1000 * MB

_INSIDE = "ISOBOX_BENCH_INSIDE"
_DAY = dt.timedelta(days=1)

_NGINX = """
worker_processes 1;
daemon off;
error_log {folder}/error.log;
pid {folder}/nginx.pid;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    sendfile on;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    client_body_temp_path {folder}/1;
    proxy_temp_path {folder}/2;
    fastcgi_temp_path {folder}/3;
    uwsgi_temp_path {folder}/4;
    scgi_temp_path {folder}/5;
    ssl_certificate {folder}/server.pem;
    ssl_certificate_key {folder}/server.pem;
    ssl_session_tickets off;
    root {folder}/files;
    server {{
        listen {address}:80 backlog=4096;
        listen {address}:443 ssl backlog=4096;
        server_name {open};
    }}
    server {{
        listen {address}:443 ssl;
        server_name {secret};
        if ($http_authorization != "{value}") {{ return 401; }}
    }}
}}
"""


def enter() -> None:
    """Go on in a network and a mount namespace of its own, as the same program."""
    if _INSIDE in os.environ:
        del os.environ[_INSIDE]
        return
    if os.geteuid():
        sys.exit("only root makes it a network of its own")
    os.environ[_INSIDE] = "1"
    own = ["unshare", "--net", "--mount", "--"]
    os.execvp(own[0], [*own, sys.executable, *sys.argv])


def connect(folder: Path) -> None:
    """Give the namespace the server's address, and the names that it has."""
    for words in ("link set lo up", f"address add {ADDRESS}/32 dev lo"):
        subprocess.run(["ip", *words.split()], check=True)
    # A bench makes more connections in a minute than there are ports by default.
    for name, value in (("ip_local_port_range", "1100 65000"), ("tcp_tw_reuse", "1")):
        Path("/proc/sys/net/ipv4", name).write_text(value)
    # A resolver is asked for names with a final dot: no search domain is tried.
    names = f"{OPEN} {OPEN}. {SECRET} {SECRET}."
    _over(folder, "/etc/hosts", f"127.0.0.1 localhost\n{ADDRESS} {names}\n")
    _over(folder, "/etc/nsswitch.conf", "hosts: files\n")


def _over(folder: Path, path: str, text: str) -> None:
    file = folder / Path(path).name
    file.write_text(text)
    subprocess.run(["mount", "--bind", file, os.path.realpath(path)], check=True)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Path]:
    """Serve one small and one large file; gives the certificate to trust."""
    authority = _certificates(folder)
    files = folder / "files"
    files.mkdir()
    (files / SMALL[1:]).write_bytes(b"0123456789abcdef" * (SIZE // 16))
    with (files / LARGE[1:]).open("wb") as file:
        file.truncate(LENGTH)
    made = _NGINX.format(
        folder=folder, address=ADDRESS, open=OPEN, secret=SECRET, value=VALUE
    )
    (folder / "nginx.conf").write_text(made)
    folder.chmod(0o755)
    with running(["nginx", "-p", folder, "-c", folder / "nginx.conf"], 80, ADDRESS):
        yield authority


@contextlib.contextmanager
def running(
    command: Sequence[str | Path], port: int, address: str, **more: object
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server, from when it answers until the end."""
    with subprocess.Popen(command, **more) as process:  # type: ignore[call-overload]
        try:
            _await(process, port, address)
            yield process
        finally:
            process.terminate()


def _await(process: subprocess.Popen[bytes], port: int, address: str) -> None:
    import socket  # noqa: PLC0415

    for _ in range(300):
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError):
            socket.create_connection((address, port), 1).close()
            return
        time.sleep(0.1)
    raise RuntimeError(f"nothing listens on {address}:{port}")


def _certificates(folder: Path) -> Path:
    """Write the server's key and certificate; return the one that signed it."""
    root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")])
    root = (
        _builder(name, name, root_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.DNSName(OPEN), x509.DNSName(SECRET)])
    leaf = (
        _builder(x509.Name([]), name, key)
        .add_extension(names, critical=True)
        .sign(root_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    own = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(leaf.public_bytes(pem) + own)
    authority = folder / "authority.pem"
    authority.write_bytes(root.public_bytes(pem))
    return authority


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    today = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - _DAY)
        .not_valid_after(today + _DAY)
    )
