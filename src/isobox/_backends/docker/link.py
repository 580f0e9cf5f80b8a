"""The way from a host to a guest that runs in a container."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from isobox._backends.docker import diagnosis
from isobox._backends.docker.engine import EngineError, part
from isobox._channel.channel import Channel
from isobox._channel.deadline import deadline
from isobox._guest import daemon
from isobox.errors import BackendUnavailableError, SandboxLostError

if TYPE_CHECKING:
    from isobox._backends.docker.engine import Engine
    from isobox._backends.docker.hijack import Hijacked
    from isobox._backends.docker.interpreter import Interpreter
    from isobox._backends.docker.recipe import Recipe

#: Seconds that a guest has to say hello.
_START: Final = 30.0
#: Seconds that finding out why a stream ended may take.
_WHY: Final = 3.0
#: Seconds between two looks at a container whose guest is silent.
_LOOK: Final = 2.0


class Guest:
    """The guest as what lives in a container."""

    def __init__(self, engine: Engine, recipe: Recipe, python: Interpreter) -> None:
        self.recipe = recipe
        self.python = python
        self._engine = engine

    @property
    def kind(self) -> str:
        """Where its Python comes from."""
        return self.python.kind

    def command(self) -> list[str]:
        """Return the container's command."""
        return self.python.loader()

    async def begin(self, stream: Hijacked, container: str, key: str) -> Link:
        """Give the first process its program, and reach it.

        Raises:
            SandboxLostError: It did not come up.
        """
        told = {**self.recipe.guest(), "key": key, "name": daemon.NAME}
        stream.write(daemon.program(told))
        try:
            return await self.reach(container, key)
        except SandboxLostError as error:
            said = diagnosis.said(stream.complaint)
            raise diagnosis.lost(f"{error.message} {said}".strip()) from error
        finally:
            stream.abort()

    async def reach(self, container: str, key: str) -> Link:
        """Reach one that runs.

        Raises:
            SandboxLostError: It does not answer.
        """
        return await Link.open(self._engine, container, guest=self, key=key)


class Link:
    """A relay in a container, and the channel over it.

    Attributes:
        channel: The channel.
    """

    def __init__(self, engine: Engine, container: str, stream: Hijacked) -> None:
        self.channel = Channel()
        self._engine = engine
        self._container = container
        self._stream = stream
        self._watch: asyncio.Task[None] | None = None
        stream.on_end = self._ended

    @classmethod
    async def open(
        cls, engine: Engine, container: str, *, guest: Guest, key: str
    ) -> Link:
        """Start a relay as a user that commands are not, and greet the guest.

        Raises:
            SandboxLostError: The container does not run, or its guest is silent.
        """
        user = guest.recipe.user.other
        try:
            stream = await engine.execute(container, guest.python.relay(), user)
        except EngineError as error:
            why = await diagnosis.of_end(engine, container)
            raise diagnosis.lost(f"{why} ({error.message})") from error
        link = cls(engine, container, stream)
        stream.give(link.channel)
        stream.write(daemon.greeting(key))
        env = guest.recipe.environment()
        try:
            await link.channel.greet({"env": env}, timeout=_START)
        except SandboxLostError as error:
            said = diagnosis.said(stream.complaint)
            await link.aclose()
            raise diagnosis.lost(f"{error.message} {said}".strip()) from error
        except BaseException:
            stream.abort()
            raise
        link._watch = asyncio.create_task(link._keep_watching())
        return link

    async def aclose(self) -> None:
        """Hang up, if that is not done."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        self._stream.abort()

    # What goes wrong.

    def _ended(self) -> asyncio.Future[None] | None:
        if self.channel.failure is not None:
            return None
        return asyncio.ensure_future(self._explain())

    async def _explain(self) -> None:
        why = "the container engine does not say why the stream ended"
        with contextlib.suppress(TimeoutError):
            async with deadline(_WHY):
                why = await diagnosis.of_end(self._engine, self._container)
        self.channel.fail(diagnosis.lost(why))

    async def _keep_watching(self) -> None:
        """Look at the container whenever answers are due and none comes."""
        while self.channel.failure is None:
            await asyncio.sleep(_LOOK)
            if self.channel.silence >= _LOOK:
                await self._look()

    async def _look(self) -> None:
        try:
            found = await self._engine.inspect(self._container)
        except EngineError:
            # Should it matter, the stream ends as well, or the guest stays silent.
            return
        except BackendUnavailableError as error:
            if self.channel.silence >= _LOOK:
                self.channel.fail(diagnosis.lost(error.message))
            return
        why = diagnosis.of_state(part(found, "State"))
        if why is not None:
            self.channel.fail(diagnosis.lost(why))
