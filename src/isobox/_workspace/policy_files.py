"""Policies in files: the system's, the user's, a call's and a project's."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from isobox._policy.policy import Policy

_LARGEST: Final = 1 << 20
#: Where a project keeps its own, below its directory.
PROJECT: Final = os.path.join(".isobox", "policy.toml")


def load_policy(
    *paths: str | os.PathLike[str],
    project: str | os.PathLike[str] | None = None,
    defaults: bool = False,
    base: Policy | None = None,
) -> Policy:
    """Return the policy of one or several files.

    Rules add up, and deny beats ask beats allow whosever they are; the default
    and the network are those of the last file, where what another denies of the
    network stays denied. A project's own file, at
    `.isobox/policy.toml` below it, can only forbid more: whoever works in the
    project could have written it.

    Args:
        paths: Files in TOML, or JSON if they end with `.json`; the most general
            one first.
        project: A directory, whose own file is read if it has one.
        defaults: Read the system's (/etc/isobox/policy.toml) and the user's
            (~/.config/isobox/policy.toml) before, where they exist.
        base: What comes last, after the files; where there are no files and no
            base, everything inside is allowed.

    Raises:
        InvalidArgumentError: A file is missing or malformed, has a key that
            nobody knows, or an example that does not hold; the message says where.
    """
    # pydantic is loaded by those who read files alone.
    from isobox._policy.load import layered, parse  # noqa: PLC0415
    from isobox._policy.policy import Policy  # noqa: PLC0415

    for path in paths:
        if not isinstance(path, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentError(
                f"policy {path!r:.200} is no path; give them one by one: "
                'load_policy("company.toml", "mine.toml")'
            )
    found = [path for path in _defaults() if os.path.exists(path)] if defaults else []
    files = [*found, *(os.fspath(path) for path in paths)]
    policies = [parse(_text(path), path) for path in files]
    if base is not None or not policies:
        policies.append(base or Policy.allow_all())
    own = None if project is None else os.path.join(os.fspath(project), PROJECT)
    if own is None or not os.path.lexists(own):
        return layered(policies)
    return layered(policies, parse(_text(own), own, tightening=True))


def _defaults() -> Iterable[str]:
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return "/etc/isobox/policy.toml", os.path.join(config, "isobox", "policy.toml")


def _text(path: str) -> str:
    # SAFETY: a project's file may be anything that was put there: a FIFO would
    # be waited for, a link would show what it points at, in an error.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except OSError as error:
        raise InvalidArgumentError(f"policy {path}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise InvalidArgumentError(f"policy {path}: not a regular file")
        data = os.read(fd, _LARGEST + 1)
    finally:
        os.close(fd)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidArgumentError(f"policy {path}: not UTF-8") from None
