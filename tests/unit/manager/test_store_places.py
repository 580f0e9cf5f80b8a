"""Where a store may be, who may see it, and what it believes of what it reads."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from tests.stores import LONG, alive, asked, granted, live

from isobox.errors import InvalidArgumentError, StoreError
from isobox.manager.sql import SqlStore
from isobox.manager.sql.address import address
from isobox.manager.sql.text import escaped, plain

pytestmark = pytest.mark.anyio

SECRET = "hunter2-secret"
NOT_OURS = r"that it cannot|not one that"


class TestAddress:
    @pytest.mark.parametrize(
        ("given", "path"),
        [
            ("/a/b.db", "/a/b.db"),
            (Path("/a/b.db"), "/a/b.db"),
            ("sqlite:////a/b.db", "/a/b.db"),
            ("sqlite+aiosqlite:////a/b.db", "/a/b.db"),
            ("sqlite:///b.db", "b.db"),
            ("b.db", "b.db"),
            (Path("mysql://x"), "mysql:/x"),
        ],
    )
    def test_a_file(self, given, path):
        assert address(given).path == os.path.abspath(path)

    @pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
    def test_a_server(self, scheme):
        where = address(f"{scheme}://me:{SECRET}@db.example:5432/boxes?sslmode=require")
        expected = f"postgresql://me:{SECRET}@db.example:5432/boxes?sslmode=require"
        assert where.dsn == expected
        assert where.shown == "postgresql://db.example:5432/boxes"

    @pytest.mark.parametrize(
        "given",
        [
            "",
            "a\0b",
            ":memory:",
            "sqlite://",
            "sqlite:///",
            "sqlite:///:memory:",
            "sqlite://host/x",
            "sqlite:///x?mode=ro",
            "postgresql://a\0b",
            f"mysql://me:{SECRET}@host/x",
            f"://me:{SECRET}@host/x",
        ],
    )
    def test_others_are_refused(self, given):
        with pytest.raises(InvalidArgumentError, match="give the path of") as caught:
            address(given)
        assert SECRET not in str(caught.value)

    @given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
    def test_no_password_is_shown(self, before, after, query):
        given = f"postgresql://me{before}:{SECRET}{after}@host/x?{query}"
        if "\0" not in given:
            assert SECRET not in repr(address(given))


class TestText:
    @given(st.text(st.characters(exclude_categories=())))
    def test_text_comes_back(self, text):
        stored = escaped(text)
        assert "\0" not in stored
        assert stored.encode().decode() == stored
        assert plain(stored) == text

    @pytest.mark.parametrize(
        "stored", ["\\", "\\00", "\\0041", "\\D800", "\0", 5, b"x"]
    )
    def test_what_was_not_escaped_is_refused(self, stored):
        with pytest.raises(StoreError, match="text that it cannot"):
            plain(stored)


class TestFile:
    async def test_it_is_its_owners_alone(self, tmp_path):
        path = tmp_path / "new" / "manager.db"
        async with SqlStore(path) as store:
            await alive(store, "a")
            modes = {
                one.name: stat.S_IMODE(one.stat().st_mode)
                for one in path.parent.iterdir()
            }
        assert set(modes) == {"manager.db", "manager.db-wal", "manager.db-shm"}
        assert set(modes.values()) == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    @pytest.mark.parametrize("mode", [0o777, 0o720, 0o702, 0o1777])
    async def test_its_directory_is_no_others_to_write(self, tmp_path, mode):
        tmp_path.chmod(mode)
        with pytest.raises(StoreError, match="chmod go-w"):
            await SqlStore(tmp_path / "manager.db").open()
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("mode", [0o604, 0o640, 0o666])
    async def test_it_is_not_open_to_others(self, tmp_path, mode):
        (tmp_path / "manager.db").touch()
        (tmp_path / "manager.db").chmod(mode)
        with pytest.raises(StoreError, match="chmod 600"):
            await SqlStore(tmp_path / "manager.db").open()

    @pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
    async def test_it_is_a_regular_file(self, tmp_path, kind):
        path = tmp_path / "manager.db"
        {
            "link": lambda: path.symlink_to(tmp_path / "elsewhere"),
            "directory": path.mkdir,
            "pipe": lambda: os.mkfifo(path),
        }[kind]()
        with pytest.raises(StoreError, match="no regular file"):
            await SqlStore(path).open()
        assert not (tmp_path / "elsewhere").exists()

    @pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
    async def test_it_is_not_another_users(self, tmp_path):
        path = tmp_path / "manager.db"
        path.touch(0o600)
        os.chown(path, 1234, 1234)
        with pytest.raises(StoreError, match="belongs to user 1234"):
            await SqlStore(path).open()

    async def test_what_is_no_database_is_refused(self, tmp_path):
        path = tmp_path / "manager.db"
        path.write_bytes(b"not a database" * 1000)
        path.chmod(0o600)
        with pytest.raises(StoreError, match="not a database"):
            await SqlStore(path).open()

    async def test_who_is_kept_waiting_is_told(self, tmp_path, monkeypatch):
        monkeypatch.setattr("isobox.manager.sql.sqlite._PATIENCE", 0.05)
        path = tmp_path / "manager.db"
        async with SqlStore(path) as store:
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="database is locked"):
                await store.beat("a", 0, 1, {})
            assert await store.holders(0) == []
            other.execute("ROLLBACK")
            other.close()
            assert await store.beat("a", 0, 1, {}) == ()

    @pytest.mark.parametrize("again", [True, False])
    async def test_one_that_was_removed_is_no_store_any_more(self, tmp_path, again):
        path = tmp_path / "manager.db"
        async with SqlStore(path) as store:
            assert await store.beat("holder", 0, LONG, {}) == ()
            for each in tmp_path.glob("manager.db*"):
                each.unlink()
            if again:
                async with SqlStore(path) as other:
                    assert await other.holders(0) == []
            with pytest.raises(StoreError):
                await store.beat("holder", 1, LONG, {})
            with pytest.raises(StoreError):
                await store.find("w", 0)

    async def test_it_outlives_its_processes(self, tmp_path):
        for number in range(3):
            async with SqlStore(tmp_path / "manager.db") as store:
                await alive(store, "a")
                await live(store, "a", str(number))
                assert len(await store.records(1)) == number + 1


class TestServer:
    async def test_who_cannot_be_reached(self):
        store = SqlStore(f"postgresql://me:{SECRET}@127.0.0.1:1/x")
        with pytest.raises(StoreError, match=r"127\.0\.0\.1:1/x: ") as caught:
            await store.open()
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize(
        "url", ["me:{}@host:port/x", "me:{}@[/x", "me:{}@h/x?port=y"]
    )
    async def test_a_url_that_cannot_be_read(self, url):
        store = SqlStore("postgresql://" + url.format(SECRET))
        with pytest.raises(StoreError) as caught:
            await store.open()
        assert SECRET not in str(caught.value)
        assert SECRET not in repr(store)

    async def test_a_database_that_there_is_not(self, postgres):
        store = SqlStore(f"postgresql://isobox:{SECRET}@/none?host={postgres.base}")
        with pytest.raises(
            StoreError, match='database "none" does not exist'
        ) as caught:
            await store.open()
        assert SECRET not in str(caught.value)

    async def test_an_option_that_there_is_not(self, postgres):
        store = SqlStore(f"{postgres.place()}&no_such_thing=1")
        with pytest.raises(StoreError, match="no_such_thing"):
            await store.open()

    async def test_connections_that_the_server_ended(self, postgres):
        async with SqlStore(postgres.place()) as store:
            await alive(store, "a")
            postgres.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'isobox'"
            )
            await live(store, "a")

    async def test_who_is_kept_waiting_is_told(self, postgres, monkeypatch):
        session = {"lock_timeout": "50"}
        monkeypatch.setattr("isobox.manager.sql.postgres._SESSION", session)
        place = postgres.place()
        async with SqlStore(place) as store:
            other = await asyncpg.connect(place)
            await other.execute("BEGIN; LOCK TABLE isobox_holders")
            with pytest.raises(StoreError, match="lock timeout"):
                await store.beat("a", 0, 1, {})
            await other.close()
            assert await store.beat("a", 0, 1, {}) == ()

    async def test_what_a_stopped_process_locks_is_freed(self, postgres, monkeypatch):
        session = {"idle_in_transaction_session_timeout": "50"}
        monkeypatch.setattr("isobox.manager.sql.postgres._SESSION", session)
        place = postgres.place()
        async with SqlStore(place) as store, SqlStore(place) as other:
            stopped = await other._database._engine.connect()
            await stopped.exec_driver_sql("LOCK TABLE isobox_holders")
            assert await store.beat("a", 0, 1, {}) == ()
            with pytest.raises(DBAPIError, match=r"is closed|idle-in-tr"):
                await stopped.exec_driver_sql("SELECT 1")
            await stopped.close()


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "manager.db")
    return request.getfixturevalue("postgres").place()


async def test_a_store_is_opened_first(where):
    store = SqlStore(where)
    with pytest.raises(StoreError, match="call `open`"):
        await store.holders(1)
    await store.aclose()
    await store.open()
    await store.open()
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="call `open`"):
        await store.beat("a", 1, 2, {})


async def change(store, statement):
    """Do what another program might have done."""
    await store._database.write(lambda t: t.change(text(statement)))


async def test_tables_of_another_version_are_refused(where):
    async with SqlStore(where) as store:
        await change(store, "UPDATE isobox_schema SET version = 7")
    with pytest.raises(StoreError, match=r"version \[7\], this isobox knows 1"):
        await SqlStore(where).open()


async def test_tables_of_no_version_are_refused(where):
    async with SqlStore(where) as store:
        await change(store, "DELETE FROM isobox_schema")
    with pytest.raises(StoreError, match="version"):
        await SqlStore(where).open()


@pytest.mark.parametrize(
    "column",
    [
        "workspace_id = '../x'",
        "workspace_id = 'w' || '\\'",
        "key = NULL",
        "user_id = NULL",
        "user_id = '\\'",
        "agent_id = '\\zzzz'",
        "place = '../x'",
        "place = '..'",
        "place = ''",
        "state = 'frozen'",
        "options = '[]'",
        "options = 'x'",
        "options = '{\"a\": '",
        "created_at = 'Infinity'",
    ],
)
async def test_a_row_that_is_none_of_ours_is_refused(where, column):
    async with SqlStore(where) as store:
        await alive(store, "a")
        await alive(store, "b", until=2 * LONG)
        await live(store, "a")
        await change(store, f"UPDATE isobox_workspaces SET {column}")
        with pytest.raises(StoreError, match=NOT_OURS):
            await store.records(1)
        with pytest.raises(StoreError):
            await store.claim(asked("b"), LONG)


async def test_values_of_another_kind_are_refused(tmp_path):
    async with SqlStore(tmp_path / "manager.db") as store:
        await alive(store, "a")
        await live(store, "a")
        for column in ("used_at = 'x'", "state = 5", "options = 5", "place = x'00'"):
            await change(store, f"UPDATE isobox_workspaces SET {column}")
            with pytest.raises(StoreError):
                await store.find("w-one", 1)


async def test_a_table_that_is_gone_is_told(where):
    async with SqlStore(where) as store:
        await change(store, "DROP TABLE isobox_holds")
        with pytest.raises(StoreError, match="isobox_holds"):
            await store.wanted("a")


async def test_messages_hold_nothing_of_a_tenant(where):
    async with SqlStore(where) as store:
        await alive(store, "a")
        await change(store, "DROP TABLE isobox_holds")
        with pytest.raises(StoreError) as caught:
            await granted(store, "a", "tenant-secret")
        error = caught.value
        while error is not None:
            assert "tenant-secret" not in str(error)
            error = error.__cause__
