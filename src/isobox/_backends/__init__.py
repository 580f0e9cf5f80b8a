"""Backends, each in its folder; reached by name through the registry."""
