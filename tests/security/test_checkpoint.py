"""Stages of the work at which a person, or the policy, decides."""

from __future__ import annotations

import hashlib
import stat

import pytest

from isobox import (
    Answer,
    BubblewrapWorkspace,
    LocalWorkspace,
    MemorySink,
    Policy,
    Rule,
)
from isobox.errors import PolicyDeniedError

pytestmark = pytest.mark.anyio

KINDS = {"local": LocalWorkspace, "bubblewrap": BubblewrapWorkspace}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture
def work(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").write_text("old\n")
    return tmp_path / "work"


class Person:
    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    async def __call__(self, question):
        self.asked.append(question)
        return self.answer


def deciding(verdict, stage="checkpoint"):
    rule = Rule(verdict=verdict, name=stage, ops=("checkpoint",), reason="not yet")
    return Policy.allow_all().with_rules([rule])


async def test_what_is_allowed_goes_on(kind, work):
    sink = MemorySink()
    async with kind(work, audit=sink) as ws:
        await ws.checkpoint("plan", "1. read\n2. write")
    facts = [each["facts"] for each in sink.records if each.get("op") == "checkpoint"]
    assert facts == [{"stage": "plan", "text": "1. read\n2. write"}]


async def test_what_is_denied_does_not(kind, work):
    person = Person(True)
    async with kind(work, policy=deciding("deny"), approve=person) as ws:
        with pytest.raises(PolicyDeniedError, match="not yet") as caught:
            await ws.checkpoint("plan", "a plan")
        assert (caught.value.op, caught.value.rule) == ("checkpoint", "checkpoint")
        await ws.run("true")
    assert person.asked == []


@pytest.mark.parametrize("policy", [deciding("ask"), Policy.auto()])
async def test_whoever_is_asked_sees_the_plan(kind, work, policy):
    person = Person(True)
    async with kind(work, policy=policy, approve=person) as ws:
        for _ in range(2):
            await ws.checkpoint("plan", "1. read\n2. \x1b[31mwrite")
    asked = person.asked[0]
    assert (asked.op, asked.facts["stage"]) == ("checkpoint", "plan")
    assert asked.preview == "1. read\n2. \\x1b[31mwrite"
    assert asked.risk == "lets the work go on"
    assert len(person.asked) == 2


async def test_nobody_is_a_no(kind, work):
    async with kind(work, policy=Policy.auto()) as ws:
        with pytest.raises(PolicyDeniedError, match="nobody allowed it"):
            await ws.checkpoint("apply")


async def test_the_message_of_a_no_reaches_the_caller(kind, work):
    person = Person(Answer(False, message="write tests first"))
    async with kind(work, policy=Policy.auto(), approve=person) as ws:
        with pytest.raises(PolicyDeniedError, match="write tests first"):
            await ws.checkpoint("plan", "a plan")


async def test_the_message_of_a_no_reaches_the_model(kind, work):
    (work / "folder").mkdir()
    person = Person(Answer(False, message="keep that folder, please"))
    async with kind(work, policy=Policy.auto(), approve=person) as ws:
        tools = {tool.name: tool for tool in await ws.list_tools()}
        result = await tools["Bash"](command="rm -rf folder")
        where = ws.root
    assert "keep that folder, please" in str(result)
    assert (work / "folder").is_dir()
    assert person.asked[0].preview == f"in {where}\nrm -rf folder"


async def test_the_changes_of_a_private_view_are_what_there_is_to_judge(work):
    person = Person(True)
    policy = Policy.auto()
    async with BubblewrapWorkspace(
        work, mode="copy", policy=policy, approve=person
    ) as ws:
        await ws.write("file", b"new\n")
        await ws.write("other", b"more\n")
        await ws.checkpoint("apply")
        assert (work / "file").read_text() == "old\n"
        await ws.apply()
    checkpoint, apply = person.asked
    assert "-old\n+new" in checkpoint.preview
    assert "+more" in checkpoint.preview
    assert "modified file file" in apply.preview
    assert "-old\n+new" in apply.preview
    assert apply.risk == "changes the directory on the host"
    assert (work / "file").read_text() == "new\n"


async def test_nothing_that_a_patch_does_not_show_is_left_out(work):
    person = Person(True)
    (work / "gone").write_bytes(b"")
    (work / "mode").write_text("x")
    policy = Policy.auto()
    async with BubblewrapWorkspace(
        work, mode="copy", policy=policy, approve=person
    ) as ws:
        # So long a text does not push it out of what is shown.
        await ws.write("a-long-one", b"line of text\n" * 4000)
        await ws.write("program", b"\0ELF" * 100, mode=0o755)
        script = (
            "rm gone; chmod 700 mode; ln -s program link; mkdir new; touch new/none"
        )
        await ws.run(script, check=True)
        await ws.checkpoint("apply")
    (checkpoint,) = person.asked
    digest = sha(b"\0ELF" * 100)
    mode = stat.S_IMODE((work / "mode").stat().st_mode)
    assert {
        f"added file program (400 bytes; SHA-256 {digest}; mode 0755)",
        "removed file gone",
        f"modified file mode (1 bytes; SHA-256 {sha(b'x')}; mode {mode:04o} -> 0700)",
        "added symlink link (leads to program)",
        "added directory new (mode 0755)",
        f"added file new/none (0 bytes; SHA-256 {sha(b'')}; mode 0644)",
    } <= set(checkpoint.preview.splitlines())


def sha(data):
    return hashlib.sha256(data).hexdigest()


async def test_what_is_not_approved_is_not_applied(work):
    person = Person(Answer(False, message="no"))
    async with BubblewrapWorkspace(
        work, mode="copy", policy=Policy.auto(), approve=person
    ) as ws:
        await ws.write("file", b"new\n")
        with pytest.raises(PolicyDeniedError):
            await ws.apply()
    assert (work / "file").read_text() == "old\n"


async def test_a_write_is_shown_against_the_file_as_it_is(kind, work):
    person = Person(True)
    rule = Rule(verdict="ask", name="files", ops=("write",))
    policy = Policy.allow_all().with_rules([rule])
    async with kind(work, policy=policy, approve=person) as ws:
        await ws.write("file", b"new\n")
        await ws.edit("file", "new", "newer")
        await ws.remove("file")
    write, edit, remove = (each.preview for each in person.asked)
    assert write.endswith("@@\n-old\n+new")
    assert edit.endswith("@@\n-new\n+newer")
    assert remove.endswith("/file")
