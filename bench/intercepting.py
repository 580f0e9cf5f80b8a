"""mitmproxy as the rival of the network filter, in an environment of its own.

It cannot share isobox's: it asks for older versions of h11 and cryptography.
"""

import contextlib
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

from origin import OPEN, SECRET, VALUE, running

HOME = Path(__file__).resolve().parent / ".venv-mitmproxy"
REQUIREMENT = "mitmproxy==11.0.2"
PORT = 8081

#: What isobox's rules and its secret say.
_RULE = f"""
from mitmproxy import http

ALLOWED = {{("{OPEN}", 80), ("{OPEN}", 443), ("{SECRET}", 443)}}


def request(flow):
    host, port = flow.request.host, flow.request.port
    if (host, port) not in ALLOWED or flow.request.pretty_host != host:
        flow.response = http.Response.make(403, "denied")
    elif host == "{SECRET}":
        flow.request.headers["Authorization"] = "{VALUE}"
"""


def prepare() -> None:
    """Install it unless it is there."""
    if (HOME / "bin" / "mitmdump").exists():
        return
    print(f"installing {REQUIREMENT} into {HOME} ...", file=sys.stderr)
    venv.create(HOME, clear=True, with_pip=True)
    pip = [HOME / "bin" / "python", "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check", REQUIREMENT]
    subprocess.run(pip, check=True, stdout=sys.stderr)


@contextlib.contextmanager
def proxied(folder: Path, authority: Path) -> Iterator[Path]:
    """Serve as a proxy; gives the certificate to trust.

    Bodies are streamed, as isobox does, and not held; HTTP/2 is off on both.
    """
    rule = folder / "rule.py"
    rule.write_text(_RULE)
    command = [HOME / "bin" / "mitmdump", "-q", "-s", rule]
    for option in (
        "mode=regular",
        "listen_host=127.0.0.1",
        f"listen_port={PORT}",
        f"confdir={folder}/mitmproxy",
        f"ssl_verify_upstream_trusted_ca={authority}",
        "stream_large_bodies=1m",
        "http2=false",
        "flow_detail=0",
    ):
        command += ["--set", option]
    own = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with running(command, PORT, "127.0.0.1", env=own):
        yield folder / "mitmproxy" / "mitmproxy-ca-cert.pem"
