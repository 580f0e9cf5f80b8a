"""Lines that match: files come from inside, and are searched on the host."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from isobox._channel import unpack
from isobox._core.ops import Scan
from isobox._core.results import Matches
from isobox._shell.answers import refused
from isobox._shell.archives import Members
from isobox._shell.listing import Tree, described
from isobox._shell.quote import encoded, filled
from isobox.errors import PathNotDirectoryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._core.ops import Search
    from isobox._core.results import Entry
    from isobox._shell.aside import Aside, Asides
    from isobox._shell.operators import Operator

#: Files over this are searched up to it.
_LARGEST: Final = 64 << 20
#: Bytes of names that go to one program, and bytes and number of files at once.
_NAMES, _TOGETHER, _MANY = 64 << 10, 8 << 20, 256
_MOST_TOLD: Final = 64 << 20
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_FETCH: Final = "( cd -- <top> && tar -cf - --no-recursion -- <names> )"
_HOLDS: Final = (
    "( cd -- <top> && grep -c -F -e <text> -e <little> -e <big> -- <names> /dev/null )"
)


class Hunt:
    """One search.

    Args:
        operator: A shell for the time being.
        asides: What matches lines and names.
        op: What is sought.
        root: The workspace's.
    """

    def __init__(
        self, operator: Operator, asides: Asides, op: Search, root: str
    ) -> None:
        self._operator = operator
        self._asides = asides
        self._op = op
        self._root = root
        self._until = time.monotonic() + op.timeout
        self._found: list[bytes] = []
        self._skipped: list[str] = []
        self._partial: list[str] = []
        self._files = 0
        self._cut = self._late = False

    async def matches(self) -> Matches:
        """Find what there is until the time is over.

        Raises:
            PathMissingError: There is nothing at the path.
            InvalidArgumentError: The expression does not compile.
        """
        op = self._op
        top, files = await self._candidates()
        async with self._asides.one(op="search", path=op.path) as aside:
            try:
                told = await aside.ask({"search": _fields(op)}, timeout=self._left)
                for batch in _batches(await self._worth(top, files, told["needed"])):
                    if not await self._look(aside, top, batch):
                        break
            except TimeoutError:
                self._late = True
        every = unpack.matches(
            b"".join(self._found), op.path, cut=self._late, mode=op.mode
        )
        return Matches(
            tuple(every),
            self._files,
            self._late or self._cut,
            tuple(self._skipped[:50]),
            self._late,
            tuple(self._partial[:50]),
        )

    @property
    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    async def _candidates(self) -> tuple[str, list[Entry]]:
        """Return a directory, and the regular files below it to look at."""
        op = self._op
        tree = Tree(self._operator, self._asides, op.path, self._root, op="search")
        try:
            entries = [entry async for entry in tree.entries(depth=None)]
        except PathNotDirectoryError:
            return await self._one_file()
        kept = await tree.kept(
            entries,
            ignored=op.ignored,
            hidden=op.hidden,
            pattern=op.glob,
            types=op.types,
        )
        return op.path, [entry for entry in kept if entry.kind == "file"]

    async def _one_file(self) -> tuple[str, list[Entry]]:
        path = self._op.path
        top = await described(self._operator, Scan(path=path, depth=0))
        if top.kind != "file":
            raise refused("not_regular", path, op="search")
        return path.rsplit("/", 1)[0] or "/", [top]

    async def _worth(self, top: str, files: list[Entry], text: bytes) -> list[Entry]:
        """Leave out the files that lack what every match has."""
        if not text or len(files) < 2:
            self._files += len(files)
            return files
        counts: dict[bytes, bool] = {}
        for names in _lists([_name(top, each) for each in files]):
            little, big = _UTF16
            code = filled(
                _HOLDS, top=top, text=text, little=little, big=big, names=names
            )
            answer = await self._operator.ask(code, most=_MOST_TOLD)
            for line in answer.split(b"\n"):
                name, _, count = line.rpartition(b":")
                counts[name] = count != b"0"
        return [each for each in files if self._holds(counts, top, each)]

    def _holds(self, counts: dict[bytes, bool], top: str, entry: Entry) -> bool:
        name = _name(top, entry)
        if b"\n" in name:
            self._files += 1
            return True
        if name not in counts:
            self._skipped.append(entry.path)
            return False
        self._files += 1
        return counts[name]

    async def _look(self, aside: Aside, top: str, batch: list[Entry]) -> bool:
        wanted = {_name(top, each): each for each in batch}
        code = filled(_FETCH, top=top, names=wanted)
        files: dict[bytes, bytes] = {}
        members = Members(self._operator.pieces(code), op="search")
        async for member in members:
            data = [piece async for piece in members.content(most=_LARGEST)]
            if member.isreg() and encoded(member.name) in wanted:
                files[encoded(member.name)] = b"".join(data)
        missing = [each for name, each in wanted.items() if name not in files]
        self._skipped += [each.path for each in missing]
        self._files -= len(missing)
        pairs = [
            [encoded(entry.path), files[name]]
            for name, entry in wanted.items()
            if name in files
        ]
        self._partial += [
            entry.path
            for name, entry in wanted.items()
            if entry.size > _LARGEST and _is_text(files.get(name, b"\0"))
        ]
        told = await aside.ask({"files": pairs}, timeout=self._left)
        self._found.append(told["found"])
        self._cut = self._cut or told["cut"]
        return bool(told["more"]) and not self._over()

    def _over(self) -> bool:
        self._late = self._late or not self._left
        return self._late


def _fields(op: Search) -> dict[str, Any]:
    return {
        "pattern": op.pattern,
        "literal": op.literal,
        "ignore_case": op.ignore_case,
        "mode": op.mode,
        "multiline": op.multiline,
        "before": op.before,
        "after": op.after,
        "limit": op.limit,
        "offset": op.offset,
    }


def _is_text(data: bytes) -> bool:
    return b"\0" not in data or data.startswith(_UTF16)


def _name(top: str, entry: Entry) -> bytes:
    return b"./" + encoded(entry.path)[len(encoded(top).rstrip(b"/")) + 1 :]


def _lists(names: list[bytes]) -> Iterator[list[bytes]]:
    """Yield names, as many as one program takes; those of several lines never."""
    some: list[bytes] = []
    size = 0
    for name in names:
        if b"\n" in name:
            continue
        some.append(name)
        size += len(name) + 1
        if size > _NAMES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _batches(files: list[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    size = named = 0
    for entry in files:
        batch.append(entry)
        size += entry.size
        named += len(entry.path)
        if size > _TOGETHER or len(batch) >= _MANY or named > _NAMES:
            yield batch
            batch, size, named = [], 0, 0
    if batch:
        yield batch
