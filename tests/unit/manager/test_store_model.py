"""A store against a model of it: any calls by anybody, at times that are ours."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.stores import asked, cleared, found, spare, wrongs

from isobox.errors import HolderExpiredError, StoreError
from isobox.manager.records import Full, Granted, Held, Record, State, Tenant
from isobox.manager.sql import SqlStore

OPEN = (State.MAKING, State.LIVE)
COUNTED = (State.SPARE, State.MAKING, State.LIVE, State.CLOSING)

HOLDERS = st.sampled_from("abc")
NAMES = st.sampled_from(["t0", "t1", "t2", "t3"])
IDS = st.sampled_from([*(f"w-t{n}" for n in range(4)), *(f"w-s{n}" for n in range(4))])
QUOTAS = st.none() | st.integers(0, 4)
LIMITS = st.integers(0, 3)
AGES = st.integers(0, 12)


def tenant(name):
    """Two users, of two workspaces each."""
    return Tenant(user=f"u{int(name[1]) % 2}", agent=name)


@dataclass
class Box:
    """A workspace as it should be."""

    record: Record
    held: set[str] = field(default_factory=set)
    wanted: set[str] = field(default_factory=set)

    def be(self, state, **how):
        self.record = replace(self.record, state=state, **how)

    def let_go(self, holder):
        self.held.discard(holder)
        self.wanted.discard(holder)

    def take(self, holder, state, **how):
        self.held, self.wanted = {holder}, self.wanted & {holder}
        self.be(state, **how)

    def shown(self):
        return replace(self.record, holders=tuple(sorted(self.held)))


class Model:
    """What a store should remember."""

    def __init__(self):
        self.now = 0.0
        self.until: dict[str, float] = {}
        self.begun: set[str] = set()
        self.boxes: dict[str, Box] = {}

    def wait(self, seconds):
        self.now += seconds
        for holder in [one for one, until in self.until.items() if until <= self.now]:
            self.drop(holder)

    def drop(self, holder):
        self.until.pop(holder, None)
        for box in self.boxes.values():
            box.let_go(holder)

    def of_key(self, key):
        return next((b for b in self.boxes.values() if b.record.key == key), None)

    def wanted(self, holder):
        return {one for one, box in self.boxes.items() if holder in box.wanted}

    def full(self, claim, *, more):
        open_ = [b.record for b in self.boxes.values() if b.held]
        counted = [record for record in open_ if record.state in COUNTED]
        its = [r for r in counted if r.tenant and r.tenant.user == claim.tenant.user]
        if claim.most_of_user is not None and len(its) >= claim.most_of_user:
            return Full(of_user=True, most=claim.most_of_user)
        if more and claim.most is not None and len(counted) >= claim.most:
            return Full(of_user=False, most=claim.most)
        return None

    def held(self, box):
        box.wanted |= box.held
        return Held(holder=min(box.held, default=""), state=box.record.state)

    def claim(self, claim):
        box = self.of_key(claim.key)
        if box is None:
            return self.first(claim)
        state = box.record.state
        if claim.holder in box.held and state in OPEN:
            return Granted(record=box.shown(), new=False)
        if box.held and claim.shared and state is State.LIVE:
            box.held.add(claim.holder)
            return Granted(record=box.shown(), new=False)
        if box.held or state is State.DELETING:
            return self.held(box)
        if full := self.full(claim, more=True):
            return full
        box.take(claim.holder, State.MAKING, used_at=self.now, closed_at=None)
        return Granted(record=box.shown(), new=False)

    def first(self, claim):
        spares = [
            box
            for box in self.boxes.values()
            if box.record.state is State.SPARE and claim.holder in box.held
        ]
        if not claim.spare:
            spares = []
        if full := self.full(claim, more=not spares):
            return full
        if spares:
            box = min(spares, key=lambda one: one.record.used_at)
            whose = {"key": claim.key, "tenant": claim.tenant}
            box.take(claim.holder, State.MAKING, used_at=self.now, **whose)
            return Granted(record=box.shown(), new=False, spare=True)
        self.enter(
            Record(
                workspace_id=claim.workspace_id,
                key=claim.key,
                tenant=claim.tenant,
                backend=claim.backend,
                place=claim.place,
                state=State.MAKING,
                created_at=self.now,
                used_at=self.now,
            ),
            claim.holder,
        )
        return Granted(record=self.boxes[claim.workspace_id].shown(), new=True)

    def enter(self, record, *holders):
        self.boxes[record.workspace_id] = Box(record, set(holders))

    def mine(self, workspace_id, holder):
        box = self.boxes.get(workspace_id)
        return box if box and holder in box.held else None

    def end(self, box, state):
        finished = box.record.key and box.record.state in (*OPEN, State.CLOSING)
        return state if finished else State.DELETING


class StoreMachine(RuleBasedStateMachine):
    """Asks both the same."""

    def __init__(self, store, call):
        super().__init__()
        self.store = store
        self.call = call
        self.model = Model()
        self.number = 0

    @initialize()
    def begin(self):
        self.store._begun.clear()
        self.call(lambda: cleared(self.store))

    def ask(self, method, *arguments, **how):
        return self.call(lambda: getattr(self.store, method)(*arguments, **how))

    def refused(self, holder, method, *arguments, **how):
        """Return whether the holder is dead, and make sure that it is told."""
        if holder in self.model.until:
            return False
        with pytest.raises(HolderExpiredError):
            self.ask(method, *arguments, **how)
        return True

    @rule(seconds=st.integers(1, 6))
    def wait(self, seconds):
        self.model.wait(seconds)

    @rule(holder=HOLDERS, lives=st.integers(1, 30), used=st.dictionaries(IDS, AGES))
    def beat(self, holder, lives, used):
        model = self.model
        until = model.now + lives
        times = {one: model.now - age for one, age in used.items()}
        answer = self.ask("beat", holder, model.now, until, times)
        if holder in model.begun and holder not in model.until:
            model.begun.discard(holder)
            assert answer is None
            return
        model.until[holder] = until
        model.begun.add(holder)
        for workspace_id, when in times.items():
            if box := model.mine(workspace_id, holder):
                last = max(box.record.used_at, when)
                box.record = replace(box.record, used_at=last)
        assert set(answer) == model.wanted(holder)

    @rule(holder=HOLDERS)
    def leave(self, holder):
        self.ask("leave", holder, self.model.now)
        self.model.drop(holder)
        self.model.begun.discard(holder)

    @rule(
        holder=HOLDERS,
        name=NAMES,
        shared=st.booleans(),
        use_spare=st.booleans(),
        most=QUOTAS,
        most_of_user=QUOTAS,
    )
    def claim(self, holder, name, shared, use_spare, most, most_of_user):
        claim = asked(
            holder,
            name,
            tenant=tenant(name),
            shared=shared,
            spare=use_spare,
            most=most,
            most_of_user=most_of_user,
            place=self.place(name),
        )
        if self.refused(holder, "claim", claim, self.model.now):
            return
        answer = self.ask("claim", claim, self.model.now)
        assert answer == self.model.claim(claim)

    def place(self, name):
        self.number += 1
        return f"w-{name}.{self.number}"

    @rule(holder=HOLDERS, which=IDS)
    def made(self, holder, which):
        answer = self.ask("made", which, holder, self.model.now)
        box = self.model.mine(which, holder)
        if box and box.record.state is State.MAKING:
            box.be(State.LIVE)
        assert answer is bool(box and box.record.state is State.LIVE)

    @rule(holder=HOLDERS, which=IDS, age=AGES)
    def release(self, holder, which, age):
        used_at = self.model.now - age
        answer = self.ask("release", which, holder, self.model.now, used_at)
        box = self.model.mine(which, holder)
        assert answer is bool(box and box.held == {holder})
        if box is None:
            return
        last = max(box.record.used_at, used_at)
        state = self.model.end(box, State.CLOSING) if answer else box.record.state
        box.be(state, used_at=last)
        if not answer:
            box.let_go(holder)

    @rule(holder=HOLDERS, which=IDS)
    def closed(self, holder, which):
        self.ask("closed", which, holder, self.model.now)
        box = self.model.mine(which, holder)
        if box is None:
            return
        box.let_go(holder)
        if not box.held:
            state = self.model.end(box, State.CLOSED)
            when = self.model.now if state is State.CLOSED else None
            box.be(state, closed_at=when)

    @rule(holder=HOLDERS, number=st.integers(0, 3))
    def spare(self, holder, number):
        now = self.model.now
        name = f"s{number}"
        times = {"created_at": now, "used_at": now + number / 10}
        record = spare(holder, name, place=self.place(name), **times)
        if self.refused(holder, "spare", record, now):
            return
        if record.workspace_id in self.model.boxes:
            with pytest.raises(StoreError):
                self.ask("spare", record, now)
            return
        self.ask("spare", record, now)
        self.model.enter(record, holder)

    @rule(holder=HOLDERS, age=AGES, limit=LIMITS)
    def abandoned(self, holder, age, limit):
        since = self.model.now - age
        how = {"idle_since": since, "limit": limit}
        if self.refused(holder, "abandoned", holder, self.model.now, **how):
            return
        due = {
            one: box.record.used_at
            for one, box in self.model.boxes.items()
            if not box.held and self.is_abandoned(box.record, since)
        }
        taken = self.ask("abandoned", holder, self.model.now, **how)
        self.taken(taken, due, limit)
        for record in taken:
            box = self.model.boxes[record.workspace_id]
            is_spare = box.record.state is State.SPARE
            box.take(holder, State.DELETING if is_spare else State.CLOSING)
            assert record == box.shown()

    def is_abandoned(self, record, since):
        idle = record.state is State.LIVE and record.used_at < since
        return idle or record.state in (State.SPARE, State.MAKING, State.CLOSING)

    def taken(self, taken, due, limit):
        """Make sure that as many are taken as there are, the oldest of them."""
        ids = [record.workspace_id for record in taken]
        assert len(ids) == min(limit, len(due))
        assert set(ids) <= due.keys()
        left = [due[one] for one in due.keys() - set(ids)]
        assert max((due[one] for one in ids), default=-1e9) <= min(left, default=1e9)

    @rule(holder=HOLDERS, age=st.none() | AGES, limit=LIMITS)
    def forgotten(self, holder, age, limit):
        since = None if age is None else self.model.now - age
        how = {"closed_since": since, "limit": limit}
        if self.refused(holder, "forgotten", holder, self.model.now, **how):
            return
        records = {one: box.shown() for one, box in self.model.boxes.items()}
        half = {
            one: 0.0
            for one, record in records.items()
            if record.state is State.DELETING and not record.holders
        }
        old = {
            one: record.closed_at + 1.0
            for one, record in records.items()
            if since is not None
            and record.state is State.CLOSED
            and record.closed_at < since
        }
        taken = self.ask("forgotten", holder, self.model.now, **how)
        self.taken(taken, half | old, limit)
        for record in taken:
            box = self.model.boxes[record.workspace_id]
            box.take(holder, State.DELETING)
            assert record == box.shown()

    @rule(holder=HOLDERS, which=IDS)
    def delete(self, holder, which):
        if self.refused(holder, "delete", which, holder, self.model.now):
            return
        answer = self.ask("delete", which, holder, self.model.now)
        box = self.model.boxes.get(which)
        if box is None:
            assert answer is None
        elif box.held - {holder}:
            assert answer == self.model.held(box)
        else:
            box.take(holder, State.DELETING)
            assert answer == box.shown()

    @rule(holder=HOLDERS, which=IDS)
    def deleted(self, holder, which):
        self.ask("deleted", which, holder)
        box = self.model.mine(which, holder)
        if box and box.record.state is State.DELETING:
            del self.model.boxes[which]

    @rule(name=NAMES, age=AGES)
    def adopt(self, name, age):
        now = self.model.now
        when = {"created_at": now - age, "used_at": now - age}
        record = found(name, tenant=tenant(name), place=self.place(name), **when)
        known = record.workspace_id in self.model.boxes
        known = known or self.model.of_key(record.key) is not None
        assert self.ask("adopt", record, now) is not known
        if not known:
            self.model.enter(record)

    @invariant()
    def they_are_the_same(self):
        boxes = self.model.boxes
        records = self.ask("records", self.model.now)
        assert records == [boxes[one].shown() for one in sorted(boxes)]
        assert self.ask("holders", self.model.now) == sorted(self.model.until)
        for holder in self.model.until:
            assert set(self.ask("wanted", holder)) == self.model.wanted(holder)

    def teardown(self):
        self.model.wait(1000)
        self.ask("beat", "last", self.model.now, 9999, {})
        assert self.call(lambda: wrongs(self.store)) == {}


def check(where, examples):
    """Run the machine against one store."""
    with start_blocking_portal() as portal:
        store = SqlStore(where)
        portal.call(store.open)
        try:
            run_state_machine_as_test(
                lambda: StoreMachine(store, portal.call),
                settings=settings(
                    max_examples=examples,
                    stateful_step_count=30,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            portal.call(store.aclose)


def test_a_file_is_as_the_model(tmp_path):
    check(tmp_path / "manager.db", examples=16)


def test_a_server_is_as_the_model(postgres):
    check(postgres.place(), examples=5)
