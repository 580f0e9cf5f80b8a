"""The engine's API: few calls, each with an end, each answer checked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

import aiodocker
import aiohttp
import anyio.to_thread

from isobox._backends.docker import hijack, labels, places, remains
from isobox._channel.deadline import deadline
from isobox.errors import BackendUnavailableError, SandboxLostError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Mapping

    from isobox._backends.docker.hijack import Hijacked
    from isobox._backends.docker.places import Place

#: Seconds that an answer may take; an engine that starts a container needs more.
_USUAL, _LONG = 10.0, 60.0
_MISSING, _CONFLICT = 404, 409
#: What aiodocker says of an engine that it does not reach.
_UNREACHED: Final = 900
_VERSION: Final = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")

#: An object of JSON, as the engine sends it.
Answer = dict[str, Any]


class EngineError(Exception):
    """The engine refused.

    Attributes:
        status: The status of HTTP.
        message: What it said, bounded.
    """

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message[:2000]
        super().__init__(self.message)

    @property
    def missing(self) -> bool:
        """Whether what was named is not there."""
        return self.status == _MISSING

    @property
    def conflict(self) -> bool:
        """Whether there is something of that name, or it is not in that state."""
        return self.status == _CONFLICT


class Engine:
    """A connection to one engine.

    Every call raises BackendUnavailableError when the engine is not reached or
    does not answer in time, and EngineError when it refuses.

    Attributes:
        place: Where it is.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._docker = aiodocker.Docker(
            url=place.url, timeout=aiohttp.ClientTimeout(total=_LONG)
        )
        self._agreeing = asyncio.Lock()

    async def aclose(self) -> None:
        """Hang up."""
        await self._docker.close()

    # Containers.

    async def create(self, name: str, config: Mapping[str, object]) -> Answer:
        """Make a container; returns its id and what was left out of the config."""
        return await self._json(
            "containers/create", "POST", params={"name": name}, data=config
        )

    async def inspect(self, container: str) -> Answer:
        """Describe a container."""
        return await self._json(f"containers/{_quoted(container)}/json")

    async def start(self, container: str) -> bool:
        """Start it; False if it runs already, as somebody else has started it."""
        path = f"containers/{_quoted(container)}/start"
        async with self._in_time(_LONG):
            await self._agree()
            async with self._docker._query(path, "POST") as answer:
                return answer.status != HTTPStatus.NOT_MODIFIED

    async def unpause(self, container: str) -> None:
        """Let it go on."""
        await self._json(f"containers/{_quoted(container)}/unpause", "POST")

    async def update(self, container: str, config: Mapping[str, object]) -> Answer:
        """Change its limits while it runs."""
        path = f"containers/{_quoted(container)}/update"
        return await self._json(path, "POST", data=config)

    async def remove(self, container: str) -> None:
        """Kill and remove it; one that is gone, or going, is fine.

        Where the engine fails to, its processes are killed by their control group,
        if that is on this machine, and it is asked again.
        """
        try:
            await self._remove(container)
        except EngineError:
            if not await self._killed(container):
                raise
            await self._remove(container)

    async def _killed(self, container: str) -> bool:
        try:
            found = await self.inspect(container)
        except EngineError as error:
            return error.missing
        pid: object = part(found, "State").get("Pid")
        if not self.place.is_local or not isinstance(pid, int) or pid <= 0:
            return False
        return await anyio.to_thread.run_sync(remains.kill, text(found, "Id"), pid)

    async def _remove(self, container: str) -> None:
        path = f"containers/{_quoted(container)}"
        with _gone_is_fine():
            await self._json(
                path, "DELETE", params={"force": "1", "v": "1"}, time=_LONG
            )

    async def containers(self, **filters: list[str]) -> list[Answer]:
        """List containers, ended ones included."""
        params = {"all": "1", "filters": json.dumps(filters)}
        return await self._list("containers/json", params)

    async def unpack(self, container: str, path: str, archive: bytes) -> None:
        """Unpack a tar archive in it, as the engine's own user."""
        await self._json(
            f"containers/{_quoted(container)}/archive",
            "PUT",
            params={"path": path, "noOverwriteDirNonDir": "1"},
            data=archive,
        )

    async def stats(self, container: str) -> Answer:
        """Say what it uses now."""
        params = {"stream": "0", "one-shot": "1"}
        return await self._json(f"containers/{_quoted(container)}/stats", params=params)

    async def commit(self, container: str) -> str:
        """Make an image of its root; returns the image's id."""
        params = {
            "container": container,
            "pause": "1",
            "changes": f"LABEL {labels.ANONYMOUS}=1",
        }
        made = await self._json("commit", "POST", params=params, data={}, time=_LONG)
        return text(made, "Id")

    # Images and volumes.

    async def image(self, name: str) -> Answer:
        """Describe an image."""
        return await self._json(f"images/{quote(name, safe='/:@')}/json")

    async def images(self, **filters: list[str]) -> list[Answer]:
        """List images."""
        return await self._list("images/json", {"filters": json.dumps(filters)})

    async def remove_image(self, name: str) -> None:
        """Remove an image; one that is gone, or used elsewhere, is fine."""
        with _gone_is_fine():
            await self._json(f"images/{quote(name, safe='/:@')}", "DELETE")

    async def volumes(self, **filters: list[str]) -> list[Answer]:
        """List volumes."""
        params = {"filters": json.dumps(filters)}
        found = (await self._json("volumes", params=params)).get("Volumes")
        return _objects(found)

    async def volume(self, name: str) -> Answer:
        """Describe a volume."""
        return await self._json(f"volumes/{_quoted(name)}")

    async def remove_volume(self, name: str) -> bool:
        """Remove a volume; False if a container has it. One that is gone is fine."""
        try:
            await self._json(f"volumes/{_quoted(name)}", "DELETE")
        except EngineError as error:
            if not (error.missing or error.conflict):
                raise
            return error.missing
        return True

    # The engine itself.

    async def version(self) -> Answer:
        """Say which engine it is."""
        return await self._json("version")

    async def info(self) -> Answer:
        """Say what it can do."""
        return await self._json("info")

    # Streams.

    async def attach(self, container: str) -> Hijacked:
        """Open a stream to the main process.

        Raises:
            SandboxLostError: The engine refused.
        """
        ask = "stream=1&stdin=1&stdout=1&stderr=1"
        return await self._stream(f"containers/{_quoted(container)}/attach?{ask}")

    async def execute(self, container: str, argv: list[str], user: str) -> Hijacked:
        """Start a process in it, and open a stream to that.

        Raises:
            SandboxLostError: The engine refused.
        """
        return await self.run(await self.prepare(container, argv, user))

    async def prepare(
        self,
        container: str,
        argv: list[str],
        user: str,
        *,
        tty: tuple[int, int] | None = None,
    ) -> str:
        """Describe a process for a container; returns the process's id."""
        config: dict[str, object] = {
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": tty is not None,
            "Privileged": False,
            "User": user,
            "Cmd": argv,
            "WorkingDir": "/",
        }
        path = f"containers/{_quoted(container)}/exec"
        return text(await self._json(path, "POST", data=config), "Id")

    async def run(self, process: str, *, tty: bool = False) -> Hijacked:
        """Start a process, and open a stream to it.

        Raises:
            SandboxLostError: The engine refused.
        """
        begin = {"Detach": False, "Tty": tty}
        return await self._stream(f"exec/{_quoted(process)}/start", begin, plain=tty)

    async def outcome(self, process: str) -> Answer:
        """Describe a process."""
        return await self._json(f"exec/{_quoted(process)}/json")

    async def resize(self, process: str, columns: int, rows: int) -> None:
        """Change the size of a process's terminal."""
        params = {"w": str(columns), "h": str(rows)}
        await self._json(f"exec/{_quoted(process)}/resize", "POST", params=params)

    async def _stream(
        self, path: str, body: object | None = None, *, plain: bool = False
    ) -> Hijacked:
        await self._negotiated()
        path = f"/{self._docker.api_version}/{path}"
        security = _security(self._docker)
        async with self._in_time(_LONG):
            return await hijack.open_stream(
                self.place, path, body, security=security, plain=plain
            )

    async def _negotiated(self) -> None:
        if self._docker.api_version == "auto":
            await self.version()

    # One call.

    async def _agree(self) -> None:
        """Learn once which version of the API the engine speaks.

        Left alone, aiodocker asks for `version` in each of the first calls, and
        engines start programs to answer that.
        """
        async with self._agreeing:
            if self._docker.api_version == "auto":
                async with self._docker._query("_ping", versioned_api=False) as answer:
                    said = answer.headers.get("Api-Version", "")
                    answer.close()
                if _VERSION.fullmatch(said):
                    self._docker.api_version = f"v{said}"

    async def _list(self, path: str, params: Mapping[str, str]) -> list[Answer]:
        return _objects(await self._any(path, "GET", params, None, _USUAL))

    async def _json(
        self,
        path: str,
        method: str = "GET",
        *,
        params: Mapping[str, str] | None = None,
        data: object | None = None,
        time: float = _USUAL,
    ) -> Answer:
        answer = await self._any(path, method, params, data, time)
        return cast("Answer", answer) if isinstance(answer, dict) else {}

    async def _any(
        self,
        path: str,
        method: str,
        params: Mapping[str, str] | None,
        data: object | None,
        time: float,
    ) -> object:
        async with self._in_time(time):
            await self._agree()
            return cast(
                "object",
                await self._docker._query_json(
                    path,
                    method,
                    params=None if params is None else dict(params),
                    data=data,
                ),
            )

    @contextlib.asynccontextmanager
    async def _in_time(self, seconds: float) -> AsyncGenerator[None]:
        try:
            async with deadline(seconds):
                yield
        except TimeoutError as error:
            raise self._silent(f"does not answer within {seconds:g} s") from error
        except aiodocker.DockerError as error:
            if error.status == _UNREACHED:
                raise self._silent(f"is not reached: {error.message}") from error
            raise EngineError(error.status, str(error.message)) from error
        except (OSError, aiohttp.ClientError) as error:
            raise self._silent(f"is not reached: {error}") from error
        except ValueError as error:
            # An empty or broken body that is called JSON.
            raise EngineError(0, f"its answer is no JSON: {error}") from error

    def _silent(self, what: str) -> BackendUnavailableError:
        return BackendUnavailableError(
            f"the container engine at {self.place.url} {what}",
            fix=places.remedy(self.place, what),
            backend="docker",
        )


def text(answer: Mapping[str, Any], name: str) -> str:
    """Return a text of an answer.

    Raises:
        SandboxLostError: The engine did not say.
    """
    value: object = answer.get(name)
    if not isinstance(value, str):
        raise SandboxLostError(f"the container engine did not say {name}")
    return value


def part(answer: Mapping[str, Any], *names: str) -> Answer:
    """Return an object in an answer; an empty one where there is none."""
    found: object = answer
    for name in names:
        found = _object(found).get(name)
    return _object(found)


def _object(found: object) -> Answer:
    return cast("Answer", found) if isinstance(found, dict) else {}


def _objects(found: object) -> list[Answer]:
    if not isinstance(found, list):
        return []
    items = cast("list[object]", found)
    return [cast("Answer", item) for item in items if isinstance(item, dict)]


@contextlib.contextmanager
def _gone_is_fine() -> Any:  # noqa: ANN401
    try:
        yield
    except EngineError as error:
        if not (error.missing or error.conflict):
            raise


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _security(docker: aiodocker.Docker) -> ssl.SSLContext | None:
    if not docker.docker_host.startswith("https://"):
        return None
    return docker._docker_machine_ssl_context()
