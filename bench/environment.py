"""The bench's own virtual environment: the rivals, and isobox from this tree."""

import subprocess
import sys
import venv
from pathlib import Path

BENCH = Path(__file__).resolve().parent
HOME = BENCH / ".venv"
PYTHON = HOME / "bin" / "python"
REQUIREMENTS = BENCH / "requirements.txt"
INSTALLED = HOME / "installed.txt"


def prepare() -> Path:
    """Make the environment unless it is there, and return its interpreter.

    Raises:
        subprocess.CalledProcessError: pip failed; it has said why.
    """
    if not _is_current():
        print(f"installing the rivals into {HOME} ...", file=sys.stderr)
        venv.create(HOME, clear=True, with_pip=True)
        pip = [PYTHON, "-m", "pip", "install", "--quiet"]
        pip += ["--disable-pip-version-check"]
        subprocess.run(
            [*pip, "-r", REQUIREMENTS, "-e", f"{BENCH.parent}[manager]"],
            check=True,
            stdout=sys.stderr,
        )
        INSTALLED.write_text(REQUIREMENTS.read_text())
    return PYTHON


def _is_current() -> bool:
    return (
        PYTHON.exists()
        and INSTALLED.exists()
        and INSTALLED.read_text() == REQUIREMENTS.read_text()
    )
