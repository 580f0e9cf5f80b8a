"""Options that several commands take."""

from typing import Annotated

import typer

Backend = Annotated[
    str | None,
    typer.Option(help="What isolates it; bubblewrap, or seatbelt on macOS."),
]

Workdir = Annotated[
    str | None,
    typer.Option(help="Directory it may change; the current one if not given."),
]

Image = Annotated[
    str | None, typer.Option(help="The image of a container: its name or id.")
]

Runtime = Annotated[
    str | None,
    typer.Option(help="What runs a container, as runsc; the engine's default."),
]

Python = Annotated[
    str | None,
    typer.Option(
        metavar="FROM",
        help="Where a container's Python comes from: auto, image, bring, or none.",
    ),
]

Env = Annotated[
    list[str] | None,
    typer.Option(metavar="K=V", help="A variable that it sees; repeatable."),
]

Memory = Annotated[int | None, typer.Option(help="Bytes of memory that it may use.")]

Mounts = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="What else it sees, read-only; repeatable."),
]

MinIsolation = Annotated[
    str,
    typer.Option(
        metavar="LEAST",
        help="Start with less than full isolation: no_proc or landlock.",
    ),
]

Networks = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST[:PORT]",
        help="What it may connect to; !HOST denies, ?HOST asks; or open, or "
        "none; repeatable.",
    ),
]

Secrets = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SOURCE@HOST[,HOST]",
        help="What is attached outside to its requests to these hosts; SOURCE "
        "is env:VAR, file:/PATH or command:PROGRAM; repeatable.",
    ),
]

Policies = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="What it may do, most general file first; .isobox/policy.toml of "
        "the directory can only forbid more; repeatable.",
    ),
]

Audit = Annotated[
    str | None, typer.Option(metavar="FILE", help="Append records to this file.")
]

AsJson = Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")]
