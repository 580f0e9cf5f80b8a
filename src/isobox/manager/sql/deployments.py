"""Which directory a store belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, insert, select, update

from isobox.errors import StoreError
from isobox.manager import keys
from isobox.manager.records import Deployment
from isobox.manager.sql.tables import AnyText, deployments

if TYPE_CHECKING:
    from isobox.manager.sql.transaction import Transaction

#: The number of the only row: two that enter one at once are in each other's way.
_ONLY: Final = 1
_FOUND: Final = select(deployments.c.identity, deployments.c.basedir)
_ENTER: Final = insert(deployments)
_MOVE: Final = update(deployments).values(basedir=bindparam("where", type_=AnyText))


def found(transaction: Transaction) -> Deployment | None:
    """Return the deployment of a store; None if it is of none yet.

    Raises:
        StoreError: Its row is none that this version writes.
    """
    row = transaction.row(_FOUND)
    if row is None:
        return None
    identity, basedir = row["identity"], row["basedir"]
    if not isinstance(basedir, str) or not keys.is_identity(identity):
        raise StoreError(
            "the store's row of isobox_deployment is not one that this version "
            f"writes: {identity!a:.100}"
        )
    return Deployment(identity=identity, basedir=basedir)


def entered(transaction: Transaction, deployment: Deployment) -> Deployment:
    """Make a store of a deployment, unless it is of one; returns of which it is."""
    known = found(transaction)
    if known is None:
        values = {"identity": deployment.identity, "basedir": deployment.basedir}
        transaction.change(_ENTER, {"number": _ONLY, **values})
        return deployment
    if known.identity != deployment.identity:
        return known
    transaction.change(_MOVE, {"where": deployment.basedir})
    return deployment
