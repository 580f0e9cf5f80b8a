"""What is mounted, as far as a test could have changed it."""

from __future__ import annotations

import tempfile
from pathlib import Path


def host_mounts() -> list[str]:
    """Return the mounts, but for those of engines of tests that run meanwhile."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    engines = f"{tempfile.gettempdir()}/engine-"
    return [line for line in lines if engines not in line]
