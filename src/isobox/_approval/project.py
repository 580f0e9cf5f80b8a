"""Answers that are kept for a project, in a file that its sandboxes never see."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from isobox._approval.memory import ApprovalsWarning
from isobox._approval.question import Answer

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from isobox._approval.key import Key

#: Answers of one project, and bytes of its file.
_MOST: Final = 1000
_LARGEST: Final = 8 << 20
#: Seconds to wait for another process that writes the same file.
_PATIENCE: Final = 5.0
_OPEN: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Project:
    """Keeps answers for a directory, beyond the life of a workspace.

    They are in `$XDG_STATE_HOME/isobox/approvals`, by default below
    `~/.local/state`, in a file that its owner alone reads and writes.

    Args:
        directory: The project's, as the host names it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = os.path.realpath(directory)
        name = hashlib.sha256(os.fsencode(self._directory)).hexdigest()[:32]
        self.path = os.path.join(_home(), f"{name}.json")

    def read(self) -> Mapping[Key, Answer]:
        """Return the answers; none, with a warning, if they are not to be trusted."""
        try:
            with self._opened() as folder:
                return self._answers(folder)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            warnings.warn(
                f"the answers in {self.path} are not used: {error}",
                ApprovalsWarning,
                stacklevel=2,
            )
            return {}

    def keep(self, keys: Sequence[Key], answer: Answer) -> None:
        """Add an answer, or change it; what others add meanwhile stays.

        Raises:
            OSError: It cannot be kept; the message says why.
        """
        self._refuse_inside()
        os.makedirs(_home(), mode=0o700, exist_ok=True)
        with self._opened() as folder, _locked(folder, self._name(".lock")):
            answers = {**self._held(folder), **dict.fromkeys(keys, answer)}
            if len(answers) > _MOST:
                raise OSError(f"{self.path} holds {_MOST} answers; remove some")
            self._write(folder, answers)

    def _held(self, folder: int) -> Mapping[Key, Answer]:
        try:
            return self._answers(folder)
        except FileNotFoundError:
            return {}
        except ValueError as error:
            # It is a person's to repair; nothing of it is lost to us.
            raise OSError(f"{self.path}: {error}") from None

    @contextlib.contextmanager
    def _opened(self) -> Generator[int]:
        """Open the directory of all approvals, if it is nobody else's.

        Raises:
            OSError: It is missing, or another could write there.
        """
        self._refuse_inside()
        folder = os.open(_home(), os.O_DIRECTORY | _OPEN)
        try:
            _check(os.fstat(folder), _home())
            yield folder
        finally:
            os.close(folder)

    def _refuse_inside(self) -> None:
        # SAFETY: what works in the project would answer for the person. By
        # identity and not by name: a directory can have several.
        for above in (Path(self.path), *Path(os.path.realpath(self.path)).parents):
            with contextlib.suppress(FileNotFoundError):
                if above.samefile(self._directory):
                    raise PermissionError(
                        f"{self.path} is inside the workspace's directory; set "
                        "XDG_STATE_HOME to a directory elsewhere"
                    )

    def _answers(self, folder: int) -> Mapping[Key, Answer]:
        fd = os.open(self._name(".json"), os.O_RDONLY | _OPEN, dir_fd=folder)
        with open(fd, "rb") as file:
            _check(os.fstat(fd), self.path)
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ValueError("it is too large")
        return _parsed(data, self._directory)

    def _write(self, folder: int, answers: Mapping[Key, Answer]) -> None:
        data = json.dumps(
            {
                "version": 1,
                "project": os.fsencode(self._directory).decode("utf-8", "replace"),
                "answers": [_row(key, answer) for key, answer in answers.items()],
            },
            indent=1,
        )
        name = self._name(f".{os.urandom(8).hex()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
        fd = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            with open(fd, "wb") as file:
                file.write(data.encode("ascii"))
                file.flush()
                os.fsync(fd)
            os.replace(name, self._name(".json"), src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise

    def _name(self, suffix: str) -> str:
        return Path(self.path).stem + suffix


def _home() -> str:
    given = os.environ.get("XDG_STATE_HOME", "")
    # A relative one is invalid, says the XDG Base Directory Specification.
    state = given if os.path.isabs(given) else os.path.expanduser("~/.local/state")
    return os.path.join(state, "isobox", "approvals")


def _check(found: os.stat_result, path: str) -> None:
    """Raise unless it is ours, and nobody else could have written it."""
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to user {found.st_uid}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"others can write {path}; run: chmod go-w {path}")
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise PermissionError(f"{path} is no file")


@contextlib.contextmanager
def _locked(folder: int, name: str) -> Generator[None]:
    flags = os.O_RDWR | os.O_CREAT | _OPEN
    fd = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        _lock(fd, time.monotonic() + _PATIENCE)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, until: float) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError("another process holds the answers") from None
            time.sleep(0.02)
        else:
            return


def _row(key: Key, answer: Answer) -> dict[str, object]:
    row: dict[str, object] = {"question": list(key), "allow": answer.allow}
    return {**row, "message": answer.message, "by": answer.by}


def _parsed(data: bytes, directory: str) -> Mapping[Key, Answer]:
    try:
        given = cast("object", json.loads(data))
    except RecursionError:
        raise ValueError("it is no JSON of ours") from None
    fields = _fields(given, ("version", "project", "answers"))
    named = os.fsencode(directory).decode("utf-8", "replace")
    if fields["version"] != 1 or fields["project"] != named:
        raise ValueError("it is of another version, or of another project")
    rows = _list(fields["answers"])
    if len(rows) > _MOST:
        raise ValueError("it holds too many answers")
    return dict(map(_answer, rows))


def _answer(row: object) -> tuple[Key, Answer]:
    fields = _fields(row, ("question", "allow", "message", "by"))
    key = tuple(_text(word) for word in _list(fields["question"]))
    if not isinstance(fields["allow"], bool):
        raise ValueError("an answer is no answer")  # noqa: TRY004 - it is data
    message, by = _text(fields["message"]), _text(fields["by"])
    return key, Answer(fields["allow"], "project", message, by)


def _list(given: object) -> list[object]:
    if not isinstance(given, list):
        raise ValueError("it has something other than a list")  # noqa: TRY004 - data
    return cast("list[object]", given)


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise ValueError("it has something other than a text")  # noqa: TRY004 - data
    return given


def _fields(given: object, names: tuple[str, ...]) -> dict[str, object]:
    """Return an object that has these fields, and no others."""
    if not isinstance(given, dict):
        raise ValueError("it has something other than an object")  # noqa: TRY004
    fields = cast("dict[str, object]", given)
    if set(fields) != set(names):
        raise ValueError(f"an object has other fields than {', '.join(names)}")
    return fields
