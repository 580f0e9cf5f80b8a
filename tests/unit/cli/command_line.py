"""The command line as a program, and a person who uses it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from contextlib import contextmanager, suppress
from pathlib import Path

import isobox

# The tests run in directories of their own, where a relative PYTHONPATH is lost.
FOUND = f"import sys; sys.path.insert(0, {str(Path(isobox.__file__).parents[1])!r}); "
MAIN = FOUND + "sys.argv[0] = 'isobox'; from isobox.cli import main; main()"
ISOBOX = [sys.executable, "-c", MAIN]
PATIENCE = 30


@contextmanager
def running(*arguments, **options):
    process = subprocess.Popen([*ISOBOX, *arguments], **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()


class Terminal:
    """A person at a terminal."""

    def __init__(self, *arguments, cwd, program=ISOBOX):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            environment = {**os.environ, "TERM": "xterm-256color"}
            os.execve(program[0], [*program, *arguments], environment)
        self.seen = b""

    def resize(self, columns, rows):
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, size)

    def type(self, text):
        os.write(self.fd, text)

    def expect(self, text):
        """Wait for a text; what came before it and itself are taken."""
        while text not in self.seen:
            self.seen += self._received()
        self.seen = self.seen.partition(text)[2]

    def quiet(self):
        """Return what comes by itself in a while."""
        while select.select([self.fd], [], [], 0.3)[0]:
            self.seen += os.read(self.fd, 65536)
        return self.seen

    def _received(self):
        ready, _, _ = select.select([self.fd], [], [], PATIENCE)
        assert ready, self.seen
        return os.read(self.fd, 65536)

    def modes(self):
        return termios.tcgetattr(self.fd)

    def end(self):
        # A terminal that everybody has left reads as an error.
        with suppress(OSError):
            while self._received():
                pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self):
        os.close(self.fd)
