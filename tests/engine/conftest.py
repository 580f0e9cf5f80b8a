"""Containers that run isobox itself, with their own interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import trees
from tests.engines import Engine, unavailable

SOURCE = Path(__file__).parents[2] / "src"
INSIDE = Path(__file__).with_name("inside.py")


@pytest.fixture(scope="session")
def packages(scratch):
    """What isobox depends on, for the image's Python."""
    target = scratch / "packages"
    wanted = ["anyio>=4.6", "typing-extensions>=4.12", "typer>=0.12", "rich>=13"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet"),
            *("--target", str(target), "--python-version", trees.PYTHON),
            *("--only-binary", ":all:", *wanted),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        unavailable(
            "docker", f"pip does not install what isobox needs: {done.stderr[-500:]}"
        )
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
def container(engine, python_image, packages):
    return lambda user, *options: Container(
        engine, python_image, packages, user, *options
    )
