"""The program that probes from inside: it finds what is open, and harms nothing."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.mounts import host_mounts

from isobox._backends.bubblewrap.barriers import ISOLATION
from isobox._core.isolation import DIMENSIONS
from isobox._linux.syscall_numbers import NUMBERS
from isobox._probe import inside, measure
from isobox._probe.report import judge, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="probes Linux")

PROGRAM = Path(inside.__file__).read_text("utf-8")
PYTHON = [sys.executable, "-I", "-S"]
SECRET = "ISOBOX_PROBE_SECRET_OF_THE_TEST"


@contextlib.contextmanager
def decoys() -> Iterator[tuple[dict[str, object], subprocess.Popen[bytes]]]:
    token = secrets.token_hex(8)
    with subprocess.Popen(
        [*PYTHON, "-c", PROGRAM, "plant", token],
        env={f"ISOBOX_PROBE_{token}": token},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline()), process


def outcomes(
    *prefix: str,
    plan: Mapping[str, object] | None = None,
    cwd: Path,
    python=PYTHON,
    **run,
):
    done = subprocess.run(
        [*prefix, *python, "-", json.dumps(plan or {})],
        input=PROGRAM.encode(),
        cwd=cwd,
        capture_output=True,
        timeout=100,
        check=False,
        **run,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return parse(done.stdout)


def reached(found) -> set[str]:
    return {name for name, (outcome, _) in found.items() if outcome == "reached"}


def errors(found) -> dict[str, str]:
    return {name: detail for name, (how, detail) in found.items() if how == "error"}


def script(source: str) -> object:
    """Run code with the program's names in scope, in a process of its own."""
    main = PROGRAM.index('if __name__ == "__main__"')
    done = subprocess.run(
        [*PYTHON, "-c", f"{PROGRAM[:main]}\n{source}"],
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_the_catalogue_covers_every_dimension():
    catalogue = inside.CATALOGUE
    assert len(catalogue) >= 70
    assert {probe.dimension for probe in catalogue.values()} == set(DIMENSIONS)
    for name, probe in catalogue.items():
        assert probe.id == name
        assert name.replace("-", "").isalnum()
        assert probe.tries


def test_the_program_is_old_python_and_standard_library():
    tree = ast.parse(PROGRAM, feature_version=(3, 8))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported <= sys.stdlib_module_names


def test_its_system_calls_have_the_numbers_that_the_filter_knows():
    for name, numbers in inside._NUMBERS.items():
        for arch, number in zip(inside._MACHINES, numbers, strict=True):
            assert NUMBERS[arch].get(name, number) == number, (name, arch)


def test_without_a_sandbox_it_reaches_every_decoy_and_leaves_no_trace(tmp_path):
    mounts = host_mounts()
    with decoys() as (host, victim):
        plan = {"host": host, "facts": {**measure.facts(), "secret_variable": SECRET}}
        found = outcomes(plan=plan, cwd=tmp_path, env={**os.environ, SECRET: "x"})
        assert victim.poll() is None

    assert errors(found) == {}
    assert found.keys() == inside.CATALOGUE.keys()
    planted = {
        "environment",
        "host-abstract-socket",
        "host-file",
        "host-path-socket",
        "host-process",
        "host-shm-file",
        "host-signal",
        "host-sysv-memory",
        "host-tcp",
        "net-namespace",
        "pid-namespace",
        "host-directories",
        "host-name",
    }
    assert planted <= reached(found)
    assert list(tmp_path.iterdir()) == []
    assert host_mounts() == mounts


def test_what_was_planted_is_gone_when_its_input_ends():
    with decoys() as (host, process):
        kept = [Path(str(host[name])) for name in ("secret_file", "shm_file")]
        assert [path.read_text() for path in kept] == [host["token"]] * 2
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=30) == 0
        assert not any(path.exists() or path.is_symlink() for path in kept)
        assert not kept[0].parent.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be someone else")
def test_an_ordinary_user_can_run_it(tmp_path):
    tmp_path.chmod(0o777)
    found = outcomes(
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        cwd=Path("/"),
        python=["/usr/bin/python3", "-I", "-S"],
    )
    assert errors(found) == {}
    assert found["root"][0] == "held"
    assert found["write-etc"][0] == "held"


def _naive_bubblewrap_works() -> bool:
    if shutil.which("bwrap") is None:
        return False
    tried = subprocess.run(
        ["bwrap", "--ro-bind", "/", "/", "true"], capture_output=True, check=False
    )
    return tried.returncode == 0


@pytest.mark.skipif(not _naive_bubblewrap_works(), reason="needs bwrap")
def test_a_naive_sandbox_is_found_out(tmp_path):
    with decoys() as (host, _):
        plan = {"host": host, "facts": measure.facts()}
        found = outcomes("bwrap", "--ro-bind", "/", "/", plan=plan, cwd=tmp_path)

    assert errors(found) == {}
    assert found["write-etc"][0] == "held"
    let_through = reached(found)
    report = judge(ISOLATION, found)
    assert not report.ok
    unexpected = [f for f in report.findings if f.verdict == "unexpected"]
    assert len(unexpected) >= 15
    assert {
        "host-abstract-socket",
        "host-file",
        "host-path-socket",
        "host-process",
        "host-tcp",
        "ipc-namespace",
        "net-namespace",
        "pid-namespace",
        "seccomp-mode",
    } <= let_through


@pytest.mark.parametrize(
    ("attempt", "outcome", "said"),
    [
        ("return 'all of it'", "reached", "all of it"),
        ("raise Held('a wall')", "held", "a wall"),
        ("raise Absent('nobody')", "absent", "nobody"),
        ("raise OSError(errno.EPERM, '')", "held", "EPERM"),
        ("raise OSError(errno.ENOENT, '')", "absent", "ENOENT"),
        ("raise OSError(errno.EFAULT, 'bad')", "error", "EFAULT: bad"),
        ("raise KeyError('x')", "error", "KeyError: 'x'"),
        ("os.kill(os.getpid(), signal.SIGSYS)", "held", "killed by SIGSYS"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "error", "killed by SIGKILL"),
        ("os._exit(0)", "error", "the probe ended without an answer"),
        ("signal.pause()", "error", "RuntimeError: took longer than 0.2 s"),
        (
            "signal.signal(signal.SIGALRM, signal.SIG_IGN); signal.pause()",
            "error",
            "killed by SIGKILL",
        ),
        ("return chr(27) + '[2J' + chr(10)", "reached", "?[2J?"),
        ("return 'x' * 9999", "reached", "x" * 300),
    ],
)
def test_each_probe_ends_in_its_own_process(attempt, outcome, said):
    found = script(
        f"SECONDS_PER_PROBE = 0.2\n"
        f"def attempt():\n    {attempt}\n"
        f"_print(_run(Probe('one', 'process', 'Try', attempt)))"
    )
    assert found == [outcome, said]


def test_a_walk_finds_sockets_from_the_top_down(tmp_path):
    deep = tmp_path / "a/b"
    deep.mkdir(parents=True)
    names = [str(tmp_path / "shallow"), str(deep / "deep"), str(deep / "file")]
    os.mknod(names[2])
    (tmp_path / "link").symlink_to(names[0])
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
        one.bind(names[0])
        other.bind(names[1])
        found = inside._find([str(tmp_path)], inside._is_socket, levels=2)
        assert found == (names[:2], "")
        found = inside._find([str(tmp_path)], inside._is_socket, levels=1)
        assert found == (names[:1], "")


def test_a_walk_without_end_tells_what_was_seen(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.setattr(inside, "SECONDS_PER_PROBE", -1)
    found, unseen = inside._find([str(tmp_path)], inside._is_socket, levels=2)
    assert (found, unseen) == ([], f" until {tmp_path}; there was no time for more")


def test_a_descriptor_that_was_inherited_is_reported(tmp_path):
    with (tmp_path / "open").open("wb") as leaked:
        number = leaked.fileno()
        found = outcomes(cwd=tmp_path, pass_fds=(number,))
    assert found["descriptors"] == ("reached", str(number))
