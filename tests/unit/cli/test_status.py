"""How the command line ends."""

from __future__ import annotations

import signal

import pytest

from isobox.cli import status
from isobox.errors import BackendUnavailableError


def ended(work):
    with pytest.raises(SystemExit) as end:
        status.finish(work)
    return end.value.code


def test_status_of_the_work():
    async def work():
        return 42

    assert ended(work) == 42


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BackendUnavailableError("not here", fix="do this"), 125, "fix: do this"),
        (OSError(28, "No space left on device"), 125, "No space left"),
        (KeyError("x"), 125, "internal error"),
        (BrokenPipeError(), 128 + signal.SIGPIPE, ""),
    ],
)
@pytest.mark.parametrize("depth", [0, 2])
def test_errors(error, code, said, depth, capsys):
    for _ in range(depth):
        error = ExceptionGroup("group", [error])

    async def work():
        raise error

    assert ended(work) == code
    assert said in capsys.readouterr().err


def test_printable_keeps_lines_and_letters_only():
    assert status.printable("a\nb\x1b[31m é\r\x9b") == "a\nb\\x1b[31m é\\r\\x9b"
