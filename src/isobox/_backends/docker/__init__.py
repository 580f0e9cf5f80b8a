"""Containers of Docker or Podman."""

from isobox._backends.docker.options import DockerOptions, PythonOption
from isobox._backends.docker.provider import DockerProvider, DockerSandbox

__all__ = ["DockerOptions", "DockerProvider", "DockerSandbox", "PythonOption"]
