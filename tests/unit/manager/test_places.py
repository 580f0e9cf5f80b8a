"""Directories of workspaces."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox.errors import PathError, StoreError
from isobox.manager import keys
from isobox.manager.places import Places, owner_of, owner_text
from isobox.manager.records import Record, State, Tenant

pytestmark = pytest.mark.anyio

ANY_TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=1024)
KEY = keys.key(keys.PER_USER, "local", Tenant(user="u"))
RECORD = Record(
    workspace_id="w",
    key=KEY,
    tenant=Tenant(user="u"),
    backend="local",
    place="w.00000001",
    state=State.LIVE,
    created_at=5.0,
    used_at=5.0,
    options={"image": "debian"},
)


@pytest.fixture
def places(tmp_path):
    made = Places(tmp_path / "base")
    made.open()
    return made


def test_a_place_is_for_this_user_alone(places):
    place = places.make(RECORD, "holder")
    assert os.stat(places.path).st_mode & 0o777 == 0o700
    assert os.stat(place.path).st_mode & 0o777 == 0o700
    assert os.stat(f"{place.path}/owner.json").st_mode & 0o777 == 0o600
    assert os.stat(place.files).st_mode & 0o777 == 0o700
    assert sorted(os.listdir(place.path)) == ["files", "owner.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_roots_files_are_not_roots(places):
    assert os.stat(places.make(RECORD, "holder").files).st_uid != 0


def test_what_is_there_stays(places):
    place = places.make(RECORD, "holder")
    with open(f"{place.files}/file", "w"):
        pass
    places.make(RECORD, "another")
    assert os.listdir(place.files) == ["file"]
    assert list(places.owners()) == [(RECORD, "another")]


@given(ANY_TEXT, st.none() | ANY_TEXT, st.none() | ANY_TEXT)
def test_an_owner_is_read_as_it_was_written(user, agent, session):
    session = None if agent is None else session
    tenant = Tenant(user=user, agent=agent, session=session)
    key = keys.key_of("local", tenant)
    record = replace(RECORD, tenant=tenant, key=key)
    assert owner_of(owner_text(record, "holder")) == (record, "holder")


def test_a_spare_has_no_owner():
    spare = replace(RECORD, key=None, tenant=None, state=State.SPARE)
    assert owner_of(owner_text(spare, "holder")) == (spare, "holder")


SAID = json.loads(owner_text(RECORD, "holder"))


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "[]",
        "[" * 100_000,
        "1e999",
        json.dumps({**SAID, "version": 2}),
        json.dumps({**SAID, "place": "../../etc.00000001"}),
        json.dumps({**SAID, "place": "v.00000001"}),
        json.dumps({**SAID, "workspace_id": None}),
        json.dumps({**SAID, "key": "short"}),
        json.dumps({**SAID, "key": None}),
        json.dumps({**SAID, "user": None}),
        json.dumps({**SAID, "user": ["u"]}),
        json.dumps({**SAID, "agent": ""}),
        json.dumps({**SAID, "session": "x" * 1025}),
        json.dumps({**SAID, "created_at": True}),
        json.dumps({**SAID, "created_at": "now"}),
        json.dumps({**SAID, "created_at": float("nan")}),
        json.dumps({**SAID, "options": []}),
        json.dumps({**SAID, "holder": 7}),
        json.dumps({**SAID, "more": "x" * 200_000}),
    ],
)
def test_what_is_no_owner_is_none(wrong):
    assert owner_of(wrong) is None


def test_a_link_or_a_fifo_is_no_owner(places):
    for number, make in enumerate((os.mkfifo, lambda path: os.symlink("/etc", path))):
        name = f"w.0000000{number}"
        os.mkdir(f"{places.path}/{name}")
        make(f"{places.path}/{name}/owner.json")
    assert list(places.owners()) == []


def test_an_owner_of_another_place_is_none(places):
    place = places.make(RECORD, "holder")
    os.rename(place.path, f"{places.path}/w.00000002")
    assert list(places.owners()) == []


async def test_removed_is_gone_whatever_was_in_it(places):
    place = places.make(RECORD, "holder")
    os.makedirs(f"{place.files}/a/b")
    os.symlink(places.path, f"{place.files}/link")
    os.mkfifo(f"{place.files}/fifo")
    os.chmod(f"{place.files}/a", 0)
    await places.remove(RECORD)
    await places.remove(RECORD)
    assert os.listdir(places.path) == [".trash"]
    assert not os.listdir(f"{places.path}/.trash")


async def test_the_trash_of_who_died_is_emptied(places):
    os.makedirs(f"{places.path}/.trash/w.00000001.00000000/files/a")
    await places.empty_trash()
    assert not os.listdir(f"{places.path}/.trash")


async def test_what_cannot_be_removed_is_told(places, monkeypatch):
    places.make(RECORD, "holder")
    with monkeypatch.context() as patched:
        patched.setattr("isobox.manager.trash.sweep_tree", lambda path: None)
        left = await places.remove(RECORD)
        assert isinstance(left, PathError)
        assert left.filename.startswith(f"{places.path}/.trash/w.00000001.")
        assert os.path.isdir(left.filename)
        await places.empty_trash()
    await places.empty_trash()
    assert not os.listdir(f"{places.path}/.trash")


async def test_what_another_is_removing_is_left_to_it(places):
    trashed = f"{places.path}/.trash/w.00000001.00000000"
    os.makedirs(f"{trashed}/files")
    other = os.open(trashed, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    await places.empty_trash()
    assert os.path.isdir(trashed)
    os.close(other)
    await places.empty_trash()
    assert not os.path.isdir(trashed)


async def test_a_trash_that_is_a_link_is_not_emptied(tmp_path):
    precious = tmp_path / "victim" / "precious"
    precious.mkdir(parents=True)
    places = Places(tmp_path / "base")
    places.open()
    os.rmdir(f"{places.path}/.trash")
    os.symlink(precious.parent, f"{places.path}/.trash")
    with pytest.raises(PathError, match="move it away"):
        places.open()
    with pytest.raises(PathError, match="move it away"):
        await places.empty_trash()
    assert precious.is_dir()


async def test_directories_that_were_swapped_are_nobodys(places, caplog):
    other = replace(RECORD, workspace_id="v", place="v.00000001")
    mine, theirs = places.make(RECORD, "h").path, places.make(other, "h").path
    os.rename(mine, f"{places.path}/passing")
    os.rename(theirs, mine)
    os.rename(f"{places.path}/passing", theirs)
    for record in (RECORD, other):
        with pytest.raises(PathError, match="put back"):
            places.make(record, "h")
        with pytest.raises(PathError, match="put back"):
            await places.remove(record)
    assert f"{mine} is v.00000001: rename it" in caplog.text
    os.rename(mine, f"{places.path}/passing")
    os.rename(theirs, mine)
    os.rename(f"{places.path}/passing", theirs)
    assert places.make(RECORD, "h").path == mine


@pytest.mark.parametrize("place", ["../w.00000001", "/etc", "", ".trash", "w"])
async def test_a_hostile_row_leads_nowhere(places, place):
    record = replace(RECORD, place=place)
    with pytest.raises(StoreError, match="none of this manager's"):
        places.make(record, "holder")
    with pytest.raises(StoreError):
        await places.remove(record)


def test_a_directory_that_others_write_to_is_refused(tmp_path):
    os.chmod(tmp_path, 0o777)
    with pytest.raises(PathError, match="others can write"):
        Places(tmp_path).open()


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PathError, match="name another"):
        Places(tmp_path / "file").open()


def test_a_link_is_followed_once(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert Places(tmp_path / "link").path == str(tmp_path / "real")
