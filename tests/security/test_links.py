"""Rules on paths hold under every name that a link gives a file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isobox import (
    Answer,
    BubblewrapWorkspace,
    LocalWorkspace,
    MemorySink,
    Policy,
    Rule,
    abc,
)
from isobox._core.links import real_path
from isobox._core.patch import FileChange
from isobox.errors import ConflictError, PathError, PolicyDeniedError

pytestmark = pytest.mark.anyio

KINDS = {"local": LocalWorkspace, "bubblewrap": BubblewrapWorkspace}
DENIES = Policy.allow_all().with_rules(
    [Rule(verdict="deny", name="secrets", paths=("secrets", "secrets/**"))]
)
#: `folder` and `deep/up/x` are secrets, `file` is a secret, `turn` leads to both.
LINKS = """
    mkdir -p secrets public deep
    echo key > secrets/key; echo p > public/p
    ln -s secrets folder; ln -s secrets/key file; ln -s public fine
    ln -s ../deep deep/up; ln -s ../folder deep/x
    ln -s /proc/self/cwd/secrets magic; ln -s nothing/../secrets/new dangling
"""


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


async def linked(ws):
    # From a file, which no policy reads: it redirects to a secret.
    await ws.write("links.sh", LINKS.encode())
    await ws.run(["sh", "links.sh"], check=True)
    await ws.remove("links.sh")


REACHES = {
    "read": lambda ws: ws.read_bytes("folder/key"),
    "read a file": lambda ws: ws.read_bytes("file"),
    "read far": lambda ws: ws.read_bytes("deep/up/up/x/key"),
    "read lines": lambda ws: ws.read_lines("file"),
    "write": lambda ws: ws.write("folder/new", b"x"),
    "write through": lambda ws: ws.write("file", b"x"),
    "write piece by piece": lambda ws: ws.write("folder/new", pieces()),
    "edit": lambda ws: ws.edit("file", "key", "lock"),
    "stat": lambda ws: ws.stat("folder/key", digest=True),
    "scan": lambda ws: ws.scan("folder"),
    "glob": lambda ws: ws.glob("*", path="folder"),
    "grep": lambda ws: ws.grep("key", path="folder"),
    "remove": lambda ws: ws.remove("folder/key"),
    "remove all": lambda ws: ws.remove("deep/x/key", recursive=True),
    "pull": lambda ws: ws._do(abc.Pull(path=ws._path("deep/x/key"))),
    "push": lambda ws: ws._do(abc.Push(path=ws._path("folder"), body=b"")),
    "patch": lambda ws: patch(ws, "folder/key", "update"),
    "patch a link": lambda ws: patch(ws, "file", "delete"),
    "patch away": lambda ws: patch(ws, "public/p", "update", "folder/p"),
    "cwd": lambda ws: ws.run("cat key", cwd="folder"),
    "spool": lambda ws: ws.run("echo x", spool="folder/out"),
}


async def pieces():
    yield b"x"


async def patch(ws, path, change, target=None):
    moved = None if target is None else ws._path(target)
    await ws._do(abc.Patch(changes=(FileChange(ws._path(path), change, target=moved),)))


@pytest.mark.parametrize("reach", REACHES)
async def test_no_other_name_of_it_is_reached(kind, reach):
    sink = MemorySink()
    async with kind(policy=DENIES, audit=sink) as ws:
        await linked(ws)
        with pytest.raises(PolicyDeniedError, match=r"leads to .*/secrets") as caught:
            await REACHES[reach](ws)
        assert caught.value.rule == "secrets"
        found = await ws.run("cat secrets/key; ls secrets; cat public/p")
        assert found.stdout == "key\nkey\np\n"
    (failed,) = [each for each in sink.records if each.get("ok") is False]
    assert failed["error"] == "PolicyDeniedError"


async def test_what_leads_elsewhere_goes_on(kind):
    async with kind(policy=DENIES) as ws:
        await linked(ws)
        assert await ws.read_text("fine/p") == "p\n"
        await ws.write("fine/q", b"q")
        assert (await ws.run("cat p q", cwd="fine")).stdout == "p\nq"
        # The links are no secrets themselves.
        await ws.remove("file")
        await ws.remove("folder")
        assert (await ws.run("cat secrets/key")).stdout == "key\n"
    async with kind(policy=DENIES) as ws:
        await ws.write("a/new/file", b"x")
        assert await ws.read_bytes("a/new/file") == b"x"


async def test_a_rule_that_allows_is_no_way_by_a_link(kind):
    policy = Policy.deny_all().with_rules(
        [
            Rule(verdict="allow", ops=("run",)),
            Rule(verdict="allow", ops=("read", "write"), paths=("public/**",)),
        ]
    )
    async with kind(policy=policy) as ws:
        await ws.run(LINKS, check=True)
        await ws.run("ln -s ../secrets/key public/in; ln -s p public/q")
        assert await ws.read_text("public/q") == "p\n"
        with pytest.raises(PolicyDeniedError):
            await ws.read_text("public/in")


async def test_a_person_sees_where_it_leads_and_answers_for_that(kind):
    asked = []

    async def approve(question):
        asked.append(question)
        return Answer(True, "session")

    rule = Rule(verdict="ask", name="ask", ops=("write",), paths=("secrets/**",))
    policy = Policy.allow_all().with_rules([rule])
    async with kind(policy=policy, approve=approve) as ws:
        await linked(ws)
        for _ in range(2):
            await ws.write("folder/new", b"1")
        (question,) = asked
        place = f"{ws.root}/folder/new", f"{ws.root}/secrets/new"
        assert question.preview.startswith("{} leads to {}\n".format(*place))
        assert question.facts["links"] == ["{} -> {}".format(*place)]
        # Turned elsewhere, the same name is another question.
        await ws.run("mkdir secrets/sub; ln -sfn secrets/sub folder")
        await ws.write("folder/new", b"2")
        assert len(asked) == 2


async def test_a_link_that_is_turned_after_the_decision_leads_nowhere(kind):
    async with kind() as ws:
        await linked(ws)
        path = ws._path("fine/p")
        for op in (
            abc.Read(path=path),
            abc.Write(path=path, body=b"x"),
            abc.Remove(path=path),
            abc.Spawn(script="cat p", cwd=ws._path("fine"), capture=100),
        ):
            asked = [(getattr(op, "path", ws._path("fine")), True)]
            places = await ws._sandbox.places(asked)
            await ws.run("ln -sfn secrets fine; cp secrets/key secrets/p", check=True)
            with pytest.raises(ConflictError, match="led elsewhere"):
                await ended(ws, replace(op, places=places))
            await ws.run("ln -sfn public fine", check=True)
        assert (await ws.run("cat secrets/key public/p")).stdout == "key\np\n"


async def ended(ws, op):
    """Perform an operation to its end, as if the policy had decided on it."""
    result = await op.on(ws._sandbox)
    if isinstance(op, abc.Spawn):
        await result.wait()


async def test_what_others_find_out_is_what_the_guest_says(kind):
    async with kind() as ws:
        await linked(ws)
        await ws.run("ln -s loop loop", check=True)
        names = ["folder/key", "file", "deep/up/up/x/new", "dangling", "fine", "no/a"]
        for follow in (True, False):
            for name in names:
                path = ws._path(name)
                (place,) = await ws._sandbox.places([(path, follow)])
                assert place.real == await real_path(ws._sandbox, path, follow=follow)
        with pytest.raises(PathError, match="circle"):
            await real_path(ws._sandbox, ws._path("loop"), follow=True)


async def test_without_rules_on_paths_nobody_looks(kind, monkeypatch):
    async with kind(policy=Policy.auto()) as ws:
        monkeypatch.setattr(type(ws._sandbox), "places", None)
        await ws.write("a", b"x")
        assert await ws.read_bytes("a") == b"x"
