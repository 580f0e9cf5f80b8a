"""What offloads are called."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from isobox.errors import InvalidArgumentError

_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_DIGEST: Final = re.compile(r"_[0-9a-f]{32}")
#: Characters of a session's or call's id.
_LONGEST: Final = 256
_ENDINGS: Final = {
    "application/json": "json",
    "application/pdf": "pdf",
    "application/zip": "zip",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "audio/wav": "wav",
    "image/gif": "gif",
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/webp": "webp",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "text/plain": "txt",
    "video/mp4": "mp4",
}

#: The names of data, and of what a session offloads; others are not ours.
DATA: Final = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{2,4}")
OFFLOADED: Final = re.compile(r"context\.jsonl|tool_result-[a-z0-9._-]{1,100}\.txt")


def is_text(value: object) -> bool:
    """Return whether it is one, whatever a caller without types has given."""
    return isinstance(value, str)


def is_folder(name: str) -> bool:
    """Return whether a session's directory may be called so."""
    return (_PLAIN.fullmatch(name) or _DIGEST.fullmatch(name)) is not None


def folder_of(session_id: str) -> str:
    """Return the directory of a session, relative to the workspace's root.

    No two sessions share one, not even where case is not told apart.

    Raises:
        InvalidArgumentError: The id is empty, has more than 256 characters, or
            holds control characters or half a surrogate pair.
    """
    return f"sessions/{safe('session_id', session_id)}"


def safe(what: str, text: str) -> str:
    """Return a text as the name of a file, a digest in place of a strange one.

    Raises:
        InvalidArgumentError: It cannot be an id.
    """
    if not is_text(text):
        raise InvalidArgumentError(f"{what}={text!r} is no text")
    if _PLAIN.fullmatch(text):
        return text
    halves = any(0xD800 <= ord(character) < 0xE000 for character in text)
    controls = any(ord(character) < 32 or character == "\x7f" for character in text)
    if not 0 < len(text) <= _LONGEST or halves or controls:
        raise InvalidArgumentError(
            f"{what}={text[:_LONGEST]!r}: an id has 1 to {_LONGEST} characters, and "
            "none that controls"
        )
    # A plain name never begins so, and nobody finds another text for it.
    return "_" + hashlib.sha256(text.encode()).hexdigest()[:32]


def data_name(data: bytes, media_type: str) -> str:
    """Return the name of bytes, which says what they are and of what kind."""
    ending = _ENDINGS.get(media_type.partition(";")[0].strip().lower(), "bin")
    return f"{hashlib.sha256(data).hexdigest()}.{ending}"
