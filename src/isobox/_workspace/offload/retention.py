"""How long offloads are kept, and how much of them."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._core.ops import Read, Remove, Scan
from isobox._workspace.offload.names import DATA, OFFLOADED, is_folder
from isobox.errors import InvalidArgumentError, LimitError, PathError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from isobox._core.results import Entry
    from isobox._core.stack import Perform

#: Seconds between two looks for what is too old.
_PERIOD: Final = 3600.0
_MOST: Final = 100_000
#: Bytes of texts that are read in one look to see which data they name; while there
#: are more, all data is kept.
_MOST_READ: Final = 256 << 20
#: Names that are remembered, of texts that are as they were.
_MOST_KNOWN: Final = 200_000
_EXAMPLES: Final = {
    "age": "seconds, such as age=30 * 86_400",
    "size": "bytes, such as size=1 << 30",
}
_NAMED: Final = re.compile(rb"data/([0-9a-f]{64}\.[a-z0-9]{2,4})")
_LONGEST_NAMED: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long offloads are kept. What is in use is never removed.

    In use is what the sessions have whose tools or offloads were used since the
    workspace was initialised, and data that any text names which is kept.

    Attributes:
        age: Seconds after which an offload is removed; None keeps it for good.
        size: Bytes that all offloads may have. The oldest give way to new ones;
            None is without a bound.

    Raises:
        InvalidArgumentError: One is no number above 0.
    """

    age: float | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        for name in ("age", "size"):
            value = getattr(self, name)
            if value is None:
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not value > 0:
                raise InvalidArgumentError(
                    f"retention: {name}={value!r} is no number above 0; give "
                    f"{_EXAMPLES[name]}"
                )


class Keeper:
    """Removes offloads that are too old or too many.

    Args:
        perform: What performs operations.
        root: The workspace's root.
        retention: What is kept.
        used: The directories of sessions that are in use.
        given: The names of data that were given away, and are in use.
    """

    def __init__(
        self,
        perform: Perform,
        root: str,
        retention: Retention,
        *,
        used: set[str],
        given: set[str],
    ) -> None:
        self._perform = perform
        self._root = root.rstrip("/")
        self._retention = retention
        self._used = used
        self._given = given
        self._looked = float("-inf")
        self._held = 0
        self._known: dict[Entry, frozenset[str]] = {}

    async def make_room(self, coming: int) -> None:
        """Return once there is room for as many bytes.

        Raises:
            LimitError: There is not, and all that is there is in use.
        """
        most = self._retention.size
        period = min(_PERIOD, self._retention.age or _PERIOD)
        late = time.monotonic() - self._looked >= period
        if late or (most is not None and self._held + coming > most):
            await self._look(coming)
        if most is not None and self._held + coming > most:
            raise LimitError(
                f"offloads have {self._held} bytes, and {coming} more are over "
                f"retention.size={most}; all that is there is in use: remove a "
                "session's directory, or allow more"
            )
        self._held += coming

    async def _look(self, coming: int) -> None:
        inventory = Inventory(await self._entries(), self._root, self._used)
        await self._read(inventory)
        inventory.in_use(self._given)
        if self._retention.age is not None:
            await self._remove(inventory.old(time.time() - self._retention.age))
        if self._retention.size is not None:
            await self._remove(inventory.over(self._retention.size - coming))
        self._held = inventory.size
        self._looked = time.monotonic()

    async def _read(self, inventory: Inventory) -> None:
        """Find out which data the texts name."""
        known, self._known = self._known, {}
        left, room = _MOST_READ, _MOST_KNOWN
        for each in inventory.texts():
            names = known.get(each)
            if names is None:
                left -= each.size
                # SAFETY: the agent may have made them as large as it likes.
                if left < 0:
                    inventory.in_use(inventory.data())
                    return
                names = frozenset([name async for name in self._named(each)])
            inventory.note(each.path, names)
            room -= len(names)
            if room >= 0:
                self._known[each] = names

    async def _entries(self) -> list[Entry]:
        found: list[Entry] = []
        for folder, depth in (("data", 1), ("sessions", 2)):
            path = f"{self._root}/{folder}"
            try:
                found += (
                    await self._perform(
                        # SAFETY: what is behind a link is not ours.
                        Scan(path=path, depth=depth, follow=False, limit=_MOST)
                    )
                ).entries
            except PathError:
                continue  # nothing was offloaded there yet
        return found

    async def _named(self, text: Entry) -> AsyncIterator[str]:
        """Yield the names of data that a text holds."""
        try:
            stream = await self._perform(Read(path=text.path, length=text.size))
        except PathError:
            return
        rest = b""
        async with stream:
            async for piece in stream:
                rest += piece
                for match in _NAMED.finditer(rest):
                    yield match[1].decode("ascii")
                rest = rest[-_LONGEST_NAMED:]

    async def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                await self._perform(Remove(path=path))
            except PathError:
                continue  # it is gone, or no longer what it was


class Inventory:
    """What was offloaded, and which of it names which data.

    Attributes:
        size: Bytes of all of it.
    """

    def __init__(self, entries: Iterable[Entry], root: str, used: set[str]) -> None:
        self._root = root
        self._used = used
        # SAFETY: names that are not ours are the agent's, and stay.
        ours = (each for each in entries if each.kind == "file")
        self._entries = {each.path: each for each in ours if self._is_ours(each)}
        self._names: dict[str, set[str]] = {path: set() for path in self._entries}
        self._uses: Counter[str] = Counter()
        self.size = sum(each.size for each in self._entries.values())

    def _is_ours(self, entry: Entry) -> bool:
        folder, name = entry.path.rsplit("/", 1)
        if folder == f"{self._root}/data":
            return DATA.fullmatch(name) is not None
        above, session = folder.rsplit("/", 1)
        known = above == f"{self._root}/sessions" and is_folder(session)
        return known and OFFLOADED.fullmatch(name) is not None

    def texts(self) -> list[Entry]:
        """Return what may name data: a long text is data itself, and names more."""
        return [
            each
            for path, each in self._entries.items()
            if not self._is_data(path) or path.endswith(".txt")
        ]

    def data(self) -> list[str]:
        """Return the names of all data."""
        return [
            each.name for path, each in self._entries.items() if self._is_data(path)
        ]

    def note(self, path: str, names: Iterable[str]) -> None:
        """Note which data a text names, once: itself and what is missing are none."""
        places = {f"{self._root}/data/{name}": name for name in names}
        known = self._entries.keys() & places.keys() - {path}
        self._names[path] = {places[place] for place in known}
        self._uses.update(self._names[path])

    def in_use(self, names: Iterable[str]) -> None:
        """Note that data is in use, whoever names it."""
        self._uses.update(names)

    def old(self, before: float) -> Iterable[str]:
        """Take out what is older than a time, and yield the paths."""
        limit = before * 1e9
        for texts in (True, False):
            for path in self._by_age(texts=texts):
                yield from self._let_go(
                    path, lambda path: self._entries[path].mtime_ns < limit
                )

    def over(self, most: int) -> Iterable[str]:
        """Take out the oldest until `most` bytes are left, and yield the paths."""
        for texts in (False, True):
            for path in self._by_age(texts=texts):
                yield from self._let_go(path, lambda _: self.size > most)

    def _let_go(self, path: str, wanted: Callable[[str], bool]) -> Iterable[str]:
        """Take out what is free, and such of the data as nobody names then."""
        going = [path]
        while going:
            path = going.pop()
            # Not before: a session may have come into use a moment ago.
            free = path in self._entries and not self._is_used(path)
            if free and wanted(path):
                named = sorted(self._names[path])
                yield self._take(path)
                going += (f"{self._root}/data/{name}" for name in named)

    def _by_age(self, *, texts: bool) -> list[str]:
        paths = (path for path in self._entries if self._is_data(path) is not texts)
        return sorted(paths, key=lambda path: self._entries[path].mtime_ns)

    def _is_used(self, path: str) -> bool:
        folder, name = path.rsplit("/", 1)
        if self._is_data(path):
            return self._uses[name] > 0
        return folder.removeprefix(f"{self._root}/") in self._used

    def _is_data(self, path: str) -> bool:
        return path.startswith(f"{self._root}/data/")

    def _take(self, path: str) -> str:
        self.size -= self._entries.pop(path).size
        self._uses.subtract(self._names.pop(path))
        return path
