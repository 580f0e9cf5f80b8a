"""Starting a guest as a child of the host."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import TYPE_CHECKING

import anyio.to_thread

from isobox._channel.channel import Channel
from isobox.errors import SandboxLostError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from isobox._channel.stream import Fields

#: Seconds that a guest has to say hello, and to end when the host hangs up.
_START, _END = 30.0, 5.0
_LONGEST_COMPLAINT = 8192


class GuestChild:
    """A guest that is a child of the host, and the channel to it.

    Attributes:
        channel: The channel.
        pid: The child's process id on the host.
    """

    def __init__(self, popen: subprocess.Popen[bytes], errors: int) -> None:
        self.channel: Channel
        self.pid = popen.pid
        self._popen = popen
        self._errors = errors

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        config: Fields,
        env: Mapping[str, str],
        cwd: str,
        pass_fds: Sequence[int],
    ) -> GuestChild:
        """Start a program that becomes a guest on its standard input.

        Raises:
            GuestFailedError: It ended or stayed silent instead.
        """
        ours, theirs = socket.socketpair()
        reader, writer = os.pipe()
        try:
            popen = subprocess.Popen(
                list(argv),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=writer,
                env=dict(env),
                cwd=cwd,
                pass_fds=tuple(pass_fds),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(reader)
            raise
        finally:
            theirs.close()
            os.close(writer)
        child = cls(popen, reader)
        try:
            child.channel = await Channel.over(ours)
            await child.channel.greet(config, timeout=_START)
        except SandboxLostError as error:
            await child.aclose()
            raise GuestFailedError(child.complaint() or error.message) from error
        except BaseException:
            with anyio.CancelScope(shield=True):
                await child.aclose()
            raise
        child.channel.on_lost = child.explain
        return child

    def complaint(self) -> str:
        """Return what it wrote to its standard error."""
        return self._complaint

    _complaint = ""

    def explain(self) -> None:
        """Add to the channel's failure what the child has left to say."""
        failure = self.channel.failure
        said = self._said()
        if failure is not None and said:
            failure.message = f"{failure.message}: {said}"

    def _said(self) -> str:
        if self._errors < 0:
            return ""
        os.set_blocking(self._errors, False)
        try:
            raw = os.read(self._errors, _LONGEST_COMPLAINT)
        except BlockingIOError:
            return ""
        return raw.decode("utf-8", "replace").strip()

    async def aclose(self) -> None:
        """Hang up and wait until the child is gone; it is killed if it stays."""
        channel: Channel | None = getattr(self, "channel", None)
        if channel is not None:
            await channel.aclose()
        await anyio.to_thread.run_sync(self._reap)
        self._complaint = self._complaint or self._said()
        if self._errors >= 0:
            os.close(self._errors)
            self._errors = -1

    def _reap(self) -> None:
        try:
            self._popen.wait(_END)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()


class GuestFailedError(Exception):
    """A guest did not come up; the message is what it or its launcher said."""
