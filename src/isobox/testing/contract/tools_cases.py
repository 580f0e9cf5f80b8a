"""What the tools are given, and exactly what they answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PNG: Final = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\6\0\0\0\x1f\x15\xc4\x89"
    b"\0\0\0\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\0\5\0\1\xff\x89\x99=\x1d"
    b"\0\0\0\0IEND\xaeB`\x82"
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call of one tool.

    Attributes:
        name: What it is about.
        tool: The tool's name.
        arguments: What it is given.
        text: What it answers; `{root}` stands for the workspace's root.
        is_error: Whether that is an error.
        files: What is there before, the oldest first; None for a directory.
        read: What the session has read before.
        changed: What others write between that and the call.
        after: What is there afterwards; None for nothing.
    """

    name: str
    tool: str
    arguments: Mapping[str, object]
    text: str
    is_error: bool = False
    files: Mapping[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    read: tuple[str, ...] = ()
    changed: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    after: Mapping[str, bytes | None] = field(default_factory=dict[str, bytes | None])


Files = Mapping[str, bytes | None]


def _read(
    name: str, content: bytes, text: str, /, *, is_error: bool = False, **more: object
) -> Case:
    """Describe a Read of one file, named `f`."""
    return Case(
        name=name,
        tool="Read",
        arguments={"file_path": "f", **more},
        text=text,
        is_error=is_error,
        files={"f": content},
    )


def _notebook(*cells: Mapping[str, object]) -> bytes:
    return json.dumps({"cells": list(cells)}).encode()


_TEN = b"".join(b"%d\n" % number for number in range(1, 11))
_CODE: Final = {
    "cell_type": "code",
    "execution_count": 3,
    "source": ["a = 1\n", "a"],
    "outputs": [{"output_type": "execute_result", "data": {"text/plain": ["1"]}}],
}
_PROSE: Final = {"cell_type": "markdown", "source": "# Title"}

READ: Final = (
    _read("lines are numbered", b"a\nb\n", "     1\ta\n     2\tb"),
    _read("one blank line", b"\n", "     1\t"),
    _read(
        "blank lines stay", b"a\n\n\nb\n", "     1\ta\n     2\t\n     3\t\n     4\tb"
    ),
    _read("an empty file", b"", "[f is empty]"),
    _read(
        "no newline at the end",
        b"a\nb",
        "     1\ta\n     2\tb\n[no newline at the end]",
    ),
    _read("tabs and spaces stay", b"\ta  b \n", "     1\t\ta  b "),
    _read("UTF-8", "é 漢 😀\n".encode(), "     1\té 漢 😀"),
    _read("a byte order mark", b"\xef\xbb\xbfa\n", "     1\ta\n[utf-8-sig]"),
    _read(
        "UTF-16, little end first",
        b"\xff\xfe" + "hé\n".encode("utf-16-le"),
        "     1\thé\n[utf-16-le]",
    ),
    _read(
        "UTF-16, big end first",
        b"\xfe\xff" + "hé\n".encode("utf-16-be"),
        "     1\thé\n[utf-16-be]",
    ),
    _read("Latin-1", b"caf\xe9\n", "     1\tcafé\n[latin-1]"),
    _read("CRLF", b"a\r\nb\r\n", "     1\ta\n     2\tb\n[CRLF line ends]"),
    _read("mixed line ends", b"a\r\nb\n", "     1\ta\n     2\tb\n[mixed line ends]"),
    _read(
        "CRLF without an end",
        b"a\r\nb",
        "     1\ta\n     2\tb\n[CRLF line ends, no newline at the end]",
    ),
    _read(
        "only LF ends a line",
        "a\x0cb\u2028c\x85d\n".encode(),
        "     1\ta\x0cb\u2028c\x85d",
    ),
    _read("an offset", _TEN, "     9\t9\n    10\t10\n[lines 9 to 10 of 10]", offset=9),
    _read(
        "a limit",
        _TEN,
        "     1\t1\n     2\t2\n[lines 1 to 2 of 10; go on with offset=3]",
        limit=2,
    ),
    _read(
        "an offset and a limit",
        _TEN,
        "     4\t4\n     5\t5\n[lines 4 to 5 of 10; go on with offset=6]",
        offset=4,
        limit=2,
    ),
    _read("the last lines", _TEN, "    10\t10\n[lines 10 to 10 of 10]", offset=-1),
    _read(
        "a limit from the end",
        _TEN,
        "     8\t8\n     9\t9\n[lines 8 to 9 of 10; go on with offset=10]",
        offset=-3,
        limit=2,
    ),
    _read("more from the end than there is", b"a\n", "     1\ta", offset=-20),
    _read(
        "beyond the end",
        _TEN,
        "offset=11 is beyond the end: f has 10 lines",
        is_error=True,
        offset=11,
    ),
    _read(
        "an offset of nothing",
        _TEN,
        "offset is 0; lines are numbered from 1, and -1 is the last one",
        is_error=True,
        offset=0,
    ),
    _read(
        "a long line is cut",
        b"x" * 2001 + b"\nshort\n",
        "     1\t" + "x" * 2000 + "\n     2\tshort\n[cut at 2,000 characters: line 1]",
    ),
    _read("a line of just the width", b"x" * 2000 + b"\n", "     1\t" + "x" * 2000),
    _read(
        "2,000 lines at most",
        b"x\n" * 2001,
        "\n".join(f"{number:6}\tx" for number in range(1, 2001))
        + "\n[lines 1 to 2,000 of 2,001; go on with offset=2001]",
    ),
    _read(
        "a binary file",
        b"\x7fELF\x02\x01\x01\0\0\0",
        "f is binary (application/x-elf, 10 bytes); look at it with Bash: file, "
        "strings, xxd",
        is_error=True,
    ),
    _read(
        "an unknown binary file",
        b"\0\1\2\3\x80\xff",
        "f is binary (application/octet-stream, 6 bytes); look at it with Bash: file, "
        "strings, xxd",
        is_error=True,
    ),
    Case(
        name="an absolute path",
        tool="Read",
        arguments={"file_path": "{root}/a/b"},
        text="     1\tx",
        files={"a/b": b"x\n"},
    ),
    Case(
        name="a path with dots",
        tool="Read",
        arguments={"file_path": "./a/../a/b"},
        text="     1\tx",
        files={"a/b": b"x\n"},
    ),
    Case(
        name="a missing file that is nearly there",
        tool="Read",
        arguments={"file_path": "src/utls.py"},
        text="src/utls.py does not exist; did you mean src/utils.py?",
        is_error=True,
        files={"src/utils.py": b"", "src/main.c": b""},
    ),
    Case(
        name="a missing file like no other",
        tool="Read",
        arguments={"file_path": "src/q"},
        text="src/q does not exist; src holds main.c, utils.py",
        is_error=True,
        files={"src/utils.py": b"", "src/main.c": b""},
    ),
    Case(
        name="a missing file in an empty directory",
        tool="Read",
        arguments={"file_path": "src/q"},
        text="src/q does not exist; its directory is empty",
        is_error=True,
        files={"src": None},
    ),
    Case(
        name="a missing directory",
        tool="Read",
        arguments={"file_path": "no/such/file"},
        text="no/such/file does not exist, nor does its directory; find it with Glob",
        is_error=True,
    ),
    Case(
        name="a directory",
        tool="Read",
        arguments={"file_path": "src"},
        text="src is a directory; name a file in it. It holds 2 names: a.py, sub/",
        is_error=True,
        files={"src/a.py": b"", "src/sub/b.py": b""},
    ),
    Case(
        name="an empty directory",
        tool="Read",
        arguments={"file_path": "src"},
        text="src is an empty directory; name a file",
        is_error=True,
        files={"src": None},
    ),
    Case(
        name="a path that climbs out",
        tool="Read",
        arguments={"file_path": "../x"},
        text="'../x' is outside the workspace; name a path below {root}",
        is_error=True,
    ),
    Case(
        name="a notebook",
        tool="Read",
        arguments={"file_path": "n.ipynb"},
        text="[cell 1: markdown]\n# Title\n"
        "[cell 2: code, In [3]]\na = 1\na\n[output]\n1",
        files={"n.ipynb": _notebook(_PROSE, _CODE)},
    ),
    Case(
        name="a notebook's last cell",
        tool="Read",
        arguments={"file_path": "n.ipynb", "offset": -1},
        text="[cell 2: markdown]\n# Title",
        files={"n.ipynb": _notebook(_CODE, _PROSE)},
    ),
    Case(
        name="beyond a notebook's end",
        tool="Read",
        arguments={"file_path": "n.ipynb", "offset": 3},
        text="offset=3 is beyond the end: n.ipynb has 2 cells",
        is_error=True,
        files={"n.ipynb": _notebook(_CODE, _PROSE)},
    ),
    Case(
        name="a notebook that is none",
        tool="Read",
        arguments={"file_path": "n.ipynb"},
        text="     1\t{",
        files={"n.ipynb": b"{\n"},
    ),
)

WRITE: Final = (
    Case(
        name="a new file",
        tool="Write",
        arguments={"file_path": "a.txt", "content": "x\ny\n"},
        text="[created a.txt: 2 lines, 4 bytes]",
        after={"a.txt": b"x\ny\n"},
    ),
    Case(
        name="an empty file",
        tool="Write",
        arguments={"file_path": "a.txt", "content": ""},
        text="[created a.txt: 0 lines, 0 bytes]",
        after={"a.txt": b""},
    ),
    Case(
        name="missing directories are made",
        tool="Write",
        arguments={"file_path": "a/b/c.txt", "content": "é"},
        text="[created a/b/c.txt: 1 line, 2 bytes]",
        after={"a/b/c.txt": "é".encode()},
    ),
    Case(
        name="a file that was read is replaced",
        tool="Write",
        arguments={"file_path": "f", "content": "a\nB\nc\n"},
        text="[replaced f: 3 lines, 6 bytes]\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c",
        files={"f": b"a\nb\nc\n"},
        read=("f",),
        after={"f": b"a\nB\nc\n"},
    ),
    Case(
        name="the same again",
        tool="Write",
        arguments={"file_path": "f", "content": "a\n"},
        text="[replaced f: 1 line, 2 bytes]",
        files={"f": b"a\n"},
        read=("f",),
        after={"f": b"a\n"},
    ),
    Case(
        name="a file that was never read is refused",
        tool="Write",
        arguments={"file_path": "f", "content": "new"},
        text="f exists and has not been read in this session; nothing was written. "
        "Read it first, or give overwrite=true to replace it unseen",
        is_error=True,
        files={"f": b"old"},
        after={"f": b"old"},
    ),
    Case(
        name="a file that was never read is replaced if told so",
        tool="Write",
        arguments={"file_path": "f", "content": "new", "overwrite": True},
        text="[wrote f: 1 line, 3 bytes]",
        files={"f": b"old"},
        after={"f": b"new"},
    ),
    Case(
        name="a file that changed is refused",
        tool="Write",
        arguments={"file_path": "f", "content": "mine"},
        text="f has changed, or is gone, since it was read; nothing was written. "
        "Read it again, or give overwrite=true to replace it",
        is_error=True,
        files={"f": b"old"},
        read=("f",),
        changed={"f": b"theirs"},
        after={"f": b"theirs"},
    ),
    Case(
        name="a file that was rewritten with what it held",
        tool="Write",
        arguments={"file_path": "f", "content": "new\n"},
        text="[replaced f: 1 line, 4 bytes]\n@@ -1,1 +1,1 @@\n-old\n+new",
        files={"f": b"old\n"},
        read=("f",),
        changed={"f": b"old\n"},
        after={"f": b"new\n"},
    ),
    Case(
        name="line ends that change are told",
        tool="Write",
        arguments={"file_path": "f", "content": "a\nb\n"},
        text="[replaced f: 2 lines, 4 bytes]\n"
        "[its lines ended with CRLF and now end with LF]",
        files={"f": b"a\r\nb\r\n"},
        read=("f",),
        after={"f": b"a\nb\n"},
    ),
    Case(
        name="line ends are written as they are given",
        tool="Write",
        arguments={"file_path": "f", "content": "a\r\nb\r\n"},
        text="[created f: 2 lines, 6 bytes]",
        after={"f": b"a\r\nb\r\n"},
    ),
    Case(
        name="an encoding that changes is told",
        tool="Write",
        arguments={"file_path": "f", "content": "a\n"},
        text="[replaced f: 1 line, 2 bytes]\n[it was utf-16-le and now is UTF-8]",
        files={"f": b"\xff\xfea\0\n\0"},
        read=("f",),
        after={"f": b"a\n"},
    ),
    Case(
        name="a directory's name",
        tool="Write",
        arguments={"file_path": "a/", "content": "x"},
        text="a/ names a directory; give a file's name",
        is_error=True,
        after={"a": None},
    ),
    Case(
        name="a directory",
        tool="Write",
        arguments={"file_path": "d", "content": "x"},
        text="d is a directory; name a file in it. It holds 1 name: f",
        is_error=True,
        files={"d/f": b""},
    ),
    Case(
        name="a path that climbs out",
        tool="Write",
        arguments={"file_path": "../x", "content": "x"},
        text="'../x' is outside the workspace; name a path below {root}",
        is_error=True,
    ),
)


def _edit(
    name: str,
    before: bytes,
    edits: list[tuple[str, str] | tuple[str, str, bool]],
    text: str,
    after: bytes,
) -> Case:
    """Describe an Edit of one file, named `f`."""
    names = ("old_string", "new_string", "replace_all")
    return Case(
        name=name,
        tool="Edit",
        arguments={
            "file_path": "f",
            "edits": [dict(zip(names, edit, strict=False)) for edit in edits],
        },
        text=text,
        is_error=before == after,
        files={"f": before},
        after={"f": after},
    )


EDIT: Final = (
    _edit(
        "one place",
        b"a\nb\nc\n",
        [("b", "B")],
        "[edited f: 1 replacement]\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c",
        b"a\nB\nc\n",
    ),
    _edit(
        "several lines",
        b"a\nb\nc\n",
        [("a\nb", "x")],
        "[edited f: 1 replacement]\n@@ -1,3 +1,2 @@\n-a\n-b\n+x\n c",
        b"x\nc\n",
    ),
    _edit(
        "every place",
        b"a b a\n",
        [("a", "x", True)],
        "[edited f: 2 replacements]\n@@ -1,1 +1,1 @@\n-a b a\n+x b x",
        b"x b x\n",
    ),
    _edit(
        "several edits, each on what the last left",
        b"a\n",
        [("a", "b"), ("b", "c")],
        "[edited f: 2 replacements]\n@@ -1,1 +1,1 @@\n-a\n+c",
        b"c\n",
    ),
    _edit(
        "a deletion",
        b"a\nb\n",
        [("b\n", "")],
        "[edited f: 1 replacement]\n@@ -1,2 +1,1 @@\n a\n-b",
        b"a\n",
    ),
    _edit(
        "CRLF is kept",
        b"a\r\nb\r\n",
        [("a\nb", "x\ny")],
        "[edited f: 1 replacement]\n@@ -1,2 +1,2 @@\n-a\n-b\n+x\n+y",
        b"x\r\ny\r\n",
    ),
    _edit(
        "a byte order mark is kept",
        b"\xef\xbb\xbfa\n",
        [("a", "b")],
        "[edited f: 1 replacement]\n@@ -1,1 +1,1 @@\n-a\n+b",
        b"\xef\xbb\xbfb\n",
    ),
    _edit(
        "UTF-16 is kept",
        b"\xff\xfe" + "aé\n".encode("utf-16-le"),
        [("é", "ü")],
        "[edited f: 1 replacement]\n@@ -1,1 +1,1 @@\n-aé\n+aü",
        b"\xff\xfe" + "aü\n".encode("utf-16-le"),
    ),
    _edit(
        "Latin-1 is kept",
        b"caf\xe9\n",
        [("é", "è")],
        "[edited f: 1 replacement]\n@@ -1,1 +1,1 @@\n-café\n+cafè",
        b"caf\xe8\n",
    ),
    Case(
        name="the same on both sides",
        tool="Edit",
        arguments={
            "file_path": "f",
            "edits": [{"old_string": "a", "new_string": "a"}],
        },
        text="Edit was not run: edits[0]: old_string and new_string are the same; give "
        "what is to stand there instead",
        is_error=True,
        files={"f": b"a\n"},
    ),
    Case(
        name="a file that changed is refused",
        tool="Edit",
        arguments={
            "file_path": "f",
            "edits": [{"old_string": "a", "new_string": "b"}],
        },
        text="f has changed since it was read; nothing was edited. Read it again, then "
        "edit it as it is now",
        is_error=True,
        files={"f": b"a\n"},
        read=("f",),
        changed={"f": b"a\nmore\n"},
        after={"f": b"a\nmore\n"},
    ),
    Case(
        name="a missing file",
        tool="Edit",
        arguments={
            "file_path": "ff",
            "edits": [{"old_string": "a", "new_string": "b"}],
        },
        text="ff does not exist; did you mean f?",
        is_error=True,
        files={"f": b"a\n"},
    ),
    Case(
        name="a directory",
        tool="Edit",
        arguments={
            "file_path": "d",
            "edits": [{"old_string": "a", "new_string": "b"}],
        },
        text="d is an empty directory; name a file",
        is_error=True,
        files={"d": None},
    ),
)

TREE: Final[Files] = {
    "README.md": b"# Read me\n",
    "src/a.py": b"import os\n\n\ndef f():\n    return 1\n",
    "src/b.py": b"import os\nimport sys\n",
    "src/deep/c.py": b"x = 1\n",
    "src/deep/d.txt": b"import nothing\n",
    "test_a.py": b"from src import a\n",
}


def _glob(name: str, text: str, /, files: Files = TREE, **arguments: object) -> Case:
    return Case(name=name, tool="Glob", arguments=arguments, text=text, files=files)


GLOB: Final = (
    _glob("in one directory", "test_a.py", pattern="*.py"),
    _glob(
        "at any depth, the newest first",
        "test_a.py\nsrc/deep/c.py\nsrc/b.py\nsrc/a.py",
        pattern="**/*.py",
    ),
    _glob("below a directory", "src/b.py\nsrc/a.py", pattern="src/*.py"),
    _glob("with a path", "src/b.py\nsrc/a.py", pattern="*.py", path="src"),
    _glob("with ./", "test_a.py", pattern="./*.py"),
    _glob(
        "alternatives",
        "src/deep/d.txt\nREADME.md",
        pattern="**/*.{md,txt}",
    ),
    _glob("a set of characters", "src/b.py\nsrc/a.py", pattern="src/[ab].py"),
    _glob("one character", "src/b.py\nsrc/a.py", pattern="src/?.py"),
    _glob("a name", "README.md", pattern="README.md"),
    _glob("an absolute pattern", "src/b.py\nsrc/a.py", pattern="{root}/src/*.py"),
    _glob("an absolute name", "src/a.py", pattern="{root}/src/a.py"),
    _glob(
        "a limit",
        "test_a.py\nsrc/deep/c.py\n[there are more; go on with offset=2]",
        pattern="**/*.py",
        limit=2,
    ),
    _glob(
        "a limit and an offset",
        "src/b.py\nsrc/a.py",
        pattern="**/*.py",
        limit=2,
        offset=2,
    ),
    _glob(
        "an offset beyond the end",
        "[no more than 9 files match **/*.py]",
        pattern="**/*.py",
        offset=9,
    ),
    _glob(
        "nothing here, perhaps below",
        "[no file matches *.txt in . itself; **/*.txt looks below it too, "
        "include_ignored=true looks at ignored files too]",
        pattern="*.txt",
    ),
    _glob(
        "nothing here, ignored or not",
        "[no file matches *.txt in . itself; **/*.txt looks below it too]",
        pattern="*.txt",
        include_ignored=True,
    ),
    _glob(
        "a set without its end",
        "[no file matches [a, which is malformed: a [ without its ]]",
        pattern="[a",
    ),
    _glob("a file with a bracket in its name", "[a", {"[a": b""}, pattern="[a"),
    _glob(
        "nothing at all",
        "[no file matches **/*.rs; include_ignored=true looks at ignored files too]",
        pattern="**/*.rs",
    ),
    _glob(
        "nothing at all, ignored or not",
        "[no file matches **/*.rs]",
        pattern="**/*.rs",
        include_ignored=True,
    ),
    _glob(
        "directories are no files",
        "src/deep/d.txt\nsrc/deep/c.py",
        pattern="src/deep/**",
    ),
    Case(
        name="a pattern that climbs",
        tool="Glob",
        arguments={"pattern": "../*.py"},
        text='pattern holds ".."; give the directory to search as path',
        is_error=True,
    ),
    Case(
        name="a path that is missing",
        tool="Glob",
        arguments={"pattern": "*.py", "path": "sr"},
        text="sr does not exist; did you mean src?",
        is_error=True,
        files={"src/a.py": b""},
    ),
    Case(
        name="a path that climbs out",
        tool="Glob",
        arguments={"pattern": "*", "path": ".."},
        text="'..' is outside the workspace; name a path below {root}",
        is_error=True,
    ),
)


def _grep(name: str, text: str, /, files: Files = TREE, **arguments: object) -> Case:
    return Case(name=name, tool="Grep", arguments=arguments, text=text, files=files)


_NO_MATCH: Final = "include_ignored=true searches ignored files too"
_LINES: Final[Files] = {"f": b"1\n2\nx\n4\n5\n6\n7\n8\nx\nx\n11\n12\n"}
GREP: Final = (
    _grep(
        "lines by file",
        "src/a.py\n1:import os\n\nsrc/b.py\n1:import os\n2:import sys\n\n"
        "src/deep/d.txt\n1:import nothing\n\ntest_a.py\n1:from src import a",
        pattern="import",
    ),
    _grep(
        "a regular expression",
        "src/b.py\n1:import os\n2:import sys",
        pattern=r"^import \w{2,3}$",
        path="src/b.py",
    ),
    _grep("a file", "src/a.py\n4:def f():", pattern="def", path="src/a.py"),
    _grep("a directory", "src/deep/c.py\n1:x = 1", pattern="x =", path="src/deep"),
    _grep("an absolute path", "src/a.py\n4:def f():", pattern="def", path="{root}/src"),
    _grep(
        "files that match",
        "src/a.py\nsrc/b.py\nsrc/deep/d.txt\ntest_a.py",
        pattern="import",
        output_mode="files",
    ),
    _grep(
        "how often files match",
        "src/a.py:1\nsrc/b.py:2\nsrc/deep/d.txt:1\ntest_a.py:1",
        pattern="import",
        output_mode="count",
    ),
    _grep(
        "a glob for names",
        "src/deep/d.txt\n1:import nothing",
        pattern="import",
        glob="*.txt",
    ),
    _grep(
        "a glob for paths",
        "src/a.py\nsrc/b.py",
        pattern="import",
        glob="src/*.py",
        output_mode="files",
    ),
    _grep(
        "a type",
        "src/a.py\nsrc/b.py\ntest_a.py",
        pattern="import",
        type="py",
        output_mode="files",
    ),
    _grep(
        "small and capital", "README.md\n1:# Read me", pattern="READ", ignore_case=True
    ),
    _grep("plain text", "src/a.py\n4:def f():", pattern="f():", literal=True),
    _grep(
        "context",
        "f\n2-2\n3:x\n4-4\n--\n8-8\n9:x\n10:x\n11-11",
        _LINES,
        pattern="x",
        context=1,
    ),
    _grep("lines before", "f\n1-1\n2:2", _LINES, pattern="^2$", before=3),
    _grep("lines after", "f\n2:2\n3-x", _LINES, pattern="^2$", after=1),
    _grep(
        "context that meets",
        "f\n1-1\n2-2\n3:x\n4-4\n5-5\n6-6\n7-7\n8-8\n9:x\n10:x\n11-11\n12-12",
        _LINES,
        pattern="x",
        context=3,
    ),
    _grep(
        "across lines",
        "src/a.py\n4:def f():\n5:    return 1",
        pattern=r"def f.*?return 1",
        multiline=True,
    ),
    _grep(
        "a limit",
        "src/a.py\n1:import os\n\nsrc/b.py\n1:import os\n"
        "[there may be more; go on with offset=2]",
        pattern="import",
        limit=2,
    ),
    _grep(
        "a limit and an offset",
        "src/b.py\n2:import sys\n\nsrc/deep/d.txt\n1:import nothing\n"
        "[there may be more; go on with offset=4]",
        pattern="import",
        limit=2,
        offset=2,
    ),
    _grep(
        "an offset beyond the end",
        "[no more than 9 matches]",
        pattern="import",
        offset=9,
    ),
    _grep(
        "no match",
        f"[no match in 6 files searched; {_NO_MATCH}]",
        pattern="zebra",
    ),
    _grep(
        "no match, ignored or not",
        "[no match in 6 files searched]",
        pattern="zebra",
        include_ignored=True,
    ),
    _grep(
        "a glob with a set without its end",
        "[no match in 0 files searched; glob [a is malformed: a [ without its ]]",
        pattern="import",
        glob="[a",
    ),
    Case(
        name="a newline in a pattern for lines",
        tool="Grep",
        arguments={"pattern": "a\nb"},
        text="pattern holds a newline, which no line does; give multiline=true to "
        "match across lines",
        is_error=True,
        files={"f": b"a\nb\n"},
    ),
    _grep(
        "a newline in a pattern across lines",
        "f\n1:a\n2:b",
        {"f": b"a\nb\n"},
        pattern="a\nb",
        multiline=True,
    ),
    _grep("CRLF is no part of a line", "f\n1:ab", {"f": b"ab\r\n"}, pattern="b$"),
    _grep(
        "binary files are passed over",
        "f\n1:match",
        {"f": b"match\n", "g": b"match\0\n"},
        pattern="match",
    ),
    _grep(
        "a long line is cut",
        "f\n1:" + "x" * 500 + "...",
        {"f": b"x" * 1000 + b"\n"},
        pattern="x+",
    ),
    Case(
        name="a path that is missing",
        tool="Grep",
        arguments={"pattern": "x", "path": "sr"},
        text="sr does not exist; did you mean src?",
        is_error=True,
        files={"src/a.py": b""},
    ),
)

IGNORED_FILES: Final[Files] = {
    ".gitignore": b"*.log\n/build/\n",
    "a.log": b"word\n",
    "build/out.txt": b"word\n",
    "kept.txt": b"word\n",
    "src/build/in.txt": b"word\n",
}
IGNORED: Final = (
    _glob(
        "ignored files are left out",
        "src/build/in.txt\nkept.txt",
        IGNORED_FILES,
        pattern="**/*.{txt,log}",
    ),
    _glob(
        "ignored files are shown if told so",
        "src/build/in.txt\nkept.txt\nbuild/out.txt\na.log",
        IGNORED_FILES,
        pattern="**/*.{txt,log}",
        include_ignored=True,
    ),
    _grep(
        "ignored files are not searched",
        "kept.txt\nsrc/build/in.txt",
        IGNORED_FILES,
        pattern="word",
        output_mode="files",
    ),
    _grep(
        "ignored files are searched if told so",
        "a.log\nbuild/out.txt\nkept.txt\nsrc/build/in.txt",
        IGNORED_FILES,
        pattern="word",
        output_mode="files",
        include_ignored=True,
    ),
)

PATCH: Final = (
    Case(
        name="a unified diff",
        tool="ApplyPatch",
        arguments={"patch": "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+B\n"},
        text="[wrote f]",
        files={"f": b"a\nb\n"},
        after={"f": b"a\nB\n"},
    ),
    Case(
        name="a new file and a removed one",
        tool="ApplyPatch",
        arguments={
            "patch": "--- /dev/null\n+++ b/new\n@@ -0,0 +1,1 @@\n+x\n"
            "--- a/old\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-y\n"
        },
        text="[wrote new]\n[removed old]",
        files={"old": b"y\n"},
        after={"new": b"x\n", "old": None},
    ),
    Case(
        name="a patch of the other kind",
        tool="ApplyPatch",
        arguments={
            "patch": "*** Begin Patch\n*** Add File: d/new\n+x\n*** Update File: f\n"
            "@@\n a\n-b\n+B\n*** Delete File: old\n*** End Patch\n"
        },
        text="[wrote d/new]\n[wrote f]\n[removed old]",
        files={"f": b"a\nb\n", "old": b"y\n"},
        after={"d/new": b"x\n", "f": b"a\nB\n", "old": None},
    ),
    Case(
        name="a file that moves",
        tool="ApplyPatch",
        arguments={
            "patch": "*** Begin Patch\n*** Update File: f\n*** Move to: g\n"
            "@@\n-a\n+A\n*** End Patch\n"
        },
        text="[wrote g]\n[removed f]",
        files={"f": b"a\n"},
        after={"f": None, "g": b"A\n"},
    ),
)

_PATCH_OF_NOTHING: Final = (
    "*** Begin Patch\n*** Update File: {}\n@@\n-a\n+A\n*** End Patch\n"
)
PATCH_REFUSED: Final = (
    Case(
        name="a file that is missing",
        tool="ApplyPatch",
        arguments={"patch": _PATCH_OF_NOTHING.format("src/utls.py")},
        text="src/utls.py does not exist; did you mean src/utils.py?",
        is_error=True,
        files={"src/utils.py": b"a\n"},
        after={"src/utils.py": b"a\n"},
    ),
    Case(
        name="a file that is like no other",
        tool="ApplyPatch",
        arguments={"patch": "--- a/src/q\n+++ b/src/q\n@@ -1 +1 @@\n-a\n+b\n"},
        text="src/q does not exist; src holds utils.py",
        is_error=True,
        files={"src/utils.py": b"a\n"},
    ),
    Case(
        name="a directory's name",
        tool="ApplyPatch",
        arguments={"patch": "*** Begin Patch\n*** Add File: a/\n+x\n*** End Patch\n"},
        text="the patch: 'a/' names a directory; give a file's name",
        is_error=True,
        after={"a": None},
    ),
)

#: Tools by name, and arguments that they refuse; nothing must be needed to see it.
_FEW: Final = "file_path, offset, limit"
REFUSED: Final[tuple[tuple[str, Mapping[str, object], str], ...]] = (
    ("Bash", {}, "command is missing; give a script, or restart=true"),
    (
        "Bash",
        {"restart": False},
        "command is missing; give a script, or restart=true",
    ),
    (
        "Bash",
        {"run_in_background": True, "restart": True},
        "command is missing; give the script to run in the background",
    ),
    (
        "Bash",
        {"command": "cat", "stdin": True},
        (
            "stdin=true needs run_in_background=true; to give a command some input, "
            "write it in the script: command <<'END'"
        ),
    ),
    (
        "Bash",
        {"command": "a\0b"},
        "command holds a NUL character; write \\0 in a printf instead",
    ),
    ("Bash", {"command": 7}, "command: 7 is no string; give a string"),
    ("Bash", {"command": ["ls"]}, "command: a list is no string; give a string"),
    (
        "Bash",
        {"command": "ls", "timeout": 601},
        "timeout: 601 is out of range; give a number from 0.1 to 600",
    ),
    (
        "Bash",
        {"command": "ls", "timeout": 0},
        "timeout: 0 is out of range; give a number from 0.1 to 600",
    ),
    (
        "Bash",
        {"command": "ls", "timeout": "fast"},
        'timeout: "fast" is no number; give a number from 0.1 to 600',
    ),
    (
        "Bash",
        {"command": "ls", "restart": "no"},
        'restart: "no" is no boolean; give true or false',
    ),
    (
        "Bash",
        {"cmd": "ls"},
        (
            "cmd: there is no such argument; did you mean command? there are command, "
            "timeout, separate_streams, run_in_background, stdin, restart"
        ),
    ),
    (
        "Read",
        {},
        (
            "file_path: is missing; The file, relative to the workspace's directory or "
            "absolute."
        ),
    ),
    ("Read", {"file_path": ""}, 'file_path: "" is empty; give some text'),
    ("Read", {"file_path": 1}, "file_path: 1 is no string; give a string"),
    (
        "Read",
        {"file_path": "f", "offset": "1"},
        'offset: "1" is no whole number; give a whole number',
    ),
    (
        "Read",
        {"file_path": "f", "offset": 1.5},
        (
            "offset: 1.5 is no whole number; give a whole number from "
            "-9007199254740991 to 9007199254740991"
        ),
    ),
    (
        "Read",
        {"file_path": "f", "limit": 0},
        "limit: 0 is out of range; give a whole number from 1 to 2000",
    ),
    (
        "Read",
        {"file_path": "f", "limit": 2001},
        "limit: 2001 is out of range; give a whole number from 1 to 2000",
    ),
    (
        "Read",
        {"file_path": "f", "limit": True},
        "limit: true is no whole number; give a whole number from 1 to 2000",
    ),
    (
        "Read",
        {"file_path": "f", "limt": 3},
        f"limt: there is no such argument; did you mean limit? there are {_FEW}",
    ),
    (
        "Read",
        {"file_path": "f", "xyz": 3},
        f"xyz: there is no such argument; there are {_FEW}",
    ),
    ("Read", {"file_path": "a\0b"}, "the path holds a NUL byte: 'a\\x00b'"),
    (
        "Write",
        {"file_path": "f"},
        "content: is missing; All that the file is to hold; UTF-8.",
    ),
    (
        "Write",
        {"file_path": "f", "content": 1},
        "content: 1 is no string; give a string",
    ),
    (
        "Write",
        {"file_path": "f", "content": "\ud800"},
        (
            "content: character 0 is half of a surrogate pair; give whole Unicode "
            "characters"
        ),
    ),
    (
        "Write",
        {"file_path": "f", "content": "", "overwrite": 1},
        "overwrite: 1 is no boolean; give true or false",
    ),
    ("Edit", {"file_path": "f", "edits": []}, "edits: holds 0; give 1 to 100"),
    (
        "Edit",
        {"file_path": "f", "edits": "x"},
        'edits: "x" is no list; give a list of objects',
    ),
    (
        "Edit",
        {"file_path": "f", "edits": [7]},
        "edits[0]: 7 is no object; give one with named fields",
    ),
    (
        "Edit",
        {"file_path": "f", "edits": [{"old_string": "", "new_string": "x"}]},
        'edits[0].old_string: "" is empty; give some text',
    ),
    (
        "Edit",
        {"file_path": "f", "edits": [{"old_string": "x"}]},
        "edits[0].new_string: is missing; Text to put there.",
    ),
    (
        "Edit",
        {"file_path": "f", "edits": [{"old": "x", "old_string": "", "new_string": ""}]},
        (
            "edits[0].old: there is no such argument; there are old_string, "
            "new_string, replace_all"
        ),
    ),
    ("Glob", {"pattern": ""}, 'pattern: "" is empty; give some text'),
    (
        "Glob",
        {"pattern": "*", "limit": 1001},
        "limit: 1001 is out of range; give a whole number from 1 to 1000",
    ),
    (
        "Glob",
        {"pattern": "*", "offset": -1},
        "offset: -1 is out of range; give a whole number from 0 to 9007199254740991",
    ),
    (
        "Grep",
        {"pattern": "x", "output_mode": "lines"},
        'output_mode: "lines" is not allowed; give one of "content", "files", "count"',
    ),
    (
        "Grep",
        {"pattern": "x", "context": 51},
        "context: 51 is out of range; give a whole number from 0 to 50",
    ),
    ("Grep", {"pattern": ["x"]}, "pattern: a list is no string; give a string"),
    ("Grep", {"pattern": "x", "glob": 1}, "glob: 1 is no string; give a string"),
    (
        "BashOutput",
        {"job_id": "job-1"},
        "there is no job 'job-1'; none was started in this session",
    ),
    (
        "BashOutput",
        {"job_id": "job-1", "wait": 601},
        "wait: 601 is out of range; give a number from 0 to 600",
    ),
    (
        "BashInput",
        {"job_id": "job-1", "text": "x"},
        "there is no job 'job-1'; none was started in this session",
    ),
    (
        "BashInput",
        {"job_id": "job-1"},
        "text is missing; give what the command is to read, or end=true",
    ),
    (
        "BashInput",
        {"job_id": "job-1", "text": "", "end": False},
        "text is missing; give what the command is to read, or end=true",
    ),
    (
        "BashInput",
        {"job_id": "job-1", "end": True},
        "there is no job 'job-1'; none was started in this session",
    ),
    (
        "Edit",
        {"file_path": "f/", "edits": [{"old_string": "x", "new_string": "y"}]},
        "f/ names a directory; give a file's name",
    ),
    (
        "BashKill",
        {"job_id": "job-1"},
        "there is no job 'job-1'; none was started in this session",
    ),
    (
        "BashKill",
        {"job_id": "job-1", "signal": "SIGKILL"},
        (
            'signal: "SIGKILL" is not allowed; give one of "KILL", "TERM", "INT", '
            '"HUP", "QUIT", "USR1", "USR2"'
        ),
    ),
    ("ApplyPatch", {"patch": ""}, 'patch: "" is empty; give some text'),
)

#: Scripts for Bash, one after another in one shell, and what it answers.
BASH: Final[tuple[tuple[str, Mapping[str, object], str], ...]] = (
    ("output and status", {"command": "echo hi"}, "hi\n[exit code 0]"),
    ("a failure", {"command": "echo hi; (exit 3)"}, "hi\n[exit code 3]"),
    ("nothing printed", {"command": "true"}, "[no output]\n[exit code 0]"),
    (
        "both streams in order",
        {"command": "echo 1; echo 2 >&2; echo 3"},
        "1\n2\n3\n[exit code 0]",
    ),
    (
        "separate streams",
        {"command": "echo 1; echo 2 >&2; echo 3", "separate_streams": True},
        "1\n3\n[standard error]\n2\n[exit code 0]",
    ),
    (
        "only errors",
        {"command": "echo 2 >&2", "separate_streams": True},
        "[standard error]\n2\n[exit code 0]",
    ),
    ("no line end", {"command": "printf abc"}, "abc\n[exit code 0]"),
    ("an empty script", {"command": " "}, "[no output]\n[exit code 0]"),
    ("a comment", {"command": "echo a # b"}, "a\n[exit code 0]"),
    ("several lines", {"command": "echo a\necho b\n"}, "a\nb\n[exit code 0]"),
    ("quotes", {"command": 'echo "it\'s" \'a "b"\''}, 'it\'s a "b"\n[exit code 0]'),
    (
        "a here-document",
        {"command": "cat <<'END'\n$x `y` \\\nEND"},
        "$x `y` \\\n[exit code 0]",
    ),
    ("Unicode", {"command": "echo é漢😀"}, "é漢😀\n[exit code 0]"),
    ("bytes that are no text", {"command": r"printf '\377'"}, "\ufffd\n[exit code 0]"),
    ("a NUL", {"command": r"printf 'a\000b'"}, "a\\x00b\n[exit code 0]"),
    ("arrays are bash's", {"command": "a=(1 2); echo ${a[1]}"}, "2\n[exit code 0]"),
    ("standard input is at its end", {"command": "cat"}, "[no output]\n[exit code 0]"),
    (
        "a signal within",
        {"command": "sh -c 'kill -TERM $$'"},
        "Terminated\n[exit code 143: 128 + 15, SIGTERM]",
    ),
    (
        "the directory at first",
        {"command": "pwd"},
        "{root}\n[exit code 0]",
    ),
    (
        "a new shell",
        {"restart": True},
        "[a new shell begins in {root}]",
    ),
)

#: Scripts for one shell, in turn; each sees what the ones before left.
STATE: Final[tuple[tuple[Mapping[str, object], str], ...]] = (
    (
        {"command": "mkdir -p a/b; cd a/b; x=1; export y=2; f() { echo f $1; }"},
        "[no output]\n[exit code 0]",
    ),
    ({"command": "echo ${PWD#{root}/} $x $y; f z"}, "a/b 1 2\nf z\n[exit code 0]"),
    ({"command": "printenv y; printenv x"}, "2\n[exit code 1]"),
    ({"command": "exec 2>/dev/null; echo found"}, "found\n[exit code 0]"),
    ({"command": "echo found >&2"}, "found\n[exit code 0]"),
    ({"command": "unset x; echo [$x]"}, "[]\n[exit code 0]"),
    (
        {"command": "exit 4"},
        (
            "[no output]\n[exit code 4]\n"
            "[the shell ended with it; the next command finds a new one in {root}]"
        ),
    ),
    ({"command": "echo [$y] ${PWD#{root}}"}, "[]\n[exit code 0]"),
    (
        {"command": "kill -KILL $$"},
        (
            "[no output]\n[killed by SIGKILL; exit code 137]\n"
            "[the shell ended with it; the next command finds a new one in {root}]"
        ),
    ),
    ({"command": "cd /; z=3"}, "[no output]\n[exit code 0]"),
    ({"command": "echo [$z]; pwd", "restart": True}, "[]\n{root}\n[exit code 0]"),
)
