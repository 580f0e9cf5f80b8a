"""What the tools of an agent are made of: each is one operation."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from isobox.errors import (
    EditMismatchError,
    InvalidArgumentError,
    NotRegularFileError,
    PathExistsError,
    PathIsDirectoryError,
    PathMissingError,
    PathOutsideError,
)
from isobox.testing.contract._base import SOON, Contract, Factory, names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from isobox import Entry, Match, Matches, WorkspaceBase

_PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
_TEN = "".join(f"line {number}\n" for number in range(1, 11))
_TREE = {
    ".gitignore": "*.log\nbuild/\n!kept.log\n/only-top\n",
    ".hidden": "needle",
    "a.py": "needle\n",
    "b.log": "needle",
    "kept.log": "needle",
    "build/c.py": "needle",
    "only-top": "needle",
    "src/.gitignore": "!d.log\n*.tmp",
    "src/d.log": "needle",
    "src/e.tmp": "needle",
    "src/only-top": "needle",
    "src/f.py": "one\nneedle two needle\nneedle\n",
    "src/.ignore": "g.py",
    "src/g.py": "needle",
    ".git/config": "needle",
}
_NOT_IGNORED = [
    ".gitignore",
    ".hidden",
    "a.py",
    "kept.log",
    "src/.gitignore",
    "src/.ignore",
    "src/d.log",
    "src/f.py",
    "src/only-top",
]


async def _make(workspace: WorkspaceBase, files: Mapping[str, str]) -> None:
    for path, content in files.items():
        await workspace.write(path, content)


def _paths(
    workspace: WorkspaceBase, found: Iterable[Entry] | Iterable[Match]
) -> list[str]:
    return [each.path.removeprefix(f"{workspace.root}/") for each in found]


async def _contents(workspace: WorkspaceBase) -> dict[str, bytes]:
    listing = await workspace.scan(depth=None)
    return {
        entry.path.removeprefix(f"{workspace.root}/"): await workspace.read_bytes(
            entry.path
        )
        for entry in listing.entries
        if entry.is_file
    }


class ReadLinesContract(Contract):
    """Reading lines."""

    @pytest.mark.parametrize(
        ("start", "count", "expected", "first"),
        [
            (1, 2000, _TEN.splitlines(), 1),
            (1, 2, ["line 1", "line 2"], 1),
            (9, 5, ["line 9", "line 10"], 9),
            (11, 5, [], 11),
            (500, 5, [], 500),
            (-2, 5, ["line 9", "line 10"], 9),
            (-2, 1, ["line 9"], 9),
            (-10, 1, ["line 1"], 1),
            (-50, 1, ["line 1"], 1),
            (5, 0, [], 5),
        ],
    )
    async def test_lines_are_chosen(
        self,
        workspace: WorkspaceBase,
        start: int,
        count: int,
        expected: list[str],
        first: int,
    ) -> None:
        await workspace.write("file", _TEN)
        page = await workspace.read_lines("file", start=start, count=count)
        assert list(page.lines) == expected
        assert (page.first, page.total) == (first, 10)

    @pytest.mark.parametrize(
        ("content", "lines", "encoding", "newline", "final"),
        [
            (b"", [], "utf-8", "", False),
            (b"\n", [""], "utf-8", "\n", True),
            (b"a", ["a"], "utf-8", "", False),
            (b"a\nb", ["a", "b"], "utf-8", "\n", False),
            (b"a\r\nb\r\n", ["a", "b"], "utf-8", "\r\n", True),
            (b"a\r\nb\n", ["a", "b"], "utf-8", "mixed", True),
            (b"a\rb\n", ["a\rb"], "utf-8", "\n", True),
            (b"a\x0cb\x0bc\n", ["a\x0cb\x0bc"], "utf-8", "\n", True),
            ("a\u2028b\x85c\n".encode(), ["a\u2028b\x85c"], "utf-8", "\n", True),
            ("grüße 🎉\n".encode(), ["grüße 🎉"], "utf-8", "\n", True),
            ("é\n".encode("utf-8-sig"), ["é"], "utf-8-sig", "\n", True),
            (b"caf\xe9\nb", ["café", "b"], "latin-1", "\n", False),
            ("a\né\n".encode("utf-16"), ["a", "é"], "utf-16-le", "\n", True),
            (
                b"\xfe\xff" + "a\r\n🎉".encode("utf-16-be"),
                ["a", "🎉"],
                "utf-16-be",
                "\r\n",
                False,
            ),
            ("plain\nx\n".encode("utf-16-le"), ["plain", "x"], "utf-16-le", "\n", True),
            (b"\x1b[31mred\x1b[0m\n", ["\x1b[31mred\x1b[0m"], "utf-8", "\n", True),
        ],
    )
    async def test_a_text_is_decoded(
        self,
        workspace: WorkspaceBase,
        content: bytes,
        lines: list[str],
        encoding: str,
        newline: str,
        final: bool,
    ) -> None:
        await workspace.write("file", content)
        page = await workspace.read_lines("file")
        assert list(page.lines) == lines
        assert (page.total, page.media_type) == (len(lines), "text/plain")
        assert (page.encoding, page.newline) == (encoding, newline)
        assert page.final_newline == final
        assert page.entry.digest == hashlib.sha256(content).hexdigest()
        assert page.entry.size == len(content)

    @pytest.mark.parametrize(
        ("content", "media_type", "has_data"),
        [
            (_PNG, "image/png", True),
            (b"\xff\xd8\xff\xe0" + bytes(50), "image/jpeg", True),
            (b"GIF89a....", "image/gif", True),
            (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp", True),
            (_PNG + bytes(6 << 20), "image/png", False),
            (b"%PDF-1.7\nall plain", "application/pdf", False),
            (b"PK\x03\x04" + bytes(50), "application/zip", False),
            (b"\x7fELF" + bytes(50), "application/x-elf", False),
            (b"text\0and more", "application/octet-stream", False),
            (b"\xff\x01\x02", "application/octet-stream", False),
        ],
    )
    async def test_what_is_no_text_is_told(
        self,
        workspace: WorkspaceBase,
        content: bytes,
        media_type: str,
        has_data: bool,
    ) -> None:
        await workspace.write("file", content)
        page = await workspace.read_lines("file")
        assert (page.media_type, page.lines, page.total) == (media_type, (), 0)
        assert page.data == (content if has_data else None)
        assert page.entry.digest == hashlib.sha256(content).hexdigest()

    @pytest.mark.parametrize(
        ("content", "lines", "clipped"),
        [
            ("abcde\nabcdef\n", ["abcde", "abcde"], (2,)),
            ("abcde\r\nabcdef\r\n", ["abcde", "abcde"], (2,)),
            ("abcdef", ["abcde"], (1,)),
            ("ééééé\néééééé", ["ééééé", "ééééé"], (2,)),
            ("x" * 1_500_000 + "\nab\r\n", ["xxxxx", "ab"], (1,)),
        ],
    )
    async def test_long_lines_are_clipped(
        self,
        workspace: WorkspaceBase,
        content: str,
        lines: list[str],
        clipped: tuple[int, ...],
    ) -> None:
        await workspace.write("file", content)
        page = await workspace.read_lines("file", width=5)
        assert (list(page.lines), page.clipped) == (lines, clipped)

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
    async def test_every_line_of_a_large_file_is_where_it_is(
        self, workspace: WorkspaceBase, encoding: str
    ) -> None:
        text = "".join(f"{number} é\r\n" for number in range(150_000))
        await workspace.write("file", text.encode(encoding))
        for start in (1, 74_000, 149_999, -150_000, -1):
            page = await workspace.read_lines("file", start=start, count=2)
            first = start if start > 0 else 150_001 + start
            wanted = range(first - 1, min(first + 1, 150_000))
            assert page.lines == tuple(f"{number} é" for number in wanted)
            assert (page.total, page.newline) == (150_000, "\r\n")

    async def test_a_line_without_end_costs_no_memory(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"x" * (20 << 20) + b"\nlast")
        page = await workspace.read_lines("file", width=10)
        assert page.lines == ("x" * 10, "last")
        assert (await workspace.read_lines("file", start=-1)).lines == ("last",)

    async def test_line_0_is_refused(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(InvalidArgumentError):
            await workspace.read_lines("file", start=0)

    async def test_only_files_have_lines(self, workspace: WorkspaceBase) -> None:
        await workspace.run(["mkdir", "directory"], check=True)
        await workspace.run(["mkfifo", "fifo"], check=True)
        with pytest.raises(PathMissingError):
            await workspace.read_lines("missing")
        with pytest.raises(PathIsDirectoryError):
            await workspace.read_lines("directory")
        with anyio.fail_after(SOON), pytest.raises(NotRegularFileError):
            await workspace.read_lines("fifo")


class EditTextContract(Contract):
    """Editing text, whatever its form."""

    @pytest.mark.parametrize(
        ("content", "old", "new", "expected"),
        [
            (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
            (b"a\r\nb\r\n", "\nb", "\nB", b"a\r\nB\r\n"),
            (b"a\r\nb\r\n", "b", "b\nc", b"a\r\nb\r\nc\r\n"),
            (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
            (b"a\nb\r\nc\n", "b\nc", "x\ny", b"a\nx\r\ny\n"),
            (b"a\nb", "b", "c", b"a\nc"),
            (b"a\n", "a\n", "", b""),
            ("\ufeffa é".encode(), "a", "b", "\ufeffb é".encode()),
            ("a é\n".encode("utf-16"), "é", "ü", "a ü\n".encode("utf-16")),
            (b"caf\xe9", "café", "th\xe9", b"th\xe9"),
            (b"caf\xe9 x", "x", "ü", b"caf\xe9 \xfc"),
            (b"\0one\xff", "one", "é", b"\0\xc3\xa9\xff"),
        ],
    )
    async def test_the_form_stays(
        self,
        workspace: WorkspaceBase,
        content: bytes,
        old: str,
        new: str,
        expected: bytes,
    ) -> None:
        await workspace.write("file", content, mode=0o755)
        edited = await workspace.edit("file", old, new)
        assert await workspace.read_bytes("file") == expected
        assert (edited.replacements, edited.entry.mode) == (1, 0o755)
        assert edited.entry.digest == hashlib.sha256(expected).hexdigest()

    async def test_each_edit_sees_the_ones_before(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", "one two\n")
        edited = await workspace.edit_all("file", [("one", "two"), ("two two", "2 2")])
        assert await workspace.read_text("file") == "2 2\n"
        assert edited.replacements == 2

    async def test_all_edits_are_made_or_none(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", "one two\n")
        with pytest.raises(EditMismatchError, match="text 2"):
            await workspace.edit_all("file", [("one", "1"), ("three", "3")])
        assert await workspace.read_text("file") == "one two\n"

    async def test_a_mismatch_shows_what_is_closest(
        self, workspace: WorkspaceBase
    ) -> None:
        text = "import os\n\ndef total(items):\n    return sum(items)\n\nprint(1)\n"
        await workspace.write("file.py", text)
        with pytest.raises(EditMismatchError) as caught:
            await workspace.edit(
                "file.py", "def total(item):\n    return sum(item)", ""
            )
        assert "     3\tdef total(items):\n     4\t    return" in str(caught.value)
        with pytest.raises(EditMismatchError, match="white space alone"):
            await workspace.edit(
                "file.py", "def total(items):\n  return sum(items)", ""
            )
        with pytest.raises(EditMismatchError, match="Nothing in the file is like it"):
            await workspace.edit("file.py", "zebra crossing", "")

    async def test_an_ambiguous_text_tells_its_lines(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", "x\ny\nx\nx\n")
        with pytest.raises(EditMismatchError, match=r"3 times .*lines 1, 3, 4"):
            await workspace.edit("file", "x", "z")

    async def test_what_changed_is_told(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", _TEN)
        edited = await workspace.edit("file", "line 5\n", "line five\nmore\n")
        assert edited.line == 5
        assert edited.diff.splitlines() == [
            f"--- {workspace.root}/file",
            f"+++ {workspace.root}/file",
            "@@ -2,7 +2,8 @@",
            " line 2",
            " line 3",
            " line 4",
            "-line 5",
            "+line five",
            "+more",
            " line 6",
            " line 7",
            " line 8",
        ]

    async def test_a_difference_can_be_applied(self, workspace: WorkspaceBase) -> None:
        text = "".join(f"{'x' if n % 7 == 0 else n}\n" for n in range(60)) + "x"
        await workspace.write("file", text)
        edited = await workspace.edit("file", "x", "y\nz", replace_all=True)
        after = await workspace.read_text("file")
        await workspace.write("file", text)
        await workspace.apply_patch(edited.diff)
        assert await workspace.read_text("file") == after

    async def test_a_character_that_the_encoding_lacks_is_refused(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"caf\xe9")
        with pytest.raises(InvalidArgumentError, match="latin-1"):
            await workspace.edit("file", "caf", "→")
        assert await workspace.read_bytes("file") == b"caf\xe9"


class GlobOptionsContract(Contract):
    """Finding files, but not all."""

    async def test_ignored_files_can_be_left_out(
        self, workspace: WorkspaceBase
    ) -> None:
        await _make(workspace, _TREE)
        listing = await workspace.glob("**", ignored=False, files_only=True)
        assert _paths(workspace, listing.entries) == _NOT_IGNORED
        every = await workspace.glob("**", files_only=True)
        assert _paths(workspace, every.entries) == sorted(_TREE)

    async def test_rules_from_above_hold_below(self, workspace: WorkspaceBase) -> None:
        await _make(workspace, _TREE)
        listing = await workspace.glob("*", path="src", ignored=False)
        assert _paths(workspace, listing.entries) == [
            path for path in _NOT_IGNORED if path.startswith("src/")
        ]

    async def test_the_newest_come_first(self, workspace: WorkspaceBase) -> None:
        for name in ("b", "c", "a"):
            await workspace.write(name, "")
            await anyio.sleep(0.02)  # times of files are coarse
        listing = await workspace.glob("*", newest=True, limit=2)
        assert (_paths(workspace, listing.entries), listing.truncated) == (
            ["a", "c"],
            True,
        )
        assert listing.total == 3
        rest = await workspace.glob("*", newest=True, offset=2)
        assert (_paths(workspace, rest.entries), rest.truncated) == (["b"], False)

    async def test_pages_follow_one_another(self, workspace: WorkspaceBase) -> None:
        await _make(workspace, {f"{n % 3}/{n}": "" for n in range(20)})
        everything = _paths(workspace, (await workspace.glob("**")).entries)
        pages: list[str] = []
        for offset in range(0, 23, 5):
            page = await workspace.glob("**", limit=5, offset=offset)
            pages += _paths(workspace, page.entries)
            assert page.truncated == (offset + 5 < 23)
        assert pages == everything == sorted(everything)
        assert (await workspace.glob("**", offset=20)).total == 23

    @pytest.mark.parametrize(
        ("pattern", "path"),
        [("{root}/src/*.py", "."), ("./src/*.py", "."), ("*.py", "src")],
    )
    async def test_a_pattern_may_have_a_directory(
        self, workspace: WorkspaceBase, pattern: str, path: str
    ) -> None:
        await _make(workspace, {"src/a.py": "", "b.py": ""})
        found = await workspace.glob(pattern.format(root=workspace.root), path=path)
        assert _paths(workspace, found.entries) == ["src/a.py"]

    async def test_a_pattern_does_not_leave(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(PathOutsideError):
            await workspace.glob("../*")


class GrepOptionsContract(Contract):
    """Finding lines, but not all."""

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"ignored": False}, [p for p in _NOT_IGNORED if not p.endswith("ignore")]),
            ({"hidden": False, "glob": "*"}, ["a.py", "b.log", "kept.log", "only-top"]),
            ({"types": ["py"]}, ["a.py", "build/c.py", "src/f.py", "src/g.py"]),
            ({"types": ["py"], "ignored": False}, ["a.py", "src/f.py"]),
            ({"types": ["py"], "glob": "src/**"}, ["src/f.py", "src/g.py"]),
            (
                {"types": ["py", "log"], "path": "src"},
                ["src/d.log", "src/f.py", "src/g.py"],
            ),
            ({"limit": 2}, [".git/config", ".hidden"]),
            ({"limit": 2, "offset": 1}, [".hidden", "a.py"]),
        ],
    )
    async def test_files_are_chosen(
        self, workspace: WorkspaceBase, options: dict[str, object], expected: list[str]
    ) -> None:
        await _make(workspace, _TREE)
        found = await workspace.grep("needle", mode="files", **options)  # type: ignore[arg-type]
        assert _paths(workspace, found.matches) == expected
        assert {(m.line, m.text) for m in found.matches} == {(0, "")}
        assert found.truncated == ("limit" in options)

    async def test_matches_are_counted(self, workspace: WorkspaceBase) -> None:
        await _make(workspace, _TREE)
        found = await workspace.grep("needle", mode="count", types=["py"], path="src")
        assert [match.count for match in found.matches] == [2, 1]

    async def test_context_may_be_lopsided(self, workspace: WorkspaceBase) -> None:
        await workspace.write("file", _TEN)
        (match,) = (await workspace.grep("line 5", before=1, after=2)).matches
        assert match.before == ("line 4",)
        assert match.after == ("line 6", "line 7")

    @pytest.mark.parametrize(
        ("pattern", "line", "text"),
        [
            (r"two\nthree", 2, "two\nthree"),
            (r"one.*three", 1, "one\ntwo\nthree"),
            (r"two\n", 2, "two"),
            (r"^three$", 3, "three"),
            (r"four\Z", 4, "four"),
        ],
    )
    @pytest.mark.parametrize("newline", ["\n", "\r\n"])
    async def test_a_match_may_have_many_lines(
        self, workspace: WorkspaceBase, pattern: str, line: int, text: str, newline: str
    ) -> None:
        await workspace.write("file", newline.join(["one", "two", "three", "four"]))
        (match,) = (await workspace.grep(pattern, multiline=True)).matches
        assert (match.line, match.text) == (line, text)

    @pytest.mark.parametrize(
        ("pattern", "lines"),
        [
            ("", [1, 2, 3]),
            ("$", [1, 2, 3]),
            ("^$", [2]),
            ("x*", [1, 2, 3]),
            (r"\Aa", [1]),
            (r"c\Z", [3]),
            (r"(?!\s)$", [1, 2, 3]),
            (r"[^b]$", [1, 3]),
            (r"a\s", []),
            (r"(a)|\1c", [1]),
            (r"(?i)A", [1]),
        ],
    )
    async def test_an_expression_sees_one_line(
        self, workspace: WorkspaceBase, pattern: str, lines: list[int]
    ) -> None:
        for name, content in (("lf", "a\n\nc\n"), ("crlf", "a\r\n\r\nc"), ("e", "")):
            await workspace.write(name, content)
        found = await workspace.grep(pattern)
        for name in ("lf", "crlf"):
            of_file = [m.line for m in found.matches if m.path.endswith(f"/{name}")]
            assert of_file == lines
        assert not any(match.path.endswith("/e") for match in found.matches)

    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
    async def test_marked_encodings_are_searched(
        self, workspace: WorkspaceBase, encoding: str
    ) -> None:
        await workspace.write("file", "é one\ntwo\n".encode(encoding))
        (match,) = (await workspace.grep("^é")).matches
        assert (match.line, match.text) == (1, "é one")

    async def test_no_such_type_is_refused(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(InvalidArgumentError, match="did you mean"):
            await workspace.grep("x", types=["pyhton"])


_PATTERNS = (
    "needle",
    r"needle|straw 7",
    r"n.*d.*e",
    r"ne+dle\b",
    r"need[a-z]e$",
    r"^é",
    r"needle\s*\w$",
    r"(?=n)needle",
    r"[[:alpha:]]+z",
    "",
)
_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"literal": True},
    {"ignore_case": True},
    {"mode": "count"},
    {"mode": "files", "limit": 3, "offset": 1},
    {"ignored": False},
    {"hidden": False},
    {"glob": "**/*.{py,txt}"},
    {"types": ["py"], "ignored": False},
    {"path": "d"},
    {"path": "d", "ignored": False},
    {"before": 1, "after": 1},
    {"limit": 4},
)
_ODD: dict[str, bytes] = {
    ".gitignore": b"*.log\n/d/no/\n",
    "d/.ignore": b"!yes.log\n*.tmp\n",
    "d/yes.log": b"needle\n",
    "d/no.tmp": b"needle\n",
    "d/no/file.py": b"needle\n",
    "no.log": b"needle\n",
    ".hidden/file.txt": b"needle\n",
    ".git/file.py": b"needle\n",
    "crlf.txt": b"x\r\nneedle\r\nNEEDLE z\r\n",
    "utf8.txt": b"\xef\xbb\xbf\xc3\xa9 needle\n",
    "utf16.txt": "é needle\n".encode("utf-16"),
    "latin.txt": b"needle \xe9\n",
    "binary.py": b"needle\n" + b"x" * 100_000 + b"\0",
    "empty.py": b"",
    "two\nlines.py": b"needle\n",
    "last.py": b"one\nneedle",
}


class GrepManyFilesContract(Contract):
    """Trees that are large enough for ripgrep."""

    @pytest.mark.requires("posix_shell")
    async def test_ripgrep_changes_no_result(self, fresh_workspace: Factory) -> None:
        ours = await fresh_workspace(env={"PATH": "/nonexistent"})
        theirs = await fresh_workspace()
        for workspace in (ours, theirs):
            await workspace.apply_patch(_many_files())
            for path, content in _ODD.items():
                await workspace.write(path, content)
        for pattern in _PATTERNS:
            for options in _OPTIONS:
                expected, found = [
                    _told(workspace, await workspace.grep(pattern, **options))
                    for workspace in (ours, theirs)
                ]
                assert found == expected, (pattern, options)


def _many_files() -> str:
    files = (
        f"*** Add File: {'d' if n % 2 else 'e'}/{n % 7}/{n}.{'py' if n % 3 else 'c'}\n"
        f"+hay\n+{'needle' if n % 50 == 0 else 'straw'} {n}\n"
        for n in range(400)
    )
    return f"*** Begin Patch\n{''.join(files)}*** End Patch\n"


def _told(workspace: WorkspaceBase, found: Matches) -> tuple[object, ...]:
    matches = [
        replace(match, path=match.path.removeprefix(workspace.root))
        for match in found.matches
    ]
    # How many files were searched before a limit is nobody's business.
    files = None if found.truncated else found.files
    return matches, found.truncated, files, found.skipped


class PatchContract(Contract):
    """Applying patches."""

    async def test_files_are_added_changed_moved_and_deleted(
        self, workspace: WorkspaceBase
    ) -> None:
        await _make(
            workspace, {"a.txt": _TEN, "b.txt": "one\ntwo\n", "c.txt": "gone\n"}
        )
        patched = await workspace.apply_patch(
            "*** Begin Patch\n"
            "*** Add File: new/file.txt\n+first\n+\n+third\n"
            "*** Update File: a.txt\n@@ line 4\n line 5\n-line 6\n+line six\n"
            "@@\n line 10\n+line 11\n*** End of File\n"
            "*** Update File: b.txt\n*** Move to: moved/b.txt\n@@\n-one\n+1\n two\n"
            "*** Delete File: c.txt\n"
            "*** End Patch\n"
        )
        assert await _contents(workspace) == {
            "a.txt": _TEN.replace("6", "six").encode() + b"line 11\n",
            "moved/b.txt": b"1\ntwo\n",
            "new/file.txt": b"first\n\nthird\n",
        }
        root = workspace.root
        assert {entry.path for entry in patched.written} == {
            f"{root}/a.txt",
            f"{root}/moved/b.txt",
            f"{root}/new/file.txt",
        }
        assert set(patched.removed) == {f"{root}/b.txt", f"{root}/c.txt"}

    async def test_git_diffs_are_applied(self, workspace: WorkspaceBase) -> None:
        await _make(workspace, {"a.txt": _TEN, "old": "x\n", "tool": "y\n", "c": "z"})
        await workspace.apply_patch(
            "From a mail\n\ndiff --git a/a.txt b/a.txt\nindex 1..2 100644\n"
            "--- a/a.txt\n+++ b/a.txt\n"
            "@@ -1,3 +1,4 @@ section\n+line 0\n line 1\n line 2\n line 3\n"
            "@@ -9,2 +10,2 @@\n line 9\n-line 10\n+line ten\n"
            "\\ No newline at end of file\n"
            "diff --git a/old b/new name\nsimilarity index 100%\n"
            "rename from old\nrename to new name\n"
            "diff --git a/tool b/tool\nold mode 100644\nnew mode 100755\n"
            "diff --git a/c b/c\ndeleted file mode 100644\n--- a/c\n+++ /dev/null\n"
            "@@ -1 +0,0 @@\n-z\n\\ No newline at end of file\n"
            'diff --git "a/\\303\\251" "b/\\303\\251"\nnew file mode 100755\n'
            '--- /dev/null\n+++ "b/\\303\\251"\n@@ -0,0 +1 @@\n+new\n-- \n2.39.5\n'
        )
        assert await _contents(workspace) == {
            "a.txt": b"line 0\n" + _TEN.replace("line 10\n", "line ten").encode(),
            "new name": b"x\n",
            "tool": b"y\n",
            "é": b"new\n",
        }
        assert (await workspace.stat("tool")).mode == 0o755
        assert (await workspace.stat("é")).mode == 0o755

    @pytest.mark.parametrize(
        ("content", "hunk", "expected"),
        [
            (
                _TEN,
                "@@ -7,2 +7,2 @@\n line 4\n-line 5\n+5",
                _TEN.replace("line 5", "5"),
            ),
            (
                _TEN,
                "@@ -9,9 +9,9 @@\n line 4\n-line 5\n+5",
                _TEN.replace("line 5", "5"),
            ),
            (_TEN, "@@\n line 4\n-line 5\n+5", _TEN.replace("line 5", "5")),
            ("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c", "a\r\nc\r\n"),
            ("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c", "a\r\nc"),
            ("a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n+c", "a\nc"),
            (
                "a\nb",
                "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b",
                "a\nb\n",
            ),
            ("\ufeffa\nb\n", "@@ -1,2 +1,2 @@\n-a\n+c\n b", "\ufeffc\nb\n"),
            ("x\nx\nx\n", "@@ -2,1 +2,1 @@\n-x\n+y", "x\ny\nx\n"),
            ("a\nc\n", "@@ -1,0 +2,1 @@\n+b", "a\nb\nc\n"),
            ("-- a\n", "@@ -1,1 +1,1 @@\n--- a\n+++ b", "++ b\n"),
            ("a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+c", "a\n\nc\n"),
        ],
    )
    async def test_a_hunk_finds_its_place(
        self, workspace: WorkspaceBase, content: str, hunk: str, expected: str
    ) -> None:
        await workspace.write("file", content)
        await workspace.apply_patch(f"--- a/file\n+++ b/file\n{hunk}\n")
        text = (await workspace.read_bytes("file")).decode()
        assert text.rstrip("\r\n") == expected.rstrip("\r\n")
        assert text.endswith("\n") == expected.endswith("\n") or "\r" in hunk

    @pytest.mark.parametrize(
        ("change", "error"),
        [
            ("*** Update File: a\n@@\n-absent\n+x\n", EditMismatchError),
            ("*** Update File: a\n@@ nowhere\n-one\n+x\n", EditMismatchError),
            ("*** Update File: a\n@@\n-one\n*** End of File\n", EditMismatchError),
            ("*** Update File: missing\n@@\n-one\n+x\n", PathMissingError),
            ("*** Delete File: missing\n", PathMissingError),
            ("*** Delete File: folder\n", PathIsDirectoryError),
            ("*** Delete File: fifo\n", NotRegularFileError),
            ("*** Add File: a\n+x\n", PathExistsError),
            ("*** Update File: a\n*** Move to: b\n@@\n-one\n+x\n", PathExistsError),
            ("*** Add File: a/below\n+x\n", OSError),
        ],
    )
    async def test_nothing_is_done_unless_all_is(
        self, workspace: WorkspaceBase, change: str, error: type[Exception]
    ) -> None:
        await _make(workspace, {"a": "one\ntwo\n", "b": "b\n", "folder/c": "c\n"})
        await workspace.run(["mkfifo", "fifo"], check=True)
        before = await _contents(workspace)
        with anyio.fail_after(SOON), pytest.raises(error):
            await workspace.apply_patch(
                "*** Begin Patch\n*** Update File: b\n@@\n-b\n+B\n"
                f"*** Add File: deep/er/new\n+n\n*** Delete File: folder/c\n{change}"
                "*** End Patch\n"
            )
        assert await _contents(workspace) == before
        assert "deep" not in await names(workspace)

    async def test_a_mismatch_names_file_hunk_and_lines(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", _TEN)
        with pytest.raises(EditMismatchError) as caught:
            await workspace.apply_patch(
                "--- a/file\n+++ b/file\n@@ -1 +1 @@\n-line 1\n+1\n"
                "@@ -5,2 +5,2 @@\n line 5\n-lime 6\n+6\n"
            )
        assert f"{workspace.root}/file" in str(caught.value)
        assert "hunk 2" in str(caught.value)
        assert "     6\tline 6" in str(caught.value)

    @pytest.mark.parametrize("path", ["../outside", "a/../../outside"])
    async def test_a_patch_does_not_leave(
        self, workspace: WorkspaceBase, path: str
    ) -> None:
        with pytest.raises(PathOutsideError):
            await workspace.apply_patch(
                f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
            )

    async def test_a_mode_and_a_link_stay(self, workspace: WorkspaceBase) -> None:
        await workspace.write("tool", "one\n", mode=0o755)
        await workspace.run(["ln", "-s", "tool", "link"], check=True)
        await workspace.apply_patch(
            "*** Begin Patch\n*** Update File: link\n@@\n-one\n+two\n*** End Patch\n"
        )
        assert await workspace.read_text("tool") == "two\n"
        assert (await workspace.stat("tool")).mode == 0o755
        assert (await workspace.stat("link", follow=False)).kind == "symlink"

    async def test_one_file_may_change_twice(self, workspace: WorkspaceBase) -> None:
        await workspace.write("a", "one\n")
        await workspace.apply_patch(
            "*** Begin Patch\n*** Update File: a\n@@\n-one\n+two\n"
            "*** Update File: a\n*** Move to: b\n@@\n-two\n+three\n"
            "*** Add File: a\n+new\n*** End Patch\n"
        )
        assert await _contents(workspace) == {"a": b"new\n", "b": b"three\n"}

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "no patch"),
            ("some words", "no patch"),
            ("*** Begin Patch\n*** End Patch", "no patch"),
            ("*** Begin Patch\n*** Add File: a\n+x", "does not end"),
            ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch", "line 3"),
            ("*** Begin Patch\n*** Update File: a\n*** End Patch", "nothing is to be"),
            ("*** Begin Patch\nwhat\n*** End Patch", "line 2"),
            ("@@ -1 +1 @@\n-a\n+b", "line 1"),
            ("--- a/a\n+++ b/a\n@@ -1 +1 @@\n", "without lines"),
            ("diff --git a/a b/a\nnew file mode 120000\n", "120000"),
            ("diff --git a/a b/a\nGIT binary patch\n", "binary"),
            ("diff --git a/a b/b\ncopy from a\ncopy to b\n", "copies"),
        ],
    )
    async def test_what_is_no_patch_is_refused(
        self, workspace: WorkspaceBase, text: str, message: str
    ) -> None:
        with pytest.raises(InvalidArgumentError, match=message):
            await workspace.apply_patch(text)


class ToolsOpsContract(
    ReadLinesContract,
    EditTextContract,
    GlobOptionsContract,
    GrepOptionsContract,
    GrepManyFilesContract,
    PatchContract,
):
    """What the tools of an agent are made of."""
