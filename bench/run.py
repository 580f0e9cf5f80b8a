"""Print the performance table: isobox against its rivals, on this machine."""

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Iterator

import environment
from table import Line, markdown

ROWS = {
    "exec": 'run(["/bin/true"]) in a live workspace',
    "files": "read and write 4 KB",
    "scan": "scan a directory of 10,000 entries",
    "create": "create a workspace and run its first command",
    "output": "capture head and tail of 5 GiB of stdout",
    "transfer": "upload and download one file of 1 GiB",
    "many": "200 live workspaces at once",
}


def main() -> int:
    """Run the rows that were asked for, each in a process of its own."""
    chosen = _arguments().only or list(ROWS)
    try:
        python = environment.prepare()
    except subprocess.CalledProcessError:
        print("the rivals could not be installed", file=sys.stderr)
        return 1
    lines: list[Line] = []
    failed: list[str] = []
    for name in chosen:
        print(f"{name}: {ROWS[name]}", file=sys.stderr)
        found = subprocess.run(
            [python, environment.BENCH / "rows.py", name],
            check=False,
            stdout=subprocess.PIPE,
            text=True,
        )
        lines += map(Line.from_json, found.stdout.splitlines())
        if found.returncode:
            failed.append(name)
    print(markdown(lines))
    print()
    print(*_machine(), sep=", ")
    if failed:
        print(f"these rows failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    rows = "\n".join(f"  {name:10}{what}" for name, what in ROWS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"rows:\n{rows}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(ROWS),
        metavar="ROW",
        help="run this row; may be repeated",
    )
    return parser.parse_args()


def _machine() -> Iterator[str]:
    yield f"{os.cpu_count()} cores"
    yield f"Linux {platform.release()}"
    yield f"Python {platform.python_version()}"
    yield subprocess.check_output(["bwrap", "--version"], text=True).strip()
    yield "as root" if os.geteuid() == 0 else "as an ordinary user"


if __name__ == "__main__":
    sys.exit(main())
