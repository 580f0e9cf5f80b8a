"""A record of everything that was asked and how it ended."""
