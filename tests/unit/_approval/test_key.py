"""Which questions are the same one."""

from __future__ import annotations

import json

import pytest
from tests.meta.test_ops import example

from isobox import Policy, Rule, abc
from isobox._approval.key import keys_of
from isobox._core.ops import Place, Replacement
from isobox._core.patch import FileChange

ROOT = "/workspace"
ASK = Policy.allow_all().with_rules(
    [
        Rule(verdict="ask", name="push", programs=("git",), arguments=("push",)),
        Rule(verdict="ask", name="rm", programs=("rm",)),
        Rule(verdict="ask", name="secrets", paths=("secret*",)),
    ]
)
ALL = Policy.preset("full_access", rules=[Rule(verdict="ask", name="all")])


def keys(op, policy=ASK):
    asked = [
        (part, decision.rule)
        for part, decision in policy.explain(op, ROOT)
        if decision.verdict == "ask"
    ]
    return set(keys_of(op, asked))


async def unreached(_):
    raise AssertionError("nothing is reached here")


def connect(**changes):
    known = {"host": "a.test", "port": 443, "via": "direct", "reach": unreached}
    return abc.Connect(**{**known, **changes})


def run(script, **changes):
    return abc.Spawn(script=script, **{"cwd": ROOT, **changes})


def turn(script, session="default", cwd=ROOT):
    return abc.Script(process=None, session_id=session, script=script, stands_in=cwd)


def change(kind, path="/workspace/secret", target=None):
    return abc.Patch(changes=(FileChange(path=path, kind=kind, target=target),))


SECRET = "/workspace/secret"
SAME = [
    (run("git push origin main"), run("git push origin main")),
    (run("ls; git push | cat"), run("ls; git push | cat")),
    (run("git push", timeout=5, capture=10), run("git push", label="mine")),
    (turn("git push"), turn("git push")),
    (abc.Write(path=SECRET, body=b"a"),
     abc.Write(path=SECRET, body=b"b", mode=0o600)),
    (abc.Edit(path=SECRET, replacements=(Replacement(b"a", b"b"),)),
     abc.Edit(path=SECRET, replacements=(Replacement(b"c", b"d"),))),
    (abc.Read(path=SECRET), abc.Read(path=SECRET, offset=7)),
    (change("update"), change("add")),
]  # fmt: skip
OTHER = [
    (run("echo x > secret"), run("ls; echo y >> secret")),
    (run("git push"), run("ls; git push")),
    (run("cd a; rm x"), run("cd b; rm x")),
    (run("ssh a rm x"), run("ssh b rm x")),
    (run("echo a | git push"), run("echo b | git push")),
    (run("git push <<< a"), run("git push <<< b")),
    (run("rm ~"), run("rm '~'")),
    (run("A=1; K=$A git push"), run("K=None git push")),
    (run("git push a"), abc.Spawn(argv=("git", "push", "a"), cwd=ROOT)),
    (run("git push"), run("git push", spool="/workspace/out")),
    (turn("git push"), turn("git push 2>&1 | tail -1")),
    (run("git push origin main"), run("git push origin other")),
    (run("git push origin main"), run("git push --force origin main")),
    (run("git push origin $X"), run("ls; git push origin $X")),
    (run("git push"), run("GIT_SSH_COMMAND=evil git push")),
    (run("git push"), run("env GIT_DIR=/x git push")),
    (run("git push"), run("sudo git push")),
    (run("git push"), run("./git push")),
    (run("git push"), run("git push", cwd="/workspace/other")),
    (run("git push"), run("git push", env={"GIT_DIR": "/x"})),
    (run("git push", env={"A": "1"}), run("git push", env={"A": "2"})),
    (run("git push"), run("git push", user="root")),
    (run("git push"), turn("git push")),
    (turn("git push"), turn("git push", "other")),
    (turn("git push"), turn("git push", cwd="/workspace/other")),
    (run("git push"), run("git push; rm x")),
    (abc.Write(path=SECRET, body=b"a"), abc.Write(path=SECRET + "s", body=b"a")),
    (abc.Write(path=SECRET, body=b"a"), abc.Remove(path=SECRET)),
    (abc.Remove(path=SECRET), abc.Remove(path=SECRET, recursive=True)),
    (change("update"), change("delete")),
    (change("update"), change("update", target="/workspace/elsewhere")),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_is_the_same_question(one, other):
    assert keys(one)
    assert keys(one) == keys(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_what_is_another_question(one, other):
    assert keys(one)
    assert keys(other)
    assert keys(one) != keys(other)


def test_each_rule_that_asks_is_a_question():
    assert {key[0] for key in keys(run("git push; rm x; rm y"))} == {"push", "rm"}


@pytest.mark.parametrize("given", [{"stdin": True}, {"tty": abc.WindowSize()}])
def test_an_answer_to_what_is_given_input_is_for_once(given):
    assert keys(run("git push", **given)) == set()
    # The shell of a session is looked at script by script.
    assert keys(run("git push", **given, report=True))


def test_another_rule_is_another_question():
    op = abc.Write(path=SECRET, body=b"")
    assert keys(op).isdisjoint(keys(op, ALL))


def test_what_is_not_understood_is_the_same_only_as_a_whole():
    one = run('git push origin "$(cat x)"')
    assert keys(one) == keys(run('git push origin "$(cat x)"'))
    assert keys(one).isdisjoint(keys(run('git push origin "$(cat y)"')))
    assert keys(run("$X a")) != keys(run("$X b"))


def test_a_connection_is_known_by_host_port_and_method():
    def key(**changes):
        (found,) = keys(connect(**changes), ALL)
        return found

    get = {"via": "http", "method": "GET", "target": "/a"}
    assert key() == key(via="connect")
    assert key(**get) == key(**{**get, "target": "/b"})
    others = [key(), key(port=80), key(host="b.test"), key(**get)]
    assert len({*others, key(**{**get, "method": "POST"})}) == 5


def test_a_checkpoint_is_known_by_its_stage_and_an_apply_by_its_paths():
    stages = [abc.Checkpoint(stage=each, text=each * 9) for each in ("plan", "apply")]
    assert keys(stages[0], ALL) != keys(stages[1], ALL)
    plans = [abc.Checkpoint(stage="plan", text=each) for each in ("a", "b")]
    assert keys(plans[0], ALL) == keys(plans[1], ALL)
    assert keys(abc.Apply(), ALL) != keys(abc.Apply(paths=("a",)), ALL)
    assert keys(abc.Apply(), ALL) != keys(abc.Apply(skip_refused=True), ALL)


def test_a_long_command_is_known_by_a_digest():
    one, other = (run(f"rm {'x' * 9000}{end}") for end in "ab")
    assert keys(one) != keys(other)
    assert all(len(word) < 100 for key in keys(one) for word in key)


@pytest.mark.parametrize(
    "op", [example(kind) for kind in abc.OPS], ids=lambda op: op.name
)
def test_every_operation_has_a_key_of_words(op):
    for key in keys(op, ALL):
        assert key[0] == "all"
        assert all(isinstance(word, str) for word in key)
        assert tuple(json.loads(json.dumps(key))) == key


def test_a_script_in_a_directory_that_nobody_knows_is_asked_each_time():
    assert not keys(turn("git push", cwd=None))


def test_a_link_that_leads_elsewhere_makes_another_question():
    link = "/workspace/secret"
    one, other, plain = (
        abc.Write(path=link, body=b"", places=(Place(link, True, real),))
        for real in ("/workspace/secrets/a", "/workspace/secrets/b", link)
    )
    assert keys(one)
    assert not keys(one) & keys(other)
    assert keys(plain) == keys(abc.Write(path=link, body=b""))
