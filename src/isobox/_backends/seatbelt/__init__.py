"""Commands under macOS's own sandbox, Seatbelt."""

from isobox._backends.seatbelt.provider import SeatbeltProvider

__all__ = ["SeatbeltProvider"]
