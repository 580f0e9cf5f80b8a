"""Data and pure functions; no I/O."""
