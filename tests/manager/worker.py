"""A process of a service: it asks a manager for workspaces until it has asked enough.

`python -m tests.manager.worker CONFIG`, with CONFIG as JSON. What became of each
request is a line of the file `done`; what nobody may see is one of `wrong`.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import random
import sys
from pathlib import Path
from typing import ClassVar

import anyio
from typing_extensions import override

from isobox.errors import IsoboxError, NotEntitledError
from isobox.manager import PER_SESSION, Kind, WorkspaceManager
from isobox.testing.fake import MemoryProvider, MemorySandbox, MemoryWorkspace

#: Seconds until a request has to have ended, whatever the manager's deadline.
PATIENCE = 150
#: What a request may end with when others want the same.
REFUSALS = ("WorkspaceHeldError", "QueueTimedOutError", "QuotaError")


class Config:
    """What all processes are told.

    Attributes:
        store: Where the store is.
        base: The directory of all.
        keys: How many workspaces there may be.
        options: More for the manager.
    """

    def __init__(self, *, store, base, keys, options, number=0, requests=0, tasks=8):
        self.store = store
        self.base = Path(base)
        self.keys = keys
        self.options = options
        self.number = number
        self.requests = requests
        self.tasks = tasks
        self.done = self.base / f"done-{number}"
        self.wrong = self.base / "wrong"

    def manager(self, **more):
        """Return a manager of these processes' workspaces."""
        return WorkspaceManager(
            LockedWorkspace,
            basedir=self.base / "workspaces",
            store=self.store,
            isolation=PER_SESSION,
            audit=False,
            **{"options": {"locks": str(self.base / "locks")}, **self.options, **more},
        )

    def tell(self, what):
        """Tell the test what nobody may see."""
        append(self.wrong, what)


def append(path, line):
    """Add a line to a file that others add to as well."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


class LockedSandbox(MemorySandbox):
    """A sandbox that the kernel knows to be open, until its process is gone."""

    lock = -1

    @override
    async def aclose(self):
        await super().aclose()
        # Longer open than is needed, so that who does not wait for it is seen.
        await anyio.sleep(random.uniform(0, 0.003))
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


class LockedProvider(MemoryProvider):
    """Opens a sandbox only if nobody has the same one open."""

    def __init__(self, name, locks):
        super().__init__(LockedSandbox)
        self._locks = locks
        self._path = f"{locks}/{name}"

    @override
    async def create(self, spec, /):
        lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            append(f"{self._locks}/../wrong", f"{self._path} is open twice")
            raise
        await anyio.sleep(random.uniform(0, 0.003))
        sandbox = await super().create(spec)
        sandbox.lock = lock
        return sandbox


class LockedWorkspace(MemoryWorkspace):
    """A workspace with files that outlive it, and one sandbox at a time."""

    backend: ClassVar[str] = "locked"

    def __init__(self, *, workdir, locks, **options):
        super().__init__(**options)
        self.workdir = Path(workdir)
        self._locks = locks

    @override
    def _provider(self):
        return LockedProvider(self.workspace_id, self._locks)


async def ask(manager, config, number):
    """Ask for a workspace and use it, or do something else with it."""
    # Half of the requests come to the process that had the workspace before.
    near = random.random() < 0.5
    key = random.randrange(config.keys)
    if near:
        key = key // 4 * 4 + config.number % 4
    ids = (f"u{key % 7}", f"a{key % 3}", f"s{key}")
    what = random.random()
    if what < 0.03:
        workspace = await manager.get_workspace(*ids)
        await manager.close_workspace(workspace.workspace_id, user_id=ids[0])
    elif what < 0.06:
        workspace = await manager.get_workspace(*ids)
        await manager.delete_workspace(workspace.workspace_id, user_id=ids[0])
    else:
        async with manager.lease(*ids) as workspace:
            await use(workspace, "/".join(ids), config)


async def use(workspace, whose, config):
    """Leave a trace, and look for those of others."""
    path = workspace.workdir / "whose"
    try:
        append(path, whose)
        await anyio.sleep(random.uniform(0, 0.01))
        lines = set(path.read_text().splitlines())
    except FileNotFoundError:
        # Somebody has deleted it meanwhile, as they may.
        return
    if lines != {whose}:
        config.tell(f"{path} of {whose} holds {sorted(lines)}")


async def request(manager, config, number):
    """Ask, and say how it ended."""
    ended = "never"
    with anyio.move_on_after(PATIENCE):
        try:
            await ask(manager, config, number)
            ended = "ok"
        except NotEntitledError:
            ended = "deleted meanwhile"
        except (IsoboxError, OSError) as error:
            ended = type(error).__name__
            if ended not in REFUSALS:
                config.tell(f"{ended}: {error}")
    if ended == "never":
        config.tell(f"request {number} has not ended")
    append(config.done, ended)


async def main(config):
    """Ask as often as was told, in a few tasks at once."""
    lost = []
    numbers = iter(range(config.requests))

    def note(event):
        if event.kind is Kind.LOST:
            lost.append(event)

    async def work():
        for number in numbers:
            await request(manager, config, number)

    async with config.manager(on_event=note) as manager, anyio.create_task_group() as g:
        for _ in range(config.tasks):
            g.start_soon(work)
    if lost:
        config.tell(f"process {config.number} was taken for dead: {lost[0]}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    anyio.run(main, Config(**json.loads(sys.argv[1])))
