"""Looks for what begins like a secret, wherever it may look.

Prints how many places it could look at, and then those that have it.
"""

import os
import re
import sys

#: Written so that this program has none itself; the other two are the same in
#: Base64 and in hexadecimal.
WANTED = re.compile(rb"S3NT[I]NEL|UzNOV[E]lORU|53334e54[4]94e454c")
HUGE = 1 << 30


def memory(pid):
    with open(f"/proc/{pid}/maps", encoding="latin-1") as maps:
        areas = [line.split() for line in maps]
    with open(f"/proc/{pid}/mem", "rb", 0) as file:
        for area in areas:
            start, end = (int(at, 16) for at in area[0].split("-"))
            if "r" not in area[1] or end - start > HUGE or area[-1] == "[vvar]":
                continue
            try:
                file.seek(start)
                yield file.read(end - start)
            except (OSError, ValueError, OverflowError):
                continue


def process(pid):
    for name in ("environ", "cmdline"):
        with open(f"/proc/{pid}/{name}", "rb") as file:
            yield file.read()
    yield from memory(pid)


def content(path):
    with open(path, "rb") as file:
        yield file.read()


def has_one(pieces):
    """Whether there is one; None if it could not be looked at."""
    try:
        return any(WANTED.search(piece) for piece in pieces)
    except OSError:
        return None


def files(folder):
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield path


def main(folders):
    pids = filter(str.isdigit, os.listdir("/proc"))
    places = {f"process {pid}": process(pid) for pid in pids}
    for folder in folders:
        places.update({path: content(path) for path in files(folder)})
    found = {name: has_one(pieces) for name, pieces in places.items()}
    print(sum(one is not None for one in found.values()))
    print(*[name for name, one in found.items() if one], sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
