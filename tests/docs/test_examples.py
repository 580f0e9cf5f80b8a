"""Every Python example in the documentation compiles, and the runnable ones run.

A fence says which it is: `python runnable` is run as it stands, at top level with
`await` as in `python -m asyncio`; `python fragment` is compiled only. A `text output`
fence right after a runnable one is what it must print.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from isobox import _registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isobox import Availability

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(
    r"^```(?P<info>python[^\n]*)\n(?P<code>.*?)^```$"
    r"(?:\n+^```text output\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
DRIVER = """
import ast, asyncio, inspect, sys, types
code = compile(sys.stdin.read(), sys.argv[1], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
returned = types.FunctionType(code, {"__name__": "__main__"})()
if inspect.iscoroutine(returned):
    asyncio.run(returned)
"""


@dataclass(frozen=True)
class Example:
    place: str
    info: str
    code: str
    output: str | None


def examples() -> Iterator[Example]:
    for page in PAGES:
        text = page.read_text()
        for found in FENCE.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            place = f"{page.relative_to(ROOT)}:{line}"
            yield Example(place, found["info"], found["code"], found["output"])


EXAMPLES = list(examples())
RUNNABLE = [each for each in EXAMPLES if each.info == "python runnable"]


def available(backend: str) -> Availability:
    return asyncio.run(_registry.provider(backend).probe())


@pytest.fixture(scope="module")
def bubblewrap():
    return available("bubblewrap")


def test_there_are_examples():
    assert {"README.md", "README.zh-CN.md"} < {page.name for page in PAGES}
    assert len(RUNNABLE) >= 10


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.place)
def test_example_is_marked_and_compiles(example):
    assert example.info in {"python runnable", "python fragment"}
    compile(example.code, example.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("example", RUNNABLE, ids=lambda each: each.place)
def test_example_runs(example, bubblewrap, tmp_path):
    required = "bubblewrap" in os.environ.get("ISOBOX_REQUIRE", "")
    if "Bubblewrap" in example.code and not bubblewrap.ok and not required:
        pytest.skip(f"bubblewrap does not run here: {bubblewrap.reason}")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", DRIVER, example.place],
        input=example.code,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if example.output is not None:
        assert done.stdout == example.output
