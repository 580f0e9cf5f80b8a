"""The commands and their options."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from isobox.cli import managed, options
from isobox.cli.audit import app as audit_app
from isobox.cli.image import app as image_app
from isobox.cli.mcp import app as mcp_app
from isobox.cli.policy import app as policy_app
from isobox.cli.status import FAILED, UNREAD, Ended, finish

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Run what an agent asks for where it can do no harm.",
)

app.add_typer(audit_app, name="audit")
app.add_typer(mcp_app, name="mcp")
app.add_typer(image_app, name="image")
app.add_typer(policy_app, name="policy")

_USAGE = 2  # what the option parser exits with


def start() -> None:
    """Parse the command line, run it, and exit with its status."""
    _fill_standard_descriptors()
    try:
        app()
    except Ended:
        raise
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            sys.exit(UNREAD)
        # 125 and not 2, which may be the status of a command.
        if end.code == _USAGE and sys.argv[1:2] in (["run"], ["exec"]):
            sys.exit(FAILED)
        raise


def _fill_standard_descriptors() -> None:
    # One that is closed would be taken by the next file that is opened, and
    # the command's output would go there.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _show_version(wanted: bool) -> None:
    if wanted:
        # Here and not above: the other commands need none of it.
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"isobox {version('isobox')}")
        raise typer.Exit


@app.callback()
def before(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command(
    context_settings={"allow_interspersed_args": False},
    help="Run a command in a workspace and exit with its status.",
    epilog="Exits 124 when the time ran out, 125 when isobox itself failed.",
)
def run(
    command: Annotated[
        list[str],
        typer.Argument(metavar="CMD", help="Program and arguments, as they are."),
    ],
    *,
    backend: options.Backend = None,
    workdir: options.Workdir = None,
    image: options.Image = None,
    runtime: options.Runtime = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="UID[:GID]", help="Whom a container's commands run as."),
    ] = None,
    env: options.Env = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds until it is killed.")
    ] = None,
    memory: options.Memory = None,
    mount: options.Mounts = None,
    unprotected: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A protected name, as .git, that it may write."
        ),
    ] = None,
    min_isolation: options.MinIsolation = "full",
    network: options.Networks = None,
    secret: options.Secrets = None,
    ask_network: Annotated[
        bool,
        typer.Option(
            "--ask-network",
            help="Ask on the terminal about every other host; the command has no "
            "terminal then.",
        ),
    ] = False,
    policy: options.Policies = None,
    preset: Annotated[
        str | None,
        typer.Option(help="A ready-made policy: read_only, auto or full_access."),
    ] = None,
    ask: Annotated[
        bool,
        typer.Option(
            "--ask",
            help="Ask on the terminal what the policy says to ask; the command has "
            "no terminal then.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
    audit: options.Audit = None,
    record: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Record the terminal to a new file, in asciicast v2.",
        ),
    ] = None,
) -> None:
    """Run a command in a workspace."""
    from isobox.cli import run as _run  # noqa: PLC0415

    request = _run.Request(
        command=tuple(command),
        backend=backend,
        workdir=workdir,
        image=image,
        runtime=runtime,
        user=user,
        env=tuple(env or ()),
        timeout=timeout,
        memory=memory,
        mounts=tuple(mount or ()),
        unprotected=tuple(unprotected or ()),
        min_isolation=min_isolation,
        network=tuple(network or ()),
        secrets=tuple(secret or ()),
        ask_network=ask_network,
        policies=tuple(policy or ()),
        preset=preset,
        ask=ask,
        as_json=as_json,
        audit=audit,
        record=record,
    )
    finish(lambda: _run.run(request))


@app.command(help="Show what the network filters of your workspaces decide, live.")
def egress(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event as a line of JSON.")
    ] = False,
) -> None:
    """Watch the network filters."""
    from isobox.cli import egress as _egress  # noqa: PLC0415

    finish(lambda: _egress.egress(as_json=as_json))


@app.command(help="Say which backends work here, and what the others need.")
def doctor(
    *,
    as_json: options.AsJson = False,
) -> None:
    """Examine this machine."""
    from isobox.cli import doctor as _doctor  # noqa: PLC0415

    finish(lambda: _doctor.doctor(as_json=as_json))


@app.command(help="Run a real project's tests in a sandbox, then try to break out.")
def demo(
    *,
    as_json: options.AsJson = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the project's directory there.")
    ] = False,
) -> None:
    """Show what a sandbox does and what it withstands."""
    from isobox.cli import demo as _demo  # noqa: PLC0415

    finish(lambda: _demo.demo(as_json=as_json, keep=keep))


@app.command(
    help="Try from inside to reach what a backend keeps away, and say what was.",
    epilog="Exits 1 when more was reached than the backend admits.",
)
def probe(
    *,
    backend: Annotated[
        str | None,
        typer.Option(help="What to probe; bubblewrap, or seatbelt on macOS."),
    ] = None,
    image: options.Image = None,
    runtime: options.Runtime = None,
    python: options.Python = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure what a backend lets through."""
    from isobox.cli import probe as _probe  # noqa: PLC0415
    from isobox.cli.run import DEFAULT  # noqa: PLC0415

    finish(
        lambda: _probe.probe(
            backend=backend or DEFAULT,
            image=image,
            runtime=runtime,
            python=python,
            as_json=as_json,
        )
    )


managed.register(app)
