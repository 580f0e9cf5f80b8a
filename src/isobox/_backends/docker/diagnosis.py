"""Why a container cannot be used, in words that help."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from isobox._backends.docker.engine import EngineError, part
from isobox.errors import BackendUnavailableError, SandboxLostError

if TYPE_CHECKING:
    from isobox._backends.docker.engine import Answer, Engine

_INVALID = 400
#: What runsc says where it takes a container's network for the host's.
_ROOT_NETWORK = "network enabled in root network namespace"
_OWN_NETWORK = (
    'give the runtime "runtimeArgs": ["--network=none"] in the engine\'s daemon.json, '
    "and restart the engine"
)
#: Characters of what a program inside has said that are shown.
_SHOWN = 200
#: Looks at a container whose stream has ended, and seconds between them.
_LOOKS, _PAUSE = 15, 0.1


async def of_end(engine: Engine, container: str) -> str:
    """Return why the stream to a container has ended; never raises.

    The stream may end a moment before the engine knows why.
    """
    try:
        for _ in range(_LOOKS):
            why = of_state(part(await engine.inspect(container), "State"))
            if why is not None:
                return why
            await asyncio.sleep(_PAUSE)
    except EngineError as error:
        if error.missing:
            return "the container was removed"
        return f"the container engine refuses to describe it: {error.message}"
    except BackendUnavailableError:
        return "the container engine is gone"
    return "the stream to the container ended"


def of_state(state: Answer) -> str | None:
    """Return what is wrong with a container in this state; None if it runs."""
    if state.get("Paused") is True:
        return "the container is paused"
    if state.get("Running") is True:
        return None
    if state.get("Dead") is True or state.get("Status") == "removing":
        return "the container was removed"
    if state.get("OOMKilled") is True:
        return "the container ran out of memory and was killed"
    code: object = state.get("ExitCode")
    told = str(state.get("Error") or "")[:500]
    return f"the container has stopped (status {code})" + (f": {told}" if told else "")


def said(complaint: bytes | bytearray) -> str:
    """Return the last line of what a program inside has complained of."""
    # SAFETY: a workload may have written it: one line, nothing that a terminal obeys.
    lines = bytes(complaint).decode("utf-8", "replace").strip().splitlines()
    shown = "".join(each for each in lines[-1] if each.isprintable()) if lines else ""
    return shown[:_SHOWN]


def of_create(error: EngineError, image: str) -> BackendUnavailableError:
    """Return the error for a container that the engine does not make or start."""
    text = error.message
    if error.missing and "image" in text.lower():
        return BackendUnavailableError(
            f"the engine has no image {image!r}",
            fix=f"docker pull {image}, or name one that `docker images` lists, with "
            "its tag",
            backend="docker",
        )
    if "runtime" in text and error.status == _INVALID:
        return BackendUnavailableError(
            f"the engine does not know this runtime: {text}",
            fix='name it in the engine\'s daemon.json, as {"runtimes": {"runsc": '
            '{"path": "/usr/bin/runsc"}}}, and restart the engine',
            backend="docker",
        )
    return BackendUnavailableError(
        f"the engine cannot start the container: {text}", backend="docker"
    )


def of_start(said: str) -> str | None:
    """Return what helps where a container does not start, by what was said of it."""
    return _OWN_NETWORK if _ROOT_NETWORK in said else None


def discarded(answer: Answer) -> BackendUnavailableError | None:
    """Return the error for a limit that the engine has left out, if any."""
    warnings: object = answer.get("Warnings")
    if not isinstance(warnings, list):
        return None
    lost = [line for line in map(str, warnings) if "discarded" in line.lower()]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if not lost:
        return None
    return BackendUnavailableError(
        f"the engine does not hold a limit that was asked for: {' '.join(lost)[:500]}",
        fix="leave the limit out, or give the engine the control group it needs",
        backend="docker",
    )


def lost(why: str) -> SandboxLostError:
    """Return the error of a call whose container is gone."""
    return SandboxLostError(why, backend="docker")
