"""Rules on what operations do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox import Network, Policy, Rule
from isobox._core.ops import (
    Connect,
    Edit,
    Patch,
    Push,
    Read,
    Remove,
    Replacement,
    Spawn,
    Write,
)
from isobox._core.patch import FileChange
from isobox.errors import InvalidArgumentError


async def never(_):
    raise AssertionError


def run(script):
    return Spawn(script=script, cwd="/workspace")


def connect(host, port=443):
    return Connect(host=host, port=port, via="direct", reach=never)


def write(path, size=0):
    return Write(path=path, body=bytes(size))


def edit(path):
    return Edit(path=path, replacements=(Replacement(b"a", b"b"),))


def denies(rule, op, root="/workspace"):
    policy = replace(Policy.allow_all(), network=Network.of("open"))
    return policy.with_rules([rule]).decide(op, root).verdict == "deny"


def deny(**about):
    return Rule(verdict="deny", **about)


@pytest.mark.parametrize(
    ("about", "op", "fits"),
    [
        ({}, Read(path="/workspace/x"), True),
        ({"ops": ("write",)}, write("/workspace/x"), True),
        ({"ops": ("write",)}, edit("/workspace/x"), True),
        ({"ops": ("write",)}, Read(path="/workspace/x"), False),
        ({"ops": ("edit",)}, write("/workspace/x"), False),
        ({"ops": ("read",)}, Read(path="/workspace/x"), True),
        ({"ops": ("run",)}, run("true"), True),
        ({"ops": ("network",)}, connect("www.example.org"), True),
        ({"paths": ("src/*",)}, write("/workspace/src/a"), True),
        ({"paths": ("src/*",)}, write("/workspace/src/a/b"), False),
        ({"paths": ("src/**",)}, write("/workspace/src/a/b"), True),
        ({"paths": ("**/*.sql",)}, write("/workspace/a/b.sql"), True),
        ({"paths": ("**/*.sql",)}, write("/workspace/b.sql"), True),
        ({"paths": ("**/*.sql",)}, write("/workspace/b.sqlx"), False),
        ({"paths": ("a?c",)}, write("/workspace/abc"), True),
        ({"paths": ("a?c",)}, write("/workspace/a/c"), False),
        ({"paths": ("/etc/**",)}, Read(path="/etc/passwd"), True),
        ({"paths": ("etc/**",)}, Read(path="/etc/passwd"), False),
        ({"paths": ("a.c",)}, write("/workspace/abc"), False),
        ({"paths": ("x",)}, connect("www.example.org"), False),
        ({"larger_than": 10}, write("/workspace/x", 11), True),
        ({"larger_than": 10}, write("/workspace/x", 10), False),
        ({"larger_than": 10}, Push(path="/workspace", body=bytes(11)), True),
        ({"hosts": ("*.example.org",)}, connect("www.example.org"), True),
        ({"hosts": ("*.example.org",)}, connect("example.org"), False),
        ({"hosts": ("WWW.example.org.",)}, connect("www.example.org"), True),
        ({"hosts": ("x.org",)}, Read(path="/workspace/x"), False),
        ({"tools": ("Bash",)}, Spawn(argv=("a",), cwd="/", label="Bash"), True),
        ({"tools": ("B*",)}, Spawn(argv=("a",), cwd="/", label="Bash"), True),
        ({"tools": ("Bash",)}, Spawn(argv=("a",), cwd="/"), False),
        ({"programs": ("git",)}, run("ls && git push"), True),
        ({"programs": ("git",)}, run("sudo env X=1 /usr/bin/git push"), True),
        ({"programs": ("git",)}, run("echo git"), False),
        ({"programs": ("git",)}, Spawn(argv=("git", "push"), cwd="/"), True),
        ({"programs": ("git",)}, Spawn(argv=("sh", "-c", "git x"), cwd="/"), True),
        ({"programs": ("g*",)}, run("gh pr create"), True),
        ({"arguments": ("push",)}, run("git -C x push"), True),
        ({"arguments": ("push", "--force*")}, run("git push"), False),
        ({"arguments": ("push", "--force*")}, run("git push --force-with-lease"), True),
        ({"arguments": ("push", "--force*")}, run("git push; x --force"), False),
        ({"programs": ("git",)}, write("/workspace/git"), False),
    ],
)
def test_a_rule_is_about_what_fits_all_that_it_names(about, op, fits):
    assert denies(deny(**about), op) is fits


def test_every_path_of_a_patch_counts():
    rule = deny(ops=("write",), paths=("secret/**",))
    changes = (
        FileChange("/workspace/a", "delete"),
        FileChange("/workspace/b", "modify", target="/workspace/secret/b"),
    )
    assert denies(rule, Patch(changes=changes))
    assert not denies(rule, Patch(changes=changes[:1]))


def test_redirections_are_writes():
    rule = deny(ops=("write",), paths=("src/**",))
    looks = Rule(verdict="ask", programs=("nothing",))
    policy = Policy.allow_all().with_rules([rule, looks])
    assert policy.decide(run("echo x > src/a")).verdict == "deny"
    assert policy.decide(run("echo x > other")).verdict == "allow"


def test_paths_are_below_the_root_that_a_backend_has():
    rule = deny(paths=("src/*",))
    assert denies(rule, write("/home/me/repo/src/a"), root="/home/me/repo")
    assert not denies(rule, write("/workspace/src/a"), root="/home/me/repo")


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("git status", "allow"),
        ("/usr/bin/git status", "allow"),
        ("git status && git status", "allow"),
        ("./git status", "deny"),
        ("/tmp/git status", "deny"),
        ("/usr/bin/../../workspace/git status", "deny"),
        ("/usr/local/lib/x/git status", "deny"),
        ("/usr/local/bin/git status", "allow"),
        ("sudo git status", "deny"),
        ("git status $X", "deny"),
        ("git status; ls", "deny"),
        ("git status > file", "deny"),
    ],
)
def test_only_what_is_surely_it_is_allowed(script, verdict):
    rule = Rule(verdict="allow", programs=("git",), arguments=("status",))
    decision = Policy.deny_all().with_rules([rule]).decide(run(script))
    assert decision.verdict == verdict


@pytest.mark.parametrize("order", [1, -1])
def test_deny_beats_ask_beats_allow(order):
    rules = [
        Rule(verdict="allow", ops=("write",)),
        Rule(verdict="ask", ops=("write",), paths=("a*",)),
        Rule(verdict="deny", ops=("write",), paths=("ab*",), reason="never"),
    ][::order]
    policy = Policy.deny_all().with_rules(rules)
    assert policy.decide(write("/workspace/x")).verdict == "allow"
    assert policy.decide(write("/workspace/a")).verdict == "ask"
    decision = policy.decide(write("/workspace/ab"))
    assert (decision.verdict, decision.reason) == ("deny", "never")
    assert policy.decide(Remove(path="/workspace/x")).verdict == "allow"
    assert policy.decide(Read(path="/workspace/x")).verdict == "deny"


def test_what_cannot_be_understood_is_asked_by_who_looks_inside():
    looks = Policy.allow_all().with_rules([Rule(verdict="ask", programs=("git",))])
    assert looks.decide(run("$(cat x) push")).verdict == "ask"
    assert looks.decide(run("$(cat x) push")).rule == "not understood"
    assert Policy.allow_all().decide(run("$(cat x) push")).verdict == "allow"


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"verdict": "perhaps"}, "verdict 'perhaps'"),
        ({"verdict": "deny", "ops": ("destroy",)}, "no operation 'destroy'"),
        ({"verdict": "deny", "paths": ("",)}, "no pattern"),
        ({"verdict": "deny", "paths": ("x\0",)}, "no pattern"),
        ({"verdict": "deny", "paths": ("*a" * 9,)}, "wildcards"),
        ({"verdict": "deny", "programs": ("x" * 1025,)}, "no pattern"),
        ({"verdict": "deny", "hosts": ("a b",)}, "host"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(about, words):
    with pytest.raises(InvalidArgumentError, match=words):
        Rule(**about)


@given(pattern=st.text(max_size=40), path=st.text(max_size=60))
def test_no_pattern_breaks_anything(pattern, path):
    try:
        rule = deny(paths=(pattern,))
    except InvalidArgumentError:
        return
    assert denies(rule, write("/workspace/" + path)) in (True, False)


def test_a_pattern_takes_no_long_time():
    rule = deny(paths=("/*a*a*a*a*a*a*a*b",))
    assert not denies(rule, write("/" + "a" * 100))


SECRET = Rule(verdict="deny", paths=("secret/**",))


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("echo hi > secret/x", "deny"),
        ("ls; { echo hi; } >> ./a/../secret/x", "deny"),
        ("bash -c 'echo hi > /workspace/secret/x'", "deny"),
        ("echo hi > public/x", "allow"),
        ("cat secret/x", "allow"),
        ("echo hi > $X", "ask"),
        ('eval "$(cat x)"', "ask"),
    ],
)
def test_a_rule_on_paths_alone_sees_redirections(script, verdict):
    policies = [
        Policy.allow_all().with_rules([SECRET]),
        Policy.allow_all().with_rules([replace(SECRET, ops=("write",))]),
        Policy.auto(rules=[SECRET]),
        Policy.allow_all().tightened(Policy.allow_all().with_rules([SECRET])),
    ]
    op = Spawn(script=script, cwd="/workspace")
    assert [policy.decide(op).verdict for policy in policies] == [verdict] * 4
    for policy in policies:
        said = [decision.verdict for _, decision in policy.explain(op)]
        assert verdict in said


@pytest.mark.parametrize(
    "rule",
    [
        replace(SECRET, ops=("read",)),
        replace(SECRET, ops=("remove",)),
        replace(SECRET, verdict="allow"),
        replace(SECRET, larger_than=10),
        replace(SECRET, hosts=("a.test",)),
        Rule(verdict="deny", ops=("write",)),
    ],
)
def test_where_no_rule_is_about_redirections_no_script_is_read(rule):
    assert not Policy.allow_all().with_rules([rule]).looks_inside


LISTS = ("ops", "tools", "programs", "arguments", "paths", "hosts")


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize(
    "wrong", ["git", b"git", {"git": 1}, 5, None, [5], ("a", None)]
)
def test_a_list_of_a_rule_is_one_of_texts(name, wrong):
    with pytest.raises(InvalidArgumentError, match=f"Rule: {name}"):
        deny(**{name: wrong})


def test_one_text_is_answered_with_the_list_of_it():
    with pytest.raises(InvalidArgumentError, match=r"such as \['git'\]"):
        deny(programs="git")


@pytest.mark.parametrize("given", [["git"], ("git",), {"git"}, iter(["git"])])
def test_whatever_lists_texts_is_a_list(given):
    rule = deny(programs=given)
    assert rule.programs == ("git",)
    assert denies(rule, run("git push"))
    assert hash(rule) == hash(deny(programs=("git",)))


@pytest.mark.parametrize(
    ("program", "name"), [("/usr/bin/git", "git"), ("*/git*", "git*"), ("bin/", "bin")]
)
def test_a_program_with_its_directory_is_answered_with_its_name(program, name):
    with pytest.raises(InvalidArgumentError) as met:
        deny(name="mine", programs=(program,))
    assert str(met.value) == (
        f"rule mine: programs are named without their directory: write {name!r}, not "
        f"{program!r}"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"larger_than": "1"},
        {"larger_than": 1.5},
        {"larger_than": True},
        {"larger_than": -1},
        {"name": 5},
        {"reason": None},
        {"source": b"x"},
        {"verdict": "block"},
        {"verdict": 5},
        {"verdict": ["deny"]},
    ],
)
def test_what_is_of_another_type_is_refused(wrong):
    with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
        Rule(**{"verdict": "deny", **wrong})


@pytest.mark.parametrize(
    ("about", "nothing"),
    [
        ({"ops": ("write",), "programs": ("git",)}, True),
        ({"ops": ("read", "tool"), "arguments": ("x",)}, True),
        ({"ops": ("write", "run"), "programs": ("git",)}, False),
        ({"ops": ("spawn",), "programs": ("git",)}, False),
        ({"ops": ("script",), "arguments": ("x",)}, False),
        ({"programs": ("git",)}, False),
        ({"ops": ("write",)}, False),
        ({}, False),
    ],
)
def test_what_no_command_is_has_no_program(about, nothing):
    assert deny(**about).is_about_nothing is nothing
