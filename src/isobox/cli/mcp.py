"""`isobox mcp`: a workspace as an MCP server."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated

import typer

from isobox.cli import options  # noqa: TC001 - typer reads it
from isobox.cli.status import finish

#: What every wrong option is. Typer has it from click, of its own or another's.
_UsageError: type[typer.BadParameter] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    invoke_without_command=True,
    help="Serve a workspace's tools over MCP, to harnesses that speak it.",
    epilog="`isobox mcp config --client NAME` prints what to tell a program.",
)


@app.callback()
def serve(
    context: typer.Context,
    *,
    backend: options.Backend = None,
    workdir: options.Workdir = None,
    image: options.Image = None,
    env: options.Env = None,
    memory: options.Memory = None,
    mount: options.Mounts = None,
    min_isolation: options.MinIsolation = "full",
    network: options.Networks = None,
    secret: options.Secrets = None,
    policy: options.Policies = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="A ready-made policy: read_only, auto or full_access; auto if "
            "there is no --policy."
        ),
    ] = None,
    audit: options.Audit = None,
    servers: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="MCP servers that run inside: JSON with `mcpServers`, as other "
            "programs have it.",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve HTTP on the loopback instead of standard input and output; "
            "0 is any free port. The token is in ISOBOX_MCP_TOKEN, or printed.",
        ),
    ] = None,
) -> None:
    """Serve a workspace."""
    if context.invoked_subcommand is not None:
        return
    from isobox.cli import run, served  # noqa: PLC0415

    request = run.Request(
        command=(),
        backend=backend,
        workdir=workdir,
        image=image,
        env=tuple(env or ()),
        memory=memory,
        mounts=tuple(mount or ()),
        min_isolation=min_isolation,
        network=tuple(network or ()),
        secrets=tuple(secret or ()),
        policies=tuple(policy or ()),
        preset=preset if preset or policy else "auto",
        audit=audit,
    )
    finish(lambda: served.serve(request, servers=servers, http=http))


@app.command(
    help="Print what to tell a program, so that it starts `isobox mcp`.",
    epilog="Options of `isobox mcp` follow after --.",
)
def config(
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- OPTION...]", help="Options of `isobox mcp`."),
    ] = None,
    *,
    client: Annotated[str, typer.Option(metavar="NAME", help="The program.")],
) -> None:
    """Print a snippet."""
    from isobox.cli.status import complain  # noqa: PLC0415
    from isobox.errors import InvalidArgumentError  # noqa: PLC0415
    from isobox.mcp import clients  # noqa: PLC0415

    try:
        words = placed(client, list(options or ()))
        snippet = clients.snippet(client, [_program(), "mcp", *words])
    except InvalidArgumentError as error:
        complain(error.message)
        raise typer.Exit(2) from None
    typer.echo(snippet, nl=False)


def placed(client: str, options: list[str]) -> list[str]:
    """Return options of `isobox mcp` that mean the same wherever it is started.

    Raises:
        InvalidArgumentError: One is none of its options.
    """
    from isobox.errors import InvalidArgumentError  # noqa: PLC0415
    from isobox.mcp import clients  # noqa: PLC0415

    command = typer.main.get_command(app)
    try:
        context = command.make_context("isobox mcp", list(options))
    except _UsageError as error:
        raise InvalidArgumentError(error.format_message()) from None
    known = clients.CLIENTS.get(client)
    if known is None or known.in_project:
        return options
    # The last one counts.
    return [*options, "--workdir", os.path.abspath(context.params["workdir"] or ".")]


def _program() -> str:
    """Return the path of this program, for those who have another PATH."""
    return shutil.which("isobox") or os.path.abspath(sys.argv[0])
