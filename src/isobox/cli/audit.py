"""`isobox audit`: the commands and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from isobox.cli.status import finish

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show, follow and verify audit files.",
)

_File = Annotated[str, typer.Argument(metavar="FILE", help="The audit file.")]
_KeyFile = Annotated[
    str | None,
    typer.Option(
        "--key-file",
        metavar="PATH",
        help="The key that sealed it; else ISOBOX_AUDIT_KEY_FILE or ISOBOX_AUDIT_KEY.",
    ),
]
_Op = Annotated[
    list[str] | None,
    typer.Option("--op", metavar="NAME", help="Only such operations; repeatable."),
]
_Workspace = Annotated[
    str | None, typer.Option("--workspace", metavar="ID", help="Only of this one.")
]
_Failed = Annotated[
    bool, typer.Option("--failed", help="Only what failed, or was refused.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print lines of JSON.")]


@app.command(help="Show what happened, the oldest first.")
def show(
    file: _File,
    *,
    op: _Op = None,
    workspace: _Workspace = None,
    failed: _Failed = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="As 2026-01-31T12:00, or 30m, 2h, 7d ago."),
    ] = None,
    last: Annotated[
        int, typer.Option(min=1, help="Show at most this many, the last ones.")
    ] = 1000,
    as_json: _Json = False,
) -> None:
    """Show records."""
    from isobox.cli import trail  # noqa: PLC0415

    async def work() -> int:
        begin = trail.moment(since)
        wanted = trail.Wanted(tuple(op or ()), workspace, failed=failed, since=begin)
        return await trail.show(file, wanted, last=last, as_json=as_json)

    finish(work)


@app.command(
    help="Say whether the file, and those put aside before it, are as written.",
    epilog="Exits 1 and says where something was changed, added, removed or moved.",
)
def verify(
    file: _File,
    *,
    key_file: _KeyFile = None,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="HASH",
            help="A hash that `isobox audit head` printed, which must be there.",
        ),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Verify a log."""
    from isobox.cli import trail  # noqa: PLC0415

    finish(lambda: trail.check(file, key_file, expect=expect, as_json=as_json))


@app.command(help="Print the hash of the last record, to be kept elsewhere.")
def head(file: _File, *, key_file: _KeyFile = None) -> None:
    """Print the head."""
    from isobox.cli import trail  # noqa: PLC0415

    finish(lambda: trail.tell_head(file, key_file))


@app.command(help="Show records as they come.")
def follow(
    file: _File,
    *,
    op: _Op = None,
    workspace: _Workspace = None,
    failed: _Failed = False,
    as_json: _Json = False,
) -> None:
    """Follow a log."""
    from isobox.cli import trail  # noqa: PLC0415

    wanted = trail.Wanted(tuple(op or ()), workspace, failed=failed)
    finish(lambda: trail.follow(file, wanted, as_json=as_json))
