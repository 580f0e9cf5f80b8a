"""What every operation passes: Audit, Guard, Limits, Errors."""

from isobox._layers.audit import Audit
from isobox._layers.errors import Errors
from isobox._layers.guard import Guard
from isobox._layers.ledger import Ledger
from isobox._layers.limits import Limited

__all__ = ["Audit", "Errors", "Guard", "Ledger", "Limited"]
