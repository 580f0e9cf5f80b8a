"""Rules on arguments, where only running a command tells what these are."""

from __future__ import annotations

import json

import pytest

from isobox import Policy, Rule
from isobox._core.ops import Spawn
from isobox._policy.shell import Command, facts, worker


def said(script, verdict="deny", base=None, **about):
    policy = (base or Policy.allow_all()).with_rules([Rule(verdict=verdict, **about)])
    return policy.decide(Spawn(script=script, cwd="/workspace"))


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("chmod 777 f", "deny"),
        ("m=777; chmod $m f", "ask"),
        ('chmod "$m" f', "ask"),
        ("chmod 7$m f", "ask"),
        ("chmod 6$m f", "ask"),
        ('chmod "6$m" f', "allow"),
        ('chmod "7770$m" f', "allow"),
        ("chmod 6$# f", "allow"),
        ("chmod 7$((7 * 11)) f", "ask"),
        ("chmod 6$((7 * 11)) f", "allow"),
        ("chmod 6$((echo 5) ) f", "ask"),
        ("chmod 755 ~/f", "allow"),
        ("chmod 755 src/*", "allow"),
        ("chmod 755 *", "ask"),
        ("chmod 755 a{1,2}", "allow"),
        ("chmod 755 {a,b}", "ask"),
        ('chmod 755 "$@"', "ask"),
        ('chmod 755 a"$@"', "ask"),
        ('chmod 755 "a$*"', "allow"),
        ("xargs chmod < x", "ask"),
        ("xargs -I% chmod % f", "ask"),
        ("xargs -I% chmod 755 src/% < x", "allow"),
        ("xargs -I% chmod 755 src/%$x < x", "ask"),
        ("xargs --replace=a chmod a f", "ask"),
        ("xargs --replace chmod {} f", "ask"),
        ("xargs -I a -I b chmod b f", "ask"),
        ("M=a; xargs -I$M chmod a f", "ask"),
        ("xargs -I '' chmod a f", "ask"),
        ("find . -exec chmod 755 {} +", "allow"),
        ("find 777 -exec chmod 755 {} +", "ask"),
        ("find -L 777 -exec chmod 755 {} +", "ask"),
        ("find -O3 777 -exec chmod 755 {} +", "ask"),
        ("find a b -exec chmod 755 {} +", "ask"),
        ("find a b -execdir chmod 755 {} ';'", "ask"),
        ("find . -execdir chmod 755 {} ';'", "allow"),
        ("find -files0-from l -exec chmod 755 {} +", "ask"),
        ("fd -x chmod 755", "ask"),
        ("chown $m f", "allow"),
        ("chmod 755 f", "allow"),
        ('python3 -c \'import subprocess\nsubprocess.run(["chmod", m, "f"])\'', "ask"),
    ],
)
def test_what_only_running_it_tells_is_asked_where_it_could_fit(script, verdict):
    decision = said(script, programs=("chmod",), arguments=("777",))
    assert decision.verdict == verdict


def test_who_is_asked_is_told_why():
    decision = said(
        "chmod $m f", name="no 777", programs=("chmod",), arguments=("777",)
    )
    assert decision.rule == "no 777"
    assert decision.reason == (
        "only running it tells its arguments, and a rule is about some (chmod $m f)"
    )


@pytest.mark.parametrize(
    ("pattern", "argument", "verdict"),
    [
        ("--force*", '"--fo$x"', "ask"),
        ("--force*", '"--force$x"', "ask"),
        ("--force*", '"--forty$x"', "allow"),
        ("-[!-]*f*", '"-u$x"', "ask"),
        ("-[!-]*f*", '"--$x"', "allow"),
        ("a?c", '"ab$x"', "ask"),
        ("a?c", '"abcd$x"', "allow"),
        ("*.pem", '"a$x"', "ask"),
        ("a[1]", '"a[$x"', "ask"),
        ("x[", '"x[$y"', "ask"),
    ],
)
def test_what_an_argument_begins_with_rules_out_patterns(pattern, argument, verdict):
    decision = said(f"tool {argument}", programs=("tool",), arguments=(pattern,))
    assert decision.verdict == verdict


def test_every_pattern_has_to_fit_or_may():
    about = {"programs": ("tool",), "arguments": ("up", "--now")}
    assert said("tool up --now", **about).verdict == "deny"
    assert said("tool up $x", **about).verdict == "ask"
    assert said("tool $x", **about).verdict == "ask"
    assert said('tool up "a$x"', **about).verdict == "allow"
    assert said("tool up", **about).verdict == "allow"


@pytest.mark.parametrize(
    ("script", "arguments", "verdict"),
    [
        ('npm run "$x"', ("publish",), "allow"),
        ('npm run "$x"', ("run", "publish"), "ask"),
        ('npm "$x"', ("publish",), "ask"),
        ('npm cache "$x"', ("add",), "ask"),
        ('npm dist-tag "$x"', ("dist-tag", "add"), "ask"),
        ('npm test "$x"', ("--registry",), "ask"),
    ],
)
def test_a_program_that_is_told_a_command_is_told_no_other(script, arguments, verdict):
    # npm itself is in doubt where an argument may be an option.
    script = script.replace('"$x"', '"p$x"') if verdict == "allow" else script
    decision = said(script, programs=("npm",), arguments=arguments)
    assert decision.verdict == verdict


def test_a_rule_without_programs_asks_about_any():
    assert said("cat $f", arguments=("*/shadow",)).verdict == "ask"
    assert said("cat f", arguments=("*/shadow",)).verdict == "allow"


def test_what_may_fit_never_makes_a_decision_milder():
    about = {"programs": ("tool",), "arguments": ("up",)}
    assert said("tool $x", base=Policy.deny_all(), **about).verdict == "deny"
    allowed = Policy.allow_all().with_rules([Rule(verdict="deny", programs=("tool",))])
    assert said("tool $x", "ask", base=allowed, **about).verdict == "deny"


def test_a_file_that_nobody_can_tell_is_no_milder_either():
    secret = {"ops": ("write",), "paths": ("secret/**",)}
    assert said("echo > $X", base=Policy.deny_all(), **secret).verdict == "deny"


def test_rules_that_allow_are_about_nothing_that_may_be():
    about = {"programs": ("tool",), "arguments": ("up",)}
    assert said("tool $x", "allow", base=Policy.deny_all(), **about).verdict == "deny"


def test_what_arguments_begin_with_is_told_by_the_reading_process():
    found = facts('a "b$x" c $d; xargs e')
    assert [each.heads for each in found.commands] == [("b", ""), ("",)]
    assert worker.facts(json.loads(json.dumps(worker.plain(found)))) == found


@pytest.mark.parametrize("heads", [(), ("a",), ("a", "b", "c")])
def test_where_it_is_not_told_an_argument_may_be_anything(heads):
    command = Command("x", ("1", "2", "3"), frozenset({0, 2}), heads)
    expected = {0: heads[0] if heads else "", 2: heads[1] if len(heads) > 1 else ""}
    assert dict(command.heads_by_index()) == expected
