"""What an image is made of, as data: read from TOML, each value checked."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from isobox.errors import InvalidArgumentError, PathMissingError, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

Manager = Literal["apt", "apk"]
Network = Literal["none", "default", "host"]

SCRATCH: Final = "scratch"
_LONGEST_SPEC, _LONGEST_TEXT, _MOST = 1 << 20, 1 << 16, 1000
_NAME: Final = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_REFERENCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
_PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+._-]{0,127}(?:=[A-Za-z0-9][\w.+:~-]*)?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_USER: Final = re.compile(r"[a-z0-9_][a-z0-9_-]{0,31}(?::[a-z0-9_][a-z0-9_-]{0,31})?")
_MODE: Final = re.compile(r"0?[0-7]{3}")
_KERNELS_OWN: Final = ("/proc", "/sys", "/dev")
_KEYS: Final = frozenset(
    {"name", "base", "rootfs", "packages", "manager", "network", "files"}
    | {"env", "user", "python"}
)
_FILE_KEYS: Final = frozenset({"to", "from", "content", "mode"})


@dataclass(frozen=True)
class ImageFile:
    """A file that is put into an image; it belongs to root there.

    Attributes:
        to: Where it is in the image, absolute.
        source: Its path on the host, relative to the description's directory; no
            link is followed. None where `content` is given.
        content: What is in it.
        mode: Its permissions; no set-id bits.
    """

    to: str
    source: str | None = None
    content: bytes = b""
    mode: int = 0o644


@dataclass(frozen=True)
class ImageSpec:
    """What an image is made of.

    Attributes:
        name: The image becomes `isobox/<name>:<digest>`.
        base: An image that the engine has, or `scratch`. Either this or `rootfs`.
        rootfs: A directory that is the root, relative to `directory`.
        packages: Names of packages that `manager` installs.
        manager: `apt` or `apk`.
        network: What it reaches meanwhile: `none`, the engine's `default`, `host`.
        files: Files that are put in after that.
        env: Variables of the image.
        user: Who runs commands, as `uid:gid` or a name; the base's, if None.
        python: Install `python3` too.
        directory: Where relative paths on the host start.

    Raises:
        InvalidArgumentError: A value cannot be honoured.
    """

    name: str
    base: str | None = None
    rootfs: str | None = None
    packages: tuple[str, ...] = ()
    manager: Manager | None = None
    network: Network = "none"
    files: tuple[ImageFile, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    user: str | None = None
    python: bool = False
    directory: str = "."

    def __post_init__(self) -> None:
        _check(self)

    @property
    def installed(self) -> tuple[str, ...]:
        """All packages that are installed, in one order."""
        return tuple(sorted({*self.packages, *(("python3",) if self.python else ())}))


def load(path: str | os.PathLike[str]) -> ImageSpec:
    """Read a description from a TOML file.

    Raises:
        InvalidArgumentError: It is not one, or a value cannot be honoured.
        PathMissingError: There is no such file.
        StorageError: It cannot be read.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(_LONGEST_SPEC + 1)
    except FileNotFoundError as error:
        raise PathMissingError(f"no file {path}", path=os.fspath(path)) from error
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if len(raw) > _LONGEST_SPEC:
        raise InvalidArgumentError(f"{path} is longer than {_LONGEST_SPEC} bytes")
    return parse(raw, directory=os.path.dirname(os.path.abspath(path)))


def parse(raw: bytes, *, directory: str = ".") -> ImageSpec:
    """Read a description from the bytes of a TOML document.

    Raises:
        InvalidArgumentError: It is not one, or a value cannot be honoured.
    """
    try:
        given = cast("dict[str, object]", tomllib.loads(raw.decode()))
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"the image's description: {error}") from error
    _refuse_unknown(given, _KEYS, "the image's description")
    return ImageSpec(
        name=_text(given, "name") or "",
        base=_text(given, "base"),
        rootfs=_text(given, "rootfs"),
        packages=tuple(_texts(given, "packages")),
        manager=cast("Manager | None", _text(given, "manager")),
        network=_network(given.get("network", False)),
        files=tuple(_file(each) for each in _tables(given, "files")),
        env=_table_of_texts(given, "env"),
        user=_text(given, "user"),
        python=_flag(given, "python"),
        directory=directory,
    )


def _network(given: object) -> Network:
    if isinstance(given, bool):
        return "default" if given else "none"
    if given in get_args(Network):
        return cast("Network", given)
    raise InvalidArgumentError('network: true, false, "default", "host" or "none"')


def _file(given: Mapping[str, object]) -> ImageFile:
    _refuse_unknown(given, _FILE_KEYS, "files")
    content, source = _text(given, "content"), _text(given, "from")
    if (content is None) == (source is None):
        raise InvalidArgumentError('files: each has either "from" or "content"')
    mode = _text(given, "mode") or "0644"
    if not _MODE.fullmatch(mode):
        raise InvalidArgumentError('files: mode is text as "0755", without set-id bits')
    return ImageFile(
        _text(given, "to") or "", source, (content or "").encode(), int(mode, 8)
    )


def _check(spec: ImageSpec) -> None:
    _match(_NAME, spec.name, "name", "lower-case letters and digits, - . _ between")
    if (spec.base is None) == (spec.rootfs is None):
        raise InvalidArgumentError('an image has either "base" or "rootfs"')
    if spec.base is not None:
        _match(_REFERENCE, spec.base, "base", f"the name of an image, or {SCRATCH}")
    if spec.rootfs is not None:
        check_source(spec.rootfs, "rootfs")
    _check_packages(spec)
    if spec.user is not None:
        _match(_USER, spec.user, "user", "uid:gid, or a name")
    for name, value in spec.env.items():
        _match(_VARIABLE, name, "env", "letters, digits and _")
        if "\0" in value or len(value) > _LONGEST_TEXT:
            raise InvalidArgumentError(f"env: {name} is too long, or has a NUL")
    for file in spec.files:
        _check_file(file)


def _check_packages(spec: ImageSpec) -> None:
    for package in spec.packages:
        _match(_PACKAGE, package, "packages", "a name, or name=version")
    if spec.manager not in (None, *get_args(Manager)):
        raise InvalidArgumentError('manager: "apt" or "apk"')
    if spec.installed and spec.manager is None:
        raise InvalidArgumentError('packages need a manager: "apt" or "apk"')
    if spec.network not in get_args(Network):
        raise InvalidArgumentError(f"network: one of {', '.join(get_args(Network))}")
    if spec.network != "none" and not spec.installed:
        raise InvalidArgumentError("network: only packages need one")


def _check_file(file: ImageFile) -> None:
    if file.source is not None:
        check_source(file.source, "files")
    parts = file.to.split("/")
    if parts[0] or len(parts) < 2 or not all(_is_plain(each) for each in parts[1:]):
        raise InvalidArgumentError(
            f"files: {file.to!r} is no absolute path without '.', '..' and '//'"
        )
    if any(f"{file.to}/".startswith(f"{each}/") for each in _KERNELS_OWN):
        raise InvalidArgumentError(f"files: {file.to!r} is the kernel's own")
    if not 0 <= file.mode <= 0o777:
        raise InvalidArgumentError(f"files: mode {file.mode:#o} is not below 0o1000")


def check_source(path: str, key: str) -> None:
    """Refuse a path that may lead out of the description's directory.

    Raises:
        InvalidArgumentError: It does not stay below.
    """
    if not path or not all(_is_plain(part) for part in path.split("/")):
        raise InvalidArgumentError(
            f"{key}: {path!r} is no path below the description's directory"
        )


def _is_plain(part: str) -> bool:
    return part not in ("", ".", "..") and "\0" not in part and len(part) < 256


def _match(pattern: re.Pattern[str], value: str, key: str, allowed: str) -> None:
    if len(value) > 256 or not pattern.fullmatch(value):
        raise InvalidArgumentError(f"{key}: {value[:100]!r} is not {allowed}")


def _refuse_unknown(
    given: Mapping[str, object], known: frozenset[str], where: str
) -> None:
    if unknown := sorted(given.keys() - known):
        names = ", ".join(repr(each[:50]) for each in unknown[:5])
        allowed = ", ".join(sorted(known))
        raise InvalidArgumentError(f"{where} has {names}; there is {allowed}")


def _text(given: Mapping[str, object], key: str) -> str | None:
    value = given.get(key)
    if value is None or isinstance(value, str):
        return value
    raise InvalidArgumentError(f"{key} is text")


def _flag(given: Mapping[str, object], key: str) -> bool:
    value = given.get(key, False)
    if isinstance(value, bool):
        return value
    raise InvalidArgumentError(f"{key} is true or false")


def _list(given: Mapping[str, object], key: str) -> list[object]:
    value = given.get(key, [])
    if not isinstance(value, list) or len(cast("list[object]", value)) > _MOST:
        raise InvalidArgumentError(f"{key} is a list of at most {_MOST}")
    return cast("list[object]", value)


def _texts(given: Mapping[str, object], key: str) -> list[str]:
    found = _list(given, key)
    if not all(isinstance(each, str) for each in found):
        raise InvalidArgumentError(f"{key} is a list of texts")
    return cast("list[str]", found)


def _tables(given: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    found = _list(given, key)
    if not all(isinstance(each, dict) for each in found):
        raise InvalidArgumentError(f"{key} is a list of tables")
    return cast("list[Mapping[str, object]]", found)


def _table_of_texts(given: Mapping[str, object], key: str) -> dict[str, str]:
    value = given.get(key, {})
    if not isinstance(value, dict) or len(cast("dict[str, object]", value)) > _MOST:
        raise InvalidArgumentError(f"{key} is a table of at most {_MOST}")
    table = cast("dict[str, object]", value)
    if not all(isinstance(each, str) for each in table.values()):
        raise InvalidArgumentError(f"{key} is a table of texts")
    return cast("dict[str, str]", table)
