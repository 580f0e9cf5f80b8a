"""A command's third output: whole, in order, and at its end when the command is."""

from __future__ import annotations

import anyio
import pytest
from tests.shelled import ShelledWorkspace

from isobox._core.ops import Spawn

pytestmark = pytest.mark.anyio
IMAGES = ["busybox", "coreutils"]
#: Prints all the while, and reports more than a pipe takes at once.
_TORN = """\
( i=0; while [ $i -lt 2000 ]; do
  echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; i=$((i+1)); done ) &
for i in 1 2 3 4; do head -c 5000 /dev/zero >&3; done; wait; exit 7"""


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def _reported(workspace, script):
    asked = Spawn(script=script, cwd="/workspace", report=True, stdin=True)
    outputs = {}

    async def read(name):
        outputs[name] = await getattr(command, name).read()

    with anyio.fail_after(60):
        command = await workspace._sandbox.spawn(asked)
        async with anyio.create_task_group() as group:
            for name in ("stdout", "stderr", "report"):
                group.start_soon(read, name)
        return outputs, await command.wait()


@pytest.mark.parametrize("image", IMAGES)
async def test_what_is_reported_right_before_the_end_is_not_lost(image):
    async with ShelledWorkspace(image=image) as workspace:
        for number in range(10):
            sent = b"report-%d" % number
            outputs, end = await _reported(workspace, f"printf {sent.decode()} >&3")
            assert (outputs["report"], end.exit_code) == (sent, 0)


@pytest.mark.parametrize("size", [0, 1, 415, 416, 447, 448, 449, 4096, 9000])
async def test_a_report_has_its_bytes_and_no_other(size):
    async with ShelledWorkspace() as workspace:
        script = f"printf x; head -c {size} /dev/zero >&3; printf why >&2; exit 3"
        outputs, end = await _reported(workspace, script)
    assert outputs == {"stdout": b"x", "stderr": b"why", "report": bytes(size)}
    assert end.exit_code == 3


@pytest.mark.parametrize("image", IMAGES)
async def test_who_keeps_the_third_output_open_does_not_hold_the_end(image):
    async with ShelledWorkspace(image=image) as workspace:
        script = "printf before >&3; sleep 77 >/dev/null 2>&1 &"
        outputs, end = await _reported(workspace, script)
    assert outputs["report"] == b"before"
    assert (end.exit_code, end.background) == (0, True)


@pytest.mark.parametrize("image", IMAGES)
async def test_no_other_output_tears_a_report(image):
    async with ShelledWorkspace(image=image) as workspace:
        outputs, end = await _reported(workspace, _TORN)
    assert outputs["report"] == bytes(20000)
    assert outputs["stdout"] == (b"y" * 34 + b"\n") * 2000
    assert end.exit_code == 7


async def test_a_prompt_is_seen_whatever_it_ends_with():
    async with ShelledWorkspace() as workspace:
        script = "printf 0123456789abcdef; read x; echo got $x"
        asked = Spawn(script=script, cwd="/workspace", stdin=True)
        seen = b""
        with anyio.fail_after(60):
            command = await workspace._sandbox.spawn(asked)
            while seen != b"0123456789abcdef":
                seen += await command.stdout.receive()
            await command.write(b"it\n")
            assert await command.stdout.read() == b"got it\n"
            await command.wait()
