"""How a workspace is deleted because somebody says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from isobox.errors import PathError, StoreError, WorkspaceHeldError
from isobox.manager.entry import WAITING, Entry, Phase
from isobox.manager.events import Kind
from isobox.manager.records import Held, Record

if TYPE_CHECKING:
    from isobox.manager.closing import Closing
    from isobox.manager.opening import Opening
    from isobox.manager.site import Site
    from isobox.manager.sweep import Sweep

#: Seconds after which another process is asked again.
_ASK_AGAIN: Final = 0.25
#: The phases in which it is not open here, and may never be.
_NOT_YET: Final = WAITING | {Phase.CLAIMING}


class Deleting:
    """Closes and deletes workspaces by their name, wherever they are open."""

    def __init__(
        self, site: Site, opening: Opening, closing: Closing, sweep: Sweep
    ) -> None:
        self._site = site
        self._opening = opening
        self._closing = closing
        self._sweep = sweep

    async def close(self, record: Record) -> bool:
        """Close a workspace that is open here; returns whether it was.

        Raises:
            StoreError: It stays open, because the store cannot be told.
        """
        entry = self._site.entries.get(record.key or "")
        if entry is None or entry.phase in _NOT_YET:
            return False
        await self._settled(entry)
        if entry.phase is not Phase.OPEN:
            return False
        await self._closed(entry)
        return True

    async def _closed(self, entry: Entry) -> None:
        self._closing.begin(entry, Kind.CLOSED)
        await self._settled(entry)
        if entry.error is not None:
            raise entry.error.with_traceback(None)

    async def delete(self, record: Record) -> bool:
        """Delete a workspace with its files; returns whether there was one.

        Raises:
            StoreError: The store cannot be asked.
            WorkspaceHeldError: Another process has it open and keeps it.
            PathError: Its files cannot be removed.
        """
        # Otherwise who asks for it again and again has it again and again.
        with self._site.entries.reserved(record.key or ""):
            return await self._deleted(record)

    async def _deleted(self, record: Record) -> bool:
        site = self._site
        deadline = site.clock.monotonic() + site.settings.queue_timeout
        while True:
            if not await self._out_of_the_way(record):
                return False
            await site.holder.ensure()
            if site.entries.get(record.key or "") is not None:
                continue
            answer = await self._taken(record)
            if not isinstance(answer, Held):
                return answer
            if site.clock.monotonic() >= deadline:
                raise WorkspaceHeldError(
                    f"workspace {record.workspace_id} is open in {answer.holder}, "
                    "which uses it: delete it there, or later",
                    holder=answer.holder,
                )
            await site.clock.sleep(_ASK_AGAIN)

    async def _out_of_the_way(self, record: Record) -> bool:
        """Close what is open of a key, and end what is to be opened.

        Returns:
            False if it is a later workspace of that key, which stays.

        Raises:
            StoreError: It stays open, because the store cannot be told.
        """
        while (entry := self._site.entries.get(record.key or "")) is not None:
            if entry.phase is not Phase.OPEN:
                self._opening.give_way(entry)
                await self._settled(entry)
            elif entry.record is not None and entry.record.place != record.place:
                return False
            else:
                await self._closed(entry)
        return True

    async def _taken(self, record: Record) -> Held | bool:
        """Delete it unless another has it; who asks for it meanwhile waits."""
        site = self._site
        key, tenant = record.key, record.tenant
        assert key is not None  # noqa: S101 - spares have no name for anybody
        assert tenant is not None  # noqa: S101 - nor a tenant
        entry = Entry(key, tenant, record.workspace_id, site.clock.monotonic())
        entry.begin(Phase.CLOSING)
        site.entries.add(entry)
        try:
            now, place = site.holder.now(), record.place
            answer = await site.store.delete(
                record.workspace_id, site.holder.name, now, place=place
            )
            if isinstance(answer, Record):
                await self._gone(answer)
            return answer if isinstance(answer, Held) else answer is not None
        except StoreError:
            self._sweep.doubt(record)
            raise
        finally:
            site.entries.remove(entry)
            entry.settle(Phase.GONE)

    async def _gone(self, record: Record) -> None:
        failure = await self._sweep.delete(record)
        if failure is not None:
            raise PathError(
                f"the files of workspace {record.workspace_id} cannot be removed: "
                f"{failure}",
                path=failure.filename,
            )

    async def _settled(self, entry: Entry) -> None:
        await self._site.clock.wait(entry.settled)
