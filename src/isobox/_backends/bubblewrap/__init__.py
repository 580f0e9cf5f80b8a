"""Commands in Linux namespaces of their own, by bubblewrap."""

from isobox._backends.bubblewrap.provider import BubblewrapProvider

__all__ = ["BubblewrapProvider"]
