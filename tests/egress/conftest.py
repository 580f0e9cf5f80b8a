"""The internet that the tests of the network filter run against.

Nothing here is collected but by `tests/egress/run`, which gives pytest a
network of its own.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.egress.inside import PROGRAMS
from tests.egress.lab import zone
from tests.egress.lab.internet import Internet
from tests.relayed import FullyRelayedWorkspace, RelayedWorkspace

from isobox import BubblewrapWorkspace

LAB = os.environ.get("ISOBOX_EGRESS_LAB")

collect_ignore_glob = [] if LAB else ["test_*.py"]

#: Without these nothing here can be tested.
TOOLS = ("curl", "git", "openssl")

#: How a sandbox's traffic comes to the filter: it is caught, whatever the
#: program; the guest relays what programs send to the proxy; or to any port.
KINDS = {
    "caught": BubblewrapWorkspace,
    "relayed": RelayedWorkspace,
    "relayed fully": FullyRelayedWorkspace,
}


def pytest_report_header():
    """Say in one line how they run."""
    return None if LAB else "tests/egress: not collected; run tests/egress/run"


@pytest.fixture(scope="session")
def everything():
    missing = [name for name in TOOLS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} (apt-get install {' '.join(missing)})")
    with Internet(Path(LAB)).opened() as internet:
        yield internet


@pytest.fixture
def internet(everything):
    """Servers on every address, which remember what reached them in this test."""
    everything.forget()
    yield everything
    assert everything.faults == []


@pytest.fixture
def ipv6():
    if not zone.has_ipv6():
        pytest.skip("this machine has no IPv6")


@pytest.fixture(scope="session")
def trust(everything):
    """What makes programs inside trust the servers, where nobody reads TLS."""
    bundle, store = "/lab/authority.pem", "/lab/authority.p12"
    names = (
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "PIP_CERT",
        "NODE_EXTRA_CA_CERTS",
        "npm_config_cafile",
    )
    trust = "-Djavax.net.ssl.trustStore"
    java = f"{trust}={store} {trust}Password=changeit"
    return {**dict.fromkeys(names, bundle), "JAVA_TOOL_OPTIONS": java}


@pytest.fixture
def make(everything):
    """Make a workspace of some kind that has the tests' programs."""
    shown = [
        (str(PROGRAMS / "probe.py"), "/lab/probe.py"),
        (str(everything.authority.file), "/lab/authority.pem"),
        (str(everything.authority.store), "/lab/authority.p12"),
    ]

    def make(network, *, kind="caught", mounts=(), **options):
        return KINDS[kind](network=network, mounts=[*shown, *mounts], **options)

    return make


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param
