"""Workspaces of many users: who has which, for how long, and in which process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isobox.manager.clock import Clock
    from isobox.manager.events import Event, Kind, Stats
    from isobox.manager.keys import PER_AGENT, PER_SESSION, PER_USER, Sharing
    from isobox.manager.manager import WorkspaceManager
    from isobox.manager.records import Record, State, Tenant
    from isobox.manager.sql import SqlStore
    from isobox.manager.store import Store

_HOMES = {
    "Clock": "clock",
    "Event": "events",
    "Kind": "events",
    "PER_AGENT": "keys",
    "PER_SESSION": "keys",
    "PER_USER": "keys",
    "Record": "records",
    "Sharing": "keys",
    "SqlStore": "sql",
    "State": "records",
    "Stats": "events",
    "Store": "store",
    "Tenant": "records",
    "WorkspaceManager": "manager",
}

__all__ = [
    "PER_AGENT",
    "PER_SESSION",
    "PER_USER",
    "Clock",
    "Event",
    "Kind",
    "Record",
    "Sharing",
    "SqlStore",
    "State",
    "Stats",
    "Store",
    "Tenant",
    "WorkspaceManager",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
