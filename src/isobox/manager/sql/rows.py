"""Records as rows, and rows as records: what is read is checked."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, cast

from isobox._workspace.arguments import identifier
from isobox.errors import InvalidArgumentError, StoreError
from isobox.manager.records import Record, State, Tenant
from isobox.manager.sql.text import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from isobox.manager.sql.transaction import Row


def of_tenant(tenant: Tenant | None) -> dict[str, str | None]:
    """Return the columns that say whose a workspace is."""
    if tenant is None:
        return dict.fromkeys(("user_digest", "user_id", "agent_id", "session_id"))
    return {
        "user_digest": digest(tenant.user),
        "user_id": tenant.user,
        "agent_id": tenant.agent,
        "session_id": tenant.session,
    }


def of_options(options: Mapping[str, object]) -> str:
    """Return options as text.

    Raises:
        InvalidArgumentError: They hold what JSON has not.
    """
    try:
        return json.dumps(dict(options), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"options of a workspace: {error}") from error


def of_record(record: Record) -> dict[str, object]:
    """Return a workspace's row, but for whether it is held.

    Raises:
        InvalidArgumentError: Something in it is not what it has to be.
    """
    return {
        "workspace_id": identifier(record.workspace_id),
        "key": record.key,
        **of_tenant(record.tenant),
        "backend": record.backend,
        "place": directory(record.place),
        "state": record.state.value,
        "created_at": record.created_at,
        "used_at": record.used_at,
        "closed_at": record.closed_at,
        "options": of_options(record.options),
    }


def directory(name: str) -> str:
    """Return what is the name of a directory, and not a path.

    Raises:
        InvalidArgumentError: It is none.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(name) > 255:
        raise InvalidArgumentError(f"place={name!a:.300} is no name of a directory")
    return name


def record(row: Row, holders: Iterable[str]) -> Record:
    """Return the record of a row.

    Raises:
        StoreError: It is none that this version writes.
    """
    try:
        return Record(
            workspace_id=identifier(_text(row["workspace_id"])),
            key=_text_or_none(row["key"]),
            tenant=_tenant(row),
            backend=_text(row["backend"]),
            place=directory(_text(row["place"])),
            state=State(row["state"]),
            holders=tuple(holders),
            created_at=_number(row["created_at"]),
            used_at=_number(row["used_at"]),
            closed_at=None if row["closed_at"] is None else _number(row["closed_at"]),
            options=_options(row["options"]),
        )
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"the store's row of workspace {row['workspace_id']!a:.100} is not one "
            f"that this version writes: {error}"
        ) from error


def tenant(row: Row) -> Tenant:
    """Return the tenant of a row.

    Raises:
        StoreError: It is none that this version writes.
    """
    try:
        return Tenant(
            user=_text(row["user_id"]),
            agent=_text_or_none(row["agent_id"]),
            session=_text_or_none(row["session_id"]),
        )
    except ValueError as error:
        raise StoreError(f"the store's row of a member: {error}") from error


def _tenant(row: Row) -> Tenant | None:
    if (row["key"] is None) != (row["user_id"] is None):
        raise ValueError("it has a key without a user, or a user without a key")
    return None if row["user_id"] is None else tenant(row)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!a:.100} is no text")  # noqa: TRY004
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!a:.100} is no time")
    return float(value)


def _options(value: object) -> dict[str, object]:
    options: Any = json.loads(_text(value))
    if not isinstance(options, dict):
        raise ValueError("its options are no mapping")  # noqa: TRY004
    return cast("dict[str, object]", options)
