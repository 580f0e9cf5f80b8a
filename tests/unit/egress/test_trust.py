"""What makes programs trust the workspace's certificates, with real programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from cryptography import x509
from tests.unit.egress.test_authority import HOST, serving

from isobox._egress import trust
from isobox._egress.authority import Authority

JAVA = r"""
import java.io.*;
import java.net.*;
import javax.net.ssl.*;

class Client {
    public static void main(String[] words) throws Exception {
        SSLSocketFactory made = (SSLSocketFactory) SSLSocketFactory.getDefault();
        Socket plain = new Socket("127.0.0.1", Integer.parseInt(words[0]));
        SSLSocket socket = (SSLSocket) made.createSocket(plain, words[1], 443, true);
        SSLParameters parameters = socket.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        socket.setSSLParameters(parameters);
        socket.startHandshake();
        System.out.println(System.getProperty("https.proxyHost") + " agreed");
        socket.close();
    }
}
"""


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def host_of_one_root(monkeypatch, tmp_path) -> bytes:
    """A host that trusts one root, in the first of its usual places."""
    roots = Authority().certificate_pem
    bundle = tmp_path / "extracted.crt"
    bundle.write_bytes(roots)
    (tmp_path / "ca-certificates.crt").symlink_to(bundle)
    absent = str(tmp_path / "absent.pem")
    places = (absent, str(tmp_path / "ca-certificates.crt"), str(bundle))
    monkeypatch.setattr(trust, "_BUNDLES", places)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    return roots


def placed(made: trust.Trust, root) -> dict[str, str]:
    """Write the files below `root`; return the variables that lead there."""
    for file in made.files:
        path = root / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
    return {
        name: value.replace("/etc/isobox", f"{root}/etc/isobox")
        for name, value in made.environment.items()
    }


def names(pem: bytes) -> list[str]:
    return [c.subject.rfc4514_string() for c in x509.load_pem_x509_certificates(pem)]


def test_the_files(authority, host_of_one_root, tmp_path):
    files = {f.path: f.data for f in trust.trust(authority.certificate_pem).files}
    both = names(host_of_one_root) + names(authority.certificate_pem)
    assert files.pop("/etc/isobox/ca.pem") == authority.certificate_pem
    assert names(files["/etc/isobox/ca-bundle.pem"]) == both
    # Not where the link is: nothing can be mounted there.
    assert files[str(tmp_path / "extracted.crt")] == files["/etc/isobox/ca-bundle.pem"]
    assert set(files) == {
        "/etc/isobox/ca-bundle.pem",
        "/etc/isobox/truststore.p12",
        str(tmp_path / "extracted.crt"),
    }


def test_the_variables(authority, host_of_one_root):
    made = trust.trust(
        authority.certificate_pem, java_options=["-Dhttps.proxyHost=127.0.0.1"]
    )
    paths = {file.path for file in made.files}
    java = made.environment["JAVA_TOOL_OPTIONS"].split()
    assert java[0] == "-Djavax.net.ssl.trustStore=/etc/isobox/truststore.p12"
    assert java[-1] == "-Dhttps.proxyHost=127.0.0.1"
    others = {k: v for k, v in made.environment.items() if k != "JAVA_TOOL_OPTIONS"}
    assert set(others.values()) <= paths
    adding = {name for name, path in others.items() if path == trust.CA}
    assert adding == {"NODE_EXTRA_CA_CERTS", "DENO_CERT"}
    assert {
        "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
        "PIP_CERT", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "npm_config_cafile",
    } <= set(others)  # fmt: skip


def test_the_hosts_roots_are_those_of_the_variable(
    authority, host_of_one_root, monkeypatch, tmp_path
):
    assert trust.system_roots() == host_of_one_root
    (tmp_path / "mine.pem").write_bytes(authority.certificate_pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "mine.pem"))
    assert trust.system_roots() == authority.certificate_pem
    (tmp_path / "mine.pem").write_bytes(b"no certificate")
    assert trust.system_roots() == host_of_one_root


def test_a_host_without_roots(authority, monkeypatch, tmp_path):
    monkeypatch.setattr(trust, "_BUNDLES", ())
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent"))
    monkeypatch.setattr(
        trust.ssl, "get_default_verify_paths", lambda: _Paths(str(tmp_path / "absent"))
    )
    monkeypatch.setitem(sys.modules, "certifi", None)
    assert trust.system_roots() == b""
    made = trust.trust(authority.certificate_pem)
    assert {f.path: f.data for f in made.files}[
        trust.BUNDLE
    ] == authority.certificate_pem
    (tmp_path / "cacert.pem").write_bytes(authority.certificate_pem)
    monkeypatch.setitem(sys.modules, "certifi", _Certifi(str(tmp_path / "cacert.pem")))
    assert trust.system_roots() == authority.certificate_pem


class _Paths:
    def __init__(self, path: str) -> None:
        self.openssl_cafile = path


class _Certifi:
    def __init__(self, path: str) -> None:
        self.where = lambda: path


def test_certificates_that_break_the_rules_spoil_nothing(authority, host_of_one_root):
    broken = (
        b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
        b"-----BEGIN CERTIFICATE-----\n????\n"
    )
    bundle = broken + b"\xff\0 # a comment\r\n" + authority.certificate_pem
    held = list(trust._certificates(bundle))
    assert [c.subject.rfc4514_string() for c in held] == names(
        authority.certificate_pem
    )


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("variable", ["CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_curl_trusts_us_by_the_bundle(authority, tmp_path, variable):
    environment = placed(trust.trust(authority.certificate_pem), tmp_path)
    with serving(authority.context(HOST)) as port:
        command = [
            "curl", "-sS", "--noproxy", "*", "--max-time", "20",
            "--connect-to", f"{HOST}:443:127.0.0.1:{port}", f"https://{HOST}/",
        ]  # fmt: skip
        trusted = subprocess.run(
            command,
            env={variable: environment[variable]},
            capture_output=True,
            check=False,
        )
        alone = subprocess.run(command, env={}, capture_output=True, check=False)
    assert (trusted.returncode, trusted.stdout) == (0, b"hello")
    assert alone.returncode == 60


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_node_trusts_us_besides_its_own(authority, tmp_path):
    environment = placed(trust.trust(authority.certificate_pem), tmp_path)
    script = (
        "const [port, host] = process.argv.slice(1);"
        "require('tls').connect({host: '127.0.0.1', port, servername: host},"
        "function () { console.log(this.authorized); this.destroy(); });"
    )
    with serving(authority.context(HOST)) as port:
        said = subprocess.run(
            ["node", "-e", script, str(port), HOST],
            env={"NODE_EXTRA_CA_CERTS": environment["NODE_EXTRA_CA_CERTS"]},
            capture_output=True,
            check=False,
        )
    assert said.stdout == b"true\n", said.stderr


@pytest.mark.skipif(shutil.which("keytool") is None, reason="needs a JDK")
def test_keytool_reads_every_certificate(authority, tmp_path):
    made = trust.trust(authority.certificate_pem)
    placed(made, tmp_path)
    bundle = next(f.data for f in made.files if f.path == trust.BUNDLE)
    listed = subprocess.run(
        [
            "keytool", "-list", "-storepass", "changeit",
            "-keystore", f"{tmp_path}{trust.TRUST_STORE}",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout  # fmt: skip
    assert listed.count("trustedCertEntry") == len(list(trust._certificates(bundle)))


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")
def test_a_java_program_trusts_us_and_nobody_else(authority, tmp_path):
    options = ["-Dhttps.proxyHost=127.0.0.1", "-Dhttps.proxyPort=3128"]
    made = trust.trust(authority.certificate_pem, java_options=options)
    environment = placed(made, tmp_path)
    (tmp_path / "Client.java").write_text(JAVA)
    subprocess.run(["javac", "-d", tmp_path, tmp_path / "Client.java"], check=True)
    environment = {
        "JAVA_TOOL_OPTIONS": environment["JAVA_TOOL_OPTIONS"],
        "PATH": os.environ["PATH"],
    }

    def client(port: int, host: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["java", "-cp", str(tmp_path), "Client", str(port), host],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    with serving(authority.context(HOST)) as port:
        agreed, other = client(port, HOST), client(port, "other.example.org")
    assert agreed.stdout == "127.0.0.1 agreed\n", agreed.stderr
    assert "No subject alternative DNS name" in other.stderr
    with serving(Authority().context(HOST)) as port:
        assert "unable to find valid certification path" in client(port, HOST).stderr
