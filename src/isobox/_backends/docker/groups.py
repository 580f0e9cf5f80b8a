"""Whether a container's user is in groups that nobody asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from isobox._backends.docker.engine import part
from isobox.errors import BackendUnavailableError

if TYPE_CHECKING:
    from isobox._backends.docker.engine import Engine
    from isobox._backends.docker.options import User


async def refuse_others(engine: Engine, container: str, user: User) -> None:
    """Refuse a container whose first process has more groups than its own.

    Engines look up the number of a group among the names in the image's
    `/etc/group`; an image can so put its commands into any group, for which the
    modes of files in the working directory then count.

    Raises:
        BackendUnavailableError: It has.
    """
    pid: object = part(await engine.inspect(container), "State").get("Pid")
    await refuse(pid, user)


async def refuse(pid: object, user: User) -> None:
    """Refuse a process of a container that has more groups than its own.

    Raises:
        BackendUnavailableError: It has.
    """
    if not isinstance(pid, int) or pid <= 0:
        return
    if others := sorted(await _groups(pid, user) - {user.gid}):
        raise BackendUnavailableError(
            f"the image's /etc/group gives commands the groups {others[:20]}; name "
            "another user, or remove groups whose names are numbers from the image",
            backend="docker",
        )


async def _groups(pid: int, user: User) -> set[int]:
    """Return the groups of a process; none where the host does not see it."""
    try:
        text = await anyio.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return set()
    fields = (line.partition(":") for line in text.splitlines())
    lines = {name: value for name, _, value in fields}
    # An engine in another machine, or a kernel of its own, counts otherwise.
    if lines.get("Uid", "").split()[:1] != [str(user.uid)]:
        return set()
    return {int(each) for each in lines.get("Groups", "").split()}
