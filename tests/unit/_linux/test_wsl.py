"""Which WSL a kernel is of."""

from __future__ import annotations

import pytest

from isobox._linux.wsl import wsl_version

VERSION_1 = (
    "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com) (gcc version "
    "5.4.0 (GCC) ) #1237-Microsoft Sat Sep 11 14:32:00 PST 2021\n"
)
KERNELS = [
    (VERSION_1, 1),
    ("Linux version 4.4.0-17134-Microsoft (Microsoft@Microsoft.com)", 1),
    (
        "Linux version 5.15.90.1-microsoft-standard-WSL2 (oe-user@oe-host) (x86_64)\n",
        2,
    ),
    ("Linux version 4.19.104-microsoft-standard (oe-user@oe-host) (gcc)", 2),
    ("Linux version 6.6.87.2-microsoft-standard-WSL2+ (root@host) (gcc)", 2),
    ("Linux version 6.1.0-custom-WSL2 (me@here) (gcc)", 2),
    ("Linux version 5.15.0-1041-azure (buildd@lcy02) (gcc) #48-Ubuntu SMP", None),
    ("Linux version 5.15.48.1-2.cm2 (root@microsoft.com) (gcc) #1 SMP", None),
    ("Linux version 6.8.0 (someone@WSL2-box) (gcc -Microsoft) #1", None),
    ("Linux version 6.1.0-28-amd64 (debian-kernel@lists.debian.org)", None),
    ("Linux version", None),
    ("Linux", None),
    ("", None),
    ("Darwin Kernel Version 23.4.0", None),
]


@pytest.mark.parametrize(("text", "version"), KERNELS)
def test_version(text, version):
    assert wsl_version(text) == version
