"""This machine's own addresses: known, and anew once they change."""

from __future__ import annotations

import errno
import ipaddress
import shutil
import subprocess
import sys

import pytest

from isobox._egress.own_addresses import OwnAddresses
from isobox._linux import interfaces

LOOPBACK = ipaddress.ip_address("127.0.0.1")

CHANGES = """
import subprocess
from isobox._egress.own_addresses import OwnAddresses
own = OwnAddresses()
for words in ("link set lo up", "address add 93.184.1.1/32 dev lo",
              "address add 2606::1/128 dev lo", "address del 93.184.1.1/32 dev lo"):
    subprocess.run(["ip", *words.split()], check=True)
    print(*sorted(map(str, own.now())))
own.close()
"""


@pytest.fixture
def own():
    made = OwnAddresses()
    yield made
    made.close()


def test_they_are_not_listed_again_while_nothing_changes(own, monkeypatch):
    assert LOOPBACK in own.now()
    monkeypatch.setattr(interfaces, "addresses", lambda: 1 / 0)
    assert LOOPBACK in own.now()


def test_a_change_is_told():
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("no ip and unshare")
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable]
    done = subprocess.run(
        [*command, "-c", CHANGES], capture_output=True, text=True, check=False
    )
    if "unshare failed" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("no network namespace")
    assert done.stdout.splitlines() == [
        "127.0.0.1 ::1",
        "127.0.0.1 93.184.1.1 ::1",
        "127.0.0.1 2606::1 93.184.1.1 ::1",
        "127.0.0.1 2606::1 ::1",
    ]


class Overrun:
    """What is told of more changes than it can hold."""

    def recv(self, _size):
        raise OSError(errno.ENOBUFS, "No buffer space available")

    def close(self):
        pass


def test_too_many_changes_are_a_change(own):
    own.now()
    own.close()
    own._changes, own._known = Overrun(), frozenset()
    assert LOOPBACK in own.now()


def test_after_the_close_it_asks_again(own):
    own.now()
    own.close()
    own.close()
    assert LOOPBACK in own.now()
