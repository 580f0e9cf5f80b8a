"""Begins a daemon: reads the guest from standard input and runs it.

This text is an argument of the container's command. What follows on standard
input is code for one version of Python, that version's mark, the source for any
other, and then what the guest itself reads.
"""

import posix
from _frozen_importlib_external import MAGIC_NUMBER


def _taken(size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = posix.read(0, size - len(data))
        if not piece:
            posix._exit(1)
        data += piece
    return data


def _part() -> bytes:
    return _taken(int.from_bytes(_taken(4), "big"))


def _load() -> None:
    mark, code, source = _part(), _part(), _part()
    if mark == MAGIC_NUMBER:
        import marshal  # noqa: PLC0415 - not every version needs it

        program = marshal.loads(code)  # noqa: S302 - the host's own
    else:
        program = compile(source, "guest", "exec", dont_inherit=True)
    guest = {"__name__": "guest"}
    exec(program, guest)  # noqa: S102 - the host's own
    guest["daemon"]()  # type: ignore[operator]


if __name__ == "__main__":
    _load()
