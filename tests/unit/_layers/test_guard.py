"""What a policy asks about: whoever is asked sees it, and is obeyed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from isobox import Policy, Rule, abc
from isobox._approval.question import NOBODY, Answer, Answers
from isobox._audit.sinks import MemorySink
from isobox._core.results import Change, Changes
from isobox._core.stack import compose
from isobox._layers import Audit, Guard
from isobox._policy.network import Network
from isobox.errors import ConflictError, PathMissingError, PolicyDeniedError

pytestmark = pytest.mark.anyio

WRITE = abc.Write(path="/workspace/a", body=b"new\n")


class Sandbox:
    """Has no file, and notes what reaches it."""

    def __init__(self):
        self.reached = []

    async def ready(self):
        """It is."""

    async def write(self, op):
        self.reached.append(op)

    remove = spawn = checkpoint = write

    async def read(self, op):
        self.reached.append(op)
        raise PathMissingError("gone")


class Person:
    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    async def __call__(self, question):
        self.asked.append(question)
        return self.answer


def asking(*rules):
    rules = rules or (Rule(verdict="ask", name="all", reason="a person looks"),)
    return Policy.allow_all().with_rules(rules)


def stack(sandbox, person, policy=None, sink=None):
    answers = Answers(person, workspace="w")
    audit = Audit(sink, workspace="w", backend="b")
    return compose(sandbox, [audit, Guard(policy or asking(), answers)])


async def test_a_person_sees_what_would_happen():
    person, sandbox, sink = Person(True), Sandbox(), MemorySink()
    await stack(sandbox, person, sink=sink)(WRITE)
    (asked,) = person.asked
    assert (asked.op, asked.rule, asked.reason) == ("write", "all", "a person looks")
    assert (asked.workspace, asked.session) == ("w", None)
    assert asked.risk == "changes files"
    assert asked.preview == "--- /workspace/a\n+++ /workspace/a\n@@\n+new"
    # To look at the file is no operation of whoever asks.
    assert [each.name for each in sandbox.reached] == ["read", "write"]
    assert [each["op"] for each in sink.records if "op" in each] == ["write"]


async def test_without_a_question_nothing_is_looked_at():
    for policy, reached in ((Policy.allow_all(), [WRITE]), (Policy.deny_all(), [])):
        person, sandbox = Person(True), Sandbox()
        try:
            await stack(sandbox, person, policy)(WRITE)
        except PolicyDeniedError:
            assert policy == Policy.deny_all()
        assert sandbox.reached == reached
        assert person.asked == []


async def test_where_nobody_is_asked_nothing_is_looked_at():
    sandbox = Sandbox()
    with pytest.raises(PolicyDeniedError) as caught:
        await stack(sandbox, None)(WRITE)
    assert caught.value.reason == (
        "a person looks, and nobody allowed it: there is nobody to ask "
        "(on the command line add --ask, in Python give `approve`)"
    )
    assert sandbox.reached == []


async def test_a_terminal_that_is_none_says_no_no():
    heard = []

    async def nobody(_):
        return NOBODY

    def record(_):
        return heard.append

    answers = Answers(nobody, record=record)
    perform = compose(Sandbox(), [Guard(Policy.auto(), answers)])
    with pytest.raises(PolicyDeniedError) as caught:
        await perform(abc.Checkpoint(stage="plan"))
    assert caught.value.reason.endswith(
        "and nobody allowed it: there is no terminal to ask on"
    )
    assert heard == ["nobody to ask"]


async def test_who_said_no_is_told_from_who_said_nothing():
    reasons = []
    for said, deadline in ((False, 60.0), (True, 0.05)):

        async def approve(_, said=said):
            if said:
                await asyncio.sleep(20)
            return said

        policy = replace(
            Policy.allow_all(), network=Network(otherwise="ask", ask_timeout=deadline)
        )
        perform = compose(Sandbox(), [Guard(policy, Answers(approve))])
        op = abc.Connect(host="a.test", port=443, via="direct", reach=Sandbox().write)
        with pytest.raises(PolicyDeniedError) as caught:
            await perform(op)
        reasons.append(caught.value.reason)
    asked = "no rule is about a.test:443, and nobody allowed it"
    assert reasons == [
        f"{asked}: the answer was no",
        f"{asked}: there was no answer in time",
    ]


@pytest.mark.parametrize("scope", ["once", "session", "project"])
async def test_the_message_of_a_no_reaches_whoever_asked(scope):
    person = Person(Answer(False, scope, message="use the staging branch"))
    sandbox = Sandbox()
    perform = stack(sandbox, person)
    for _ in range(2):
        with pytest.raises(PolicyDeniedError) as caught:
            await perform(abc.Remove(path="/workspace/a"))
        assert "use the staging branch" in str(caught.value)
        assert "use the staging branch" in caught.value.reason
        assert caught.value.rule == "all"
    assert sandbox.reached == []
    assert len(person.asked) == (2 if scope == "once" else 1)


async def test_a_yes_for_the_session_is_one_to_the_same_by_the_same_rule():
    person = Person(Answer(True, "session"))
    push = Rule(verdict="ask", name="push", programs=("git",), arguments=("push",))
    rm = Rule(verdict="ask", name="rm", programs=("rm",))
    perform = stack(Sandbox(), person, asking(push, rm))
    for script, asked in [
        ("git push", 1),
        ("git push", 1),
        ("make && git push", 2),
        ("git push; rm -r x", 3),
        ("rm -r x", 4),
        ("git push; rm -r x", 4),
        ("rm -r y", 5),
        ("ls", 5),
    ]:
        await perform(abc.Spawn(script=script, cwd="/workspace"))
        assert len(person.asked) == asked, script


class Changing(Sandbox):
    """Has two changes, of which it shows those that are asked for."""

    def __init__(self, error=None):
        super().__init__()
        self.asked = []
        self.error = error

    async def diff(self, op):
        self.asked.append(op)
        if self.error is not None:
            raise self.error
        names = [name for name in "ab" if op.paths is None or name in op.paths]
        return Changes(tuple(Change(n, "added", "file", digest=n) for n in names))

    async def apply(self, op):
        self.reached.append(op)


@pytest.mark.parametrize("paths", [None, ("a",), ("c",)])
async def test_what_is_applied_is_what_was_shown(paths):
    sandbox, person = Changing(), Person(True)
    await stack(sandbox, person)(abc.Apply(paths=paths))
    (looked,), (applied,) = sandbox.asked, sandbox.reached
    assert (looked.paths, looked.digest) == (paths, True)
    shown = [change.path for change in applied.shown]
    assert shown == {None: ["a", "b"], ("a",): ["a"], ("c",): []}[paths]
    assert all(f"file {name}" in person.asked[0].preview for name in shown)


async def test_what_could_not_be_shown_is_not_applied():
    sandbox = Changing(ConflictError("not now"))
    await stack(sandbox, Person(True))(abc.Apply())
    (applied,) = sandbox.reached
    assert applied.shown == ()


async def test_what_nobody_is_asked_about_is_applied_as_it_is():
    sandbox = Changing()
    await stack(sandbox, None, Policy.allow_all())(abc.Apply())
    (applied,) = sandbox.reached
    assert (sandbox.asked, applied.shown) == ([], None)


async def test_values_of_secrets_are_masked_in_what_a_person_sees():
    person = Person(True)
    answers = Answers(person, redact=lambda text: text.replace("hush", "*"))
    perform = compose(Sandbox(), [Guard(asking(), answers)])
    script = "x" * 4094 + "hush"
    await perform(abc.Spawn(script=script, cwd="/w", env={"A": "y" * 254 + "hush"}))
    (asked,) = person.asked
    assert "hu" not in f"{asked.facts} {asked.preview}"


async def test_a_yes_does_not_reach_past_a_deny():
    person = Person(Answer(True, "session"))
    ask = Rule(verdict="ask", name="rm", programs=("rm",))
    deny = Rule(verdict="deny", name="git", programs=("git",))
    sandbox = Sandbox()
    perform = stack(sandbox, person, asking(ask, deny))
    await perform(abc.Spawn(script="rm x", cwd="/workspace"))
    with pytest.raises(PolicyDeniedError, match="rule 'git'"):
        await perform(abc.Spawn(script="rm x; git push", cwd="/workspace"))
    assert len(person.asked) == len(sandbox.reached) == 1


async def test_the_question_of_a_tightening_policy_is_asked_as_well():
    person = Person(Answer(True, "session"))
    one = asking(Rule(verdict="ask", name="one", programs=("rm",)))
    other = asking(Rule(verdict="ask", name="other", arguments=("-r",)))
    perform = stack(Sandbox(), person, one.tightened(other))
    await perform(abc.Spawn(script="rm x", cwd="/workspace"))
    await perform(abc.Spawn(script="rm -r", cwd="/workspace"))
    assert len(person.asked) == 2
    await perform(abc.Spawn(script="rm -r", cwd="/workspace"))
    assert len(person.asked) == 2


async def test_what_is_cancelled_while_it_waits_does_not_happen():
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def approve(_):
        asked.set()
        try:
            await asyncio.sleep(60)
        finally:
            withdrawn.set()

    sandbox, sink = Sandbox(), MemorySink()
    task = asyncio.create_task(stack(sandbox, approve, sink=sink)(WRITE))
    async with asyncio.timeout(10):
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await withdrawn.wait()
    assert WRITE not in sandbox.reached
    assert sink.records[-1]["error"] == "CancelledError"


async def test_a_connection_is_settled_for_all_that_go_to_the_same_place():
    async def reach(_):
        return abc.Turn()

    person = Person(Answer(True, "session"))
    network = Network.of(["?*.example.org"])
    policy = Policy.preset("auto", network=network)
    perform = stack(Sandbox(), person, policy)
    for via, port in (("direct", 443), ("connect", 443), ("socks5", 80)):
        host = "a.example.org"
        await perform(abc.Connect(host=host, port=port, via=via, reach=reach))
    assert [each.facts["port"] for each in person.asked] == [443, 80]
    assert {each.risk for each in person.asked} == {"leaves the sandbox"}
    assert {each.deadline for each in person.asked} == {network.ask_timeout}
