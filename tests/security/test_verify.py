"""Whoever did the work cannot change what is thought of it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from isobox import BubblewrapWorkspace, LocalWorkspace, MemorySink, Policy, Secret
from isobox.errors import InvalidArgumentError, PolicyDeniedError, UnsupportedError

pytestmark = pytest.mark.anyio

WRONG = "def double(number):\n    return number + number + 1\n"
RIGHT = "def double(number):\n    return number + number\n"
#: Runs what is judged in a process of its own, and looks at what comes back.
JUDGE = """
import ctypes, subprocess, sys
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody writes its memory
script = (
    "import sys; sys.path.insert(0, '/workspace'); "
    "import work; print(work.double(21))"
)
done = subprocess.run(
    [sys.executable, "-I", "-c", script], capture_output=True, text=True, cwd="/"
)
sys.exit(0 if done.stdout.strip() == "42" else 1)
"""
#: Looks for the expected answer in the memory of its judge, and changes it there.
REWRITES = r"""
import os, struct
def double(number):
    parent = os.getppid()
    with open(f"/proc/{parent}/maps") as file:
        maps = [line.split() for line in file]
    memory = os.open(f"/proc/{parent}/mem", os.O_RDWR)
    for span, rights, *_ in maps:
        if "rw" not in rights:
            continue
        start, end = (int(each, 16) for each in span.split("-"))
        try:
            data = os.pread(memory, end - start, start)
        except OSError:
            continue
        at = data.find(b"42\0")
        while at >= 0:
            for off in (24, 32, 40, 48):
                if data[max(0, at - off):][:8] == struct.pack("<q", 2):
                    os.pwrite(memory, b"no", start + at)
                    break
            at = data.find(b"42\0", at + 1)
    return "no"
"""
COMMAND = ["/usr/bin/python3", "-I", "/verify/judge.py"]

#: What an agent might do rather than its work.
TRICKS = {
    "nothing": "true",
    "its own tests": "mkdir -p tests; echo 'def test(): pass' > tests/test_work.py",
    "conftest": (
        "echo 'import os; os._exit(0)' | tee conftest.py sitecustomize.py "
        "usercustomize.py subprocess.py pytest.py > /dev/null"
    ),
    "PATH": (
        "mkdir -p bin; printf '#!/bin/sh\\nexit 0\\n' > bin/python3; chmod +x "
        "bin/python3; cp bin/python3 python3; echo 'PATH=/workspace/bin' > .env"
    ),
    "site-packages": (
        "mkdir -p .venv/lib/python3/site-packages; "
        "echo 'import os; os._exit(0)' > .venv/lib/python3/site-packages/x.pth"
    ),
    "git hooks": (
        "mkdir -p hooks; printf '#!/bin/sh\\nexit 0\\n' > hooks/post-checkout; "
        "chmod +x hooks/post-checkout"
    ),
    "the judge's place": (
        "mkdir -p /workspace/verify; echo 'raise SystemExit(0)' > verify/judge.py; "
        "ln -s /workspace/verify /tmp/verify; mkdir /verify 2>/dev/null; "
        "cp verify/judge.py /verify/judge.py 2>/dev/null; true"
    ),
    "an early end": "printf 'import os\\nos._exit(0)\\n' >> work.py",
    "a process that stays": (
        "(while sleep 0.01; do echo 'raise SystemExit(0)' > /verify/judge.py; done) "
        "> /dev/null 2>&1 & true"
    ),
}


@pytest.fixture
def hidden(tmp_path):
    folder = tmp_path / "hidden"
    folder.mkdir()
    (folder / "judge.py").write_text(JUDGE)
    return folder


@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize(("work", "passes"), [(WRONG, False), (RIGHT, True)])
async def test_tricks_do_not_change_the_verdict(hidden, trick, work, passes):
    sink = MemorySink()
    async with BubblewrapWorkspace(audit=sink) as workspace:
        await workspace.write("work.py", work)
        await workspace.run(TRICKS[trick])
        verdict = await workspace.verify(COMMAND, mounts={"/verify": hidden})
    # Work that ends its process early says nothing, and that is not the answer.
    expected = passes and trick != "an early end"
    assert verdict.passed is expected
    record = next(r for r in sink.records if r.get("event") == "verify")
    assert record["passed"] is expected
    assert record["exit_code"] == (0 if expected else 1)
    assert record["digest"] == verdict.digest
    assert len(verdict.digest) == len(hashlib.sha256().hexdigest())
    assert sorted(os.listdir(hidden)) == ["judge.py"]
    assert (hidden / "judge.py").read_text() == JUDGE


async def test_what_is_judged_cannot_write_its_judges_memory(hidden):
    async with BubblewrapWorkspace() as workspace:
        await workspace.write("work.py", REWRITES)
        verdict = await workspace.verify(COMMAND, mounts={"/verify": hidden})
    assert not verdict.passed


async def test_the_judge_is_never_seen_and_nothing_flows_back(hidden):
    async with BubblewrapWorkspace() as workspace:
        verdict = await workspace.verify(
            "echo seen; cat /verify/judge.py; echo changed > /workspace/made; "
            "echo x > /verify/judge.py",
            mounts={"/verify": hidden},
        )
        assert not verdict.passed
        assert "Read-only file system" in verdict.result.stderr
        assert JUDGE.strip() in verdict.result.stdout
        assert not await workspace.exists("made")
        assert not await workspace.exists("/verify")


async def test_what_a_judge_does_is_recorded_before_it_happens():
    class Killed(MemorySink):
        """The host is gone before the verdict."""

        def put(self, record):
            if record.get("event") == "verify":
                raise OSError("gone")
            super().put(record)

    sink = Killed()
    async with BubblewrapWorkspace(audit=sink) as workspace:
        with pytest.raises(OSError, match="gone"):
            await workspace.verify("exit 3")
    judged = [r for r in sink.records if r["workspace"] != workspace.workspace_id]
    assert len({record["workspace"] for record in judged}) == 1
    told = [record.get("event") or record.get("op") for record in judged]
    assert [each for each in told if each] == ["initialize", "push", "spawn", "close"]
    spawn = next(record for record in judged if record.get("op") == "spawn")
    assert spawn["facts"]["script"] == "exit 3"


async def test_a_verdict_names_its_judge_and_nobody_names_a_secret(monkeypatch):
    monkeypatch.setenv("KEY_HERE", "Ab3dEf6hIj9l")
    sink = MemorySink()
    secret = Secret("KEY", source="env:KEY_HERE", hosts=("a.test",))
    async with BubblewrapWorkspace(
        audit=sink, network=["a.test"], secrets=[secret]
    ) as workspace:
        await workspace.run("true")
        await workspace.verify("echo Ab3dEf6hIj9l")
    verdict = next(r for r in sink.records if r.get("event") == "verify")
    spawn = [r for r in sink.records if r.get("op") == "spawn"][-1]
    assert verdict["judge"] == spawn["workspace"] != verdict["workspace"]
    assert spawn["facts"]["script"].startswith("echo ")
    assert "Ab3dEf6hIj9l" not in str(sink.records)


async def test_material_that_the_workspace_sees_is_refused(tmp_path):
    (tmp_path / "work" / "tests").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "work" / "tests")
    (tmp_path / "shown").mkdir()
    async with BubblewrapWorkspace(
        tmp_path / "work", mounts=[str(tmp_path / "shown")]
    ) as workspace:
        for name in ("work", "work/tests", "link", "shown", "."):
            with pytest.raises(InvalidArgumentError, match="elsewhere"):
                await workspace.verify("true", mounts={"/verify": tmp_path / name})


@pytest.mark.parametrize(
    ("mounted", "source", "refused"),
    [
        ("work", "other", True),
        ("work", "other/tests", True),
        ("work/tests", "other", True),
        ("work/tests", "other/deep", True),
        (".", "other", True),
        ("elsewhere", "other", False),
    ],
)
def test_material_that_the_workspace_sees_by_another_mount_is_refused(
    tmp_path, mounted, source, refused
):
    (tmp_path / "work" / "tests" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "other").mkdir()
    code = (
        "import sys; from isobox._workspace.verify import check_hidden; "
        "check_hidden(sys.argv[1:2], sys.argv[2:])"
    )
    paths = [str(tmp_path / each) for each in (mounted, "other", source, "work")]
    done = subprocess.run(
        [
            *("unshare", "-rm", "sh", "-c"),
            'mount --bind "$1" "$2"; exec "$0" -c "$3" "$4" "$5"',
            *(sys.executable, *paths[:2], code, *paths[2:]),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == int(refused), done.stderr
    assert ("keep what judges it elsewhere" in done.stderr) is refused


async def test_material_that_nobody_could_read_is_refused(hidden):
    async with BubblewrapWorkspace() as workspace:
        with pytest.raises(InvalidArgumentError, match="No such file"):
            await workspace.verify("true", mounts={"/verify": hidden / "none"})
        hidden.chmod(0o700)
        if os.geteuid() == 0:
            with pytest.raises(InvalidArgumentError, match="chmod"):
                await workspace.verify("true", mounts={"/verify": hidden})
        else:
            verdict = await workspace.verify(COMMAND, mounts={"/verify": hidden})
            assert verdict.result.exit_code == 1


async def test_a_sandbox_without_mounts_refuses(hidden):
    async with LocalWorkspace() as workspace:
        with pytest.raises(UnsupportedError, match="mounts"):
            await workspace.verify("true", mounts={"/verify": hidden})


async def test_a_judge_may_need_no_material():
    async with BubblewrapWorkspace() as workspace:
        await workspace.write("here", "x")
        assert (await workspace.verify("test -e here")).passed
        assert not (await workspace.verify(["test", "-e", "elsewhere"])).passed


async def test_the_files_are_read_through_the_policy(hidden):
    async with BubblewrapWorkspace(policy=Policy.deny_all()) as workspace:
        with pytest.raises(PolicyDeniedError):
            await workspace.verify("true", mounts={"/verify": hidden})


async def test_a_judge_that_takes_too_long_passes_nothing(hidden):
    async with BubblewrapWorkspace() as workspace:
        verdict = await workspace.verify(
            "sleep 60", mounts={"/verify": hidden}, timeout=0.5
        )
    assert not verdict.passed
    assert verdict.result.timed_out
