"""The contract over the blocking facade, driven from threads."""

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio.to_thread
from typing_extensions import override

from isobox import sync
from isobox.testing.contract import WorkspaceContract
from isobox.testing.processes import kill_tree

_BLOCKING = (
    sync.WorkspaceBase,
    sync.Process,
    sync.ByteStream,
    sync.Shell,
    sync.Forward,
    sync.Tool,
)
_AT_ONCE = {"shell", "isolation", "on_end"}
_RENAMED = {"aclose": "close"}


class Awaited:
    """Something blocking, with the names of its asynchronous twin."""

    def __init__(self, blocking: Any) -> None:
        self.blocking = blocking

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.blocking, _RENAMED.get(name, name))
        if not inspect.ismethod(value):
            return _awaited(value)
        if name in _AT_ONCE:
            return lambda *args, **kwargs: _awaited(value(*args, **kwargs))
        return functools.partial(_in_thread, value)

    async def __call__(self, **arguments: object) -> Any:
        return await _in_thread(self.blocking, **arguments)

    async def __aenter__(self) -> Any:
        await _in_thread(self.blocking.__enter__)
        return self

    async def __aexit__(self, *error: object) -> None:
        await _in_thread(self.blocking.__exit__, *error)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = iter(self.blocking)
        while (piece := await _in_thread(next, pieces, None)) is not None:
            yield piece


async def _in_thread(
    function: Callable[..., Any], *args: object, **kwargs: object
) -> Any:
    call = functools.partial(function, *args, **kwargs)
    return _awaited(await anyio.to_thread.run_sync(call, abandon_on_cancel=True))


def _awaited(value: object) -> Any:
    if isinstance(value, list):
        return [_awaited(each) for each in value]
    return Awaited(value) if isinstance(value, _BLOCKING) else value


class TestSync(WorkspaceContract):
    capabilities = frozenset(
        {
            "bounded_regex",
            "confined",
            "dial",
            "kill_tree",
            "persistent",
            "posix_shell",
            "proc",
            "python3",
            "rlimits",
            "snapshot",
            "tty",
        }
    )
    can_kill_sandbox = True
    host_script_backend = None

    @override
    def make_workspace(self, **options: Any) -> Any:
        return Awaited(sync.LocalWorkspace(**options))

    @override
    async def kill(self, workspace: Any) -> None:
        await kill_tree(workspace.blocking._workspace._sandbox._child.pid)
