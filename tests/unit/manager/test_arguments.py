"""What a manager is told that cannot be, and what is done with it after its end."""

from __future__ import annotations

import pytest

import isobox.sync
from isobox import BubblewrapWorkspace, DockerWorkspace, LocalWorkspace
from isobox.errors import (
    ConflictError,
    InvalidArgumentError,
    WorkspaceClosedError,
)
from isobox.manager import WorkspaceManager
from isobox.testing.fake import MemoryWorkspace

pytestmark = pytest.mark.anyio

ME = ("ann", "coder", "1")


@pytest.fixture
def base(tmp_path):
    return tmp_path / "base"


class Narrow(DockerWorkspace):
    """A class of a service's own, which knows its image."""

    def __init__(self, workdir=None, *, team, **options):
        super().__init__(workdir, image=f"image-of-{team}", **options)


class Closed(MemoryWorkspace):
    """One that takes nothing from a manager."""

    def __init__(self):
        super().__init__()


class TestOptions:
    @pytest.mark.parametrize(
        ("kind", "options", "what"),
        [
            (LocalWorkspace, {"nonsense": 1}, "no keyword 'nonsense'"),
            (BubblewrapWorkspace, {"image": "x"}, "no keyword 'image'"),
            (DockerWorkspace, None, "without image"),
            (DockerWorkspace, {"image": "x", "rootfs": "/"}, "no keyword 'rootfs'"),
            (Narrow, {}, "without team"),
            (Closed, {}, "no keyword 'audit, labels, workspace_id'"),
        ],
    )
    def test_what_the_class_does_not_take_or_lacks(self, base, kind, options, what):
        with pytest.raises(InvalidArgumentError, match=what):
            WorkspaceManager(kind, basedir=base, options=options)

    @pytest.mark.parametrize(
        ("kind", "options"),
        [
            (LocalWorkspace, {"env": {}, "labels": {"a": "b"}}),
            (BubblewrapWorkspace, {"mode": "copy", "budget": None}),
            (DockerWorkspace, {"image": "x", "max_mcps": 3}),
            (Narrow, {"team": "red", "runtime": "runsc", "limits": None}),
        ],
    )
    def test_what_it_takes(self, base, kind, options):
        WorkspaceManager(kind, basedir=base, options=options)

    async def test_a_function_is_told_when_it_is_asked(self, base):
        def options(tenant):
            return {"nonsense": tenant}

        async with WorkspaceManager(
            MemoryWorkspace, basedir=base, options=options
        ) as manager:
            with pytest.raises(InvalidArgumentError, match="no keyword 'nonsense'"):
                await manager.get_workspace(*ME)


class TestArguments:
    @pytest.mark.parametrize(
        "kind",
        [str, object, None, "bubblewrap", 5, isobox.sync.LocalWorkspace],
    )
    def test_what_is_no_class_of_workspaces(self, base, kind):
        with pytest.raises(InvalidArgumentError, match=r"kind=.*BubblewrapWorkspace"):
            WorkspaceManager(kind, basedir=base)

    @pytest.mark.parametrize("kind", [str, None, "bubblewrap", LocalWorkspace.run])
    def test_nor_for_blocking_code(self, base, kind):
        with pytest.raises(InvalidArgumentError, match="kind="):
            isobox.sync.WorkspaceManager(kind, basedir=base)

    @pytest.mark.parametrize("basedir", ["", None, 5, b"x", "a\0b"])
    def test_what_is_no_directory(self, basedir):
        with pytest.raises(InvalidArgumentError, match=r"basedir=.*directory"):
            WorkspaceManager(MemoryWorkspace, basedir=basedir)

    @pytest.mark.parametrize("store", [5, b"x", [], object()])
    def test_what_is_no_store(self, base, store):
        with pytest.raises(InvalidArgumentError, match=r"store=.*postgresql://"):
            WorkspaceManager(MemoryWorkspace, basedir=base, store=store)

    @pytest.mark.parametrize(
        ("given", "what"),
        [
            ({"clock": 5}, "clock=5"),
            ({"clock": 0}, "clock=0"),
            ({"heartbeat": "x"}, "heartbeat='x' is no number of seconds"),
            ({"holder_timeout": None}, "holder_timeout=None is no number"),
            ({"sweep_interval": 0}, "sweep_interval=0"),
            ({"creation_rate": 0}, "workspaces in a second"),
            ({"creation_rate": float("inf")}, "workspaces in a second"),
            ({"creation_rate": "fast"}, "workspaces in a second"),
            ({"creation_rate": True}, "workspaces in a second"),
        ],
    )
    def test_what_no_setting_can_be(self, base, given, what):
        with pytest.raises(InvalidArgumentError, match=what):
            WorkspaceManager(MemoryWorkspace, basedir=base, **given)

    async def test_who_is_missing(self, base):
        async with WorkspaceManager(MemoryWorkspace, basedir=base) as manager:
            with pytest.raises(InvalidArgumentError, match="agent_id is missing"):
                await manager.get_workspace("ann", None, "1")

    @pytest.mark.parametrize("workspace_id", [5, b"x", True, "x" * 100_000])
    def test_what_is_no_id_is_not_repeated_whole(self, workspace_id):
        with pytest.raises(InvalidArgumentError, match="workspace_id=") as caught:
            LocalWorkspace(workspace_id=workspace_id)
        assert len(str(caught.value)) < 400


class TestLife:
    async def test_it_is_opened_once_at_a_time(self, base):
        manager = WorkspaceManager(MemoryWorkspace, basedir=base)
        async with manager:
            workspace = await manager.get_workspace(*ME)
            with pytest.raises(ConflictError, match="open already"):
                await manager.open()
            with pytest.raises(ConflictError, match="open already"):
                await manager.__aenter__()
            assert await manager.get_workspace(*ME) is workspace

    async def test_after_its_end_it_is_opened_anew(self, base):
        manager = WorkspaceManager(MemoryWorkspace, basedir=base)
        async with manager:
            old = await manager.get_workspace(*ME)
        async with manager:
            new = await manager.get_workspace(*ME)
            assert new is not old
            assert await new.run(["true"])

    async def test_one_that_could_not_be_opened_is_opened_later(self, base):
        base.write_text("in the way")
        manager = WorkspaceManager(MemoryWorkspace, basedir=base)
        with pytest.raises(OSError, match="cannot be used"):
            await manager.open()
        base.unlink()
        async with manager:
            assert await manager.get_workspace(*ME)

    async def test_a_closed_workspace_names_the_manager(self, base):
        async with WorkspaceManager(MemoryWorkspace, basedir=base) as manager:
            workspace = await manager.get_workspace(*ME)
            await manager.close_workspace(workspace.workspace_id)
            for use in (workspace.run("true"), workspace.initialize()):
                with pytest.raises(WorkspaceClosedError, match="get_workspace"):
                    await use

    async def test_nor_does_one_that_could_not_be_recovered_open_again(self, base):
        class Fails(MemoryWorkspace):
            broken = False

            async def initialize(self):
                if self.broken:
                    raise ZeroDivisionError
                await super().initialize()

        async with WorkspaceManager(Fails, basedir=base) as manager:
            workspace = await manager.get_workspace(*ME)
            await workspace.close()
            Fails.broken = True
            with pytest.raises(ZeroDivisionError):
                await manager.get_workspace(*ME)
            Fails.broken = False
            with pytest.raises(WorkspaceClosedError, match="get_workspace"):
                await workspace.initialize()

    async def test_what_the_opening_has_entered_is_told_once(self, base):
        async with WorkspaceManager(LocalWorkspace, basedir=base) as manager:
            await manager.get_workspace(*ME)
            await manager.get_workspace("bob", "coder", "1")
        for each in base.glob("manager.db*"):
            each.unlink()
        async with WorkspaceManager(LocalWorkspace, basedir=base) as manager:
            assert await manager.rebuild() == 2
            assert await manager.rebuild() == 0
