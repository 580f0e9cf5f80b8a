"""The error tree: each error is also the builtin that means the same.

IsoboxError
├── InvalidArgumentError        (ValueError)         an argument cannot be honoured
├── UnsupportedError            (NotImplementedError) this backend cannot do that
├── BackendMissingError         (ImportError)        unknown backend, or its extra
├── BackendUnavailableError     (RuntimeError)       the machine cannot run it
├── WorkspaceClosedError        (RuntimeError)       not initialised, or closed
├── SandboxLostError            (ConnectionError)    the sandbox is gone
│   └── ProtocolError                                the guest broke the protocol
├── PolicyDeniedError           (PermissionError)    the policy said no
├── UnreachableError            (ConnectionError)    a host outside cannot be reached
├── StoreError                  (ConnectionError)    a manager's store failed
│   └── HolderExpiredError                           it took the caller for dead
├── McpError                    (RuntimeError)       an MCP server failed or refused
│   └── McpTimedOutError        (TimeoutError)       it did not answer in time
├── LimitError                  (RuntimeError)       a limit of the workspace
│   ├── BudgetError                                  a budget is spent
│   └── QuotaError                                   a manager has no place left
├── TimedOutError               (TimeoutError)       a command ran out of time
├── QueueTimedOutError          (TimeoutError)       no place became free in time
├── WorkspaceHeldError          (TimeoutError)       another process keeps it
├── NotEntitledError            (PermissionError)    no such workspace of the caller's
├── CommandFailedError          (RuntimeError)       run(check=True), not zero
├── ConflictError               (RuntimeError)       if_match did not match
├── EditMismatchError           (ValueError)         the old text is not there once
├── WrongEncodingError          (UnicodeDecodeError) a text is in another encoding
├── ArchiveError                (ValueError)         an archive member is refused
├── StorageError                (OSError)            the file system said no
└── PathError                   (OSError)
    ├── PathMissingError        (FileNotFoundError)
    ├── PathExistsError         (FileExistsError)
    ├── PathIsDirectoryError    (IsADirectoryError)
    ├── PathNotDirectoryError   (NotADirectoryError)
    ├── PathAccessError         (PermissionError)
    ├── PathOutsideError        (PermissionError)    leaves the workspace
    └── NotRegularFileError                          FIFO, socket, device

A command that exits with a non-zero status is a result, not an error.
"""

from __future__ import annotations

import errno as _errno
from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from isobox._core.results import RunResult

__all__ = [
    "ArchiveError",
    "BackendMissingError",
    "BackendUnavailableError",
    "BudgetError",
    "CommandFailedError",
    "ConflictError",
    "EditMismatchError",
    "HolderExpiredError",
    "InvalidArgumentError",
    "IsoboxError",
    "LimitError",
    "McpError",
    "McpTimedOutError",
    "NotEntitledError",
    "NotRegularFileError",
    "PathAccessError",
    "PathError",
    "PathExistsError",
    "PathIsDirectoryError",
    "PathMissingError",
    "PathNotDirectoryError",
    "PathOutsideError",
    "PolicyDeniedError",
    "ProtocolError",
    "QueueTimedOutError",
    "QuotaError",
    "SandboxLostError",
    "StorageError",
    "StoreError",
    "TimedOutError",
    "UnreachableError",
    "UnsupportedError",
    "WorkspaceClosedError",
    "WorkspaceHeldError",
    "WrongEncodingError",
]


class IsoboxError(Exception):
    """Base of every error that isobox raises.

    Attributes:
        message: What went wrong and what to do about it.
        backend: Name of the backend, once known.
        op: Name of the operation, once known.
        path: The path as the caller named it, if the error is about one.
    """

    def __init__(
        self,
        message: str,
        *,
        backend: str | None = None,
        op: str | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.backend = backend
        self.op = op
        self.path = path

    @override
    def __str__(self) -> str:
        return self.message


class InvalidArgumentError(IsoboxError, ValueError):
    """An argument cannot be honoured; the message says which are allowed."""


class UnsupportedError(IsoboxError, NotImplementedError):
    """The backend lacks the capability that the call needs."""


class BackendMissingError(IsoboxError, ImportError):
    """No such backend, or its optional dependency is not installed."""


class BackendUnavailableError(IsoboxError, RuntimeError):
    """The backend cannot run on this machine; `fix` is the command that helps."""

    def __init__(
        self,
        message: str,
        *,
        fix: str | None = None,
        backend: str | None = None,
        op: str | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(
            f"{message}\n  fix: {fix}" if fix else message,
            backend=backend,
            op=op,
            path=path,
        )
        self.fix = fix


class WorkspaceClosedError(IsoboxError, RuntimeError):
    """The workspace was not initialised, or is closed."""


class SandboxLostError(IsoboxError, ConnectionError):
    """The sandbox is gone: crashed, killed or unreachable.

    Never shown as a program's output or exit code.
    """


class ProtocolError(SandboxLostError):
    """The guest sent what the protocol forbids; its sandbox was destroyed."""


class PolicyDeniedError(IsoboxError, PermissionError):
    """The policy refused the operation; nothing reached the sandbox.

    Attributes:
        rule: The rule that decided.
        reason: Why, in words for a person or a model.
    """

    def __init__(
        self,
        message: str,
        *,
        rule: str = "",
        reason: str = "",
        backend: str | None = None,
        op: str | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(message, backend=backend, op=op, path=path)
        self.rule = rule
        self.reason = reason or message


class UnreachableError(IsoboxError, ConnectionError):
    """A host outside could not be reached, or did not prove who it is."""


class StoreError(IsoboxError, ConnectionError):
    """The store of workspaces cannot be asked, or holds what it cannot."""


class HolderExpiredError(StoreError):
    """The store has given away what this holder held; it has to `beat` anew."""


class McpError(IsoboxError, RuntimeError):
    """An MCP server did not start, ended, broke the protocol, or refused."""


class McpTimedOutError(McpError, TimeoutError):
    """An MCP server did not start, or did not answer, in time."""


class LimitError(IsoboxError, RuntimeError):
    """A limit of the workspace was exceeded."""


class BudgetError(LimitError):
    """The workspace has spent its budget; the operation did not happen.

    Attributes:
        budget: The name of what is spent, such as `ops` or `egress`.
    """

    def __init__(
        self,
        message: str,
        *,
        budget: str,
        backend: str | None = None,
        op: str | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(message, backend=backend, op=op, path=path)
        self.budget = budget


class QuotaError(LimitError):
    """A manager has no place for another workspace, and too many wait for one."""


class QueueTimedOutError(IsoboxError, TimeoutError):
    """A manager had no place for another workspace in time."""


class WorkspaceHeldError(IsoboxError, TimeoutError):
    """Another process has the workspace open and did not hand it over in time.

    Attributes:
        holder: The process: its host, its pid and a random part, with colons
            between, so that a request can be sent there.
    """

    def __init__(self, message: str, *, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


class NotEntitledError(IsoboxError, PermissionError):
    """There is no such workspace, or it is not the caller's; which, is not said."""


class TimedOutError(IsoboxError, TimeoutError):
    """`run(check=True)` ran out of time; `result` has the partial output."""

    def __init__(self, message: str, *, result: RunResult) -> None:
        super().__init__(message, op="spawn")
        self.result = result


class CommandFailedError(IsoboxError, RuntimeError):
    """`run(check=True)` ended with a non-zero status; `result` has it all."""

    def __init__(self, message: str, *, result: RunResult) -> None:
        super().__init__(message, op="spawn")
        self.result = result


class ConflictError(IsoboxError, RuntimeError):
    """Something is not as the caller took it to be; nothing was changed.

    A file is not the one that `if_match` named, or a manager is open already.
    """


class EditMismatchError(IsoboxError, ValueError):
    """The text to replace is absent, or stands more than once."""


class WrongEncodingError(IsoboxError, UnicodeDecodeError):
    """A file is not in the encoding that it was read with."""

    def __init__(self, error: UnicodeDecodeError, *, path: str) -> None:
        UnicodeDecodeError.__init__(
            self, error.encoding, error.object, error.start, error.end, error.reason
        )
        self.message = (
            f"{path!r} is not in {error.encoding}: {error.reason} at byte "
            f"{error.start}; say which it is in with encoding=, such as 'latin-1', or "
            "use read_bytes"
        )
        self.backend = None
        self.op = "read"
        self.path = path


class ArchiveError(IsoboxError, ValueError):
    """An archive holds a member that is refused; nothing of it is left."""


class StorageError(IsoboxError, OSError):
    """The sandbox's file system failed: full, read-only, name too long, ..."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        backend: str | None = None,
        op: str | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(message, backend=backend, op=op, path=path)
        self.errno = code or None


class PathError(IsoboxError, OSError):
    """An error about one path."""

    _code = 0

    def __init__(
        self,
        message: str,
        *,
        backend: str | None = None,
        op: str | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(message, backend=backend, op=op, path=path)
        self.errno = self._code or None
        self.filename = path


class PathMissingError(PathError, FileNotFoundError):
    """Nothing is at the path."""

    _code = _errno.ENOENT


class PathExistsError(PathError, FileExistsError):
    """Something is at the path already."""

    _code = _errno.EEXIST


class PathIsDirectoryError(PathError, IsADirectoryError):
    """A directory is where a file is asked."""

    _code = _errno.EISDIR


class PathNotDirectoryError(PathError, NotADirectoryError):
    """A file is where a directory is asked."""

    _code = _errno.ENOTDIR


class PathAccessError(PathError, PermissionError):
    """The sandbox's user may not do that to the path."""

    _code = _errno.EACCES


class PathOutsideError(PathError, PermissionError):
    """The path leaves the workspace."""

    _code = _errno.EACCES


class NotRegularFileError(PathError):
    """A FIFO, socket or device is where a file is asked; it was not opened."""

    _code = _errno.EINVAL
