"""Which Python runs the guest in a container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import anyio.to_thread

from isobox._guest import carried, daemon
from isobox.errors import BackendUnavailableError

if TYPE_CHECKING:
    from isobox._backends.docker.options import PythonOption
    from isobox._backends.docker.places import Place
    from isobox._backends.docker.recipe import Image

#: `image`: its own. `bring`: one of the host's, brought along. `none`: a shell.
Kind = Literal["image", "bring", "none"]

#: Where one that is brought along stands inside.
PLACE: Final = "/.isobox-python"

_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_ORDER: Final[dict[PythonOption, tuple[Kind, ...]]] = {
    "auto": ("image", "bring", "none"),
    "image": ("image",),
    "bring": ("bring",),
    "none": ("none",),
}

#: What was found not to work where something else did: images by their digest,
#: and the runtime that ran them.
_lacking: dict[tuple[str, str | None], set[Kind]] = {}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python in a container.

    Attributes:
        kind: Where it comes from.
        start: The command that starts it, without arguments.
        directory: Host directory that is mounted for it.
    """

    kind: Kind
    start: tuple[str, ...]
    directory: str | None = None

    def loader(self) -> list[str]:
        """Return the command that becomes the guest."""
        return [*self.start, *daemon.loader_argv("")[1:]]

    def relay(self) -> list[str]:
        """Return the command that leads to the guest."""
        return [*self.start, *daemon.relay_argv("")[1:]]


def kinds(
    option: PythonOption, image: Image, runtime: str | None = None
) -> tuple[Kind, ...]:
    """Return what to try for an image under a runtime, in this order."""
    lacking = _lacking.get((image.id, runtime), set())
    return (
        tuple(each for each in _ORDER[option] if each not in lacking)
        or (_ORDER[option])
    )


def named(label: str) -> tuple[Kind, ...]:
    """Return the kind that a container's label names, if it names one."""
    every = _ORDER["auto"]
    return every[every.index(label) :][:1] if label in every else ()


def lack(image: Image, kind: Kind, runtime: str | None = None) -> None:
    """Remember what did not work for an image where something else did."""
    _lacking.setdefault((image.id, runtime), set()).add(kind)


async def get(kind: Kind, image: Image, place: Place) -> Interpreter:
    """Return the interpreter of a kind.

    Raises:
        NoInterpreterError: None can be brought along to this container.
    """
    if kind == "image":
        return Interpreter("image", ("python3",))
    if not place.is_local:
        raise _not_brought("the engine does not see the directories of this machine")
    try:
        python = await anyio.to_thread.run_sync(carried.carried)
    except BackendUnavailableError as error:
        raise _not_brought(error.message) from error
    if _MACHINES.get(image.machine, image.machine) != python.machine:
        raise _not_brought(f"the image is for {image.machine}, not {python.machine}")
    return Interpreter("bring", tuple(python.argv(PLACE)), python.directory)


class NoInterpreterError(BackendUnavailableError):
    """No Python can be brought along."""


def _not_brought(why: str) -> NoInterpreterError:
    return NoInterpreterError(
        f"no Python can be brought along: {why}",
        fix="use an image that has Python 3.8 or newer",
        backend="docker",
    )
