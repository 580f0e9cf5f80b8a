"""Commands on a kernel of their own in user space, by gVisor's runsc."""

from isobox._backends.gvisor.provider import GVisorProvider

__all__ = ["GVisorProvider"]
