"""What an engine says of its containers is believed as far as it can be true."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from isobox import DockerWorkspace
from isobox._backends.docker import labels
from isobox.manager import PER_USER, State, WorkspaceManager, containers, keys
from isobox.manager.clock import SystemClock
from isobox.manager.deployment import LABEL
from isobox.manager.making import OWNER, Making
from isobox.manager.places import owner_text
from isobox.manager.records import Record, Tenant

pytestmark = pytest.mark.anyio

ANN = Tenant(user="ann")
KEY = keys.key(PER_USER, "docker", ANN)
NAME = keys.workspace_id(KEY, ANN)
RECORD = Record(
    workspace_id=NAME,
    key=KEY,
    tenant=ANN,
    backend="docker",
    place=f"{NAME}.00000001",
    state=State.LIVE,
    created_at=5.0,
    used_at=5.0,
)
LATER = replace(RECORD, place=f"{NAME}.00000002")


OPTIONS = {"image": "none"}
OURS, THEIRS = "1" * 32, "2" * 32


def container(number, workspace, owner, deployment=None):
    said = {labels.WORKSPACE: workspace}
    if owner is not None:
        said[f"{labels.OF_USER}{OWNER}"] = owner
    if deployment is not None:
        said[f"{labels.OF_USER}{LABEL}"] = deployment
    return {"Id": number, "Labels": said}


class Engine:
    """An engine with the containers that it is given."""

    def __init__(self, *containers):
        self.there = {each["Id"]: each for each in containers}

    async def containers(self, *, label):
        (asked,) = label
        name, _, value = asked.partition("=")
        return [
            each
            for each in list(self.there.values())
            if name in each["Labels"] and value in ("", each["Labels"][name])
        ]

    async def remove(self, number):
        del self.there[number]

    async def remove_volume(self, name):
        pass


@pytest.fixture
def engine(monkeypatch):
    made = Engine()

    @contextlib.asynccontextmanager
    async def connected(named):
        yield made

    monkeypatch.setattr(containers, "_engine", connected)
    return made


async def test_who_deletes_late_leaves_the_next_one(engine):
    own = container("old", NAME, owner_text(RECORD, "-"))
    next_one = container("new", NAME, owner_text(LATER, "-"))
    silent = container("silent", NAME, None)
    another = container("other", "w-other", owner_text(RECORD, "-"))
    engine.there = {each["Id"]: each for each in (own, next_one, silent, another)}
    await containers.remove(RECORD, OWNER, OURS)
    assert set(engine.there) == {"new", "other"}


async def test_another_deployments_is_left(engine):
    own = container("own", NAME, owner_text(RECORD, "-"), OURS)
    before = container("before", NAME, owner_text(RECORD, "-"))
    theirs = container("theirs", NAME, owner_text(RECORD, "-"), THEIRS)
    unread = container("unread", NAME, None, THEIRS)
    engine.there = {each["Id"]: each for each in (own, before, theirs, unread)}
    await containers.remove(RECORD, OWNER, OURS)
    assert set(engine.there) == {"theirs", "unread"}


async def test_of_several_deployments_each_finds_its_own(engine, making):
    own = container("own", NAME, owner_text(RECORD, "-"), OURS)
    before = container("before", NAME, owner_text(LATER, "-"))
    theirs = container("theirs", NAME, owner_text(LATER, "-"), THEIRS)
    engine.there = {each["Id"]: each for each in (own, before, theirs)}
    assert await making.on_engine() == [(RECORD, OURS), (LATER, "")]


@pytest.mark.parametrize("here", [False, True])
async def test_what_says_no_deployment_counts_if_it_is_asked_for(
    engine, tmp_path, here
):
    basedir = tmp_path / "base"
    if here:
        (basedir / RECORD.place / "files").mkdir(parents=True)
        basedir.chmod(0o700)
    manager = WorkspaceManager(DockerWorkspace, basedir=basedir, options=OPTIONS)
    before = container("before", NAME, owner_text(RECORD, "-"))
    theirs = container("theirs", NAME, owner_text(LATER, "-"), THEIRS)
    engine.there = {each["Id"]: each for each in (before, theirs)}
    async with manager:
        assert not await manager.list_workspaces()
        assert await manager.rebuild() == int(here)
        found = [one.workspace_id for one in await manager.list_workspaces()]
    assert found == [NAME] * here


async def test_one_says_nothing_of_another(engine):
    true = container("true", NAME, owner_text(RECORD, "-"))
    false = container("false", "w-of-eve", owner_text(LATER, "-"))
    none = container("none", NAME, "[" * 100_000)
    engine.there = {each["Id"]: each for each in (true, false, none)}
    assert await containers.owned(None, OWNER) == [(RECORD, "")]


@pytest.fixture
def making():
    made = Making(DockerWorkspace, OPTIONS, SystemClock(), audit=False, prewarm=False)
    made.deployment = OURS
    return made


def test_a_user_called_spare_is_no_spare(making):
    whose = Tenant(user="spare")
    key = keys.key(PER_USER, "docker", whose)
    for deployment in (OURS, ""):
        name = keys.workspace_id(key, whose, deployment)
        record = replace(RECORD, workspace_id=name, key=key, tenant=whose)
        assert name.startswith(keys.SPARE)
        assert making._named(record) is record
    for name in (keys.spare_id(), keys.workspace_id(key, whose, THEIRS)):
        assert making._named(replace(record, workspace_id=name)).tenant is None
