"""Containers of Docker or Podman."""
