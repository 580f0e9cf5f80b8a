"""The key that seals an audit file. It stays on the host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Variables of the host that give the key, or name a file with it.
KEY_VARIABLE: Final = "ISOBOX_AUDIT_KEY"
FILE_VARIABLE: Final = "ISOBOX_AUDIT_KEY_FILE"
#: A key is short; whatever is longer is another file.
_LONGEST: Final = 65536


def key_of_file(path: str | os.PathLike[str]) -> bytes:
    """Return the key in a file: its bytes without line ends after them.

    Raises:
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        return file.read(_LONGEST).rstrip(b"\r\n")


def key_of_environment(environment: Mapping[str, str] = os.environ) -> bytes | None:
    """Return the key that the host's environment gives, None if it gives none.

    Raises:
        OSError: The file that it names cannot be read.
    """
    if path := environment.get(FILE_VARIABLE):
        return key_of_file(path)
    if text := environment.get(KEY_VARIABLE):
        return os.fsencode(text)
    return None
