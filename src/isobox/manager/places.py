"""The directories of workspaces: one for each, new for each that is made."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from isobox.errors import PathError, StoreError
from isobox.manager import keys, trash
from isobox.manager.records import Record, State, Tenant
from isobox.manager.settings import directory

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger("isobox.manager")

_OWNER: Final = "owner.json"
_VERSION: Final = 1
#: Bytes of an owner's file: three ids, each character escaped, and options.
_LARGEST: Final = 1 << 17
_LATEST: Final = 1e11
#: Who owns files if the host is root: not root, so that a backend which runs
#: commands as the directory's owner has one.
_UNPRIVILEGED: Final = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """A workspace's directory.

    Attributes:
        path: Its own.
    """

    path: str

    @property
    def files(self) -> str:
        """The workspace's working directory."""
        return f"{self.path}/files"

    @property
    def audit(self) -> str:
        """The workspace's audit log."""
        return f"{self.path}/audit.jsonl"


class Places:
    """The directory that holds all places, for this user alone.

    Args:
        basedir: Where; it is made if it is not there.

    Raises:
        InvalidArgumentError: It is no path.
    """

    def __init__(self, basedir: str | os.PathLike[str]) -> None:
        self.path = directory("basedir", basedir)

    def open(self) -> None:
        """Be there.

        Raises:
            PathError: It cannot be made, or others could write to it.
        """
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            found = os.lstat(self.path)
            with contextlib.suppress(FileExistsError):
                os.mkdir(trash.path(self.path), 0o700)
        except OSError as error:
            raise PathError(
                f"the directory for workspaces {self.path!r} cannot be used: "
                f"{error.strerror}; name another `basedir`",
                path=self.path,
            ) from error
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise PathError(
                f"others can write to {self.path!r}; name a `basedir` that belongs to "
                "this user alone, or change its owner and mode",
                path=self.path,
            )
        trash.check(self.path)

    def of(self, record: Record) -> Place:
        """Return a workspace's place, whether it is there or not.

        Raises:
            StoreError: The store names what is no place.
        """
        if not keys.is_place(record.place):
            raise StoreError(
                f"the store has {record.place!a:.100} as a directory of workspace "
                f"{record.workspace_id!a:.100}, which is none of this manager's names"
            )
        return Place(f"{self.path}/{record.place}")

    def exists(self, record: Record) -> bool:
        """Whether the workspace's directory is there."""
        return os.path.isdir(self.of(record).files)

    def make(self, record: Record, holder: str) -> Place:
        """Make a place that says whose it is; what is there already stays.

        Raises:
            PathError: The file system refused, or it says that it is another's.
        """
        place = self.of(record)
        self._not_anothers(record)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(place.path, 0o700)
            self.own(record, holder)
            self._make_files(place)
        except OSError as error:
            raise PathError(
                f"the workspace's directory {place.path!r} cannot be made: "
                f"{error.strerror}",
                path=place.path,
            ) from error
        return place

    def _not_anothers(self, record: Record) -> None:
        """Let nobody have files that say whose they are if they are not his.

        Raises:
            PathError: A directory has another's place.
        """
        path = self.of(record).path
        found = _owner_in(path)
        if found is not None and found[0].place != record.place:
            # Whose they are is nothing for who asked.
            _log.error("%s is %s: rename it, put back its own", path, found[0].place)
            raise PathError(
                f"{path!r} has the files of another workspace; the log says which: put "
                "back what was here",
                path=path,
            )

    def complete(self, record: Record, holder: str) -> None:
        """Make the place of a workspace whose maker was stopped before it did.

        What is closed has a place then, as who looks for it believes.
        """
        try:
            if not self.exists(record):
                self.make(record, holder)
        except (PathError, StoreError) as error:
            _log.warning("%s has no directory: %s", record.workspace_id, error)

    def _make_files(self, place: Place) -> None:
        try:
            os.mkdir(place.files, 0o700)
        except FileExistsError:
            return
        if os.geteuid() == 0:
            # In a user namespace there may be no such user.
            with contextlib.suppress(OSError):
                os.chown(place.files, _UNPRIVILEGED, _UNPRIVILEGED)

    def own(self, record: Record, holder: str) -> None:
        """Say in the place whose it is, all at once.

        Raises:
            OSError: The file system refused.
        """
        path = self.of(record).path
        passing = f"{path}/{_OWNER}.{secrets.token_hex(4)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = os.open(passing, flags, 0o600)
        try:
            with os.fdopen(file, "w", encoding="ascii") as written:
                written.write(owner_text(record, holder))
            os.replace(passing, f"{path}/{_OWNER}")
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(passing)
            raise

    def owners(self, of: str = "") -> Iterator[tuple[Record, str]]:
        """Yield what the places say: the workspace and the holder that made it.

        What cannot be read, or is no owner's file, is left out.

        Args:
            of: What the names begin with of those that are looked at.
        """
        for name in sorted(os.listdir(self.path)):
            if name.startswith(of) and keys.is_place(name):
                found = self._owner(name)
                if found is not None and found[0].place == name:
                    yield found

    def _owner(self, name: str) -> tuple[Record, str] | None:
        return _owner_in(f"{self.path}/{name}")

    async def remove(self, record: Record) -> PathError | None:
        """Remove a workspace's directory with all in it; none is fine.

        It is gone by its name at once; what cannot be removed waits in the trash.

        Returns:
            What waits there, if anything does.

        Raises:
            StoreError: The store names what is no place.
            PathError: The file system refused, or it says that it is another's.
        """
        place = self.of(record)
        self._not_anothers(record)
        trashed = f"{trash.path(self.path)}/{record.place}.{secrets.token_hex(4)}"
        try:
            os.rename(place.path, trashed)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PathError(
                f"the workspace's directory {place.path!r} cannot be removed: "
                f"{error.strerror}",
                path=place.path,
            ) from error
        return await trash.removed(trashed)

    async def empty_trash(self) -> None:
        """Remove what is in the trash; what cannot be removed stays there.

        Raises:
            PathError: It is no directory, or a link to one.
        """
        await trash.empty(self.path)


def _owner_in(path: str) -> tuple[Record, str] | None:
    """Return what a directory says whose it is; None if it says nothing."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(f"{path}/{_OWNER}", flags)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return owner_of(os.read(file, _LARGEST + 1))
    except OSError:
        return None
    finally:
        os.close(file)


def owner_text(record: Record, holder: str) -> str:
    """Return what says whose a workspace is, in ASCII."""
    whose = record.tenant or Tenant(user="")
    said = {
        "version": _VERSION,
        "workspace_id": record.workspace_id,
        "key": record.key,
        "backend": record.backend,
        "place": record.place,
        "user": None if record.tenant is None else whose.user,
        "agent": whose.agent,
        "session": whose.session,
        "created_at": record.created_at,
        "options": dict(record.options),
        "holder": holder,
    }
    return json.dumps(said, sort_keys=True)


def owner_of(text: str | bytes) -> tuple[Record, str] | None:
    """Return what such a text says, checked; None if it is none."""
    if len(text) > _LARGEST:
        return None
    try:
        said: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    told = cast("dict[str, object]", said)
    try:
        return _record(told), _text(told, "holder")
    except _WrongError:
        return None


class _WrongError(Exception):
    """An owner's file says what it cannot."""


def _record(said: dict[str, object]) -> Record:
    place, workspace_id = _text(said, "place"), _text(said, "workspace_id")
    backend, tenant = _text(said, "backend"), _tenant(said)
    key = None if tenant is None else keys.key_of(backend, tenant)
    options = said.get("options")
    if said.get("version") != _VERSION or not isinstance(options, dict):
        raise _WrongError
    if not keys.is_place(place) or place.rpartition(".")[0] != workspace_id:
        raise _WrongError
    if said.get("key") != key:
        raise _WrongError
    moment = _moment(said.get("created_at"))
    return Record(
        workspace_id=workspace_id,
        key=key,
        tenant=tenant,
        backend=backend,
        place=place,
        state=State.SPARE if tenant is None else State.LIVE,
        created_at=moment,
        used_at=moment,
        options=cast("dict[str, object]", options),
    )


def _moment(said: object) -> float:
    if type(said) not in (int, float):
        raise _WrongError
    moment = cast("float", said)
    if not 0 <= moment <= _LATEST:
        raise _WrongError
    return float(moment)


def _tenant(said: dict[str, object]) -> Tenant | None:
    if said.get("user") is None:
        return None
    agent, session = said.get("agent"), said.get("session")
    return Tenant(
        user=_text(said, "user"),
        agent=None if agent is None else _text(said, "agent"),
        session=None if session is None else _text(said, "session"),
    )


def _text(said: dict[str, object], name: str) -> str:
    value = said.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= keys.LONGEST:
        raise _WrongError
    return value
