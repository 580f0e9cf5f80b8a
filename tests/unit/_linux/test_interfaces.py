"""What the kernel says of this machine's addresses."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
import sys

import pytest

from isobox._linux import interfaces

SHOW = (
    "from isobox._linux import interfaces; "
    "print(*sorted(map(str, interfaces.addresses())))"
)


def test_the_loopback_is_one():
    assert ipaddress.ip_address("127.0.0.1") in interfaces.addresses()


def test_every_address_is_told():
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("no ip and unshare")
    many = [f"93.184.{i}.{j}" for i in range(4) for j in range(1, 200)]
    script = "ip link set lo up; ip -batch -; exec " + f"{sys.executable} -c '{SHOW}'"
    lines = [f"address add {each}/16 dev lo" for each in many]
    lines += ["address add 8.8.4.1 peer 8.8.4.2 dev lo"]
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", script],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare failed" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("no network namespace")
    told = set(done.stdout.split())
    assert {*many, "8.8.4.1", "127.0.0.1"} <= told
    assert "8.8.4.2" not in told
