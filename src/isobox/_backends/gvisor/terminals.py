"""Whether the terminals of a runsc do what programs expect of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from isobox._core.ops import Spawn
from isobox._linux import system

if TYPE_CHECKING:
    from isobox._backends.gvisor.binary import Runsc
    from isobox._channel.sandbox import ChannelSandbox

#: Ends with 0 if a terminal hangs up when nobody has it any more, and if control-C
#: interrupts. gVisor's have not always done so: who reads one then waits for ever.
_CHECK: Final = """
import os, pty, select, sys

def hangs_up(master, patience):
    poll = select.poll()
    poll.register(master, select.POLLHUP)
    return any(event & select.POLLHUP for _, event in poll.poll(patience))

master, slave = os.openpty()
os.close(slave)
if not hangs_up(master, 0):
    sys.exit(1)
pid, master = pty.fork()
if pid == 0:
    os.execv("/bin/cat", ["cat"])
os.write(master, b"\\3")
interrupted = hangs_up(master, 2000)
os.kill(pid, 9)
sys.exit(0 if interrupted else 1)
"""

_known: dict[Runsc, bool] = {}


async def usable(sandbox: ChannelSandbox, runsc: Runsc, python: str) -> bool:
    """Return whether commands may run on a terminal; measured once for a runsc.

    Raises:
        SandboxLostError: The sandbox is gone.
    """
    if runsc not in _known:
        argv = (python, "-I", "-S", "-c", _CHECK)
        check = Spawn(argv=argv, cwd=system.ROOT, timeout=10, capture=0)
        process = await sandbox.spawn(check)
        try:
            _known[runsc] = (await process.wait()).exit_code == 0
        finally:
            await process.aclose()
    return _known[runsc]
