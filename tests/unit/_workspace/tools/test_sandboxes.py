"""Tools where the sandbox lacks something, or refuses."""

from __future__ import annotations

import os
import shutil

import pytest

from isobox import LocalWorkspace, Policy
from isobox._workspace.tools.offload import Offload
from isobox.errors import SandboxLostError, WorkspaceClosedError
from isobox.testing.fake import MemoryWorkspace
from isobox.testing.processes import kill_tree

pytestmark = pytest.mark.anyio

PDFTOTEXT = """#!/bin/sh
case "$(cat "$5")" in
  *broken*) echo "it is broken" >&2; exit 1;;
  *) printf 'one\\ntwo\\n\\ffirst of two\\n\\f';;
esac
"""


async def tools(workspace):
    return {tool.name: tool for tool in await workspace.list_tools()}


def programs(folder, *names, **scripts):
    """Make a directory of few programs; `sh` is one without bash's ways."""
    folder.mkdir()
    for name in names:
        found = name == "sh" and shutil.which("dash")
        os.symlink(found or shutil.which(name), folder / name)
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.fixture
async def without_bash(tmp_path):
    path = programs(tmp_path / "bin", "sh", "seq", "sleep")
    async with LocalWorkspace(env={"PATH": path}) as opened:
        yield opened


NO_BASH = (
    "[there is no bash here: sh ran this, and keeps no directory and no variables]"
)


async def test_sh_stands_in_for_bash_and_says_so(without_bash):
    bash = (await tools(without_bash))["Bash"]
    first = await bash(command="echo hi; x=1; (exit 3)")
    assert first.text == f"hi\n{NO_BASH}\n[exit code 3]"
    second = await bash(command="echo [$x] >&2", separate_streams=True)
    assert second.text == f"[standard error]\n[]\n{NO_BASH}\n[exit code 0]"


async def test_sh_keeps_long_output_as_bash_does(without_bash):
    bash = (await tools(without_bash))["Bash"]
    result = await bash(command="seq 1 20000")
    whole = "".join(f"{number}\n" for number in range(1, 20001))
    assert await without_bash.read_text(result.metadata["full_output"]) == whole
    short = await bash(command="seq 1 5")
    assert short.metadata["full_output"] is None
    entries = await without_bash.scan("sessions/default")
    assert len(entries.entries) == 1


async def test_sh_times_out_as_bash_does(without_bash):
    result = await (await tools(without_bash))["Bash"](command="sleep 60", timeout=0.2)
    assert result.is_error
    assert "it ran out of time" in result.text


async def test_sh_runs_jobs(without_bash):
    known = await tools(without_bash)
    await known["Bash"](command="echo")
    await known["Bash"](command="echo hi", run_in_background=True)
    result = await known["BashOutput"](job_id="job-1", wait=10)
    assert result.text == "hi\n[job-1 has ended: exit code 0]"


@pytest.fixture
async def with_pdftotext(tmp_path):
    path = programs(tmp_path / "bin", "sh", "cat", pdftotext=PDFTOTEXT)
    async with LocalWorkspace(env={"PATH": path}) as opened:
        yield opened


async def test_a_document_is_text(with_pdftotext):
    await with_pdftotext.write("d.pdf", b"%PDF-1.4 fine")
    read = (await tools(with_pdftotext))["Read"]
    result = await read(file_path="d.pdf")
    assert result.text == (
        "     1\t[page 1]\n     2\tone\n     3\ttwo\n"
        "     4\t[page 2]\n     5\tfirst of two"
    )
    assert (await read(file_path="d.pdf", offset=-1)).text == (
        "     5\tfirst of two\n[lines 5 to 5 of 5]"
    )
    assert (await read(file_path="d.pdf", offset=6)).text == (
        "offset=6 is beyond the end: d.pdf has 5 lines"
    )


async def test_a_broken_document_is_told(with_pdftotext):
    await with_pdftotext.write("d.pdf", b"%PDF-1.4 broken")
    result = await (await tools(with_pdftotext))["Read"](file_path="d.pdf")
    assert result.is_error
    assert result.text == "d.pdf could not be read as PDF: it is broken"


async def test_without_pdftotext_a_document_is_named(without_bash):
    await without_bash.write("d.pdf", b"%PDF-1.4 fine")
    result = await (await tools(without_bash))["Read"](file_path="d.pdf")
    assert result.is_error
    assert "pdftotext (poppler-utils) is not installed here" in result.text


async def test_an_image_that_no_interface_takes(without_bash):
    await without_bash.write("i.png", b"\x89PNG\r\n\x1a\n" + bytes(6 << 20))
    result = await (await tools(without_bash))["Read"](file_path="i.png")
    assert result.is_error
    assert "too large to be shown" in result.text


async def test_what_the_policy_denies_is_told():
    async with MemoryWorkspace(policy=Policy.deny_all()) as workspace:
        result = await (await tools(workspace))["Read"](file_path="f")
        assert result.is_error
        assert result.metadata["error"] == "PolicyDeniedError"
        assert "the policy denies" in result.text
        assert "every operation is refused" in await workspace.get_instructions()


async def test_a_lost_sandbox_is_no_result():
    async with LocalWorkspace() as workspace:
        known = await tools(workspace)
        await kill_tree(workspace._sandbox._child.pid)
        with pytest.raises(SandboxLostError):
            await known["Glob"](pattern="*")


async def test_tools_end_with_the_workspace():
    workspace = MemoryWorkspace()
    async with workspace:
        known = await tools(workspace)
    with pytest.raises(WorkspaceClosedError):
        await known["Read"](file_path="f")
    with pytest.raises(WorkspaceClosedError):
        await workspace.list_tools()


async def test_output_that_cannot_be_kept_is_still_shown():
    async with MemoryWorkspace() as workspace:
        await workspace.write("sessions", "a file where the directory should be")
        offload = Offload(workspace, f"{workspace.root}/sessions/s/f", after=1)
        async with offload.writing():
            for _ in range(100):
                offload.put(b"x" * 100_000)
                await offload.room()
        assert offload.failure is not None
        assert not offload.whole


async def test_output_is_kept_in_order_while_it_arrives():
    async with MemoryWorkspace() as workspace:
        offload = Offload(workspace, f"{workspace.root}/f", after=10)
        async with offload.writing():
            for number in range(1000):
                offload.put(b"%d\n" % number)
                await offload.room()
        assert await workspace.read_bytes("f") == b"".join(
            b"%d\n" % number for number in range(1000)
        )


async def test_little_output_is_kept_only_if_wanted():
    async with MemoryWorkspace() as workspace:
        for name, wanted in (("yes", True), ("no", False)):
            offload = Offload(workspace, f"{workspace.root}/{name}", after=10)
            async with offload.writing():
                offload.put(b"little")
                offload.wanted = wanted
            assert await workspace.exists(name) == wanted
