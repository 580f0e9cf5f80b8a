"""One operation's stream: bytes in and out with credit, events, one answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from isobox._channel import frames
from isobox._channel.deadline import deadline
from isobox._core.results import PATH_ERRORS
from isobox._guest import agent
from isobox.errors import ProtocolError, SandboxLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from isobox._channel.channel import Channel

Fields = dict[str, object]


class Inbox:
    """Bytes that the guest sent on one channel and nobody has read yet."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._consumed = 0
        self._waiter: asyncio.Future[None] | None = None
        self.ended = False

    def put(self, data: bytes) -> None:
        """Take what arrived.

        Raises:
            ProtocolError: The guest sent more than was granted.
        """
        # SAFETY: the credit is what bounds the host's memory; it is checked here.
        if self.ended or self._held + self._consumed + len(data) > self._window:
            raise ProtocolError("the guest sent more than it was granted")
        self._held += len(data)
        self._pieces.append(data)
        self._wake()

    def end(self) -> None:
        """Note that nothing more comes."""
        self.ended = True
        self._wake()

    def take(self) -> tuple[bytes, int]:
        """Return the next piece and how much may be granted again."""
        piece = self._pieces.popleft()
        self._held -= len(piece)
        self._consumed += len(piece)
        if self._consumed < self._window // 4:
            return piece, 0
        grant, self._consumed = self._consumed, 0
        return piece, grant

    def complain(self, text: bytes) -> None:
        """Add what the host itself has to say."""
        self._pieces.append(text)

    def drain(self) -> bytes:
        """Return everything that is there."""
        everything = b"".join(self._pieces)
        self._pieces.clear()
        return everything

    def __bool__(self) -> bool:
        return bool(self._pieces)

    async def wait(self) -> None:
        """Wait until there is something, or nothing more comes."""
        if not self._pieces and not self.ended:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class Stream:
    """What the host holds of one operation in the guest."""

    def __init__(self, channel: Channel, number: int) -> None:
        self.channel = channel
        self.number = number
        self.on_event: Callable[[Fields], None] | None = None
        #: Bytes that were sent on all channels.
        self.sent = 0
        self._hook: Callable[[Fields, BaseException | None], None] | None = None
        self._inboxes: dict[int, Inbox] = {}
        self._credit: dict[int, int] = {}
        self._creditors: list[asyncio.Future[None]] = []
        self._answer: asyncio.Future[Fields] = channel.loop.create_future()
        # Nobody may be waiting when the sandbox is lost; that is no mistake.
        self._answer.add_done_callback(_retrieved)

    # What arrives.

    def inbox(self, number: int, *, window: int = agent.WINDOW) -> Inbox:
        """Return the inbox of a channel; it exists from the first call on."""
        if number not in self._inboxes:
            self._inboxes[number] = Inbox(window)
        return self._inboxes[number]

    def arrived(self, kind: int, payload: bytes) -> None:
        """Take one frame.

        Raises:
            ProtocolError: It is not one that may come now.
        """
        # SAFETY: empty DATA would cost no credit, and read as the end.
        if kind == agent.DATA and len(payload) > 1:
            self._box(payload[0]).put(payload[1:])
        elif kind == agent.END and len(payload) == 1:
            self._box(payload[0]).end()
        elif kind == agent.CREDIT and len(payload) == 5:
            self._granted(payload[0], int.from_bytes(payload[1:], "big"))
        elif kind == agent.EVENT and self.on_event is not None:
            self.on_event(frames.fields(payload))
        elif kind == agent.RESULT:
            self._settle(frames.fields(payload), None)
        elif kind == agent.ERROR:
            self._settle({}, refusal(frames.fields(payload)))
        else:
            raise ProtocolError(f"the guest sent a frame out of place (kind {kind})")

    def _box(self, number: int) -> Inbox:
        try:
            return self._inboxes[number]
        except KeyError:
            raise ProtocolError("the guest sent bytes on no channel") from None

    def _granted(self, number: int, amount: int) -> None:
        credit = self._credit.get(number, agent.WINDOW) + amount
        # SAFETY: with every grant bounded by what was sent, so is their number.
        if not amount:
            raise ProtocolError("the guest granted nothing")
        if credit > agent.WINDOW:
            raise ProtocolError("the guest granted more than the window")
        self._credit[number] = credit
        self._wake()

    def _wake(self) -> None:
        creditors, self._creditors = self._creditors, []
        for waiter in creditors:
            if not waiter.done():
                waiter.set_result(None)

    def _settle(self, result: Fields, error: BaseException | None) -> None:
        self.channel.forget(self)
        hook, self._hook = self._hook, None
        if hook is not None:
            hook(result, error)
        for box in self._inboxes.values():
            box.end()
        if not self._answer.done():
            if error is None:
                self._answer.set_result(result)
            else:
                self._answer.set_exception(error)
        self._wake()

    def on_answer(self, hook: Callable[[Fields, BaseException | None], None]) -> None:
        """Call `hook` with the answer, or with what failed, when it comes."""
        self._hook = hook

    def lost(self, error: SandboxLostError) -> None:
        """The sandbox is gone; whoever waits is told."""
        self._settle({}, error)

    # What is asked.

    @property
    def answered(self) -> bool:
        """Whether the guest has answered, or is gone."""
        return self._answer.done()

    def raise_failure(self) -> None:
        """Raise what the operation failed with, if it has failed."""
        if self._answer.done():
            self._answer.result()

    async def answer(self) -> Fields:
        """Return the answer.

        Raises:
            GuestRefusal: The guest refused.
            SandboxLostError: The sandbox is gone.
        """
        return await asyncio.shield(self._answer)

    async def receive(self, number: int) -> bytes:
        """Return the next piece of a channel, b"" at its end.

        Raises:
            SandboxLostError: The sandbox is gone.
        """
        box = self.inbox(number)
        await box.wait()
        if not box:
            if self._answer.done() and isinstance(
                self._answer.exception(), SandboxLostError
            ):
                self._answer.result()
            return b""
        return self._taken(number, box)

    def receive_nowait(self, number: int) -> bytes:
        """Return everything that has arrived on a channel."""
        box = self.inbox(number)
        pieces: list[bytes] = []
        while box:
            pieces.append(self._taken(number, box))
        return b"".join(pieces)

    def _taken(self, number: int, box: Inbox) -> bytes:
        piece, grant = box.take()
        if grant and not self.answered and not box.ended:
            raw = bytes((number,)) + grant.to_bytes(4, "big")
            self.channel.write(agent.CREDIT, self.number, raw)
        return piece

    async def send(self, number: int, data: bytes) -> None:
        """Send bytes, as fast as the guest takes them; none once it answered."""
        view = memoryview(data)
        while view and not self.answered:
            room = self._room(number)
            if room <= 0:
                waiter = self.channel.loop.create_future()
                self._creditors.append(waiter)
                await waiter
                continue
            piece, view = view[:room], view[room:]
            self._put(number, bytes(piece))
            await self.channel.drain()

    def send_nowait(self, number: int, data: bytes) -> bool:
        """Send bytes if the guest takes all of them now; returns whether it does."""
        if self.channel.is_full or len(data) > self._room(number):
            return False
        if data and not self.answered:
            self._put(number, data)
        return True

    def _room(self, number: int) -> int:
        return min(self._credit.get(number, agent.WINDOW), agent.PIECE)

    def _put(self, number: int, piece: bytes) -> None:
        self._credit[number] = self._credit.get(number, agent.WINDOW) - len(piece)
        self.channel.write(agent.DATA, self.number, bytes((number,)), piece)
        self.sent += len(piece)

    def end(self, number: int) -> None:
        """Say that a channel has no more bytes."""
        if not self.answered:
            self.channel.write(agent.END, self.number, bytes((number,)))

    def control(self, what: str, **more: object) -> None:
        """Ask for something within the operation."""
        if not self.answered:
            payload = agent.encode({"do": what, **more})
            self.channel.write(agent.CONTROL, self.number, payload)

    async def cancel(self) -> None:
        """End the operation; nothing of it is left when this returns.

        A guest that does not answer within 5 seconds loses its sandbox.
        """
        if self.answered:
            return
        self.control("cancel")
        try:
            async with deadline(5):
                while not self._answer.done():
                    await self._unblock()
        except TimeoutError:
            self.channel.fail(SandboxLostError("the guest does not answer"))

    async def _unblock(self) -> None:
        # What was under way must be taken, or the answer waits behind it.
        for number in self._inboxes:
            self.receive_nowait(number)
        with contextlib.suppress(Exception):
            await asyncio.wait([self._answer], timeout=0.01)


class GuestRefusal(Exception):  # noqa: N818 - it never leaves the backend
    """The guest could not do it; `code` is one of the protocol's words."""

    def __init__(
        self, code: str, message: str, number: int, path: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.number = number
        self.path = path


def refusal(message: Fields) -> GuestRefusal:
    """Return the refusal that an ERROR frame carries."""
    code, text, number = (message.get(key) for key in ("code", "message", "errno"))
    path = message.get("path")
    # SAFETY: the guest's text goes into an error message; bound it. A number
    # beyond what errno has would make strerror raise.
    return GuestRefusal(
        code if isinstance(code, str) else "internal",
        text[: agent.LONGEST_MESSAGE] if isinstance(text, str) else "",
        number if isinstance(number, int) and 0 <= number < 4096 else 0,
        path[:4096].decode("utf-8", PATH_ERRORS) if isinstance(path, bytes) else None,
    )


def _retrieved(future: asyncio.Future[Fields]) -> None:
    if not future.cancelled():
        future.exception()
