"""What every store does, against a real file and a real server."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.stores import (
    LONG,
    alive,
    asked,
    cleared,
    closed,
    found,
    granted,
    known,
    live,
    spare,
)

from isobox.errors import HolderExpiredError, InvalidArgumentError, StoreError
from isobox.manager.records import Full, Granted, Held, Record, State, Tenant
from isobox.manager.sql import SqlStore

pytestmark = pytest.mark.anyio

#: Everything that is text to Python.
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
MAYBE = st.none() | ANY_TEXT


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("store") / "manager.db"


@pytest.fixture(scope="module")
def server(postgres):
    return postgres.place()


@pytest.fixture
async def store(where):
    async with SqlStore(where) as opened:
        yield await cleared(opened)


class Holders:
    """A holder lives until the moment that its last beat named."""

    async def test_the_first_beat_makes_the_holder(self, store):
        assert await store.holders(0) == []
        assert await store.beat("a", 0, 10, {}) == ()
        assert await store.holders(9.9) == ["a"]

    async def test_it_lives_until_then_and_not_at_that_moment(self, store):
        await store.beat("a", 0, 10, {})
        assert await store.holders(10) == []

    async def test_a_beat_prolongs(self, store):
        await store.beat("a", 0, 10, {})
        assert await store.beat("a", 9, 20, {}) == ()
        assert await store.holders(19) == ["a"]

    async def test_an_expired_holder_is_told_and_begins_with_nothing(self, store):
        await alive(store, "a", until=10)
        await live(store, "a")
        assert await store.beat("a", 10, 20, {}) is None
        assert (await known(store, "w-one", 10)).holders == ()
        assert await store.beat("a", 10, 20, {}) == ()
        assert await store.made("w-one", "a", 10) is False

    async def test_it_stays_dead_once_another_saw_it_dead(self, store):
        await alive(store, "a", until=10)
        await alive(store, "b")
        await live(store, "a")
        await live(store, "b", "other", 10)
        assert await store.beat("a", 9, 20, {}) is None

    async def test_a_beat_says_when_what_it_holds_was_used(self, store):
        await alive(store, "a", "b")
        await live(store, "a", "mine")
        await live(store, "b", "theirs")
        used = {"w-mine": 7.0, "w-theirs": 7.0, "w-unknown": 7.0}
        await store.beat("a", 8, LONG, used)
        assert (await known(store, "w-mine")).used_at == 7
        assert (await known(store, "w-theirs")).used_at == 1

    async def test_a_beat_never_makes_a_use_earlier(self, store):
        await alive(store, "a")
        await live(store, "a", now=5)
        await store.beat("a", 6, LONG, {"w-one": 2.0})
        assert (await known(store, "w-one")).used_at == 5

    async def test_a_beat_of_many_uses(self, store):
        await alive(store, "a")
        for number in range(30):
            await live(store, "a", f"n{number}")
        used = {f"w-n{number}": 10.0 + number for number in range(30)}
        await store.beat("a", 50, LONG, used)
        records = await store.records(50)
        assert {one.workspace_id: one.used_at for one in records} == used

    async def test_a_beat_and_wanted_tell_what_others_wait_for(self, store):
        await alive(store, "a", "b")
        await live(store, "a")
        await live(store, "a", "not-wanted")
        assert await store.wanted("a") == ()
        await store.claim(asked("b"), 2)
        assert await store.wanted("a") == ("w-one",)
        assert await store.wanted("b") == ()
        assert await store.beat("a", 3, LONG, {}) == ("w-one",)

    async def test_what_was_handed_over_is_wanted_no_more(self, store):
        await alive(store, "a", "b")
        await live(store, "a")
        await store.claim(asked("b"), 2)
        await store.release("w-one", "a", 3, 3)
        await store.closed("w-one", "a", 3)
        assert await store.wanted("a") == ()
        await granted(store, "b")
        assert await store.wanted("b") == ()

    async def test_who_leaves_holds_nothing(self, store):
        await alive(store, "a", "b")
        await live(store, "a")
        await granted(store, "a", "making")
        await store.leave("a", 2)
        assert await store.holders(2) == ["b"]
        one = await known(store, "w-one", 2)
        assert (one.state, one.holders) == (State.LIVE, ())
        (taken,) = await store.abandoned("b", 2, idle_since=0, limit=9)
        assert taken.workspace_id == "w-making"

    async def test_who_left_can_come_again(self, store):
        await alive(store, "a")
        await store.leave("a", 1)
        await store.leave("a", 1)
        assert await store.beat("a", 2, 9, {}) == ()

    async def test_nobody_holds_anything_who_never_beat(self, store):
        with pytest.raises(HolderExpiredError, match="'a' for dead: it has to beat"):
            await store.claim(asked("a"), 1)
        with pytest.raises(HolderExpiredError):
            await store.spare(spare("a"), 1)
        with pytest.raises(HolderExpiredError):
            await store.abandoned("a", 1, idle_since=1, limit=1)
        with pytest.raises(HolderExpiredError):
            await store.forgotten("a", 1, closed_since=1, limit=1)
        with pytest.raises(HolderExpiredError):
            await store.delete("w-one", "a", 1)
        assert await store.records(1) == []

    async def test_nor_who_has_expired(self, store):
        await alive(store, "a", until=10)
        with pytest.raises(HolderExpiredError):
            await store.claim(asked("a"), 10)


class Claims:
    """Whose a workspace becomes."""

    async def test_a_new_one_is_made_of_the_claims_own_names(self, store):
        await alive(store, "a")
        claim = asked("a", options={"image": "x", "n": [1, None]})
        answer = await store.claim(claim, 3)
        assert answer == Granted(
            record=Record(
                workspace_id=claim.workspace_id,
                key=claim.key,
                tenant=claim.tenant,
                backend=claim.backend,
                place=claim.place,
                state=State.MAKING,
                holders=("a",),
                created_at=3,
                used_at=3,
                options=claim.options,
            ),
            new=True,
        )
        assert await store.find("w-one", 3) == answer.record

    async def test_made_makes_it_live(self, store):
        await alive(store, "a")
        assert (await live(store, "a")).state is State.LIVE
        assert await store.made("w-one", "a", 2) is True

    async def test_made_is_false_for_others_and_for_nothing(self, store):
        await alive(store, "a", "b")
        await granted(store, "a")
        assert await store.made("w-one", "b", 2) is False
        assert await store.made("w-none", "a", 2) is False
        assert (await known(store, "w-one")).state is State.MAKING

    @pytest.mark.parametrize("is_live", [False, True])
    async def test_asked_again_it_is_granted_as_it_is(self, store, is_live):
        await alive(store, "a")
        first = await granted(store, "a")
        if is_live:
            await store.made("w-one", "a", 1)
        again = await granted(store, "a", now=5, most=1, place="w-one.1")
        assert again.new is False
        assert again.record == await known(store, "w-one")
        assert again.record.place == first.record.place

    async def test_what_another_has_is_held_and_it_is_told(self, store):
        await alive(store, "a", "b")
        await live(store, "a")
        answer = await store.claim(asked("b"), 2)
        assert answer == Held(holder="a", state=State.LIVE)
        assert (await known(store, "w-one")).holders == ("a",)

    async def test_what_another_is_making_is_held(self, store):
        await alive(store, "a", "b")
        await granted(store, "a")
        for shared in (False, True):
            answer = await store.claim(asked("b", shared=shared), 2)
            assert answer == Held(holder="a", state=State.MAKING)
        await store.made("w-one", "a", 2)
        assert await store.wanted("a") == ("w-one",)

    async def test_what_is_shared_and_live_is_had_by_both(self, store):
        await alive(store, "a", "b")
        await live(store, "a", shared=True)
        answer = await granted(store, "b", shared=True, most=1, now=2)
        assert answer.record.holders == ("a", "b")
        assert answer.record.state is State.LIVE
        assert (answer.new, answer.spare) == (False, False)
        assert await store.find("w-one", 2) == answer.record
        assert await store.wanted("a") == ()

    @pytest.mark.parametrize("shared", [False, True])
    async def test_what_is_being_closed_is_held(self, store, shared):
        await alive(store, "a", "b")
        await live(store, "a")
        await store.release("w-one", "a", 2, 2)
        for holder in ("a", "b"):
            answer = await store.claim(asked(holder, shared=shared), 3)
            assert answer == Held(holder="a", state=State.CLOSING)

    async def test_what_was_closed_becomes_making(self, store):
        await alive(store, "a", "b")
        before = await closed(store, "a")
        answer = await granted(store, "b", now=5, place="w-one.1")
        assert answer.record == replace(
            before, state=State.MAKING, holders=("b",), used_at=5, closed_at=None
        )
        assert answer.new is False

    @pytest.mark.parametrize("state", [State.MAKING, State.LIVE, State.CLOSING])
    async def test_what_a_dead_holder_had_is_anybodys(self, store, state):
        await alive(store, "a", until=10)
        await alive(store, "b")
        await granted(store, "a")
        if state is not State.MAKING:
            await store.made("w-one", "a", 1)
        if state is State.CLOSING:
            await store.release("w-one", "a", 1, 1)
        assert isinstance(await store.claim(asked("b"), 9), Held)
        answer = await granted(store, "b", now=10)
        assert answer.new is False
        assert answer.record.holders == ("b",)
        assert answer.record.state is State.MAKING

    async def test_what_was_deleting_under_a_dead_holder_is_held_until_deleted(
        self, store
    ):
        await alive(store, "a", until=10)
        await alive(store, "b")
        await live(store, "a")
        await store.delete("w-one", "a", 2)
        nobody = Held(holder="", state=State.DELETING)
        assert await store.claim(asked("b"), 10) == nobody
        await store.forgotten("b", 11, closed_since=None, limit=1)
        assert await store.claim(asked("b"), 11) == replace(nobody, holder="b")
        await store.deleted("w-one", "b")
        assert (await granted(store, "b", now=12)).new is True

    async def test_it_must_be_of_its_backend(self, store):
        await alive(store, "a")
        await closed(store, "a")
        with pytest.raises(InvalidArgumentError, match="'local', not 'docker'"):
            await store.claim(asked("a", backend="docker"), 2)

    async def test_an_id_is_of_one_key(self, store):
        await alive(store, "a")
        await closed(store, "a")
        with pytest.raises(StoreError, match="w-one"):
            await store.claim(asked("a", key="another"), 2)
        assert (await known(store, "w-one")).key == "key of one"

    @pytest.mark.parametrize(
        "how",
        [
            {"workspace_id": "../x"},
            {"workspace_id": "w\0"},
            {"place": "../x"},
            {"place": ".."},
            {"place": ""},
            {"options": {"x": object()}},
            {"options": {"x": float("nan")}},
        ],
    )
    async def test_names_and_options_are_checked(self, store, how):
        await alive(store, "a")
        with pytest.raises(InvalidArgumentError):
            await store.claim(asked("a", **how), 1)
        assert await store.records(1) == []


class Quotas:
    """What is making, live or closing under living holders is counted."""

    async def test_the_quota_of_all(self, store):
        await alive(store, "a", "b")
        await live(store, "a", "x")
        await granted(store, "b", "y")
        full = await store.claim(asked("b", "z", most=2), 2)
        assert full == Full(of_user=False, most=2)
        assert await store.find("w-z", 2) is None
        assert isinstance(await store.claim(asked("b", "z", most=3), 2), Granted)

    async def test_the_quota_of_a_user(self, store):
        await alive(store, "a", "b")
        whose = {"tenant": Tenant(user="u"), "most_of_user": 1}
        await live(store, "a", "x", **whose)
        full = await store.claim(asked("b", "z", **whose), 2)
        assert full == Full(of_user=True, most=1)
        await granted(store, "b", "z", most_of_user=1)

    async def test_what_is_closing_counts_and_what_is_closed_does_not(self, store):
        await alive(store, "a")
        await live(store, "a", "x")
        await store.release("w-x", "a", 2, 2)
        assert isinstance(await store.claim(asked("a", "y", most=1), 2), Full)
        await store.closed("w-x", "a", 2)
        assert isinstance(await store.claim(asked("a", "y", most=1), 2), Granted)

    async def test_what_is_being_deleted_does_not_count(self, store):
        await alive(store, "a")
        await live(store, "a", "x")
        await store.delete("w-x", "a", 2)
        await granted(store, "a", "y", most=1)

    async def test_what_the_dead_had_does_not_count(self, store):
        await alive(store, "a", until=10)
        await alive(store, "b")
        await live(store, "a", "x")
        assert isinstance(await store.claim(asked("b", "y", most=1), 9), Full)
        await granted(store, "b", "y", most=1, now=10)

    async def test_to_open_a_closed_one_needs_room(self, store):
        await alive(store, "a")
        before = await closed(store, "a", "x")
        await live(store, "a", "y")
        assert isinstance(await store.claim(asked("a", "x", most=1), 2), Full)
        assert await known(store, "w-x") == before

    async def test_spares_count_for_all_and_become_no_more(self, store):
        await alive(store, "a", "b")
        await store.spare(spare("a"), 1)
        assert isinstance(await store.claim(asked("b", most=1), 2), Full)
        answer = await granted(store, "a", most=1, most_of_user=1, spare=True)
        assert answer.spare is True

    async def test_a_spare_needs_room_of_its_user(self, store):
        await alive(store, "a")
        await store.spare(spare("a"), 1)
        await granted(store, "a", "x", tenant=Tenant(user="u"))
        how = {"tenant": Tenant(user="u"), "spare": True, "most_of_user": 1}
        full = await store.claim(asked("a", "y", **how), 2)
        assert full == Full(of_user=True, most=1)
        assert (await known(store, "w-spare")).state is State.SPARE

    async def test_none_is_none(self, store):
        await alive(store, "a")
        full = await store.claim(asked("a", most=0), 1)
        assert full == Full(of_user=False, most=0)


class Endings:
    """A workspace is given up, closed and deleted."""

    async def test_the_last_that_gives_it_up_closes_it(self, store):
        await alive(store, "a")
        await live(store, "a")
        for _ in range(2):
            assert await store.release("w-one", "a", 5, 4) is True
        record = await known(store, "w-one", 5)
        assert (record.state, record.holders) == (State.CLOSING, ("a",))
        assert record.used_at == 4
        await store.closed("w-one", "a", 6)
        record = await known(store, "w-one", 6)
        assert (record.state, record.holders) == (State.CLOSED, ())
        assert record.closed_at == 6

    async def test_a_use_is_never_earlier_than_known(self, store):
        await alive(store, "a")
        await live(store, "a", now=9)
        await store.release("w-one", "a", 10, 3)
        assert (await known(store, "w-one")).used_at == 9

    async def test_others_keep_what_one_gives_up(self, store):
        await alive(store, "a", "b")
        await live(store, "a", shared=True)
        await granted(store, "b", shared=True)
        assert await store.release("w-one", "a", 2, 7) is False
        record = await known(store, "w-one", 2)
        assert (record.state, record.holders) == (State.LIVE, ("b",))
        assert record.used_at == 7
        assert await store.release("w-one", "b", 3, 3) is True

    async def test_the_dead_do_not_keep_it(self, store):
        await alive(store, "a", until=10)
        await alive(store, "b")
        await live(store, "a", shared=True)
        await granted(store, "b", shared=True)
        assert await store.release("w-one", "b", 10, 10) is True

    async def test_who_lost_it_gives_up_nothing(self, store):
        await alive(store, "a", until=10)
        await alive(store, "b")
        await live(store, "a")
        await live(store, "b", now=10)
        before = await known(store, "w-one", 11)
        assert await store.release("w-one", "a", 11, 11) is False
        await store.closed("w-one", "a", 11)
        await store.deleted("w-one", "a")
        assert await known(store, "w-one", 11) == before

    async def test_the_expired_closes_nothing(self, store):
        await alive(store, "a", until=10)
        await live(store, "a")
        assert await store.release("w-one", "a", 10, 10) is False
        await store.closed("w-one", "a", 10)
        assert (await known(store, "w-one", 10)).state is State.LIVE

    async def test_what_was_never_made_is_closed(self, store):
        await alive(store, "a")
        await granted(store, "a")
        await store.closed("w-one", "a", 2)
        await store.closed("w-one", "a", 3)
        record = await known(store, "w-one")
        assert (record.state, record.closed_at) == (State.CLOSED, 2)

    async def test_closed_leaves_it_to_the_others(self, store):
        await alive(store, "a", "b")
        await live(store, "a", shared=True)
        await granted(store, "b", shared=True)
        await store.closed("w-one", "a", 2)
        record = await known(store, "w-one")
        assert (record.state, record.holders) == (State.LIVE, ("b",))

    async def test_a_spare_that_ends_is_to_be_deleted(self, store):
        await alive(store, "a")
        await store.spare(spare("a"), 1)
        assert await store.release("w-spare", "a", 2, 2) is True
        assert (await known(store, "w-spare")).state is State.DELETING
        await store.closed("w-spare", "a", 2)
        record = await known(store, "w-spare")
        assert (record.state, record.holders) == (State.DELETING, ())

    async def test_what_was_being_deleted_is_never_closed(self, store):
        await alive(store, "a")
        await live(store, "a")
        await store.delete("w-one", "a", 2)
        await store.closed("w-one", "a", 2)
        assert (await known(store, "w-one")).state is State.DELETING

    @pytest.mark.parametrize("state", ["closed", "live", "making", "closing"])
    async def test_one_can_be_taken_to_be_deleted(self, store, state):
        await alive(store, "a")
        await granted(store, "a")
        if state != "making":
            await store.made("w-one", "a", 1)
        if state in ("closing", "closed"):
            await store.release("w-one", "a", 1, 1)
        if state == "closed":
            await store.closed("w-one", "a", 1)
        for _ in range(2):
            record = await store.delete("w-one", "a", 2)
            assert isinstance(record, Record)
            assert (record.state, record.holders) == (State.DELETING, ("a",))
        await store.deleted("w-one", "a")
        await store.deleted("w-one", "a")
        assert await store.find("w-one", 2) is None
        assert await store.delete("w-one", "a", 2) is None

    async def test_a_later_one_of_that_id_is_not_deleted(self, store):
        await alive(store, "a")
        record = await live(store, "a")
        assert await store.delete("w-one", "a", 2, place="w-one.old") is None
        assert (await known(store, "w-one")).state is State.LIVE
        taken = await store.delete("w-one", "a", 2, place=record.place)
        assert isinstance(taken, Record)

    async def test_what_another_has_is_not_deleted_and_it_is_told(self, store):
        await alive(store, "a", "b")
        await live(store, "a", shared=True)
        await granted(store, "b", shared=True)
        answer = await store.delete("w-one", "b", 2)
        assert answer == Held(holder="a", state=State.LIVE)
        assert await store.wanted("a") == ("w-one",)
        assert (await known(store, "w-one")).state is State.LIVE

    async def test_what_the_dead_had_is_deleted(self, store):
        await alive(store, "a", until=10)
        await alive(store, "b")
        await live(store, "a")
        assert isinstance(await store.delete("w-one", "b", 10), Record)

    async def test_only_what_is_being_deleted_is_forgotten(self, store):
        await alive(store, "a", "b")
        await live(store, "a")
        await store.deleted("w-one", "a")
        await store.delete("w-one", "a", 1)
        await store.deleted("w-one", "b")
        assert (await known(store, "w-one")).state is State.DELETING


class Spares:
    """What is made ahead."""

    async def test_a_spare_is_nobodys(self, store):
        await alive(store, "a")
        entered = spare("a", options={"image": "x"})
        for _ in range(2):
            await store.spare(entered, 1)
        assert await store.records(1) == [entered]

    async def test_a_claim_makes_it_the_tenants(self, store):
        await alive(store, "a")
        await store.spare(spare("a", options={"image": "x"}), 1)
        answer = await granted(store, "a", spare=True, now=5)
        assert answer == Granted(
            record=replace(
                spare("a"),
                key="key of one",
                tenant=asked("a").tenant,
                state=State.MAKING,
                used_at=5,
                options={"image": "x"},
            ),
            new=False,
            spare=True,
        )
        assert await known(store, "w-spare") == answer.record
        assert await store.made("w-spare", "a", 5)

    async def test_the_oldest_is_taken_and_each_once(self, store):
        await alive(store, "a")
        await store.spare(spare("a", "new", used_at=9.0), 9)
        await store.spare(spare("a", "old", used_at=2.0), 9)
        taken = [
            (await granted(store, "a", str(number), spare=True, now=9)).record
            for number in range(3)
        ]
        assert [one.workspace_id for one in taken] == ["w-old", "w-new", "w-2"]

    @pytest.mark.parametrize(
        ("how", "which"),
        [({}, {}), ({"spare": True}, {"backend": "docker"})],
    )
    async def test_a_spare_that_does_not_fit_is_left(self, store, how, which):
        await alive(store, "a")
        await store.spare(spare("a", **which), 1)
        assert (await granted(store, "a", **how)).new is True

    async def test_anothers_spare_is_left(self, store):
        await alive(store, "a", "b")
        await store.spare(spare("a"), 1)
        assert (await granted(store, "b", spare=True)).new is True

    async def test_who_has_a_workspace_needs_no_spare(self, store):
        await alive(store, "a")
        await closed(store, "a")
        await store.spare(spare("a"), 1)
        answer = await granted(store, "a", spare=True)
        assert (answer.spare, answer.record.workspace_id) == (False, "w-one")

    @pytest.mark.parametrize(
        "how", [{"holders": ()}, {"holders": ("a", "b")}, {"key": "k"}]
    )
    async def test_a_spare_has_one_holder_and_no_tenant(self, store, how):
        await alive(store, "a", "b")
        with pytest.raises(InvalidArgumentError, match="one holder"):
            await store.spare(spare("a", **how), 1)

    async def test_what_becomes_a_spare_counts_and_is_not_given_away(self, store):
        await alive(store, "a")
        assert await store.begin(spare("a"), 1, 1)
        assert await store.begin(spare("a"), 1, 1), "again is nothing"
        assert not await store.begin(spare("a", "more"), 1, 1)
        assert await store.begin(spare("a", "more"), 1, None)
        assert (await known(store, "w-spare")).state is State.MAKING
        full = await store.claim(asked("a", spare=True, most=2), 1)
        assert full == Full(of_user=False, most=2)
        await store.spare(spare("a"), 1)
        assert (await known(store, "w-spare")).state is State.SPARE
        answer = await granted(store, "a", spare=True, most=2)
        assert answer.record.workspace_id == "w-spare"

    async def test_what_a_dead_holder_was_making_a_spare_of_is_deleted(self, store):
        await store.beat("a", 0, 5, {})
        await alive(store, "b")
        await store.begin(spare("a"), 1, None)
        (taken,) = await store.abandoned("b", 9, idle_since=0, limit=9)
        assert (taken.workspace_id, taken.state) == ("w-spare", State.DELETING)
        with pytest.raises(HolderExpiredError):
            await store.begin(spare("a", "more"), 9, None)

    async def test_a_spare_has_an_id_of_its_own(self, store):
        await alive(store, "a")
        await live(store, "a")
        with pytest.raises(StoreError, match="w-one"):
            await store.spare(spare("a", "one", place="another"), 1)


class Due:
    """What is to be closed or deleted is taken over by one."""

    async def test_nothing_that_is_held_is_taken(self, store):
        await alive(store, "a", "b")
        await live(store, "a", "x")
        await granted(store, "a", "y")
        await store.spare(spare("a"), 1)
        await store.delete((await live(store, "a", "z")).workspace_id, "a", 1)
        assert await store.abandoned("b", 99, idle_since=99, limit=9) == []
        assert await store.forgotten("b", 99, closed_since=99, limit=9) == []

    async def test_live_ones_of_the_dead_are_closed_when_idle(self, store):
        await alive(store, "a", until=10)
        await alive(store, "b")
        before = await live(store, "a")
        assert await store.abandoned("b", 20, idle_since=1, limit=9) == []
        (taken,) = await store.abandoned("b", 20, idle_since=1.1, limit=9)
        assert taken == replace(before, state=State.CLOSING, holders=("b",))
        assert await known(store, "w-one", 20) == taken
        assert await store.abandoned("b", 20, idle_since=2, limit=9) == []

    async def test_what_the_dead_did_not_finish_is_taken_at_once(self, store):
        await alive(store, "a", until=10)
        await alive(store, "b")
        await granted(store, "a", "making")
        await live(store, "a", "closing")
        await store.release("w-closing", "a", 2, 2)
        await store.spare(spare("a"), 1)
        assert await store.abandoned("b", 9, idle_since=0, limit=9) == []
        taken = await store.abandoned("b", 10, idle_since=0, limit=9)
        assert {one.workspace_id: one.state for one in taken} == {
            "w-making": State.CLOSING,
            "w-closing": State.CLOSING,
            "w-spare": State.DELETING,
        }
        assert {one.holders for one in taken} == {("b",)}

    async def test_the_longest_abandoned_come_first(self, store):
        await alive(store, "a", until=100)
        await alive(store, "b")
        for number, name in enumerate("dbca"):
            await live(store, "a", name, now=float(10 - number))
        await granted(store, "a", "e", now=8.5)
        taken = []
        for _ in range(4):
            some = await store.abandoned("b", 200, idle_since=150, limit=2)
            taken.append({one.workspace_id for one in some})
        assert taken == [{"w-a", "w-c"}, {"w-b", "w-e"}, {"w-d"}, set()]

    async def test_each_is_taken_by_one(self, store):
        await alive(store, "a", until=10)
        await alive(store, "b", "c")
        for name in "wxyz":
            await live(store, "a", name)
        first = await store.abandoned("b", 20, idle_since=9, limit=3)
        second = await store.abandoned("c", 20, idle_since=9, limit=3)
        assert (len(first), len(second)) == (3, 1)

    async def test_who_took_it_closes_it(self, store):
        await alive(store, "a", until=10)
        await alive(store, "b")
        await live(store, "a")
        await store.abandoned("b", 20, idle_since=9, limit=3)
        assert isinstance(await store.claim(asked("b"), 20), Held)
        await store.closed("w-one", "b", 21)
        assert (await known(store, "w-one")).state is State.CLOSED

    async def test_what_a_dead_sweeper_took_is_taken_again(self, store):
        await alive(store, "a", until=10)
        await alive(store, "b", until=20)
        await alive(store, "c")
        await live(store, "a")
        await store.abandoned("b", 15, idle_since=9, limit=3)
        (taken,) = await store.abandoned("c", 20, idle_since=0, limit=3)
        assert taken.holders == ("c",)

    async def test_closed_ones_are_forgotten_after_a_time(self, store):
        await alive(store, "a")
        before = await closed(store, "a", now=5)
        assert await store.forgotten("a", 9, closed_since=None, limit=9) == []
        assert await store.forgotten("a", 9, closed_since=5, limit=9) == []
        (taken,) = await store.forgotten("a", 9, closed_since=5.1, limit=9)
        assert taken == replace(before, state=State.DELETING, holders=("a",))
        await store.deleted("w-one", "a")
        assert await store.records(9) == []

    async def test_a_half_deleted_one_of_the_dead_is_deleted_at_once(self, store):
        await alive(store, "a", until=10)
        await alive(store, "b")
        await live(store, "a")
        await store.delete("w-one", "a", 2)
        assert await store.forgotten("b", 9, closed_since=None, limit=9) == []
        (taken,) = await store.forgotten("b", 10, closed_since=None, limit=9)
        assert (taken.state, taken.holders) == (State.DELETING, ("b",))

    @pytest.mark.parametrize("limit", [0, 1, 2])
    async def test_at_most_so_many(self, store, limit):
        await alive(store, "a", until=10)
        await alive(store, "b")
        for name in ("x", "y"):
            await closed(store, "b", name)
            await live(store, "a", f"live-{name}")
        taken = await store.forgotten("b", 20, closed_since=9, limit=limit)
        assert len(taken) == limit
        taken = await store.abandoned("b", 20, idle_since=9, limit=limit)
        assert len(taken) == limit


class Lists:
    """What there is."""

    async def test_nothing_is_found_where_there_is_nothing(self, store):
        for name in ("w-one", "", "\0", "\ud800", "'; --"):
            assert await store.find(name, 1) is None
            assert await store.members(name) == []

    async def test_the_dead_are_not_among_the_holders(self, store):
        await alive(store, "a", until=10)
        await alive(store, "b")
        await live(store, "a", shared=True)
        await granted(store, "b", shared=True)
        assert (await known(store, "w-one", 10)).holders == ("b",)
        (listed,) = await store.records(10)
        assert listed.holders == ("b",)

    async def test_records_come_by_their_id_in_pages(self, store):
        await alive(store, "a")
        names = ["w-b", "w-a-b", "w-aa", "w-a", "w-1"]
        for name in names:
            await live(store, "a", name[2:])
        pages = [await store.records(1, limit=2)]
        while pages[-1]:
            last = pages[-1][-1].workspace_id
            pages.append(await store.records(1, after=last, limit=2))
        assert [len(page) for page in pages] == [2, 2, 1, 0]
        ids = [one.workspace_id for page in pages for one in page]
        assert ids == sorted(names)

    async def test_records_of_some(self, store):
        await alive(store, "a")
        for user, agent, session in ("xay", "xaz", "xby", "way"):
            tenant = Tenant(user=user, agent=agent, session=session)
            await granted(store, "a", f"{user}{agent}{session}", tenant=tenant)
        await store.made("w-xay", "a", 1)
        await store.spare(spare("a", "a-spare"), 1)

        async def ids(**which):
            return [one.workspace_id for one in await store.records(1, **which)]

        assert await ids(user="x") == ["w-xay", "w-xaz", "w-xby"]
        assert await ids(user="x", agent="a") == ["w-xay", "w-xaz"]
        assert await ids(user="x", session="y") == ["w-xay", "w-xby"]
        assert await ids(agent="a", session="y") == ["w-way", "w-xay"]
        assert await ids(user="x", states=[State.LIVE]) == ["w-xay"]
        assert await ids(states=[State.LIVE, State.SPARE]) == ["w-a-spare", "w-xay"]
        assert await ids(user="nobody") == []
        assert len(await ids()) == 5

    async def test_counts(self, store):
        assert await store.counts(1) == dict.fromkeys(State, 0)
        await alive(store, "a")
        await live(store, "a", "x")
        await live(store, "a", "y")
        await closed(store, "a", "z")
        counts = await store.counts(1)
        assert counts == {**dict.fromkeys(State, 0), State.LIVE: 2, State.CLOSED: 1}

    async def test_members(self, store):
        await alive(store, "a")
        await live(store, "a")
        one = Tenant(user="u", agent="x", session="1")
        two = Tenant(user="u", agent="x", session="2")
        for _ in range(2):
            await store.joined("w-one", one, 1)
            await store.joined("w-one", two, 1)
        assert sorted(await store.members("w-one"), key=repr) == [one, two]
        await store.left("w-one", one)
        await store.left("w-one", Tenant(user="u", agent="y", session="2"))
        assert await store.members("w-one") == [two]

    async def test_what_somebody_used_is_found(self, store):
        await alive(store, "a")
        await live(store, "a")
        await live(store, "a", "two")
        odd = "x\0\ud83d\ude00"
        await store.joined("w-one", Tenant(user="u", agent=odd, session="1"), 1)
        await store.joined("w-one", Tenant(user="u", agent=odd, session="2"), 1)
        await store.joined("w-two", Tenant(user="u", agent=odd, session="1"), 1)
        await store.joined("w-two", Tenant(user="v", agent=odd, session="2"), 1)

        async def found(agent, session=None):
            whose = Tenant(user="u", agent=agent, session=session)
            return list(await store.joined_by(whose))

        assert await found(odd) == ["w-one", "w-two"]
        assert await found(odd, "1") == ["w-one", "w-two"]
        assert await found(odd, "2") == ["w-one"]
        assert await found("x\0\U0001f600") == []

    async def test_the_limit_is_any_number(self, store):
        await alive(store, "a")
        await live(store, "a")
        assert len(await store.records(1, limit=1 << 80)) == 1

    async def test_two_surrogates_are_not_their_character(self, store):
        await alive(store, "a")
        for name, user in (("one", "\U0001f600"), ("two", "\ud83d\ude00")):
            await granted(store, "a", name, tenant=Tenant(user=user))
            (row,) = await store.records(1, user=user)
            assert (row.workspace_id, row.tenant.user) == (f"w-{name}", user)

    async def test_members_go_with_their_workspace(self, store):
        await alive(store, "a")
        await live(store, "a")
        await store.joined("w-one", Tenant(user="u"), 1)
        await store.delete("w-one", "a", 1)
        await store.deleted("w-one", "a")
        await store.joined("w-one", Tenant(user="u"), 1)
        await live(store, "a")
        assert await store.members("w-one") == []

    async def test_what_was_found_is_adopted_once(self, store):
        await alive(store, "a")
        record = found(used_at=3.0, options={"image": "x"})
        assert await store.adopt(record, 9) is True
        assert await store.find("w-one", 9) == record
        assert await store.adopt(record, 9) is False
        assert await store.adopt(replace(record, workspace_id="w-2"), 9) is False
        assert await store.adopt(replace(record, key="another"), 9) is False
        answer = await granted(store, "a", now=9)
        assert (answer.new, answer.record.place) == (False, record.place)

    async def test_what_was_found_is_idle_since_its_last_use(self, store):
        await alive(store, "a")
        strange = found(used_at=3.0, holders=("a",), state=State.MAKING)
        await store.adopt(strange, 9)
        assert await store.abandoned("a", 9, idle_since=3, limit=1) == []
        assert await store.abandoned("a", 9, idle_since=4, limit=1) != []

    async def test_a_spare_that_was_found_is_deleted(self, store):
        await alive(store, "a")
        assert await store.adopt(spare("dead"), 9) is True
        (taken,) = await store.abandoned("a", 9, idle_since=0, limit=1)
        assert taken.state is State.DELETING


class Texts:
    """Tenants are any text at all."""

    @pytest.mark.parametrize(
        "text",
        [
            *("\0", "\ud800", "\udfff\ud800", "\\", "\\0000", "\\ud800"),
            *("e\u0301", "'\"%_", " ", "\n", "\r\n"),
            *("\0" * 1024, "\ud800" * 1024, "\U0001f600" * 1024),
            "".join(map(chr, range(0x4E00, 0x4E00 + 1024))),
        ],
        ids=ascii,
    )
    async def test_a_tenant_is_kept_as_it_is(self, store, text):
        await self._kept(store, Tenant(user=text, agent=text, session=text))

    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(tenant=st.builds(Tenant, user=ANY_TEXT, agent=MAYBE, session=MAYBE))
    async def test_any_tenant_is_kept(self, store, tenant):
        await self._kept(store, tenant)

    async def _kept(self, store, tenant):
        await alive(store, "h")
        await granted(store, "h", tenant=tenant)
        await store.joined("w-one", tenant, 1)
        (listed,) = await store.records(1, user=tenant.user, agent=tenant.agent)
        assert listed.tenant == tenant
        assert await store.members("w-one") == [tenant]
        await store.left("w-one", tenant)
        assert await store.members("w-one") == []
        await store.delete("w-one", "h", 1)
        await store.deleted("w-one", "h")

    async def test_holders_and_keys_too(self, store):
        odd = "\0\ud800\\"
        await alive(store, odd)
        await granted(store, odd, key=odd, backend=odd, options={odd: odd})
        record = await known(store, "w-one")
        assert (record.key, record.backend, record.holders) == (odd, odd, (odd,))
        assert record.options == {odd: odd}


class Contract(Holders, Claims, Quotas, Endings, Spares, Due, Lists, Texts):
    """All that a store does."""


class TestSqlite(Contract):
    """In a file."""

    @pytest.fixture
    def where(self, file):
        return file

    async def test_it_has_no_clock(self, store):
        assert await store.time() is None


class TestPostgres(Contract):
    """In a server."""

    @pytest.fixture
    def where(self, server):
        return server

    async def test_it_has_a_clock(self, store):
        first = await store.time()
        assert await store.time() > first > 1.7e9
