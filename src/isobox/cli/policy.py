"""`isobox policy`: what a policy says, before anything runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from isobox._core.ops import CallTool, Connect, Read, Remove, Spawn, Write
from isobox._policy.network import NO_RULE
from isobox._workspace.policy_files import load_policy
from isobox.cli import policies
from isobox.cli.status import Ended, complain, one_line
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox._core.ops import Op
    from isobox._core.results import Ongoing
    from isobox._policy.decision import Decision
    from isobox._policy.op_rule import Rule
    from isobox._policy.part import Part
    from isobox._policy.policy import Policy

_OPTIONS: Final = frozenset(
    (
        "--policy", "--preset", "--project", "--tool", "--json",
        "--read", "--write", "--remove", "--connect",
    )
)  # fmt: skip
#: The model's tools, by what their names are in lower case.
TOOLS: Final = {
    name.lower(): name
    for name in (
        "ApplyPatch", "Bash", "BashInput", "BashKill", "BashOutput", "Edit", "Glob",
        "Grep", "Read", "Skill", "Write",
    )
}  # fmt: skip

app = typer.Typer(
    help="Check and explain permission policies.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(help="Read policy files and try their examples.")
def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Policy files.")],
) -> None:
    """Check policy files; exits 1 if one is wrong."""
    wrong = False
    for file in files:
        try:
            policy = load_policy(file)
        except InvalidArgumentError as error:
            complain(str(error))
            wrong = True
        else:
            rules = len(policy.rules) + len(policy.network.rules)
            typer.echo(f"{one_line(file)}: good, {rules} rules")
            _warn(policy)
    raise Ended(1 if wrong else 0)


def _warn(policy: Policy) -> None:
    for rule in policy.rules:
        for warning in _warnings(rule):
            complain(f"{rule.source}: warning: rule {rule.title!r} {warning}")


def _warnings(rule: Rule) -> Iterator[str]:
    if rule.is_about_everything:
        yield (
            "names nothing, so it is about every operation; name `ops`, `programs` or "
            f'`paths`, or say it as `default = "{rule.verdict}"`'
        )
    if rule.is_about_nothing:
        yield (
            "is about nothing: commands have `programs` and `arguments`, and none of "
            'its `ops` is one; leave `ops` out, or say `ops = ["run"]`'
        )
    for name in rule.tools:
        known = TOOLS.get(name.lower())
        if known not in (None, name):
            yield f"names the tool {name!r}; the model's own is {known!r}"


@app.command(help="Print the JSON Schema of a policy's file.")
def schema() -> None:
    """Print the schema."""
    from isobox._policy import load  # noqa: PLC0415

    typer.echo(json.dumps(load.schema(), indent=2))


@app.command(
    help="Say what a policy says of a command, a path or a connection, and why. "
    "Exits 0 whatever the verdict is, and 2 where nothing can be explained.",
    context_settings={"allow_interspersed_args": False},
)
def explain(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CMD",
            help="One word is a script, several an argv. Options come before it.",
        ),
    ] = None,
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Policy files, the most general first."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="read_only, auto or full_access.")
    ] = None,
    project: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Whose own .isobox/policy.toml can forbid more."
        ),
    ] = ".",
    read: Annotated[
        str | None, typer.Option(metavar="PATH", help="Explain a read.")
    ] = None,
    write: Annotated[
        str | None, typer.Option(metavar="PATH", help="Explain a write.")
    ] = None,
    remove: Annotated[
        str | None, typer.Option(metavar="PATH", help="Explain a removal.")
    ] = None,
    connect: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT]", help="Explain a connection.")
    ] = None,
    tool: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The tool that performs it; mcp__SERVER__TOOL alone is its call.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print it as one JSON object.")
    ] = False,
) -> None:
    """Explain a decision; exits 0 whatever it is, and 2 if there is none."""
    try:
        chosen = policies.chosen(policy or [], preset, project)
        op = _op(
            command or [],
            read=read,
            write=write,
            remove=remove,
            connect=connect,
            tool=tool,
        )
    except InvalidArgumentError as error:
        complain(str(error))
        raise Ended(2) from None
    parts = chosen.explain(op)
    if as_json:
        typer.echo(json.dumps(_told(chosen.decide(op), parts)))
    else:
        _show(chosen.decide(op), parts)


def _op(
    command: list[str],
    *,
    read: str | None,
    write: str | None,
    remove: str | None,
    connect: str | None,
    tool: str | None,
) -> Op[object]:
    ops: list[Op[Any]] = []
    if command:
        ops.append(_spawn(command))
    if read is not None:
        ops.append(Read(path=read))
    if write is not None:
        ops.append(Write(path=write, body=b""))
    if remove is not None:
        ops.append(Remove(path=remove))
    if connect is not None:
        ops.append(_connection(connect))
    if not ops and tool is not None:
        ops.append(_call(tool))
    if len(ops) != 1:
        raise InvalidArgumentError(
            "give one command, or one of --read, --write, --remove and --connect, or "
            "--tool mcp__SERVER__TOOL alone"
        )
    return replace(ops[0], caller=tool)


def _call(name: str) -> CallTool:
    prefix, _, rest = name.partition("__")
    server, _, tool = rest.partition("__")
    if prefix != "mcp" or not server or not tool:
        raise InvalidArgumentError(
            f"--tool {name}: say what it does as well (a command, --read, --write, "
            "--remove or --connect); alone it is an MCP tool, mcp__SERVER__TOOL"
        )
    return CallTool(server=server, tool=tool, call=_never)


def _spawn(command: list[str]) -> Spawn:
    script, *rest = command
    # A program has no blank in its name: this was a script, and then our options.
    if " " in script and rest and rest[0].partition("=")[0] in _OPTIONS:
        raise InvalidArgumentError(
            f"{rest[0]} comes after the command, where it is one of its words; write "
            f"it before: isobox policy explain {rest[0]} ... {script!r}"
        )
    if len(command) == 1:
        return Spawn(script=command[0], cwd="/workspace")
    return Spawn(argv=tuple(command), cwd="/workspace")


def _connection(text: str) -> Connect:
    from isobox._core import hosts  # noqa: PLC0415

    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, "443"
    if not port.isdecimal():
        raise InvalidArgumentError(
            f"--connect {text}: write HOST or HOST:PORT, such as example.org:443"
        )
    return Connect(host=hosts.normal(host), port=int(port), via="direct", reach=_never)


async def _never(_: CallTool | Connect) -> Ongoing:
    raise InvalidArgumentError("nothing is reached here")


def _told(decision: Decision, parts: list[tuple[Part, Decision]]) -> dict[str, object]:
    return {
        **_fields(decision),
        "parts": [{"part": _what(part), **_fields(said)} for part, said in parts],
    }


def _fields(decision: Decision) -> dict[str, object]:
    return {
        "verdict": decision.verdict,
        "rule": decision.rule,
        "reason": decision.reason,
        "source": decision.source or None,
    }


def _show(decision: Decision, parts: list[tuple[Part, Decision]]) -> None:
    typer.echo(_line(decision))
    if len(parts) > 1:
        for part, said in parts:
            typer.echo(f"  {one_line(_what(part))}: {_line(said)}")


def _line(decision: Decision) -> str:
    where = f" at {decision.source}" if decision.source else ""
    return one_line(
        f"{decision.verdict}: {_reason(decision)} (rule {decision.rule!r}{where})"
    )


def _reason(decision: Decision) -> str:
    unnamed = decision.rule in (NO_RULE, "otherwise") and not decision.source
    says = f", and the network's `otherwise` is {decision.verdict}"
    return decision.reason + (says if unnamed else "")


def _what(part: Part) -> str:
    if part.command is not None:
        words = (part.command.program or "?", *part.command.arguments)
        return " ".join(words)
    if part.doubts:
        return "; ".join(part.doubts)
    return " ".join(filter(None, (part.op, part.path or part.host)))
