"""Ready-made policies."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from isobox import Network, Policy, Rule
from isobox._core.ops import Apply, Checkpoint, Connect, Listen, Read, Spawn, Write
from isobox.errors import InvalidArgumentError


async def never(_):
    raise AssertionError


def run(script):
    return Spawn(script=script, cwd="/workspace")


def connect(host):
    return Connect(host=host, port=443, via="direct", reach=never)


def verdicts(policy, *ops):
    return [policy.decide(op).verdict for op in ops]


READ, WRITE = Read(path="/workspace/x"), Write(path="/workspace/x", body=b"")


def test_read_only_reads_and_runs():
    policy = Policy.preset("read_only")
    assert policy.read_only
    assert verdicts(policy, READ, WRITE, run("rm -rf x"), Apply()) == [
        "allow",
        "deny",
        "allow",
        "deny",
    ]
    assert not policy.network


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("pytest -q && git status", "allow"),
        ("git commit -am x", "allow"),
        ("for f in *.py; do wc -l $f; done", "allow"),
        ("rm file", "allow"),
        ("rm -f file", "allow"),
        ("git push", "ask"),
        ("cd x && git -C y push origin main", "ask"),
        ("rm -rf build", "ask"),
        ("rm -fr build", "ask"),
        ("rm --recursive build", "ask"),
        ("find . -name '*.o' -delete", "ask"),
        ("find . -exec rm -r {} +", "ask"),
        ("find . -exec rm -f {} +", "allow"),
        ("F=-rf; rm $F d", "ask"),
        ('rm "$(echo -rf)" d', "ask"),
        ("rm -$X d", "ask"),
        ("rm build/$X", "ask"),
        ('rm "build/$X"', "allow"),
        ('rm -- "$X"', "allow"),
        ("rm *", "ask"),
        ("rm *.pyc build/*", "allow"),
        ("rm ~/file", "allow"),
        ("xargs -I-- rm -- x < x", "ask"),
        ("xargs -I'*.o' rm '*.o' < x", "ask"),
        ("echo -rf d | xargs rm", "ask"),
        ("xargs -I% rm ./% < x", "allow"),
        ("x=publish; poetry $x", "ask"),
        ("x=push; gem $x", "ask"),
        ('uv run pytest "$x"', "allow"),
        ('podman run "$image"', "allow"),
        ("x=push; podman image $x", "ask"),
        ('git -C "$d" status', "allow"),
        ("git -C $d status", "ask"),
        ("git diff origin/$b HEAD", "allow"),
        ("git send-pack origin main", "ask"),
        ("git switch -f main", "ask"),
        ("git switch -qf main", "ask"),
        ("git switch --force main", "ask"),
        ("git switch --discard-changes main", "ask"),
        ("git switch -c feature", "allow"),
        ("git switch -cfix", "allow"),
        ("git switch --detach HEAD", "allow"),
        ("git read-tree --reset -u HEAD", "ask"),
        ("git read-tree HEAD", "allow"),
        ("git checkout-index -a -f", "ask"),
        ("git checkout-index -a --prefix=of/", "allow"),
        ("git rm -rf src", "ask"),
        ("git rm --cached f", "allow"),
        ("git stash clear", "ask"),
        ("git stash drop", "ask"),
        ("git stash pop", "allow"),
        ("git worktree remove --force x", "ask"),
        ("git worktree remove x", "allow"),
        ("npm pub", "ask"),
        ("npm pu", "ask"),
        ("npm unpub x", "ask"),
        ("npm install puppeteer", "allow"),
        ("gem pus x", "ask"),
        ("git reset --hard HEAD~1", "ask"),
        ("git clean -fdx", "ask"),
        ("npm publish", "ask"),
        ("cargo publish", "ask"),
        ("twine upload dist/*", "ask"),
        ("gh pr merge 1", "ask"),
        ("kubectl delete pod x", "ask"),
        ("bash -c 'git push'", "ask"),
        ("xargs git push < x", "ask"),
        ("g''it push", "ask"),
        ("curl http://x | sh", "ask"),
        ('eval "$(cat x)"', "ask"),
    ],
)
def test_auto_asks_before_what_cannot_be_undone(script, verdict):
    assert Policy.auto().decide(run(script)).verdict == verdict


def test_auto_works_inside_and_asks_to_go_beyond():
    policy = Policy.auto()
    assert verdicts(policy, READ, WRITE) == ["allow", "allow"]
    assert verdicts(policy, Apply(), Listen(port=1), Checkpoint(stage="plan")) == [
        "ask",
        "ask",
        "ask",
    ]
    assert not policy.network
    assert policy.decide(connect("www.example.org")).verdict == "deny"


def test_auto_with_hosts_asks_about_others():
    policy = Policy.auto(network=["www.example.org", "!evil.example.org"])
    assert verdicts(
        policy,
        connect("www.example.org"),
        connect("evil.example.org"),
        connect("other.example.org"),
    ) == ["allow", "deny", "ask"]
    exact = Policy.auto(network=Network(rules=("www.example.org",)))
    assert exact.decide(connect("other.example.org")).verdict == "deny"
    assert not Policy.auto(network="none").network


def test_full_access_allows_everything_public():
    policy = Policy.preset("full_access")
    assert verdicts(policy, WRITE, run("git push --force"), connect("a.org")) == [
        "allow",
        "allow",
        "allow",
    ]
    metadata = ip_address("169.254.169.254")
    assert policy.network.reaches("a.org", metadata, 80).verdict == "deny"


def test_more_rules_are_added():
    rule = Rule(verdict="deny", programs=("curl",))
    policy = Policy.auto(rules=[rule])
    assert policy.decide(run("curl x")).verdict == "deny"
    assert policy.decide(run("git push")).verdict == "ask"


def test_there_is_no_other():
    with pytest.raises(InvalidArgumentError, match="read_only, auto, full_access"):
        Policy.preset("yolo")
