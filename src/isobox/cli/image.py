"""`isobox image`: make, list and remove images of a container engine."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from isobox.cli.status import finish, one_line

if TYPE_CHECKING:
    from isobox.images import Image

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make, list and remove images for DockerWorkspace.",
)

_Engine = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The engine's address; else found as usual."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print lines of JSON.")]


@app.command(help="Make the image that a description says, unless it is there.")
def build(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="A file in TOML.")],
    *,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds for the package manager.")
    ] = 600,
    engine: _Engine = None,
    as_json: _Json = False,
) -> None:
    """Make an image from a description."""

    async def work() -> int:
        from isobox import images  # noqa: PLC0415

        wanted = images.load(spec)
        _show(await images.build(wanted, engine=engine, timeout=timeout), as_json)
        return 0

    finish(work)


@app.command("from-rootfs", help="Make an image of a directory; no registry is asked.")
def from_rootfs(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The root.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="It is isobox/NAME.")],
    *,
    set_id: Annotated[
        bool, typer.Option("--set-id", help="Keep set-user-id and set-group-id bits.")
    ] = False,
    engine: _Engine = None,
    as_json: _Json = False,
) -> None:
    """Make an image of a directory."""

    async def work() -> int:
        from isobox import images  # noqa: PLC0415

        made = await images.from_rootfs(directory, name, set_id=set_id, engine=engine)
        _show(made, as_json)
        return 0

    finish(work)


@app.command("ls", help="List the images that isobox has made.")
def list_(*, engine: _Engine = None, as_json: _Json = False) -> None:
    """List images."""

    async def work() -> int:
        from isobox import images  # noqa: PLC0415

        for image in await images.images(engine=engine):
            _show(image, as_json)
        return 0

    finish(work)


@app.command("rm", help="Remove images that isobox has made.")
def remove(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="As `ls` shows them.")
    ],
    *,
    engine: _Engine = None,
) -> None:
    """Remove images."""

    async def work() -> int:
        from isobox import images  # noqa: PLC0415

        for name in names:
            await images.remove(name, engine=engine)
        return 0

    finish(work)


def _show(image: Image, as_json: bool) -> None:
    line = json.dumps(asdict(image)) if as_json else one_line(image.name)
    sys.stdout.write(f"{line}\n")
