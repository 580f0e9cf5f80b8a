"""The command line: `isobox run`, `isobox doctor`, `isobox demo`."""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit with its status."""
    # Here and not above: `isobox.cli` is imported without its libraries.
    from isobox.cli.app import start  # noqa: PLC0415

    start()
