"""A real Docker engine of our own, images for it, and their trees.

`dockerd` runs on directories of its own below a temporary one, without bridge
and firewall rules, and is stopped by its pid. Where `runsc` is there, it is one
of its runtimes. The images are made without a registry: see `tests.trees`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import trees

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON_IMAGE = "isobox-test-python"
BUSYBOX_IMAGE = "isobox-test-busybox"
PATIENCE = 30


def unavailable(what: str, reason: str) -> Any:
    """Skip in sight of everybody; fail where `what` is required."""
    if what in os.environ.get("ISOBOX_REQUIRE", "").split(","):
        pytest.fail(f"ISOBOX_REQUIRE names {what}: {reason}")
    pytest.skip(f"no {what}: {reason}")


def need(what: str, *tools: str) -> None:
    """Skip, or fail, unless we are root and the tools are there."""
    if os.geteuid() != 0:
        unavailable(what, "only root starts it here")
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        unavailable(what, f"{', '.join(missing)} not found; ./test installs it")


class Engine:
    """One `dockerd`, from its start to its end."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.log = base / "log"
        self.socket = base / "socket"
        self.url = f"unix://{self.socket}"
        (base / "daemon.json").write_text(json.dumps({"runtimes": _runtimes()}))
        self.start()

    def start(self) -> None:
        """Start it; `answers` tells when it is ready."""
        base = self.base
        # Left by a daemon that was killed, it may name a process that nobody reaps.
        (base / "exec/containerd/containerd.pid").unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self._daemon = subprocess.Popen(
                [
                    # It ends with this process, however that ends.
                    *("setpriv", "--pdeathsig", "TERM", "dockerd"),
                    *("--config-file", f"{base}/daemon.json"),
                    *("--data-root", f"{base}/data", "--exec-root", f"{base}/exec"),
                    *("--pidfile", f"{base}/pid", "--host", self.url),
                    *("--bridge", "none"),
                    *("--iptables=false", "--ip6tables=false"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process of the daemon."""
        return self._daemon.pid

    def answers(self, patience: float = PATIENCE) -> bool:
        """Wait until it answers; returns whether it does."""
        deadline = time.monotonic() + patience
        while self._daemon.poll() is None and time.monotonic() < deadline:
            if self.call("version", check=False).returncode == 0:
                return True
            time.sleep(0.05)
        return False

    def call(
        self, *arguments: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run the client."""
        return subprocess.run(
            ["docker", "--host", self.url, *arguments],
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=check,
            timeout=100,
        )

    def add(self, archive: Path, name: str) -> None:
        """Make an image of an archive, unless it is there."""
        if self.call("image", "inspect", name, check=False).returncode:
            self.call("import", str(archive), name)

    def containers(self) -> list[str]:
        """Return the ids of all containers, those that have ended included."""
        return self.call("ps", "--all", "--quiet", "--no-trunc").stdout.split()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send the daemon a signal and wait for its end."""
        self._daemon.send_signal(number)
        try:
            self._daemon.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait()

    def stop(self) -> None:
        """End it and its containers, and remove what it has made."""
        if self._daemon.poll() is not None:
            self.start()
        if self.answers() and (left := self.containers()):
            self.call("rm", "--force", "--volumes", *left, check=False)
        self.end()
        for place in _mounts(self.base):
            subprocess.run(
                ["umount", "--lazy", place], capture_output=True, check=False
            )
        shutil.rmtree(self.base)


def _runtimes() -> dict[str, Any]:
    # A kernel that shows all of /proc/sys/net in every network namespace makes
    # runsc believe that it is in the host's; no container has one here anyway.
    path = shutil.which("runsc")
    only_loopback = ["--network=none"]
    return {"runsc": {"path": path, "runtimeArgs": only_loopback}} if path else {}


def _mounts(base: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = [line.split()[4] for line in lines]
    return sorted((p for p in places if p.startswith(f"{base}/")), reverse=True)


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A directory for the whole session that every user can enter."""
    base = Path(tempfile.mkdtemp(prefix="engine-"))
    base.chmod(0o755)
    yield base
    shutil.rmtree(base)


@pytest.fixture(scope="session")
def engine(scratch: Path) -> Iterator[Engine]:
    """The session's engine."""
    need("docker", "dockerd", "docker", "setpriv")
    base = scratch / "engine"
    base.mkdir()
    engine = Engine(base)
    try:
        if not engine.answers():
            unavailable("docker", f"it does not start: {engine.log.read_text()[-500:]}")
        yield engine
    finally:
        engine.stop()


@pytest.fixture
def docker_host(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine's address, which is in the environment too."""
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    return engine.url


@pytest.fixture(scope="session")
def runsc() -> str:
    """The path of gVisor's `runsc`."""
    need("runsc", "runsc")
    return shutil.which("runsc") or ""


@pytest.fixture(scope="session")
def archives(scratch: Path) -> trees.Archives:
    """The images as archives, made once for each state of their recipe."""
    need("docker", "debootstrap", "tar")
    place = os.environ.get("ISOBOX_TEST_CACHE") or str(scratch / "archives")
    try:
        return trees.archives(Path(place))
    except trees.RecipeError as error:
        return unavailable("docker", str(error))


@pytest.fixture(scope="session")
def python_image(engine: Engine, archives: trees.Archives) -> str:
    """A minimal Debian with Python and bubblewrap."""
    engine.add(archives.python, PYTHON_IMAGE)
    return PYTHON_IMAGE


@pytest.fixture(scope="session")
def busybox_image(engine: Engine, archives: trees.Archives) -> str:
    """Nothing but a static busybox and its names."""
    engine.add(archives.busybox, BUSYBOX_IMAGE)
    return BUSYBOX_IMAGE


@pytest.fixture(scope="session")
def python_tree(scratch: Path, archives: trees.Archives) -> Path:
    """The directory of the Debian; nobody writes to it."""
    return trees.unpack(archives.python, scratch / "python")


@pytest.fixture(scope="session")
def busybox_tree(scratch: Path, archives: trees.Archives) -> Path:
    """The directory with nothing but busybox; nobody writes to it."""
    return trees.unpack(archives.busybox, scratch / "busybox")
