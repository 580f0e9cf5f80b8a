"""The vault: placeholders go in, values go out to the hosts they are for."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from isobox._core import hosts
from isobox._egress import placeholders, request, sigv4
from isobox._egress.placeholders import Finder, Scanner
from isobox._egress.redact import Redactor
from isobox._egress.request import Request
from isobox._egress.secret import FRAMING, Secret, header_template, query_template
from isobox._egress.sources import Reader, SecretError
from isobox.errors import InvalidArgumentError, PolicyDeniedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from isobox._egress.secret import SigV4

__all__ = ["Request", "Scanner", "StrayPlaceholderError", "Vault"]

#: Bytes of placeholders that one request may hold: some forty. Each may become
#: 64 KiB.
_MOST: Final = 2048
#: Values of one secret that are remembered, for redaction, once it has another.
_REMEMBERED: Final = 8


class StrayPlaceholderError(PolicyDeniedError):
    """A placeholder was on its way to where its secret may not go.

    Attributes:
        secret: The secret's name.
    """

    def __init__(self, message: str, *, secret: str) -> None:
        super().__init__(message, rule=f"secret {secret}")
        self.secret = secret


class Vault:
    """Holds a workspace's secrets and attaches them to its requests.

    Raises:
        InvalidArgumentError: Two secrets share a name, a variable, or the place
            in a request to the same host.
    """

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self._secrets = _with_parts(secrets)
        _check_variables(self._secrets)
        _check_places(self._secrets)
        self._readers = {
            s.name: Reader(s.name, s.origin, max_age=s.max_age) for s in self._secrets
        }
        self._placeholders = placeholders.make(s.name for s in self._secrets)
        self._finder = Finder(self._placeholders)
        self._known: dict[str, deque[str]] = {}
        self._redactor = Redactor(())

    def environment(self) -> dict[str, str]:
        """Return the variables inside, with a placeholder each."""
        return {s.variable: self._placeholders[s.name] for s in self._secrets}

    @property
    def has_secrets(self) -> bool:
        """Whether there is anything in it."""
        return bool(self._secrets)

    def applies(self, host: str, port: int) -> bool:
        """Whether requests there may carry a secret."""
        return any(secret.applies(host, port) for secret in self._secrets)

    def may_answer(self, host: str) -> bool:
        """Whether a secret is for this host, on whichever port."""
        return any(secret.is_for(host) for secret in self._secrets)

    def find(self, data: bytes) -> str | None:
        """Return the name of the secret whose placeholder is in `data`."""
        return self._finder.find(data)

    def scanner(self) -> Scanner:
        """Return what finds placeholders in a stream of data."""
        return Scanner(self._finder)

    async def redactor(self) -> Redactor:
        """Return what masks the values that are known by now, and those that will be.

        Those of variables and files are read for it; no command and no callback
        runs.
        """
        for name, reader in self._readers.items():
            if reader.immediate:
                try:
                    self._learn(name, await reader.read())
                except SecretError:
                    continue
        return self.known()

    def known(self) -> Redactor:
        """Return what masks the values that were or will be read."""
        return self._redactor.fresh()

    def needs_body(self, sent: Request) -> bool:
        """Whether `attach` must have the body: AWS's signature covers it."""
        return any(
            secret.sigv4 is not None and sigv4.needs_body(sent, secret.sigv4)
            for secret in self._here(sent)
        )

    async def attach(self, sent: Request) -> Request:
        """Put the secrets that are for its host on a request.

        Returns:
            `sent` itself if it carries none, else another that asks for an
            answer without compression, so that it can be redacted.

        Raises:
            StrayPlaceholderError: It holds a placeholder whose secret is not for
                this host, or where none may be; no value was read.
            PolicyDeniedError: It holds too many, or AWS's signature cannot be
                made again.
            SecretError: A value cannot be had.
        """
        here = self._here(sent)
        placed = self._placed(sent, here)
        used = [s for s in here if s.name in placed or s.place is not None]
        if not used:
            return sent
        values = {secret.name: await self._value(secret) for secret in used}
        filled = self._swap(sent, values) if placed else sent
        # A signature covers what the others put there.
        for secret in sorted(used, key=lambda secret: secret.sigv4 is not None):
            filled = await self._fill(filled, secret, values[secret.name])
        return filled.with_header(b"Accept-Encoding", b"identity")

    def _here(self, sent: Request) -> list[Secret]:
        return [s for s in self._secrets if s.applies(sent.host, sent.port)]

    def _placed(self, sent: Request, here: list[Secret]) -> set[str]:
        """Return the names of the secrets whose placeholders it holds."""
        whole = sent.whole()
        if self.find(whole) is None:
            return set()
        rest = self._swap(sent, {secret.name: "" for secret in here}).whole()
        stray = self.find(rest)
        if stray is not None:
            raise _stray(stray, sent, here)
        # SAFETY: placeholders of 50 bytes must not become megabytes.
        if len(whole) - len(rest) > _MOST:
            raise PolicyDeniedError(
                "a request with so many placeholders is none that a program needs",
                rule="secrets",
            )
        return {s.name for s in here if self._swap(sent, {s.name: ""}) != sent}

    def _swap(self, sent: Request, values: Mapping[str, str]) -> Request:
        """Put values in the place of their placeholders, where they may be."""
        path, mark, query = sent.target.partition(b"?")
        quoted = {
            name: quote(value, safe="").encode() for name, value in values.items()
        }
        plain = {name: value.encode() for name, value in values.items()}
        headers = tuple(
            (name, value)
            if name.lower() in FRAMING
            else (name, self._in_header(value, plain))
            for name, value in sent.headers
        )
        target = path + mark + self._finder.replace(query, quoted)
        return replace(sent, target=target, headers=headers)

    def _in_header(self, text: bytes, values: Mapping[str, bytes]) -> bytes:
        pair = request.credentials(text)
        if pair is not None:
            swapped = self._finder.replace(pair, values)
            return text if swapped == pair else request.basic(swapped)
        swapped = self._finder.replace(text, values)
        # White space at the ends is not part of a header's value.
        return text if swapped == text else swapped.strip(b" \t")

    async def _fill(self, sent: Request, secret: Secret, value: str) -> Request:
        """Put a value where its secret's template says."""
        if secret.header is not None:
            name, text = header_template(secret.header)
            filled = text.replace("{}", value).strip(" ")
            return sent.with_header(name.encode(), filled.encode())
        if secret.basic is not None:
            pair = request.basic(f"{secret.basic}:{value}".encode())
            return sent.with_header(b"Authorization", pair)
        if secret.query is not None:
            name, text = query_template(secret.query)
            return sent.with_parameter(name, text.replace("{}", value))
        if secret.sigv4 is not None:
            return sigv4.sign(sent, await self._keys(secret.sigv4, value), secret.sigv4)
        return sent

    async def _keys(self, how: SigV4, value: str) -> sigv4.Keys:
        identity, token = how.access_key_id, how.session_token
        return sigv4.Keys(
            identity=await self._value(identity)
            if isinstance(identity, Secret)
            else identity,
            secret=value,
            token=await self._value(token) if token is not None else None,
        )

    async def _value(self, secret: Secret) -> str:
        value = await self._readers[secret.name].read()
        self._learn(secret.name, value)
        return value

    def _learn(self, name: str, value: str) -> None:
        known = self._known.setdefault(name, deque(maxlen=_REMEMBERED))
        if value not in known:
            known.append(value)
            every = [value for values in self._known.values() for value in values]
            self._redactor.learn(value.encode() for value in every)


def _stray(name: str, sent: Request, here: list[Secret]) -> StrayPlaceholderError:
    if any(secret.name == name for secret in here):
        reason = "stands where none may be; put it in a header's value or the query"
    else:
        reason = f"is on its way to {sent.host}:{sent.port}, which is not its host"
    return StrayPlaceholderError(
        f"the placeholder of secret {name} {reason}", secret=name
    )


def _with_parts(secrets: Iterable[Secret]) -> tuple[Secret, ...]:
    """Return the secrets, and those that they consist of."""
    named: dict[str, Secret] = {}
    given: set[str] = set()
    for secret in secrets:
        # Two that are equal are a slip, where their sources differ a grave one.
        if secret.name in given:
            raise InvalidArgumentError(f"two secrets are called {secret.name}")
        given.add(secret.name)
        for part in (secret, *_parts(secret.sigv4)):
            if named.setdefault(part.name, part) != part:
                raise InvalidArgumentError(f"two secrets are called {part.name}")
    return tuple(named.values())


def _parts(how: SigV4 | None) -> Iterable[Secret]:
    parts = () if how is None else (how.access_key_id, how.session_token)
    return (part for part in parts if isinstance(part, Secret))


def _check_variables(secrets: tuple[Secret, ...]) -> None:
    variables: set[str] = set()
    for secret in secrets:
        if secret.variable in variables:
            raise InvalidArgumentError(f"two secrets fill {secret.variable}")
        variables.add(secret.variable)


def _check_places(secrets: tuple[Secret, ...]) -> None:
    for a, b in combinations(secrets, 2):
        if a.place is not None and a.place == b.place and _meet(a, b):
            raise InvalidArgumentError(
                f"secrets {a.name} and {b.name} both fill {a.place} for the same host"
            )


def _meet(a: Secret, b: Secret) -> bool:
    """Whether some host is in the scopes of both."""
    return any(
        port == other and hosts.overlap(name, pattern)
        for name, port in a.scopes
        for pattern, other in b.scopes
    )
