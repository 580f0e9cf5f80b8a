"""Secrets: what is attached outside to the requests that come from inside."""

from __future__ import annotations

import functools
import re
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Final

from isobox._core import hosts
from isobox._core.given import is_number, texts
from isobox._egress import sources
from isobox._egress.sources import Command, SecretError, Source
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Command", "Secret", "SecretError", "SigV4"]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VISIBLE: Final = re.compile(r"[ -~]*")
_WORD: Final = re.compile(r"[A-Za-z0-9-]+")
_KEY_ID: Final = re.compile(r"\w+", re.ASCII)
_HTTPS: Final = 443

#: Variables that programs obey or isobox sets: a placeholder there breaks them.
_RESERVED: Final = frozenset(
    (
        "BASHOPTS", "BASH_ENV", "CDPATH", "ENV", "HOME", "IFS", "LANG", "LOGNAME",
        "OLDPWD", "PATH", "PROMPT_COMMAND", "PS1", "PS2", "PS4", "PWD", "SHELL",
        "SHELLOPTS", "SHLVL", "TERM", "TMPDIR", "USER",
        "ALL_PROXY", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO",
        "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "CURL_CA_BUNDLE", "DENO_CERT",
        "GIT_SSL_CAINFO", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "HTTPLIB2_CA_CERTS",
        "HTTPS_PROXY", "HTTP_PROXY", "JAVA_TOOL_OPTIONS", "NIX_SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS", "NODE_USE_ENV_PROXY", "NO_PROXY", "PIP_CERT",
        "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "all_proxy", "http_proxy",
        "https_proxy", "no_proxy", "npm_config_cafile",
    )
)  # fmt: skip
#: What the dynamic linker obeys, and what isobox's own guest is told by.
_RESERVED_BEGINS: Final = ("LD_", "DYLD_", "LC_", "ISOBOX_")

#: Headers that say where a request goes and where it ends; no secret is there.
FRAMING: Final = frozenset(
    (
        b"connection", b"content-length", b"expect", b"host", b"keep-alive",
        b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SigV4:
    """Signs requests again as AWS asks (Signature Version 4).

    The secret that has it is the secret access key. Inside, programs sign with
    its placeholder; outside, that signature is replaced.

    Attributes:
        access_key_id: Names the key; a secret if that is to stay outside too.
        region: Such as `eu-west-1`.
        service: Such as `s3` or `bedrock`.
        session_token: What temporary keys have besides.

    Raises:
        InvalidArgumentError: A name has characters that none has.
    """

    access_key_id: Secret | str
    region: str
    service: str
    session_token: Secret | None = None

    def __post_init__(self) -> None:
        for what in ("region", "service"):
            if not _is(_WORD, getattr(self, what)):
                raise InvalidArgumentError(f"SigV4: {what} is not a name of AWS's")
        key = self.access_key_id
        if not isinstance(key, Secret) and not _is(_KEY_ID, key):
            raise InvalidArgumentError("SigV4: access_key_id is not a key's id")
        token: object = self.session_token
        if token is not None and not isinstance(token, Secret):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentError("SigV4: session_token is no Secret; give one")


@dataclass(frozen=True, slots=True)
class Secret:
    """A credential that stays on the host.

    Inside, an environment variable holds a placeholder. On its way out, and only
    to `hosts` over verified TLS, the placeholder is replaced by the value
    wherever the program put it: in a header's value, in HTTP Basic credentials,
    in the query. At most one of `header`, `query`, `basic` and `sigv4` besides
    puts the value on every request to `hosts`, in place of what the program put
    there. A placeholder that goes anywhere else is refused.

    Attributes:
        name: Letters, digits and `_`; no variable that programs obey themselves,
            such as `PATH`, unless `env` is another.
        source: Where the value is read when a request first needs it:
            `"env:VARIABLE"`, `"file:/path"`, `"command:program arguments"`,
            `("command", program, arguments...)`, a `Command`, or a callable,
            sync or async, that returns it. No shell is involved. The value has
            at most 64 KiB and no control character; one final line break is
            not part of it. A command or a callback has 30 seconds.
        hosts: Names, addresses and `*.` with a name, each with `:port` if that
            is not 443.
        header: Such as `"Authorization: Bearer {}"`.
        query: Such as `"api_key={}"`.
        basic: The user name of HTTP Basic credentials whose password is the
            value.
        sigv4: Signs AWS requests again.
        env: The variable inside; None is `name`.
        max_age: Seconds for which the answer of a command or a callback holds.

    Raises:
        InvalidArgumentError: One of these cannot be honoured. The message never
            repeats the source.
    """

    name: str
    _: KW_ONLY
    source: str | Sequence[str] | Source = field(repr=False, compare=False)
    hosts: Sequence[str]
    header: str | None = None
    query: str | None = None
    basic: str | None = None
    sigv4: SigV4 | None = None
    env: str | None = None
    max_age: float = 300.0
    origin: Source = field(init=False, repr=False)
    scopes: tuple[tuple[str, int], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _is(_NAME, self.name):
            # A name that is refused may be a value, put there by mistake.
            raise InvalidArgumentError(
                "a secret's name has letters, digits and _, at most 64, "
                "and does not begin with a digit"
            )
        try:
            self._settle()
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"secret {self.name}: {error}") from None

    def _settle(self) -> None:
        self._check_types()
        self._fix("origin", sources.parse(self.source))
        self._fix("hosts", _several(self.hosts))
        self._fix("scopes", tuple(_scope(host) for host in self.hosts))
        if self.env is not None and not _NAME.fullmatch(self.env):
            raise InvalidArgumentError("env is not the name of a variable")
        if self.variable in _RESERVED or self.variable.startswith(_RESERVED_BEGINS):
            raise InvalidArgumentError(
                f"{self.variable} is a variable that programs or isobox itself obey; "
                'name another one, such as env="API_TOKEN"'
            )
        if not (is_number(self.max_age) and self.max_age >= 0):
            raise InvalidArgumentError("max_age is a number of seconds")
        templates = (self.header, self.query, self.basic, self.sigv4)
        if sum(template is not None for template in templates) > 1:
            raise InvalidArgumentError("only one of header, query, basic and sigv4")
        if self.header is not None:
            header_template(self.header)
        if self.query is not None:
            query_template(self.query)
        if self.basic is not None:
            _check_user(self.basic)

    def _check_types(self) -> None:
        for what in ("header", "query", "basic", "env"):
            if not isinstance(getattr(self, what), str | None):
                raise InvalidArgumentError(f"{what} is no text (str)")
        how: object = self.sigv4
        if how is not None and not isinstance(how, SigV4):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentError("sigv4 is no SigV4; give SigV4(...)")

    def _fix(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def variable(self) -> str:
        """The environment variable that holds the placeholder inside."""
        return self.env or self.name

    @property
    def place(self) -> str | None:
        """What its template fills in a request: no two may fill the same."""
        if self.basic is not None or self.sigv4 is not None:
            return "header authorization"
        if self.header is not None:
            return f"header {header_template(self.header)[0].lower()}"
        if self.query is not None:
            return f"parameter {query_template(self.query)[0]}"
        return None

    def applies(self, host: str, port: int) -> bool:
        """Whether the value may go to `host`, a name in the one form, at `port`."""
        return any(
            port == at and hosts.matches(pattern, host) for pattern, at in self.scopes
        )

    def is_for(self, host: str) -> bool:
        """Whether the value may go to `host`, at one port or another."""
        return any(hosts.matches(pattern, host) for pattern, _ in self.scopes)

    @classmethod
    def parse(cls, text: str) -> Secret:
        """Return the secret that `NAME=SOURCE@HOST[,HOST]` describes.

        Raises:
            InvalidArgumentError: It is not of that form.
        """
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentError("a secret is text: NAME=SOURCE@HOST[,HOST]")
        name, equals, rest = text.partition("=")
        source, at, names = rest.rpartition("@")
        if not equals or not at:
            raise InvalidArgumentError(
                "a secret is NAME=SOURCE@HOST[,HOST], such as "
                "TOKEN=env:TOKEN@api.example.org"
            )
        return cls(name, source=source, hosts=names.split(","))


@functools.lru_cache(1024)
def header_template(text: str) -> tuple[str, str]:
    """Return the header's name and the value that `{}` stands in.

    Raises:
        InvalidArgumentError: It is no header, or one of those that say where a
            request goes or ends.
    """
    name, colon, value = text.partition(":")
    value = value.strip(" ")
    if not colon or not _TOKEN.fullmatch(name) or not _VISIBLE.fullmatch(value):
        raise InvalidArgumentError('header is not of the form "Name: Bearer {}"')
    if value.count("{}") != 1:
        raise InvalidArgumentError("header has {} once, where the value goes")
    if name.lower().encode() in FRAMING:
        raise InvalidArgumentError(f"header {name} is not for secrets")
    return name, value


def query_template(text: str) -> tuple[str, str]:
    """Return the parameter's name and the value that `{}` stands in.

    Raises:
        InvalidArgumentError: It is not of the form `name={}`.
    """
    name, equals, value = text.partition("=")
    if not name or not equals or value.count("{}") != 1:
        raise InvalidArgumentError('query is not of the form "api_key={}"')
    return name, value


def _check_user(user: str) -> None:
    if ":" in user or not _VISIBLE.fullmatch(user):
        raise InvalidArgumentError("basic is a user name, without a colon")


def _several(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise InvalidArgumentError("hosts is a list of names, not one text")
    listed = texts("hosts", names, example="api.example.org")
    if not listed:
        raise InvalidArgumentError("hosts names at least one host")
    return listed


def _is(form: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and form.fullmatch(value) is not None


def _scope(text: str) -> tuple[str, int]:
    name, port = _port(text)
    if name == "*":
        raise InvalidArgumentError(
            "host '*' is every host; name those that a secret is for"
        )
    return hosts.pattern(name), port


def _port(text: str) -> tuple[str, int]:
    name, colon, digits = text.rpartition(":")
    if not colon or (":" in name and not name.endswith("]")):
        return text, _HTTPS
    if not re.fullmatch(r"[0-9]{1,5}", digits) or not 1 <= int(digits) <= 0xFFFF:
        raise InvalidArgumentError(f"host {text!r}: no such port")
    return name, int(digits)
