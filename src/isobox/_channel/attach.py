"""Commands that another host started, or this one under another channel."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from isobox._channel import frames
from isobox._channel.process import GuestProcess, exit_of
from isobox._channel.refusals import error_for
from isobox._channel.stream import GuestRefusal
from isobox._core.ops import Spawn, WindowSize
from isobox._core.results import PATH_ERRORS, ProcessInfo
from isobox._guest import agent
from isobox.errors import InvalidArgumentError, PathMissingError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from isobox._channel.channel import Channel
    from isobox._channel.stream import Fields, Stream
    from isobox._core.ops import Attach
    from isobox._core.results import Exit
    from isobox.errors import IsoboxError

_LENGTH = struct.Struct(">I")
#: Commands that a list may have, bytes that tell of one, and how many words of it.
_MOST, _LONGEST, _WORDS = 4096, 1 << 14, 16


class AttachedProcess(GuestProcess):
    """A command that was there before; how it was started, the guest says."""

    def __init__(self, stream: Stream, op: Attach) -> None:
        super().__init__(stream, Spawn(cwd=op.id), op.id)

    @override
    def _event(self, fields: Fields) -> None:
        if fields.get("event") == "started":
            tty = WindowSize() if fields.get("tty") is True else None
            stdin = fields.get("stdin") is True
            self._op = Spawn(cwd=self.id, stdin=stdin, tty=tty)
            self.stdout.lost, self.stderr.lost = _lost(fields.get("lost"))
        super()._event(fields)

    @override
    def _refused(self, refusal: GuestRefusal) -> IsoboxError:
        if refusal.code == "missing":
            return PathMissingError(
                f"no process {self.id!r} runs in this workspace, or ended lately",
                op="attach",
                path=self.id,
            )
        return error_for(refusal, op="attach", path=self.id)


def _lost(told: object) -> tuple[int, int]:
    match told:
        case [int(out), int(err)] if out >= 0 and err >= 0:
            return out, err
        case _:
            raise ProtocolError("the guest did not say what is lost")


async def attached(
    channel: Channel, op: Attach, *, explain: Callable[[Exit], Exit]
) -> AttachedProcess:
    """Return a command of the guest's.

    Args:
        channel: The way to the guest.
        op: Which command, and from where on.
        explain: Adds to its end what the backend knows of it.

    Raises:
        PathMissingError: There is no such command.
        InvalidArgumentError: It has not printed so much.
    """
    if not (0 <= op.stdout < 1 << 63 and 0 <= op.stderr < 1 << 63):
        raise InvalidArgumentError("an offset is a number of bytes", op=op.name)
    stream = channel.open("attach", id=op.id, stdout=op.stdout, stderr=op.stderr)
    process = AttachedProcess(stream, op)
    process.explain = explain
    try:
        await process.started()
    except BaseException:
        # It is not killed: it was there before, and runs on without us.
        stream.control("leave")
        raise
    return process


async def running(channel: Channel) -> tuple[ProcessInfo, ...]:
    """Return the guest's commands."""
    stream = channel.open("running")
    stream.inbox(agent.BODY)
    try:
        held = bytearray()
        found: list[ProcessInfo] = []
        while piece := await stream.receive(agent.BODY):
            held += piece
            found.extend(_told(held, _MOST - len(found)))
        await stream.answer()
    except GuestRefusal as refusal:
        raise error_for(refusal, op="running", path="") from None
    except ProtocolError as error:
        channel.fail(error)
        raise
    return tuple(found)


def _told(held: bytearray, most: int) -> Iterator[ProcessInfo]:
    while len(held) >= _LENGTH.size:
        (size,) = _LENGTH.unpack_from(held)
        # SAFETY: the guest is not taken at its word for how much there is to say.
        if size > _LONGEST or not most:
            raise ProtocolError("the guest has more commands than can be")
        end = _LENGTH.size + size
        if len(held) < end:
            return
        yield _info(frames.fields(bytes(held[_LENGTH.size : end])))
        del held[:end]
        most -= 1


def _info(fields: Fields) -> ProcessInfo:
    name, since, end = (fields.get(key) for key in ("id", "since", "end"))
    if not isinstance(name, str) or len(name) > 64 or not isinstance(since, float):
        raise ProtocolError("the guest tells of no command")
    if end is not None and not isinstance(end, dict):
        raise ProtocolError("the guest tells of no end")
    return ProcessInfo(
        id=name,
        command=_command(fields),
        cwd=_text(fields.get("cwd")),
        since=since,
        end=None if end is None else exit_of(cast("Fields", end)),
    )


def _command(fields: Fields) -> str | tuple[str, ...]:
    script, argv = fields.get("script"), fields.get("argv")
    if script is not None:
        return _text(script)
    if not isinstance(argv, list) or len(cast("list[object]", argv)) > _WORDS:
        raise ProtocolError("the guest tells of no command")
    return tuple(map(_text, cast("list[object]", argv)))


def _text(raw: object) -> str:
    if not isinstance(raw, bytes):
        raise ProtocolError("the guest tells of no text")
    return raw.decode("utf-8", PATH_ERRORS)
