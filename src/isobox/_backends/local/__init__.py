"""Commands as plain children of the host."""

from isobox._backends.local.provider import LocalProvider

__all__ = ["LocalProvider"]
