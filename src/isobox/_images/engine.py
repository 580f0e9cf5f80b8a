"""What a container engine does with images, beside what the backend asks of it."""

from __future__ import annotations

import contextlib
import json
from typing import IO, TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

import aiohttp
import anyio.to_thread

from isobox._backends.docker.engine import Engine, EngineError, text
from isobox.errors import BackendUnavailableError, ConflictError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from isobox._backends.docker.engine import Answer

_TRANSFER: Final = 600.0
_QUICK: Final = 30.0
_PIECE: Final = 1 << 20
_LONGEST_ANSWER, _LONGEST_LOG = 1 << 20, 1 << 16


class ImageEngine(Engine):
    """A connection that makes images."""

    async def found(self, image: str) -> Answer | None:
        """Describe an image, or return None where there is none."""
        try:
            return await self.image(image)
        except EngineError as error:
            if error.missing:
                return None
            raise

    async def take_in(self, archive: IO[bytes]) -> str:
        """Make an image of an archive; returns its id."""
        params = {"fromSrc": "-"}
        async with (
            self._in_time(_TRANSFER),
            self._docker._query(
                "images/create",
                "POST",
                params=params,
                data=_pieces(archive),
                headers={"Content-Type": "application/x-tar"},
                timeout=aiohttp.ClientTimeout(total=_TRANSFER),
            ) as response,
        ):
            raw = await _whole(response, _LONGEST_ANSWER)
        return _id_of(raw)

    async def is_there(self, container: str, path: str) -> bool:
        """Whether a container has something at `path`."""
        try:
            async with (
                self._in_time(_QUICK),
                self._docker._query(
                    f"containers/{quote(container, safe='')}/archive",
                    params={"path": path},
                ) as response,
            ):
                # What it holds is of no interest: hang up before it comes.
                response.close()
                return True
        except EngineError as error:
            if error.missing:
                return False
            raise

    async def put(self, container: str, archive: IO[bytes]) -> None:
        """Unpack an archive at the root of a container."""
        async with (
            self._in_time(_TRANSFER),
            self._docker._query(
                f"containers/{quote(container, safe='')}/archive",
                "PUT",
                params={"path": "/", "noOverwriteDirNonDir": "1"},
                data=_pieces(archive),
                headers={"Content-Type": "application/x-tar"},
                timeout=aiohttp.ClientTimeout(total=_TRANSFER),
            ),
        ):
            pass

    async def ended(self, container: str, timeout: float) -> int:
        """Wait for the end of a container; returns its exit code.

        Raises:
            TimeoutError: It goes on.
        """
        with anyio.fail_after(timeout):
            while True:
                state = (await self.inspect(container)).get("State")
                about = cast("Answer", state) if isinstance(state, dict) else {}
                if not about.get("Running"):
                    code: object = about.get("ExitCode")
                    return code if isinstance(code, int) else 255
                await anyio.sleep(0.2)

    async def said(self, container: str) -> bytes:
        """Return the last lines that a container with a terminal printed."""
        params = {"stdout": "1", "stderr": "1", "tail": "20"}
        path = f"containers/{quote(container, safe='')}/logs"
        async with (
            self._in_time(_QUICK),
            self._docker._query(path, params=params) as response,
        ):
            raw = await _whole(response, _LONGEST_LOG)
        return raw.replace(b"\r\n", b"\n").strip()

    async def keep(self, container: str, name: str, config: Mapping[str, Any]) -> str:
        """Make an image of a container's root; returns its id."""
        repository, _, tag = name.rpartition(":")
        params = {"container": container, "repo": repository, "tag": tag, "pause": "0"}
        made = await self._json(
            "commit", "POST", params=params, data=config, time=_TRANSFER
        )
        return text(made, "Id")

    async def give_up(self, image: str) -> None:
        """Remove an image by its name.

        Raises:
            ConflictError: A container uses it.
        """
        try:
            await self._any(
                f"images/{quote(image, safe='/:')}", "DELETE", None, None, _QUICK
            )
        except EngineError as error:
            if error.conflict:
                raise ConflictError(f"{image} is in use: {error.message}") from error
            raise


async def _pieces(archive: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await anyio.to_thread.run_sync(archive.read, _PIECE):
        yield piece


async def _whole(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return an answer to its end, but for what is more than `most` bytes."""
    found = bytearray()
    # One read gives what has come, which need not be all.
    async for piece in response.content.iter_any():
        found += piece[: most - len(found)]
    return bytes(found)


def _id_of(raw: bytes) -> str:
    for line in raw.splitlines():
        with contextlib.suppress(ValueError):
            answer = cast("object", json.loads(line))
            if isinstance(answer, dict):
                about = cast("dict[str, object]", answer)
                if error := about.get("error"):
                    raise EngineError(500, str(error))
                status = about.get("status")
                if isinstance(status, str) and status.startswith("sha256:"):
                    return status
    raise BackendUnavailableError(
        "the container engine did not say which image it made"
    )


def typed(error: EngineError) -> BackendUnavailableError:
    """Return what a user is told of a refusal."""
    return BackendUnavailableError(
        f"the container engine refused: {error}", backend="docker"
    )
