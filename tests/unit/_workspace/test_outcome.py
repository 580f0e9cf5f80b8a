"""From an end to a result."""

from __future__ import annotations

import dataclasses

import pytest

from isobox._core.network import Denial
from isobox._core.results import Captured, Exit, RunResult
from isobox._workspace.outcome import checked, result_of
from isobox.errors import CommandFailedError, TimedOutError


def test_a_result_says_all_that_the_end_says():
    end = Exit(
        exit_code=137,
        signal="SIGKILL",
        timed_out=True,
        idle_timed_out=True,
        oom_killed=True,
        background=True,
        duration=1.5,
        stdout=Captured(b"out", b"", 3),
        stderr=Captured(b"e", b"r", 10),
        spool="/workspace/spool",
    )
    result = result_of(end)
    shared = {field.name for field in dataclasses.fields(Exit)} - {"stdout", "stderr"}
    for name in shared:
        assert getattr(result, name) == getattr(end, name)
    assert (result.stdout, result.stdout_total) == ("out", 3)
    assert result.truncated
    assert "8 bytes omitted" in result.stderr


def test_what_was_streamed_is_empty():
    result = result_of(Exit(exit_code=0))
    assert (result.stdout, result.stderr_bytes, result.truncated) == ("", b"", False)


def test_success_and_unchecked_failure_are_results():
    good, bad = RunResult(exit_code=0), RunResult(exit_code=1)
    assert checked(good, "true", check=True) is good
    assert checked(bad, "false", check=False) is bad


def test_a_checked_failure_says_what_failed_and_how():
    result = RunResult(exit_code=3, errors=Captured(b"x" * 9000 + b"why\n", b"", 9004))
    with pytest.raises(CommandFailedError, match="exit status 3: make all") as error:
        checked(result, ["make", "all"], check=True)
    assert error.value.result is result
    assert str(error.value).endswith("why")
    assert len(str(error.value)) < 2100


@pytest.mark.parametrize("timed_out", [False, True])
def test_an_error_says_what_of_the_network_was_refused(timed_out):
    denials = (
        Denial("a.test", 443, "default", "no rule allows a.test:443"),
        Denial("b.test", 443, "unreachable", "no route", kind="unreachable"),
    )
    result = RunResult(exit_code=1, timed_out=timed_out, denials=denials)
    with pytest.raises((CommandFailedError, TimedOutError)) as error:
        checked(result, "fetch", check=True)
    assert str(error.value).endswith(
        "fetch\nnot reached: a.test:443 (no rule allows a.test:443; rule 'default'); "
        "b.test:443 (no route)"
    )
    many = tuple(Denial("a.test", port, "default", "no") for port in range(1, 12))
    with pytest.raises(CommandFailedError, match=r"; 3 more$"):
        checked(RunResult(exit_code=1, denials=many), "fetch", check=True)


def test_a_checked_timeout_is_its_own_error_even_with_status_0():
    result = RunResult(exit_code=0, timed_out=True)
    with pytest.raises(TimedOutError) as error:
        checked(result, "x" * 1000, check=True)
    assert error.value.result is result
    assert isinstance(error.value, TimeoutError)


def test_a_checked_timeout_says_after_how_long_and_ends_with_the_errors():
    errors = Captured(b"x" * 9000 + b"why\n", b"", 9004)
    result = RunResult(exit_code=137, timed_out=True, duration=2.04, errors=errors)
    with pytest.raises(TimedOutError, match=r"^ran out of time after 2\.0 s: make\n"):
        checked(result, ["make"], check=True)
    with pytest.raises(TimedOutError, match=r"xwhy$"):
        checked(result, ["make"], check=True)


def test_a_long_command_is_shortened():
    result = RunResult(exit_code=0, timed_out=True)
    with pytest.raises(TimedOutError) as error:
        checked(result, "x" * 1000, check=True)
    assert len(str(error.value)) < 300
