"""One bwrap for each command, with the arguments that isobox gives to its own.

The host's side of isobox is bypassed: no guest, no channel, and as root no
launcher that changes the user first.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence

import rivals

from isobox._backends.bubblewrap import binary, view
from isobox._guest import bundle
from isobox._linux import seccomp, system
from isobox.abc import Limits


class OneBwrap:
    """Runs each command in a sandbox of its own.

    Attributes:
        python: The interpreter that isobox would start in the sandbox.
    """

    def __init__(self, workdir: str) -> None:
        self._view = view.View()
        view.isolate(self._view)
        view.programs(self._view, {})
        self.python = view.interpreter(self._view)
        view.scratch(self._view, Limits())
        program = self._view.data(bundle.program(self.python))
        self._view.add("--ro-bind-data", program, system.PROGRAM)
        self._view.add("--bind", workdir, system.ROOT)
        view.seal(self._view)
        self._view.add("--chdir", "/", "--seccomp", self._view.data(seccomp.build()))
        arguments = b"".join(os.fsencode(part) + b"\0" for part in self._view.arguments)
        self._command = [binary.find(), "--args", self._view.data(arguments), "--"]

    async def run(self, argv: Sequence[str]) -> bytes:
        """Run a program; return what it printed."""
        descriptors = self._view.descriptors
        for descriptor in descriptors:
            # What one bwrap has read to its end, the next reads again.
            with contextlib.suppress(OSError):
                os.lseek(descriptor, 0, os.SEEK_SET)
        return await rivals.plain([*self._command, *argv], pass_fds=descriptors)

    def close(self) -> None:
        """Close what the arguments name."""
        self._view.close()


@contextlib.contextmanager
def one_bwrap() -> Iterator[OneBwrap]:
    """Give it a temporary directory to show as the workspace."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-bwrap-") as directory,
        contextlib.closing(OneBwrap(directory)) as made,
    ):
        yield made
