"""The contract catches every sandbox that lies."""

import os
import re
import subprocess
import sys

import pytest

from isobox.testing.liars import LIARS

_SUITE = """
from isobox.testing.liars import LIARS
from isobox.testing.memory_contract import MemoryContract

for liar in LIARS:
    name = f"Test{liar.kind.__name__}"
    globals()[name] = type(
        name,
        (MemoryContract,),
        {"workspace_class": liar.workspace(), "__module__": __name__},
    )


class TestHonest(MemoryContract):
    pass
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Outcomes by class and test, of everything that the liars name."""
    suite = tmp_path_factory.mktemp("liars") / "test_suite.py"
    suite.write_text(_SUITE)
    wanted = [
        f"{suite}::Test{kind}::{test}"
        for liar in LIARS
        for test in liar.caught_by
        for kind in (liar.kind.__name__, "Honest")
    ]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-rA", "--tb=no"),
            *("-p", "isobox.testing.plugin", "-p", "no:cacheprovider"),
            *dict.fromkeys(wanted),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=suite.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout[-5000:] + done.stderr
    found = re.findall(r"^(PASSED|FAILED) \S*::(\w+)::(\w+)", done.stdout, re.MULTILINE)
    outcomes: dict[tuple[str, str], set[str]] = {}
    for outcome, kind, test in found:
        outcomes.setdefault((kind, test), set()).add(outcome)
    return outcomes


def test_there_are_liars_enough():
    assert len(LIARS) >= 8
    assert len({liar.kind for liar in LIARS}) == len(LIARS)


@pytest.mark.parametrize("liar", LIARS, ids=lambda liar: liar.kind.__name__)
def test_a_liar_is_caught(outcomes, liar):
    for test in liar.caught_by:
        assert "FAILED" in outcomes[f"Test{liar.kind.__name__}", test], test


@pytest.mark.parametrize("liar", LIARS, ids=lambda liar: liar.kind.__name__)
def test_the_honest_one_is_not(outcomes, liar):
    for test in liar.caught_by:
        assert outcomes["TestHonest", test] == {"PASSED"}, test
