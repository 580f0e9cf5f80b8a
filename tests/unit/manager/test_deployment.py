"""A store and a directory that belong together, and those that do not."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.stores import alive, live

from isobox.errors import PathError, StoreError
from isobox.manager import SqlStore, WorkspaceManager, identity, keys
from isobox.manager.records import Deployment, Tenant
from isobox.testing.fake import MemoryWorkspace

pytestmark = pytest.mark.anyio

ME = ("ann", "coder", "1")
ONE = Deployment(identity="1" * 32, basedir="/one")
OTHER = Deployment(identity="2" * 32, basedir="/other")


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "store" / "manager.db")
    return request.getfixturevalue("postgres").place()


class Placed(MemoryWorkspace):
    """One in memory that has a directory all the same."""

    def __init__(self, workdir, **options):
        super().__init__(**options)


def managed(basedir, store):
    return WorkspaceManager(Placed, basedir=basedir, store=store, audit=False)


async def change(where, statement):
    async with SqlStore(where) as store:
        await store._database.write(lambda t: t.change(text(statement)))


async def made(basedir, where):
    """Make a workspace and return its name."""
    async with managed(basedir, where) as manager:
        return (await manager.get_workspace(*ME)).workspace_id


def places(basedir):
    return [one for one in os.listdir(basedir) if keys.is_place(one)]


class TestStores:
    async def test_it_is_of_the_first_that_says_so(self, where):
        async with SqlStore(where) as store:
            assert await store.deployment() is None
            assert await store.deploy(ONE) == ONE
            assert await store.deploy(OTHER) == ONE
            assert await store.deployment() == ONE

    async def test_it_remembers_where_the_directory_is_now(self, where):
        moved = Deployment(identity=ONE.identity, basedir="/new/\udcff\0")
        async with SqlStore(where) as store:
            await store.deploy(ONE)
            assert await store.deploy(moved) == moved
            assert await store.deployment() == moved

    async def test_of_many_at_once_one_is_first(self, where):
        async with SqlStore(where) as store, SqlStore(where) as second:
            both = [(store, ONE), (second, OTHER)] * 4
            found = await asyncio.gather(*(one.deploy(its) for one, its in both))
        assert len(set(found)) == 1

    async def test_one_of_the_first_days_gets_the_table(self, where):
        await change(where, "DROP TABLE isobox_deployment")
        async with SqlStore(where) as store:
            assert await store.deployment() is None
            assert await store.deploy(ONE) == ONE

    @pytest.mark.parametrize("said", ["", "../x", "1" * 31, "1" * 32 + "\n", "G" * 32])
    async def test_a_row_that_is_none_of_ours_is_refused(self, where, said):
        async with SqlStore(where) as store:
            await store.deploy(ONE)
        await change(where, f"UPDATE isobox_deployment SET identity = '{said}'")
        async with SqlStore(where) as store:
            with pytest.raises(StoreError, match="isobox_deployment"):
                await store.deployment()


class TestFiles:
    def test_it_says_what_was_said_first(self, tmp_path):
        base = str(tmp_path)
        assert identity.read(base) is None
        assert identity.make(base, ONE.identity) == ONE.identity
        assert identity.make(base, OTHER.identity) == ONE.identity
        assert identity.read(base) == ONE.identity
        assert os.listdir(base) == [".deployment"]
        assert stat.S_IMODE(os.stat(identity.path(base)).st_mode) == 0o600

    def test_a_file_system_may_have_no_links(self, tmp_path, monkeypatch):
        def link(*_):
            raise PermissionError

        monkeypatch.setattr(os, "link", link)
        assert identity.make(str(tmp_path), ONE.identity) == ONE.identity
        assert os.listdir(tmp_path) == [".deployment"]

    @pytest.mark.parametrize(
        "said", [b"", b"\n", b"x", b"1" * 31, b"1" * 33, b"1" * 10_000, b"\xff\x1b[2J"]
    )
    def test_what_is_none_is_told(self, tmp_path, said):
        (tmp_path / ".deployment").write_bytes(said)
        for ask in (identity.read, lambda base: identity.make(base, ONE.identity)):
            with pytest.raises(PathError, match="remove it") as caught:
                ask(str(tmp_path))
            assert "\x1b" not in str(caught.value)

    @pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
    def test_what_is_no_file_is_told(self, tmp_path, kind):
        path = tmp_path / ".deployment"
        if kind == "link":
            (tmp_path / "real").write_text(ONE.identity)
            path.symlink_to("real")
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            path.mkdir()
        with pytest.raises(PathError, match="remove it"):
            identity.read(str(tmp_path))

    def test_who_may_not_write_is_told(self, tmp_path):
        with pytest.raises(PathError, match="name another"):
            identity.make(str(tmp_path / "none"), ONE.identity)


class TestManagers:
    async def test_another_directory_is_refused(self, tmp_path, where):
        name = await made(tmp_path / "one", where)
        for _ in range(2):
            with pytest.raises(PathError, match=str(tmp_path / "one")) as caught:
                await managed(tmp_path / "two", where).open()
            assert caught.value.path == str(tmp_path / "two")
        async with managed(tmp_path / "one", where) as manager:
            (row,) = await manager.list_workspaces()
            assert row.workspace_id == name
            assert row.place in places(tmp_path / "one")
        assert not places(tmp_path / "two")
        assert identity.read(str(tmp_path / "two")) is None

    async def test_two_that_begin_with_a_directory_each_are_told(self, tmp_path, where):
        async with managed(tmp_path / "one", where):
            with pytest.raises(PathError, match="basedir"):
                await managed(tmp_path / "two", where).open()

    async def test_the_directory_of_another_store_is_refused(self, tmp_path, where):
        await made(tmp_path / "one", where)
        await made(tmp_path / "two", None)
        with pytest.raises(PathError, match="belongs to another store"):
            await managed(tmp_path / "two", where).open()

    async def test_a_directory_may_be_moved(self, tmp_path, where):
        name = await made(tmp_path / "one", where)
        os.rename(tmp_path / "one", tmp_path / "two")
        assert await made(tmp_path / "two", where) == name
        with pytest.raises(PathError, match=str(tmp_path / "two")):
            await managed(tmp_path / "one", where).open()

    async def test_what_is_from_before_agrees_by_its_files(self, tmp_path, where):
        name = await made(tmp_path / "one", where)
        await change(where, "DROP TABLE isobox_deployment")
        Path(identity.path(str(tmp_path / "one"))).unlink()
        with pytest.raises(PathError, match="made in"):
            await managed(tmp_path / "two", where).open()
        assert await made(tmp_path / "one", where) == name
        async with SqlStore(where) as store:
            known = await store.deployment()
        assert known == Deployment(
            identity=identity.read(str(tmp_path / "one")) or "",
            basedir=str(tmp_path / "one"),
        )

    @pytest.mark.parametrize("lost", ["file", "row"])
    async def test_what_one_of_both_has_lost_comes_back(self, tmp_path, where, lost):
        name = await made(tmp_path / "one", where)
        before = identity.read(str(tmp_path / "one"))
        if lost == "file":
            Path(identity.path(str(tmp_path / "one"))).unlink()
        else:
            await change(where, "DELETE FROM isobox_deployment")
        assert await made(tmp_path / "one", where) == name
        assert identity.read(str(tmp_path / "one")) == before

    async def test_a_new_store_becomes_the_directorys(self, tmp_path, where):
        name = await made(tmp_path / "one", None)
        before = identity.read(str(tmp_path / "one"))
        async with managed(tmp_path / "one", where) as manager:
            assert [one.workspace_id for one in await manager.list_workspaces()] == [
                name
            ]
        async with SqlStore(where) as store:
            known = await store.deployment()
        assert known is not None
        assert known.identity == before

    async def test_a_store_can_begin_anew_as_the_message_says(self, tmp_path, where):
        await made(tmp_path / "one", where)
        with pytest.raises(PathError) as caught:
            await managed(tmp_path / "two", where).open()
        told = identity.read(str(tmp_path / "one")) or "?"
        assert f"write {told} to '{tmp_path / 'two'}/.deployment'" in str(caught.value)
        (tmp_path / "two" / ".deployment").write_text(told)
        await made(tmp_path / "two", where)

    async def test_a_hostile_file_is_told(self, tmp_path, where):
        await made(tmp_path / "one", where)
        (tmp_path / "one" / ".deployment").write_text("../../etc")
        with pytest.raises(PathError, match="remove it"):
            await managed(tmp_path / "one", where).open()
        (tmp_path / "one" / ".deployment").unlink()
        await made(tmp_path / "one", where)

    async def test_rows_that_lead_elsewhere_are_no_files(self, tmp_path, where):
        async with SqlStore(where) as store:
            await alive(store, "a")
            await live(store, "a", place="x")
        os.makedirs(tmp_path / "one" / "x" / "files")
        os.chmod(tmp_path / "one", 0o700)
        with pytest.raises(PathError, match="made in"):
            await managed(tmp_path / "one", where).open()

    async def test_many_at_once_agree(self, tmp_path, where):
        several = [managed(tmp_path / "one", where) for _ in range(6)]
        await asyncio.gather(*(each.open() for each in several))
        found = {each._running.site.making.deployment for each in several}
        for each in several:
            await each.aclose()
        assert found == {identity.read(str(tmp_path / "one"))}


def test_names_differ_between_deployments():
    whose = Tenant(user="zo\u00eb", agent="coder")
    key = keys.key(keys.PER_AGENT, "local", whose)
    names = {keys.workspace_id(key, whose, one) for one in ("", "1" * 32, "2" * 32)}
    assert len(names) == 3
    assert all(name.startswith("zoe-coder-") and len(name) == 36 for name in names)
