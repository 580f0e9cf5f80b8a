"""The manager over containers: several processes have one, and labels tell all."""

import json

import anyio
import pytest

from isobox import DockerWorkspace
from isobox.manager import State, WorkspaceManager

pytestmark = pytest.mark.anyio

ME = ("ann\u00e4", "coder", "1")


@pytest.fixture
def managed(engine, python_image, scratch, request):
    """Return managers of one directory; nothing of them is left on the engine."""
    base = scratch / f"managed-{abs(hash(request.node.name))}"
    options = {"image": python_image, "engine": engine.url}
    yield lambda another="", **how: WorkspaceManager(
        DockerWorkspace, basedir=f"{base}{another}", options=options, **how
    )
    for name in names(engine):
        engine.call("rm", "--force", name)


def names(engine):
    listed = engine.call(
        "ps",
        "--all",
        "--filter",
        "label=isobox.label.isobox-owner",
        "--format",
        "{{.Names}}",
    )
    return listed.stdout.split()


async def test_two_processes_have_one_container(managed, engine):
    async with managed() as one, managed() as other:
        first = await one.get_workspace(*ME)
        await first.write("file", "mine")
        second = await other.get_workspace(*ME)
        assert await second.read_text("file") == "mine"
        assert not first._is_lost()
        assert len(names(engine)) == 1
        # Who lets go first leaves it to the other.
        await one.close_workspace(first.workspace_id)
        assert (await second.run("true")).ok
        await other.close_workspace(second.workspace_id)
        assert not names(engine)
        again = await one.get_workspace(*ME)
        assert await again.read_text("file") == "mine"


async def test_a_manager_that_ends_leaves_what_runs(managed, engine):
    async with managed() as one:
        workspace = await one.get_workspace(*ME)
        await workspace.start(["sleep", "1000"])
    assert len(names(engine)) == 1
    async with managed() as other:
        workspace = await other.get_workspace(*ME)
        assert [each.command for each in await workspace.processes()] == [
            ("sleep", "1000")
        ]
        await other.delete_workspace(workspace.workspace_id, user_id=ME[0])
        assert not names(engine)


async def test_a_container_that_was_removed_comes_back(managed, engine):
    async with managed() as manager:
        workspace = await manager.get_workspace(*ME)
        await workspace.write("file", "mine")
        engine.call("rm", "--force", *names(engine))
        with anyio.fail_after(30):
            while not workspace._is_lost():
                await anyio.sleep(0.01)
        again = await manager.get_workspace(*ME)
        assert await again.read_text("file") == "mine"


async def test_labels_are_enough_to_learn_it_again(managed, engine, scratch, tmp_path):
    async with managed() as one:
        name = (await one.get_workspace(*ME)).workspace_id
    for owner in scratch.glob("managed-*/*/owner.json"):
        owner.unlink()
    async with managed(store=tmp_path / "another.db") as other:
        (row,) = await other.list_workspaces()
        assert row.workspace_id == name
        assert row.state is State.LIVE
        assert row.tenant.user == ME[0]
        workspace = await other.get_workspace(*ME)
        assert workspace.workspace_id == name
        assert len(names(engine)) == 1
        await other.delete_workspace(name)


async def test_what_nobody_has_is_removed_when_it_is_idle(managed, engine):
    async with managed() as one:
        await one.get_workspace(*ME)
    async with managed(ttl=0.5) as other:
        await anyio.sleep(0.6)
        await other.sweep()
        assert not names(engine)
        (row,) = await other.list_workspaces()
        assert row.state is State.CLOSED


async def test_one_made_ahead_is_found_by_another(managed, engine):
    async with managed(prewarm=1) as one, managed() as other:
        with anyio.fail_after(60):
            while not one.stats().spares:
                await anyio.sleep(0.05)
        first = await one.get_workspace(*ME)
        assert first.workspace_id.startswith("spare-")
        await first.write("file", "mine")
        second = await other.get_workspace(*ME)
        assert second.arrival.how == "attached"
        assert await second.read_text("file") == "mine"


@pytest.mark.parametrize("seconds", [0, 0.05, 0.15, 0.3, 0.5, 0.8])
async def test_the_end_leaves_nothing_of_one_that_is_being_made(
    managed, engine, seconds
):
    async with managed(prewarm=2):
        await anyio.sleep(seconds)
    assert not names(engine)
    async with managed() as other:
        assert not await other.list_workspaces()


async def test_a_spare_that_nobody_knows_is_found_by_its_labels(
    managed, engine, python_image
):
    async with managed(prewarm=1) as manager:
        with anyio.fail_after(60):
            while not manager.stats().spares:
                await anyio.sleep(0.05)
        (name,) = names(engine)
        said = json.loads(engine.call("inspect", name).stdout)[0]["Config"]["Labels"]
    labels = [f"--label={key}={value}" for key, value in said.items()]
    # As if the engine had begun it when its maker had gone already.
    engine.call("create", "--name", name, *labels, python_image, "true")
    async with managed() as other:
        assert names(engine) == [name]
        assert not await other.rebuild()
        assert not names(engine)


async def test_two_deployments_on_one_engine_leave_each_other_alone(managed, engine):
    async with managed() as one, one.lease(*ME) as first:
        await first.write("file", "of one")
        running = await first.start(["sleep", "1000"])
        async with managed("-other", ttl=0.1, retention=0) as other:
            assert not await other.list_workspaces()
            assert not await other.rebuild()
            second = await other.get_workspace(*ME)
            assert second.workspace_id != first.workspace_id
            assert not await second.exists("file")
            assert len(names(engine)) == 2
            await other.delete_workspace(second.workspace_id)
            await other.sweep()
        assert len(names(engine)) == 1
        assert not first._is_lost()
        assert await first.read_text("file") == "of one"
        await running.kill()
