"""What a container is made of besides what every sandbox is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from typing_extensions import override

from isobox.errors import InvalidArgumentError

#: Where the guest's Python comes from: the image, else brought along, else none;
#: or one of these and nothing else.
PythonOption = Literal["auto", "image", "bring", "none"]

#: Where the workspace is inside, and the home of commands.
ROOT: Final = "/workspace"
HOME: Final = "/home/agent"

#: Seconds that a container stays without a host.
ANONYMOUS_LINGER: Final = 10.0
NAMED_LINGER: Final = 3600.0

_LARGEST_ID: Final = 2**31 - 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerOptions:
    """Options of a container.

    Attributes:
        image: Name or id of the image.
        runtime: The engine's name for what runs it, such as `runsc`; its
            default if None.
        python: Where the guest's Python comes from.
        user: `UID` or `UID:GID` of commands; the working directory's owner, or
            the image's, or 1000 if None.
        engine: The engine's address; see `places.find`.
        linger: Seconds that the container stays when no host is attached.
        read_only_root: Whether only the workspace and the private places can
            be written.
        named: Whether somebody gave the workspace its id, to come back to it.
        disposable: Whether the image goes with the workspace.
    """

    image: str = ""
    runtime: str | None = None
    python: PythonOption = "auto"
    user: str | None = None
    engine: str | None = None
    linger: float | None = None
    read_only_root: bool = True
    named: bool = False
    disposable: bool = False

    @property
    def stays(self) -> float:
        """Seconds that the container stays when no host is attached."""
        if self.linger is not None:
            return self.linger
        return NAMED_LINGER if self.named else ANONYMOUS_LINGER


@dataclass(frozen=True, slots=True)
class User:
    """Who commands are."""

    uid: int
    gid: int

    @override
    def __str__(self) -> str:
        return f"{self.uid}:{self.gid}"

    @property
    def other(self) -> str:
        """A user that commands are not, whom the guest believes."""
        return "0:0" if self.uid else "65534:65534"

    @property
    def nobody(self) -> str:
        """A user that neither commands are nor root."""
        number = 65533 if self.uid == 65534 else 65534
        return f"{number}:{number}"


def user(given: str) -> User:
    """Return the user that `UID` or `UID:GID` names.

    Raises:
        InvalidArgumentError: It is neither.
    """
    uid, colon, gid = given.partition(":")
    for number in (uid, gid) if colon else (uid,):
        if not (number.isascii() and number.isdigit() and int(number) <= _LARGEST_ID):
            raise InvalidArgumentError(
                f"user={given!r}: give numbers, UID or UID:GID; names are the image's"
            )
    return User(int(uid), int(gid if colon else uid))
