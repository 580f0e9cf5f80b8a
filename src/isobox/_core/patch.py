"""Patches as text, read into changes of files: unified diffs and Codex's format."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

PatchFormat = Literal["unified", "codex"]

_LONGEST: Final = 8 << 20
_MOST_FILES: Final = 1000
_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_MODES = {"100644": 0o644, "100755": 0o755}
_ESCAPE = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that follow one another in a file, and what becomes of them.

    Attributes:
        body: Each after its sign: a space for what stays, `-` for what goes,
            `+` for what comes.
        line: Number of the first old line, or of the line before if there is
            no old line; None searches from the hunk before.
        anchors: Lines that stand somewhere before it, one after another.
        at_end: Its old lines are the last of the file.
        newline: Whether the last line has an end afterwards, where the hunk
            reaches it; None leaves that as it is.
    """

    body: tuple[str, ...]
    line: int | None = None
    anchors: tuple[str, ...] = ()
    at_end: bool = False
    newline: bool | None = None


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a patch does to one file.

    Attributes:
        path: The file; absolute inside the sandbox once it is resolved.
        kind: `add` makes it, which must not exist; `update` and `delete` need
            it to be there.
        hunks: In the order of the file. Those of `add` make its content; those
            of `delete` must hold all of it, or there are none.
        target: The file's new path, where it moves.
        mode: Permission bits afterwards; None keeps them, 0o644 for a new file.
    """

    path: str
    kind: Literal["add", "update", "delete"]
    hunks: tuple[Hunk, ...] = ()
    target: str | None = None
    mode: int | None = None

    def resolved(self, resolve: Callable[[str], str]) -> FileChange:
        """Return the change with its paths as `resolve` gives them."""
        target = None if self.target is None else resolve(self.target)
        return replace(self, path=resolve(self.path), target=target)


def parse(text: str, format: PatchFormat | None = None) -> tuple[FileChange, ...]:  # noqa: A002 - the settled signature
    """Return the changes that a patch asks for.

    Args:
        text: The patch, of at most 8 MiB.
        format: `unified` or `codex`; None looks at the first line.

    Raises:
        InvalidArgumentError: It is no patch, or asks for what cannot be done;
            the message names the line.
    """
    if len(text) > _LONGEST:
        raise InvalidArgumentError("the patch is over 8 MiB; send it in parts")
    # A patch that came through a form or a terminal has CRLF everywhere.
    if "\n" in text and text.count("\n") == text.count("\r\n"):
        text = text.replace("\r\n", "\n")
    if format is None:
        format = "codex" if text.lstrip().startswith(_BEGIN) else "unified"  # noqa: A001 - the settled signature
    lines = text.removesuffix("\n").split("\n")
    changes = _codex(lines) if format == "codex" else _unified(lines)
    if not changes:
        raise InvalidArgumentError(
            "the text holds no patch; give a unified diff (`--- a/file`, "
            f"`+++ b/file`, `@@ ...`), or `{_BEGIN}` ... `{_END}`"
        )
    if len(changes) > _MOST_FILES:
        raise InvalidArgumentError(f"the patch changes over {_MOST_FILES} files")
    for name in (name for each in changes for name in (each.path, each.target)):
        if name and name.endswith("/"):
            raise InvalidArgumentError(
                f"the patch: {name!r} names a directory; give a file's name"
            )
    return tuple(changes)


def _refuse(index: int, message: str) -> NoReturn:
    raise InvalidArgumentError(f"line {index + 1} of the patch: {message}")


# -- unified diffs -------------------------------------------------------------------


@dataclass(slots=True)
class _Section:
    """What is known of one file while its part of a diff is read."""

    index: int
    old: str | None = None
    new: str | None = None
    added: bool = False
    deleted: bool = False
    renamed: bool = False
    named: bool = False
    mode: int | None = None
    hunks: list[Hunk] = field(default_factory=list[Hunk])

    def change(self) -> FileChange:
        hunks = tuple(self.hunks)
        if self.added or (self.named and self.old is None):
            return FileChange(self._known(self.new), "add", hunks, mode=self.mode)
        if self.deleted or (self.named and self.new is None):
            return FileChange(self._known(self.old), "delete", hunks)
        if self.renamed:
            return FileChange(
                self._known(self.old), "update", hunks, self._known(self.new), self.mode
            )
        return FileChange(self._known(self.new), "update", hunks, mode=self.mode)

    def _known(self, name: str | None) -> str:
        if not name:
            _refuse(self.index, "no file is named")
        return name


def _unified(lines: list[str]) -> list[FileChange]:
    sections: list[_Section] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("diff --git "):
            sections.append(_git_section(at, line))
        elif _names_files(lines, at):
            if not sections or sections[-1].named or sections[-1].hunks:
                sections.append(_Section(at))
            _name(sections[-1], lines, at)
            at += 1
        elif line.startswith("@@"):
            if not sections or not sections[-1].named:
                _refuse(at, "a hunk before `--- a/file` and `+++ b/file`")
            hunk, at = _hunk(lines, at)
            sections[-1].hunks.append(hunk)
            continue
        elif sections and not sections[-1].hunks:
            _extend(sections[-1], line, at)
        at += 1
    return [section.change() for section in sections]


def _names_files(lines: list[str], at: int) -> bool:
    return (
        lines[at].startswith("--- ")
        and at + 1 < len(lines)
        and lines[at + 1].startswith("+++ ")
    )


def _git_section(at: int, line: str) -> _Section:
    names = line.removeprefix("diff --git ")
    half = len(names) // 2
    halves = (names[:half], names[half + 1 :])
    if all(_QUOTED.fullmatch(name) for name in halves):
        halves = (_unquoted(halves[0], at), _unquoted(halves[1], at))
    old, new = (name.partition("/")[2] for name in halves)
    if old != new:
        return _Section(at)  # a rename; the lines that follow name both
    return _Section(at, old=old or None, new=old or None)


def _name(section: _Section, lines: list[str], at: int) -> None:
    old = _unquoted(lines[at][4:], at)
    new = _unquoted(lines[at + 1][4:], at + 1)
    bare = ("/dev/null",)
    prefixed = (old.startswith("a/") or old in bare) and (
        new.startswith("b/") or new in bare
    )
    section.named = True
    section.old, section.new = (
        None if name in bare else name[2:] if prefixed else name for name in (old, new)
    )


def _unquoted(name: str, at: int) -> str:
    """Return a name as git or diff write it: quoted like C, or with a time."""
    if not name.startswith('"'):
        return name.partition("\t")[0].rstrip("\r")
    end = _QUOTED.match(name)
    if end is None:
        _refuse(at, f"a name whose quotes do not end: {name[:80]}")
    raw = end[1].encode("utf-8", "surrogateescape").decode("latin-1")
    plain = _ESCAPE.sub(_unescaped, raw)
    return plain.encode("latin-1").decode("utf-8", "surrogateescape")


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) == 3:
        return chr(int(code, 8) & 0xFF)
    return chr(_ESCAPES[code]) if code in _ESCAPES else code


def _extend(section: _Section, line: str, at: int) -> None:
    words, _, value = line.rpartition(" ")
    if words in ("new file mode", "new mode", "deleted file mode"):
        section.added = section.added or words == "new file mode"
        section.deleted = section.deleted or words == "deleted file mode"
        section.mode = _mode(value, at)
    elif line.startswith("rename from "):
        section.renamed = True
        section.old = _unquoted(line[12:], at)
    elif line.startswith("rename to "):
        section.renamed = True
        section.new = _unquoted(line[10:], at)
    elif line.startswith("copy from "):
        _refuse(at, "copies are not supported; add the file with its content")
    elif line.startswith(("GIT binary patch", "Binary files ")):
        _refuse(at, "binary files cannot be patched; write them")


def _mode(value: str, at: int) -> int:
    if value not in _MODES:
        _refuse(
            at, f"mode {value[:20]} is not supported; 100644 and 100755 are (no links)"
        )
    return _MODES[value]


def _hunk(lines: list[str], at: int) -> tuple[Hunk, int]:
    header = _HUNK.match(lines[at])
    if header is None and not re.fullmatch(r"@@(?: .*)?", lines[at]):
        _refuse(at, "a hunk begins with `@@ -line,count +line,count @@`")
    counts = header and [int(header[2] or 1), int(header[4] or 1)]
    start = at
    at += 1
    body: list[str] = []
    ends = {" ": False, "-": False, "+": False}
    while at < len(lines) and not _ends_hunk(lines, at, counts):
        line = lines[at] or " "
        if line[0] == "\\":
            if body:
                ends[body[-1][0]] = True
        else:
            body.append(line)
            _counted(counts, line[0])
        at += 1
    if not body:
        _refuse(start, "a hunk without lines")
    hunk = Hunk(
        tuple(body),
        None if header is None else int(header[1]),
        at_end=ends[" "] or ends["-"],
        newline=_newline(ends),
    )
    return hunk, at


def _counted(counts: list[int] | None, sign: str) -> None:
    if counts is not None:
        counts[0] -= sign != "+"
        counts[1] -= sign != "-"


def _newline(ends: dict[str, bool]) -> bool | None:
    if ends["+"] or ends[" "]:
        return False
    return True if ends["-"] else None


def _ends_hunk(lines: list[str], at: int, counts: list[int] | None) -> bool:
    """Whether a line is none of the hunk, whose header may have counted wrong."""
    line = lines[at]
    complete = counts is not None and max(counts) <= 0
    if not line:
        return complete or not any(lines[at:])
    if line[0] not in " +-\\" or (complete and line == "-- "):
        return True
    # `--- x` may be a line that goes: `-- x` in SQL or Lua.
    begins = _names_files(lines, at) and lines[at + 2 : at + 3] != []
    return begins and (complete or lines[at + 2].startswith("@@"))


# -- Codex's format ------------------------------------------------------------------

_SIGNS = "a line of a hunk begins with a space, `+` or `-`; others with `@@` or `***`"


def _codex(lines: list[str]) -> list[FileChange]:
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines[first].strip() != _BEGIN:
        _refuse(first, f"the patch begins with `{_BEGIN}`")
    changes: list[FileChange] = []
    at = first + 1
    while at < len(lines) and lines[at].strip() != _END:
        verb, _, name = lines[at].strip().partition(": ")
        if not lines[at].strip():
            at += 1
        elif verb == "*** Add File":
            change, at = _codex_add(lines, at + 1, name)
            changes.append(change)
        elif verb == "*** Delete File":
            changes.append(FileChange(name, "delete"))
            at += 1
        elif verb == "*** Update File":
            change, at = _codex_update(lines, at + 1, name)
            changes.append(change)
        else:
            _refuse(
                at,
                "expected `*** Add File: `, `*** Update File: `, "
                f"`*** Delete File: ` or `{_END}`",
            )
    if at >= len(lines):
        _refuse(len(lines) - 1, f"the patch does not end with `{_END}`")
    if any(line.strip() for line in lines[at + 1 :]):
        _refuse(at + 1, f"there is more after `{_END}`")
    return changes


def _codex_add(lines: list[str], at: int, name: str) -> tuple[FileChange, int]:
    body: list[str] = []
    while at < len(lines) and not lines[at].startswith("***"):
        if lines[at].startswith("+"):
            body.append(lines[at])
        elif lines[at].strip():
            _refuse(at, "every line of a file to add begins with `+`")
        at += 1
    hunks = (Hunk(tuple(body), 0, newline=True),) if body else ()
    return FileChange(name, "add", hunks), at


def _codex_update(lines: list[str], at: int, name: str) -> tuple[FileChange, int]:
    target: str | None = None
    if at < len(lines) and lines[at].startswith("*** Move to: "):
        target = lines[at].partition(": ")[2].strip()
        at += 1
    hunks: list[Hunk] = []
    while at < len(lines):
        if lines[at].startswith("*** ") or not any(lines[at:]):
            break
        hunk, at = _codex_hunk(lines, at)
        hunks.append(hunk)
    if not hunks and target is None:
        _refuse(at - 1, f"nothing is to be changed in {name!r}; give a hunk after it")
    return FileChange(name, "update", tuple(hunks), target), at


def _codex_hunk(lines: list[str], at: int) -> tuple[Hunk, int]:
    start = at
    anchors: list[str] = []
    while at < len(lines) and lines[at].startswith("@@"):
        anchor = "" if _HUNK.match(lines[at]) else lines[at][2:].removeprefix(" ")
        anchors += [anchor] if anchor.strip() else []
        at += 1
    body: list[str] = []
    at_end = False
    while at < len(lines) and not lines[at].startswith(("@@", "***")):
        line = lines[at] or " "
        if line[0] not in " +-":
            _refuse(at, _SIGNS)
        body.append(line)
        at += 1
    if at < len(lines) and lines[at].strip() == "*** End of File":
        at_end = True
        at += 1
    if not body:
        _refuse(start, "a hunk without lines")
    return Hunk(tuple(body), None, tuple(anchors), at_end), at
