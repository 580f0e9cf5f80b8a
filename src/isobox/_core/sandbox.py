"""What a backend's author implements."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from isobox._core.links import real_path
from isobox._core.ops import Place
from isobox._core.results import Turn, Usage
from isobox.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isobox._core import ops
    from isobox._core.capabilities import Capability
    from isobox._core.isolation import Isolation
    from isobox._core.network import Outlet
    from isobox._core.results import (
        ByteStream,
        Changes,
        Connection,
        Edited,
        Entry,
        Listener,
        Listing,
        Matches,
        Page,
        Patched,
        Process,
        ProcessInfo,
        SnapshotRef,
    )
    from isobox._core.spec import Availability, SandboxSpec


class Sandbox(ABC):
    """One live isolated environment.

    Every method raises SandboxLostError, at once, when the environment is
    gone. A cancelled call leaves nothing behind: no process, no partial file.

    Attributes:
        backend: Name of the kind.
        root: Absolute path inside of the workspace's directory.
        capabilities: What it can do beyond the required.
    """

    backend: str
    root: str
    capabilities: frozenset[Capability]

    async def ready(self) -> None:  # noqa: B027 - most have nothing to do
        """Come back if that can be; awaited before each operation.

        Raises:
            SandboxLostError: It cannot come back.
        """

    @property
    def lost(self) -> bool:
        """Whether it is known to be gone; nothing is asked."""
        return False

    async def answers(self) -> bool:
        """Whether it answers; it is asked, which is no operation.

        False, never an error, when it is gone.
        """
        return not self.lost

    @abstractmethod
    async def spawn(self, op: ops.Spawn, /) -> Process:
        """Start a command.

        A program that does not exist is an exit code of 127, one that cannot
        be executed 126.

        Raises:
            PathMissingError: The working directory does not exist.
            PathNotDirectoryError: The working directory is not one.
            InvalidArgumentError: One argument is longer than the kernel takes.
            UnsupportedError: It asks for a capability that is not there.
        """

    async def attach(self, op: ops.Attach, /) -> Process:
        """Find a command of this sandbox, whoever started it.

        Raises:
            UnsupportedError: Commands end with their host here.
            PathMissingError: There is no such command.
            InvalidArgumentError: It has not printed so much.
        """
        raise UnsupportedError(
            f"{self.backend} keeps no output of commands: what another host started "
            "is not found, and no offset is gone back to",
            op=op.name,
        )

    async def running(self, op: ops.Running, /) -> tuple[ProcessInfo, ...]:
        """List the commands of this sandbox, whoever started them.

        Raises:
            UnsupportedError: Commands end with their host here.
        """
        raise UnsupportedError(f"{self.backend} lists no commands", op=op.name)

    async def script(self, op: ops.Script, /) -> Turn:
        """Send a script to a persistent shell; whoever reads its status ends it.

        A shell that has ended says so by its exit, not here.
        """
        with contextlib.suppress(BrokenPipeError):
            await op.process.write(op.script.encode("utf-8", "surrogateescape") + b"\0")
        return Turn()

    @abstractmethod
    async def read(self, op: ops.Read, /) -> ByteStream:
        """Open a regular file for reading; never waits for a FIFO or device.

        Raises:
            PathMissingError: There is no such file.
            PathIsDirectoryError: It is a directory.
            NotRegularFileError: It is a FIFO, a socket or a device.
            PathAccessError: The sandbox's user may not read it.
        """

    @abstractmethod
    async def read_lines(self, op: ops.ReadLines, /) -> Page:
        """Read lines, in bounded memory however large file and lines are.

        Lines end with LF or CRLF and with nothing else.

        Raises:
            PathMissingError: There is no such file.
            PathIsDirectoryError: It is a directory.
            NotRegularFileError: It is a FIFO, a socket or a device.
            PathAccessError: The sandbox's user may not read it.
        """

    @abstractmethod
    async def write(self, op: ops.Write, /) -> Entry:
        """Replace a file's content; readers see the old or the new, whole.

        With `append`, lines are added to it instead: all of them, or none but
        where the sandbox dies.

        Raises:
            ConflictError: `if_match` is not the digest of what is there.
            PathIsDirectoryError: It is a directory.
            PathNotDirectoryError: A parent is a file.
            PathMissingError: A parent is missing and `parents` is false.
            NotRegularFileError: It is a FIFO, a socket or a device.
            PathAccessError: The sandbox's user may not write there.
            StorageError: The file system is full or read-only, or others hold
                the lock to append.
        """

    @abstractmethod
    async def edit(self, op: ops.Edit, /) -> Edited:
        """Replace pieces of a file, all or none.

        Raises:
            EditMismatchError: A text is absent, or ambiguous without `every`;
                the message shows the closest lines, or the lines' numbers.
            ConflictError: `if_match` is not the digest of what is there.
            InvalidArgumentError: The file's encoding has no such character, or
                the file is over 64 MiB.
            PathMissingError: There is no such file.
            PathIsDirectoryError: It is a directory.
            NotRegularFileError: It is a FIFO, a socket or a device.
        """

    @abstractmethod
    async def patch(self, op: ops.Patch, /) -> Patched:
        """Change several files, all or none.

        When a step fails, what was done before it is undone.

        Raises:
            EditMismatchError: A hunk is not in its file; the message shows the
                closest lines.
            ConflictError: A file changed meanwhile.
            PathMissingError: A file to change is not there.
            PathExistsError: A file to make is there already.
            PathIsDirectoryError: It is a directory.
            NotRegularFileError: It is a FIFO, a socket or a device.
            PathAccessError: The sandbox's user may not write there.
            StorageError: The file system is full or read-only.
        """

    @abstractmethod
    async def scan(self, op: ops.Scan, /) -> Listing:
        """Describe a path and what is below it.

        Raises:
            PathMissingError: There is nothing at the path.
            PathNotDirectoryError: Depth is not 0 and it is not a directory.
        """

    @abstractmethod
    async def search(self, op: ops.Search, /) -> Matches:
        """Find matching lines; one unreadable file never loses the others.

        Raises:
            PathMissingError: There is nothing at the path.
            InvalidArgumentError: The expression does not compile.
        """

    @abstractmethod
    async def remove(self, op: ops.Remove, /) -> None:
        """Remove a name; links are removed, never followed.

        Raises:
            PathMissingError: There is nothing at the path.
            PathIsDirectoryError: A directory without `recursive`.
            InvalidArgumentError: It is the workspace's root or above it.
        """

    @abstractmethod
    async def pull(self, op: ops.Pull, /) -> ByteStream:
        """Read a tree as a tar stream.

        Raises:
            PathMissingError: There is nothing at the path.
        """

    @abstractmethod
    async def push(self, op: ops.Push, /) -> int:
        """Unpack a tar stream into a directory.

        Raises:
            ArchiveError: A member is refused; what came before it stays, unless
                the directory is made whole.
            PathExistsError: It is to be made anew, and is there.
            PathNotDirectoryError: The path is not a directory.
        """

    @abstractmethod
    async def dial(self, op: ops.Dial, /) -> Connection:
        """Connect to a port inside.

        Raises:
            PathMissingError: Nothing listens there.
        """

    async def listen(self, op: ops.Listen, /) -> Listener:
        """Open a port of the loopback inside.

        Raises:
            UnsupportedError: The backend has no such way out.
            StorageError: The port is taken, or may not be had.
        """
        raise UnsupportedError(f"{self.backend} leads no port to the host", op=op.name)

    async def capture(self, outlet: Outlet, /) -> str:
        """Lead the traffic that the spec's `capture` names to `outlet`.

        It holds until the sandbox closes. Nothing else leaves.

        Returns:
            The IPv4 network, such as `198.18.0.0/15`, of which every address is
            caught: names are given addresses of it.

        Raises:
            UnsupportedError: The backend cannot.
            BackendUnavailableError: This machine cannot.
        """
        del outlet
        raise UnsupportedError(
            f"{self.backend} cannot filter the network; leave `network` out, or "
            "choose a backend that can, such as bubblewrap"
        )

    @abstractmethod
    async def snapshot(self, op: ops.Snapshot, /) -> SnapshotRef:
        """Save the workspace's files."""

    @abstractmethod
    async def restore(self, op: ops.Restore, /) -> None:
        """Bring back saved files.

        Raises:
            InvalidArgumentError: No such snapshot.
        """

    async def diff(self, op: ops.Diff, /) -> Changes:
        """Compare the private view with its directory.

        Raises:
            UnsupportedError: Commands work on the directory itself.
        """
        raise _no_copy(op)

    async def apply(self, op: ops.Apply, /) -> Changes:
        """Bring the private view's changes to its directory; returns them.

        Protected names, links that leave the tree, devices and set-id bits are
        refused: nothing of the host is changed then.

        Raises:
            UnsupportedError: Commands work on the directory itself.
            ConflictError: The directory has changed meanwhile, at such a path.
            ArchiveError: A change may not come to the host.
        """
        raise _no_copy(op)

    async def discard(self, op: ops.Discard, /) -> None:
        """Throw the private view's changes away.

        Raises:
            UnsupportedError: Commands work on the directory itself.
        """
        raise _no_copy(op)

    async def places(self, asked: Sequence[tuple[str, bool]], /) -> tuple[Place, ...]:
        """Say where paths lead, once links are followed; it is no operation.

        A sandbox that can see to it refuses an operation with `places`, with
        ConflictError, where one leads elsewhere by then.

        Args:
            asked: Absolute paths, and whether the last name of each is followed.
                What is missing leads to itself.

        Raises:
            PathError: Links lead in a circle.
        """
        return tuple(
            [
                Place(path, follow, await real_path(self, path, follow=follow))
                for path, follow in asked
            ]
        )

    async def usage(self) -> Usage:
        """Say what it uses of the host."""
        return Usage()

    @abstractmethod
    def isolation(self) -> Isolation:
        """Say what holds the workload, dimension by dimension."""

    @abstractmethod
    async def aclose(self) -> None:
        """Kill every process and release everything; safe to call again."""


def _no_copy(op: ops.Op[object]) -> UnsupportedError:
    return UnsupportedError(
        f"{op.name}: commands work on the directory itself; open the workspace "
        'with mode="copy"',
        op=op.name,
    )


class Provider(ABC):
    """Makes sandboxes of one kind."""

    name: str

    @abstractmethod
    async def probe(self) -> Availability:
        """Say whether this machine can run it, and if not, what helps."""

    @abstractmethod
    async def create(self, spec: SandboxSpec, /) -> Sandbox:
        """Make a sandbox; it is ready when this returns.

        Raises:
            BackendUnavailableError: The machine cannot run it.
            InvalidArgumentError: The spec asks for what cannot be.
            PathError: The working directory cannot be used.
        """
