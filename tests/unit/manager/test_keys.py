"""Names of workspaces, for any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobox._workspace.arguments import identifier
from isobox.errors import InvalidArgumentError
from isobox.manager import PER_AGENT, PER_SESSION, PER_USER, Tenant, keys

ANY_TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=1024)
TENANTS = st.builds(
    Tenant, user=ANY_TEXT, agent=st.none() | ANY_TEXT, session=st.none() | ANY_TEXT
)


@given(TENANTS)
def test_an_id_is_one_everywhere(tenant):
    name = keys.workspace_id(keys.key(PER_AGENT, "local", tenant), tenant)
    assert identifier(name) == name
    assert len(name) <= 50
    assert keys.is_place(keys.place(name))


@given(TENANTS, TENANTS)
def test_tenants_have_different_keys(one, other):
    same = keys.key(PER_AGENT, "local", one) == keys.key(PER_AGENT, "local", other)
    assert same == (one == other)


@pytest.mark.parametrize(
    "other",
    [
        Tenant(user="a", agent="b,c"),
        Tenant(user='a","b', agent="c"),
        Tenant(user="a", agent="b", session="c"),
        Tenant(user="A", agent="b"),
        Tenant(user="a", agent="b\0"),
        Tenant(user="ä", agent="b"),
        Tenant(user="a\u0308", agent="b"),
        Tenant(user="\ud800", agent="b"),
        Tenant(user="?", agent="b"),
    ],
)
def test_what_looks_alike_is_not(other):
    ours = keys.key(PER_AGENT, "local", Tenant(user="a", agent="b"))
    assert keys.key(PER_AGENT, "local", other) != ours


@pytest.mark.parametrize("field", ["user", "agent", "session"])
def test_a_character_is_not_its_two_surrogates(field):
    ids = {"user": "a", "agent": "b", "session": "c"}
    found = {
        keys.key(PER_SESSION, "local", Tenant(**{**ids, field: text}))
        for text in ("\U0001f600", "\ud83d\ude00", "\\ud83d\\ude00", "\ude00\ud83d")
    }
    assert len(found) == 4


def test_half_a_pair_has_the_key_that_it_had():
    key = keys.key(PER_USER, "local", Tenant(user="\ud800"))
    assert key.startswith("fic37b3zv2uz")


def test_sharing_and_backend_are_part_of_it():
    tenant = Tenant(user="a")
    found = {
        keys.key(sharing, backend, tenant)
        for sharing in (PER_USER, PER_AGENT, PER_SESSION)
        for backend in ("local", "bubblewrap")
    }
    assert len(found) == 6


def test_it_stays_the_same():
    tenant = Tenant(user="Zoë", agent="coder")
    key = keys.key(PER_AGENT, "local", tenant)
    assert keys.key_of("local", tenant) == key
    assert keys.workspace_id(key, tenant) == f"zoe-coder-{key[:26]}"
    assert key.startswith("4obeefda72pu")


@pytest.mark.parametrize("wrong", ["", "x" * 1025, None, b"bytes", 7])
def test_what_is_no_id(wrong):
    with pytest.raises(InvalidArgumentError):
        keys.tenant(PER_USER, wrong, "agent", "session")
    with pytest.raises(InvalidArgumentError):
        keys.tenant(PER_USER, "user", "agent", wrong)


def test_whose_it_is():
    ids = ("user", "agent", "session")
    assert keys.tenant(PER_USER, *ids) == Tenant(user="user")
    assert keys.tenant(PER_AGENT, *ids) == Tenant(user="user", agent="agent")
    assert keys.tenant(PER_SESSION, *ids) == Tenant(
        user="user", agent="agent", session="session"
    )


def test_spares_are_random():
    assert identifier(keys.spare_id()) != keys.spare_id()


@pytest.mark.parametrize(
    "wrong", ["", "..", "a/b.00000000", "a.0", "-.00000000", "A.00000000"]
)
def test_what_is_no_place(wrong):
    assert not keys.is_place(wrong)
