"""The plugin gates by capability and holds classes to their deviations."""

import os
import subprocess
import sys

import pytest

_SUITE = """
import pytest


class TestBackend:
    capabilities = frozenset({"tty"})
    deviations = __DEVIATIONS__

    @pytest.mark.requires("tty")
    def test_terminal(self):
        pass

    @pytest.mark.requires("tty", "snapshot")
    def test_saving(self):
        raise AssertionError

    @pytest.mark.parametrize("value", [1, 2])
    def test_broken(self, value):
        raise AssertionError

    def test_sound(self):
        pass
"""
_ENTRY_POINT = "[pytest11]\nisobox = isobox.testing.plugin\n"


@pytest.fixture
def run(tmp_path):
    def run(deviations, *options, path=()):
        suite = tmp_path / "test_backend.py"
        suite.write_text(_SUITE.replace("__DEVIATIONS__", repr(deviations)))
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-rA", "--tb=no"),
                *("--strict-markers", "-p", "no:cacheprovider"),
                *options,
                str(suite),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*path, *sys.path])},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


_BY_NAME = ("-p", "isobox.testing.plugin")


def test_a_missing_capability_skips_and_says_so(run):
    status, output = run({"test_broken": "known"}, *_BY_NAME)
    assert status == 0, output
    assert "the backend has no snapshot" in output
    assert "2 passed, 1 skipped, 2 xfailed" in output


def test_what_fails_undeclared_fails(run):
    status, output = run({}, *_BY_NAME)
    assert status == 1
    assert "2 failed, 2 passed, 1 skipped" in output


def test_a_declared_deviation_must_fail(run):
    status, output = run({"test_broken": "known", "test_sound": "gone"}, *_BY_NAME)
    assert status == 1
    assert "[XPASS(strict)] gone" in output


def test_a_deviation_of_no_test_stops_the_run(run):
    status, output = run({"test_brokne": "typo"}, *_BY_NAME)
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "TestBackend.deviations names no test: test_brokne" in output


@pytest.mark.parametrize("options", [(), _BY_NAME, ("-p", "isobox")])
def test_the_plugin_may_come_by_entry_point_and_by_name(run, tmp_path, options):
    info = tmp_path / "path" / "other-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (info / "entry_points.txt").write_text(_ENTRY_POINT)
    status, output = run({"test_broken": "known"}, *options, path=[str(info.parent)])
    assert status == 0, output
    assert "2 passed, 1 skipped, 2 xfailed" in output


def test_the_plugin_is_light():
    script = (
        "import sys, pytest; before = set(sys.modules);"
        "import isobox.testing.plugin;"
        "print([m for m in set(sys.modules) - before if 'isobox' not in m])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
