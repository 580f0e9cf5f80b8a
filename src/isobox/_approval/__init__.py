"""What a person is asked before it happens."""
