"""Print how long tools take: isobox's against AgentScope's, each in its bubblewrap.

    bench/.venv/bin/python bench/tools.py

`bench/run.py` makes the environment. Both sides work on trees with the same
files, in turns, and what they answer is checked. A turn of Read and of Edit has
ten calls: see `interleaved`.
"""

import asyncio
import importlib.resources
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import rivals
from measure import interleaved, medians, timed
from table import Line, faster, markdown

from isobox import BubblewrapWorkspace

FILES, FOLDERS = 20_000, 200
NEEDLES = 100
LINES = "".join(f"{number}: some words of a line of text\n" for number in range(2000))
ROUNDS = 15
#: Calls of a tool that takes no time to speak of, in one turn.
CALLS = 10

Call = Callable[..., Awaitable[str]]


def make_tree(root: Path) -> None:
    """Make 20,000 small files in 200 directories, and one of 2,000 lines."""
    for number in range(FILES):
        folder = root / f"d{number % FOLDERS:03}" / "src"
        folder.mkdir(parents=True, exist_ok=True)
        needle = "needle\n" if number % (FILES // NEEDLES) == 0 else ""
        kind = "py" if number % 10 == 0 else "txt"
        text = f"file {number}\n" + "some words of text\n" * 20 + needle
        (folder / f"f{number}.{kind}").write_text(text)
    (root / "lines.txt").write_text(LINES)
    (root / "edited.txt").write_text(LINES + "on\n")


async def isobox_tools(ws: BubblewrapWorkspace) -> dict[str, Call]:
    """Return isobox's tools by name, giving the text of their results."""
    return {tool.name: _ours(tool) for tool in await ws.list_tools()}


def _ours(tool) -> Call:  # type: ignore[no-untyped-def]
    async def call(**arguments: object) -> str:
        result = await tool(**arguments)
        if result.is_error:
            raise RuntimeError(result.text)
        return result.text

    return call


def agentscope_tools(backend) -> dict[str, Call]:  # type: ignore[no-untyped-def]
    """Return AgentScope's tools by name, over its bubblewrap backend."""
    from agentscope.tool import Edit, Glob, Grep, Read  # noqa: PLC0415 - heavy

    helper = "/workspace/.agentscope/_glob_helper.py"
    return {
        "Read": _theirs(Read(backend=backend)),
        "Edit": _theirs(Edit(backend=backend)),
        "Glob": _theirs(Glob(backend=backend, glob_helper_path=helper)),
        "Grep": _theirs(Grep(backend=backend)),
    }


def _theirs(tool) -> Call:  # type: ignore[no-untyped-def]
    async def call(**arguments: object) -> str:
        chunk = await tool.call(**arguments)
        text = "".join(block.text for block in chunk.content)
        if str(chunk.state).lower().endswith("error"):
            raise RuntimeError(text)
        return text

    return call


def prepare_agentscope(root: Path) -> None:
    """Put the helper there that AgentScope's workspace brings for its Glob."""
    scripts = importlib.resources.files("agentscope.tool._builtin._scripts")
    folder = root / ".agentscope"
    folder.mkdir()
    source = scripts.joinpath("_glob_helper.py").read_bytes()
    (folder / "_glob_helper.py").write_bytes(source)


async def compare(ours: dict[str, Call], theirs: dict[str, Call]) -> list[Line]:
    """Time each tool in turns; return the lines of the table."""
    top = "/workspace"
    return [
        await _row(
            "Read a file of 2,000 lines",
            lambda: _checked(ours["Read"](file_path="lines.txt"), "1999: some"),
            lambda: _checked(
                theirs["Read"](file_path=f"{top}/lines.txt"), "1999: some"
            ),
            20,
            calls=CALLS,
        ),
        await _row(
            "Edit a file of 2,000 lines",
            _our_edit(ours),
            _their_edit(theirs),
            20,
            calls=CALLS,
        ),
        await _row(
            "Glob, the 100 newest of 2,000 among 20,000 files",
            lambda: _counted(ours["Glob"](pattern="**/*.py", limit=100), ".py", 100),
            lambda: _counted(
                theirs["Glob"](pattern="**/*.py", path=top, head_limit=100), ".py", 100
            ),
            2,
        ),
        await _row(
            "Grep, 100 lines in 20,000 files",
            lambda: _counted(ours["Grep"](pattern="needle"), "needle", NEEDLES),
            lambda: _counted(
                theirs["Grep"](
                    pattern="needle", path=top, output_mode="content", head_limit=200
                ),
                "needle",
                NEEDLES,
            ),
            2,
        ),
    ]


async def _row(
    work: str,
    ours: Callable[[], Awaitable[object]],
    theirs: Callable[[], Awaitable[object]],
    factor: float,
    *,
    calls: int = 1,
) -> Line:
    contenders = {"isobox": timed(ours), "agentscope": timed(theirs)}
    took = medians(
        await interleaved(contenders, rounds=ROUNDS, warmup=2, at_a_time=calls)
    )
    return faster(work, took["isobox"], "AgentScope", took["agentscope"], factor)


def _our_edit(tools: dict[str, Call]) -> Callable[[], Awaitable[object]]:
    states = _states()

    async def call() -> None:
        old, new = next(states)
        edit = {"old_string": old, "new_string": new}
        await tools["Edit"](file_path="edited.txt", edits=[edit])

    return call


def _their_edit(tools: dict[str, Call]) -> Callable[[], Awaitable[object]]:
    states = _states()

    async def call() -> None:
        old, new = next(states)
        path = "/workspace/edited.txt"
        await tools["Edit"](file_path=path, old_string=old, new_string=new)

    return call


def _states():  # type: ignore[no-untyped-def]
    while True:
        yield "\non\n", "\noff\n"
        yield "\noff\n", "\non\n"


async def _checked(call: Awaitable[str], words: str) -> None:
    if words not in await call:
        raise RuntimeError(f"{words!r} is missing")


async def _counted(call: Awaitable[str], word: str, number: int) -> None:
    text = await call
    if text.count(word) < number:
        raise RuntimeError(f"{word!r} stands there {text.count(word)} times")


async def main() -> None:
    """Make both sides, compare them and print the table."""
    with tempfile.TemporaryDirectory() as folder, rivals.agentscope() as other:
        mine, its = Path(folder), Path(other.work)
        make_tree(mine)
        make_tree(its)
        prepare_agentscope(its)
        async with BubblewrapWorkspace(mine) as ws:
            ours = await isobox_tools(ws)
            print(markdown(await compare(ours, agentscope_tools(other.backend))))


if __name__ == "__main__":
    asyncio.run(main())
