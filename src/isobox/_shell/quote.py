"""Text for a shell: any bytes, never interpreted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from isobox._core.results import PATH_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What every POSIX shell takes as the name of a variable.
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: Reads a program of so many bytes from standard input, no byte more, and runs
#: it: arguments of an exec are short and are text, a program is neither.
_LOADER: Final = 'eval "$(dd bs=$1 count=1 iflag=fullblock 2>/dev/null)"'


def encoded(text: str) -> bytes:
    """Return the bytes that a path or an argument is inside."""
    return text.encode("utf-8", PATH_ERRORS)


def decoded(data: bytes) -> str:
    """Return the text that stands for bytes from inside."""
    return data.decode("utf-8", PATH_ERRORS)


def quoted(text: str | bytes) -> bytes:
    """Return one word of shell that means exactly `text`.

    Within single quotes a shell knows no character but the single quote, so
    that there is nothing else to take care of. There is no way to say NUL.
    """
    data = encoded(text) if isinstance(text, str) else text
    return b"'" + data.replace(b"'", b"'\\''") + b"'"


def filled(code: str, **words: str | bytes | int | Iterable[bytes]) -> bytes:
    """Return `code` with each `<word>` in it replaced by quoted words."""
    names = {f"<{name}>".encode(): value for name, value in words.items()}
    pattern = re.compile(b"|".join(re.escape(name) for name in names) or b"(?!)")

    def word(found: re.Match[bytes]) -> bytes:
        value = names[found.group()]
        if isinstance(value, int):
            return b"%d" % value
        if isinstance(value, (str, bytes)):
            return quoted(value)
        return b" ".join(map(quoted, value))

    return pattern.sub(word, code.encode())


def loading(program: bytes, shell: str = "sh") -> list[str]:
    """Return the arguments of a shell that loads `program` from its input."""
    return [shell, "-c", _LOADER, "sh", str(len(program))]
