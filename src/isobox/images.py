"""Images of container engines, made from a small description.

from isobox import images

spec = images.load("image.toml")
image = await images.build(spec)
workspace = DockerWorkspace(image=image.name)
"""

from isobox._images.spec import ImageFile, ImageSpec, load, parse
from isobox.errors import BackendMissingError

try:
    from isobox._images.build import Image, build, from_rootfs, images, remove
except ModuleNotFoundError as error:
    raise BackendMissingError(
        "images need an extra: pip install 'isobox[docker]'"
    ) from error

__all__ = [
    "Image",
    "ImageFile",
    "ImageSpec",
    "build",
    "from_rootfs",
    "images",
    "load",
    "parse",
    "remove",
]
