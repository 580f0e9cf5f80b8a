"""Where the values of secrets come from, and how each is read."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import shlex
import signal
import stat
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import anyio
import anyio.to_thread

from isobox.errors import InvalidArgumentError, IsoboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import Process

#: The largest value in bytes; the largest real ones, JWTs with many claims, have
#: less than 16 KiB, and so have the headers that servers take.
LARGEST: Final = 64 * 1024
#: What is read of one at most: it may end with a line break.
_READ: Final = LARGEST + 2
#: Seconds that a command or a callback has.
DEADLINE: Final = 30.0
#: Seconds for which a failure is the answer: the requests that waited for it do
#: not each wait for another.
_FAILURE_AGE: Final = 5.0

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: What a header could not carry: CR, LF, NUL and the other control characters.
_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")
_KINDS: Final = (
    "env:VARIABLE, file:/path, command:PROGRAM ARGUMENTS, "
    '("command", program, arguments...) or a callable'
)

Callback = Callable[[], str | Awaitable[str]]


class SecretError(IsoboxError, RuntimeError):
    """A secret's value cannot be had; the message says why, never the value.

    Attributes:
        secret: The secret's name.
    """

    def __init__(self, message: str, *, secret: str) -> None:
        super().__init__(message)
        self.secret = secret


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable of the host."""

    name: str


@dataclass(frozen=True, slots=True)
class ValueFile:
    """A regular file of the host, by its absolute path."""

    path: str


@dataclass(frozen=True, slots=True)
class Command:
    """A program of the host that prints the value.

    It runs in `/`, without a shell and without standard input.

    Attributes:
        argv: The program and its arguments.

    Raises:
        InvalidArgumentError: There is no program, or its path is relative.
    """

    argv: tuple[str, ...]

    def __post_init__(self) -> None:
        given: object = self.argv
        words = () if isinstance(given, str) else tuple(self.argv)
        if not all(isinstance(word, str) for word in cast("Sequence[object]", words)):
            words = ()
        object.__setattr__(self, "argv", words)
        if not self.argv or not self.argv[0] or "\0" in "".join(self.argv):
            raise InvalidArgumentError(
                'a secret\'s command needs a program: ("pass", "show", "token")'
            )
        # SAFETY: a relative path could lead to a file that the sandbox wrote.
        if "/" in self.argv[0] and not os.path.isabs(self.argv[0]):
            raise InvalidArgumentError(
                "a secret's command is found on PATH or has an absolute path"
            )


@dataclass(frozen=True, slots=True)
class Missing:
    """Why there is no value."""

    reason: str


Source = Variable | ValueFile | Command | Callback


def parse(source: str | Sequence[str] | Source) -> Source:
    """Return what `source` says.

    Raises:
        InvalidArgumentError: It says nothing known. The message does not repeat
            it: it may be the value itself, put there by mistake.
    """
    if isinstance(source, (Variable, ValueFile, Command)) or callable(source):
        return source
    if isinstance(source, str):
        return _parse_text(source)
    if not isinstance(source, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentError(f"source must be {_KINDS}")
    words = tuple(source)
    if len(words) < 2 or words[0] != "command":
        raise InvalidArgumentError(f"source must be {_KINDS}")
    return Command(words[1:])


def _parse_text(text: str) -> Source:
    kind, colon, rest = text.partition(":")
    if colon and kind == "env":
        if not _VARIABLE.fullmatch(rest):
            raise InvalidArgumentError("source env: needs the name of a variable")
        return Variable(rest)
    if colon and kind == "file":
        if not os.path.isabs(rest) or "\0" in rest:
            raise InvalidArgumentError("source file: needs an absolute path")
        return ValueFile(rest)
    if colon and kind == "command":
        try:
            return Command(tuple(shlex.split(rest)))
        except ValueError:
            raise InvalidArgumentError(
                "source command: has a quotation without its end"
            ) from None
    raise InvalidArgumentError(f"source must be {_KINDS}")


def missing(source: Source) -> str | None:
    """Return why there is no value; None if there is, or it takes code to know."""
    if not isinstance(source, (Variable, ValueFile)):
        return None
    value = _immediate(source)
    return value.reason if isinstance(value, Missing) else None


class Reader:
    """Reads one secret's value when it is needed.

    A variable or a file is read anew each time. What a command or a callback
    gave is kept for `max_age` seconds, and is asked for once however many wait.
    """

    def __init__(self, name: str, source: Source, *, max_age: float) -> None:
        self._name = name
        self._source = source
        self._max_age = max_age
        self._lock = anyio.Lock()
        self._kept: tuple[float, str | Missing] | None = None

    @property
    def immediate(self) -> bool:
        """Whether reading runs no code and waits for nothing."""
        return isinstance(self._source, (Variable, ValueFile))

    async def read(self) -> str:
        """Return the value.

        Raises:
            SecretError: It cannot be had, or a request could not carry it.
        """
        value = await self._value()
        if isinstance(value, Missing):
            raise SecretError(f"secret {self._name}: {value.reason}", secret=self._name)
        return value

    async def _value(self) -> str | Missing:
        source = self._source
        if isinstance(source, (Variable, ValueFile)):
            return _immediate(source)
        if self._kept is not None and time.monotonic() < self._kept[0]:
            return self._kept[1]
        async with self._lock:
            if self._kept is None or time.monotonic() >= self._kept[0]:
                value = _checked(await _run(source))
                age = _FAILURE_AGE if isinstance(value, Missing) else self._max_age
                self._kept = time.monotonic() + age, value
            return self._kept[1]


def _immediate(source: Variable | ValueFile) -> str | Missing:
    if isinstance(source, Variable):
        return _checked(_variable(source))
    return _checked(_file(source))


def _checked(value: bytes | Missing) -> str | Missing:
    if isinstance(value, Missing):
        return value
    if value.endswith(b"\n"):
        value = value[:-1].removesuffix(b"\r")
    if len(value) > LARGEST:
        return Missing(f"its value has more than {LARGEST} bytes")
    if not value:
        return Missing("its value is empty")
    if _CONTROL.search(value):
        return Missing("its value has a line break or another control character")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Missing("its value is not UTF-8")


def _variable(source: Variable) -> bytes | Missing:
    value = os.environb.get(source.name.encode())
    if value is None:
        return Missing(f"the variable {source.name} is not set")
    return value


def _file(source: ValueFile) -> bytes | Missing:
    # A FIFO must not hang the filter: opened without waiting, then refused.
    try:
        fd = os.open(source.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return Missing(f"its file cannot be opened: {error.strerror}")
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return Missing("its file is not a regular one")
        with open(fd, "rb", closefd=False) as file:
            return file.read(_READ + 1)
    except OSError as error:
        return Missing(f"its file cannot be read: {error.strerror}")
    finally:
        os.close(fd)


async def _run(source: Command | Callback) -> bytes | Missing:
    kind = "command" if isinstance(source, Command) else "callback"
    with anyio.move_on_after(DEADLINE):
        if isinstance(source, Command):
            return await _command(source)
        return await _callback(source)
    return Missing(f"its {kind} took more than {DEADLINE:g} seconds")


async def _command(source: Command) -> bytes | Missing:
    try:
        # SAFETY: `/` holds no configuration that the sandbox could have written,
        # as the current directory might (`.git/config`, `.npmrc`). What it says
        # on standard error may quote the value, so nobody reads it.
        process = await anyio.open_process(
            source.argv,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Missing(
            f"its command cannot be started: {getattr(error, 'strerror', error)}"
        )
    try:
        value = await _printed(process)
        status = 0 if len(value) > _READ else await process.wait()
    finally:
        await _end(process)
    if status != 0:
        return Missing(f"its command ended with status {status}")
    return value


async def _printed(process: Process) -> bytes:
    value = b""
    if process.stdout is not None:
        async for piece in process.stdout:
            value += piece
            if len(value) > _READ:
                break
    return value


async def _end(process: Process) -> None:
    # What outlives a command that ended by itself is meant to: an agent's daemon.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    with anyio.CancelScope(shield=True):
        await process.aclose()


async def _callback(source: Callback) -> bytes | Missing:
    try:
        if inspect.iscoroutinefunction(source):
            value: object = await source()
        else:
            value = await anyio.to_thread.run_sync(source, abandon_on_cancel=True)
            if inspect.isawaitable(value):
                value = await value
    except Exception as error:  # noqa: BLE001 - whatever it raises may quote the value
        return Missing(f"its callback raised {type(error).__name__}")
    if not isinstance(value, str):
        return Missing("its callback returned no str")
    try:
        return value.encode()
    except UnicodeEncodeError:
        return Missing("its callback returned a str that is not UTF-8")
