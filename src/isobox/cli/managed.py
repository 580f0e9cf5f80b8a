"""Commands on the workspaces that a manager made: `isobox ls`, `exec`, `rm`..."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from isobox.cli import options  # noqa: TC001 - typer reads it
from isobox.cli.status import finish

if TYPE_CHECKING:
    from isobox.cli.managed_place import Place

_Store = Annotated[
    str | None,
    typer.Option(
        envvar="ISOBOX_STORE",
        metavar="URL",
        help="The manager's store: a file of SQLite, or postgresql://...; "
        "manager.db below --basedir if not given.",
    ),
]
_Basedir = Annotated[
    str,
    typer.Option(
        envvar="ISOBOX_BASEDIR",
        metavar="DIR",
        help="The directory that has the workspaces below it.",
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print lines of JSON.")]
_Id = Annotated[str, typer.Argument(metavar="ID", help="As `isobox ls` shows it.")]
_Ids = Annotated[
    list[str], typer.Argument(metavar="ID", help="As `isobox ls` shows it.")
]
_Wait = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="How long to wait until who has it open hands it over.",
    ),
]
_HERE = "workspaces"
_PATIENCE = 30.0


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("ls", help="List the workspaces of a manager.")(list_)
    app.command(
        "exec",
        context_settings={"allow_interspersed_args": False},
        help="Run a command in a manager's workspace and exit with its status.",
        epilog="Exits 124 when the time ran out, 125 when isobox itself failed.",
    )(execute)
    app.command(
        "cp",
        help="Copy a file or directory between the host and a workspace.",
        epilog="One of both is ID:PATH.",
    )(copy)
    app.command("logs", help="Show what happened in a workspace.")(logs)
    app.command("close", help="Close workspaces; their files stay.")(close)
    app.command("rm", help="Delete workspaces with their files.")(remove)
    app.command("gc", help="Close, delete and find again what is due.")(collect)
    app.command("stats", help="Count the workspaces of a manager.")(stats)


def list_(
    *,
    user: Annotated[str | None, typer.Option(help="Only of this user.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only in it, as live; repeatable."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 1000,
    store: _Store = None,
    basedir: _Basedir = _HERE,
    as_json: _Json = False,
) -> None:
    """List workspaces."""
    from isobox.cli import managed_list  # noqa: PLC0415

    wanted = managed_list.Wanted(user, agent, session, tuple(state or ()), limit)
    finish(lambda: managed_list.show(_place(store, basedir), wanted, as_json=as_json))


def execute(
    workspace: _Id,
    command: Annotated[
        list[str],
        typer.Argument(metavar="CMD", help="Program and arguments, as they are."),
    ],
    *,
    env: options.Env = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds until it is killed.")
    ] = None,
    policy: options.Policies = None,
    preset: Annotated[
        str | None,
        typer.Option(help="A ready-made policy: read_only, auto or full_access."),
    ] = None,
    wait: _Wait = _PATIENCE,
    store: _Store = None,
    basedir: _Basedir = _HERE,
) -> None:
    """Run a command in a workspace."""
    from isobox.cli import managed_use  # noqa: PLC0415
    from isobox.cli.run import Request  # noqa: PLC0415

    request = Request(
        # After the id, the parser leaves it to us.
        command=tuple(command[1:] if command[0] == "--" else command),
        env=tuple(env or ()),
        timeout=timeout,
        policies=tuple(policy or ()),
        preset=preset,
    )
    finish(
        lambda: managed_use.execute(
            _place(store, basedir), workspace, request, wait=wait
        )
    )


def copy(
    source: Annotated[str, typer.Argument(metavar="SRC", help="ID:PATH, or a path.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The other of both.")],
    *,
    wait: _Wait = _PATIENCE,
    store: _Store = None,
    basedir: _Basedir = _HERE,
) -> None:
    """Copy a file or directory."""
    from isobox.cli import managed_use  # noqa: PLC0415

    finish(lambda: managed_use.copy(_place(store, basedir), source, target, wait=wait))


def logs(
    workspace: _Id,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as records come.")
    ] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only what failed, or was refused.")
    ] = False,
    last: Annotated[
        int, typer.Option(min=1, help="Show at most this many, the last ones.")
    ] = 1000,
    store: _Store = None,
    basedir: _Basedir = _HERE,
    as_json: _Json = False,
) -> None:
    """Show a workspace's audit log."""
    from isobox.cli import managed_list, trail  # noqa: PLC0415

    wanted = trail.Wanted(workspace=workspace, failed=failed)

    async def work() -> int:
        log = await managed_list.log(_place(store, basedir), workspace)
        if follow:
            return await trail.follow(log, wanted, as_json=as_json)
        return await trail.show(log, wanted, last=last, as_json=as_json)

    finish(work)


def close(
    workspaces: _Ids,
    *,
    wait: _Wait = _PATIENCE,
    store: _Store = None,
    basedir: _Basedir = _HERE,
) -> None:
    """Close workspaces."""
    from isobox.cli import managed_end  # noqa: PLC0415

    finish(lambda: managed_end.close(_place(store, basedir), workspaces, wait=wait))


def remove(
    workspaces: _Ids,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: _Wait = _PATIENCE,
    store: _Store = None,
    basedir: _Basedir = _HERE,
) -> None:
    """Delete workspaces."""
    from isobox.cli import managed_end  # noqa: PLC0415

    finish(
        lambda: managed_end.remove(
            _place(store, basedir), workspaces, yes=yes, wait=wait
        )
    )


def collect(
    *,
    ttl: Annotated[
        float | None,
        typer.Option(
            min=0, help="Close what dead processes left, unused for these seconds."
        ),
    ] = None,
    retention: Annotated[
        float | None,
        typer.Option(min=0, help="Delete what has been closed for these seconds."),
    ] = None,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="First enter what the store does not know of."),
    ] = False,
    backend: Annotated[
        str,
        typer.Option(help="Whose engine --rebuild asks besides: docker has one."),
    ] = "local",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    store: _Store = None,
    basedir: _Basedir = _HERE,
    as_json: _Json = False,
) -> None:
    """Collect what is due."""
    from isobox.cli import managed_end  # noqa: PLC0415

    due = managed_end.Due(
        ttl=ttl, retention=retention, rebuild=rebuild, backend=backend
    )
    finish(
        lambda: managed_end.collect(
            _place(store, basedir), due, dry_run=dry_run, as_json=as_json
        )
    )


def stats(
    *, store: _Store = None, basedir: _Basedir = _HERE, as_json: options.AsJson = False
) -> None:
    """Count workspaces."""
    from isobox.cli import managed_list  # noqa: PLC0415

    finish(lambda: managed_list.stats(_place(store, basedir), as_json=as_json))


def _place(store: str | None, basedir: str) -> Place:
    from isobox.cli.managed_place import Place  # noqa: PLC0415

    return Place(basedir=basedir, store=store)
