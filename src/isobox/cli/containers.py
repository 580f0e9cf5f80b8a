"""What the command line says of a container."""

from __future__ import annotations

import os
from typing import cast, get_args

from isobox._backends.docker.options import DockerOptions, PythonOption, user
from isobox._registry import names
from isobox.errors import InvalidArgumentError

_DOCKER = "docker"


def options(
    backend: str,
    *,
    image: str | None = None,
    runtime: str | None = None,
    whom: str | None = None,
    python: str | None = None,
) -> tuple[object, ...]:
    """Return what the backend's provider is made with.

    Raises:
        InvalidArgumentError: Another backend than `docker` is given any of it, or
            that one no image; or one of them is none.
    """
    given = {
        "--image": image,
        "--runtime": runtime,
        "--user": whom,
        "--python": python,
    }
    if backend not in names():
        return ()  # that there is none is said by who looks for it
    if backend != _DOCKER:
        if wrong := [name for name, value in given.items() if value is not None]:
            raise InvalidArgumentError(
                f"{', '.join(wrong)}: for containers; choose them by --backend docker"
            )
        return ()
    if not image:
        raise InvalidArgumentError(
            "--backend docker: name an image that the engine has, by --image"
        )
    named = None if whom is None else str(user(whom))
    origin = _origin(python or "auto")
    return (DockerOptions(image=image, runtime=runtime, user=named, python=origin),)


def _origin(word: str) -> PythonOption:
    if word not in get_args(PythonOption):
        known = ", ".join(get_args(PythonOption))
        raise InvalidArgumentError(f"--python {word}: there are {known}")
    return cast("PythonOption", word)


def owner(backend: str) -> int | None:
    """Return who a directory for the backend belongs to; None for the caller."""
    is_root = os.geteuid() == 0
    return 1000 if backend == _DOCKER and is_root else None
