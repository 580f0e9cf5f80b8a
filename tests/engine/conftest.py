"""A real Docker engine of our own, and an image with isobox in it.

`dockerd` runs on directories of its own below a temporary one, without bridge
and firewall rules, and is stopped by its pid. The image is a minimal Debian
with Python and bubblewrap; isobox and what it needs are mounted into it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

MIRROR = "http://deb.debian.org/debian"
SUITE = "bookworm"
PYTHON = "3.11"
TOOLS = ("dockerd", "docker", "debootstrap")
SOURCE = Path(__file__).parents[2] / "src"
INSIDE = Path(__file__).with_name("inside.py")


def unavailable(reason: str) -> Any:
    """Skip in sight of everybody; fail where an engine is required."""
    if "docker" in os.environ.get("ISOBOX_REQUIRE", "").split(","):
        pytest.fail(f"ISOBOX_REQUIRE names docker: {reason}")
    pytest.skip(reason)


class Engine:
    """One `dockerd`, from its start to its end."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.log = base / "log"
        self._socket = f"unix://{base}/socket"
        with self.log.open("wb") as log:
            self._daemon = subprocess.Popen(
                [
                    "dockerd",
                    *("--data-root", f"{base}/data", "--exec-root", f"{base}/exec"),
                    *("--pidfile", f"{base}/pid", "--host", self._socket),
                    *("--bridge", "none"),
                    *("--iptables=false", "--ip6tables=false"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def answers(self, patience: float = 30) -> bool:
        """Wait until it answers; returns whether it does."""
        deadline = time.monotonic() + patience
        while self._daemon.poll() is None and time.monotonic() < deadline:
            if self.call("version", check=False).returncode == 0:
                return True
            time.sleep(0.1)
        return False

    def call(
        self, *arguments: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run the client."""
        return subprocess.run(
            ["docker", "--host", self._socket, *arguments],
            capture_output=True,
            text=True,
            check=check,
            timeout=100,
        )

    def stop(self) -> None:
        """End it, and what it has mounted."""
        self._daemon.send_signal(signal.SIGTERM)
        try:
            self._daemon.wait(20)
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait()
        subprocess.run(
            ["umount", "--lazy", f"{self.base}/data"], capture_output=True, check=False
        )
        shutil.rmtree(self.base)


@pytest.fixture(scope="session")
def scratch():
    base = Path(tempfile.mkdtemp(prefix="engine-"))
    base.chmod(0o755)
    yield base
    shutil.rmtree(base)


@pytest.fixture(scope="session")
def engine(scratch):
    if os.geteuid() != 0:
        unavailable("only root starts a Docker engine")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        unavailable(f"no {', '.join(missing)} (apt-get install docker.io debootstrap)")
    base = scratch / "engine"
    base.mkdir()
    engine = Engine(base)
    try:
        if not engine.answers():
            unavailable(f"dockerd does not start: {engine.log.read_text()[-500:]}")
        yield engine
    finally:
        engine.stop()


@pytest.fixture(scope="session")
def image(engine, scratch):
    """A minimal Debian that can run isobox."""
    root = scratch / "root"
    made = subprocess.run(
        [
            *("debootstrap", "--variant=minbase", "--include=python3,bubblewrap"),
            *(SUITE, str(root), MIRROR),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    if made.returncode:
        unavailable(f"no image: {made.stdout[-500:]}")
    archive = scratch / "image.tar"
    subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
    shutil.rmtree(root)
    engine.call("import", str(archive), "isobox-engine-test")
    archive.unlink()
    return "isobox-engine-test"


@pytest.fixture(scope="session")
def packages(scratch):
    """What isobox depends on, for the image's Python."""
    target = scratch / "packages"
    wanted = ["anyio>=4.6", "typing-extensions>=4.12", "typer>=0.12", "rich>=13"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet"),
            *("--target", str(target), "--python-version", PYTHON),
            *("--only-binary", ":all:", *wanted),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        unavailable(f"pip does not install what isobox needs: {done.stderr[-500:]}")
    return target


class Container:
    """Runs things in new containers with the same options."""

    def __init__(
        self, engine: Engine, image: str, packages: Path, user: int, *options: str
    ) -> None:
        self._engine = engine
        self._command = [
            *("run", "--rm", "--network", "none", "--user", str(user)),
            *("--env", "HOME=/tmp", "--env", "COLUMNS=200"),
            *("--env", "PYTHONPATH=/isobox/src:/isobox/packages"),
            *("--env", "PYTHONDONTWRITEBYTECODE=1"),
            *("--volume", f"{SOURCE}:/isobox/src:ro"),
            *("--volume", f"{packages}:/isobox/packages:ro"),
            *("--volume", f"{INSIDE}:/isobox/inside.py:ro"),
            *options,
            image,
        ]

    def report(self, *arguments: str) -> Any:
        """Return what `inside.py` found."""
        result = self._engine.call(
            *self._command, "python3", "/isobox/inside.py", *arguments, check=False
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def isobox(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line."""
        script = "from isobox.cli import main; main()"
        return self._engine.call(
            *self._command, "python3", "-c", script, *arguments, check=False
        )


@pytest.fixture
def container(engine, image, packages):
    return lambda user, *options: Container(engine, image, packages, user, *options)
