"""x"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isobox._backends.bubblewrap.plan import Plan


def show(plan: Plan) -> None:
    """X"""
