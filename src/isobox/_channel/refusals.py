"""What the guest refuses, as errors of the tree."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from isobox import errors

if TYPE_CHECKING:
    from isobox._channel.stream import GuestRefusal

_PATHS: dict[str, tuple[type[errors.PathError], str]] = {
    "missing": (errors.PathMissingError, "there is nothing at"),
    "exists": (errors.PathExistsError, "something is already at"),
    "is_directory": (errors.PathIsDirectoryError, "this is a directory:"),
    "not_directory": (errors.PathNotDirectoryError, "this is no directory:"),
    "access": (errors.PathAccessError, "the sandbox's user may not do that at"),
    "outside": (errors.PathOutsideError, "this leads out of the workspace:"),
    "loop": (errors.PathError, "links lead in a circle at"),
    "not_regular": (
        errors.NotRegularFileError,
        "this is a FIFO, socket or device, no regular file:",
    ),
}


def error_for(refusal: GuestRefusal, *, op: str, path: str) -> errors.IsoboxError:
    """Return the error that a refusal means, for an operation on `path`.

    An operation on several paths is told which of them it is about.
    """
    path = path if refusal.path is None else refusal.path
    if refusal.code in _PATHS:
        kind, words = _PATHS[refusal.code]
        return kind(f"{words} {path!r}", op=op, path=path)
    if refusal.code == "storage":
        return _storage(refusal, op, path)
    return _other(refusal, op, path)


def _storage(refusal: GuestRefusal, op: str, path: str) -> errors.IsoboxError:
    reason = os.strerror(refusal.number)
    hint = "; free some space" if refusal.number == errno.ENOSPC else ""
    if refusal.number == errno.EROFS:
        hint = "; only the workspace, /tmp and the home directory are writable"
    return errors.StorageError(
        f"{op} of {path!r}: {reason}{hint}", code=refusal.number, op=op, path=path
    )


def _other(refusal: GuestRefusal, op: str, path: str) -> errors.IsoboxError:
    where = {"op": op, "path": path}
    if refusal.code == "conflict":
        return errors.ConflictError(
            f"{path!r} is not the file that it was: {refusal.message}; read it again",
            **where,
        )
    if refusal.code == "mismatch":
        return errors.EditMismatchError(_mismatch(refusal.message, path), **where)
    if refusal.code == "hunk":
        message = f"the patch does not fit {path!r}: {refusal.message}"
        return errors.EditMismatchError(message, **where)
    if refusal.code == "archive":
        return errors.ArchiveError(refusal.message, **where)
    if refusal.code == "too_long":
        return errors.InvalidArgumentError(
            f"one argument has {refusal.message} bytes; the kernel takes 131071: "
            "pass it on standard input, in a file, or as a script",
            **where,
        )
    if refusal.code == "moved":
        return errors.ConflictError(
            f"{path!r} has just been led elsewhere, by a link that changed; nothing "
            "was done. Try again",
            **where,
        )
    if refusal.code == "refused":
        return errors.PathMissingError("nothing listens on that port", op=op)
    if refusal.code == "invalid":
        return errors.InvalidArgumentError(refusal.message, **where)
    return errors.SandboxLostError(f"the guest failed: {refusal.message}", **where)


def _mismatch(message: str, path: str) -> str:
    counts, _, detail = message.partition("\n")
    number, _, found = counts.partition(" ")
    which = "the text" if number == "1" else f"text {number}"
    if found == "0":
        missing = f"{which} to replace is not in {path!r}; it must match exactly"
        return f"{missing}. {detail}" if detail else missing
    return (
        f"{which} to replace stands {found} times in {path!r}{detail}; give more of "
        "what is around it, or ask to replace all"
    )
