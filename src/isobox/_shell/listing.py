"""What is below a directory, as `find` and `stat` tell it."""

from __future__ import annotations

import heapq
import secrets
from typing import TYPE_CHECKING, Final

from isobox._core.results import Listing
from isobox._guest import agent
from isobox._shell import answers
from isobox._shell.patterns import matcher
from isobox._shell.quote import decoded, encoded, filled
from isobox.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from isobox._core.ops import Scan
    from isobox._core.results import Entry
    from isobox._shell.operator import Operator

#: Bytes of what is told of a tree: some millions of names.
_MOST: Final = 1 << 30
_LARGEST_RULES: Final = 1 << 20
_RULE_NAMES: Final = (".rgignore", ".ignore", ".gitignore")
_ONE: Final = """\
( p=<path>
f=$(stat {follow}-c <format> -- "$p" 2>/dev/null && printf x) || why "$p"
echo ok; printf %s "${{f%x}}"{digest} )"""
_DIGEST_OF_ONE: Final = '; [ ! -f "$p" ] || sha256sum <"$p"'
_TREE: Final = """\
( p=<path>
[ -d "$p" ] || {{ [ -e "$p" ] && no not_directory; why "$p"; }}
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
        path: The directory.
        root: The workspace's, above which no rules are looked for.
        op: Which operation it is.
    """

    def __init__(self, operator: Operator, path: str, root: str, *, op: str) -> None:
        self._operator = operator
        self._path = path
        self._root = root
        self._op = op

    async def entries(
        self, *, depth: int | None, files_only: bool = False
    ) -> AsyncIterator[Entry]:
        """Yield what is there, in no order.

        Raises:
            PathNotDirectoryError: It is no directory.
        """
        nonce = secrets.token_hex(8)
        kinds = " \\( -type f -o -type l \\)" if files_only else ""
        code = filled(
            _TREE.format(depth=_depth(depth), kinds=kinds),
            path=self._path,
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
        found = await self._framed(_DIGESTS.format(depth=_depth(depth)), self._path)
        return {
            self._below(name): answers.digest_in(text)
            for name, text in found.items()
            if text
        }

    async def rules(self) -> dict[bytes, agent.Rules]:
        """Return the files of rules that matter, by their paths."""
        rules: dict[bytes, agent.Rules] = {}
        found = await self._framed(_RULES.format(), self._path)
        for name, text in found.items():
            rules[encoded(self._below(name))] = agent.Rules(text[:_LARGEST_RULES])
        folder = self._path
        while folder != self._root and folder != "/":
            folder = folder.rsplit("/", 1)[0] or "/"
            for name, text in (await self._framed(_ABOVE, folder)).items():
                place = f"{folder.rstrip('/')}/".encode() + name
                rules[place] = agent.Rules(text[:_LARGEST_RULES])
        return rules

    async def _framed(self, code: str, path: str) -> dict[bytes, bytes]:
        nonce = secrets.token_hex(8)
        program = code.replace("<nonce>", nonce)
        answer = await self._operator.ask(filled(program, path=path), most=64 << 20)
        *lines, rest = answer.split(f"/{nonce}/\n".encode())
        pairs = [line.partition(f"/{nonce}/".encode()) for line in lines]
        if rest or not all(mark for _, mark, _ in pairs):
            raise ProtocolError("the shell inside sent half a file")
        return {name: text for name, _, text in pairs}

    async def kept(
        self, entries: list[Entry], *, ignored: bool, hidden: bool = True
    ) -> list[Entry]:
        """Leave out what is hidden, or what rules leave out; sorts by path."""
        entries.sort(key=lambda each: encoded(each.path).split(b"/"))
        if ignored and hidden:
            return entries
        rules = {} if ignored else await self.rules()
        scope = None if ignored else self._above(rules)
        return list(_walked(self._path, entries, rules, scope, hidden=hidden))

    def _above(self, rules: dict[bytes, agent.Rules]) -> agent.Scope:
        scope = agent.Scope(None, 0, [None] * 4, False)
        above = [self._path]
        while above[-1] != self._root and above[-1] != "/":
            above.append(above[-1].rsplit("/", 1)[0] or "/")
        for folder in reversed(above[1:]):
            scope = _scope_in(encoded(folder), rules, scope)
        return scope


def _scope_in(
    folder: bytes,
    rules: dict[bytes, agent.Rules],
    above: agent.Scope,
    names: frozenset[bytes] = frozenset(),
) -> agent.Scope:
    base = folder.rstrip(b"/") + b"/"
    there = {name for name in agent.RULE_FILES if base + name in rules}
    first = {name.split(b"/")[0] for name in there}
    return agent.scope_in(folder, first | names, above, rules.get) or above


def _walked(
    top: str,
    entries: list[Entry],
    rules: dict[bytes, agent.Rules],
    above: agent.Scope | None,
    *,
    hidden: bool,
) -> Iterator[Entry]:
    """Yield the entries that are seen by who walks down from the top."""
    repos = {entry.path.rsplit("/", 1)[0] for entry in entries if entry.name == ".git"}
    scopes: dict[str, agent.Scope | None] = {}

    def enter(folder: str, scope: agent.Scope | None) -> None:
        names = frozenset((b".git",)) if folder in repos else frozenset[bytes]()
        scopes[folder] = scope and _scope_in(encoded(folder), rules, scope, names)

    enter(top, above)
    for entry in entries:
        folder = entry.path.rsplit("/", 1)[0] or "/"
        if folder not in scopes or (entry.name.startswith(".") and not hidden):
            continue
        scope = scopes[folder]
        path, name = encoded(entry.path), encoded(entry.name)
        if scope is not None and scope.ignores(path, name, entry.is_directory):
            continue
        yield entry
        if entry.is_directory:
            enter(entry.path, scope)


async def scanned(operator: Operator, op: Scan, root: str) -> Listing:
    """Describe what is below a path."""
    tree = Tree(operator, op.path, root, op="scan")
    # Who looks for rules has to see directories, and they their files.
    every = not op.ignored
    found = [
        entry
        async for entry in tree.entries(
            depth=op.depth, files_only=op.files_only and not every
        )
    ]
    found = await tree.kept(found, ignored=op.ignored)
    if op.files_only:
        found = [entry for entry in found if entry.kind in ("file", "symlink")]
    if op.pattern is not None:
        named = matcher(op.pattern)
        base = len(op.path.rstrip("/")) + 1
        found = [entry for entry in found if named(entry.path[base:])]
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
