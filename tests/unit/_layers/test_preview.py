"""What a person is shown of an operation before it happens."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.meta.test_ops import example

from isobox import abc
from isobox._core.facts import facts
from isobox._core.ops import Replacement
from isobox._core.patch import parse
from isobox._core.results import ByteStream, Change, Changes, Entry, Listing
from isobox._layers import preview as module
from isobox._layers.preview import preview
from isobox.errors import PathMissingError, SandboxLostError

pytestmark = pytest.mark.anyio


class Content(ByteStream):
    def __init__(self, data):
        super().__init__()
        self.data = data

    async def receive(self):
        data, self.data = self.data[:1000], self.data[1000:]
        return data

    async def aclose(self):
        self.data = b""


def content(data):
    async def inner(op):
        assert isinstance(op, abc.Read)
        assert op.length == 65_536
        return Content(data[: op.length])

    return inner


async def nothing(op):
    raise AssertionError(f"{op.name} is not needed")


def failing(error):
    async def inner(_):
        raise error

    return inner


async def of_write(old, new):
    return await preview(abc.Write(path="/w/a", body=new), content(old))


async def test_a_write_is_shown_as_what_changes():
    old = b"".join(b"line %d\n" % n for n in range(100))
    new = old.replace(b"line 50\n", b"other\n")
    assert await of_write(old, new) == (
        "--- /w/a\n+++ /w/a\n@@\n line 48\n line 49\n-line 50\n+other\n"
        " line 51\n line 52"
    )


async def test_a_new_file_is_shown_whole():
    op = abc.Write(path="/w/a", body=b"one\ntwo\n")
    shown = await preview(op, failing(PathMissingError("gone")))
    assert shown == "--- /w/a\n+++ /w/a\n@@\n+one\n+two"


async def test_lines_that_look_like_headers_are_shown():
    assert "---- x\n+++ y" in await of_write(b"--- x\n", b"++ y\n")


async def test_line_ends_alone():
    shown = await of_write(b"a\r\nb\r\n", b"a\nb\n")
    assert "[line ends alone differ" in shown


async def test_a_write_in_pieces_is_named():
    async def pieces():
        yield b"x"

    op = abc.Write(path="/w/a", body=pieces())
    assert await preview(op, nothing) == "/w/a: content that arrives piece by piece"


async def test_what_the_sandbox_cannot_show_keeps_nobody_from_asking():
    op = abc.Write(path="/w/a", body=b"new\n")
    assert "+new" in await preview(op, failing(SandboxLostError("gone")))
    shown = await preview(abc.Apply(), failing(SandboxLostError("gone")))
    assert shown == "[the changes could not be shown]"


async def test_what_the_sandbox_does_not_show_in_time_is_left_out(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.05)

    async def never(_):
        await asyncio.sleep(60)

    began = time.monotonic()
    shown = await preview(abc.Write(path="/w/a", body=b"new\n"), never)
    assert "+new" in shown
    assert "could not be shown" in await preview(abc.Apply(), never)
    assert time.monotonic() - began < 5


async def test_an_edit_and_a_patch():
    pieces = (Replacement(b"a\nb\n", b"a\nc\n"), Replacement(b"x", b"y"))
    assert await preview(abc.Edit(path="/w/a", replacements=pieces), nothing) == (
        "--- /w/a\n+++ /w/a\n@@\n a\n-b\n+c\n--- /w/a\n+++ /w/a\n@@\n-x\n+y"
    )
    text = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n keep\n-old\n+new\n"
    op = abc.Patch(changes=parse(text))
    assert await preview(op, nothing) == "update f\n@@\n keep\n-old\n+new"


async def test_an_edit_of_every_occurrence_says_so():
    pieces = (Replacement(b"x", b"y", every=True), Replacement(b"a", b"b"))
    op = abc.Edit(path="/w/a", replacements=pieces)
    assert await preview(op, nothing) == (
        "every occurrence in /w/a:\n--- /w/a\n+++ /w/a\n@@\n-x\n+y\n"
        "--- /w/a\n+++ /w/a\n@@\n-a\n+b"
    )
    assert facts(op) == {"path": "/w/a", "replacements": 2, "every": 1}
    once = abc.Edit(path="/w/a", replacements=pieces[1:])
    assert facts(once) == {"path": "/w/a", "replacements": 1}


async def test_a_write_is_shown_with_its_mode_and_place():
    op = abc.Write(path="/w/a", body=b"x\n", mode=0o755, append=True)
    shown = await preview(op, nothing)
    assert shown.startswith("mode 0755\nafter what is there:\n--- /w/a\n")


async def test_a_command_is_shown_with_the_file_that_it_prints_to():
    op = abc.Spawn(argv=("ls",), cwd="/w", env={"A": "1"}, spool="/w/.git/x")
    assert await preview(op, nothing) == "in /w with A=1 printing to /w/.git/x\nls"
    assert facts(op)["spool"] == "/w/.git/x"


async def test_commands_are_shown_as_they_are_written():
    script = "for x in *; do\n\techo $x\ndone"
    shown = await preview(abc.Spawn(script=script, cwd="/w"), nothing)
    assert shown == f"in /w\n{script}"
    turn = abc.Script(process=None, session_id="a", script=script)
    assert await preview(turn, nothing) == script
    op = abc.Spawn(argv=("rm", "-r f", "a;b"), cwd="/w")
    assert await preview(op, nothing) == "in /w\nrm '-r f' 'a;b'"


async def test_a_command_is_shown_with_what_is_around_it():
    env = {"GIT_SSH_COMMAND": "touch MARK", "B": None, "A": "1\nin /x"}
    op = abc.Spawn(argv=("git", "push"), cwd="/w/a b", user="root", env=env)
    assert await preview(op, nothing) == (
        'in "/w/a b" as root with A="1\\nin /x" B(removed) '
        'GIT_SSH_COMMAND="touch MARK"\ngit push'
    )


async def test_what_is_around_a_command_is_bounded():
    env = {f"V{n:05}": "x" * 9000 for n in range(9000)}
    op = abc.Spawn(argv=("ls",), cwd="/w", env=env)
    first, last = (await preview(op, nothing)).splitlines()
    assert last == "ls"
    assert first.endswith("x[... 8744 more] and 8968 more variables")
    assert len(first) < 12_000


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("eval 'rm -r \"x\"' 2>&1", 'rm -r "x"'),
        ("\\builtin eval 'rm -r \"x\"' 2>&1", 'rm -r "x"'),
        ("\\builtin eval 'a'; rm x", "\\builtin eval 'a'; rm x"),
        ("eval 'it'\"'\"'s'", "it's"),
        ("eval ls 2>&1", "ls"),
        ("eval 'a\nb' 2>&1", "a\nb"),
        ("eval 'a' 'b'", "eval 'a' 'b'"),
        ('eval "$X" 2>&1', 'eval "$X" 2>&1'),
        ("eval 'a'; rm x 2>&1", "eval 'a'; rm x 2>&1"),
        ("eval 'a", "eval 'a"),
        ("eval ls\\n", "eval ls\\n"),
    ],
)
async def test_what_is_evaluated_is_shown_plain(script, shown):
    turn = abc.Script(process=None, session_id="a", script=script)
    assert await preview(turn, nothing) == shown


async def test_the_shell_of_a_session_is_named():
    op = abc.Spawn(argv=("bash", "-c", "eval"), cwd="/w", report=True, label="shell a")
    shown = await preview(op, nothing)
    assert shown == "in /w\nshell a; each script that it is given is looked at"


async def test_what_is_removed_is_counted():
    assert await preview(abc.Remove(path="/w/a"), nothing) == "/w/a"

    async def inner(op):
        assert (op.path, op.follow) == ("/w/a", False)
        entry = Entry("/w/a/b", "file", 1, 0o644, 0)
        return Listing((entry,) * 3, truncated=True)

    op = abc.Remove(path="/w/a", recursive=True)
    assert await preview(op, inner) == "/w/a and what is below it: 3 or more names"


async def test_an_apply_shows_what_would_come():
    async def inner(op):
        assert isinstance(op, abc.Diff)
        assert (op.paths, op.digest) == (("sub/",), True)
        text = "--- a/a\n+++ b/a\n-x\n+y\n"
        return Changes(
            (
                Change("a", "modified", "file", text=text, mode=0o755, old_mode=0o644),
                Change("l", "added", "symlink", "it leaves the tree", target="/etc"),
                Change("bin", "added", "file", mode=0o644, size=3, digest="d1"),
                Change("sub/b", "removed", "file"),
            ),
            truncated=True,
        )

    assert await preview(abc.Apply(paths=("sub/",)), inner) == (
        "modified file a (mode 0644 -> 0755)\n"
        "added symlink l (leads to /etc; refused: it leaves the tree)\n"
        "added file bin (3 bytes; SHA-256 d1; mode 0644)\n"
        "removed file sub/b\n"
        "[there are more changes than were looked at]\n"
        "--- a/a\n+++ b/a\n-x\n+y"
    )


async def test_a_checkpoint_shows_its_text():
    op = abc.Checkpoint(stage="plan", text="1. read\n2. write")
    assert await preview(op, nothing) == "1. read\n2. write"


# -- hostile ------------------------------------------------------------------------


async def test_nothing_steers_a_terminal():
    text = "a\x1b]0;evil\x07b\x9b2Jc\u202ed\re\x00\u200bf\x7f\udcff"
    shown = await preview(abc.Checkpoint(stage="plan", text=text), nothing)
    assert shown == (
        "a\\x1b]0;evil\\x07b\\x9b2Jc\\x202ed\\x0de\\x00\\x200bf\\x7f\\xdcff"
    )


async def test_what_shows_as_a_blank_is_written_out():
    text = "a\u3164b\u2800c\u115fd\ufe0fe\U000e0101f\u00a0g\U0001d159h"
    shown = await preview(abc.Checkpoint(stage="plan", text=text), nothing)
    assert shown == "a\\x3164b\\x2800c\\x115fd\\xfe0fe\\xe0101f\\xa0g\\x1d159h"


async def test_a_name_is_on_one_line():
    name = "/w/a\n+++ /w/b"
    for op in (
        abc.Write(path=name, body=b"x"),
        abc.Edit(path=name, replacements=(Replacement(b"x", b"y", every=True),)),
        abc.Remove(path=name),
    ):
        shown = await preview(op, failing(PathMissingError("gone")))
        assert "+++ /w/b" not in shown.splitlines()
        assert "/w/a\\n+++ /w/b" in shown


async def test_what_is_masked_hides_no_cut():
    text = "\n".join(["secret" * 1000] * 9)
    op = abc.Checkpoint(stage="plan", text=text)
    edit = abc.Edit(path="/w", replacements=(Replacement(b"secret" * 2000, b""),) * 9)
    for each in (op, edit):
        shown = await preview(each, nothing, lambda found: found.replace("secret", "*"))
        cut = each is edit
        assert shown.endswith("[... at least 1 characters more]") is cut


async def test_a_file_that_breaks_off_while_it_is_read_keeps_nobody_from_asking():
    class Broken(Content):
        async def receive(self):
            raise SandboxLostError("gone")

    async def inner(_):
        return Broken(b"")

    assert "+new" in await preview(abc.Write(path="/w/a", body=b"new\n"), inner)


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        (b"a\n" * 32_768, b"a\n" * 32_768 + b"EVIL", 4),
        (b"a\n" * 40_000, b"a\n" * 32_768, 0),
        (b"a\n" * 32_000, b"a\n" * 40_000, 14_464),
    ],
)
async def test_what_is_not_compared_is_counted(old, new, more):
    last = f"[compared as far as 65536 bytes; {more} new ones are not shown]"
    assert (await of_write(old, new)).endswith(last)


@settings(max_examples=200, deadline=None)
@given(old=st.binary(max_size=200), new=st.binary(max_size=200))
async def test_whatever_a_file_holds(old, new):
    shown = await of_write(old, new)
    assert all(each in "\n\t" or each.isprintable() for each in shown)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"a\n" * 40_000, b"b\n" * 40_000),
        (b"".join(b"%x\n" % (n * 7 % 4096) for n in range(16_000)),
         b"".join(b"%x\n" % (n * 11 % 4096) for n in range(16_000))),
        (b"a\nb\n" * 20_000, b"b\na\n" * 20_000),
        (b"\n" * 65_536, b"x" * 10_000_000),
        (b"a\n" * 200 + b"b\n" * 190, b"b\n" * 200 + b"a\n" * 190),
    ],
    ids=range(5),
)  # fmt: skip
async def test_large_content_is_bounded_in_size_and_time(old, new):
    began = time.process_time()
    shown = await of_write(old, new)
    assert time.process_time() - began < 2
    assert len(shown) < 17_000


async def test_so_much_is_shown():
    op = abc.Script(process=None, session_id="a", script="x" * 20_000)
    shown = await preview(op, nothing)
    assert shown == "x" * 16_384 + "\n[... 3616 characters more]"
    plan = abc.Checkpoint(stage="plan", text="x" * 16_384)
    assert await preview(plan, nothing) == "x" * 16_384
    assert (
        len(await preview(abc.Spawn(script="\x1b" * 90_000, cwd="/"), nothing)) < 70_000
    )
    many = abc.Edit(
        path="/w/a", replacements=(Replacement(b"a" * 999, b"b" * 999),) * 100_000
    )
    began = time.process_time()
    last = (await preview(many, nothing)).splitlines()[-1]
    assert re.fullmatch(r"\[\.\.\. at least \d+ characters more]", last)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "op", [example(kind) for kind in abc.OPS], ids=lambda op: op.name
)
async def test_every_operation_has_a_preview(op):
    assert isinstance(await preview(op, failing(SandboxLostError("gone"))), str)
