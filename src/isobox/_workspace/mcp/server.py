"""What an MCP server is declared as."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Literal, cast
from urllib.parse import urlsplit

from isobox._core import hosts
from isobox._core.given import is_number
from isobox.errors import InvalidArgumentError

#: What a model's tool names may hold, and no `__`, which parts them.
_NAME: Final = re.compile(r"(?!.*__)[A-Za-z0-9](?:[A-Za-z0-9_-]{0,30}[A-Za-z0-9])?")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: What HTTP sends as it is: a client would show another in its error.
_VALUE: Final = re.compile(r"(?:[!-~](?:[ -~\t]*[!-~])?)?")
#: Characters of one value, and values of one server.
_LONGEST: Final = 32 * 1024
_MOST: Final = 256
#: Seconds; some clocks count no further.
_LONGEST_WAIT: Final = 1e9
#: Names under which other programs write the same things.
_OTHER_NAMES: Final = {"type": "transport", "serverUrl": "url", "httpUrl": "url"}
#: What others write besides, which is nothing to us: nobody but the policy widens.
_IGNORED: Final = frozenset(("autoApprove", "alwaysAllow", "description", "disabled"))
_OTHER_TRANSPORTS: Final = {"streamable-http": "http", "streamable_http": "http"}
_LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))

Transport = Literal["stdio", "http", "sse"]
State = Literal["idle", "running", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """An MCP server that a workspace may start or reach.

    With a `command` and no `url` it runs inside the sandbox and is spoken with
    over its standard streams. With a `url` on `localhost` it is a port inside,
    which `command` may open. Any other `url` is reached through the filter of
    the network, if the rules allow it; credentials are attached there.

    Attributes:
        name: Letters, digits, `-` and single `_`; at most 32 characters.
        command: Program and arguments, never interpreted.
        url: Where it listens.
        transport: How it is spoken with; what the rest suggests if left out.
        env: Variables of its process.
        cwd: Its directory; the workspace's root if None.
        headers: Sent with every request to a `url`.
        shared: One process serves all sessions; else each has one of its own.
        timeout: Seconds for one call.
        start_timeout: Seconds until it must have said hello.

    Raises:
        InvalidArgumentError: Something of it cannot be.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str | None = None
    transport: Transport | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    shared: bool = False
    timeout: float = 60.0
    start_timeout: float = 30.0

    def __post_init__(self) -> None:
        name = _unchecked(self.name)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidArgumentError(
                f"MCP server {self.name!r}: a name has 1 to 32 letters, digits, `-` "
                "and `_`, and no `__`"
            )
        object.__setattr__(self, "command", self._command())
        self._check_url()
        object.__setattr__(self, "transport", self._transport())
        object.__setattr__(self, "env", self._texts("env", self.env))
        object.__setattr__(self, "headers", self._texts("headers", self.headers))
        self._check_headers()
        if self.cwd is not None:
            self._text("cwd", self.cwd)
        shared = _unchecked(self.shared)
        if not isinstance(shared, bool):
            raise self._wrong("shared", "is not true or false")
        for name in ("timeout", "start_timeout"):
            self._check_seconds(name, getattr(self, name))

    @classmethod
    def of(cls, name: str, given: object) -> McpServer:
        """Return the server that a mapping describes, as JSON files have it.

        Besides our own names it takes what other programs write: `args`, `type`,
        `serverUrl`, and a `command` that is one program.

        Raises:
            InvalidArgumentError: It is no mapping, or something of it cannot be.
        """
        if isinstance(given, McpServer):
            if given.name != name:
                raise InvalidArgumentError(
                    f"MCP server {given.name!r} is declared as {name!r}"
                )
            return given
        if not isinstance(given, Mapping):
            raise InvalidArgumentError(f"MCP server {name!r} is no mapping")
        told = _with_our_names(name, cast("Mapping[object, object]", given))
        return cls(name=name, **told)  # type: ignore[arg-type] # checked by it

    def as_dict(self) -> dict[str, object]:
        """Return it as plain data, from which `of` makes the same."""
        told: dict[str, object] = {}
        for each in fields(self)[1:]:
            value = getattr(self, each.name)
            if isinstance(value, tuple):
                value = list(cast("tuple[str, ...]", value))
            elif isinstance(value, Mapping):
                value = dict(cast("Mapping[str, str]", value))
            told[each.name] = value
        return told

    @property
    def remote(self) -> bool:
        """Whether it runs outside the sandbox."""
        return self.url is not None and self.host not in _LOOPBACK

    @property
    def host(self) -> str:
        """The host of its URL, "" without one."""
        return urlsplit(self.url or "").hostname or ""

    @property
    def port(self) -> int:
        """The port of its URL."""
        parts = urlsplit(self.url or "")
        return parts.port or (443 if parts.scheme == "https" else 80)

    def _command(self) -> tuple[str, ...]:
        given = _unchecked(self.command)
        if not isinstance(given, tuple | list):
            raise self._wrong("command", 'is no sequence of words: ("git", "mcp")')
        words = tuple(cast("Sequence[str]", given))
        if len(words) > _MOST:
            raise self._wrong("command", f"has over {_MOST} words")
        for word in words:
            self._text("command", word)
        return words

    def _check_url(self) -> None:
        if self.url is None:
            if not self.command:
                raise InvalidArgumentError(
                    f"MCP server {self.name}: name a command, or a url"
                )
            if self.headers:
                raise self._wrong("headers", "are sent to a url, and there is none")
            return
        self._text("url", self.url)
        try:
            parts = urlsplit(self.url)
            port, host = parts.port, parts.hostname
        except ValueError as error:
            raise self._wrong("url", str(error)) from None
        if parts.scheme not in ("http", "https") or not host or port == 0:
            raise self._wrong("url", "is not http:// or https:// and a host")
        if parts.username is not None or parts.password is not None:
            raise self._wrong("url", "holds a password; make it a secret instead")
        if host not in _LOOPBACK:
            hosts.normal(host)
            if self.command:
                raise self._wrong("command", "opens a port inside; url names a host")

    def _transport(self) -> Transport:
        usual: Transport = "stdio" if self.url is None else "http"
        given = _unchecked(self.transport)
        if given is None:
            return usual
        if given not in ("stdio", "http", "sse"):
            raise self._wrong("transport", f"{given!r} is not stdio, http or sse")
        if (given == "stdio") != (self.url is None):
            raise self._wrong("transport", f"{given!r} does not go with the rest")
        return given

    def _texts(self, what: str, given: object) -> dict[str, str]:
        if not isinstance(given, Mapping):
            raise self._wrong(what, "is no mapping")
        texts = dict(cast("Mapping[str, str]", given))
        if len(texts) > _MOST:
            raise self._wrong(what, f"has over {_MOST} entries")
        for name, value in texts.items():
            self._text(what, name)
            self._text(f"{what}[{name!r}]", value)
            if not name or "=" in name:
                raise self._wrong(what, f"{name!r} is no name")
        return texts

    def _check_headers(self) -> None:
        for name, value in self.headers.items():
            if not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value):
                raise self._wrong("headers", f"{name!r} is no header")

    def _text(self, what: str, value: object) -> None:
        if not isinstance(value, str):
            raise self._wrong(what, "is no text")
        if "\0" in value or len(value) > _LONGEST:
            raise self._wrong(what, f"holds a NUL, or over {_LONGEST} characters")

    def _check_seconds(self, what: str, value: object) -> None:
        if not (is_number(value) and 0 < cast("float", value) <= _LONGEST_WAIT):
            raise self._wrong(what, "is no number of seconds, or too large")

    def _wrong(self, what: str, why: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"MCP server {self.name}: {what} {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpStatus:
    """A server that is declared, and how it does.

    Attributes:
        server: What it was declared as.
        state: `idle` until it is first needed, and again when it was ended to
            make room; `failed` when it did not start, or died.
        problem: Why it failed.
        log: The last 64 KiB of what it wrote to its standard error, of its log
            notifications, and of what it sent that was no message.
    """

    server: McpServer
    state: State
    problem: str | None = None
    log: str = field(default="", repr=False)


def _unchecked(value: object) -> object:
    """Return what a file or a caller has given, whatever its type was to be."""
    return value


def _with_our_names(name: str, given: Mapping[object, object]) -> dict[str, object]:
    known = {each.name for each in fields(McpServer)} - {"name"}
    told: dict[str, object] = {}
    for key, value in given.items():
        ours = _OTHER_NAMES.get(key, key) if isinstance(key, str) else key
        if ours == "args" or ours in _IGNORED:
            continue
        if not isinstance(ours, str) or ours not in known or ours in told:
            raise InvalidArgumentError(
                f"MCP server {name!r}: {key!r} is not one of args, "
                f"{', '.join(sorted(known))}"
            )
        told[ours] = value
    _join_words(name, told, given.get("args"))
    if isinstance(transport := told.get("transport"), str):
        told["transport"] = _OTHER_TRANSPORTS.get(transport, transport)
    return told


def _join_words(name: str, told: dict[str, object], args: object) -> None:
    command = told.get("command")
    if isinstance(command, str):
        told["command"] = command = [command]
    if args is None:
        return
    if not isinstance(args, list | tuple) or not isinstance(command, list | tuple):
        raise InvalidArgumentError(f"MCP server {name!r}: args is no list of words")
    told["command"] = [
        *cast("list[object]", command),
        *cast("list[object]", args),
    ]
