"""What the package imports is what it says it needs."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import isobox

ROOT = Path(isobox.__file__).parents[2]
SOURCE = Path(isobox.__file__).parent
#: Programs that are brought along, and what another's dependency pins exactly.
APART = {"cli/sample", "pydantic_core"}


def _imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def _normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def _declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(each for extra in extras for each in extra)]
    return {_normal(re.match(r"[\w.-]+", line)[0]) for line in lines}


def test_what_is_imported_is_declared():
    providers = metadata.packages_distributions()
    declared = _declared() | {"opentelemetry-api"}
    missing = {}
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE)
        if str(place.parent) in APART:
            continue
        for name in {each.partition(".")[0] for each in _imported(path)}:
            if name in sys.stdlib_module_names or name == "isobox" or name in APART:
                continue
            if not declared & {_normal(each) for each in providers.get(name, ())}:
                missing.setdefault(name, str(place))
    assert missing == {}
