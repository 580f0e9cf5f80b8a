"""What callers pass, checked before anything of it is used."""

from __future__ import annotations

import inspect
import os
import re
import secrets
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast

from isobox._core.results import PATH_ERRORS
from isobox._policy.network import Network, NetworkRule
from isobox._policy.policy import Policy
from isobox._policy.presets import PRESETS
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from isobox._approval.question import Approve
    from isobox._core.ops import Body
    from isobox._egress.secret import Secret
    from isobox._workspace.skills.package import Source

#: Bytes of one argument, or of a variable with its name, that the kernel takes
#: (MAX_ARG_STRLEN, without the NUL), and of all of them (ARG_MAX as it usually is).
_LONGEST: Final = 131_071
_LONGEST_TOGETHER: Final = 2 << 20
#: Seconds of the longest timeout: thirty years.
_LATEST: Final = 1_000_000_000
#: Bytes of all labels.
_LABELS: Final = 1 << 16
_BYTES: Final = (bytes, bytearray, memoryview)
_ID: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_Value = TypeVar("_Value", str, str | None)
_Thing = TypeVar("_Thing")


def command(given: str | Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """Return what is to run: an argv, or a script for the shell.

    Raises:
        InvalidArgumentError: It is empty, holds a NUL, or is neither.
    """
    if isinstance(given, str):
        if "\0" in given:
            raise InvalidArgumentError("the script holds a NUL byte")
        return (), given
    argv = _strings("the command", given)
    if not argv or not argv[0]:
        raise InvalidArgumentError("the command is empty; name a program")
    if any("\0" in part for part in argv):
        raise InvalidArgumentError("an argument holds a NUL byte")
    sizes = [_size(part) for part in argv]
    if max(sizes) > _LONGEST:
        raise InvalidArgumentError(
            f"one argument has {max(sizes)} bytes; the kernel takes {_LONGEST}: pass "
            "it on standard input, in a file, or as a script"
        )
    if sum(sizes) > _LONGEST_TOGETHER:
        raise InvalidArgumentError(
            f"the arguments have {sum(sizes)} bytes together; the kernel takes about "
            f"{_LONGEST_TOGETHER}: pass them on standard input or in a file"
        )
    return argv, None


def _size(text: str) -> int:
    try:
        return len(text.encode("utf-8", PATH_ERRORS))
    except UnicodeEncodeError:
        raise InvalidArgumentError(
            f"{text[:200]!a} holds half a surrogate pair, which no argument can"
        ) from None


def _strings(name: str, given: object) -> tuple[str, ...]:
    if not isinstance(given, Sequence) or isinstance(given, bytes | bytearray):
        raise InvalidArgumentError(
            f"{name} is a string (a script) or a sequence of strings, not {given!r}"
        )
    parts = cast("Sequence[object]", given)
    strings = tuple(part for part in parts if isinstance(part, str))
    if len(strings) != len(parts):
        wrong = next(part for part in parts if not isinstance(part, str))
        raise InvalidArgumentError(f"{name}: {wrong!r} is no string")
    return strings


def seconds(name: str, value: float | None) -> float | None:
    """Return a time, or None for no bound.

    Raises:
        InvalidArgumentError: It is no number, negative or without end.
    """
    if value is None:
        return None
    _require(name, value, (int, float), "a number of seconds")
    if not 0 <= value <= _LATEST:
        raise InvalidArgumentError(
            f"{name}={value} is not a number of seconds from 0 to {_LATEST}"
        )
    return value


def count(name: str, value: int | None) -> int | None:
    """Return a number of things, or None for all of them.

    Raises:
        InvalidArgumentError: It is no whole number, or negative.
    """
    if value is None:
        return None
    _require(name, value, (int,), "a whole number")
    if not 0 <= value < 1 << 63:
        raise InvalidArgumentError(f"{name}={value} is not between 0 and 2**63")
    return value


def _require(name: str, value: object, kinds: tuple[type, ...], what: str) -> None:
    """Refuse what a caller without a type checker may pass.

    Raises:
        InvalidArgumentError: It is of another kind; True and False are too.
    """
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise InvalidArgumentError(f"{name}={value!r:.200} is not {what}")


def text(name: str, value: str) -> str:
    """Return a text.

    Raises:
        InvalidArgumentError: It is no string.
    """
    _require(name, value, (str,), "a string")
    return value


def stdin(given: str | bytes | None) -> bytes | None:
    """Return what a command reads.

    Raises:
        InvalidArgumentError: It is neither text nor bytes.
    """
    if given is None:
        return None
    _require("stdin", given, (str, *_BYTES), "a string or bytes")
    if isinstance(given, str):
        return given.encode("utf-8", PATH_ERRORS)
    return bytes(given)


def body(given: str | Body) -> Body:
    """Return what is to be written, text as UTF-8.

    Raises:
        InvalidArgumentError: It is neither text, nor bytes, nor pieces that arrive.
    """
    kinds = (str, *_BYTES, AsyncIterable)
    _require("data", given, kinds, "a string, bytes, or an async iterable of bytes")
    if isinstance(given, str):
        return given.encode()
    return given if isinstance(given, AsyncIterable) else bytes(given)


def mode(given: int | None) -> int | None:
    """Return permission bits, or None to leave them.

    Raises:
        InvalidArgumentError: It is no number, or has others than permission bits.
    """
    if given is None:
        return None
    _require("mode", given, (int,), "a number such as 0o755")
    if not 0 <= given <= 0o777:
        raise InvalidArgumentError(
            f"mode={given:#o} is not between 0 and 0o777; set-id bits are refused"
        )
    return given


def encoding(given: str) -> str:
    """Return the name of an encoding of text.

    Raises:
        InvalidArgumentError: There is none of this name.
    """
    text("encoding", given)
    try:
        # One that is not for text is looked up only where there is some.
        b"\0\0\0\0".decode(given, "replace")
    except (LookupError, ValueError):
        raise InvalidArgumentError(
            f"encoding={given!r:.200} is no encoding of text; give one such as "
            "'utf-8' or 'latin-1'"
        ) from None
    return given


def limits(given: Mapping[str, int]) -> dict[str, int]:
    """Return resource limits by name.

    Raises:
        InvalidArgumentError: They are no mapping, or one is no whole number.
    """
    _require("limits", given, (Mapping,), "a mapping such as {'nofile': 64}")
    for name, value in given.items():
        _require("limits: a name", name, (str,), "a string")
        _require(f"limits: {name[:64]}", value, (int,), "a whole number")
        count(f"limits: {name[:64]}", value)
    return dict(given)


def _require_mapping(name: str, given: object) -> None:
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(
            f'{name}={given!r:.200} is no mapping; give one such as {{"NAME": "value"}}'
        )


def sources(given: Iterable[Source]) -> tuple[Source, ...]:
    """Return where skills come from.

    Raises:
        InvalidArgumentError: It is one path, or no list of them.
    """
    single = isinstance(given, str | bytes | os.PathLike)
    if single or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentError(f"skills={given!r:.200}: give a list of sources")
    return tuple(given)


def attached(given: Iterable[Secret]) -> tuple[Secret, ...]:
    """Return secrets.

    Raises:
        InvalidArgumentError: It is one secret and no list of them, or something in
            it is none.
    """
    # Most workspaces have none, and need nothing of what a secret needs.
    if given == ():
        return ()
    from isobox._egress.secret import Secret  # noqa: PLC0415

    wanted = "give a list such as [Secret(...)]"
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentError(f"secrets is no list; {wanted}")
    listed = tuple(given)
    # What is none may be a value, put there by mistake: nothing of it is shown.
    if not all(isinstance(each, Secret) for each in cast("Iterable[object]", listed)):
        raise InvalidArgumentError(f"secrets: one of them is no Secret; {wanted}")
    return listed


def nothing_but_a_script(**others: object) -> None:
    """Refuse what a persistent shell cannot honour.

    Raises:
        InvalidArgumentError: Something was given.
    """
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise InvalidArgumentError(
            f"{', '.join(given)}: not together with session_id, whose shell has its "
            "own; set it in the script"
        )


def environment(given: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return variables by name.

    Raises:
        InvalidArgumentError: A name or value cannot be one.
    """
    _require_mapping("env", given)
    for name, value in given.items():
        _require("env: the name", name, (str,), "a string")
        if not name or "=" in name or "\0" in name:
            raise InvalidArgumentError(f"env: {name!r} is no name of a variable")
        if value is not None:
            _require(f"env: {name}", value, (str,), "a string")
        if "\0" in (value or ""):
            raise InvalidArgumentError(f"env: the value of {name} holds a NUL byte")
        if _size(f"{name}={value or ''}") > _LONGEST:
            raise InvalidArgumentError(
                f"env: {name[:64]} has more bytes than the kernel takes of a variable, "
                f"{_LONGEST}; put it into a file and name that"
            )
    if sum(_size(f"{name}={value or ''}") for name, value in given.items()) > (
        _LONGEST_TOGETHER
    ):
        raise InvalidArgumentError(
            "env: the variables have more bytes together than the kernel takes, about "
            f"{_LONGEST_TOGETHER}; put some into files"
        )
    return dict(given)


def labels(given: Mapping[str, str]) -> dict[str, str]:
    """Return labels by name.

    Raises:
        InvalidArgumentError: One is no text, or they are more than 64 KiB together.
    """
    _require_mapping("labels", given)
    for name, value in given.items():
        _require("labels: a name", name, (str,), "a string")
        _require(f"labels: {name[:64]}", value, (str,), "a string")
    if sum(_size(name) + _size(value) for name, value in given.items()) > _LABELS:
        raise InvalidArgumentError(
            f"labels: they have more than {_LABELS} bytes together; use fewer"
        )
    return dict(given)


def identifier(given: str | None) -> str:
    """Return a workspace's id, a new random one for None.

    Raises:
        InvalidArgumentError: It is no id.
    """
    if given is None:
        return f"ws-{secrets.token_hex(8)}"
    _require("workspace_id", given, (str,), "a string")
    if not _ID.fullmatch(given):
        raise InvalidArgumentError(
            f"workspace_id={given!r:.200}: use lower-case letters, digits and "
            "'-', at most 63, beginning and ending with a letter or digit"
        )
    return given


#: What a `network` argument may be.
NetworkOption = Literal["none", "open"] | Network | Iterable[str | NetworkRule] | None


def policy(given: Policy | None, network: NetworkOption) -> Policy:
    """Return the policy that two arguments make.

    The network takes the place of the policy's; what the policy denies of it stays
    denied.

    Raises:
        InvalidArgumentError: `policy` is no Policy, or `network` none of its forms.
    """
    if given is not None and not isinstance(given, Policy):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentError(
            f"policy={given!r:.200} is no Policy; give {_policy_for(given)}"
        )
    chosen = given or Policy.allow_all()
    if network is None:
        return chosen
    wanted = Network.of(network).with_denials(chosen.network)
    return replace(chosen, network=wanted)


def _policy_for(given: object) -> str:
    if isinstance(given, str) and given in PRESETS:
        return f"Policy.preset({given!r})"
    if isinstance(given, str | os.PathLike):
        return f"load_policy({os.fspath(given)!r:.200})"
    return "Policy.preset('auto'), or load_policy('policy.toml')"


def approve(given: Approve | None) -> Approve | None:
    """Return who answers questions.

    Raises:
        InvalidArgumentError: It cannot be called with a question.
    """
    if given is None:
        return None
    wanted = "give a function of one question, which returns True, False or an Answer"
    if not callable(given):
        raise InvalidArgumentError(f"approve={given!r:.200} is no function; {wanted}")
    try:
        inspect.signature(given).bind(object())
    except TypeError as error:
        raise InvalidArgumentError(f"approve: {error}; {wanted}") from None
    except ValueError:
        pass  # some that are built in do not tell
    return given


def instance(name: str, given: _Thing | None, kind: type[_Thing]) -> _Thing | None:
    """Return an argument that is of a kind, or None.

    Raises:
        InvalidArgumentError: It is of another one.
    """
    if given is not None and not isinstance(given, kind):
        raise InvalidArgumentError(
            f"{name}={given!r:.200} is no {kind.__name__}; give {kind.__name__}(...)"
        )
    return given
