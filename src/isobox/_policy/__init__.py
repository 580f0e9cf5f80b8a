"""What may happen: pure data, pure functions."""
