"""Whatever the size of what a caller passes: an error, and the sandbox goes on."""

from __future__ import annotations

import pytest

from isobox import BubblewrapWorkspace, LocalWorkspace, Policy, Rule, abc
from isobox._core.patch import FileChange, Hunk
from isobox.errors import (
    InvalidArgumentError,
    PathError,
    PathOutsideError,
    StorageError,
    UnsupportedError,
)

pytestmark = pytest.mark.anyio

KINDS = {"local": LocalWorkspace, "bubblewrap": BubblewrapWorkspace}
#: Longer than any frame, and half a surrogate pair, which cannot be sent.
BIG = "x" * (17 << 20)
HALF = "\ud800"
WIDE = "\u1234" * (6 << 20)
DEEP = "/".join(["d" * 250] * 4)


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def change(ws, path, *lines):
    return FileChange(f"{ws.root}/{path}", "add", (Hunk(tuple(lines)),))


def spawn(ws, **fields):
    return abc.Spawn(**{"argv": ("true",), "cwd": ws.root, **fields})


TEXTS = {
    "argument": lambda ws, text: ws.run(["echo", text]),
    "arguments": lambda ws, text: ws.run(["echo", *[text[:100_000]] * 50, text]),
    "variable": lambda ws, text: ws.run("true", env={"A": text}),
    "variables": lambda ws, text: ws.run(
        "true", env={f"A{n}": text[:100_000] for n in range(50)} | {"B": text}
    ),
    "name of a variable": lambda ws, text: ws.run("true", env={text: "a"}),
    "an op's argument": lambda ws, text: ws._do(spawn(ws, argv=("echo", text))),
    "an op's variable": lambda ws, text: ws._do(spawn(ws, env={"A": text})),
    "an op's directory": lambda ws, text: ws._do(spawn(ws, cwd=text)),
    "script": lambda ws, text: ws.run(f"# {text}"),
    "directory": lambda ws, text: ws.run("true", cwd=text),
    "spool": lambda ws, text: ws.run("true", spool=text),
    "start": lambda ws, text: ws.start(["echo", text]),
    "read": lambda ws, text: ws.read_bytes(text),
    "lines": lambda ws, text: ws.read_lines(text),
    "write": lambda ws, text: ws.write(text, b"x"),
    "condition": lambda ws, text: ws.write("a", b"x", if_match=text),
    "edit": lambda ws, text: ws.edit("a", text, "b"),
    "edit to": lambda ws, text: ws.edit("a", "b", text),
    "patch": lambda ws, text: ws.apply_patch(
        f"*** Begin Patch\n*** Add File: a\n+{text}\n*** End Patch"
    ),
    "an op's patch": lambda ws, text: ws._do(
        abc.Patch(changes=(change(ws, "a", f"+{text}"),))
    ),
    "scan": lambda ws, text: ws.scan(text),
    "glob": lambda ws, text: ws.glob(text),
    "grep": lambda ws, text: ws.grep(text),
    "grep in": lambda ws, text: ws.grep("x", path=text),
    "grep of": lambda ws, text: ws.grep("x", glob=text),
    "remove": lambda ws, text: ws.remove(text),
    "upload": lambda ws, text: ws.upload("/etc/hostname", text),
    "snapshot": lambda ws, text: ws.restore(abc.SnapshotRef(text, 1, 1.0)),
    "user": lambda ws, text: ws.run("true", user=text),
}
NUMBERS = {
    "limit": lambda ws: ws.run("true", limits={"cpu": 2**70}),
    "first line": lambda ws: ws.read_lines("a", start=2**70),
    "time": lambda ws: ws._do(abc.Write(path=ws._path("a"), body=b"", mtime_ns=2**70)),
    "columns": lambda ws: ws.start("true", tty=abc.WindowSize(2**70, 1)),
    "rows": lambda ws: ws.start("true", tty=abc.WindowSize(1, 65536)),
    "no rows": lambda ws: ws.start("true", tty=abc.WindowSize(1, 0)),
    "timeout": lambda ws: ws.run("true", timeout=1e300),
    "idle timeout": lambda ws: ws.run("true", idle_timeout=1e10),
    "seconds of a search": lambda ws: ws.grep("x", timeout=float("inf")),
    "files of a patch": lambda ws: ws._do(
        abc.Patch(changes=tuple(change(ws, f"{DEEP}/{n}", "+a") for n in range(900)))
    ),
}
REFUSED = (InvalidArgumentError, PathError, StorageError, UnsupportedError)


@pytest.mark.parametrize("text", [BIG, HALF, WIDE], ids=["big", "half", "wide"])
async def test_a_text_of_any_size_ends_no_sandbox(kind, text):
    async with kind() as ws:
        for what, use in TEXTS.items():
            with pytest.raises(REFUSED):
                await use(ws, text)
            assert (await ws.run("echo on")).stdout == "on\n", what


async def test_a_number_of_any_size_ends_no_sandbox(kind):
    async with kind() as ws:
        for what, use in NUMBERS.items():
            with pytest.raises(REFUSED):
                await use(ws)
            assert (await ws.run("echo on")).stdout == "on\n", what


async def test_neither_where_rules_are_on_paths(kind):
    policy = Policy.allow_all().with_rules([Rule(verdict="deny", paths=("secret",))])
    async with kind(policy=policy) as ws:
        for text in (BIG, HALF, DEEP * 5):
            with pytest.raises(REFUSED):
                await ws.write(text, b"x")
        assert (await ws.run("echo on")).stdout == "on\n"


async def test_what_is_as_large_as_can_be_is_taken(kind):
    async with kind(env={"A": "a" * 131_000}) as ws:
        assert (await ws.run("echo ${#A}")).stdout == "131000\n"
        most = await ws.run(["printf", "%s", "b" * 131_071])
        assert most.stdout_total == 131_071
        assert (await ws.run("echo x #" + "c" * (7 << 20))).stdout == "x\n"
        # Thirty years, and a month, which is more than poll(2) takes.
        for timeout in (1e9, 2_600_000):
            assert (await ws.run("echo x", timeout=timeout)).stdout == "x\n"
        changes = tuple(change(ws, f"{'d' * 100}/{n}", "+a") for n in range(1000))
        assert len((await ws._do(abc.Patch(changes=changes))).written) == 1000


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"env": {"A": BIG}}, "env: A has more bytes"),
        ({"env": {f"A{n}": "x" * 100_000 for n in range(30)}}, "more bytes together"),
        ({"env": {"A": HALF}}, "surrogate"),
        ({"labels": {"a": BIG}}, "labels: they have more"),
        ({"labels": {BIG: "a"}}, "labels: they have more"),
        ({"labels": {"a": 1}}, "labels: a=1 is not a string"),
    ],
)
async def test_options_are_no_larger_than_can_be(kind, options, match):
    with pytest.raises((InvalidArgumentError, PathOutsideError), match=match):
        kind(**options)
