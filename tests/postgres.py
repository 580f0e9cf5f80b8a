"""A real PostgreSQL server of our own, and an empty place in it for each test.

It runs on a directory of its own below a temporary one, listens on a socket in it
and nowhere else, and is stopped by its pid.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engines import unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 30
#: The server refuses to be root.
_NOBODY = 65534
_AS_NOBODY = (
    *("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"),
    *("--pdeathsig", "INT"),
)
_FAST = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")


class Postgres:
    """One server.

    Attributes:
        base: Its directory; the socket is in it.
    """

    def __init__(self, programs: Path, base: Path) -> None:
        self._programs = programs
        self._as = _AS_NOBODY if os.geteuid() == 0 else ()
        self._numbers = count(1)
        self.base = base
        self.log = base / "log"
        self._run("initdb", "--auth=trust", "--username=isobox", "--no-sync")
        self.start()

    def _argv(self, program: str, *arguments: str) -> list[str]:
        path = str(self._programs / program)
        return [*self._as, path, "-D", str(self.base / "data"), *arguments]

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            self._argv(program, *arguments),
            capture_output=True,
            text=True,
            check=False,
            cwd=self.base,
            timeout=100,
        )
        if done.returncode:
            unavailable("postgres", f"{program}: {done.stderr[-500:]}")

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = [*_FAST, "listen_addresses=", f"unix_socket_directories={self.base}"]
        flags = [flag for option in options for flag in ("-c", option)]
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                self._argv("postgres", *flags), stdout=log, stderr=log, cwd=self.base
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._server.poll() is not None or time.monotonic() > deadline:
                unavailable("postgres", f"it ends: {self.log.read_text()[-500:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        ready = [str(self._programs / "pg_isready"), "-q", "-h", str(self.base)]
        return subprocess.run(ready, check=False).returncode == 0

    def sql(self, statement: str) -> str:
        """Run a statement, and return what it says."""
        psql = [str(self._programs / "psql"), "-h", str(self.base), "-U", "isobox"]
        quiet = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        return subprocess.run(
            [*psql, *quiet, "-c", statement, "postgres"],
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        ).stdout

    def place(self) -> str:
        """Return the URL of an empty schema."""
        name = f"place{next(self._numbers)}"
        self.sql(f"CREATE SCHEMA {name}")
        return f"postgresql://isobox@/postgres?host={self.base}&search_path={name}"

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it, whoever is connected."""
        self._server.send_signal(how)
        try:
            self._server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()


def _programs() -> Path:
    # Debian keeps those of a server off the PATH.
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    path = shutil.which("initdb") or (found[-1] if found else None)
    if path is None:
        unavailable("postgres", "initdb is not installed; Debian: postgresql")
    return Path(str(path)).resolve().parent


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The session's server."""
    programs = _programs()
    base = Path(tempfile.mkdtemp(prefix="postgres-"))
    server = None
    try:
        if os.geteuid() == 0:
            os.chown(base, _NOBODY, _NOBODY)
        server = Postgres(programs, base)
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(base)
