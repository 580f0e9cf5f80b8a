"""What is below a directory, as `find` and `stat` tell it."""

from __future__ import annotations

import heapq
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

from isobox._core.file_types import globs_of
from isobox._core.results import Listing
from isobox._guest import agent
from isobox._shell import answers
from isobox._shell.answers import refused
from isobox._shell.quote import decoded, encoded, filled
from isobox._shell.worker import Keeping
from isobox.errors import InvalidArgumentError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from isobox._core.ops import Scan
    from isobox._core.results import Entry
    from isobox._shell.aside import Asides
    from isobox._shell.operators import Operator

#: Bytes of what is told of a tree: some millions of names.
_MOST: Final = 1 << 30
_LARGEST_RULES: Final = 1 << 20
#: Stars and braces of which a pattern may have so many to be matched at once.
_FEW: Final = 2
#: Seconds that the names of a tree may take to be matched.
_LONGEST_CHOICE: Final = 20.0
#: Seconds that the files of a tree may take to be read, if each takes no longer than
#: any answer may.
_DIGESTING: Final = 3600.0
_ONE: Final = """\
( p=<path>
f=$(stat {follow}-c <format> -- "$p" 2>/dev/null && printf x) || why "$p"
echo ok; printf %s "${{f%x}}"{digest} )"""
_DIGEST_OF_ONE: Final = '; [ ! -f "$p" ] || sha256sum <"$p"'
_TREE: Final = """\
( p=<path>
[ -d "$p" ] || {{ [ -e "$p" ] && no not_directory; why "$p"; }}
[ <follow> = 1 ] || [ ! -L "$p" ] || no not_directory
cd -- "$p" || no access
echo ok
find . -mindepth 1{depth}{kinds} -exec stat -c <format> -- {{}} + )"""
#: One file after another: what stands before a name is how long it is not.
_DIGESTS: Final = """\
( cd -- <path> && find . -mindepth 1{depth} -type f -exec sh -c '
for f; do printf "%s/%s/" "$f" <nonce>; sha256sum <"$f"; echo "/"<nonce>"/"; done
' sh {{}} + )"""
_RULES: Final = """\
( cd -- <path> && find . \\( -name .rgignore -o -name .ignore -o -name .gitignore \
-o -path "*/.git/info/exclude" \\) -type f -exec sh -c '
for f; do printf "%s/%s/" "$f" <nonce>; head -c 1048576 "$f"; echo "/"<nonce>"/"; done
' sh {{}} + )"""
_ABOVE: Final = """\
( cd -- <path> && for f in .rgignore .ignore .gitignore .git/info/exclude; do
[ -f "$f" ] && { printf '%s/%s/' "$f" <nonce>; head -c 1048576 "$f"; \
printf '/%s/\\n' <nonce>; }; done; : )"""


async def described(operator: Operator, op: Scan) -> Entry:
    """Describe one path.

    Raises:
        PathMissingError: There is nothing.
    """
    nonce = secrets.token_hex(8)
    code = filled(
        _ONE.format(
            follow="-L " if op.follow else "",
            digest=_DIGEST_OF_ONE if op.digest else "",
        ),
        path=op.path,
        format=answers.FORMAT.format(nonce),
    )
    answer = answers.check(await operator.ask(code), op="scan", path=op.path)
    told, _, digest = answer.rpartition(f"/{nonce}/\n".encode())
    found = answers.records(told + f"/{nonce}/\n".encode(), nonce)
    if len(found) != 1:
        raise ProtocolError("the shell inside describes something else")
    entry = answers.entry(found[0], op.path)
    if op.digest and entry.kind == "file":
        return entry._replace(digest=answers.digest_in(digest))
    return entry


class Tree:
    """The names below a directory.

    Args:
        operator: A shell for the time being.
        asides: What matches names.
        path: The directory.
        root: The workspace's, above which no rules are looked for.
        op: Which operation it is.
    """

    def __init__(
        self, operator: Operator, asides: Asides, path: str, root: str, *, op: str
    ) -> None:
        self._operator = operator
        self._asides = asides
        self._path = path
        self._root = root
        self._op = op

    async def entries(
        self, *, depth: int | None, files_only: bool = False, follow: bool = True
    ) -> AsyncIterator[Entry]:
        """Yield what is there, in no order.

        Raises:
            PathNotDirectoryError: It is no directory, or a link to one unless that
                is to be followed.
        """
        nonce = secrets.token_hex(8)
        kinds = " \\( -type f -o -type l \\)" if files_only else ""
        code = filled(
            _TREE.format(depth=_depth(depth), kinds=kinds),
            path=self._path,
            follow=int(follow),
            format=answers.FORMAT.format(nonce),
        )
        mark = f"/{nonce}/\n".encode()
        read, size, begun = b"", 0, False
        async for piece in self._operator.pieces(code):
            read += piece
            size += len(piece)
            # SAFETY: a tree without end must not be held.
            if size > _MOST:
                raise ProtocolError("the shell inside describes more than can be")
            if not begun and b"\n" not in read:
                continue
            if not begun:
                read = answers.check(read, op=self._op, path=self._path)
                begun = True
            whole, marked, read = read.rpartition(mark)
            for fields in answers.records(whole + marked, nonce):
                yield answers.entry(fields, self._below(fields[1]))
        if not begun or read:
            answers.check(read, op=self._op, path=self._path)

    def _below(self, name: bytes) -> str:
        # SAFETY: whoever joins it to another directory must not be led out of that.
        if not name.startswith(b"./") or b"/../" in name[1:] + b"/" or b"\0" in name:
            raise ProtocolError("the shell inside describes what was not asked")
        return f"{self._path.rstrip('/')}/{decoded(name[2:])}"

    async def digests(self, *, depth: int | None) -> dict[str, str]:
        """Return the digest of each regular file that can be read."""
        code = _DIGESTS.format(depth=_depth(depth))
        found = await self._framed(code, self._path, patience=_DIGESTING)
        return {
            self._below(name): answers.digest_in(text)
            for name, text in found.items()
            if text
        }

    async def rules(self) -> dict[bytes, bytes]:
        """Return the files of rules that matter, by their paths."""
        rules: dict[bytes, bytes] = {}
        found = await self._framed(_RULES.format(), self._path)
        for name, text in found.items():
            rules[encoded(self._below(name))] = text[:_LARGEST_RULES]
        folder = self._path
        while folder not in (self._root, "/"):
            folder = folder.rsplit("/", 1)[0] or "/"
            for name, text in (await self._framed(_ABOVE, folder)).items():
                place = f"{folder.rstrip('/')}/".encode() + name
                rules[place] = text[:_LARGEST_RULES]
        return rules

    async def _framed(
        self, code: str, path: str, *, patience: float | None = None
    ) -> dict[bytes, bytes]:
        nonce = secrets.token_hex(8)
        program = code.replace("<nonce>", nonce)
        answer = await self._operator.ask(
            filled(program, path=path), most=64 << 20, patience=patience
        )
        *lines, rest = answer.split(f"/{nonce}/\n".encode())
        pairs = [line.partition(f"/{nonce}/".encode()) for line in lines]
        if rest or not all(mark for _, mark, _ in pairs):
            raise ProtocolError("the shell inside sent half a file")
        return {name: text for name, _, text in pairs}

    async def kept(
        self,
        entries: list[Entry],
        *,
        ignored: bool,
        hidden: bool = True,
        pattern: str | None = None,
        types: tuple[str, ...] = (),
    ) -> list[Entry]:
        """Leave out what is not asked for; sorts by path.

        Raises:
            InvalidArgumentError: The pattern takes too long.
        """
        entries.sort(key=lambda each: encoded(each.path).split(b"/"))
        if (ignored and hidden and pattern is None and not types) or not entries:
            return entries
        rules = {} if ignored else await self.rules()
        repos = {each.path.rsplit("/", 1)[0] for each in entries if each.name == ".git"}
        asked = {
            "top": encoded(self._path),
            "root": encoded(self._root),
            "rules": [[path, text] for path, text in rules.items()],
            "repos": [encoded(path) for path in repos],
            "ignored": ignored,
            "hidden": hidden,
            "patterns": [] if pattern is None else [pattern],
            "types": list(globs_of(types)) if types else [],
        }
        names = [[encoded(each.path), each.is_directory] for each in entries]
        if ignored and (pattern is None or _ends_soon(pattern)):
            return self._chosen(entries, asked, names)
        marks = await self._marks({"keep": asked, "names": names})
        return [each for each, mark in zip(entries, marks, strict=True) if mark]

    def _chosen(
        self, entries: list[Entry], asked: dict[str, Any], names: list[list[Any]]
    ) -> list[Entry]:
        try:
            return [entries[at] for at in Keeping(agent, asked).chosen(names)]
        except agent.Refused as no:
            raise refused(no.code, self._path, no.message, op=self._op) from None

    async def _marks(self, message: dict[str, Any]) -> list[bool]:
        async with self._asides.one(op=self._op, path=self._path) as aside:
            try:
                told = await aside.ask(message, timeout=_LONGEST_CHOICE)
            except TimeoutError:
                raise InvalidArgumentError(
                    "the pattern, or a file of rules, takes too long to match",
                    op=self._op,
                ) from None
        return [mark != 0 for mark in told["kept"]]


def _ends_soon(pattern: str) -> bool:
    """Whether no name can make a pattern take long."""
    return len(re.findall(r"\*+", pattern)) <= _FEW and pattern.count("{") <= _FEW


async def scanned(operator: Operator, asides: Asides, op: Scan, root: str) -> Listing:
    """Describe what is below a path."""
    tree = Tree(operator, asides, op.path, root, op="scan")
    # Who looks for rules has to see directories, and they their files.
    every = not op.ignored
    found = [
        entry
        async for entry in tree.entries(
            depth=op.depth,
            files_only=op.files_only and not every,
            follow=op.follow,
        )
    ]
    found = await tree.kept(found, ignored=op.ignored, pattern=op.pattern)
    if op.files_only:
        found = [entry for entry in found if entry.kind in ("file", "symlink")]
    total, last = len(found), op.offset + op.limit
    if op.newest:
        found = heapq.nsmallest(last, found, key=lambda each: -each.mtime_ns)
    chosen = found[op.offset : last]
    if op.digest:
        digests = await tree.digests(depth=op.depth)
        chosen = [each._replace(digest=digests.get(each.path)) for each in chosen]
    if not op.newest:
        chosen.sort(key=lambda each: each.path)
    return Listing(tuple(chosen), total > last, total)


def _depth(depth: int | None) -> str:
    return "" if depth is None else f" -maxdepth {int(depth)}"
