"""Context and results that leave the window, kept in the workspace."""
