"""Instructions say what holds, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isobox import Limits, Policy
from isobox._core.spec import SandboxSpec
from isobox._workspace.instructions import instructions, size


class Sandbox:
    def __init__(self, *capabilities):
        self.root = "/workspace"
        self.capabilities = frozenset(capabilities)


HELD = Sandbox("isolated", "no_network")
SPEC = SandboxSpec(id="one")


def told(sandbox=HELD, policy=None, **spec):
    return instructions(sandbox, replace(SPEC, **spec), policy or Policy.allow_all())


def test_a_sandbox_says_what_it_holds():
    text = told()
    assert "Directory: /workspace." in text
    assert "Network: none" in text
    assert ".git, " in text
    assert "after 120 s" in text
    assert "Limits: 1024 processes, 256 MiB in /tmp." in text


def test_no_sandbox_says_so():
    text = told(Sandbox())
    assert "Isolation: none." in text
    assert "Network: that of the machine." in text
    assert "Protected" not in text
    assert "Limits" not in text


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (
            Limits(max_timeout=60),
            "after 60 s unless `timeout` says otherwise, at most 60",
        ),
        (
            Limits(max_timeout=300),
            "after 120 s unless `timeout` says otherwise, at most 3",
        ),
        (Limits(memory=2 << 30), "Limits: 2 GiB of memory, 1024 processes"),
        (Limits(cpus=1.5, processes=None), "Limits: 1.5 processors, 256 MiB in /tmp"),
        (Limits(disk=10 << 20), "10 MiB in the directory"),
        (Limits(file_size=1500), "1.465 KiB in one file"),
    ],
)
def test_limits(limits, words):
    assert words in told(limits=limits)


def test_what_is_not_protected_is_not_named():
    assert ".git, " not in told(unprotected=frozenset({".git"}))
    assert "Protected" not in told(protect=False)


def test_a_private_view_is_named():
    assert "private view" in told(mode="copy")


def test_a_policy_that_denies_says_so():
    assert "Policy: every operation is refused" in told(policy=Policy.deny_all())


@pytest.mark.parametrize(
    ("number", "words"),
    [(7, "7 bytes"), (1 << 10, "1 KiB"), (3 << 20, "3 MiB"), (5 << 30, "5 GiB")],
)
def test_size(number, words):
    assert size(number) == words
