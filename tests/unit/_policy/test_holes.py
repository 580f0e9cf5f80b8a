"""What a rule is about does not end where an operation says it another way."""

from __future__ import annotations

from typing import Any, cast

import pytest

from isobox import Policy, Rule, abc
from isobox._core.facts import facts
from isobox._core.ops import Replacement
from isobox._core.patch import FileChange, Hunk
from isobox._policy.load import parse
from isobox.errors import InvalidArgumentError

ANY = Policy.allow_all()
LOOKS = Rule(verdict="ask", programs=("nothing",))
SECRET = Rule(verdict="deny", ops=("write",), paths=("secret/**",))
LARGE = ANY.with_rules([Rule(verdict="deny", larger_than=10)])


async def pieces():
    yield b""


def said(policy, op):
    return policy.decide(op).verdict


def run(script, cwd="/workspace"):
    return abc.Spawn(script=script, cwd=cwd)


def session(script):
    return abc.Script(process=cast("Any", None), session_id="a", script=script)


@pytest.mark.parametrize("script", ["ls", "> made", "ls > made", "$X", ""])
@pytest.mark.parametrize("about", [{"ops": ("run",)}, {"paths": ("/else", "/else/*")}])
def test_what_another_layer_looks_for_takes_nothing_from_a_rule(about, script):
    policy = ANY.with_rules([Rule(verdict="deny", **about)])
    op = run(script, "/else")
    looks = ANY.with_rules([LOOKS])
    assert said(policy, op) == "deny"
    assert said(policy.with_rules([LOOKS]), op) == "deny"
    assert said(policy.tightened(looks), op) == "deny"
    assert said(looks.tightened(policy), op) == "deny"
    assert said(looks.tightened(looks.tightened(policy)), op) == "deny"


@pytest.mark.parametrize(
    ("op", "verdict"),
    [
        (run("> secret/a"), "deny"),
        (run("> a", "/workspace/secret"), "deny"),
        (run("> ../secret/a", "/workspace/src"), "deny"),
        (run("> secret/a", "/elsewhere"), "allow"),
        (run("> a"), "allow"),
        (run("> /tmp/a; cd x"), "allow"),
        (run("true > /dev/null 2>&1"), "allow"),
        (run("cd x; > a"), "ask"),
        (run("builtin pushd x; > a"), "ask"),
        (run("c\\d x; > a"), "ask"),
        (run("env -C x sh -c '> a'"), "ask"),
        (run("e''nv -C x sh -c '> a'"), "ask"),
        (run("> $X"), "ask"),
        (run("> ~/a"), "ask"),
        (run("> a*"), "ask"),
        (run("> /proc/self/cwd/a"), "ask"),
        (run("> //proc/1/root/a"), "ask"),
        (session("> secret/a"), "deny"),
        (session("> a"), "ask"),
        (session("> /tmp/a"), "allow"),
    ],
)
def test_a_redirection_is_followed_or_asked_about(op, verdict):
    assert said(ANY.with_rules([SECRET, LOOKS]), op) == verdict
    assert said(ANY.with_rules([LOOKS]), op) == "allow"


def test_no_file_that_nobody_can_tell_is_allowed():
    paths = ("/workspace", "/workspace/**")
    rule = Rule(verdict="allow", ops=("write", "run"), paths=paths)
    policy = Policy.deny_all().with_rules([rule, LOOKS])
    assert said(policy, run("> a")) == "allow"
    assert said(policy, run("cd /; > a")) == "deny"


def test_the_file_that_output_is_spooled_to_is_written():
    op = abc.Spawn(argv=("ls",), cwd="/workspace", spool="/workspace/secret/a")
    assert said(ANY.with_rules([SECRET]), op) == "deny"
    assert said(ANY.with_rules([SECRET, LOOKS]), op) == "deny"


@pytest.mark.parametrize(
    ("op", "verdict"),
    [
        (abc.Push(path="/workspace", body=b""), "deny"),
        (abc.Push(path="/workspace/secret", body=b""), "deny"),
        (abc.Push(path="/workspace/src", body=b""), "allow"),
        (abc.Push(path="/workspace/secre", body=b""), "allow"),
        (abc.Remove(path="/", recursive=True), "deny"),
        (abc.Remove(path="/workspace/secret", recursive=True), "deny"),
        (abc.Remove(path="/workspace"), "allow"),
        (abc.Apply(), "deny"),
        (abc.Apply(paths=(".",)), "deny"),
        (abc.Apply(paths=("src",)), "allow"),
        (abc.Discard(), "deny"),
        (abc.Restore(snapshot=cast("Any", None)), "deny"),
    ],
)
def test_what_holds_a_path_is_about_it(op, verdict):
    assert said(ANY.with_rules([SECRET]), op) == verdict


def test_what_is_below_is_read_too():
    policy = ANY.with_rules([Rule(verdict="ask", ops=("read",), paths=("a/b",))])
    assert said(policy, abc.Pull(path="/workspace")) == "ask"
    assert said(policy, abc.Search(path="/workspace/a", pattern="x")) == "ask"
    assert said(policy, abc.Search(path="/workspace/c", pattern="x")) == "allow"


def test_what_is_above_is_not_allowed_with_it():
    rule = Rule(verdict="allow", paths=("src/**",))
    policy = Policy.deny_all().with_rules([rule])
    assert said(policy, abc.Push(path="/workspace", body=b"")) == "deny"
    assert said(policy, abc.Push(path="/workspace/src/a", body=b"")) == "allow"


def edit(old, new, *, every=False):
    return abc.Edit(path="/a", replacements=(Replacement(old, new, every),) * 2)


def patch(*lines):
    change = FileChange(path="/a", kind="update", hunks=(Hunk(lines),))
    return abc.Patch(changes=(change,))


@pytest.mark.parametrize(
    ("op", "verdict"),
    [
        (abc.Write(path="/a", body=pieces()), "deny"),
        (abc.Push(path="/a", body=pieces()), "deny"),
        (edit(b"a", b"123456"), "deny"),
        (edit(b"a", b"12345"), "allow"),
        (edit(b"a", b"bb", every=True), "deny"),
        (edit(b"aa", b"b", every=True), "allow"),
        (patch("+1234", "+1234", " 12345678"), "allow"),
        (patch("+12345", "+12345"), "deny"),
        (abc.Read(path="/a"), "allow"),
        (abc.Remove(path="/a"), "allow"),
    ],
)
def test_what_may_be_larger_is(op, verdict):
    assert said(LARGE, op) == verdict


def test_what_may_be_larger_is_not_allowed_for_it():
    policy = Policy.deny_all().with_rules([Rule(verdict="allow", larger_than=10)])
    assert said(policy, abc.Write(path="/a", body=bytes(11))) == "allow"
    assert said(policy, abc.Write(path="/a", body=pieces())) == "deny"


def test_a_pattern_is_compared_literally_as_well():
    policy = ANY.with_rules([Rule(verdict="deny", arguments=("a[1]",))])
    assert said(policy, run("rm 'a[1]'")) == "deny"
    assert said(policy, run("rm a1")) == "deny"


def test_a_projects_file_is_short():
    text = "version = 1\n#" + "x" * (1 << 16)
    parse(text)
    with pytest.raises(InvalidArgumentError, match="over 65536 characters"):
        parse(text, tightening=True)


def test_a_line_has_few_dots():
    with pytest.raises(InvalidArgumentError, match=r"policy.toml:2: over 512 dots"):
        parse("version = 1\n" + ".".join("a" * 514) + " = 1\n")


def test_facts_are_of_bounded_length():
    long = "x" * 1_000_000
    many = tuple(map(str, range(100_000)))
    for op in (
        abc.Spawn(argv=many, cwd=long, user=long, label=long, env={long: long}),
        abc.Search(path=long, pattern=long, glob=long),
        abc.Apply(paths=many),
        abc.Checkpoint(stage=long, text=long),
        abc.Patch(changes=(FileChange(path=long, kind="delete"),) * 300),
    ):
        found = facts(op)
        assert all(len(text) < 4200 for text in found.values() if type(text) is str)
        lists = [each for each in found.values() if isinstance(each, list)]
        assert all(len(each) <= 257 for each in lists)
        assert all(len(text) < 4200 for each in lists for text in each)


def test_what_is_secret_is_taken_out_before_texts_are_cut():
    op = abc.Read(path="x" * 4090 + "secret-value")
    told = facts(op, redact=lambda text: text.replace("secret-value", "***"))
    assert told["path"] == "x" * 4090 + "***"


def test_no_word_of_a_reason_is_cut():
    policy = ANY.with_rules([Rule(verdict="deny", programs=("git",))])
    reason = policy.decide(run("git push " + "x" * 200)).reason
    assert reason.endswith("(git push ...)")
