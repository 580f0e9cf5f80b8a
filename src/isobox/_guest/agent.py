# pyright: basic
"""The guest: one program that runs inside a sandbox and serves its host.

It speaks frames on one duplex socket, its standard input. Standard library
only, Python 3.8 or newer, run with `-I -S`. It imports little at start, since
the start of every sandbox waits for it; what is heavy loads where it is used.

A frame is a header (length of the payload, kind, stream) and a payload. The
host opens streams; each is one operation. DATA, END and CREDIT carry a channel
number in their first byte: bytes flow only as far as the receiver has granted
credit, so that neither side buffers more than WINDOW per channel.

As a daemon it has any number of hosts, each on a channel that a relay brings to
its socket. Commands then outlive the host that started them: the last that they
printed is kept, and another host goes on from where it wants to.

Commands run under a warden: a process that is forked from the guest, reaps
(PR_SET_CHILD_SUBREAPER) and reports. All that a command leaves, `setsid` and
double forks included, are descendants of its warden, so they can be found and
killed. A warden that has no descendant left is used again.

The guest protects itself: it is not dumpable (no ptrace, no /proc/<pid>/mem or
fd), has no inheritable descriptor, and its children come first when the kernel
runs out of memory. Who runs as the workload's user is turned away at the
daemon's socket, and so is who does not show the key.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import errno
import os
import select
import stat
import struct
import sys
import time
from itertools import repeat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import (
        Any,
        Callable,
        Dict,
        Generator,
        Iterable,
        Iterator,
        List,
        Optional,
        Sequence,
        Set,
        Tuple,
        Union,
    )

    #: Keeps some of the names in a directory, which is given with a slash.
    Choice = Callable[[bytes, List[bytes]], List[bytes]]

VERSION = 1

HEADER = struct.Struct(">IBI")
HELLO, CONFIG, OPEN, DATA, END, CREDIT, RESULT, ERROR, EVENT, CONTROL = range(1, 11)
ACCEPT, PING, PONG, BYE = range(11, 15)

#: Bytes that may be under way on one channel before the receiver grants more.
WINDOW = 1 << 20
#: The largest DATA payload, in either direction.
PIECE = 1 << 17
#: The largest payload of any other frame.
LARGEST = 1 << 24
#: Streams with this bit are opened by the guest, for accepted connections.
ACCEPTED = 1 << 31
#: The window of these: there may be many, which nobody asked for one by one.
ACCEPTED_WINDOW = 1 << 18
#: Connections to a port that may be accepted before the host grants more.
WAITING = 8
#: The longest datagram that is carried.
LONGEST_DATAGRAM = 4096

STDIN, STDOUT, STDERR, REPORT = range(4)
BODY = 0

#: Output that is not larger travels in the RESULT itself.
_INLINE = 1 << 15
#: Bytes that are received at once; a longer frame makes more room for itself.
_ROOM = 8 * PIECE
#: Bytes waiting for the host above which no more is read from commands.
_BACKLOG = 4 << 20
#: Seconds between two looks at what is sealed.
_LOOK = 0.25
#: Seconds to read on after a command has ended while others hold its pipes.
_DRAIN = 0.1
#: Seconds between two looks at what others may have stopped, and how often a
#: worker may be found so before it is given up.
_AWAKE, _STOPS = 0.25, 40
#: The longest single argument that execve takes (MAX_ARG_STRLEN, 32 pages).
_LONGEST_ARGUMENT = 131072 - 1
#: A script this long does not fit an argument and is passed in a file.
_LONGEST_INLINE_SCRIPT = 100_000
#: PATH_MAX: no call takes a longer path.
_LONGEST_PATH = 4096
#: Bytes of entries that are sent together, while the next are looked for.
_BATCH = 1 << 14
#: Seconds that matching one name may take before it is done in a surer way, and
#: that a walk with patterns or rules may take.
_LONGEST_MATCH, _LONGEST_SCAN = 0.1, 60.0
#: Bytes that a daemon keeps of one output of a command, and of all together.
KEPT, _KEPT_IN_ALL = 1 << 20, 64 << 20
#: Small pieces of an output are kept together up to this size.
_CHUNK = 1 << 14
#: Commands that have ended and are still known to a daemon, and for how long.
_ENDED, _ENDED_FOR = 64, 600.0
#: Connections that are looked at together, and seconds until the next are.
_KNOCKS, _KNOCKING = 64, 0.01
#: Connections that may wait to show the key, and seconds that they have for it.
_UNPROVEN, _PROOF = 256, 2.0
#: Idle wardens that are kept.
_SPARE_WARDENS = 4
#: Rounds of killing after which descendants are stopped before they are killed.
_PATIENCE = 5
#: Rounds of killing children that cannot be told apart from others' after which
#: all that there is is killed at once.
_OUTNUMBERED = 20
_F_SETPIPE_SZ = 1031

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 22, 38, 2
#: Received descriptors must not reach the commands under their first numbers.
_CLOEXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


# -- the codec: a small self-describing format, shared with the host -----------------


class CodecError(ValueError):
    """The bytes are no message."""


def encode(value: Any) -> bytes:
    """Return a message of None, bool, int, float, bytes, str, list and dict."""
    out: List[bytes] = []
    _encode(value, out)
    return b"".join(out)


_WHOLE = struct.Struct(">cq")
_FLOAT = struct.Struct(">cd")
_SIZED = struct.Struct(">cI")


def _encode(value: Any, out: List[bytes]) -> None:
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogateescape")
        out.append(_SIZED.pack(b"s", len(raw)) + raw)
    elif isinstance(value, bytes):
        out.append(_SIZED.pack(b"b", len(value)))
        out.append(value)
    elif value is None:
        out.append(b"N")
    elif value is True:
        out.append(b"T")
    elif value is False:
        out.append(b"F")
    elif isinstance(value, int):
        out.append(_WHOLE.pack(b"i", value))
    elif isinstance(value, float):
        out.append(_FLOAT.pack(b"f", value))
    else:
        _encode_many(value, out)


def _encode_many(value: Any, out: List[bytes]) -> None:
    if isinstance(value, dict):
        out.append(_SIZED.pack(b"d", len(value)))
        for key, item in value.items():
            raw = key.encode("utf-8", "surrogateescape")
            out.append(_SIZED.pack(b"s", len(raw)) + raw)
            _encode(item, out)
    elif isinstance(value, (list, tuple)):
        out.append(_SIZED.pack(b"l", len(value)))
        for item in value:
            _encode(item, out)
    else:
        raise CodecError("cannot encode " + type(value).__name__)


_DEEPEST = 8


def decode(data: bytes) -> Any:
    """Return what `encode` was given.

    Raises:
        CodecError: The bytes are not one whole message.
    """
    value, at = _decode(data, 0, 0)
    if at != len(data):
        raise CodecError("bytes after the message")
    return value


_NONE, _TRUE, _FALSE, _INT, _REAL, _BYTES, _TEXT, _LIST, _DICT = b"NTFifbsld"
_SIZED_TAGS = (_TEXT, _BYTES)
_SINGLE = {_NONE: None, _TRUE: True, _FALSE: False}
_NUMBERS = {_INT: struct.Struct(">q"), _REAL: struct.Struct(">d")}


def _decode(data: bytes, at: int, depth: int) -> Tuple[Any, int]:
    if at >= len(data):
        raise CodecError("cut short")
    tag = data[at]
    begin = at + 5
    if tag in _SIZED_TAGS:
        end = begin + int.from_bytes(data[at + 1 : begin], "big")
        if end > len(data):
            raise CodecError("longer than its frame")
        raw = data[begin:end]
        return raw.decode("utf-8", "surrogateescape") if tag == _TEXT else raw, end
    if tag in _SINGLE:
        return _SINGLE[tag], at + 1
    if tag in _NUMBERS:
        if at + 9 > len(data):
            raise CodecError("cut short")
        return _NUMBERS[tag].unpack_from(data, at + 1)[0], at + 9
    if tag not in (_LIST, _DICT) or begin > len(data):
        raise CodecError("unknown tag, or cut short")
    size = int.from_bytes(data[at + 1 : begin], "big")
    # Each takes a byte at least.
    if size > len(data) - begin:
        raise CodecError("longer than its frame")
    return _decode_many(data, begin, depth + 1, size, tag)


def _decode_many(
    data: bytes, at: int, depth: int, size: int, tag: int
) -> Tuple[Any, int]:
    if depth > _DEEPEST:
        raise CodecError("nested too deep")
    if tag == _LIST:
        items: List[Any] = []
        for _ in range(size):
            item, at = _decode(data, at, depth)
            items.append(item)
        return items, at
    fields: Dict[str, Any] = {}
    for _ in range(size):
        key, at = _decode(data, at, depth)
        if not isinstance(key, str):
            raise CodecError("a key that is no text")
        fields[key], at = _decode(data, at, depth)
    return fields, at


# -- entries: packed, since a listing may have a hundred thousand --------------------

#: kind, mode, uid, gid, size, mtime in ns, digest length, path and target length.
ENTRY = struct.Struct(">cIIIqqBII")

KINDS = {
    stat.S_IFREG: b"f",
    stat.S_IFDIR: b"d",
    stat.S_IFLNK: b"l",
    stat.S_IFIFO: b"p",
    stat.S_IFSOCK: b"s",
    stat.S_IFCHR: b"c",
    stat.S_IFBLK: b"c",
}


def pack_entry(
    path: bytes, st: os.stat_result, target: bytes = b"", digest: bytes = b""
) -> bytes:
    """Return one entry as bytes."""
    mode = st.st_mode
    return (
        ENTRY.pack(
            KINDS.get(mode & 0o170000, b"c"),
            mode & 0o7777,
            st.st_uid,
            st.st_gid,
            st.st_size,
            st.st_mtime_ns,
            len(digest),
            len(path),
            len(target),
        )
        + digest
        + path
        + target
    )


# -- patterns ------------------------------------------------------------------------


def translate_glob(pattern: str) -> str:
    """Return a regular expression for `**`, `*`, `?`, `[...]` and `{a,b}`.

    It matches a whole relative path. `**` crosses directories, the others do
    not; `**/` also matches nothing.
    """
    out: List[str] = []
    at = depth = 0
    while at < len(pattern):
        piece, at, depth = _translate(pattern, at, depth)
        out.append(piece)
    return "(?s:" + _decided(out) + (")" * depth) + r")\Z"


_STAR, _STARS, _FOLDERS = "[^/]*", ".*", "(?:.*/)?"
#: What tries few characters first, and then more.
_SHORTEST = {_STAR: "[^/]*?", _STARS: ".*?", _FOLDERS: "(?:.*?/)??"}
_SLASHES = ("/", "\\/", "\\x2f")
_GROUPS = [0]


def _decided(pieces: List[str]) -> str:
    """Join pieces so that a star tries what follows it at one place alone.

    What stands between two stars is best found as early as it can be; to try
    the later places too would take exponential time, and find nothing more.
    """
    out: List[str] = []
    #: The last star that crosses directories, and the last after it that does not.
    wide: Optional[int] = None
    narrow: Optional[int] = None
    begins = True  # whether a directory's or file's name does here
    for piece in pieces:
        if piece in _SHORTEST:
            decides = begins or piece != _FOLDERS
            if narrow is not None and decides:
                _decide(out, narrow)
            if piece == _STAR:
                narrow = len(out)
            else:
                if wide is not None and decides:
                    _decide(out, wide)
                wide, narrow = len(out), None
        elif piece in ("(?:", "|", ")"):
            wide = narrow = None
        out.append(piece)
        begins = piece in _SLASHES or (begins and piece == _FOLDERS)
    return "".join(out)


def _decide(out: List[str], begin: int) -> None:
    """Have the star at a place take what it does first, for good."""
    _GROUPS[0] += 1  # several patterns may be joined into one
    name = "d%d" % _GROUPS[0]
    found = _SHORTEST[out[begin]] + "".join(out[begin + 1 :])
    out[begin:] = ["(?=(?P<%s>%s))(?P=%s)" % (name, found, name)]


class Ways:
    """A pattern that is matched by all its ways at once.

    That takes as many steps as it has pieces and the path characters, whatever
    they are; an expression is most often faster, but may take years.
    """

    def __init__(self, pattern: str) -> None:
        import re

        #: Alternatives; each is a list of stars, tests of a character, and these.
        self._tree: List[List[Any]] = [[]]
        above = [self._tree]
        at = depth = 0
        while at < len(pattern):
            piece, at, depth = _translate(pattern, at, depth)
            if piece == "(?:":
                inner: List[List[Any]] = [[]]
                above[-1][-1].append(inner)
                above.append(inner)
            elif piece == "|":
                above[-1].append([])
            elif piece == ")":
                above.pop()
            elif piece in _SHORTEST:
                above[-1][-1].append(piece)
            else:
                above[-1][-1].append(re.compile("(?s:%s)" % piece).match)

    def match(self, text: str) -> bool:
        """Whether all of a path is what the pattern says."""
        return len(text) in self._ends(self._tree, text, {0})

    def _ends(self, tree: List[List[Any]], text: str, begins: Set[int]) -> Set[int]:
        """Return where a match can end that begins at one of these places."""
        found: Set[int] = set()
        for items in tree:
            places = begins
            for item in items:
                if not places:
                    break
                places = self._after(item, text, places)
            found |= places
        return found

    def _after(self, item: Any, text: str, begins: Set[int]) -> Set[int]:
        if isinstance(item, list):
            return self._ends(item, text, begins)
        if item == _STARS:
            return set(range(min(begins), len(text) + 1))
        if item == _FOLDERS:
            first = min(begins)
            deeper = {at + 1 for at in range(first, len(text)) if text[at] == "/"}
            return begins | deeper
        if item == _STAR:
            return _within_names(text, begins)
        return {at + 1 for at in begins if item(text, at)}


def _within_names(text: str, begins: Set[int]) -> Set[int]:
    """Return the places, and all those after them up to the next slash."""
    found: Set[int] = set()
    for begin in begins:
        at = begin
        while at not in found:
            found.add(at)
            if at == len(text) or text[at] == "/":
                break
            at += 1
    return found


def _translate(pattern: str, at: int, depth: int) -> Tuple[str, int, int]:
    import re

    char = pattern[at]
    if char == "*":
        return _stars(pattern, at) + (depth,)
    if char == "?":
        return "[^/]", at + 1, depth
    if char == "[":
        return _bracket(pattern, at) + (depth,)
    if char == "{" and "}" in pattern[at:]:
        return "(?:", at + 1, depth + 1
    if char == "}" and depth:
        return ")", at + 1, depth - 1
    if char == "," and depth:
        return "|", at + 1, depth
    if char == "\\" and at + 1 < len(pattern):
        return re.escape(pattern[at + 1]), at + 2, depth
    return re.escape(char), at + 1, depth


def _stars(pattern: str, at: int) -> Tuple[str, int]:
    if pattern.startswith("**/", at):
        return _FOLDERS, at + 3
    if pattern.startswith("**", at):
        return _STARS, at + 2
    return _STAR, at + 1


def _bracket(pattern: str, at: int) -> Tuple[str, int]:
    end = at + 1
    if pattern[end : end + 1] in ("!", "^"):
        end += 1
    end = pattern.find("]", end + 1)
    if end < 0:
        return "\\[", at + 1
    inside = pattern[at + 1 : end]
    if inside[:1] in ("!", "^"):
        return "(?!/)[^" + _characters(inside[1:]) + "]", end + 1
    return "(?!/)[" + _characters(inside) + "]", end + 1


def _characters(inside: str) -> str:
    """Return a set's characters and ranges, with nothing in it that re reads."""
    out: List[str] = []
    at = 0
    while at < len(inside):
        last = at + 2 if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside) else at
        ends = inside[at : last + 1 : 2]
        out.append("-".join("\\" + c if c in "\\]^[-&~|" else c for c in ends))
        at = last + 1
    return "".join(out)


# -- what .gitignore and the like leave out ------------------------------------------

#: Files of rules, the strongest first; a rule of a stronger one beats any other's.
_RULE_FILES = (b".rgignore", b".ignore", b".gitignore", b".git/info/exclude")
_GIT_RULES = 2
_LARGEST_RULES = 1 << 20
#: Patterns of one file that are heeded; names without a wildcard are no patterns.
_MOST_PATTERNS = 5000
_VERSION_CONTROL = frozenset(
    (b".git", b".hg", b".svn", b".bzr", b".jj", b".sl", b"_darcs", b"CVS")
)


class Rules:
    """The rules of one file, as git reads them."""

    def __init__(self, content: bytes) -> None:
        import re

        if content.startswith(b"\xef\xbb\xbf"):
            content = content[3:]
        #: Number, expression, whether it is for names, for directories, negated.
        self._rules: List[Tuple[int, bytes, bool, bool, bool]] = []
        #: By whether it is for names, and is asked for a directory: the last rule
        #: without a wildcard for each, as its number and whether it is negated.
        self._plain: List[List[Dict[bytes, Tuple[int, bool]]]] = [[{}, {}], [{}, {}]]
        sources: Tuple[List[bytes], List[bytes]] = ([], [])
        for number, line in enumerate(content.split(b"\n")):
            rule = parse_rule(line)
            if rule is None:
                continue
            pattern, by_name, only_folders, negated = rule
            if not re.search(rb"[*?\[\\]", pattern):
                for known in self._plain[by_name][only_folders:]:
                    known[pattern] = (number, negated)
                continue
            if len(self._rules) == _MOST_PATTERNS:
                continue
            source = translate_rule(pattern)
            if source is not None:
                self._rules.append((number, source, by_name, only_folders, negated))
                sources[by_name].append(source)
        # Most names match no rule at all: one look tells.
        self._paths, self._names = (
            re.compile(b"|".join(each), re.DOTALL) if each else None for each in sources
        )
        self._compiled: Dict[bytes, Any] = {}

    def verdict(self, path: bytes, name: bytes, folder: bool) -> Optional[bool]:
        """Whether a path, relative to the file, is left out; None if unknown."""
        placed, named = self._plain
        unknown = (-1, True)
        last, negated = max(
            placed[folder].get(path, unknown), named[folder].get(name, unknown)
        )
        verdict = None if last < 0 else not negated
        known = self._names is not None and self._names.match(name)
        if not known and not (self._paths is not None and self._paths.match(path)):
            return verdict
        for number, source, by_name, only_folders, negated in reversed(self._rules):
            if number < last:
                break
            if only_folders and not folder:
                continue
            if self._expression(source).match(name if by_name else path):
                return not negated
        return verdict

    def _expression(self, source: bytes) -> Any:
        import re

        # Few are ever asked for by themselves, and it is dear to compile one.
        if source not in self._compiled:
            self._compiled[source] = re.compile(source, re.DOTALL)
        return self._compiled[source]


def parse_rule(line: bytes) -> Optional[Tuple[bytes, bool, bool, bool]]:
    """Return what a line of rules says; None if it can match nothing.

    That is its pattern, and whether it is for names alone, for directories
    alone, and negated.
    """
    if line.endswith(b"\r"):
        line = line[:-1]
    if line.startswith(b"#"):
        return None
    pattern = _without_spaces(line)
    negated = pattern.startswith(b"!")
    if negated:
        pattern = pattern[1:]
    only_folders = pattern.endswith(b"/")
    if only_folders:
        pattern = pattern[:-1]
    by_name = b"/" not in pattern
    if pattern.startswith(b"/"):
        pattern = pattern[1:]
    if not pattern:
        return None
    return pattern, by_name, only_folders, negated


def _without_spaces(line: bytes) -> bytes:
    """Drop spaces at the end, but not those after a backslash."""
    if not line.endswith(b" "):
        return line
    kept = at = 0
    while at < len(line):
        if line[at : at + 1] == b"\\":
            at += 2
            kept = min(at, len(line))
            continue
        at += 1
        if line[at - 1 : at] != b" ":
            kept = at
    return line[:kept]


def translate_rule(pattern: bytes) -> Optional[bytes]:
    """Return a regular expression for a rule's pattern, as git reads that.

    None if it can match nothing.
    """
    out: List[str] = []
    at = 0
    # Git compares what stands before the first wildcard by itself, and takes
    # what follows for a pattern of its own.
    begin = next((i for i, c in enumerate(pattern) if c in b"*?[\\"), 0)
    while at < len(pattern):
        char = pattern[at : at + 1]
        if char == b"*":
            piece, at = _rule_stars(pattern, at, begin)
        elif char == b"?":
            piece, at = "[^/]", at + 1
        elif char == b"[":
            found = _rule_bracket(pattern, at)
            if found is None:
                return None
            piece, at = found
        else:
            if char == b"\\":
                at += 1
                char = pattern[at : at + 1]
                if not char:
                    return None
            piece, at = _escaped(char), at + 1
        out.append(piece)
    return ("(?:" + _decided(out) + ")\\Z").encode("ascii")


def _escaped(char: bytes) -> str:
    return "\\x%02x" % char[0]


def _rule_stars(pattern: bytes, at: int, begin: int) -> Tuple[str, int]:
    end = at
    while pattern[end : end + 1] == b"*":
        end += 1
    alone = at == begin or pattern[at - 1 : at] == b"/"
    rest = pattern[end:]
    if (
        end - at < 2
        or not alone
        or not (not rest or rest.startswith(b"/") or rest.startswith(b"\\/"))
    ):
        return _STAR, end
    if rest.startswith(b"/"):
        return _FOLDERS, end + 1
    return _STARS, end


def _rule_bracket(pattern: bytes, at: int) -> Optional[Tuple[str, int]]:
    at += 1
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    members: List[str] = []
    before: Optional[bytes] = None
    first = True
    while first or pattern[at : at + 1] != b"]":
        first = False
        char = pattern[at : at + 1]
        if pattern.startswith(b"[:", at):
            named = _rule_class(pattern, at)
            if named is not None:
                if named[0] not in _CLASSES:
                    return None
                members.append(_CLASSES[named[0]])
                at, before = named[1], None
                continue
        follows = pattern[at + 1 : at + 2]
        if char == b"-" and before is not None and follows and follows != b"]":
            at += 1
            last, at = _rule_char(pattern, at)
            if last is None:
                return None
            if before <= last:
                members.append(_escaped(before) + "-" + _escaped(last))
            before = None
            continue
        before, at = _rule_char(pattern, at)
        if before is None:
            return None
        members.append(_escaped(before))
    inside = "".join(members)
    if not inside:
        return ("[^/]" if negated else "(?!)"), at + 1
    return "(?!/)[" + ("^" if negated else "") + inside + "]", at + 1


def _rule_char(pattern: bytes, at: int) -> Tuple[Optional[bytes], int]:
    if pattern[at : at + 1] == b"\\":
        at += 1
    return pattern[at : at + 1] or None, at + 1


_CLASSES = {
    b"alnum": "0-9A-Za-z",
    b"alpha": "A-Za-z",
    b"blank": " \\t",
    b"cntrl": "\\x00-\\x1f\\x7f",
    b"digit": "0-9",
    b"graph": "!-~",
    b"lower": "a-z",
    b"print": " -~",
    b"punct": "!-/:-@\\[-`{-~",
    b"space": " \\t-\\r",
    b"upper": "A-Z",
    b"xdigit": "0-9A-Fa-f",
}


def _rule_class(pattern: bytes, at: int) -> Optional[Tuple[bytes, int]]:
    end = pattern.find(b"]", at + 2)
    if end < 0 or pattern[end - 1 : end] != b":" or end - 1 < at + 2:
        return None
    return pattern[at + 2 : end - 1], end + 1


class Scope:
    """The rules that hold in one directory: its own, and those from above."""

    def __init__(
        self,
        above: Optional[Scope],
        base: int,
        rules: List[Optional[Rules]],
        repo: bool,
    ) -> None:
        self._above = above
        self._base = base
        self._rules = rules
        self._repo = repo
        #: Rules, and where the paths begin that they are about; the first that
        #: knows a path decides.
        self.active = [each for kind in range(len(rules)) for each in self._of(kind)]

    def _of(self, kind: int) -> Iterator[Tuple[Rules, int]]:
        scope: Optional[Scope] = self
        while scope is not None:
            rules = scope._rules[kind]
            if rules is not None:
                yield rules, scope._base
            if scope._repo and kind >= _GIT_RULES:
                return  # a repository's own rules are all that git knows
            scope = scope._above

    def ignores(self, path: bytes, name: bytes, folder: bool) -> bool:
        """Whether a path in this directory, which ends with a name, is left out."""
        if name in _VERSION_CONTROL:
            return True
        for rules, base in self.active:
            verdict = rules.verdict(path[base:], name, folder)
            if verdict is not None:
                return verdict
        return False


_NO_RULES: List[Optional[Rules]] = [None] * len(_RULE_FILES)


def scope_in(
    folder: bytes, names: Any, above: Optional[Scope], read: Any = None
) -> Optional[Scope]:
    """Return what holds in a directory that has these names."""
    read = read or _rules_at
    repo = b".git" in names
    there = [name.split(b"/")[0] in names for name in _RULE_FILES]
    if not any(there):
        return above
    rules = [
        read(os.path.join(folder, name)) if found else None
        for name, found in zip(_RULE_FILES, there)
    ]
    return Scope(above, len(folder.rstrip(b"/")) + 1, rules, repo)


def _rules_at(path: bytes) -> Optional[Rules]:
    try:
        fd, _ = _open_regular(path)
    except (OSError, Refused):
        return None
    try:
        return Rules(os.read(fd, _LARGEST_RULES))
    finally:
        os.close(fd)


def scope_above(top: bytes, root: bytes) -> Optional[Scope]:
    """Return what the directories above one say, up to the root."""
    above: List[bytes] = []
    folder, root = top, os.path.realpath(root)
    while folder != root and folder != b"/":
        folder = os.path.dirname(folder)
        above.append(folder)
    scope = Scope(None, 0, list(_NO_RULES), False)
    for folder in reversed(above):
        names = {n.split(b"/")[0] for n in _RULE_FILES}
        names = {n for n in names if os.path.lexists(os.path.join(folder, n))}
        scope = scope_in(folder, names, scope) or scope
    return scope


# -- failures that the host turns into its error tree --------------------------------


class Refused(Exception):
    """An operation cannot be done; `code` is one of the protocol's words."""

    def __init__(
        self,
        code: str,
        message: str = "",
        number: int = 0,
        path: Optional[bytes] = None,
    ) -> None:
        Exception.__init__(self, message)
        self.code = code
        self.message = message
        self.number = number
        self.path = path


#: Characters of the message of a refusal that shows lines of a file.
LONGEST_MESSAGE = 4000
_SHOWING = ("mismatch", "hunk")

_CODES = {
    errno.ENOENT: "missing",
    errno.EEXIST: "exists",
    errno.EISDIR: "is_directory",
    errno.ENOTDIR: "not_directory",
    errno.EACCES: "access",
    errno.EPERM: "access",
    errno.ELOOP: "loop",
    errno.ENXIO: "not_regular",
    errno.ENOTEMPTY: "is_directory",
    errno.ECONNREFUSED: "refused",
}


def _refusal(error: BaseException) -> Dict[str, Any]:
    code, message, number = "internal", repr(error)[:500], 0
    if isinstance(error, Refused):
        code, message, number = error.code, error.message, error.number
    elif isinstance(error, OSError):
        number = error.errno or 0
        code, message = _CODES.get(number, "storage"), os.strerror(number)
    message = message[: LONGEST_MESSAGE if code in _SHOWING else 500]
    path: Optional[bytes] = getattr(error, "path", None)
    return {"code": code, "message": message, "errno": number, "path": path}


# -- the kernel ----------------------------------------------------------------------


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _subreapers() -> bool:
    """Whether the kernel has them; to set one succeeds for pid 1 in any case."""
    import ctypes

    value = ctypes.byref(ctypes.c_int())
    return bool(ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, value, 0, 0, 0) == 0)


def _restrict(rules: bytes) -> bool:
    """Filter the system calls of the caller and all that it starts, if that can be.

    Returns whether it is so; some kernels have no filters.
    """
    import ctypes

    code = ctypes.create_string_buffer(rules, len(rules))
    program = struct.pack("HP", len(rules) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    failed = libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0)
    return not failed


def _follow(pid: int) -> None:
    """Run on the processors of another process, whatever somebody chose for us."""
    if not hasattr(os, "sched_setaffinity"):
        return
    try:
        theirs = os.sched_getaffinity(pid)
        if os.sched_getaffinity(0) != theirs:
            os.sched_setaffinity(0, theirs)
    except OSError:
        pass  # the other has ended, or none of its processors is left


def _prctl_supported() -> bool:
    return sys.platform.startswith("linux")


def _sha256() -> Any:
    import hashlib

    return hashlib.sha256()


def _parents() -> Dict[int, Tuple[int, str]]:
    """Map each process that is to be seen to its parent and its state."""
    if sys.platform == "darwin":
        return _parents_by_libproc()
    found: Dict[int, Tuple[int, str]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/" + name + "/stat", "rb", 0) as file:
                # The name is in parentheses and may itself hold any of them.
                fields = file.read(4096).rpartition(b")")[2].split(None, 18)
        except OSError:
            continue
        if len(fields) > 17:
            # Other threads go on when the first has ended.
            alive = fields[0] == b"Z" and int(fields[17]) > 1
            state = "R" if alive else fields[0].decode("ascii", "replace")
            found[int(name)] = (int(fields[1]), state)
    return found


def _parents_by_libproc() -> Dict[int, Tuple[int, str]]:
    import ctypes

    libproc = ctypes.CDLL("/usr/lib/libproc.dylib")
    pids = (ctypes.c_int * 65536)()
    count = libproc.proc_listallpids(pids, ctypes.sizeof(pids))
    found: Dict[int, Tuple[int, str]] = {}
    # struct proc_bsdinfo begins: flags, status, xstatus, pid, ppid; 136 bytes.
    info = (ctypes.c_uint32 * 34)()
    for pid in pids[: max(count, 0)]:
        size = libproc.proc_pidinfo(
            pid, _PROC_PIDTBSDINFO, ctypes.c_uint64(0), info, ctypes.sizeof(info)
        )
        if size == ctypes.sizeof(info):
            found[pid] = (info[4], _BSD_STATES.get(info[1], "R"))
    return found


_PROC_PIDTBSDINFO = 3
_BSD_STATES = {4: "T", 5: "Z"}


def _descendants(root: int) -> List[Tuple[int, str]]:
    """Return the processes below `root` that still run, with their states."""
    try:
        table = _parents()
    except OSError:
        return []
    if not table and root == os.getpid():
        return _own_children()
    children: Dict[int, List[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found: List[Tuple[int, str]] = []
    todo = list(children.get(root, ()))
    while todo:
        pid = todo.pop()
        todo.extend(children.get(pid, ()))
        state = table[pid][1]
        if state not in ("Z", "X"):
            found.append((pid, state))
    return found


def _strays(known: Set[int]) -> List[int]:
    """Return our running descendants that are not below a process of `known`.

    What lost its warden is a child of ours. All is told from one look at /proc: a
    process that is born between two would seem to be below nobody.
    """
    table = _parents()
    if not table:
        return [pid for pid, _ in _own_children() if pid not in known]
    children: Dict[int, List[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found: List[int] = []
    todo = [pid for pid in children.get(os.getpid(), ()) if pid not in known]
    while todo:
        pid = todo.pop()
        todo.extend(children.get(pid, ()))
        if table[pid][1] not in ("Z", "X"):
            found.append(pid)
    return found


#: What is known of pids where no /proc tells: the newest, and up to where to look.
_PIDS = {"newest": 0, "highest": 0, "limit": 1 << 22}


def _blind() -> bool:
    """Whether no /proc tells which processes there are."""
    return _prctl_supported() and not os.path.exists("/proc/self")


def _own_children() -> List[Tuple[int, str]]:
    """Return the caller's children that still run, by asking for each pid.

    Raises:
        OSError: There are so many processes that none can be added.
    """
    newest = os.fork()
    if newest == 0:
        os._exit(0)
    # Whoever stops it must not stop us.
    _send_signal(newest, _signal.SIGKILL)
    os.waitpid(newest, 0)
    # Pids are given in turn, up to the limit, and then again from below.
    wrapped = newest < _PIDS["newest"]
    _PIDS["newest"] = newest
    _PIDS["highest"] = _PIDS["limit"] if wrapped else max(newest, _PIDS["highest"])
    found: List[Tuple[int, str]] = []
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    for pid in range(2, _PIDS["highest"]):
        try:
            if os.waitid(os.P_PID, pid, how) is None:
                found.append((pid, ""))
        except ChildProcessError:
            pass
    return found


# Some kernels, gVisor's among them, have no subreapers: who loses its parent is ours
# at once, whichever warden it was below. There a command's processes are known by a
# limit that nobody enforces and that all of them inherit.
# SAFETY: one of them may lower its own, and is then not found until the end.

_FIRST_MARK = 1 << 61
_NEXT_MARK = {"value": 0}


def _new_mark() -> int:
    """Return a number that no other command has; 0 where there are subreapers."""
    mark = _NEXT_MARK["value"]
    if mark:
        _NEXT_MARK["value"] -= 1  # a limit can be lowered, never raised
    return mark


def _mark_self(mark: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_RSS, (mark, mark))


def _marked(mark: int, warden: int) -> List[Tuple[int, str]]:
    """Return the processes with a mark, except their warden."""
    import resource

    found: List[Tuple[int, str]] = []
    for name in os.listdir("/proc") if mark else ():
        if not name.isdigit() or int(name) == warden:
            continue
        try:
            if resource.prlimit(int(name), resource.RLIMIT_RSS)[1] == mark:
                found.append((int(name), ""))
        except OSError:
            pass  # it has ended
    return found


def _await_marked(mark: int) -> None:
    """Wait until nobody has the mark but the caller, its warden."""
    pause = 0.002
    while _marked(mark, os.getpid()):
        time.sleep(pause)
        pause = min(0.1, 1.2 * pause)


def _send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass


# -- the warden: parent and reaper of one command's processes ------------------------


class Warden:
    """Runs in a process of its own: starts commands, reaps, reports."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def serve(self) -> None:
        """Serve one command after another until the guest is gone."""
        _signal.signal(_signal.SIGTERM, self._end)
        if _prctl_supported():
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            _prctl(_PR_SET_PDEATHSIG, _signal.SIGTERM)
        _occupy_low_descriptors()
        while True:
            request, descriptors = self._receive()
            if request is None:
                self._end()
            else:
                self._run(request, descriptors)

    def _end(self, *_: Any) -> None:
        for _round in range(100):
            left = _descendants(os.getpid())
            if not left:
                break
            for pid, _state in left:
                _send_signal(pid, _signal.SIGKILL)
            time.sleep(0.001)
        os._exit(0)

    def _receive(self) -> Tuple[Any, List[int]]:
        data, ancillary, _, _ = self._sock.recvmsg(65536, 256, _CLOEXEC)
        descriptors: List[int] = []
        for _level, _kind, raw in ancillary:
            descriptors.extend(struct.unpack("%di" % (len(raw) // 4), raw))
        if not data:
            return None, descriptors
        size = int.from_bytes(data[:4], "big")
        pieces = [data[4:]]
        got = len(pieces[0])
        while got < size:
            pieces.append(self._sock.recv(1 << 20))
            if not pieces[-1]:
                return None, descriptors
            got += len(pieces[-1])
        return decode(b"".join(pieces)), descriptors

    def _report(self, *messages: Dict[str, Any]) -> None:
        told = [encode(message) for message in messages]
        try:
            self._sock.sendall(
                b"".join(len(raw).to_bytes(4, "big") + raw for raw in told)
            )
        except OSError:
            self._end()

    def _run(self, request: Dict[str, Any], descriptors: List[int]) -> None:
        try:
            os.chdir(request["cwd"])
        except OSError as error:
            pid, failure = 0, {"what": "cwd", "errno": error.errno}
        else:
            if request["mark"]:
                _mark_self(request["mark"])
            # An earlier command may have chosen them; a filter lets it.
            _follow(os.getppid())
            pid, failure = _launch(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        # A directory that the workload may want to remove must not stay busy.
        os.chdir("/")
        if not pid:
            self._report({"event": "failed", **failure})
        elif request["announce"]:
            self._report({"event": "started", "pid": pid})
        exits = self._reap(pid)
        if exits and _marked(request["mark"], os.getpid()):
            self._report(*exits)
            exits = []
        if not exits:
            _await_marked(request["mark"])
        # Most commands leave nobody; then both are news of one moment.
        self._report(*exits, {"event": "idle"})

    def _reap(self, main: int) -> List[Dict[str, Any]]:
        """Wait until no child is left; returns what is still to be reported."""
        untold: List[Dict[str, Any]] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG if untold else 0)
            except ChildProcessError:
                return untold
            if not pid:
                self._report(*untold)
                untold = []
            elif pid == main:
                untold.append({"event": "exit", "status": status})


def _occupy_low_descriptors() -> None:
    """Make received descriptors lie above every target of a command's own."""
    while os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) < 9:
        pass


def _launch(
    request: Dict[str, Any], descriptors: List[int]
) -> Tuple[int, Dict[str, Any]]:
    """Start a command; returns its pid, or 0 and why not."""
    number = errno.ENOENT
    for program in _candidates(request["argv"][0], request["env"]):
        try:
            return _start_or_interpret(program, request, descriptors), {}
        except OSError as error:
            failed = error.errno or errno.EIO
        if failed in (errno.ENOENT, errno.ENOTDIR) or not os.path.lexists(program):
            continue  # a directory that may not be searched has no programs
        number = failed
        if failed != errno.EACCES:
            break
    return 0, {"what": "program", "errno": number}


def _start_or_interpret(
    program: bytes, request: Dict[str, Any], descriptors: List[int]
) -> int:
    try:
        return _start(program, request["argv"], request, descriptors)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without a first line that names its interpreter is the shell's.
    argv = [b"/bin/sh", program, *request["argv"][1:]]
    return _start(b"/bin/sh", argv, request, descriptors)


def _candidates(name: bytes, env: Dict[str, bytes]) -> List[bytes]:
    if b"/" in name:
        return [name]
    path = env.get("PATH", _DEFAULT_PATH.encode())
    return [(folder or b".") + b"/" + name for folder in path.split(b":")]


def _start(
    program: bytes, argv: List[bytes], request: Dict[str, Any], descriptors: List[int]
) -> int:
    if request["tty"] or request["limits"] or not hasattr(os, "posix_spawn"):
        return _fork(program, argv, request, descriptors)
    targets = request["targets"]
    actions = [
        (os.POSIX_SPAWN_DUP2, source, target)
        for source, target in zip(descriptors, targets)
    ]
    return os.posix_spawn(
        program,
        argv,
        request["env"],
        file_actions=actions,
        setsid=True,
        setsigmask=[],
        setsigdef=_SET_BACK,
    )


#: Signals that Python or whoever started us may ignore, and a command must not.
_ALTERED = [
    number
    for number in range(1, 32)
    if number not in (_signal.SIGKILL, _signal.SIGSTOP)
]
#: All that there are: about each that it is not told to set back, glibc's spawn asks
#: the kernel, and then sets it back too. On gVisor's that takes long.
_SET_BACK = sorted(_signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP})


def _fork(
    program: bytes, argv: List[bytes], request: Dict[str, Any], descriptors: List[int]
) -> int:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _become(program, argv, request, descriptors)
        except OSError as error:
            os.write(writer, (error.errno or errno.EIO).to_bytes(4, "big"))
        except BaseException:  # noqa: BLE001 - nothing may run on in the child
            os.write(writer, errno.EINVAL.to_bytes(4, "big"))
        os._exit(127)
    os.close(writer)
    try:
        failure = os.read(reader, 4)
    finally:
        os.close(reader)
    if failure:
        os.waitpid(pid, 0)
        number = int.from_bytes(failure, "big")
        raise OSError(number, os.strerror(number))
    return pid


def _become(
    program: bytes, argv: List[bytes], request: Dict[str, Any], descriptors: List[int]
) -> None:
    os.setsid()
    for source, target in zip(descriptors, request["targets"]):
        os.dup2(source, target, inheritable=True)
    if request["tty"]:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    _limit(request["limits"])
    for number in _ALTERED:
        _signal.signal(number, _signal.SIG_DFL)
    os.execve(program, argv, request["env"])


def _limit(limits: Dict[str, int]) -> None:
    import resource

    for name, value in limits.items():
        kind = getattr(resource, "RLIMIT_" + name.upper())
        _, hard = resource.getrlimit(kind)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


# -- the event loop ------------------------------------------------------------------


class Loop:
    """Polls descriptors, runs timers, and steps jobs that have work to do."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._masks: Dict[int, int] = {}
        self._handlers: Dict[int, Callable[[int], None]] = {}
        self._timers: List[Tuple[float, int, Callable[[], Any]]] = []
        self._count = 0
        self.jobs: Dict[Job, None] = {}

    def watch(self, fd: int, mask: int, handler: Callable[[int], None]) -> None:
        """Call `handler` with the events of `fd`; mask 0 waits for none."""
        if self._masks.get(fd) == mask and self._handlers.get(fd) == handler:
            return
        self._handlers[fd] = handler
        if mask:
            self._poll.register(fd, mask)
        elif self._masks.get(fd):
            self._poll.unregister(fd)
        self._masks[fd] = mask

    def forget(self, fd: int) -> None:
        """Stop to watch `fd`."""
        if self._masks.pop(fd, 0):
            self._poll.unregister(fd)
        self._handlers.pop(fd, None)

    def later(self, delay: float, action: Callable[[], Any]) -> None:
        """Call `action` once, in `delay` seconds."""
        self._count += 1
        self._timers.append((time.monotonic() + delay, self._count, action))
        self._timers.sort()

    def turn(self) -> None:
        """Wait for something to happen, and let it."""
        patience = self._patience()
        ready = self._poll.poll(patience)
        if patience and not ready and _lingering:
            os.close(_lingering.pop(0))
        handlers = [self._handlers.get(fd) for fd, _ in ready]
        for (fd, events), handler in zip(ready, handlers):
            # The number may have become another's meanwhile.
            if handler is not None and self._handlers.get(fd) == handler:
                handler(events)
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            self._timers.pop(0)[2]()
        for job in list(self.jobs):
            job.step()

    def _patience(self) -> Optional[float]:
        if any(job.ready() for job in self.jobs):
            return 0
        # poll takes no more milliseconds than fit an int: some days.
        most = _QUIET if _lingering else 3600.0
        if not self._timers:
            return most * 1000 if _lingering else None
        left = min(most, self._timers[0][0] - time.monotonic())
        return max(0.0, left * 1000 + 0.5)


_IN = select.POLLIN | select.POLLHUP | select.POLLERR
_OUT = select.POLLOUT | select.POLLERR


class Wire:
    """The guest's end of one channel; `lost` is called when it has ended."""

    def __init__(
        self,
        ends: Tuple[int, int],
        loop: Loop,
        handle: Callable[..., None],
        lost: Callable[[], None],
    ) -> None:
        self._reader, self._writer = ends
        self._loop = loop
        self._handle = handle
        self._lost = lost
        self._input = bytearray(_ROOM)
        self._held = 0
        self._output: List[bytes] = []
        self._open = True
        self.backlog = 0
        self.on_relief: List[Callable[[], None]] = []
        for end in ends:
            os.set_blocking(end, False)
        self._watch()

    def _watch(self) -> None:
        output = _OUT if self._output else 0
        if self._reader == self._writer:
            self._loop.watch(self._reader, _IN | output, self._events)
        else:
            self._loop.watch(self._reader, _IN, self._arrived)
            self._loop.watch(self._writer, output, self._writable)

    def _events(self, events: int) -> None:
        if events & _OUT:
            self.flush()
        if events & _IN:
            self._arrived(events)

    def _writable(self, _events: int) -> None:
        self.flush()

    def _arrived(self, _events: int) -> None:
        try:
            if self._open:
                self._read()
        except EOFError:
            self._lost()

    def close(self) -> None:
        """Hang up."""
        if self._open:
            self._open = False
            for end in {self._reader, self._writer}:
                self._loop.forget(end)
                os.close(end)

    def _read(self) -> None:
        try:
            with memoryview(self._input) as view:
                got = os.readv(self._reader, [view[self._held :]])
        except BlockingIOError:
            return
        except OSError:
            got = 0
        if not got:
            raise EOFError
        self._held += got
        self._parse()

    def _parse(self) -> None:
        """Handle every whole frame, and keep the rest at the front."""
        at, need = 0, 0
        with memoryview(self._input) as view:
            while self._held - at >= HEADER.size:
                size, kind, stream = HEADER.unpack_from(view, at)
                if size > LARGEST:
                    raise EOFError
                need = HEADER.size + size
                if at + need > self._held:
                    break
                with view[at + HEADER.size : at + need] as payload:
                    # Only DATA is large; copying it would cost the most.
                    whole = payload if kind == DATA else bytes(payload)
                    self._handle(kind, stream, whole)
                at += need
            if at:
                view[: self._held - at] = view[at : self._held]
                self._held -= at
        if need > len(self._input):
            self._input.extend(bytes(need - len(self._input)))
        elif len(self._input) > _ROOM and self._held < _ROOM:
            del self._input[_ROOM:]

    def send(self, kind: int, stream: int, *parts: bytes) -> None:
        """Queue one frame."""
        size = sum(map(len, parts))
        frame = b"".join((HEADER.pack(size, kind, stream),) + parts)
        self._output.append(frame)
        self.backlog += len(frame)

    def flush(self) -> None:
        """Send what is queued, as far as it is taken."""
        if not self._output or not self._open:
            return
        try:
            while self._output:
                sent = os.writev(self._writer, self._output[:64])
                self.backlog -= sent
                self._drop(sent)
        except BlockingIOError:
            pass
        except OSError:
            self._lost()
            return
        self._watch()
        if self.on_relief and not self.full:
            waiting, self.on_relief = self.on_relief, []
            for action in waiting:
                action()

    def _drop(self, sent: int) -> None:
        done = 0
        for frame in self._output:
            if len(frame) > sent:
                break
            sent -= len(frame)
            done += 1
        del self._output[:done]
        if sent:
            self._output[0] = self._output[0][sent:]

    @property
    def full(self) -> bool:
        """Whether so much waits for the host that no more should be made."""
        return self.backlog > _BACKLOG


# -- streams: one operation each -----------------------------------------------------


class Job:
    """One operation: receives what the host sends on its stream, and answers."""

    #: Bytes that it was sent and that wait to be written.
    owed = 0
    #: Bytes that were written and are not granted again yet.
    taken = 0

    def __init__(self, peer: Peer, stream: int) -> None:
        self.peer = peer
        self.guest = peer.guest
        self.stream = stream
        self.credit: Dict[int, int] = {}
        peer.streams[stream] = self

    # What the host may send.

    def on_data(self, channel: int, data: memoryview) -> None:
        """Bytes arrived; they are gone when this returns."""
        raise Refused("invalid", "this operation takes no data")

    def on_end(self, channel: int) -> None:
        """No more bytes will arrive."""

    def on_credit(self, channel: int, amount: int) -> None:
        """The host takes `amount` bytes more."""
        self.credit[channel] = self.window(channel) + amount

    def on_control(self, fields: Dict[str, Any]) -> None:
        """A request within the operation."""
        if fields.get("do") == "cancel":
            self.cancel()

    def cancel(self) -> None:
        """The host wants no result; nothing may be left."""
        self.fail(Refused("cancelled"))

    # Work of its own, besides descriptors.

    def ready(self) -> bool:
        """Whether `step` has something to do now."""
        return False

    def step(self) -> None:
        """Do a bounded piece of work."""

    # What it answers.

    def window(self, channel: int) -> int:
        """Bytes that the host still takes on a channel."""
        return self.credit.get(channel, WINDOW)

    def send(self, channel: int, data: bytes) -> None:
        """Send bytes; the caller keeps within the window."""
        self.credit[channel] = self.window(channel) - len(data)
        self.answer(DATA, bytes((channel,)), data)

    def answer(self, kind: int, *parts: bytes) -> None:
        """Send a frame, unless the stream has been closed."""
        if self.peer.streams.get(self.stream) is self:
            self.peer.wire.send(kind, self.stream, *parts)

    def drained(self) -> None:
        """A descriptor that it reads has come to its end."""

    def end(self, channel: int) -> None:
        """Say that a channel has no more bytes."""
        self.answer(END, bytes((channel,)))

    def grant(self, channel: int, amount: int) -> None:
        """Let the host send `amount` bytes more."""
        raw = bytes((channel,)) + amount.to_bytes(4, "big")
        self.answer(CREDIT, raw)

    def finish(self, fields: Optional[Dict[str, Any]] = None) -> None:
        """Answer, and close the stream."""
        self._close(RESULT, encode(fields or {}))

    def fail(self, error: BaseException) -> None:
        """Answer with a refusal, and close the stream."""
        self._close(ERROR, encode(_refusal(error)))

    def _close(self, kind: int, payload: bytes) -> None:
        if self.peer.streams.get(self.stream) is not self:
            return
        self.peer.wire.send(kind, self.stream, payload)
        del self.peer.streams[self.stream]
        self.guest.loop.jobs.pop(self, None)
        self.released()

    def abandon(self) -> None:
        """The host is gone; nobody is answered any more."""
        self.guest.loop.jobs.pop(self, None)
        self.released()

    def released(self) -> None:
        """Release what the operation holds; called once it has answered."""


class Stepped(Job):
    """An operation whose work is a generator: each step is a bounded piece.

    What it yields is sent as BODY; None only yields to others.
    """

    def __init__(self, peer: Peer, stream: int, work: Any) -> None:
        Job.__init__(self, peer, stream)
        self._work = work
        peer.guest.loop.jobs[self] = None

    def ready(self) -> bool:
        return self.window(BODY) >= PIECE and not self.peer.wire.full

    def step(self) -> None:
        for _ in range(4):
            if not self.ready():
                return
            try:
                piece = next(self._work)
            except StopIteration as done:
                self.finish(done.value)
                return
            except Exception as error:  # noqa: BLE001 - one operation, not the guest
                self.fail(error)
                return
            if piece:
                self.send(BODY, piece)

    def released(self) -> None:
        self._work.close()


class Source:
    """A descriptor that a job reads for the host, as far as the window goes."""

    def __init__(self, job: Job, fd: int, channel: int) -> None:
        self.job = job
        self.fd = fd
        self.channel = channel
        self.open = True
        os.set_blocking(fd, False)
        self.resume()

    def resume(self) -> None:
        """Read on, if the host has room."""
        if not self.open:
            return
        wire = self.job.peer.wire
        mask = _IN
        if self.job.window(self.channel) <= 0:
            mask = 0
        elif wire.full:
            mask = 0
            wire.on_relief.append(self.resume)
        self.job.guest.loop.watch(self.fd, mask, self._events)

    def _events(self, _events: int) -> None:
        self.pump()

    def pump(self, rounds: int = 1) -> bool:
        """Carry what is there; returns whether nothing more is."""
        for _ in range(rounds):
            room = min(PIECE, self.job.window(self.channel))
            if room <= 0 or not self.open:
                break
            try:
                data = os.read(self.fd, room)
            except BlockingIOError:
                return True
            except OSError:  # a tty whose other side is gone
                data = b""
            if not data:
                self.close()
                self.job.end(self.channel)
                self.job.drained()
                return True
            self.job.send(self.channel, data)
        self.resume()
        return not self.open

    def close(self) -> None:
        """Read no more."""
        if self.open:
            self.open = False
            self.job.guest.loop.forget(self.fd)
            os.close(self.fd)


class Sink:
    """A descriptor that is written for hosts; who gave is granted as it empties."""

    def __init__(self, guest: Guest, fd: int, channel: int) -> None:
        self.guest = guest
        self.fd = fd
        self.channel = channel
        self.open = True
        self._pieces: List[Tuple[bytes, Optional[Job]]] = []
        self._last = False
        os.set_blocking(fd, False)

    def put(self, data: memoryview, giver: Job) -> None:
        """Write, or keep until the descriptor takes it."""
        giver.owed += len(data)
        if giver.owed + giver.taken > WINDOW:
            raise EOFError  # the host does not keep to the window
        self._add(bytes(data), giver)

    def _add(self, data: bytes, giver: Optional[Job]) -> None:
        if self.open:
            self._pieces.append((data, giver))
            self._write()
        else:
            self._grant({giver: len(data)})

    def _grant(self, written: Dict[Optional[Job], int]) -> None:
        for giver, amount in written.items():
            if giver is not None and amount:
                giver.owed -= amount
                giver.taken += amount
                # Who sends little has room enough, and need not be told each time.
                if giver.owed + giver.taken > WINDOW // 2:
                    giver.grant(self.channel, giver.taken)
                    giver.taken = 0

    def end(self) -> None:
        """Close once all is written."""
        self._last = True
        self._write()

    def _write(self) -> None:
        written: Dict[Optional[Job], int] = {}
        try:
            while self._pieces and self.open:
                piece, giver = self._pieces[0]
                count = os.write(self.fd, piece)
                written[giver] = written.get(giver, 0) + count
                if count < len(piece):
                    self._pieces[0] = piece[count:], giver
                else:
                    del self._pieces[0]
        except BlockingIOError:
            pass
        except OSError:  # nobody reads any more
            for piece, giver in self._pieces:
                written[giver] = written.get(giver, 0) + len(piece)
            self._pieces.clear()
            self.close()
        self._grant(written)
        self._wait()

    def _wait(self) -> None:
        if not self.open:
            return
        if self._last and not self._pieces:
            self.close()
            return
        self.guest.loop.watch(self.fd, _OUT if self._pieces else 0, self._events)

    def _events(self, _events: int) -> None:
        self._write()

    def close(self) -> None:
        """Write no more."""
        if self.open:
            self.open = False
            self.guest.loop.forget(self.fd)
            os.close(self.fd)


# -- commands ------------------------------------------------------------------------


class Capture:
    """Keeps the head and the tail of an output, and counts it."""

    def __init__(self, keep: int) -> None:
        self._room = keep - keep // 2
        self._keep = keep // 2
        self._head: List[bytes] = []
        self._tail: List[bytes] = []
        self._length = 0
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take one piece."""
        self.total += len(data)
        if self._room:
            self._head.append(data[: self._room])
            taken = len(self._head[-1])
            self._room -= taken
            data = data[taken:]
        if data and self._keep:
            self._tail.append(data)
            self._length += len(data)
            self._trim()

    def _trim(self) -> None:
        done = 0
        for piece in self._tail:
            if self._length - len(piece) < self._keep:
                break
            self._length -= len(piece)
            done += 1
        del self._tail[:done]

    def result(self) -> Tuple[bytes, bytes]:
        """Return head and tail."""
        tail = b"".join(self._tail)
        return b"".join(self._head), tail[-self._keep :] if self._keep else b""


class Ring:
    """The last bytes of an output, found by their offsets.

    Attributes:
        start: Offset of the first byte that is kept.
        end: Offset after the last one: how many bytes there were.
    """

    def __init__(self) -> None:
        self._chunks: List[Any] = []
        self.start = 0
        self.end = 0

    def add(self, data: bytes) -> None:
        """Take what comes next."""
        if self._chunks and len(self._chunks[-1]) + len(data) <= _CHUNK:
            self._chunks[-1] += data
        else:
            self._chunks.append(data if len(data) >= _CHUNK else bytearray(data))
        self.end += len(data)

    def trim(self, room: int, needed: int) -> int:
        """Drop the oldest bytes beyond `room`, up to the offset `needed`.

        Returns:
            How many were dropped.
        """
        excess = min(self.end - room, needed) - self.start
        done, gone = 0, 0
        for chunk in self._chunks:
            if gone + len(chunk) > excess:
                break
            gone += len(chunk)
            done += 1
        del self._chunks[:done]
        if gone < excess:
            self._chunks[0] = self._chunks[0][excess - gone :]
            gone = excess
        self.start += gone
        return gone

    def read(self, offset: int, most: int) -> bytes:
        """Return up to `most` bytes from an offset that is kept."""
        at = self.start
        for chunk in self._chunks:
            if at <= offset < at + len(chunk):
                return bytes(chunk[offset - at : offset - at + most])
            at += len(chunk)
        return b""


class Printed:
    """One output of a command: captured, kept, and carried to those who look on.

    With nobody looking on it is read as it comes; else as far as the slowest of
    them has room for it.
    """

    def __init__(
        self, command: Command, fd: int, channel: int, keep: Optional[int]
    ) -> None:
        self.fd = fd
        self.channel = channel
        self.capture = None if keep is None else Capture(keep)
        self.ring = Ring() if command.guest.keeps and channel != REPORT else None
        self.total = 0
        self.open = True
        self._command = command
        self._loop = command.guest.loop
        self._grown = False
        os.set_blocking(fd, False)
        self._loop.watch(fd, _IN, self._events)

    def _events(self, _events: int) -> None:
        self.pump()

    def resume(self) -> None:
        """Read on, if there is room."""
        if self.open:
            self._loop.watch(self.fd, _IN if self.room() > 0 else 0, self._events)

    def room(self) -> int:
        """Return how much may be read now."""
        room = PIECE
        for view in self._command.views:
            if self.channel in view.at:
                room = min(room, view.room(self))
        return room

    def pump(self, rounds: int = 1) -> bool:
        """Carry what is there; returns whether nothing more is."""
        for _ in range(rounds):
            room = self.room()
            if room <= 0 or not self.open:
                break
            try:
                data = os.read(self.fd, room)
            except BlockingIOError:
                return True
            except OSError:  # a tty whose other side is gone
                data = b""
            if not data:
                self._drained()
                return True
            self._take(data)
        self.resume()
        return not self.open

    def _take(self, data: bytes) -> None:
        self.total += len(data)
        if self.ring is not None:
            self.ring.add(data)
            self._command.guest.hold(len(data) - self.trim(KEPT))
        if self.capture is None:
            self._command.printed(b"")
        else:
            self.capture.add(data)
            self._command.printed(data)
            if len(data) >= 65536 and not self._grown:
                self._grow()
        for view in self._command.views:
            if self.channel in view.at:
                view.show(self, data)

    def trim(self, room: int) -> int:
        """Keep no more than `room` bytes, but all that is still to be shown."""
        if self.ring is None or self.ring.end - self.ring.start <= room:
            return 0
        shown = [view.at.get(self.channel, self.total) for view in self._command.views]
        return self.ring.trim(room, min([self.total, *shown]))

    def _grow(self) -> None:
        import fcntl

        self._grown = True
        try:
            fcntl.fcntl(self.fd, _F_SETPIPE_SZ, PIECE)
        except OSError:
            pass

    def _drained(self) -> None:
        self.close()
        for view in list(self._command.views):
            view.catch_up(self)
        self._command.conclude()

    def close(self) -> None:
        """Read no more."""
        if self.open:
            self.open = False
            self._loop.forget(self.fd)
            os.close(self.fd)


class Report(Printed):
    """Descriptor 3 of a command: what stands there came after what was printed."""

    _most = PIECE

    def _events(self, events: int) -> None:
        # What is written there while the others are read may come after what they
        # give now: it waits for the next turn.
        there = _unread(self.fd)
        others = [each for each in self._command.outputs if each is not self]
        quiet = all([each.pump(64) for each in others])
        if quiet and (there or events & select.POLLHUP):
            self._most = there or PIECE
            self.pump()
            self._most = PIECE

    def room(self) -> int:
        return min(self._most, Printed.room(self))


def _unread(fd: int) -> int:
    """Return how many bytes stand in a pipe."""
    import fcntl
    import termios

    (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
    return int(count)


class Discard:
    """Reads on and forgets, so that a background process never meets a full pipe."""

    def __init__(self, loop: Loop, fd: int) -> None:
        self._loop = loop
        self._fd = fd
        loop.watch(fd, _IN, self._events)

    def _events(self, _events: int) -> None:
        try:
            if os.read(self._fd, PIECE):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._loop.forget(self._fd)
        os.close(self._fd)


class Post:
    """The guest's side of one warden."""

    def __init__(self, guest: Guest, pid: int, sock: Any) -> None:
        self.guest = guest
        self.pid = pid
        self.command: Optional[Command] = None
        self.idle = True
        self.retired = False
        self._sock = sock
        self._input = bytearray()
        # Whoever stops the warden must not stop the guest.
        sock.settimeout(5.0)
        guest.loop.watch(sock.fileno(), _IN, self._events)

    def alive(self) -> bool:
        """Whether it still listens; the workload may just have killed it."""
        poll = select.poll()
        poll.register(self._sock, 0)
        return not poll.poll(0)

    def ask(self, request: Dict[str, Any], descriptors: List[int]) -> None:
        """Have the warden start a command."""
        raw = encode(request)
        message = len(raw).to_bytes(4, "big") + raw
        rights = struct.pack("%di" % len(descriptors), *descriptors)
        ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)]
        self.idle = False
        if _may_be_stopped(self.pid):
            _send_signal(self.pid, _signal.SIGCONT)
        sent = self._sock.sendmsg([message[:65536]], ancillary)
        if sent < len(message):
            self._sock.sendall(message[sent:])

    def _events(self, _events: int) -> None:
        try:
            data = self._sock.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.guest.warden_died(self)
            return
        self._input += data
        while len(self._input) >= 4:
            end = 4 + int.from_bytes(self._input[:4], "big")
            if len(self._input) < end:
                return
            message = decode(bytes(self._input[4:end]))
            del self._input[:end]
            self._report(message)

    def _report(self, message: Dict[str, Any]) -> None:
        command = self.command
        if message["event"] == "idle":
            self.idle = True
            self.command = None
            self.guest.warden_idle(self)
        if command is not None:
            command.reported(message)

    def close(self) -> None:
        """Let the warden end, with all that is below it."""
        self.guest.loop.forget(self._sock.fileno())
        self._sock.close()


class View(Job):
    """What one host sees of a command, and where it speaks to it.

    Attributes:
        at: Of each output that is streamed to it, how much it was sent.
    """

    def __init__(
        self,
        peer: Peer,
        stream: int,
        command: Command,
        at: Dict[int, int],
        lost: Sequence[int] = (),
    ) -> None:
        Job.__init__(self, peer, stream)
        self.command = command
        self.at = at
        self._lost = list(lost)
        self._ended: Set[int] = set()
        command.views.append(self)
        for channel in at:
            if channel not in command.channels:
                self._end_once(channel)

    # What the command says.

    def begin(self, pid: int) -> None:
        """Say that the command runs, and, if it was attached to, of what kind it is."""
        about: Dict[str, Any] = {"event": "started", "pid": pid}
        if self._lost:
            about.update(self.command.kind(), lost=self._lost)
        self.announce(about)

    def announce(self, fields: Dict[str, Any]) -> None:
        """Tell of an event, unless only the result counts."""
        if self.at:
            self.answer(EVENT, encode(fields))

    def room(self, output: Printed) -> int:
        """Return how much of what is printed next the host takes."""
        if self.at[output.channel] < output.total:
            return 0  # what was printed before comes first
        if self.peer.wire.full:
            self.peer.wire.on_relief.append(lambda: self._go_on(output))
            return 0
        return self.window(output.channel)

    def show(self, output: Printed, data: bytes) -> None:
        """Send what was just printed."""
        self.at[output.channel] += len(data)
        self.send(output.channel, data)

    def catch_up(self, output: Printed) -> None:
        """Send what is kept, as far as the host takes it, and the end after it."""
        channel = output.channel
        if channel not in self.at:
            return
        while self.at[channel] < output.total:
            room = min(PIECE, self.window(channel))
            if room <= 0 or self.peer.wire.full:
                break
            assert output.ring is not None
            self.show(output, output.ring.read(self.at[channel], room))
        if self.at[channel] < output.total:
            if self.peer.wire.full:
                self.peer.wire.on_relief.append(lambda: self._go_on(output))
        elif not output.open:
            self._end_once(channel)

    def _go_on(self, output: Printed) -> None:
        if self.peer.streams.get(self.stream) is self:
            self.catch_up(output)
            output.resume()
            self.command.conclude()
            self.conclude()

    def _end_once(self, channel: int) -> None:
        if channel not in self._ended:
            self._ended.add(channel)
            self.end(channel)

    def conclude(self) -> None:
        """Answer, once the command has ended and all of it has been sent."""
        result = self.command.result
        if result is None:
            return
        outputs = self.command.outputs
        if any(self.at.get(each.channel, each.total) < each.total for each in outputs):
            return
        for channel in self.at:
            self._end_once(channel)
        self.finish(result if self.at else {**result, **self._captured()})

    def _captured(self) -> Dict[str, Any]:
        fields: Dict[str, Any] = {}
        for name, output in zip(("stdout", "stderr"), self.command.outputs):
            assert output.capture is not None
            head, tail = output.capture.result()
            fields[name + "_total"] = output.capture.total
            if len(head) + len(tail) <= _INLINE:
                fields[name] = [head, tail]
            else:
                fields[name] = [len(head), len(tail)]
                self._send_captured(output.channel, head, tail)
        return fields

    def _send_captured(self, channel: int, head: bytes, tail: bytes) -> None:
        # The host asked for this much, and has set aside room for it.
        for part in (head, tail):
            view = memoryview(part)
            for at in range(0, len(part), PIECE):
                piece = bytes(view[at : at + PIECE])
                self.peer.wire.send(DATA, self.stream, bytes((channel,)), piece)

    # What the host says.

    def on_data(self, channel: int, data: memoryview) -> None:
        if self.command.stdin is None:
            raise Refused("invalid", "standard input is not open")
        self.command.stdin.put(data, self)

    def on_end(self, channel: int) -> None:
        if self.command.stdin is not None:
            self.command.stdin.end()

    def on_credit(self, channel: int, amount: int) -> None:
        Job.on_credit(self, channel, amount)
        for output in self.command.outputs:
            if output.channel == channel:
                self._go_on(output)

    def on_control(self, fields: Dict[str, Any]) -> None:
        what = fields.get("do")
        if what == "signal":
            self.command.signal(fields["signal"])
        elif what == "resize":
            self.command.resize(fields["columns"], fields["rows"])
        elif what == "leave":
            self.fail(Refused("cancelled"))
        elif what == "cancel":
            self.cancel()

    def cancel(self) -> None:
        self.command.kill(lambda: self.fail(Refused("cancelled")))

    def released(self) -> None:
        self.command.views.remove(self)
        self.command.left_by()


class Command:
    """One command, from its start to its end; hosts look on through views.

    Attributes:
        id: Names it among all commands of all hosts.
        owner: The host that started it, while it is there.
        views: Those who look on.
        channels: Its outputs' numbers.
        outputs: Its outputs.
        stdin: Its standard input, where that is open.
        result: How it ended, once that is settled.
    """

    def __init__(self, peer: Peer, fields: Dict[str, Any]) -> None:
        guest = peer.guest
        self.guest = guest
        self.owner: Optional[Peer] = peer
        self.id: str = fields.get("id") or os.urandom(8).hex()
        if self.id in guest.commands:
            raise Refused("exists")
        self.views: List[View] = []
        self.outputs: List[Printed] = []
        self.stdin: Optional[Sink] = None
        self.result: Optional[Dict[str, Any]] = None
        self._fields = fields
        self._since = time.time()
        self._began = time.monotonic()
        self._heard = self._began
        self._status: Optional[int] = None
        self._failure: Optional[Dict[str, Any]] = None
        self._timed_out = ""
        self._untold = 0
        self._gone = False
        self._patient = True
        self._busy = False
        self._pid = 0
        #: Signals that came before it had begun.
        self._early: List[int] = []
        self._rounds = 0
        self._killing = False
        self._waiters: List[Callable[[], None]] = []
        self._terminal: Optional[int] = None
        self._spool = self._open_spool(fields.get("spool"))
        self._ended = self._began
        self._mark = _new_mark()
        self._post = guest.warden()
        self._post.command = self
        guest.commands[self.id] = self
        guest.command_starts()
        try:
            self._launch(peer.environment(fields.get("env") or {}))
        except OSError:
            self._post.command = None
            guest.retire(self._post)
            self._gone = True
            self._release()
            guest.forget(self)
            raise
        self._set_timers()

    # Start.

    def _open_spool(self, path: Optional[bytes]) -> Optional[int]:
        if path is None:
            return None
        try:
            return self._opened(path)
        except (OSError, Refused) as error:
            _note_path(error, path)
            raise

    @staticmethod
    def _opened(path: bytes) -> int:
        folder = os.path.dirname(path)
        os.makedirs(folder, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_NOCTTY
        spool = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        if not stat.S_ISREG(os.fstat(spool).st_mode):
            os.close(spool)
            raise Refused("not_regular")
        return spool

    def _launch(self, env: Dict[str, bytes]) -> None:
        fields = self._fields
        theirs: List[int] = []
        script = None
        try:
            argv = fields["argv"]
            if fields.get("script") is not None:
                argv, script = self._shell(fields["script"])
            targets = self._wire_up(theirs)
            if script is not None:
                theirs.append(script)
                targets.append(9)
            self._post.ask(
                {
                    "argv": argv,
                    "env": env,
                    "cwd": fields["cwd"],
                    "tty": self._terminal is not None,
                    "limits": fields.get("limits") or {},
                    "targets": targets,
                    "announce": self._may_be_signalled(),
                    "mark": self._mark,
                },
                theirs,
            )
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    def _may_be_signalled(self) -> bool:
        fields = self._fields
        # What runs on while its output goes to a file may be, too.
        streamed = fields.get("capture") is None or fields.get("spool") is not None
        return streamed or self.guest.keeps

    def _shell(self, script: bytes) -> Tuple[List[bytes], Optional[int]]:
        shell = self.guest.shell.encode()
        if len(script) <= _LONGEST_INLINE_SCRIPT:
            return [shell, b"-c", script], None
        file = _unnamed(script)
        if self.guest.blind:
            return [shell, b"-c", b'eval "$(cat <&9)"'], file
        return [shell, b"/dev/fd/9"], file

    def _wire_up(self, theirs: List[int]) -> List[int]:
        if self._fields.get("tty"):
            return self._wire_terminal(theirs)
        if self._fields.get("stdin"):
            reader, writer = os.pipe()
            theirs.append(reader)
            self.stdin = Sink(self.guest, writer, STDIN)
        else:
            theirs.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        targets = [0, 1, 2]
        self._pipe(theirs, STDOUT)
        self._pipe(theirs, STDERR)
        if self._fields.get("report"):
            targets.append(3)
            self._pipe(theirs, REPORT)
        return targets

    def _pipe(self, theirs: List[int], channel: int) -> None:
        reader, writer = os.pipe()
        theirs.append(writer)
        kind = Report if channel == REPORT else Printed
        self.outputs.append(kind(self, reader, channel, self._fields.get("capture")))

    def _wire_terminal(self, theirs: List[int]) -> List[int]:
        master, slave = os.openpty()
        theirs.append(slave)
        self._terminal = master
        columns, rows = self._fields["tty"]
        _resize(master, columns, rows)
        keep = self._fields.get("capture")
        self.outputs.append(Printed(self, os.dup(master), STDOUT, keep))
        self.stdin = Terminal(self.guest, master, STDIN)
        theirs.extend((os.dup(slave), os.dup(slave)))
        return [0, 1, 2]

    def _set_timers(self) -> None:
        if self._fields.get("timeout") is not None:
            self.guest.loop.later(
                self._fields["timeout"], lambda: self._time_out("timeout")
            )
        idle = self._fields.get("idle_timeout")
        if idle is not None:
            self.guest.loop.later(idle, lambda: self._watch_idle(idle))

    def _watch_idle(self, idle: float) -> None:
        quiet = time.monotonic() - self._heard
        if quiet >= idle:
            self._time_out("idle_timeout")
        elif self.result is None:
            self.guest.loop.later(idle - quiet, lambda: self._watch_idle(idle))

    def _time_out(self, which: str) -> None:
        if self.result is None and self._status is None:
            self._timed_out = which
            self.kill(lambda: None)

    # Who looks on.

    @property
    def channels(self) -> List[int]:
        return [output.channel for output in self.outputs]

    def beginning(self) -> Dict[int, int]:
        """Return where a host that sees all of it begins."""
        return dict.fromkeys([STDOUT, STDERR, *self.channels], 0)

    def shown(self, peer: Peer, stream: int, stdout: int, stderr: int) -> View:
        """Show it to a host, from these offsets of its outputs."""
        at = {STDOUT: stdout, STDERR: stderr}
        lost = [0, 0]
        for output in self.outputs:
            if output.ring is None:
                continue
            if not 0 <= at[output.channel] <= output.total:
                raise Refused("invalid", "it has printed %d bytes" % output.total)
            first = max(at[output.channel], output.ring.start)
            lost[output.channel - STDOUT] = first - at[output.channel]
            at[output.channel] = first
        view = View(peer, stream, self, at, lost)
        self._inform(view)
        return view

    def _inform(self, view: View) -> None:
        if self._pid:
            view.begin(self._pid)
        if self._status is not None:
            view.announce({"event": "exit", **self._ending()})
        for output in self.outputs:
            view.catch_up(output)
            output.resume()
        view.conclude()

    def left_by(self) -> None:
        """Somebody looks on no more."""
        if self.result is None:
            for output in self.outputs:
                output.resume()
            if not self.views and self._fields.get("report") and self.stdin is not None:
                # A shell is of no use to others; it ends after its script.
                self.stdin.end()

    def kind(self) -> Dict[str, Any]:
        """Return what may be done with it."""
        return {
            "stdin": self.stdin is not None,
            "tty": self._terminal is not None,
        }

    def described(self) -> Dict[str, Any]:
        """Return what a list says of it."""
        end = None if self._status is None else self._ending()
        return {"id": self.id, "since": self._since, "end": end, **self._brief()}

    def _brief(self) -> Dict[str, Any]:
        script = self._fields.get("script")
        return {
            "argv": [part[:256] for part in self._fields["argv"][:16]],
            "script": None if script is None else script[:256],
            "cwd": self._fields["cwd"],
        }

    # While it runs.

    @property
    def began(self) -> bool:
        """Whether its program runs, or ran."""
        return self._failure is None and bool(self._pid)

    @property
    def runs(self) -> bool:
        """Whether a process of it is left."""
        return not self._gone

    def printed(self, data: bytes) -> None:
        """Note that it wrote something."""
        self._heard = time.monotonic()
        self._meter(len(data))
        if self._spool is not None:
            view = memoryview(data)
            while view:
                try:
                    view = view[os.write(self._spool, view) :]
                except OSError:
                    # A full disk ends the spool, never the command.
                    os.close(self._spool)
                    self._spool = None
                    return

    def _meter(self, size: int) -> None:
        """Tell its hosts how much was captured, in steps of their choice."""
        step = self._fields.get("meter")
        if step is None:
            return
        self._untold += size
        if self._untold >= step:
            told = encode({"event": "printed", "bytes": self._untold})
            for view in self.views:
                if not view.at:
                    view.answer(EVENT, told)
            self._untold = 0

    def signal(self, number: int) -> None:
        """Send a signal to its process group."""
        if not self._pid:
            self._early.append(number)
        elif self._status is None:
            try:
                os.killpg(self._pid, number)
            except OSError:
                pass

    def resize(self, columns: int, rows: int) -> None:
        """Give its terminal another size."""
        if self._terminal is not None and self.stdin is not None and self.stdin.open:
            _resize(self._terminal, columns, rows)

    def reported(self, message: Dict[str, Any]) -> None:
        """The warden said something."""
        event = message["event"]
        if event == "started":
            self._pid = message["pid"]
            for view in self.views:
                view.begin(self._pid)
            for number in self._early:
                self.signal(number)
        elif event == "failed":
            self._failure = message
        elif event == "exit":
            self._exited(message["status"])
        elif event == "idle":
            self._left()

    def _exited(self, status: int) -> None:
        self._status = status
        self._ended = time.monotonic()
        for view in self.views:
            view.announce({"event": "exit", **self._ending()})
        # When "idle" follows, nobody is left to print; it usually does at once.
        self.guest.loop.later(_DRAIN, self._drain_ended)

    def _left(self) -> None:
        """No process of the command is left."""
        self._gone = True
        if self._status is None and self._failure is None:
            self._exited(int(_signal.SIGKILL))
        waiters, self._waiters = self._waiters, []
        for action in waiters:
            action()
        self.conclude()
        self.guest.ended(self)

    def _drain_ended(self) -> None:
        self._patient = False
        self.conclude()

    def conclude(self) -> None:
        """Settle how it ended, once it has and what it printed has been read."""
        if self.result is not None or self._busy:
            return
        if not (self._gone or self._overstayed()):
            return
        self._busy = True
        quiet = all([each.pump(64) for each in self.outputs])
        self._busy = False
        if not quiet:
            if any(each.open and each.room() > 0 for each in self.outputs):
                self.guest.loop.later(0, self.conclude)
            return  # else it goes on when the slowest host grants more
        if self._patient and any(each.open for each in self.outputs):
            return  # until the drain ends
        self._settle()

    def _overstayed(self) -> bool:
        """Whether it has ended, and others hold its outputs for too long."""
        return self._status is not None and not self._patient and not self._killing

    def _settle(self) -> None:
        self.result = self._ending()
        self.result["background"] = not self._gone and self._failure is None
        if self._spool is not None:
            self.result["spooled"] = True
        self._release()
        for view in list(self.views):
            if self._failure is not None and self._failure["what"] == "cwd":
                number = self._failure["errno"]
                view.fail(OSError(number, os.strerror(number)))
            else:
                view.conclude()
        for output in self.outputs:
            # It may be kept, or its timers keep it; what it was given need not stay.
            output.capture = None
        self._fields = self._brief()
        self.guest.ended(self)

    # The end.

    def _ending(self) -> Dict[str, Any]:
        fields: Dict[str, Any] = {"duration": self._ended - self._began}
        if self._failure is not None:
            number = self._failure["errno"]
            fields["failed"] = number
            fields["reason"] = os.strerror(number)
        elif self._status is not None and os.WIFSIGNALED(self._status):
            fields["signal"] = os.WTERMSIG(self._status)
        elif self._status is not None:
            fields["exit"] = os.WEXITSTATUS(self._status)
        if self._timed_out:
            fields["timed_out"] = self._timed_out
        return fields

    def _release(self) -> None:
        if self.stdin is not None:
            self.stdin.close()
        for output in self.outputs:
            self._let_go(output)
        if self._spool is not None:
            os.close(self._spool)
            self._spool = None

    def _let_go(self, output: Printed) -> None:
        """Close an output; read on for processes that are still there."""
        if not output.open:
            return
        if self._gone:
            output.close()
            return
        copy = os.dup(output.fd)
        output.close()
        Discard(self.guest.loop, copy)

    # Killing.

    def kill(self, then: Callable[[], None]) -> None:
        """Kill every process of the command, then call `then`."""
        if self._gone:
            then()
            return
        self._waiters.append(then)
        if not self._killing:
            self._killing = True
            self._kill_round()

    def _kill_round(self) -> None:
        if self._gone:
            return
        if self.guest.blind:
            # Without its warden, they become our own children, which we can find.
            self.guest.retire(self._post)
            return
        self._rounds += 1
        left = _descendants(self._post.pid) + _marked(self._mark, self._post.pid)
        if self._rounds <= _PATIENCE or all(state in "Tt" for _, state in left):
            number = _signal.SIGKILL
        else:
            # They multiply faster than they die: hold them still first. Stopped
            # processes keep their places, so at the process limit none is born.
            number = _signal.SIGSTOP
        for pid, _ in left:
            _send_signal(pid, number)
        _send_signal(self._post.pid, _signal.SIGCONT)
        if self._rounds == 400:
            self.guest.retire(self._post)
        self.guest.loop.later(0.001 if self._rounds < 50 else 0.005, self._kill_round)


class Terminal(Sink):
    """The input side of a terminal; its end is a character, not a hang-up."""

    def end(self) -> None:
        self._add(b"\x04", None)


def _resize(terminal: int, columns: int, rows: int) -> None:
    import fcntl
    import termios

    size = struct.pack("HHHH", rows, columns, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


def _unnamed(content: bytes) -> int:
    """Return a descriptor of a file without a name that holds `content`."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("script", os.MFD_CLOEXEC)
    else:
        import tempfile

        file, name = tempfile.mkstemp()
        os.unlink(name)
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file


# -- files ---------------------------------------------------------------------------


def _open_regular(path: bytes) -> Tuple[int, os.stat_result]:
    """Open a regular file; nothing else is opened, so nothing hangs."""
    _require_regular(os.stat(path).st_mode)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    fd = os.open(path, flags)
    try:
        found = os.fstat(fd)
        _require_regular(found.st_mode)
    except BaseException:
        os.close(fd)
        raise
    return fd, found


def _require_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise Refused("is_directory")
    if not stat.S_ISREG(mode):
        raise Refused("not_regular")


def read_file(path: bytes, offset: int, length: Optional[int]) -> Any:
    """Yield a file's bytes."""
    fd, found = _open_regular(path)
    try:
        left = length
        while left is None or left > 0:
            data = os.pread(fd, PIECE if left is None else min(PIECE, left), offset)
            if not data:
                break
            offset += len(data)
            if left is not None:
                left -= len(data)
            yield data
            # In /proc a file of size 0 has content; elsewhere the size is true.
            if len(data) < PIECE and offset == found.st_size:
                break
    finally:
        os.close(fd)
    return {}


# -- text: encodings, line ends, pages -----------------------------------------------

#: What no text holds: control characters but \t \n \v \f \r and escape.
_CONTROLS = bytes(range(9)) + bytes(range(14, 27)) + bytes(range(28, 32)) + b"\x7f"
_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
#: Bytes from which an encoding is guessed.
_SAMPLE = 1 << 16


def encoding_of(sample: bytes) -> str:
    """Return the encoding that a file's first bytes show; "" if it is no text.

    UTF-8 stands until a later byte contradicts.
    """
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name
    if b"\0" not in sample:
        return "utf-8"
    return _unmarked_utf16(sample)


def _unmarked_utf16(sample: bytes) -> str:
    """Tell UTF-16 without a mark, by Latin text alone; nothing else is sure."""
    units = len(sample) // 2
    for low, high, name in ((0, 1, "utf-16-le"), (1, 0, "utf-16-be")):
        letters, zeros = sample[low::2], sample[high::2].count(0)
        if 0 in letters or zeros < 0.7 * units or units < 4:
            continue
        text = sample[: 2 * units].decode(name, "replace")
        if not any(char < " " and char not in "\t\n\v\f\r" for char in text):
            return name
    return ""


def decoded(content: bytes) -> Optional[Tuple[str, str]]:
    """Return a file's text, with its mark, and the codec; None if it has none."""
    name = encoding_of(content[:_SAMPLE])
    codec = "utf-8" if name == "utf-8-sig" else name
    if not codec:
        return None
    try:
        text = content.decode(codec)
    except UnicodeDecodeError:
        if codec != "utf-8" or _has_controls(content):
            return None
        return content.decode("latin-1"), "latin-1"
    return None if "\0" in text else (text, codec)


def _has_controls(data: bytes) -> bool:
    return len(data.translate(None, _CONTROLS)) != len(data)


class Survey:
    """What a file turns out to be, piece by piece: its lines, its encoding."""

    def __init__(self, *, hashed: bool = True) -> None:
        self.encoding: Optional[str] = None
        self.newlines = 0
        self.digest: Any = _sha256() if hashed else None
        self.size = 0
        #: Newlines before a place, and the place: where to begin to read.
        self.marks: List[Tuple[int, int]] = []
        self.head = b""
        self._crlf = 0
        self._last: Any = ""
        self._decoder: Any = None
        self._media: Optional[str] = None

    def add(self, data: bytes) -> None:
        """Take the next piece; pieces but the last have an even length."""
        if self.digest is not None:
            self.digest.update(data)
        self.marks.append((self.newlines, self.size))
        if self.encoding is None:
            self.head = data[:_SAMPLE]
            self._decide(encoding_of(self.head))
        self.size += len(data)
        if self.encoding:
            self._count(data, final=False)

    def end(self) -> None:
        """Nothing more comes."""
        if self.encoding:
            self._count(b"", final=True)

    def _decide(self, encoding: str) -> None:
        import codecs

        self.encoding = encoding
        if encoding and encoding != "latin-1":
            self._decoder = codecs.getincrementaldecoder(encoding)()

    def _count(self, data: bytes, *, final: bool) -> None:
        try:
            if self.encoding == "latin-1":
                text = ""
                broken = _has_controls(data)
            else:
                text = self._decoder.decode(data, final)
                broken = "\0" in text
        except UnicodeDecodeError:
            self._contradicted(data)
            return
        if broken:
            self.encoding = ""
        elif self.encoding in ("utf-16-le", "utf-16-be"):
            self._count_ends(text, "\n", "\r\n", "\r")
        else:
            self._count_ends(data, b"\n", b"\r\n", b"\r")

    def _contradicted(self, data: bytes) -> None:
        text = self.encoding in ("utf-8", "utf-8-sig") and not _has_controls(self.head)
        self._decide("latin-1" if text else "")
        if text:
            self._count(data, final=True)

    def _count_ends(self, piece: Any, newline: Any, crlf: Any, cr: Any) -> None:
        if not piece:
            return
        self.newlines += piece.count(newline)
        if cr in piece:
            self._crlf += piece.count(crlf)
        if self._last == cr and piece[:1] == newline:
            self._crlf += 1
        self._last = piece[-1:]

    @property
    def final_newline(self) -> bool:
        """Whether the last line has an end."""
        return self._last in ("\n", b"\n")

    @property
    def total(self) -> int:
        """How many lines there are."""
        return self.newlines + bool(self.size and not self.final_newline)

    @property
    def newline(self) -> str:
        """How lines end."""
        if not self.newlines:
            return ""
        if not self._crlf:
            return "\n"
        return "\r\n" if self._crlf == self.newlines else "mixed"

    def media_type(self) -> str:
        """Return what its first bytes say that it is."""
        if self._media is None:
            text = bool(self.encoding) or not self.size
            self._media = media_type_of(self.head, text)
        return self._media

    def mark_before(self, line: int) -> Tuple[int, int]:
        """Return the last mark that stands before the begin of a line, from 0."""
        from bisect import bisect_left

        return self.marks[max(0, bisect_left(self.marks, (line, 0)) - 1)]


#: Bytes of a file that are looked at in one step; even, for UTF-16.
_STRIDE = 1 << 19
LARGEST_IMAGE = 5 << 20
#: The largest text whose lines are counted, and the largest content that is compared;
#: the largest that has a digest though it is no text.
_LARGEST_SURVEYED, _LARGEST_HASHED = 4 << 30, 1 << 30
_TOO_LONG = (
    "the file is over 4 GiB, too large to count its lines; look at a part of it with "
    "Bash: head, tail, sed -n, grep"
)
#: Characters of the lines of one page.
_LARGEST_PAGE = 4 << 20

_MAGIC = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"\0\0\1\0", "image/vnd.microsoft.icon"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\3\4", "application/zip"),
    (0, b"PK\5\6", "application/zip"),
    (0, b"\x7fELF", "application/x-elf"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\0", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (257, b"ustar", "application/x-tar"),
    (0, b"SQLite format 3\0", "application/vnd.sqlite3"),
    (0, b"\0asm", "application/wasm"),
    (4, b"ftyp", "video/mp4"),
    (0, b"OggS", "audio/ogg"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (8, b"WAVE", "audio/wav"),
)
#: These may consist of plain letters, and yet are no text.
_NEVER_TEXT = ("application/pdf", "image/gif")


def media_type_of(head: bytes, text: bool) -> str:
    """Return what a file's first bytes say that it is."""
    for at, magic, name in _MAGIC:
        if head.startswith(magic, at) and (not text or name in _NEVER_TEXT):
            return name
    return "text/plain" if text else "application/octet-stream"


def read_lines(fields: Dict[str, Any]) -> Any:
    """Yield lines of a file, joined by LF, or an image's bytes."""
    fd, found = _open_regular(fields["path"])
    try:
        content: Optional[bytes]
        if 0 < found.st_size <= _LARGEST_KNOWN:
            content = _read_up_to(fd, found.st_size)
            known = _known_with(fields["path"], content)
            survey, digest = known.survey(), known.of(content)
        else:
            survey = Survey()
            content = yield from _surveyed(fd, found.st_size, survey)
            digest = survey.digest.digest() if survey.digest else b""
        media = survey.media_type()
        shown, count = b"", 0
        clipped: List[int] = []
        first = first_line(fields["start"], survey.total)
        text = media.startswith("text/")
        if text and content and not first and _plain(content, survey, fields):
            count = survey.total
            shown = content[:-1] if survey.final_newline else content
        elif text and survey.size:
            page = Page(survey, first, fields["count"], fields["width"])
            yield from fill(page, fd, content)
            count, clipped = len(page.lines), page.clipped
            shown = "\n".join(page.lines).encode("utf-8", "replace")
    finally:
        os.close(fd)
    image = media.startswith("image/") and content is not None
    if image and content is not None:
        shown = content
    for at in range(0, len(shown), PIECE):
        yield shown[at : at + PIECE]
    entry = pack_entry(fields["path"], found, b"", digest)
    return {
        "entry": entry,
        "first": first + 1,
        "total": survey.total if text else 0,
        "count": count,
        "clipped": clipped,
        "encoding": (survey.encoding if survey.size else "utf-8") if text else "",
        "newline": survey.newline if text else "",
        "final_newline": text and survey.final_newline,
        "media_type": media,
        "image": image,
    }


def _plain(content: bytes, survey: Survey, fields: Dict[str, Any]) -> bool:
    """Whether all of a file can be shown as it stands: the usual case."""
    if (
        survey.encoding != "utf-8"
        or survey.newline not in ("", "\n")
        or survey.total > fields["count"]
        or survey.size > _LARGEST_PAGE
        or b"\r" in content
    ):
        return False
    # From the begin of a line, the last end within reach is that of another.
    at, width = 0, fields["width"]
    while len(content) - at > width:
        at = content.rfind(b"\n", at, at + width + 1) + 1
        if not at:
            return False
    return True


def first_line(start: int, total: int) -> int:
    """Return a line's index, of a number that may count from the end."""
    return start - 1 if start > 0 else max(0, total + start)


def _read_up_to(fd: int, size: int) -> bytes:
    """Return a file's content, as far as it was once."""
    content = os.pread(fd, size, 0)
    while len(content) < size:
        more = os.pread(fd, size - len(content), len(content))
        if not more:
            break
        content += more
    return content


def _surveyed(fd: int, size: int, survey: Survey) -> Any:
    """Look at a whole file; returns its content if it is small.

    What is over 1 GiB and no text is not looked at any further, and has no digest.
    """
    pieces: Optional[List[bytes]] = []
    # What grows while it is read is read up to where it was. In /proc a file of
    # size 0 has content.
    while not size or survey.size < size:
        room = min(_STRIDE, size - survey.size) if size else _STRIDE
        data = os.pread(fd, room, survey.size)
        if not data:
            break
        survey.add(data)
        if pieces is not None and survey.size <= LARGEST_IMAGE:
            pieces.append(data)
        else:
            pieces = None
            if not survey.encoding and max(size, survey.size) > _LARGEST_HASHED:
                survey.digest = None
                break
        if survey.encoding and max(size, survey.size) > _LARGEST_SURVEYED:
            raise Refused("invalid", _TOO_LONG)
        yield None
    survey.end()
    return None if pieces is None else b"".join(pieces)


def fill(page: Page, fd: int, content: Optional[bytes]) -> Any:
    """Give a page what it wants of a file."""
    at, size = page.begin(), page.survey.size
    while at < size and not page.full:
        end = min(at + _STRIDE, size)
        data = os.pread(fd, end - at, at) if content is None else content[at:end]
        if not data:
            break
        at += len(data)
        page.add(data)
        yield None
    page.end()


class Page:
    """Takes a file's bytes from a mark on, and keeps some of its lines."""

    def __init__(self, survey: Survey, first: int, count: int, width: int) -> None:
        self.lines: List[str] = []
        self.clipped: List[int] = []
        self.number = 0
        self.survey = survey
        self._first = first
        self._count = count
        self._width = width
        self._room = _LARGEST_PAGE
        self._carry = ""
        self._decoder: Any = None

    def begin(self) -> int:
        """Return the place in the file from which it wants bytes."""
        import codecs

        self.number, at = self.survey.mark_before(self._first)
        encoding = self.survey.encoding or "utf-8"
        if encoding == "utf-8-sig" and at:
            encoding = "utf-8"
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        return at

    @property
    def full(self) -> bool:
        """Whether no more lines are wanted."""
        return len(self.lines) >= self._count or self._room <= 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        text = self._decoder.decode(data)
        pieces = text.split("\n")
        pieces[0] = self._carry + pieces[0]
        # One character more than the width and CR show that a line is too long.
        self._carry = pieces.pop()[: self._width + 2]
        passed = min(len(pieces), max(0, self._first - self.number))
        self.number += passed
        wanted = pieces[passed : passed + self._count - len(self.lines)]
        if self._as_they_are(text, wanted):
            self.lines += wanted
            self.number += len(wanted)
            self._room -= sum(map(len, wanted)) + len(wanted)
            return
        for piece in wanted:
            if self.full:
                return
            self._ended(piece)

    def _as_they_are(self, text: str, lines: List[str]) -> bool:
        """Whether lines can be kept without a look at each: the usual case."""
        return (
            bool(lines)
            and not lines[0].startswith("\ufeff")
            and "\r" not in text
            and "\r" not in lines[0]
            and max(map(len, lines)) <= self._width
            and sum(map(len, lines)) + len(lines) <= self._room
        )

    def end(self) -> None:
        """Take the line that has no end, if there is one."""
        if not self.full and self.number < self.survey.total:
            self._keep(self._carry + self._decoder.decode(b"", True))

    def _ended(self, line: str) -> None:
        self._keep(line[:-1] if line.endswith("\r") else line)

    def _keep(self, line: str) -> None:
        if self.number >= self._first:
            if self.number == 0 and line.startswith("\ufeff"):
                line = line[1:]
            if len(line) > self._width:
                self.clipped.append(self.number + 1)
                line = line[: self._width]
            self.lines.append(line)
            self._room -= len(line) + 1
        self.number += 1


# -- files: writing ------------------------------------------------------------------


#: Replaced files, open until nothing else is to be done: a file system frees the
#: blocks of one that has no name and no descriptor at once, which may take longer
#: than to write another, and an answer would wait for it.
_lingering: List[int] = []
_MOST_LINGERING = 32
_LARGEST_LINGERING = 1 << 17
#: Seconds without anything to do after which one is let go, and then another.
_QUIET = 0.01


def let_linger(path: bytes, found: os.stat_result) -> None:
    """Keep a small file for a moment, whatever becomes of its name."""
    small = found.st_nlink == 1 and found.st_size <= _LARGEST_LINGERING
    if small and len(_lingering) < _MOST_LINGERING and hasattr(os, "O_PATH"):
        try:
            _lingering.append(os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW))
        except OSError:
            pass


def let_go() -> bool:
    """Let the replaced files go; returns whether there was any."""
    some = bool(_lingering)
    while _lingering:
        os.close(_lingering.pop())
    return some


def lacks_room(error: OSError) -> bool:
    """Whether it is worth to try again: files that are held took the room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE) and let_go()


class Draft:
    """A file's next content, nameless until it replaces the old one."""

    def __init__(
        self,
        path: bytes,
        *,
        parents: bool,
        mode: Optional[int] = None,
        mtime_ns: Optional[int] = None,
    ) -> None:
        self.target = os.path.realpath(path)
        self.folder = os.path.dirname(self.target)
        if parents:
            _make_parents(self.target)
        self.old = _stat_or_none(self.target)
        if self.old is not None:
            _require_regular(self.old.st_mode)
            if not os.access(self.target, os.W_OK):
                raise OSError(errno.EACCES, "not writable")
        self._mode = mode
        self._mtime_ns = mtime_ns
        self._name: Optional[bytes] = None
        self._size = 0
        try:
            self.fd = self._create()
        except OSError as error:
            if not lacks_room(error):
                raise
            self.fd = self._create()

    def _create(self) -> int:
        flags = os.O_WRONLY | os.O_CLOEXEC
        if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
            try:
                return os.open(self.folder, flags | os.O_TMPFILE, 0o600)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                    raise
        self._name = self._fresh_name()
        return os.open(self._name, flags | os.O_CREAT | os.O_EXCL, 0o600)

    def _fresh_name(self) -> bytes:
        unique = os.urandom(8).hex().encode()
        return os.path.join(self.folder, b".isobox-" + unique)

    def _adopt(self) -> None:
        """Take over owner and mode of what it replaces."""
        old = self.old
        if old is not None and (old.st_uid, old.st_gid) != _owner(self.fd):
            try:
                os.fchown(self.fd, old.st_uid, old.st_gid)
            except OSError:
                pass
        mode = self._mode
        if mode is None:
            mode = 0o644 if old is None else old.st_mode
        # New content never inherits the right to run as somebody else.
        os.fchmod(self.fd, mode & 0o777)
        if self._mtime_ns is not None:
            os.utime(self.fd, ns=(self._mtime_ns, self._mtime_ns))

    def write(self, data: Union[bytes, memoryview]) -> None:
        """Append to it."""
        try:
            _write_all(self.fd, data)
        except OSError as error:
            if not lacks_room(error):
                raise
            done = os.lseek(self.fd, 0, os.SEEK_CUR) - self._size
            _write_all(self.fd, memoryview(data)[done:])
        self._size += len(data)

    def publish(self) -> os.stat_result:
        """Put it in the old one's place, at once and whole."""
        if self._name is None:
            name = self._fresh_name()
            # With a directory given this is linkat, which follows the link that
            # names the open file; link would not. An absolute path ignores it.
            source = b"/proc/self/fd/%d" % self.fd
            os.link(source, name, src_dir_fd=self.fd, follow_symlinks=True)
            self._name = name
        self._adopt()
        found = os.fstat(self.fd)
        if self.old is not None:
            let_linger(self.target, self.old)
        os.rename(self._name, self.target)
        self._name = None
        os.close(self.fd)
        self.fd = -1
        return found

    def discard(self) -> None:
        """Leave nothing of it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self._name is not None:
            try:
                os.unlink(self._name)
            except OSError:
                pass


def _owner(fd: int) -> Tuple[int, int]:
    found = os.fstat(fd)
    return found.st_uid, found.st_gid


def _stat_or_none(path: bytes) -> Optional[os.stat_result]:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


class Writing(Job):
    """Receives a file's next content and puts it in place."""

    def __init__(self, peer: Peer, stream: int, fields: Dict[str, Any]) -> None:
        Job.__init__(self, peer, stream)
        self._draft: Optional[Draft] = Draft(
            fields["path"],
            parents=fields["parents"],
            mode=fields.get("mode"),
            mtime_ns=fields.get("mtime_ns"),
        )
        self._path: bytes = fields["path"]
        self._places = fields.get("places") or ()
        self._if_match: Optional[str] = fields.get("if_match")
        self._digest = _sha256()
        self._comparison: Any = None
        if fields.get("body") is not None:
            self._take_whole(fields["body"])

    def on_data(self, channel: int, data: memoryview) -> None:
        if self._draft is None:
            return
        try:
            self._take(data)
        except OSError as error:
            self.fail(error)
        else:
            self.grant(BODY, len(data))

    def _take_whole(self, data: bytes) -> None:
        try:
            self._take(data)
        except OSError as error:
            self.fail(error)
        else:
            self.on_end(BODY)

    def _take(self, data: Union[bytes, memoryview]) -> None:
        assert self._draft is not None
        self._draft.write(data)
        self._digest.update(data)

    def on_end(self, channel: int) -> None:
        if self._draft is None:
            return
        if self._if_match is None:
            self._publish()
            return
        self._comparison = compare(self._draft.target, self._if_match)
        self.guest.loop.jobs[self] = None

    def ready(self) -> bool:
        return self._comparison is not None

    def step(self) -> None:
        if self._comparison is None:
            return
        try:
            next(self._comparison)
        except StopIteration:
            self._publish()
        except (OSError, Refused) as error:
            self.fail(error)

    def _publish(self) -> None:
        draft = self._draft
        assert draft is not None
        try:
            _check_places(self._places)
            found = draft.publish()
        except (OSError, Refused) as error:
            self.fail(error)
            return
        self._draft = None
        self.finish(
            {"entry": pack_entry(self._path, found, b"", self._digest.digest())}
        )

    def released(self) -> None:
        if self._comparison is not None:
            self._comparison.close()
        if self._draft is not None:
            self._draft.discard()
            self._draft = None


class Appending(Job):
    """Receives whole lines, and adds them to the end of a file."""

    def __init__(self, peer: Peer, stream: int, fields: Dict[str, Any]) -> None:
        Job.__init__(self, peer, stream)
        self._path: bytes = fields["path"]
        self._parents: bool = fields["parents"]
        self._mode: Optional[int] = fields.get("mode")
        self._data = bytearray(fields.get("body") or b"")
        self._until = 0.0
        self._fd = -1
        self._work: Any = None
        if fields.get("body") is not None:
            self.on_end(BODY)

    def on_data(self, channel: int, data: memoryview) -> None:
        self._data += data
        if len(self._data) > LARGEST_APPEND:
            self.fail(Refused("invalid", "more than 16 MiB to append at once"))
        else:
            self.grant(BODY, len(data))

    def on_end(self, channel: int) -> None:
        self._until = time.monotonic() + _PATIENCE_FOR_LOCK
        self._attempt()

    def _attempt(self) -> None:
        """Open the file with its lock, now or soon."""
        if self.peer.streams.get(self.stream) is not self:
            return
        try:
            self._fd = _open_locked(self._path, self._parents, self._mode)
        except BlockingIOError:
            self._wait()
        except (OSError, Refused) as error:
            self.fail(error)
        else:
            self._work = append_lines(self._fd, self._data)
            self.guest.loop.jobs[self] = None

    def _wait(self) -> None:
        if time.monotonic() > self._until:
            self.fail(Refused("storage", "", errno.EBUSY))
        else:
            self.guest.loop.later(0.01, self._attempt)

    def ready(self) -> bool:
        return self._work is not None

    def step(self) -> None:
        try:
            next(self._work)
        except StopIteration:
            found = os.fstat(self._fd)
            self.finish({"entry": pack_entry(self._path, found, b"", b"")})
        except (OSError, Refused) as error:
            self.fail(error)

    def released(self) -> None:
        if self._work is not None:
            self._work.close()
        if self._fd >= 0:
            _unlock(self._fd)


#: The most that is appended at once, and how far back a line may begin.
LARGEST_APPEND = 16 << 20
#: Seconds to wait for others that append to the same file.
_PATIENCE_FOR_LOCK = 5.0


def _open_locked(path: bytes, parents: bool, mode: Optional[int]) -> int:
    """Open a file to append to, and lock it; raises BlockingIOError if it is."""
    import fcntl

    if parents:
        _make_parents(path)
    fd = _open_to_append(path, mode)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _identity(fd) != _identity_at(path):
            raise BlockingIOError(errno.EAGAIN, "it was replaced meanwhile")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _make_parents(path: bytes) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except FileExistsError:
        raise OSError(errno.ENOTDIR, "a parent is no directory") from None


def _open_to_append(path: bytes, mode: Optional[int]) -> int:
    try:
        _require_regular(os.lstat(path).st_mode)
    except FileNotFoundError:
        pass
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags | os.O_NOCTTY | os.O_CLOEXEC, mode or 0o644)
    try:
        _require_regular(os.fstat(fd).st_mode)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _identity_at(path: bytes) -> Optional[Tuple[int, int]]:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _unlock(fd: int) -> None:
    """Release a lock, of which a forked worker may hold a copy, and the file."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def append_lines(fd: int, data: Union[bytes, bytearray]) -> Any:
    """Add lines to the end of a file, all of them or none, step by step."""
    size = os.fstat(fd).st_size
    end = yield from _back_to_line(fd, size)
    if end < size:
        os.ftruncate(fd, end)
    done = 0
    try:
        while done < len(data):
            piece = data[done : done + (1 << 20)]
            done += os.pwrite(fd, piece, end + done)
            yield None
    except BaseException:
        os.ftruncate(fd, end)
        raise


def _back_to_line(fd: int, size: int) -> Generator[None, None, int]:
    """Return where the last whole line of a file ends, step by step."""
    at = size
    while at > 0:
        begin = max(0, at - PIECE)
        found = os.pread(fd, at - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        if size - begin > LARGEST_APPEND:
            raise Refused("invalid", "the file to append to is not of lines")
        at = begin
        yield None
    return 0


def compare(path: bytes, wanted: str) -> Generator[None, None, None]:
    """Refuse unless a file's content has the digest `wanted`, step by step."""
    try:
        fd, before = _open_regular(path)
    except FileNotFoundError:
        if wanted:
            raise Refused("conflict", "the file does not exist") from None
        return
    try:
        if not wanted:
            raise Refused("conflict", "the file exists")
        digest = _sha256()
        size = before.st_size
        if size > _LARGEST_SURVEYED:
            raise Refused("invalid", "the file is too large to be compared")
        left = size or _LARGEST_SURVEYED
        while left >= 0:
            data = os.read(fd, 4 * PIECE)
            if not data:
                break
            digest.update(data)
            left -= len(data)
            yield None
        if left < 0:
            raise Refused("conflict", "the content has just changed")
        if digest.hexdigest() != wanted.lower():
            raise Refused("conflict", "the content is another")
        if _stamp(os.stat(path)) != _stamp(before):
            raise Refused("conflict", "the content has just changed")
    finally:
        os.close(fd)


def _stamp(found: os.stat_result) -> Tuple[int, int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


#: The largest file that is edited in memory.
_LARGEST_EDIT = 64 << 20
#: The largest text of which a difference is made.
_LARGEST_COMPARED = 4 << 20
_LARGEST_DIFF = 64 << 10
#: Characters that are looked at in the time that it takes to begin a search.
_A_SEARCH = 100
#: In how many places a text is replaced where line ends are mixed.
_MOST_ACROSS = 1_000_000


def _whole(path: bytes) -> Tuple[bytes, os.stat_result]:
    """Return a regular file's content, and what it was then."""
    fd, found = _open_regular(path)
    try:
        # A file of /proc, or one that grows, holds more than its size says.
        pieces: List[bytes] = []
        room = -1 if found.st_size > _LARGEST_EDIT else _LARGEST_EDIT
        while room >= 0:
            piece = os.read(fd, 1 << 20)
            if not piece:
                return b"".join(pieces), found
            pieces.append(piece)
            room -= len(piece)
        raise Refused("invalid", "the file is too large to edit")
    finally:
        os.close(fd)


def edit_file(fields: Dict[str, Any]) -> Any:
    """Replace pieces of a file, all or none."""
    target = os.path.realpath(fields["path"])
    content, before = _whole(target)
    yield None
    wanted = fields["if_match"]
    digests = _known.pop(target, None) or Digests()
    if wanted is not None and digests.of(content).hex() != wanted.lower():
        raise Refused("conflict", "the content is another" if wanted else "it exists")
    work = _edited(content, fields["pieces"], fields.get("text", False))
    content, told = yield from work
    draft = Draft(target, parents=False)
    try:
        draft.write(content)
        if _stamp(os.stat(target)) != _stamp(before):
            raise Refused("conflict", "the content has just changed")
        after = draft.publish()
    except BaseException:
        draft.discard()
        raise
    told["entry"] = pack_entry(fields["path"], after, b"", digests.of(content))
    _know(target, digests)
    return told


#: How many files, and how large ones, are known by what was in them when they were
#: read or edited last: who comes back to a file mostly finds the same, and what is
#: the same has the same digest.
_KNOWN, _LARGEST_KNOWN = 8, 1 << 17
_known: Dict[bytes, "Digests"] = {}


def _known_with(path: bytes, content: bytes) -> "Digests":
    """Return what is known of a file with that content."""
    digests = _known.pop(path, None) or Digests()
    digests.of(content)
    _know(path, digests)
    return digests


def _know(path: bytes, digests: "Digests") -> None:
    """Keep what was in a file last, for a while."""
    if digests.size <= _LARGEST_KNOWN:
        _known[path] = digests
    if len(_known) > _KNOWN:
        del _known[next(iter(_known))]


class Digests:
    """Digests of contents one after another, each of what its begin leaves to do."""

    _STEP = 1 << 14

    def __init__(self) -> None:
        self._content = b""
        self._digest = b""
        self._states: List[Any] = []
        self._survey: Optional[Survey] = None

    def survey(self) -> Survey:
        """Return what the last content turns out to be."""
        if self._survey is None:
            self._survey = Survey(hashed=False)
            if self._content:
                self._survey.add(self._content)
            self._survey.end()
        return self._survey

    @property
    def size(self) -> int:
        """How large the last content was."""
        return len(self._content)

    def of(self, content: bytes) -> bytes:
        """Return the digest of the next content."""
        if self._digest and content == self._content:
            return self._digest
        self._survey = None
        same = _alike_at_begin(self._content, content) // self._STEP
        del self._states[same + 1 :]
        digest = self._states.pop() if self._states else _sha256()
        self._content = content
        with memoryview(content) as view:
            for at in range(len(self._states) * self._STEP, len(content), self._STEP):
                self._states.append(digest.copy())
                digest.update(view[at : at + self._STEP])
        self._digest = digest.digest()
        return self._digest


def edited(
    content: bytes, pieces: List[Any], as_text: bool
) -> Tuple[bytes, Dict[str, Any]]:
    """Return a file's content with pieces of it replaced, and what changed."""
    content, told = _done(_edited(content, pieces, as_text))
    return content, told


def _edited(content: bytes, pieces: List[Any], as_text: bool) -> Any:
    """Replace pieces of a file's content, step by step."""
    found = decoded(content) if as_text else None
    # Every byte is a character of Latin-1, so that bytes can be edited as text.
    before, codec = found or (content.decode("latin-1"), "latin-1")
    after, count, looked_at = before, 0, 0
    for number, (old, new, every) in enumerate(pieces, 1):
        wanted, given = (
            _text_of(raw) if found else raw.decode("latin-1") for raw in (old, new)
        )
        piece = (wanted, given, every)
        after, more = _replaced(after, piece, number, found is not None)
        count += more
        looked_at += len(after)
        if looked_at > _LARGEST_COMPARED:
            looked_at = 0
            yield None
    diff, line = "", 0
    if found:
        diff, line = difference(before.lstrip("\ufeff"), after.lstrip("\ufeff"), count)
    try:
        result = after.encode(codec)
    except UnicodeEncodeError as error:
        lacking = after[error.start : error.start + 1]
        message = "%s lacks the character %r" % (codec, lacking)
        raise Refused("invalid", message) from None
    _check_size(len(result))
    return result, {"count": count, "diff": diff, "line": line}


def _check_size(size: int) -> None:
    if size > _LARGEST_EDIT:
        raise Refused("invalid", "the file would become too large to edit")


def _text_of(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("invalid", "a text to replace is not UTF-8") from None


def _replaced(
    text: str, piece: Tuple[str, str, bool], number: int, lines: bool
) -> Tuple[str, int]:
    old, new, every = piece
    crlf = text.count("\r\n") if lines and "\r" in text else 0
    if crlf and crlf == text.count("\n"):
        old, new = (
            each.replace("\r\n", "\n").replace("\n", "\r\n") for each in (old, new)
        )
    place = text.find(old)
    if old and place >= 0 and text.find(old, place + 1) < 0:
        _check_size(len(text) + len(new) - len(old))
        return text[:place] + new + text[place + len(old) :], 1
    found = text.count(old)
    if found == 0 and crlf and "\n" in old:
        return _replaced_across(text, piece, number)
    if old and found and not every:
        found = _often(text, old)
    if found == 0 or (found > 1 and not every):
        _refuse_match(text, old, number, found, lines)
    _check_size(len(text) + found * (len(new) - len(old)))
    return text.replace(old, new), found


def _often(text: str, old: str) -> int:
    """Return how often a text stands somewhere, also where it overlaps itself.

    Of very many places that overlap not all may be counted.
    """
    found, room = 0, _LARGEST_COMPARED
    place = text.find(old)
    while place >= 0 and room > 0:
        found += 1
        room -= _A_SEARCH + len(old)
        place = text.find(old, place + 1)
    return max(found, text.count(old))


def _replaced_across(
    text: str, piece: Tuple[str, str, bool], number: int
) -> Tuple[str, int]:
    """Replace where some lines end with LF and others with CRLF."""
    old, new, every = piece
    # An expression that lets a CR be there or not would look again and again.
    there, wanted, plain = (each.replace("\r\n", "\n") for each in (text, old, new))
    found = there.count(wanted) if every else _often(there, wanted)
    if found == 0 or (found > 1 and not every):
        _refuse_match(text, old, number, found, True)
    marked = plain.replace("\n", "\r\n")
    _check_size(len(text) + found * (len(marked) - len(wanted)))
    if found > _MOST_ACROSS:
        raise Refused("invalid", "the text stands in too many places to replace them")
    out: List[str] = []
    at = passed = 0
    place = there.find(wanted)
    while place >= 0:
        begin = _further(text, at, place - passed)
        out += (text[at:begin], plain)
        at = _further(text, begin, len(wanted))
        if text.find("\r\n", begin, at) >= 0:
            out[-1] = marked
        passed = place + len(wanted)
        place = there.find(wanted, passed)
    return "".join(out) + text[at:], found


def _further(text: str, at: int, count: int) -> int:
    """Return the place so many characters after another, CRLF being one."""
    while count:
        end = at + count
        cut = text.startswith("\r\n", end - 1)
        count = text.count("\r\n", at, end + cut) - cut
        at = end + cut
    return at


def _refuse_match(text: str, old: str, number: int, found: int, lines: bool) -> None:
    detail = ""
    if lines:
        detail = _where(text, old) if found else _closest(text, old.split("\n"))
    raise Refused("mismatch", ("%d %d\n%s" % (number, found, detail)).rstrip("\n"))


def _where(text: str, old: str) -> str:
    """Name the lines where a text stands, up to ten."""
    numbers: List[str] = []
    line, at = 1, 0
    place = text.find(old)
    while place >= 0 and len(numbers) < 10:
        line += text.count("\n", at, place)
        at = place
        numbers.append(str(line))
        end = text.find("\n", place)
        place = text.find(old, end + 1) if end >= 0 else -1
    more = ", ..." if place >= 0 else ""
    word = "line" if len(numbers) == 1 and not more else "lines"
    return " (%s %s%s)" % (word, ", ".join(numbers), more) if numbers else ""


#: Lines of a file, lines of a text, and characters of a line that are compared.
_COMPARED_LINES, _COMPARED_HEIGHT, _COMPARED_WIDTH = 20_000, 40, 300
#: Words of a file that are compared, and steps to compare some of its lines letter
#: by letter: while a guest does that, it does nothing else.
_COMPARED_WORDS, _COMPARED_STEPS = 300_000, 150_000
_SHOWN_LINES, _SHOWN_WIDTH = 12, 200


def _closest(text: str, wanted: List[str]) -> str:
    """Show the lines of a text that are most like those that were wanted."""
    begin = next((at for at, line in enumerate(wanted) if line.strip()), -1)
    wanted = _comparable(wanted[begin:][:_COMPARED_HEIGHT])
    lines = text.split("\n", _COMPARED_LINES)[:_COMPARED_LINES]
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    starts = [place - anchor for place in _alike(lines, wanted[anchor])]

    def likeness(start: int) -> float:
        window = lines[max(0, start) : start + len(wanted)]
        return _likeness(_comparable(window), wanted)

    found = [(likeness(start), start) for start in starts]
    most, best = max(found, key=lambda each: each[0], default=(0.0, 0))
    if most < 0.4:
        return "Nothing in the file is like it."
    first = max(0, best)
    shown = lines[first : best + len(wanted)]
    same = _comparable(shown) == wanted
    why = " (it differs in white space alone)" if same else ""
    numbered = [
        "%6d\t%s" % (number, line.rstrip("\r")[:_SHOWN_WIDTH])
        for number, line in enumerate(shown[:_SHOWN_LINES], first + 1)
    ]
    return "The closest lines are%s:\n%s" % (why, "\n".join(numbered))


def _comparable(lines: List[str]) -> List[str]:
    return [line.strip()[:_COMPARED_WIDTH] for line in lines]


def _alike(lines: List[str], wanted: str) -> List[int]:
    """Return the numbers of the few lines that share most words with another."""
    import heapq

    words = set(_words(wanted))
    if not words:
        return []
    scores: List[Tuple[float, int]] = []
    room = _COMPARED_WORDS
    for number, line in enumerate(lines):
        found = _words(line[:_COMPARED_WIDTH])
        room -= len(found)
        if room < 0:
            break
        there = set(found)
        common = len(words & there)
        if common:
            scores.append((common / len(words | there), -number))
    return [-number for _, number in heapq.nlargest(3, scores)]


def _words(line: str) -> List[str]:
    import re

    return re.findall(r"\w+|[^\w\s]", line)


def _likeness(there: List[str], wanted: List[str]) -> float:
    """Return how much lines are like others: from 0 to 1, which means the same."""
    import difflib

    pieces = "\n".join(there), "\n".join(wanted)
    matcher: Any = difflib.SequenceMatcher(None, *pieces, autojunk=False)
    find, room = matcher.find_longest_match, _COMPARED_STEPS
    # To look for a character costs a step for each place that has the same.
    cost = [0]
    for char in pieces[0]:
        cost.append(cost[-1] + 1 + len(matcher.b2j.get(char, ())))

    def find_in_time(begin: int, end: int, *where: int) -> Any:
        nonlocal room
        room -= cost[end] - cost[begin]
        if room < 0:
            raise TimeoutError
        return find(begin, end, *where)

    vars(matcher)["find_longest_match"] = find_in_time
    try:
        return float(matcher.ratio())
    except TimeoutError:
        return _likeness_of_lines(there, wanted)


def _likeness_of_lines(there: List[str], wanted: List[str]) -> float:
    """Return about how much lines are like others, in a few steps."""
    import difflib

    same = 0.0
    matcher = difflib.SequenceMatcher(None, there, wanted, False)
    for _, begin, end, first, last in matcher.get_opcodes():
        for one, other in zip(there[begin:end], wanted[first:last]):
            same += _share(one, other) * (len(one) + len(other) + 2)
    return same / sum(len(line) + 1 for line in there + wanted)


def _share(one: str, other: str) -> float:
    """Return how much of two lines is alike: at both ends, or by their words."""
    if one == other:
        return 1
    begin = _alike_at_begin(one, other)
    end = _alike_at_end(one, other, min(len(one), len(other)) - begin)
    words, others = set(_words(one)), set(_words(other))
    common = len(words & others) / (len(words | others) or 1)
    return max(common, (begin + end) / max(len(one), len(other)))


def difference(before: str, after: str, replaced: int) -> Tuple[str, int]:
    """Return the hunks of a unified diff, and the first line that changed."""
    if before == after or max(len(before), len(after)) > _LARGEST_COMPARED:
        return "", _first_change(before, after)
    above, before, after = _near_change(before, after)
    old, new = before.split("\n"), after.split("\n")
    top = 0
    while top < min(len(old), len(new)) and old[top] == new[top]:
        top += 1
    end = 0
    while end < min(len(old), len(new)) - top and old[-1 - end] == new[-1 - end]:
        end += 1
    span = (top, len(old) - end, top, len(new) - end)
    changes = list(_changes(old, new, span, replaced))
    out: List[str] = []
    room = _LARGEST_DIFF
    for line in _hunks(old, new, changes, above):
        room -= len(line) + 1
        if room < 0:
            out.append("[... the rest of the difference is left out ...]\n")
            break
        out.append(line)
    return "".join(out), above + top + 1


def _near_change(before: str, after: str) -> Tuple[int, str, str]:
    """Cut off what two texts begin and end with alike, but for a few lines.

    Returns how many lines were cut off at the begin, and both texts.
    """
    same = _alike_at_begin(before, after)
    start = same
    for _ in range(4):  # the begin of the line, and three lines of context
        start = before.rfind("\n", 0, start)
        if start < 0:
            break
    start += 1
    most = min(len(before), len(after)) - same
    end = len(before) - _alike_at_end(before, after, most)
    for _ in range(5):  # one more than the context, which is no last line then
        end = before.find("\n", end) + 1
        if not end:
            end = len(before)
            break
    longer = len(after) - len(before)
    return before.count("\n", 0, start), before[start:end], after[start : end + longer]


def _alike_at_begin(before: Any, after: Any) -> int:
    """Return how many characters, or bytes, two begin with alike."""
    # Bisect: comparing character by character would take seconds.
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if after.startswith(before[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def _alike_at_end(before: str, after: str, most: int) -> int:
    """Return how many characters two texts end with alike, up to a number."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        piece = before[len(before) - middle : len(before) - low]
        if after.endswith(piece, 0, len(after) - low):
            low = middle
        else:
            high = middle - 1
    return low


def _first_change(before: str, after: str) -> int:
    if before == after:
        return 0
    return before.count("\n", 0, _alike_at_begin(before, after)) + 1


def _changes(
    old: List[str], new: List[str], span: Tuple[int, int, int, int], replaced: int
) -> Iterator[Tuple[int, int, int, int]]:
    """Yield what differs within a span, as ranges of old and of new lines."""
    top, old_end, _, new_end = span
    if replaced == 1:
        yield span
    elif old_end == new_end:
        for at in range(top, old_end):
            if old[at] != new[at]:
                yield (at, at + 1, at, at + 1)
    elif max(old_end, new_end) - top > 2000:
        yield span
    else:
        import difflib

        matcher = difflib.SequenceMatcher(None, old[top:old_end], new[top:new_end])
        for tag, a, b, c, d in matcher.get_opcodes():
            if tag != "equal":
                yield (top + a, top + b, top + c, top + d)


def _hunks(
    old: List[str],
    new: List[str],
    changes: List[Tuple[int, int, int, int]],
    above: int,
) -> Iterator[str]:
    """Yield the lines of a unified diff with three lines of context.

    So many lines of the texts stand above those that are given.
    """
    groups: List[List[Tuple[int, int, int, int]]] = []
    for change in changes:
        if groups and change[0] - groups[-1][-1][1] <= 6:
            groups[-1].append(change)
        else:
            groups.append([change])
    # What stands after the last newline is no line.
    old_count, new_count = (len(lines) - (not lines[-1]) for lines in (old, new))
    for group in groups:
        first = max(0, group[0][0] - 3)
        last = min(old_count, group[-1][1] + 3)
        shift = group[0][2] - group[0][0]
        new_last = min(new_count, group[-1][3] + last - group[-1][1])
        yield "@@ -%s +%s @@\n" % (
            _extent(first, last, above),
            _extent(first + shift, max(new_last, first + shift), above),
        )
        at = first
        for a, b, c, d in group:
            yield from _signed(" ", old, at, a)
            yield from _signed("-", old, a, b)
            yield from _signed("+", new, c, d)
            at = b
        yield from _signed(" ", old, at, last)


def _extent(first: int, last: int, above: int) -> str:
    count = max(0, last - first)
    return "%d,%d" % (above + first + (1 if count else 0), count)


def _signed(sign: str, lines: List[str], first: int, last: int) -> Iterator[str]:
    for at in range(first, last):
        final = at == len(lines) - 1
        if final and not lines[at]:
            return
        yield sign + lines[at] + "\n"
        if final:
            yield "\\ No newline at end of file\n"


# -- patches -------------------------------------------------------------------------

#: How far a hunk with a line number may have moved.
_FARTHEST = 500
#: How many are looked at in one step.
_LINES_AT_ONCE, _HUNKS_AT_ONCE = 1 << 16, 1 << 6
#: Bytes of the files of one patch together.
_LARGEST_PATCHED = 256 << 20


def apply_hunks(text: str, hunks: List[Dict[str, Any]]) -> str:
    """Return a text with hunks applied; what they do not name stays as it is."""
    return str(_done(_applied(text, hunks)))


def _applied(text: str, hunks: List[Dict[str, Any]]) -> Any:
    """Apply hunks, step by step."""
    mark, text = ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
    lines = text.split("\n")
    ended = not lines[-1]
    if ended:
        lines.pop()
    crlf = bool(lines) and 2 * text.count("\r\n") > text.count("\n")
    out: List[str] = []
    among = Lines(lines, hunks)
    at = drift = 0
    for number, hunk in enumerate(hunks, 1):
        if number % _HUNKS_AT_ONCE == 0:
            yield None
        body = [(line[:1], line[1:]) for line in hunk["body"].split("\n")]
        wanted = [line for sign, line in body if sign != "+"]
        place = yield from _placed(among, wanted, at, hunk, drift)
        if place is None:
            raise _misplaced(lines, wanted, number, hunk)
        if hunk["line"] is not None:
            drift = place - _expected(hunk, wanted)
        out.extend(lines[at:place])
        # A patch whose lines have no CR is made for any line ends.
        end = "\r" if crlf and not any(line.endswith("\r") for line in wanted) else ""
        at = place
        for sign, line in body:
            if sign == "+":
                out.append(line + end)
                continue
            if sign == " ":
                out.append(lines[at])
            at += 1
        if at == len(lines) and hunk["newline"] is not None:
            ended = hunk["newline"]
    out.extend(lines[at:])
    return mark + "\n".join(out) + ("\n" if ended and out else "")


def _expected(hunk: Dict[str, Any], wanted: List[str]) -> int:
    # A hunk without old lines names the line after which it inserts.
    line: int = hunk["line"]
    return max(0, line - bool(wanted))


def _placed(
    among: "Lines", wanted: List[str], at: int, hunk: Dict[str, Any], drift: int
) -> Any:
    """Return where a hunk's old lines stand, from `at` on; None if nowhere."""
    lines = among.lines
    for anchor in hunk["anchors"]:
        found = yield from among.anchor(anchor, at)
        if found is None:
            raise Refused("hunk", "there is no line %r%s" % (anchor, _after(at)))
        at = found + 1
    last = len(lines) - len(wanted)
    if hunk["at_end"] and wanted:
        return last if last >= at and _stands(lines, wanted, last) else None
    if hunk["line"] is None:
        if not wanted:
            return at if hunk["anchors"] else len(lines)
        return (yield from among.nearest(wanted, at, at, last))
    expected = _expected(hunk, wanted) + drift
    if not wanted:
        return min(max(at, expected), len(lines))
    first, last = max(at, expected - _FARTHEST), min(last, expected + _FARTHEST)
    if first <= expected <= last and _stands(lines, wanted, expected):
        return expected
    return (yield from among.nearest(wanted, expected, first, last))


def _stands(lines: List[str], wanted: List[str], place: int) -> bool:
    return all(
        lines[at] == line or lines[at] == line + "\r"
        for at, line in enumerate(wanted, place)
    )


class Lines:
    """The lines of a text, and where those of hunks stand among them.

    Each is looked at a few times, however many hunks there are and however long;
    None is yielded in between, for others to have their turn.
    """

    def __init__(self, lines: List[str], hunks: List[Dict[str, Any]]) -> None:
        self.lines = lines
        self._hunks = hunks
        self._bare: Dict[bool, List[str]] = {}
        self._last: Dict[bool, Dict[str, int]] = {}

    def nearest(self, wanted: List[str], expected: int, first: int, last: int) -> Any:
        """Return the place where lines stand that is nearest to the expected."""
        best: Optional[int] = None
        for place in self._standing(wanted, first, last):
            if place is None:
                yield None
                continue
            if best is None or abs(place - expected) < abs(best - expected):
                best = place
            if place >= expected:
                break
        return best

    def _standing(
        self, wanted: List[str], first: int, last: int
    ) -> Iterator[Optional[int]]:
        """Yield the places from `first` to `last` where lines stand, in order.

        No line is looked at again, after Knuth, Morris and Pratt.
        """
        # What has CR itself may stand for a line that has as much or one more.
        marked = any(line.endswith("\r") for line in wanted)
        there = self._without_cr(marked)
        sought = [line.rstrip("\r") for line in wanted] if marked else wanted
        overlaps = _overlaps(sought)
        same = 0
        for at in range(first, last + len(sought)):
            line = there[at]
            while same and line != sought[same]:
                same = overlaps[same - 1]
            same += line == sought[same]
            if same == len(sought):
                same = overlaps[same - 1]
                place = at + 1 - len(sought)
                if not marked or _stands(self.lines, wanted, place):
                    yield place
                if marked:
                    yield None
            if at % _LINES_AT_ONCE == _LINES_AT_ONCE - 1:
                yield None

    def _without_cr(self, every: bool) -> List[str]:
        """Return the lines without the CR at their ends, or without all of them."""
        if every not in self._bare:
            bare = self.lines
            if "\r" in "".join(bare):
                strip = _without_all_cr if every else _without_one_cr
                bare = list(map(strip, bare))
            self._bare[every] = bare
        return self._bare[every]

    def anchor(self, wanted: str, at: int) -> Any:
        """Return the first line from `at` on that is an anchor; None if none is.

        White space around it is overlooked only where it is nowhere as it is.
        """
        for loose, key in ((False, wanted), (True, wanted.strip())):
            if loose not in self._last:
                self._last[loose] = yield from self._last_anchors(loose)
            for number in range(at, self._last[loose].get(key, -1) + 1):
                if _anchored(self.lines[number], loose) == key:
                    return number
                if number % _LINES_AT_ONCE == _LINES_AT_ONCE - 1:
                    yield None
        return None

    def _last_anchors(self, loose: bool) -> Any:
        """Return the last line of each anchor that the hunks name."""
        anchors = (anchor for hunk in self._hunks for anchor in hunk["anchors"])
        keys = {anchor.strip() if loose else anchor for anchor in anchors}
        found: Dict[str, int] = {}
        lines = map(str.strip, self.lines) if loose else self._without_cr(True)
        for number, line in enumerate(lines):
            if line in keys:
                found[line] = number
            if number % _LINES_AT_ONCE == _LINES_AT_ONCE - 1:
                yield None
        return found


def _without_one_cr(line: str) -> str:
    return line[:-1] if line.endswith("\r") else line


def _without_all_cr(line: str) -> str:
    return line.rstrip("\r")


def _anchored(line: str, loose: bool) -> str:
    return line.strip() if loose else line.rstrip("\r")


def _overlaps(lines: List[str]) -> List[int]:
    """Return how many lines each begin of some ends with that it begins with."""
    sizes = [0]
    same = 0
    for line in lines[1:]:
        while same and line != lines[same]:
            same = sizes[same - 1]
        same += line == lines[same]
        sizes.append(same)
    return sizes


def _after(at: int) -> str:
    return " after line %d" % at if at else ""


def _misplaced(
    lines: List[str], wanted: List[str], number: int, hunk: Dict[str, Any]
) -> Refused:
    end = " at the end" if hunk["at_end"] else ""
    return Refused(
        "hunk",
        "the old lines of hunk %d are not there%s; they must match exactly. %s"
        % (number, end, _closest("\n".join(lines), wanted)),
    )


class Held:
    """What a file holds while a patch goes over it; None once it is gone."""

    def __init__(
        self, path: bytes, content: Optional[bytes], found: Optional[os.stat_result]
    ) -> None:
        self.path = path
        self.content = content
        self.found = found
        self.mode = 0o644 if found is None else found.st_mode & 0o777
        #: The name under which it is told of.
        self.shown = path

    @property
    def taken(self) -> bool:
        """Whether there is something: a file, or a link that leads nowhere."""
        missing = self.content is None and self.found is None
        return os.path.lexists(self.path) if missing else self.content is not None


def patch_files(changes: List[Dict[str, Any]]) -> Any:
    """Change files, all or none: read and match, then write, then rename."""
    held: Dict[bytes, Held] = {}
    for change in changes:
        try:
            yield from _patch_one(held, change)
        except (OSError, Refused) as error:
            _note_path(error, change["path"])
            raise
        if sum(len(each.content or b"") for each in held.values()) > _LARGEST_PATCHED:
            raise Refused("invalid", "the files of the patch are too large together")
        yield None
    written = [each for each in held.values() if each.content is not None]
    gone = [each for each in held.values() if each.content is None and each.found]
    swap = Swap()
    try:
        entries = swap.perform(written, gone)
    except BaseException:
        swap.undo()
        raise
    swap.settle()
    return {"entries": b"".join(entries), "removed": [each.shown for each in gone]}


def _note_path(error: Any, path: bytes) -> None:
    """Say which path an error is about, unless that is known."""
    if getattr(error, "path", None) is None:
        error.path = path


def _patch_one(held: Dict[bytes, Held], change: Dict[str, Any]) -> Any:
    """Change one file, step by step."""
    adds = change["kind"] == "add"
    to: bytes = change["target"] or change["path"]
    moves = to != change["path"]
    stays = change["kind"] == "update" and not moves
    source = _held(held, change["path"], follow=stays)
    if adds and source.taken:
        raise Refused("exists")
    if not adds and source.content is None:
        raise FileNotFoundError(errno.ENOENT, "no such file")
    content = b"" if adds else source.content or b""
    if change["hunks"]:
        content = yield from _patched(content, change["hunks"])
    if change["kind"] == "delete":
        if change["hunks"] and content:
            raise Refused("hunk", "the file holds more than the patch removes")
        source.content = None
        return
    target = source
    if moves:
        target = _held(held, to, follow=False)
        if target.taken:
            raise Refused("exists", path=to)
        target.mode, source.content = source.mode, None
    target.content = content
    if change["mode"] is not None:
        target.mode = change["mode"]


def _held(held: Dict[bytes, Held], shown: bytes, *, follow: bool) -> Held:
    """Return what stands at a path, as the changes before it left that."""
    path = os.path.realpath(shown) if follow else _real_folder(shown)
    if path not in held:
        try:
            held[path] = Held(path, *_whole(path))
        except FileNotFoundError:
            held[path] = Held(path, None, None)
    held[path].shown = shown
    return held[path]


def _real_folder(path: bytes) -> bytes:
    """Return a path with every link resolved but the last name's."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def patched(content: bytes, hunks: List[Dict[str, Any]]) -> bytes:
    """Return a file's content with hunks applied."""
    return bytes(_done(_patched(content, hunks)))


def _patched(content: bytes, hunks: List[Dict[str, Any]]) -> Any:
    found = decoded(content)
    if found is None:
        raise Refused("hunk", "the file is no text")
    text, codec = found
    try:
        return (yield from _applied(text, hunks)).encode(codec)
    except UnicodeEncodeError as error:
        message = "%s lacks a character: %s" % (codec, error.reason)
        raise Refused("invalid", message) from None


class Swap:
    """Puts files in place and takes others away, and can put all back."""

    def __init__(self) -> None:
        self._drafts: List[Draft] = []
        self._folders: List[bytes] = []
        self._saved: List[Tuple[bytes, Optional[bytes]]] = []

    def perform(self, written: List[Held], gone: List[Held]) -> List[bytes]:
        """Write everything beside its place, then put it there."""
        drafts = [(self._draft(each), each) for each in written]
        for each in written + gone:
            self._check(each)
        entries: List[bytes] = []
        for each in gone:
            self._save(each.path, move=True)
        for draft, each in drafts:
            if each.found is None:
                self._saved.append((draft.target, None))
            else:
                self._save(draft.target, move=False)
            entries.append(self._entry(each, draft.publish()))
        return entries

    def _draft(self, held: Held) -> Draft:
        try:
            self._note_folders(os.path.dirname(held.path))
            draft = Draft(held.path, parents=True, mode=held.mode)
            self._drafts.append(draft)
            draft.write(held.content or b"")
        except (OSError, Refused) as error:
            _note_path(error, held.shown)
            raise
        return draft

    def _note_folders(self, folder: bytes) -> None:
        missing: List[bytes] = []
        while not os.path.lexists(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        self._folders += reversed(missing)

    def _check(self, held: Held) -> None:
        """Refuse what is no longer as it was read."""
        now = _stat_or_none(held.path)
        was = held.found
        if (now is None) != (was is None) or (
            now is not None and was is not None and _stamp(now) != _stamp(was)
        ):
            raise Refused("conflict", "it has just changed", path=held.shown)

    def _save(self, path: bytes, *, move: bool) -> None:
        unique = b".isobox-" + os.urandom(8).hex().encode()
        name = os.path.join(os.path.dirname(path), unique)
        try:
            if move:
                raise OSError(errno.EXDEV, "not to be linked")
            os.link(path, name)
        except OSError:
            os.rename(path, name)
        self._saved.append((path, name))

    def _entry(self, held: Held, found: os.stat_result) -> bytes:
        return pack_entry(held.shown, found, b"", Digests().of(held.content or b""))

    def undo(self) -> None:
        """Put back what was there."""
        for path, name in reversed(self._saved):
            if name is None:
                _unlink(path)
                continue
            try:
                os.rename(name, path)
            except OSError:
                continue  # what was saved stays under its other name
            _unlink(name)  # rename leaves both names if they are one file's
        for draft in self._drafts:
            draft.discard()
        for folder in reversed(self._folders):
            try:
                os.rmdir(folder)
            except OSError:
                pass

    def settle(self) -> None:
        """Forget what was there."""
        for _, name in self._saved:
            if name is not None:
                _unlink(name)


def _unlink(path: bytes) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def scan_tree(fields: Dict[str, Any], root: bytes) -> Any:
    """Yield packed entries."""
    path: bytes = fields["path"]
    depth: Optional[int] = fields["depth"]
    top = os.stat(path) if fields["follow"] else os.lstat(path)
    if depth == 0:
        yield (yield from _digested(path, top, fields))
        return {"truncated": False, "total": 1}
    if not stat.S_ISDIR(top.st_mode):
        raise Refused("not_directory")
    if not fields.get("newest", False):
        return (yield from _in_order(_scanned(path, depth, fields, root), fields))
    # What is sorted by age need not be found in order, which is dear.
    if fields.get("files_only", False):
        found = _files_scanned(path, depth, fields, root)
    else:
        found = (item.path for item in _scanned(path, depth, fields, root))
    return (yield from _newest(found, fields))


def _scanned(
    top: bytes, depth: Optional[int], fields: Dict[str, Any], root: bytes
) -> Iterator[Any]:
    """Yield the entries that were asked for, in path order."""
    pattern = fields.get("pattern")
    matches = None if pattern is None else _test_of(pattern)
    base = len(top.rstrip(b"/")) + 1
    files_only = fields.get("files_only", False)
    for item in _walk(top, depth, fields, root).entries():
        if files_only and not (item.is_symlink() or item.is_file()):
            continue
        if matches is None or matches(item.path[base:]):
            yield item


def _files_scanned(
    top: bytes, depth: Optional[int], fields: Dict[str, Any], root: bytes
) -> Iterator[bytes]:
    """Yield where the files and links are that were asked for, in no order."""
    pattern = fields.get("pattern")
    choose = None if pattern is None else _choice(pattern, top)
    return _walk(top, depth, fields, root).files(choose)


def _walk(
    top: bytes, depth: Optional[int], fields: Dict[str, Any], root: bytes
) -> Walk:
    walk = Walk(top, ignored=fields.get("ignored", True), root=root)
    walk.depth = depth
    if fields.get("pattern") is not None:
        walk.narrow(fields["pattern"])
    return walk


def _choice(pattern: str, top: bytes) -> Choice:
    """Return what keeps the names whose paths, relative to a top, match."""
    base = len(top.rstrip(b"/")) + 1
    name = pattern[3:]
    if pattern.startswith("**/") and "/" not in name and "**" not in name:
        by_name = _test_of(name)
        return lambda _prefix, names: list(filter(by_name, names))
    by_path = _test_of(pattern)
    return lambda prefix, names: [n for n in names if by_path(prefix[base:] + n)]


def _in_order(found: Iterator[Any], fields: Dict[str, Any]) -> Any:
    first: int = fields.get("offset", 0)
    last: int = first + fields["limit"]
    batch: List[bytes] = []
    size = count = 0
    for item in found:
        if count == last:
            yield b"".join(batch)
            return {"truncated": True, "total": None}
        count += 1
        if count > first:
            status = _status_of(item)
            if status is None:
                count -= 1
                continue
            if fields["digest"]:
                packed = yield from _digested(item.path, status, fields)
            else:
                packed = _entry(item.path, status)
            batch.append(packed)
            size += len(packed)
        if size > _BATCH:
            yield b"".join(batch)
            batch, size = [], 0
        elif count % 256 == 0:
            yield None
    yield b"".join(batch)
    return {"truncated": False, "total": count}


def _newest(found: Iterator[bytes], fields: Dict[str, Any]) -> Any:
    import heapq

    first: int = fields.get("offset", 0)
    last: int = first + fields["limit"]
    total = 0

    def dated() -> Iterator[Tuple[int, int, bytes, os.stat_result]]:
        nonlocal total
        for path in found:
            try:
                status = os.lstat(path)
            except OSError:
                continue
            total += 1
            yield -status.st_mtime_ns, total, path, status

    chosen = heapq.nsmallest(last, dated())[first:]
    batch: List[bytes] = []
    for _, _, path, status in chosen:
        batch.append((yield from _digested(path, status, fields)))
        if len(batch) == 64:
            yield b"".join(batch)
            batch.clear()
    yield b"".join(batch)
    return {"truncated": total > last, "total": total}


class Shelf:
    """Files of one directory that follow on each other in path order."""

    def __init__(self, prefix: bytes, names: List[bytes]) -> None:
        #: The directory, with a slash.
        self.prefix = prefix
        self.names = names

    def paths(self) -> List[bytes]:
        """Return where they are."""
        return [self.prefix + name for name in self.names]


class Folder:
    """The names in one directory, by what they are."""

    def __init__(self, path: bytes) -> None:
        #: The directory, with a slash.
        self.prefix = os.path.join(path, b"")
        #: Regular files, and links.
        self.files: List[bytes] = []
        self.links: Set[bytes] = set()
        self.folders: List[bytes] = []
        self.others: List[bytes] = []

    def read(self) -> None:
        """Find them."""
        with os.scandir(self.prefix) as items:
            for item in items:
                if item.is_file(follow_symlinks=False):
                    self.files.append(item.name)
                elif item.is_dir(follow_symlinks=False):
                    self.folders.append(item.name)
                elif item.is_symlink():
                    self.files.append(item.name)
                    self.links.add(item.name)
                else:
                    self.others.append(item.name)

    def choose(self, choice: Callable[[List[bytes]], List[bytes]]) -> None:
        """Keep some of the names."""
        self.files, self.folders = choice(self.files), choice(self.folders)


class Walk:
    """Goes through a tree in path order; links are told, never followed."""

    def __init__(
        self, top: bytes, *, ignored: bool, root: bytes, hidden: bool = True
    ) -> None:
        self.depth: Optional[int] = None
        self._top = top
        self._hidden = hidden
        self._literal: List[bytes] = []
        # Rules are about real paths; entries are told as they were asked for.
        real = os.path.realpath(top)
        self._scope = None if ignored else scope_above(real, root)
        self._real = real.rstrip(b"/")
        self._asked = len(top.rstrip(b"/"))

    def narrow(self, pattern: str) -> None:
        """Leave out directories in which no name can match."""
        parts = pattern.split("/")
        for part in parts[:-1]:
            if any(char in part for char in "*?[{\\"):
                break
            self._literal.append(os.fsencode(part))
        if "**" not in pattern and "{" not in pattern:
            deepest = len(parts)
            self.depth = deepest if self.depth is None else min(self.depth, deepest)

    def entries(self) -> Iterator[Any]:
        """Yield what is below the top."""
        todo = self._items(self._top, 1, self._scope)
        while todo:
            item, level, scope, enter = todo.pop()
            if enter:
                todo.extend(self._items(item.path, level, scope))
            else:
                yield item

    def files(self, choose: Optional[Choice]) -> Iterator[bytes]:
        """Yield where the chosen files and links below the top are, in no order."""
        todo = [(self._top, 1, self._scope)]
        while todo:
            path, level, scope = todo.pop()
            found, scope = self._chosen(path, level, scope, choose)
            prefix = found.prefix
            todo += [(prefix + name, level + 1, scope) for name in found.folders]
            for name in found.files:
                yield prefix + name

    def shelves(self, choose: Optional[Choice]) -> Iterator[Shelf]:
        """Yield the chosen files below the top, in path order, without links."""
        from bisect import bisect

        todo: List[Any] = [(self._top, 1, self._scope)]
        while todo:
            at = todo.pop()
            if isinstance(at, Shelf):
                yield at
                continue
            path, level, scope = at
            found, scope = self._chosen(path, level, scope, choose)
            prefix, names = found.prefix, found.files
            if found.links:
                names = [name for name in names if name not in found.links]
            names.sort()
            end = len(names)
            # What is in a directory stands where its name with a slash would.
            for name in sorted([each + b"/" for each in found.folders], reverse=True):
                place = bisect(names, name)
                todo.append(Shelf(prefix, names[place:end]))
                todo.append((prefix + name[:-1], level + 1, scope))
                end = place
            todo.append(Shelf(prefix, names[:end]))

    def _chosen(
        self,
        path: bytes,
        level: int,
        scope: Optional[Scope],
        choose: Optional[Choice],
    ) -> Tuple[Folder, Optional[Scope]]:
        """Return a directory's chosen files, what is to be entered, and its rules."""
        found = Folder(path)
        try:
            found.read()
        except OSError:
            if path == self._top:
                raise
            return Folder(path), scope  # it never loses the others
        ruled = None
        if scope is not None:
            names = {*found.files, *found.folders, *found.others}
            scope = scope_in(self._really(path), names, scope) or scope
            if scope.active or not names.isdisjoint(_VERSION_CONTROL):
                ruled = scope
        if choose is not None:
            found.files = choose(found.prefix, found.files)
        if self.depth is not None and level >= self.depth:
            found.folders = []
        if level <= len(self._literal):
            found.folders = [n for n in found.folders if self._leads_on(n, level)]
        if not self._hidden:
            found.choose(lambda names: [n for n in names if not n.startswith(b".")])
        if ruled is not None:
            found.files = self._kept(found.prefix, found.files, ruled, folders=False)
            found.folders = self._kept(found.prefix, found.folders, ruled, folders=True)
        return found, scope

    def _kept(
        self, prefix: bytes, names: List[bytes], scope: Scope, *, folders: bool
    ) -> List[bytes]:
        """Leave out what the rules do."""
        base = self._really(prefix)
        return [n for n in names if not scope.ignores(base + n, n, folders)]

    def _names(self, folder: bytes) -> List[Any]:
        try:
            with os.scandir(folder) as names:
                return list(names)
        except OSError:
            if folder == self._top:
                raise
            return []  # one directory that cannot be read never loses the others

    def _items(self, folder: bytes, level: int, scope: Optional[Scope]) -> List[Any]:
        """Return a directory's names, last first, and which are to be entered."""
        found = self._names(folder)
        if scope is not None:
            scope = self._scope_in(folder, found, scope)
        deeper = self.depth is None or level < self.depth
        items: List[Tuple[bytes, Any]] = []
        for item in found:
            name = item.name
            if not self._hidden and name.startswith(b"."):
                continue
            is_folder = item.is_dir(follow_symlinks=False)
            path = self._really(item.path)
            if scope is not None and scope.ignores(path, name, is_folder):
                continue
            items.append((name, (item, level, scope, False)))
            if is_folder and deeper and self._leads_on(name, level):
                items.append((name + b"/", (item, level + 1, scope, True)))
        items.sort(key=_first_of, reverse=True)
        return [each for _, each in items]

    def _scope_in(self, folder: bytes, found: List[Any], scope: Scope) -> Scope:
        names = {item.name for item in found}
        return scope_in(self._really(folder), names, scope) or scope

    def _really(self, path: bytes) -> bytes:
        return self._real + path[self._asked :]

    def _leads_on(self, name: bytes, level: int) -> bool:
        return level > len(self._literal) or self._literal[level - 1] == name


def _first_of(pair: Tuple[bytes, Any]) -> bytes:
    return pair[0]


def _status_of(item: Any) -> Optional[os.stat_result]:
    try:
        return item.stat(follow_symlinks=False)  # type: ignore[no-any-return]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused("storage", "", error.errno or 0) from None


#: Stars and braces that take no time to speak of, whatever the name.
_FEW = 2


def _test_of(pattern: str) -> Callable[[bytes], Any]:
    """Return what says whether a path matches a pattern."""
    if _is_of_bytes(pattern):
        return _matcher(pattern, of_bytes=True)  # type: ignore[return-value]
    match = _matcher(pattern)
    return lambda path: match(os.fsdecode(path))  # type: ignore[misc]


def _is_of_bytes(pattern: str) -> bool:
    """Whether bytes match as the characters do that they stand for."""
    # One character of any kind may be several bytes.
    return pattern.isascii() and not any(char in pattern for char in "?[\\")


def _matcher(
    pattern: Optional[str], *, of_bytes: bool = False
) -> Optional[Callable[[Any], Any]]:
    if pattern is None:
        return None
    import re

    try:
        source = translate_glob(pattern)
        match = re.compile(source.encode("ascii") if of_bytes else source).match
    except (re.error, RecursionError, OverflowError) as error:
        raise Refused("invalid", "the pattern cannot be used: %s" % error) from None
    if len(re.findall(r"\*+", pattern)) <= _FEW and pattern.count("{") <= _FEW:
        return match
    _signal.signal(_signal.SIGALRM, _too_late)
    return Hurried(match, pattern).match


class TooLate(Exception):
    """An expression did not come to an end in time."""


def _too_late(*_: Any) -> None:
    raise TooLate


class Hurried:
    """Matches by an expression, until a path on which it takes long."""

    def __init__(self, match: Callable[[Any], Any], pattern: str) -> None:
        self._fast: Optional[Callable[[Any], Any]] = match
        self._pattern = pattern
        self._ways: Optional[Ways] = None

    def match(self, path: Any) -> Any:
        """Whether it matches, surely within a time that the lengths bound."""
        try:
            if self._fast is not None:
                return _in_time(self._fast, path)
        except TooLate:
            self._fast = None
        if self._ways is None:
            self._ways = Ways(self._pattern)
        return self._ways.match(path if isinstance(path, str) else os.fsdecode(path))


def _in_time(match: Callable[[Any], Any], path: Any) -> Any:
    _signal.setitimer(_signal.ITIMER_REAL, _LONGEST_MATCH)
    try:
        return match(path)
    finally:
        _signal.setitimer(_signal.ITIMER_REAL, 0)


def _entry(path: bytes, found: os.stat_result, digest: bytes = b"") -> bytes:
    target = b""
    if stat.S_ISLNK(found.st_mode):
        try:
            target = os.readlink(path)
        except OSError:
            pass
    return pack_entry(path, found, target, digest)


def _digested(path: bytes, found: os.stat_result, fields: Dict[str, Any]) -> Any:
    """Return a packed entry, with a digest if that was asked, step by step."""
    digest = b""
    if fields["digest"] and stat.S_ISREG(found.st_mode):
        digest = yield from _digest_of(path)
    return _entry(path, found, digest)


def _digest_of(path: bytes) -> Any:
    """Return a file's digest, step by step."""
    try:
        fd, found = _open_regular(path)
    except (OSError, Refused):
        return b""
    try:
        digest = _sha256()
        # What grows is read up to where it was; some of /proc has no end.
        left = found.st_size or _LARGEST_SURVEYED
        while left > 0:
            data = os.read(fd, min(left, 4 * PIECE))
            if not data:
                return digest.digest()
            digest.update(data)
            left -= len(data)
            yield None
        return digest.digest() if found.st_size else b""
    finally:
        os.close(fd)


def remove_tree(path: bytes, recursive: bool) -> Any:
    """Remove a name, and with `recursive` what is below it."""
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
        return {}
    if not recursive:
        raise Refused("is_directory")
    removal = Removal(path)
    try:
        while removal.step():
            yield None
    finally:
        removal.close()
    return {}


class Removal:
    """Removes a tree of any depth; paths below it may be too long to name.

    It holds one descriptor, of the directory that it stands in, and knows the
    way back: the name and identity of each directory above.
    """

    def __init__(self, path: bytes) -> None:
        folder, name = os.path.split(os.path.abspath(path))
        self._fd = os.open(folder, _FOLDER)
        self._above: List[Tuple[bytes, Tuple[int, int]]] = []
        self._below: List[List[bytes]] = [[name]]

    def step(self) -> bool:
        """Go one directory down or up; returns whether there is more to do."""
        if self._below[-1]:
            self._descend(self._below[-1].pop())
            return True
        if not self._above:
            return False
        self._ascend()
        return True

    def _descend(self, name: bytes) -> None:
        here = _identity(self._fd)
        _make_enterable(name, self._fd)
        below = os.open(name, _FOLDER, dir_fd=self._fd)
        os.close(self._fd)
        self._fd = below
        self._above.append((name, here))
        self._below.append(self._emptied())

    def _emptied(self) -> List[bytes]:
        """Unlink what is no directory; returns the names of those that are."""
        folders: List[bytes] = []
        with os.scandir(self._fd) as names:
            for item in names:
                name = os.fsencode(item.name)
                if item.is_dir(follow_symlinks=False):
                    folders.append(name)
                else:
                    os.unlink(name, dir_fd=self._fd)
        return folders

    def _ascend(self) -> None:
        name, identity = self._above.pop()
        self._below.pop()
        above = os.open(b"..", _FOLDER, dir_fd=self._fd)
        os.close(self._fd)
        self._fd = above
        if _identity(above) != identity:
            raise OSError(errno.ENOENT, "moved while it was removed")
        os.rmdir(name, dir_fd=above)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _identity(fd: int) -> Tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _make_enterable(name: bytes, fd: int) -> None:
    """Let a directory's owner empty it, as `rm -rf` by root would."""
    mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    if mode & 0o700 != 0o700 and stat.S_ISDIR(mode):
        try:
            os.chmod(name, mode & 0o777 | 0o700, dir_fd=fd)
        except OSError:
            pass


# -- work that may block or never end: in a process of its own -----------------------


_STOPPED = "a command stops its worker again and again; end that command"


class Worker(Job):
    """An operation done by a forked process, which a deadline can end."""

    def __init__(
        self,
        peer: Peer,
        stream: int,
        work: Callable[[int, int], Dict[str, Any]],
        *,
        takes: bool = False,
        timeout: Optional[float] = None,
        late: str = "",
    ) -> None:
        Job.__init__(self, peer, stream)
        self._sink: Optional[Sink] = None
        #: What refuses one that was too slow; what it has found counts if "".
        self._refusal = late
        self._late = False
        self._answered_all = False
        self._stops = 0
        input_reader, input_writer = os.pipe()
        output_reader, output_writer = os.pipe()
        answer_reader, answer_writer = os.pipe()
        self._pid = peer.guest.fork()
        if self._pid == 0:
            _lead_group(0)
            peer.guest.forget_all({input_reader, output_writer, answer_writer})
            _work(work, input_reader, output_writer, answer_writer)
        _lead_group(self._pid)
        for fd in (input_reader, output_writer, answer_writer):
            os.close(fd)
        if takes:
            self._sink = Sink(self.guest, input_writer, BODY)
        else:
            os.close(input_writer)
        self._source = Source(self, output_reader, BODY)
        self._answer = answer_reader
        self._raw = b""
        peer.guest.loop.watch(answer_reader, _IN, self._answered)
        peer.guest.loop.later(_AWAKE, self._keep_awake)
        if timeout is not None:
            peer.guest.loop.later(timeout, self._time_out)

    def on_data(self, channel: int, data: memoryview) -> None:
        if self._sink is None:
            raise Refused("invalid", "this operation takes no data")
        self._sink.put(data, self)

    def on_end(self, channel: int) -> None:
        if self._sink is not None:
            self._sink.end()

    def on_credit(self, channel: int, amount: int) -> None:
        Job.on_credit(self, channel, amount)
        self._source.resume()
        self.drained()

    @property
    def _works(self) -> bool:
        # Once it has answered it may be gone, and its number another's.
        mine = self.peer.streams.get(self.stream) is self
        return mine and not self._answered_all

    def _keep_awake(self) -> None:
        """Have it go on when a command has stopped it, but not without end."""
        if not self._works:
            return
        self._stops += _is_stopped(self._pid)
        if self._stops == _STOPS:
            self._kill()
            self.fail(Refused("internal", _STOPPED))
            return
        _signal_group(self._pid, _signal.SIGCONT)
        self.guest.loop.later(_AWAKE, self._keep_awake)

    def _time_out(self) -> None:
        if self.peer.streams.get(self.stream) is self:
            self._late = True
            self._kill()

    def cancel(self) -> None:
        self._kill()
        self.fail(Refused("cancelled"))

    def abandon(self) -> None:
        self._kill()
        Job.abandon(self)

    def _kill(self) -> None:
        if not self._answered_all:
            _signal_group(self._pid, _signal.SIGKILL)

    def _answered(self, _events: int) -> None:
        data = os.read(self._answer, PIECE)
        if data:
            self._raw += data
            return
        self.guest.loop.watch(self._answer, 0, self._answered)
        self._answered_all = True
        self.drained()

    def drained(self) -> None:
        if self._source.open or not self._answered_all:
            return
        if self._late and self._refusal:
            self.fail(Refused("invalid", self._refusal))
        elif self._late:
            self.finish({"late": True})
        elif not self._raw:
            self.fail(Refused("internal", "the worker died"))
        else:
            answer = decode(self._raw)
            if "code" in answer:
                refused = Refused(answer["code"], answer["message"], answer["errno"])
                self.fail(refused)
            else:
                self.finish(answer)

    def released(self) -> None:
        self._source.close()
        self.guest.loop.forget(self._answer)
        os.close(self._answer)
        if self._sink is not None:
            self._sink.close()


def _lead_group(pid: int) -> None:
    """Make a process lead a group; parent and child both ask, for the first."""
    try:
        os.setpgid(pid, pid)
    except OSError:
        pass  # it has ended


def _signal_group(pid: int, number: int) -> None:
    """Send a signal to a worker and the program that it may have started."""
    try:
        os.killpg(pid, number)
    except OSError:
        _send_signal(pid, number)


def _may_be_stopped(pid: int) -> bool:
    """Whether a child was stopped since it was last asked; its end is left alone.

    A signal that it does not need would wake it up twice for one command.
    """
    if not hasattr(os, "waitid"):
        return True
    try:
        return bool(os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG))
    except ChildProcessError:
        return True


def _is_stopped(pid: int) -> bool:
    """Whether a child has been stopped since it was last asked."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
    except ChildProcessError:
        return False
    return bool(found) and os.WIFSTOPPED(status)


def _work(
    work: Callable[[int, int], Dict[str, Any]], reader: int, writer: int, answer: int
) -> None:
    """Do a worker's work and end the process."""
    try:
        try:
            os.set_blocking(reader, True)
            result = work(reader, writer)
        except Exception as error:  # noqa: BLE001 - reported to the host
            result = _refusal(error)
        os.close(writer)
        view = memoryview(encode(result))
        while view:
            view = view[os.write(answer, view) :]
        # The guest reads to the end, which need not wait for that of the process.
        os.close(answer)
    finally:
        os._exit(0)


#: line number, and the lengths of path, line, and the counts of context lines.
MATCH = struct.Struct(">IIIHH")
_LONGEST_LINE = 16384
#: Bytes of a file that are searched at once, and by which it then goes on.
_LARGEST_SEARCHED, _FURTHER = 64 << 20, 16 << 20
_CONTEXT = 100
#: Bytes of matches after which a search ends, its limit or not.
_LARGEST_FOUND = 32 << 20
#: A tree with so many files is worth a program of its own.
_WORTH_RIPGREP = 256
#: Bytes of a text that is looked for; where its begin stands, all of it may.
_LONGEST_SOUGHT = 1024
#: Characters of an expression that is taken to pieces.
_LONGEST_SIFTED = 10_000
#: Files that a scout looks at between two reports.
_FILES_AT_A_TIME = 256
#: Batches that a scout may have before it, that may wait for one, and scouts.
_AHEAD, _MOST_WAITING, _MOST_SCOUTS = 3, 64, 3
#: Milliseconds that one waits for a scout.
_PATIENT = 2
_HOLDS, _LACKS, _UNREADABLE = b"+-!"
_TO_SCOUT = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW
_TO_RETURN = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_UTF16_MARKS = (b"\xfe\xff", b"\xff\xfe")
#: Files that are looked at together, and how much of each.
_TOGETHER, _HEAD = 32, 8192


def search_tree(
    fields: Dict[str, Any], writer: int, root: bytes, path: bytes
) -> Dict[str, Any]:
    """Write packed matches, in path order."""
    search = Search(fields, lambda data: _write_all(writer, data))
    files = Files(fields, root)
    needed = needed_text(fields)
    if needed and files.folder:
        _look_where_it_stands(search, files, needed)
        return search.result()
    ripgrep = Ripgrep.for_search(fields, files, path, root)
    candidates = files.whole() if ripgrep is None else ripgrep.candidates(search)
    for file in candidates:
        counts = ripgrep is None or not ripgrep.counted
        try:
            text = _searchable(file)
        except (OSError, Refused):
            if counts:
                search.skipped.append(file)
            continue
        search.files += counts
        if text is not None and not search.look(file, text):
            break
    return search.result()


def _look_where_it_stands(search: Search, files: Files, text: bytes) -> None:
    """Look at the files that hold a text."""
    scouts = Scouts(text)
    try:
        for batch in scouts.marked(files.batches()):
            marks = batch.marks or b""
            search.files += batch.count - marks.count(_UNREADABLE)
            if marks.count(_LACKS) == batch.count:
                continue
            for path, mark in zip(batch.paths(), marks):
                if mark == _UNREADABLE:
                    search.skipped.append(path)
                elif mark == _HOLDS and not search.look_at(path):
                    return
    finally:
        scouts.dismiss()


class Files:
    """The files that a search is about, in path order."""

    def __init__(self, fields: Dict[str, Any], root: bytes) -> None:
        self.top: bytes = fields["path"]
        self.folder = stat.S_ISDIR(os.stat(self.top).st_mode)
        #: Those that `many` has found.
        self.found: List[bytes] = []
        self._choose = _choice_of_search(fields)
        self._fields = fields
        self._root = root
        self._rest = self._below()

    def _below(self) -> Iterator[Shelf]:
        if not self.folder:
            prefix, name = os.path.split(self.top)
            return iter([Shelf(os.path.join(prefix, b""), [name])])
        ignored = self._fields.get("ignored", True)
        hidden = self._fields.get("hidden", True)
        walk = Walk(self.top, ignored=ignored, root=self._root, hidden=hidden)
        if self._fields.get("glob") is not None:
            walk.narrow(self._fields["glob"])
        return walk.shelves(self._choose)

    def find_all(self) -> List[bytes]:
        """Return them all."""
        return [path for shelf in self._below() for path in shelf.paths()]

    def many(self) -> bool:
        """Whether there are so many that another way pays; finds the first."""
        for shelf in self._rest:
            self.found += shelf.paths()
            if len(self.found) >= _WORTH_RIPGREP:
                return True
        return False

    def whole(self) -> Iterator[bytes]:
        """Yield them all."""
        yield from self.found
        for shelf in self._rest:
            yield from shelf.paths()

    def batches(self) -> Iterator[Batch]:
        """Yield them all, so many at a time."""
        shelves: List[Shelf] = []
        room = _FILES_AT_A_TIME
        for shelf in self._rest:
            at = 0
            while at < len(shelf.names):
                names = shelf.names[at : at + room]
                shelves.append(Shelf(shelf.prefix, names))
                at += len(names)
                room -= len(names)
                if not room:
                    yield Batch(shelves)
                    shelves, room = [], _FILES_AT_A_TIME
        if shelves:
            yield Batch(shelves)


def _choice_of_search(fields: Dict[str, Any]) -> Optional[Choice]:
    """Return what keeps the names that are searched; None if all are."""
    glob, types = fields.get("glob"), fields.get("types")
    by_path = None if glob is None else _choice(glob, fields["path"])
    if types is None:
        return by_path
    by_name = _test_of_names(types)
    if by_path is None:
        return lambda _prefix, names: list(filter(by_name, names))
    further = by_path
    return lambda prefix, names: further(prefix, list(filter(by_name, names)))


def _test_of_names(globs: List[str]) -> Callable[[bytes], Any]:
    import re

    source = "|".join(translate_glob(glob) for glob in globs)
    if all(map(_is_of_bytes, globs)):
        return re.compile(source.encode("ascii")).match
    match = re.compile(source).match
    return lambda name: match(os.fsdecode(name))


class Search:
    """Looks for an expression in one file after another."""

    def __init__(self, fields: Dict[str, Any], write: Callable[[bytes], None]) -> None:
        self.files = 0
        self.skipped: List[bytes] = []
        #: Files that were not searched to the end, being too large.
        self.partial: List[bytes] = []
        self._write = write
        self._mode: str = fields.get("mode", "content")
        self._multiline: bool = fields.get("multiline", False)
        self._expression = _compiled(fields)
        #: Whether a match in a line is one in the text, so that only lines with
        #: a match need be looked at.
        self._within = _stays_in_line(fields)
        self._before = min(fields.get("before", 0), _CONTEXT)
        self._after = min(fields.get("after", 0), _CONTEXT)
        self._pass: int = fields.get("offset", 0)
        self._left: int = fields["limit"]
        self._room = _LARGEST_FOUND
        self._cut = False

    def result(self) -> Dict[str, Any]:
        """Return what there is to say at the end."""
        # So many of the longest still fit a frame.
        return {
            "files": self.files,
            "skipped": self.skipped[:50],
            "partial": self.partial[:50],
            "truncated": self._cut,
        }

    def look_at(self, path: bytes) -> bool:
        """Search one file that was readable; returns whether to go on."""
        try:
            text = _searchable(path)
        except (OSError, Refused):
            return True
        return text is None or self.look(path, text)

    def look(self, path: bytes, text: Union[str, Long]) -> bool:
        """Search one file; returns whether to go on."""
        if isinstance(text, Long):
            return self._look_on(path, text)
        if self._mode == "content":
            return self._tell_lines(path, Part(text))
        return self._tell_count(path, [Part(text)])

    def _look_on(self, path: bytes, long: Long) -> bool:
        """Search a file that is too long to be taken at once."""
        try:
            if self._mode == "content":
                parts = long.parts(self._before, self._after, self._multiline)
                more = all(self._tell_lines(path, part) for part in parts)
            else:
                more = self._tell_count(path, long.parts(0, 0, self._multiline))
        finally:
            long.close()
        if not long.whole:
            self.partial.append(path)
        return more

    def _tell_count(self, path: bytes, parts: Iterable[Part]) -> bool:
        spans = (span for part in parts for span in self._spans_of(part))
        if self._mode == "files":
            return next(spans, None) is None or self._tell(path, 0)
        count = sum(1 for _ in spans)
        return not count or self._tell(path, count)

    def _spans_of(self, part: Part) -> Iterator[Tuple[int, int]]:
        """Yield those that begin in what a part is about."""
        for span in self._spans(part.text):
            if span[0] >= part.end:
                return
            if span[0] >= part.begin:
                yield span

    def _tell_lines(self, path: bytes, part: Part) -> bool:
        lines: List[str] = []
        text = part.text
        number = at = 0
        for first, last in self._spans_of(part):
            if not lines:
                lines = text.split("\n")
                if not lines[-1]:
                    del lines[-1]
            number += text.count("\n", at, first)
            at = first
            height = text.count("\n", first, last) + 1
            before = lines[max(0, number - self._before) : number]
            after = lines[number + height : number + height + self._after]
            found = "\n".join(lines[number : number + height])
            shown = part.line + number + 1
            if not self._tell(path, shown, found, before + after, len(before)):
                return False
        return True

    def _spans(self, text: str) -> Iterator[Tuple[int, int]]:
        """Yield the begin of each line that matches, and the last match's end."""
        if self._multiline:
            return self._across(text)
        return self._by_search(text) if self._within else self._by_line(text)

    def _by_line(self, text: str) -> Iterator[Tuple[int, int]]:
        search = self._expression.search
        at = 0
        for line in text.split("\n"):
            if at == len(text) and text:
                return  # nothing follows the last newline
            if text and search(line):
                yield at, at
            at += len(line) + 1

    def _by_search(self, text: str) -> Iterator[Tuple[int, int]]:
        search = self._expression.search
        at, size = 0, len(text)
        end = size + (not text.endswith("\n"))
        while at < size:
            match = search(text, at)
            if match is None or match.start() >= end:
                return
            first = text.rfind("\n", 0, match.start()) + 1
            yield first, first
            at = text.find("\n", match.start()) + 1 or size

    def _across(self, text: str) -> Iterator[Tuple[int, int]]:
        at, size = 0, len(text)
        end = size + (not text.endswith("\n"))
        while at < size:
            match = self._expression.search(text, at)
            if match is None or match.start() >= end:
                return
            first = text.rfind("\n", 0, match.start()) + 1
            # A match that ends with a newline does not touch the next line.
            last = max(match.start(), match.end() - 1)
            yield first, last
            at = text.find("\n", last) + 1 or size

    def _tell(
        self,
        path: bytes,
        number: int,
        text: str = "",
        context: Sequence[str] = (),
        before: int = 0,
    ) -> bool:
        """Write one match, unless it is passed over; returns whether to go on."""
        if self._pass:
            self._pass -= 1
            return True
        if not self._left or self._room < 0:
            self._cut = True
            return False
        self._left -= 1
        texts = [_clipped(each) for each in (text, *context)]
        after = len(context) - before
        header = MATCH.pack(number, len(path), len(texts[0]), before, after)
        rest = [len(each).to_bytes(4, "big") + each for each in texts[1:]]
        packed = b"".join([header, path, texts[0]] + rest)
        self._room -= len(packed)
        self._write(packed)
        return True


def _compiled(fields: Dict[str, Any]) -> Any:
    import re

    flags = re.IGNORECASE if fields["ignore_case"] else 0
    text = fields["pattern"]
    source = re.escape(text) if fields["literal"] else text
    try:
        expression = re.compile(source, flags)
        if fields.get("multiline", False):
            return re.compile(source, flags | re.MULTILINE | re.DOTALL)
        if _stays_in_line(fields):
            return re.compile(source, flags | re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        raise Refused("invalid", "the pattern cannot be used: %s" % error) from None
    return expression


def _stays_in_line(fields: Dict[str, Any]) -> bool:
    """Whether no part of a pattern can see beyond a line's end."""
    import re

    if fields["literal"]:
        return "\n" not in fields["pattern"] and bool(fields["pattern"])
    pattern = re.sub(_SIMPLE_SETS, "x", fields["pattern"])
    return bool(pattern) and not re.search(_BEYOND_LINES, pattern)


#: Simple sets, which hold no newline, and then what may match one.
_SIMPLE_SETS = r"\[[\w .,:;/-]+\]"
_BEYOND_LINES = r"\\[^dwbtS.()\]{}|*+?^$/\"'<>=:;,@#%&!~` -]|\[|\(\?(?!:)|\n"


def _write_all(fd: int, data: Union[bytes, memoryview]) -> None:
    done = os.write(fd, data)
    if done < len(data):
        view = memoryview(data)
        while done < len(data):
            done += os.write(fd, view[done:])


class Part:
    """Lines of a text, with what may be shown around them."""

    def __init__(
        self, text: str, begin: int = 0, end: Optional[int] = None, line: int = 0
    ) -> None:
        self.text = text
        #: Where the lines are in the text that it is about.
        self.begin, self.end = begin, len(text) + 1 if end is None else end
        #: How many lines are before the text.
        self.line = line


class Long:
    """A text file that is searched part by part."""

    def __init__(self, fd: int, data: bytes) -> None:
        self._fd = fd
        self._data = data
        #: Whether its parts are all of it, as far as they were asked for.
        self.whole = True

    def close(self) -> None:
        """Give back the descriptor."""
        os.close(self._fd)

    def parts(self, before: int, after: int, at_once: bool) -> Iterator[Part]:
        """Yield its parts, each with so many more lines before and after.

        What must be seen at once has one part, and so may not be whole.
        """
        data = self._data
        if at_once or data.startswith(_UTF16_MARKS):
            self.whole = not self._more()
            yield Part(text_to_search(data) or "")
            return
        begin = line = 0
        more = b"-"
        while more:
            more = self._more()
            end = _lines_before(data, begin, after) if more else len(data)
            if end <= begin and more and len(data) < 2 * _LARGEST_SEARCHED:
                data += more
                continue
            if end <= begin and more:  # a line too long to go on from
                self.whole, more, end = False, b"", len(data)
            if b"\0" in data:
                self.whole = False
                return
            yield _part(data, begin, end, line)
            keep = _lines_back(data, end, before)
            line += data.count(b"\n", 0, keep)
            data, begin = data[keep:] + more, end - keep

    def _more(self) -> bytes:
        try:
            return os.read(self._fd, _FURTHER)
        except OSError:
            self.whole = False
            return b""


def _part(data: bytes, begin: int, end: int, line: int) -> Part:
    pieces = data[:begin], data[begin:end], data[end:]
    texts = [each.decode("utf-8", "replace").replace("\r\n", "\n") for each in pieces]
    head = 0 if begin else 1
    if not line and texts[head].startswith("\ufeff"):
        texts[head] = texts[head][1:]
    first = len(texts[0])
    last = len(texts[2]) and first + len(texts[1])
    return Part("".join(texts), first, last or None, line)


def _lines_before(data: bytes, begin: int, after: int) -> int:
    """Return where whole lines end that so many more come after; 0 if nowhere."""
    end = len(data)
    for _ in range(after + 1):
        end = data.rfind(b"\n", begin, max(end, begin))
    return end + 1


def _lines_back(data: bytes, end: int, before: int) -> int:
    """Return where the lines begin that are so many before one."""
    for _ in range(before):
        end = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
    return end


def _searchable(path: bytes) -> Optional[Union[str, Long]]:
    """Return the text of a file to search, None for a binary one."""
    fd, _ = _open_regular(path)
    try:
        data = os.read(fd, _SAMPLE)
        if b"\0" in data and text_to_search(data) is None:
            return None
        if len(data) == _SAMPLE:
            data = _rest(fd, data)
        if len(data) >= _LARGEST_SEARCHED:
            binary = b"\0" in data and not data.startswith(_UTF16_MARKS)
            return None if binary else Long(os.dup(fd), data)
    finally:
        os.close(fd)
    return text_to_search(data)


def text_to_search(data: bytes) -> Optional[str]:
    """Return a file's text with LF for every end of a line, None for no text."""
    marked = data.startswith(_UTF16_MARKS)
    if b"\0" in data and not marked:
        return None
    codec = encoding_of(data[:4]) if marked else "utf-8"
    text = data.decode(codec, "replace")
    if text.startswith("\ufeff"):
        text = text[1:]
    return text.replace("\r\n", "\n") if "\r" in text else text


def _rest(fd: int, data: bytes) -> bytes:
    pieces = [data]
    size = len(data)
    while pieces[-1] and size < _LARGEST_SEARCHED:
        pieces.append(os.read(fd, 1 << 20))
        size += len(pieces[-1])
    return b"".join(pieces)


def _clipped(text: str) -> bytes:
    return text[:_LONGEST_LINE].encode("utf-8", "replace")


def needed_text(fields: Dict[str, Any]) -> bytes:
    """Return a text that every file with a match holds, b"" if none is known."""
    import re

    text = fields["pattern"]
    if not fields["literal"]:
        text = _longest_literal(text)
    if fields["ignore_case"]:
        return b""
    return max(re.split(_UNSURE, text), key=len).encode()[:_LONGEST_SOUGHT]


#: What files have otherwise: ends of lines, and U+FFFD for what is no text.
_UNSURE = "[\n\r\0\ufffd\ud800-\udfff]"

#: An expression's escaped characters, plain ones, what takes others or no room,
#: what may follow on it and what may make it void.
_PARTS = (
    r"\\([^\w])|([^\\\[{()|.^$*+?])"
    r"|(\\[dDwWsSbBAZ]|\[\^?\]?(?:\\.|[^\\\]])*\]|[.^$()+])|(?<![()])([*?])|."
)


def _longest_literal(pattern: str) -> str:
    """Return the longest text that is seen to be in every match, "" if none is.

    None is where a file that has it, but no match, could take long to tell.
    """
    import re

    if len(pattern) > _LONGEST_SIFTED or sum(map(pattern.count, "*+?")) > 1:
        return ""
    runs = [""]
    for part in re.finditer(_PARTS, pattern, re.DOTALL):
        if part.lastindex is None:
            return ""
        if part.lastindex < 3:
            runs[-1] += part.group(part.lastindex)
            continue
        if part.lastindex == 4:
            runs[-1] = runs[-1][:-1]
        runs.append("")
    return max(runs, key=len)


class Batch:
    """Files that are looked at in one go."""

    def __init__(self, shelves: List[Shelf]) -> None:
        self.shelves = shelves
        self.count = sum(len(shelf.names) for shelf in shelves)
        #: In time, a mark for each file; empty if a scout was lost with it.
        self.marks: Optional[bytes] = None
        self.scout: Optional[Scout] = None

    def paths(self) -> List[bytes]:
        """Return where the files are."""
        return [path for shelf in self.shelves for path in shelf.paths()]


class Scouts:
    """Processes that tell which files hold a text, so that every processor helps.

    A search of small files is for the most part the kernel's opening of them.
    """

    def __init__(self, text: bytes) -> None:
        self._finder = Finder(text)
        self._scouts: List[Scout] = []

    def marked(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield the batches in order, with their marks."""
        waiting: List[Batch] = []
        for number, batch in enumerate(batches):
            if number == 1:
                self._call()  # for the first alone no process would pay
            for scout in self._scouts:
                while scout.take(0):
                    pass
            # This process does what nobody is free for, and so waits for none.
            if not any(scout.give(batch) for scout in self._scouts):
                batch.marks = self._finder.marks(batch.shelves)
            waiting.append(batch)
            while waiting and (waiting[0].marks or len(waiting) > _MOST_WAITING):
                yield self._done(waiting.pop(0))
        for batch in waiting:
            yield self._done(batch)

    def _call(self) -> None:
        try:
            for _ in range(_other_processors()):
                self._scouts.append(Scout(self._finder))
        except OSError:
            pass  # so many processes are not allowed; it goes without

    def _done(self, batch: Batch) -> Batch:
        scout = batch.scout
        while batch.marks is None and scout is not None and scout.take(_PATIENT):
            pass
        # A scout that has not come to it yet may not for long.
        batch.marks = batch.marks or self._finder.marks(batch.shelves)
        return batch

    def dismiss(self) -> None:
        """End them."""
        for scout in self._scouts:
            scout.dismiss()


class Scout:
    """One of these processes: takes batches in turn, and answers with marks.

    Answers are so short that they always find room: nobody waits for a reader
    that waits for a writer.
    """

    def __init__(self, finder: Finder) -> None:
        self._before: List[Batch] = []
        reader, self._writer = os.pipe()
        self._reader, writer = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._reader, _IN)
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _scout(finder, reader, writer)
        except OSError:
            os.close(self._writer)
            os.close(self._reader)
            raise
        finally:
            os.close(reader)
            os.close(writer)

    def give(self, batch: Batch) -> bool:
        """Send a batch; returns whether it takes it."""
        if len(self._before) == _AHEAD:
            return False
        shelves = [b"\0".join([each.prefix] + each.names) for each in batch.shelves]
        told = b"\0\0".join(shelves)
        try:
            _write_all(self._writer, len(told).to_bytes(4, "big") + told)
        except OSError:
            return False
        batch.scout = self
        self._before.append(batch)
        return True

    def take(self, patience: int) -> bool:
        """Give its marks to the next batch, if they come within milliseconds."""
        if not self._before or not self._poll.poll(patience):
            return False
        batch = self._before.pop(0)
        marks = _exactly(self._reader, batch.count)
        batch.marks = marks if len(marks) == batch.count else b""
        return True

    def dismiss(self) -> None:
        """End it."""
        _send_signal(self._pid, _signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._writer)
        os.close(self._reader)


def _other_processors() -> int:
    """Return how many scouts are of use."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:
        count = os.cpu_count() or 1
    return min(count - 1, _MOST_SCOUTS)


def _scout(finder: Finder, reader: int, writer: int) -> None:
    """Be a scout."""
    try:
        low, high = sorted((reader, writer))
        os.closerange(3, low)
        os.closerange(low + 1, high)
        os.closerange(high + 1, _highest())
        while True:
            size = int.from_bytes(_exactly(reader, 4), "big")
            told = _exactly(reader, size)
            if not told:
                break
            shelves = [each.split(b"\0") for each in told.split(b"\0\0")]
            found = [Shelf(each[0], each[1:]) for each in shelves]
            _write_all(writer, finder.marks(found))
    finally:
        os._exit(0)


def _exactly(fd: int, size: int) -> bytes:
    """Return so many bytes; fewer if there are no more."""
    data = b""
    while len(data) < size:
        piece = os.read(fd, size - len(data))
        if not piece:
            break
        data += piece
    return data


class Finder:
    """Tells which files may hold a text.

    The C library's strstr looks for it: that is ten times as fast as Python's
    own search. It stops at a NUL, and a file that has one is no text.
    """

    def __init__(self, text: bytes) -> None:
        import ctypes

        self._text = text
        self._room = bytearray(_SAMPLE + 1)
        self._pointer = (ctypes.c_char * len(self._room)).from_buffer(self._room)
        self._strstr = ctypes.PyDLL(None).strstr
        self._strstr.restype = ctypes.c_char_p

    def marks(self, shelves: List[Shelf]) -> bytes:
        """Return a mark for each file."""
        marks = bytearray()
        try:
            back = os.open(b".", _TO_RETURN)
        except OSError:  # no descriptor left
            return bytes([_UNREADABLE]) * sum(len(each.names) for each in shelves)
        try:
            for shelf in shelves:
                marks += self._marks_on(shelf)
        finally:
            _return_to(back)
        return bytes(marks)

    def _marks_on(self, shelf: Shelf) -> bytearray:
        # From its directory a file is found faster than by a whole path.
        try:
            folder = os.open(shelf.prefix, _TO_SCOUT | os.O_DIRECTORY)
            try:
                os.fchdir(folder)
            finally:
                os.close(folder)
        except OSError:
            return bytearray([_UNREADABLE]) * len(shelf.names)
        marks = bytearray()
        for at in range(0, len(shelf.names), _TOGETHER):
            marks += self._marks_of(shelf.names[at : at + _TOGETHER])
        return marks

    def _marks_of(self, names: List[bytes]) -> bytearray:
        """Return the marks of some files in the current directory."""
        opened: List[int] = []
        try:
            opened.extend(map(os.open, names, repeat(_TO_SCOUT)))
            heads = list(map(os.read, opened, repeat(_HEAD)))
            return self._marks_by(heads, opened)
        except OSError:
            if len(names) == 1:
                return bytearray([_UNREADABLE])
        finally:
            _close_all(opened)
        # One by one they say which it is, and need no more descriptors than one.
        return bytearray().join(self._marks_of([name]) for name in names)

    def _marks_by(self, heads: List[bytes], opened: List[int]) -> bytearray:
        marks = bytearray([_LACKS]) * len(heads)
        self._mark_heads(heads, marks)
        if _HEAD in map(len, heads):
            for at, head in enumerate(heads):
                if len(head) == _HEAD and self._holds(opened[at], head):
                    marks[at] = _HOLDS
        return marks

    def _mark_heads(self, heads: List[bytes], marks: bytearray) -> None:
        """Mark the files whose heads hold the text, or may in another encoding."""
        together = b"\n".join(heads)
        if max(heads) >= _UTF16_MARKS[0] or b"\0" in together:
            for at, head in enumerate(heads):
                if self._strstr(head, self._text) or head.startswith(_UTF16_MARKS):
                    marks[at] = _HOLDS
            return
        # Most often one look at all of them is enough.
        rest = self._strstr(together, self._text)
        if rest is None:
            return
        end = 0
        for at, head in enumerate(heads):
            end += len(head) + 1
            if rest is not None and len(together) - len(rest) < end:
                marks[at] = _HOLDS
                rest = self._strstr(together[end:], self._text)

    def _holds(self, fd: int, head: bytes) -> bool:
        """Whether a file that is longer than its head may hold the text."""
        if head.startswith(_UTF16_MARKS) or self._strstr(head, self._text):
            return True
        room, reach = self._room, len(self._text) - 1
        free = memoryview(room)[reach:_SAMPLE]
        room[:reach] = head[len(head) - reach :]
        binary = b"\0" in head
        while not binary:
            more = os.readv(fd, [free])
            size = reach + more
            room[size] = 0
            if self._strstr(self._pointer, self._text):
                return True
            if more < len(free):
                break
            binary = room.find(0, 0, size) >= 0
            room[:reach] = room[size - reach : size]
        return False


def _return_to(folder: int) -> None:
    """Work in a directory again, if that is allowed; closes it."""
    try:
        os.fchdir(folder)
    except OSError:
        pass  # all paths that follow are absolute
    os.close(folder)


def _close_all(opened: List[int]) -> None:
    """Close descriptors that were opened one after another, at one stroke."""
    if opened and opened == list(range(opened[0], opened[0] + len(opened))):
        os.closerange(opened[0], opened[-1] + 1)
        return
    for fd in opened:
        os.close(fd)


class Ripgrep:
    """Finds the files of a tree that match; what matches is for us to say.

    It reads Rust's expressions. It is given one that matches wherever Python's
    does, and maybe elsewhere; what it refuses is done without it, and what it
    finds is looked at again: so the results are the same as without it.
    """

    def __init__(self, argv: List[bytes], files: Files, exact: bool) -> None:
        self.counted = False
        self._argv = argv
        self._files = files
        #: Whether it was told of all that chooses files.
        self._exact = exact
        reader, writer = os.pipe()
        self._output = reader
        try:
            import fcntl

            fcntl.fcntl(writer, _F_SETPIPE_SZ, 1 << 20)
        except (ImportError, OSError):
            pass
        self._pid = _spawn_quietly(argv, files.top, writer)
        os.close(writer)

    @classmethod
    def for_search(
        cls, fields: Dict[str, Any], files: Files, path: bytes, root: bytes
    ) -> Optional[Ripgrep]:
        """Start it, where there is one, and it understands, and it pays."""
        if fields.get("multiline", False):
            return None
        expression = ripgrep_expression(fields)
        if expression is None:
            return None
        if not files.folder or not files.many():
            return None
        program = _program(b"rg", path)
        ignored = fields.get("ignored", True)
        if program is None or (not ignored and not _knows_rules(files.top, root)):
            return None
        argv = [program] + _ripgrep_options(fields)
        if not ignored and os.path.realpath(files.top) == os.path.realpath(root):
            argv.append(b"--no-ignore-parent")
        names = _ripgrep_names(fields)
        for name in names or ():
            argv += [b"--type-add=wanted:" + name, b"--type=wanted"]
        argv.append(b"--regexp=" + expression.encode())
        return cls(argv + [b"--", b"./"], files, names is not None)

    def candidates(self, search: Search) -> Iterator[bytes]:
        """Yield the files worth a look, in order; tells how many it searched."""
        whole = None if self._exact else self._files.find_all()
        output = b"".join(iter(lambda: os.read(self._output, 1 << 20), b""))
        os.close(self._output)
        status = os.waitpid(self._pid, 0)[1]
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 3
        if code > 2 or (code == 2 and not self._accepted()):
            yield from self._files.find_all() if whole is None else whole
            return
        names, _, told = output.rpartition(b"\0")
        top = self._files.top.rstrip(b"/")
        found = {top + name[1:] for name in names.split(b"\0") if name}
        if code == 2 and whole is None:
            whole = self._files.find_all()
        self.counted = True
        if whole is None:
            search.files = _searched_by(told)
        else:
            unreadable = [each for each in whole if not os.access(each, os.R_OK)]
            search.skipped = unreadable if code == 2 else []
            search.files = len(whole) - len(search.skipped)
            found.intersection_update(whole)
        yield from sorted(found)

    def _accepted(self) -> bool:
        """Whether it takes the arguments: 2 also means an unreadable file."""
        null = os.open(os.devnull, os.O_WRONLY)
        argv = self._argv[:-1] + [os.fsencode(os.devnull)]
        pid = _spawn_quietly(argv, b"/", null)
        os.close(null)
        status = os.waitpid(pid, 0)[1]
        return os.WIFEXITED(status) and os.WEXITSTATUS(status) < 2


def _searched_by(told: bytes) -> int:
    import re

    found = re.search(rb"^(\d+) files searched$", told, re.MULTILINE)
    return int(found.group(1)) if found else 0


def _ripgrep_names(fields: Dict[str, Any]) -> Optional[List[bytes]]:
    """Return patterns of names that choose all files alike; None if none can."""
    import re

    glob, types = fields.get("glob"), fields.get("types")
    if glob is None:
        return [os.fsencode(each) for each in types or ()]
    # A glob of ripgrep's own would beat the files of rules; a type does not.
    simple = re.match(r"\*\*/([\w.*?-]*[\w.?-])\Z", glob, re.ASCII)
    if simple is None or types or "**" in simple.group(1):
        return None
    return [os.fsencode(simple.group(1))]


def _ripgrep_options(fields: Dict[str, Any]) -> List[bytes]:
    options = [
        b"--no-config",
        b"--no-messages",
        b"--color=never",
        b"--files-with-matches",
        b"--null",
        b"--stats",
        b"--no-follow",
        b"--ignore-case" if fields["ignore_case"] else b"--case-sensitive",
    ]
    if fields.get("hidden", True):
        options.append(b"--hidden")
    if fields.get("ignored", True):
        return options + [b"--no-ignore"]
    options += [b"--no-require-git", b"--no-ignore-global"]
    return options + [b"--glob=!" + name for name in sorted(_VERSION_CONTROL)]


def ripgrep_expression(fields: Dict[str, Any]) -> Optional[str]:
    """Return an expression of Rust's that matches wherever Python's does.

    None if none is known. Where the two may differ, which is about characters
    that are not ASCII and bytes that are no text, it takes any of these.
    """
    import re

    pattern, either = fields["pattern"], fields["ignore_case"]
    if not pattern or re.search(_UNSURE, pattern):
        return None
    if either and not pattern.isascii():
        return None
    if fields["literal"]:
        return "".join(_rust_character(each, either) for each in pattern)
    # Sets of sets, flags and names, {,n}, \Z, \<, octals, ends of line.
    sets, groups, repeats = r"\[[^\]]*(?:&&|--|~~|\[)", r"\(\?(?!:)", r"\{,"
    escapes = r"\\[^dDwWsSbBt.()\[\]{}|*+?^$/\\-]|\[(?:\\.|[^\\\]])*\\[bB]"
    if any(re.search(each, pattern) for each in (sets, groups, repeats, escapes)):
        return None
    parts = re.findall(_RUST_PARTS, pattern, re.DOTALL)
    if not either:
        _keep_ends_of_words(parts)
    return "".join(_rust_part(part, either) for part in parts)


def _keep_ends_of_words(parts: List[str]) -> None:
    """Ask for the ends of words where a character that is ASCII surely is in one."""
    for at, part in enumerate(parts):
        if part == "\\b":
            follows = parts[at + 1 : at + 3] + ["", ""]
            sure = not follows[1] or follows[1] not in "*?{"
            before = parts[at - 1] if at else ""
            if (sure and _is_of_word(follows[0])) or _is_of_word(before):
                parts[at] = _END_OF_WORD


def _is_of_word(part: str) -> bool:
    return part.isascii() and (part.isalnum() or part == "_")


_RUST_PARTS = r"\\.|\[\^?\]?(?:\\.|[^\\\]])*\]|."
#: What is not ASCII: a character, or bytes that are none.
_BEYOND = r"[\x80-\xff]+"
_END_OF_WORD = r"(?-u:\b)"
#: Parts that the two read otherwise. That a word begins or ends is seldom asked.
_IN_RUST = {
    _END_OF_WORD: _END_OF_WORD,
    ".": r"(?-u:[\x00-\x09\x0b-\x7f]|%s)" % _BEYOND,
    "\\d": r"(?-u:[0-9]|%s)" % _BEYOND,
    "\\D": r"(?-u:[\x00-\x09\x0b-/:-\x7f]|%s)" % _BEYOND,
    "\\w": r"(?-u:[0-9A-Z_a-z]|%s)" % _BEYOND,
    "\\W": r"(?-u:[\x00-\x09\x0b-/:-@\[-^`{-\x7f]|%s)" % _BEYOND,
    "\\s": r"(?-u:[\x09\x0b-\x0d\x1c-\x20]|%s)" % _BEYOND,
    "\\S": r"(?-u:[\x00-\x08\x0e-\x1b!-\x7f]|%s)" % _BEYOND,
    "\\b": "",
    "\\B": "",
    "\\t": r"\x09",
    "$": r"(?:\x0d?$)",
}


def _rust_part(part: str, either: bool) -> str:
    if part in _IN_RUST:
        return _IN_RUST[part]
    if part.startswith("[") and len(part) > 1:
        return _rust_set(part, either)
    if part.startswith("\\"):
        return _rust_character(part[1], either)
    return _rust_character(part, either) if part in "iI" else part


def _rust_set(part: str, either: bool) -> str:
    import re

    if not part.isascii():
        return _IN_RUST["."]
    escapes = set(re.findall(r"\\.", part))
    spaces = r"|[\x1c-\x1f]" if escapes & {"\\s", "\\S"} else ""
    wide = either or part[1] == "^" or escapes & {"\\" + each for each in "dDwWsS"}
    return "(?-u:%s%s%s)" % (part, spaces, "|" + _BEYOND if wide else "")


def _rust_character(char: str, either: bool) -> str:
    if either and char in "iI":
        return "[i\u0130\u0131]"  # to Rust these are no I of another case
    return char if char.isalnum() or not char.isascii() else "\\x%02x" % ord(char)


def _knows_rules(top: bytes, root: bytes) -> bool:
    """Whether ripgrep reads no rules above the root, which are none of ours."""
    folder, root = os.path.realpath(top), os.path.realpath(root)
    if folder == root:
        return True
    below = folder.startswith(root.rstrip(b"/") + b"/")
    folder = os.path.dirname(root) if below else folder
    while True:
        if any(os.path.lexists(os.path.join(folder, n)) for n in _RULE_FILES[:3]):
            return not below
        if folder == b"/":
            return True
        folder = os.path.dirname(folder)


def _program(name: bytes, path: bytes) -> Optional[bytes]:
    for folder in path.split(b":"):
        program = os.path.join(folder, name)
        if folder.startswith(b"/") and os.access(program, os.X_OK):
            return program
    return None


def _spawn_quietly(argv: List[bytes], folder: bytes, output: int) -> int:
    """Start a program that ends with this process's group."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.chdir(folder)
        null = os.open(os.devnull, os.O_RDWR)
        for source, target in ((null, 0), (output, 1), (null, 2)):
            os.dup2(source, target, inheritable=True)
        for number in _ALTERED:
            _signal.signal(number, _signal.SIG_DFL)
        os.execve(argv[0], argv, {"LANG": "C.UTF-8"})
    except BaseException:  # noqa: BLE001 - nothing may run on in the child
        pass
    os._exit(3)


def pull_tree(path: bytes, writer: int) -> Dict[str, Any]:
    """Write a tar stream of what is at a path."""
    import tarfile

    whole = stat.S_ISDIR(os.lstat(path).st_mode)
    name = b"." if whole else os.path.basename(path)
    left_out = 0

    def admitted(member: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
        nonlocal left_out
        if member.isfile() or member.isdir() or member.issym() or member.islnk():
            return member
        left_out += 1
        return None

    with os.fdopen(os.dup(writer), "wb", PIECE) as file:
        with tarfile.open(
            fileobj=file,
            mode="w|",
            format=tarfile.PAX_FORMAT,
            bufsize=PIECE,
            encoding="utf-8",
            errors="surrogateescape",
        ) as archive:
            archive.add(os.fsdecode(path), os.fsdecode(name), filter=admitted)
    return {"left_out": left_out}


def push_tree(
    path: bytes, reader: int, clear: bool, sealed: List[bytes]
) -> Dict[str, Any]:
    """Unpack a tar stream into a directory, which `clear` empties first.

    With `clear`, what is `sealed` against everybody stays as it is.
    """
    import tarfile

    os.makedirs(path, exist_ok=True)
    if clear:
        _clear(path, sealed)
    root = os.fsdecode(os.path.realpath(path))
    count = 0
    times: List[Tuple[str, tarfile.TarInfo]] = []
    with os.fdopen(reader, "rb", PIECE) as file:
        try:
            with tarfile.open(
                fileobj=file,
                mode="r|*",
                bufsize=PIECE,
                encoding="utf-8",
                errors="surrogateescape",
            ) as archive:
                for member in archive:
                    target = _place(root, member)
                    if clear and _below(os.fsencode(target), sealed):
                        continue
                    _unpack(archive, member, root, target)
                    if member.isdir():
                        times.append((target, member))
                    count += 1
        except tarfile.TarError as error:
            raise Refused("archive", "not a tar stream: %s" % error) from None
    for target, member in reversed(times):
        os.chmod(target, member.mode & 0o777)
        os.utime(target, (member.mtime, member.mtime))
    return {"count": count}


def push_whole(path: bytes, draft: bytes, reader: int, replace: bool) -> Dict[str, Any]:
    """Unpack a tar stream beside a path, and put it there at once."""
    _make_parents(path)
    if not replace and os.path.lexists(path):
        raise Refused("exists")
    os.mkdir(draft, 0o700)
    result = push_tree(draft, reader, False, [])
    try:
        os.rename(draft, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        if not replace:
            raise Refused("exists") from None
        _exchange(draft, path)
    return result


def _exchange(draft: bytes, path: bytes) -> None:
    """Put a directory in the place of what is there."""
    old = _old(draft)
    try:
        os.rename(path, old)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # In a view of another directory, what is there cannot be moved.
        for _ in remove_tree(path, True):
            pass
    try:
        os.rename(draft, path)
    except OSError:
        if os.path.lexists(old):
            os.rename(old, path)
        raise
    if os.path.lexists(old):
        for _ in remove_tree(old, True):
            pass


def _old(draft: bytes) -> bytes:
    return draft + b"-old"


class Placing(Worker):
    """Makes a directory whole or not at all."""

    def __init__(self, peer: Peer, stream: int, fields: Dict[str, Any]) -> None:
        path: bytes = fields["path"]
        replace = fields["whole"] == "replace"
        unique = b".isobox-" + os.urandom(8).hex().encode()
        draft = os.path.join(os.path.dirname(path), unique)
        self._path, self._draft = path, draft
        Worker.__init__(
            self,
            peer,
            stream,
            lambda reader, _writer: push_whole(path, draft, reader, replace),
            takes=True,
        )

    def released(self) -> None:
        Worker.released(self)
        self._tidy(50)

    def _tidy(self, rounds: int) -> None:
        """Leave nothing of it; a worker that was killed may not be dead yet."""
        try:
            old = _old(self._draft)
            if os.path.lexists(old) and not os.path.lexists(self._path):
                os.rename(old, self._path)
            for left in filter(os.path.lexists, (self._draft, old)):
                for _ in remove_tree(left, True):
                    pass
        except OSError:
            if rounds:
                self.guest.loop.later(0.02, lambda: self._tidy(rounds - 1))


def _push(peer: Peer, stream: int, fields: Dict[str, Any]) -> Job:
    if fields.get("whole"):
        return Placing(peer, stream, fields)
    path, clear = fields["path"], fields["clear"]
    sealed = peer.guest._config["sealed"]
    return Worker(
        peer,
        stream,
        lambda reader, _writer: push_tree(path, reader, clear, sealed),
        takes=True,
    )


def _clear(folder: bytes, sealed: List[bytes]) -> None:
    """Remove all that a directory holds, but not what is sealed."""
    with os.scandir(folder) as names:
        paths = [item.path for item in names]
    for path in paths:
        if path in sealed:
            continue
        if any(place.startswith(path + b"/") for place in sealed):
            _clear(path, sealed)
            continue
        for _ in remove_tree(path, True):
            pass


def _below(path: bytes, places: List[bytes]) -> bool:
    return any(path == place or path.startswith(place + b"/") for place in places)


def _place(root: str, member: Any) -> str:
    """Return where a member goes; refuses what would leave the directory."""
    name = os.path.normpath(member.name)
    if name.startswith("/") or name == ".." or name.startswith("../"):
        raise Refused("archive", "a member leaves the directory: %r" % member.name)
    target = os.path.join(root, name) if name != "." else root
    folder = target if name == "." else os.path.dirname(target)
    real = os.path.realpath(folder)
    if real != root and not real.startswith(root.rstrip("/") + "/"):
        raise Refused("archive", "a member goes through a link: %r" % member.name)
    return target


def _unpack(archive: Any, member: Any, root: str, target: str) -> None:
    if member.isdir():
        if os.path.islink(target):
            raise Refused("archive", "a directory over a link: %r" % member.name)
        os.makedirs(target, exist_ok=True)
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(target) and not os.path.islink(target):
        raise Refused("is_directory")
    if os.path.lexists(target):
        os.unlink(target)
    if member.issym():
        os.symlink(member.linkname, target)
    elif member.islnk():
        source = _place(root, _Named(member.linkname))
        os.link(source, target, follow_symlinks=False)
    elif member.isfile():
        _unpack_file(archive.extractfile(member), member, target)
    else:
        raise Refused("archive", "a device or FIFO: %r" % member.name)


class _Named:
    def __init__(self, name: str) -> None:
        self.name = name


def _unpack_file(source: Any, member: Any, target: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(target, flags, 0o600)
    try:
        for data in iter(lambda: source.read(1 << 20), b""):
            _write_all(fd, data)
        os.fchmod(fd, member.mode & 0o777)
        os.utime(fd, (member.mtime, member.mtime))
    finally:
        os.close(fd)


# -- the network inside --------------------------------------------------------------

_AT_ONCE = struct.pack("ii", 1, 0)
#: Descriptors that are enough for the connections that a host takes at once.
_MANY = 4096
#: Seconds that a closed connection has to send what the host gave it, and how many
#: may be at it: as with a kernel's, a client that never reads ends that.
_CLOSING_FOR = 60.0
_CLOSING = 64


class Dialled(Job):
    """A TCP connection, carried over the channel."""

    def __init__(self, peer: Peer, stream: int, sock: Any) -> None:
        Job.__init__(self, peer, stream)
        self._sock = sock
        self._source: Optional[Source] = None
        self._sink: Optional[Sink] = None
        self._aborted = False
        sock.setblocking(False)

    def connect(self, address: Tuple[str, int]) -> None:
        """Connect, then say so."""
        try:
            self._sock.connect(address)
        except BlockingIOError:
            self.guest.loop.watch(self._sock.fileno(), _OUT, self._connected)
        else:
            self._connected(0)

    def _connected(self, _events: int) -> None:
        number = self._sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
        self.guest.loop.forget(self._sock.fileno())
        if number:
            self.fail(OSError(number, os.strerror(number)))
        elif self.carry():
            self.answer(EVENT, encode({"event": "connected"}))

    def carry(self) -> bool:
        """Begin to carry bytes both ways; returns whether that can be."""
        try:
            self._sink = Outward(self, os.dup(self._sock.fileno()), BODY)
            self._source = Source(self, os.dup(self._sock.fileno()), BODY)
        except OSError as error:  # no descriptor left
            self._abort()
            self.fail(error)
            return False
        return True

    def on_data(self, channel: int, data: memoryview) -> None:
        if self._sink is not None:
            self._sink.put(data, self)
        self.drained()

    def on_end(self, channel: int) -> None:
        if self._sink is not None:
            self._sink.end()
        self.drained()

    def on_credit(self, channel: int, amount: int) -> None:
        Job.on_credit(self, channel, amount)
        if self._source is not None:
            self._source.resume()

    def drained(self) -> None:
        if self._source is not None and self._sink is not None:
            if not self._source.open and not self._sink.open:
                self.finish()

    def on_control(self, fields: Dict[str, Any]) -> None:
        if fields.get("do") == "abort":
            self._abort()
            self.finish()
        else:
            Job.on_control(self, fields)

    def _abort(self) -> None:
        """From now on, to close it is to break it off."""
        self._sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, _AT_ONCE)
        self._aborted = True

    def cancel(self) -> None:
        """Close it; what the host sent still arrives, and then the end."""
        if self._sink is not None:
            self._sink.end()
        self.finish()

    def abandon(self) -> None:
        """The host is gone, and nobody knows whether it had sent everything."""
        self._abort()
        Job.abandon(self)

    def released(self) -> None:
        self.guest.loop.forget(self._sock.fileno())
        if self._source is not None:
            self._source.close()
        if self._sink is not None and self._sink.open and not self._aborted:
            self.guest.linger(self)
        else:
            self._close_socket()

    def break_off(self) -> None:
        """Have what could not be sent in time be seen to be missing."""
        self._abort()
        self._close_socket()

    def sent(self) -> None:
        """Everything was sent, or nobody takes it any more."""
        if self.guest.lingers(self):
            self._close_socket()

    def _close_socket(self) -> None:
        self.guest.linger_no_more(self)
        if self._sink is not None:
            self._sink.close()
        self._sock.close()


class Outward(Sink):
    """The sending side of a connection: its end is a half-close."""

    def __init__(self, job: Dialled, fd: int, channel: int) -> None:
        Sink.__init__(self, job.guest, fd, channel)
        self._job = job

    def close(self) -> None:
        job = self._job
        if self.open and not job._aborted:
            try:
                job._sock.shutdown(_socket.SHUT_WR)
            except OSError:
                pass
        Sink.close(self)
        job.sent()


class Bound(Job):
    """A port inside, bound for the host."""

    kind: int = _socket.SOCK_STREAM

    def __init__(self, peer: Peer, stream: int, fields: Dict[str, Any]) -> None:
        Job.__init__(self, peer, stream)
        peer.guest.expect_connections()
        self._sock = _socket.socket(_socket.AF_INET, self.kind)
        try:
            self._bind((fields.get("host", "127.0.0.1"), fields["port"]))
        except BaseException:
            self._sock.close()
            raise
        self._sock.setblocking(False)
        self._watch()
        port = self._sock.getsockname()[1]
        peer.wire.send(EVENT, stream, encode({"event": "listening", "port": port}))

    def _bind(self, address: Tuple[str, int]) -> None:
        self._sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        self._sock.bind(address)
        self._sock.listen(4096)

    def _watch(self) -> None:
        """Look for what arrives, as far as the host has room for it."""
        if self.peer.streams.get(self.stream) is self:
            mask = _IN if self._has_room() else 0
            self.guest.loop.watch(self._sock.fileno(), mask, self._arrived)

    def _has_room(self) -> bool:
        raise NotImplementedError

    def _arrived(self, _events: int) -> None:
        raise NotImplementedError

    def on_credit(self, channel: int, amount: int) -> None:
        Job.on_credit(self, channel, amount)
        self._watch()

    def cancel(self) -> None:
        self.finish()

    def released(self) -> None:
        self.guest.loop.forget(self._sock.fileno())
        self._sock.close()


class Listening(Bound):
    """A TCP port inside; each connection becomes a stream to the host.

    What the host grants are connections, not bytes.
    """

    def window(self, channel: int) -> int:
        return self.credit.get(channel, WAITING)

    def _has_room(self) -> bool:
        return self.window(BODY) > 0

    def _arrived(self, _events: int) -> None:
        try:
            fd, _ = self._sock._accept()  # type: ignore[attr-defined]
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self.guest.loop.watch(self._sock.fileno(), 0, self._arrived)
                self.guest.loop.later(0.1, self._watch)
            return
        sock = _socket.socket(fileno=fd)
        address, port = sock.getsockname()
        self.credit[BODY] = self.window(BODY) - 1
        stream = self.peer.next_accepted()
        job = Dialled(self.peer, stream, sock)
        job.credit[BODY] = ACCEPTED_WINDOW
        fields = {"listener": self.stream, "address": address, "port": port}
        self.peer.wire.send(ACCEPT, stream, encode(fields))
        job.carry()
        self._watch()


class Datagrams(Bound):
    """A UDP port inside; what arrives goes to the host, and answers go back.

    Either way a message is the sender's number, its length, and its bytes.
    """

    kind = _socket.SOCK_DGRAM
    _HEADER = struct.Struct(">HH")
    _ROOM = LONGEST_DATAGRAM + _HEADER.size
    #: Senders that may wait for an answer.
    _MOST = 1024

    def __init__(self, peer: Peer, stream: int, fields: Dict[str, Any]) -> None:
        self._senders: Dict[int, Any] = {}
        self._number = 0
        self._held = bytearray()
        Bound.__init__(self, peer, stream, fields)

    def _bind(self, address: Tuple[str, int]) -> None:
        self._sock.bind(address)

    def _has_room(self) -> bool:
        if self.peer.wire.full:
            self.peer.wire.on_relief.append(self._watch)
            return False
        return self.window(BODY) >= self._ROOM

    def _arrived(self, _events: int) -> None:
        try:
            data, sender = self._sock.recvfrom(LONGEST_DATAGRAM + 1)
        except OSError:
            return
        if len(data) > LONGEST_DATAGRAM:
            return
        self._number = (self._number + 1) % 65536
        self._senders[self._number] = sender
        if len(self._senders) > self._MOST:
            del self._senders[next(iter(self._senders))]
        self.send(BODY, self._HEADER.pack(self._number, len(data)) + data)
        self._watch()

    def on_data(self, channel: int, data: memoryview) -> None:
        self._held += data
        while len(self._held) >= self._HEADER.size:
            number, size = self._HEADER.unpack_from(self._held)
            end = self._HEADER.size + size
            if len(self._held) < end:
                break
            self._return(number, bytes(self._held[self._HEADER.size : end]))
            del self._held[:end]
        self.grant(channel, len(data))

    def _return(self, number: int, answer: bytes) -> None:
        sender = self._senders.pop(number, None)
        if sender is not None:
            try:
                self._sock.sendto(answer, sender)
            except OSError:
                pass  # a datagram may be lost


# -- the guest -----------------------------------------------------------------------


class Guest:
    """What all hosts share: the processes, and the loop that serves them."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.peers: List[Peer] = []
        self.over = False
        #: Whether commands outlive their hosts, so that what they print is kept.
        self.keeps = False
        self.commands: Dict[str, Command] = {}
        #: Which life of the daemon this is.
        self.life = os.urandom(8).hex()
        self._ended: Dict[Command, float] = {}
        self._held = 0
        self.shell = _find_shell()
        self.blind = _blind()
        self._posts: List[Post] = []
        self._config: Dict[str, Any] = {}
        self._looking = self._waking = self._hurrying = False
        self._closing: Dict[Dialled, float] = {}
        self._filtered = False
        self._usual: Optional[Tuple[int, int]] = None
        self._oom = _open_oom_score()
        self._wakeup = self._watch_children()

    # Life.

    def serve(self) -> None:
        """Serve until it is over, then leave nothing behind."""
        try:
            while not self.over:
                self.loop.turn()
                for peer in list(self.peers):
                    peer.wire.flush()
        except EOFError:
            pass
        finally:
            self._end()

    def stop(self) -> None:
        """Serve no more."""
        self.over = True

    def _end(self) -> None:
        for peer in list(self.peers):
            peer.hang_up()
        for post in self._posts:
            post.close()
        if self.blind and os.getpid() == 1:
            return  # with pid 1, all of its namespace ends
        for _round in range(2000):
            left = [pid for pid, _ in _descendants(os.getpid())]
            if not left:
                return
            wardens = {post.pid for post in self._posts}
            for pid in left:
                if pid not in wardens or _round > 100:
                    _send_signal(pid, _signal.SIGKILL)
            self._reap()
            time.sleep(0.001)

    def _watch_children(self) -> int:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.set_wakeup_fd(writer)
        self.loop.watch(reader, _IN, self._child_ended)
        return reader

    def _child_ended(self, _events: int) -> None:
        try:
            while os.read(self._wakeup, 512):
                pass
        except BlockingIOError:
            pass
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    return
            except ChildProcessError:
                return

    # Processes.

    def fork(self) -> int:
        """Fork; the child is the kernel's first choice when memory runs out."""
        if self._oom is not None:
            _set_oom_score(self._oom[0], b"1000")
        try:
            pid = os.fork()
        finally:
            if self._oom is not None:
                _set_oom_score(*self._oom)
        if pid == 0 and self._usual is not None:
            self._set_descriptors(*self._usual)
        return pid

    def linger(self, closed: Dialled) -> None:
        """Let a closed connection send the rest, for a while."""
        self._closing[closed] = time.monotonic()
        if len(self._closing) > _CLOSING:
            next(iter(self._closing)).break_off()
        if not self._hurrying:
            self._hurrying = True
            self.loop.later(_CLOSING_FOR, self._hurry)

    def lingers(self, closed: Dialled) -> bool:
        """Whether it is closed and still sends."""
        return closed in self._closing

    def linger_no_more(self, closed: Dialled) -> None:
        """Know it no more."""
        self._closing.pop(closed, None)

    def _hurry(self) -> None:
        before = time.monotonic() - _CLOSING_FOR
        for closed, since in list(self._closing.items()):
            if since <= before:
                closed.break_off()
        self._hurrying = bool(self._closing)
        if self._hurrying:
            self.loop.later(_CLOSING_FOR / 8, self._hurry)

    def expect_connections(self) -> None:
        """Let the guest hold many descriptors, and nothing that it starts."""
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= soft < _MANY and self._usual is None:
            self._usual = soft, hard
            self._set_descriptors(_MANY if hard < 0 else min(_MANY, hard), hard)

    def _set_descriptors(self, soft: int, hard: int) -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def forget_all(self, keep: Set[int]) -> None:
        """In a forked child: close everything but `keep` and the standard three."""
        _signal.set_wakeup_fd(-1)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        low = 3
        for fd in sorted(keep):
            os.closerange(low, fd)
            low = fd + 1
        os.closerange(low, _highest())

    def warden(self) -> Post:
        """Return a warden that has no command."""
        for post in self._posts:
            unused = post.idle and post.command is None and not post.retired
            if unused and post.alive():
                return post
        return self._new_warden()

    def _new_warden(self) -> Post:
        ours, theirs = _socketpair()
        pid = self.fork()
        if pid == 0:
            try:
                self.forget_all({theirs.fileno()})
                _limit_self(self._config.get("rlimits") or {})
                Warden(theirs).serve()
            finally:
                os._exit(1)
        theirs.close()
        post = Post(self, pid, ours)
        self._posts.append(post)
        return post

    def warden_idle(self, post: Post) -> None:
        """A warden has no process left below it; keep some."""
        spare = [each for each in self._posts if each.idle]
        if len(spare) > _SPARE_WARDENS:
            self._posts.remove(post)
            post.close()

    def warden_died(self, post: Post) -> None:
        """A warden was killed from inside: end what it left."""
        if post in self._posts:
            self._posts.remove(post)
        post.close()
        self._end_strays(post, 0)

    def _end_strays(self, post: Post, rounds: int) -> None:
        known = {each.pid for each in self._posts}
        known |= {job._pid for job in self._workers()}
        try:
            strays = _strays(known)
        except OSError:
            strays, rounds = [-1], _OUTNUMBERED
        for pid in strays:
            if pid > 0:
                _send_signal(pid, _signal.SIGKILL)
        if rounds == _OUTNUMBERED and self.blind and os.getpid() == 1:
            # SAFETY: to pid 1, -1 is its own pid namespace. All commands end.
            _send_signal(-1, _signal.SIGKILL)
        self._reap()
        if strays and rounds < 1000:
            self.loop.later(0.001, lambda: self._end_strays(post, rounds + 1))
            return
        command, post.command = post.command, None
        if command is not None:
            command.reported({"event": "idle"})

    def _workers(self) -> List[Worker]:
        jobs = [job for peer in self.peers for job in peer.streams.values()]
        return [job for job in jobs if isinstance(job, Worker)]

    # What is kept of commands.

    def hold(self, amount: int) -> None:
        """Note so many bytes more that outputs keep; together they are bounded."""
        self._held += amount
        if self._held > _KEPT_IN_ALL:
            outputs = [each for one in self.commands.values() for each in one.outputs]
            # Much at once, or every byte that comes would look at all of them.
            share = _KEPT_IN_ALL * 3 // 4 // len(outputs)
            self._held -= sum(output.trim(share) for output in outputs)

    def ended(self, command: Command) -> None:
        """A command was concluded, or its last process has gone."""
        if command.runs or command.result is None:
            return
        if not self.keeps:
            self.forget(command)
            return
        self._ended.setdefault(command, time.monotonic())
        if len(self._ended) == 1:
            self.loop.later(_ENDED_FOR, self._forget_old)
        for old in list(self._ended)[:-_ENDED]:
            self._forget_ended(old)

    def _forget_old(self) -> None:
        before = time.monotonic() - _ENDED_FOR
        for command, since in list(self._ended.items()):
            if since <= before:
                self._forget_ended(command)
        if self._ended:
            self.loop.later(_ENDED_FOR / 8, self._forget_old)

    def _forget_ended(self, command: Command) -> None:
        # Who still reads what it printed keeps it.
        if not command.views:
            del self._ended[command]
            self.forget(command)

    def forget(self, command: Command) -> None:
        """Know a command no more, nor what it printed."""
        self.commands.pop(command.id, None)
        self._held -= sum(output.trim(0) for output in command.outputs)

    def retire(self, post: Post) -> None:
        """End a warden that does not answer; its processes become strays."""
        post.retired = True
        _send_signal(post.pid, _signal.SIGKILL)

    def configure(self, fields: Dict[str, Any]) -> None:
        """Be told how to serve."""
        self._config = fields
        _PIDS["limit"] = fields.get("pid_max") or _PIDS["limit"]
        rules: Optional[bytes] = fields.get("filter")
        self._filtered = rules is not None and _restrict(rules)
        if fields["sealed"]:
            self._watch_mounts()
        # The first command should not wait for its warden.
        self.loop.later(0, self._new_warden)

    @property
    def env(self) -> Dict[str, bytes]:
        """The variables of every command, where its host has no others."""
        return self._config["env"]  # type: ignore[no-any-return]

    def hello(self) -> Dict[str, Any]:
        """Return what a host is told of the guest."""
        return {
            "version": VERSION,
            "pid": os.getpid(),
            "python": "%d.%d.%d" % sys.version_info[:3],
            "uid": os.getuid(),
            "gid": os.getgid(),
            "shell": self.shell,
            "unsealed": _unsealed(self._config["sealed"]),
            "daemon": self.life if self.keeps else None,
            "filtered": self._filtered,
        }

    def _watch_mounts(self) -> None:
        """End when a mount over a sealed path goes, or moves.

        It does when the host removes or renames what it stands on; from then on
        commands could write there. Only that it goes is told at once.
        """
        try:
            mounts = os.open("/proc/self/mounts", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # without /proc, we look now and then
        mask = select.POLLPRI | select.POLLERR
        self.loop.watch(mounts, mask, lambda _events: self._check_sealed())

    def _check_sealed(self) -> None:
        lost = _unsealed(self._config["sealed"])
        if lost:
            name = os.fsdecode(lost[0])
            os.write(2, b"the host replaced or removed %a" % name)
            raise EOFError

    def command_starts(self) -> None:
        """Look now and then at what is sealed and who is stopped, while it runs."""
        if not self._waking:
            self._waking = True
            self.loop.later(_AWAKE, self._wake)
        if self._config.get("sealed") and not self._looking:
            self._looking = True
            self.loop.later(_LOOK, self._look)

    def _wake(self) -> None:
        """Have wardens go on that a command has stopped."""
        busy = [post for post in self._posts if not post.idle]
        for post in busy:
            _send_signal(post.pid, _signal.SIGCONT)
        self._waking = bool(busy)
        if self._waking:
            self.loop.later(_AWAKE, self._wake)

    def _look(self) -> None:
        self._check_sealed()
        self._looking = any(each.runs for each in self.commands.values())
        if self._looking:
            self.loop.later(_LOOK, self._look)


class Peer:
    """One host, on its channel: its operations, and what they are told."""

    def __init__(
        self, guest: Guest, ends: Tuple[int, int], lost: Callable[[], None]
    ) -> None:
        self.guest = guest
        self.lost = lost
        self.wire = Wire(ends, guest.loop, self._frame, lost)
        self.streams: Dict[int, Job] = {}
        self._leaving = False
        self._accepted = 0
        self._environment: Dict[str, bytes] = {}
        guest.peers.append(self)

    def hang_up(self) -> None:
        """Release what its operations hold; commands run on."""
        self.guest.peers.remove(self)
        jobs, self.streams = list(self.streams.values()), {}
        self.wire.close()
        for command in self.guest.commands.values():
            if command.owner is self:
                command.owner = None
        for job in jobs:
            try:
                job.abandon()
            except Exception:  # noqa: BLE001 - the rest must be released too
                pass

    def environment(self, changes: Dict[str, Any]) -> Dict[str, bytes]:
        """Return a command's variables: the workspace's own, changed."""
        env = dict(self._environment)
        for name, value in changes.items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = value
        return env

    def next_accepted(self) -> int:
        """Return a number for a stream that the guest opens."""
        self._accepted = (self._accepted + 1) % ACCEPTED
        return ACCEPTED | self._accepted

    # Frames.

    def _frame(self, kind: int, stream: int, payload: bytes) -> None:
        if self._leaving:
            return
        if kind == OPEN:
            self._open(stream, _message(payload))
        elif kind == CONFIG:
            self._greet(_message(payload))
        elif kind == PING:
            self.wire.send(PONG, 0, payload)
        elif kind == BYE:
            self._leave(bool(_message(payload).get("detach")))
        elif stream in self.streams:  # else it has just answered
            self._pass_on(self.streams[stream], kind, payload)

    def _pass_on(self, job: Job, kind: int, payload: bytes) -> None:
        try:
            if kind == DATA:
                with memoryview(payload)[1:] as data:
                    job.on_data(payload[0], data)
            elif kind == END:
                job.on_end(payload[0])
            elif kind == CREDIT:
                job.on_credit(payload[0], int.from_bytes(payload[1:5], "big"))
            elif kind == CONTROL:
                job.on_control(_message(payload))
            else:
                raise EOFError
        except EOFError:
            raise
        except Exception as error:  # noqa: BLE001 - one operation, not the guest
            job.fail(error)

    def _greet(self, fields: Dict[str, Any]) -> None:
        if not self.guest.keeps:
            self.guest.configure(fields)
        self._environment = fields.get("env") or self.guest.env
        self.wire.send(HELLO, 0, encode(self.guest.hello()))

    def _leave(self, detach: bool) -> None:
        """The host goes: what only it holds is killed, unless it detaches."""
        self._leaving = True
        commands = {} if detach else dict.fromkeys(self._held())
        left = list(commands)

        def killed(command: Command) -> None:
            left.remove(command)
            if not left:
                self.lost()

        for command in commands:
            command.kill(lambda each=command: killed(each))  # type: ignore[misc]
        if not commands:
            self.lost()

    def _held(self) -> List[Command]:
        views = [each for each in self.streams.values() if isinstance(each, View)]
        started = [each for each in self.guest.commands.values() if each.owner is self]
        held = [each.command for each in views] + started
        return [each for each in held if all(v.peer is self for v in each.views)]

    def _open(self, stream: int, fields: Dict[str, Any]) -> None:
        if stream in self.streams:
            raise EOFError
        try:
            self._confine(fields)
            _OPERATIONS[fields["op"]](self, stream, fields)
        except EOFError:
            raise
        except Exception as error:  # noqa: BLE001 - one operation, not the guest
            self.streams.pop(stream, None)
            self.wire.send(ERROR, stream, encode(_refusal(error)))

    def _confine(self, fields: Dict[str, Any]) -> None:
        """Where nothing else does, keep file operations below the root."""
        _check_places(fields.get("places") or ())
        if fields["op"] == "patch":
            for change in fields["changes"]:
                self._confine_change(change)
            return
        follow = fields["op"] != "remove" and fields.get("follow", True)
        self._confine_path(fields.get("path", b""), follow, fields["op"] in _ON_PATHS)
        if fields.get("spool") is not None:
            self._confine_spool(fields["spool"])

    def _confine_spool(self, path: bytes) -> None:
        try:
            self._confine_path(path, False, True)
        except (OSError, Refused) as error:
            _note_path(error, path)
            raise

    def _confine_change(self, change: Dict[str, Any]) -> None:
        # What a link leads to is read, even where the link alone is replaced.
        for path in filter(None, (change["path"], change["target"])):
            try:
                self._confine_path(path, True, True)
                self._confine_path(path, False, True)
            except (OSError, Refused) as error:
                _note_path(error, path)
                raise

    def _confine_path(self, path: bytes, follow: bool, confined: bool) -> None:
        if len(path) >= _LONGEST_PATH:
            raise OSError(errno.ENAMETOOLONG, "path too long")
        root = self.guest._config.get("confine")
        if root is None or not confined:
            return
        real = os.path.realpath(path) if follow else _real_folder(path)
        if real != root and not real.startswith(root.rstrip(b"/") + b"/"):
            raise Refused("outside")


def _places(peer: Peer, stream: int, fields: Dict[str, Any]) -> Job:
    """Say where paths lead."""
    job = Job(peer, stream)
    job.finish({"real": [_led(path, follow) for path, follow in fields["paths"]]})
    return job


def _led(path: bytes, follow: bool) -> bytes:
    real = os.path.realpath(path) if follow else _real_folder(path)
    if len(real) >= _LONGEST_PATH:
        raise OSError(errno.ENAMETOOLONG, "path too long")
    return real


def _check_places(places: Any) -> None:
    """Refuse what leads elsewhere than where the host has decided on."""
    for path, follow, real in places:
        if _led(path, follow) != real:
            raise Refused("moved", path=path)


def _message(payload: bytes) -> Dict[str, Any]:
    """Return what a host says; one that speaks nonsense is hung up on."""
    try:
        message = decode(payload)
    except ValueError:
        raise EOFError from None
    if not isinstance(message, dict):
        raise EOFError
    return message


def _kill(peer: Peer, stream: int, fields: Dict[str, Any]) -> Job:
    job = Job(peer, stream)
    command = peer.guest.commands.get(fields["id"])
    if command is None:
        job.finish()
    else:
        command.kill(job.finish)
    return job


def _command(peer: Peer, stream: int, fields: Dict[str, Any]) -> Job:
    for argument in fields["argv"]:
        if len(argument) > _LONGEST_ARGUMENT:
            raise Refused("too_long", str(len(argument)))
    command = Command(peer, fields)
    streamed = fields.get("capture") is None
    return View(peer, stream, command, command.beginning() if streamed else {})


def _attach(peer: Peer, stream: int, fields: Dict[str, Any]) -> Job:
    command = peer.guest.commands.get(fields["id"])
    if command is None or not peer.guest.keeps:
        raise Refused("missing")
    return command.shown(peer, stream, fields["stdout"], fields["stderr"])


def _running(guest: Guest) -> Iterator[bytes]:
    for command in list(guest.commands.values()):
        if command.began:
            raw = encode(command.described())
            yield len(raw).to_bytes(4, "big") + raw


def _remove(peer: Peer, stream: int, fields: Dict[str, Any]) -> Job:
    root = peer.guest._config["root"]
    # normpath keeps two slashes in front.
    path = b"/" + os.path.normpath(fields["path"]).lstrip(b"/")
    if path == b"/" or path == root or root.startswith(path + b"/"):
        raise Refused("invalid", "the workspace itself is not removed")
    return Stepped(peer, stream, remove_tree(path, fields["recursive"]))


def _dial(peer: Peer, stream: int, fields: Dict[str, Any]) -> Job:
    family = _socket.AF_INET6 if ":" in fields["host"] else _socket.AF_INET
    sock = _socket.socket(family, _socket.SOCK_STREAM)
    job = Dialled(peer, stream, sock)
    try:
        job.connect((fields["host"], fields["port"]))
    except OSError as error:
        job.fail(error)
    return job


def _scan(peer: Peer, stream: int, fields: Dict[str, Any]) -> Job:
    root = peer.guest._config["root"]
    if fields.get("pattern") is None and fields.get("ignored", True):
        return Stepped(peer, stream, scan_tree(fields, root))
    _prepare_workers(*(["hashlib"] if fields["digest"] else []))
    # No pattern, of the host's or of a file of rules, can hold up the guest.
    return Worker(
        peer,
        stream,
        lambda _reader, writer: _carried(scan_tree(fields, root), writer),
        timeout=None if fields["digest"] else _LONGEST_SCAN,
        late=_SLOW_SCAN % _LONGEST_SCAN,
    )


_SLOW_SCAN = (
    "looking for names took longer than %g s; look below a directory further down, "
    "or, if files such as .gitignore hold very many patterns, include ignored files"
)


def _prepare_workers(*modules: str) -> None:
    """Load and compile here what every worker would have to do anew."""
    import re

    for module in ("bisect", "ctypes", "heapq", *modules):
        __import__(module)
    for expression in (_SIMPLE_SETS, _BEYOND_LINES, _UNSURE):
        re.compile(expression)
    re.compile(_PARTS, re.DOTALL)


def _done(work: Any) -> Any:
    """Do a generator's work at one stroke; returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


def _carried(work: Any, writer: int) -> Dict[str, Any]:
    """Do a generator's work and write what it yields; returns its result."""
    while True:
        try:
            piece = next(work)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        if piece:
            _write_all(writer, piece)


def _search(peer: Peer, stream: int, fields: Dict[str, Any]) -> Job:
    root = peer.guest._config["root"]
    path = peer.environment({}).get("PATH", _DEFAULT_PATH.encode())
    _prepare_workers()
    return Worker(
        peer,
        stream,
        lambda _reader, writer: search_tree(fields, writer, root, path),
        timeout=fields["timeout"],
    )


_ON_PATHS = (
    "read",
    "read_lines",
    "write",
    "edit",
    "scan",
    "search",
    "remove",
    "pull",
    "push",
)

_OPERATIONS: Dict[str, Any] = {
    "spawn": _command,
    "attach": _attach,
    "running": lambda p, s, _: Stepped(p, s, _running(p.guest)),
    "kill": _kill,
    "places": _places,
    "read": lambda g, s, f: Stepped(
        g, s, read_file(f["path"], f["offset"], f["length"])
    ),
    "write": lambda g, s, f: (Appending if f.get("append") else Writing)(g, s, f),
    "read_lines": lambda g, s, f: Stepped(g, s, read_lines(f)),
    "edit": lambda g, s, f: Stepped(g, s, edit_file(f)),
    "patch": lambda g, s, f: Stepped(g, s, patch_files(f["changes"])),
    "scan": _scan,
    "search": _search,
    "remove": _remove,
    "pull": lambda g, s, f: Worker(
        g, s, lambda _reader, writer: pull_tree(f["path"], writer)
    ),
    "push": _push,
    "dial": _dial,
    "listen": Listening,
    "datagrams": Datagrams,
}


# -- relays --------------------------------------------------------------------------


class Door:
    """The daemon's socket: relays bring channels, all others are turned away.

    A relay is not the workload's user, and shows the key with its standard input
    and output. The workload can knock as often as it likes: it is told apart by
    the kernel's word, before anything is read, and only so many are looked at.
    """

    def __init__(self, guest: Guest, config: Dict[str, Any]) -> None:
        self._guest = guest
        self._key: bytes = config["key"].encode()
        self._workload: int = config["workload"]
        self._linger: float = config["linger"]
        self._alone = 0
        self._unproven: Dict[Any, float] = {}
        self._sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self._sock.bind(b"\0" + config["name"].encode())
        self._sock.listen(128)
        self._sock.setblocking(False)
        self._open()
        self._lonely()

    def _open(self) -> None:
        self._guest.loop.watch(self._sock.fileno(), _IN, self._knocked)

    def _knocked(self, _events: int) -> None:
        for _ in range(_KNOCKS):
            try:
                fd, _address = self._sock._accept()  # type: ignore[attr-defined]
            except BlockingIOError:
                return
            except OSError:
                break  # no descriptor is left
            self._look_at(_socket.socket(fileno=fd))
        # SAFETY: who floods the socket must not keep the loop from its work.
        self._guest.loop.watch(self._sock.fileno(), 0, self._knocked)
        self._guest.loop.later(_KNOCKING, self._open)

    def _look_at(self, sock: Any) -> None:
        raw = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        pid, uid, _gid = struct.unpack("iII", raw)
        # SAFETY: nothing is read of what the workload may have sent. gVisor says
        # of every peer that it is us; there the message alone tells who sends.
        if pid != os.getpid() and uid == self._workload:
            sock.close()
            return
        sock.setblocking(False)
        try:
            sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)
            sock.send(b"\0")
        except OSError:
            sock.close()
            return
        if not self._unproven:
            self._guest.loop.later(_PROOF, self._lose_patience)
        self._unproven[sock] = time.monotonic()
        self._guest.loop.watch(sock.fileno(), _IN, lambda _: self._proves(sock))
        if len(self._unproven) > _UNPROVEN:
            self._turn_away(next(iter(self._unproven)))

    def _lose_patience(self) -> None:
        before = time.monotonic() - _PROOF
        for sock, since in list(self._unproven.items()):
            if since <= before:
                self._turn_away(sock)
        if self._unproven:
            self._guest.loop.later(_PROOF / 4, self._lose_patience)

    def _turn_away(self, sock: Any) -> None:
        self._unproven.pop(sock, None)
        self._guest.loop.forget(sock.fileno())
        sock.close()

    def _proves(self, sock: Any) -> None:
        from _operator import _compare_digest

        space = _socket.CMSG_SPACE(8) + _socket.CMSG_SPACE(12)
        try:
            said, ancillary, flags, _ = sock.recvmsg(256, space, _CLOEXEC)
        except OSError:
            said, ancillary, flags = b"", [], 0
        uid = self._workload
        ends: List[int] = []
        for _level, kind, raw in ancillary:
            if kind == _socket.SCM_RIGHTS:
                ends += struct.unpack("%di" % (len(raw) // 4), raw)
            elif kind == _socket.SCM_CREDENTIALS and len(raw) == 12:
                uid = struct.unpack("iII", raw)[1]
        more = flags & (_socket.MSG_TRUNC | _socket.MSG_CTRUNC)
        proven = _compare_digest(said, self._key) and uid != self._workload
        if proven and len(ends) == 2 and not more:
            self._let_in(sock, (ends[0], ends[1]))
            return
        for end in ends:
            os.close(end)
        self._turn_away(sock)

    def _let_in(self, sock: Any, ends: Tuple[int, int]) -> None:
        del self._unproven[sock]
        peer: Optional[Peer] = None

        def lost() -> None:
            if peer in self._guest.peers:
                assert peer is not None
                peer.hang_up()
                # The relay ends by it.
                self._guest.loop.forget(sock.fileno())
                sock.close()
                self._lonely()

        peer = Peer(self._guest, ends, lost)
        self._guest.loop.watch(sock.fileno(), _IN, lambda _: lost())
        try:
            sock.send(b"\1")
        except OSError:
            lost()

    def _lonely(self) -> None:
        """End, with all that runs, unless a relay comes in time."""
        if self._guest.peers:
            return
        self._alone += 1
        alone = self._alone

        def give_up() -> None:
            if self._alone == alone and not self._guest.peers:
                self._guest.stop()

        self._guest.loop.later(self._linger, give_up)


# -- start ---------------------------------------------------------------------------


def _unsealed(paths: List[bytes]) -> List[bytes]:
    """Return the paths that are not, or no longer, read-only mounts."""
    return [path for path in paths if not _is_sealed(path)]


def _is_sealed(path: bytes) -> bool:
    # Asked of the mount: what commands put there instead has any mode, or is a
    # link to where nobody can write.
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.fstatvfs(fd).f_flag & os.ST_RDONLY:
            return True
        # gVisor tells it in its list of mounts only.
        return _listed_read_only(path, os.fstat(fd).st_dev)
    except OSError:
        return False
    finally:
        os.close(fd)


def _listed_read_only(path: bytes, device: int) -> bool:
    """Whether a mount of the device is listed as read-only at the path."""
    name = b"%d:%d" % (os.major(device), os.minor(device))
    for plain in b"\\ \t\n":
        path = path.replace(b"%c" % plain, b"\\%03o" % plain)
    with open("/proc/self/mountinfo", "rb", 0) as file:
        for line in file:
            fields = line.split()
            if fields[2] == name and fields[4] == path:
                return b"ro" in fields[5].split(b",")
    return False


def _find_shell() -> str:
    for path in ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"):
        if os.access(path, os.X_OK):
            return path
    return "/bin/sh"


def _open_oom_score() -> Optional[Tuple[int, bytes]]:
    """Open the guest's own score while it may; it is not dumpable later."""
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    return fd, os.pread(fd, 16, 0).strip()


def _set_oom_score(fd: int, score: bytes) -> None:
    try:
        os.pwrite(fd, score, 0)
    except OSError:
        pass


def _socketpair() -> Tuple[Any, Any]:
    return _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)


def _highest() -> int:
    return 65536


def _limit_self(limits: Dict[str, int]) -> None:
    try:
        _limit(limits)
    except (OSError, ValueError):
        pass


def main() -> None:
    """Take the channel from standard input and serve."""
    channel = os.dup(0)
    # Whoever started this may have left descriptors of the host open.
    os.closerange(3, channel)
    os.closerange(channel + 1, _highest())
    guest = Guest()
    _protect()
    _use_no_input()
    Peer(guest, (channel, channel), guest.stop)
    guest.serve()


def daemon() -> None:
    """Take the configuration from standard input, then serve who relays bring."""
    os.closerange(3, _highest())
    guest = Guest()
    guest.keeps = True
    # SAFETY: before there is a key here that others could read.
    _protect()
    config = decode(_exactly(0, int.from_bytes(_exactly(0, 4), "big")))
    _use_no_input()
    guest.configure(config)
    guest.expect_connections()
    Door(guest, config)
    guest.serve()


def _protect() -> None:
    # Python would end by it, also as pid 1, which else takes no signal from inside.
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    if _prctl_supported():
        _prctl(_PR_SET_DUMPABLE, 0)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        if not _subreapers():
            _NEXT_MARK["value"] = _FIRST_MARK


def _use_no_input() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


if __name__ == "__main__":
    main()
