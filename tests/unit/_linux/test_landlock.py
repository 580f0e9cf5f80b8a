from __future__ import annotations

import json
import subprocess
import sys

import pytest

from isobox._linux import landlock
from isobox.errors import BackendUnavailableError

needs_landlock = pytest.mark.skipif(
    landlock.abi() < 6, reason="needs Landlock of version 6"
)

PRELUDE = """
import errno, json, os, signal, socket, sys, threading
sys.path[:0] = {path!r}
from isobox._linux import landlock
results = {{}}
def attempt(name, function):
    try:
        function()
        results[name] = "ok"
    except OSError as error:
        results[name] = errno.errorcode[error.errno]
def write(path):
    with open(path, "w") as file:
        file.write("x")
def read(path):
    with open(path) as file:
        file.read()
"""


def in_child(script: str):
    """Run `script` in a process of its own and return what it found."""
    prelude = PRELUDE.format(path=sys.path)
    run = subprocess.run(
        [sys.executable, "-c", f"{prelude}{script}\nprint(json.dumps(results))"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@needs_landlock
def test_files_open_only_where_they_may(tmp_path):
    for name in ("ro", "rw", "no"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("text")
    results = in_child(f"""
base = {str(tmp_path)!r}
gaps = landlock.restrict(ro=[base + "/ro", "/usr"], rw=[base + "/rw", "/dev/null"])
results["gaps"] = list(gaps)
attempt("read ro", lambda: read(base + "/ro/file"))
attempt("write ro", lambda: write(base + "/ro/file"))
attempt("truncate ro", lambda: os.truncate(base + "/ro/file", 0))
attempt("make in ro", lambda: write(base + "/ro/new"))
attempt("remove in ro", lambda: os.unlink(base + "/ro/file"))
attempt("write rw", lambda: write(base + "/rw/new"))
attempt("rename rw", lambda: os.rename(base + "/rw/new", base + "/rw/newer"))
attempt("write null", lambda: write("/dev/null"))
attempt("read no", lambda: read(base + "/no/file"))
attempt("list no", lambda: os.listdir(base + "/no"))
attempt("climb", lambda: read(base + "/rw/../no/file"))
def start():
    os.waitpid(os.posix_spawn("/usr/bin/true", ["true"], {{}}), 0)
attempt("of a child", start)
attempt("udp", lambda: socket.socket(type=socket.SOCK_DGRAM).bind(("127.0.0.1", 0)))
""")
    assert results == {
        "gaps": [],
        "read ro": "ok",
        "write ro": "EACCES",
        "truncate ro": "EACCES",
        "make in ro": "EACCES",
        "remove in ro": "EACCES",
        "write rw": "ok",
        "rename rw": "ok",
        "write null": "ok",
        "read no": "EACCES",
        "list no": "EACCES",
        "climb": "EACCES",
        "of a child": "ok",
        "udp": "ok",
    }
    assert (tmp_path / "ro/file").read_text() == "text"


@needs_landlock
def test_tcp_reaches_only_the_ports_named():
    results = in_child("""
servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
ports = [server.getsockname()[1] for server in servers]
landlock.restrict(ro=["/"], rw=[], tcp_connect=[ports[0]])
def connect(port):
    socket.create_connection(("127.0.0.1", port)).close()
attempt("named", lambda: connect(ports[0]))
attempt("other", lambda: connect(ports[1]))
attempt("listen", lambda: socket.create_server(("127.0.0.1", 0)).close())
""")
    assert results == {"named": "ok", "other": "EACCES", "listen": "EACCES"}


@needs_landlock
def test_no_port_named_is_no_tcp():
    results = in_child("""
server = socket.create_server(("127.0.0.1", 0))
landlock.restrict(ro=["/"], rw=[], tcp_connect=[])
attempt("any", lambda: socket.create_connection(server.getsockname()))
""")
    assert results == {"any": "EACCES"}


@needs_landlock
def test_scopes_keep_signals_and_abstract_sockets_inside():
    results = in_child("""
server = socket.socket(socket.AF_UNIX)
server.bind("\\0isobox-%d" % os.getpid())
server.listen()
release_end, release = os.pipe()
outside = os.fork()
if outside == 0:
    os.close(release)
    os.read(release_end, 1)
    os._exit(0)
landlock.restrict(ro=["/"], rw=[], scopes=["abstract_unix_sockets", "signals"])
attempt("signal", lambda: os.kill(outside, 0))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect(server.getsockname()))
attempt("itself", lambda: os.kill(os.getpid(), 0))
os.close(release)
os.waitpid(outside, 0)
""")
    assert results == {"signal": "EPERM", "abstract": "EPERM", "itself": "ok"}


@needs_landlock
def test_a_missing_path_restricts_nothing():
    results = in_child("""
attempt("restrict", lambda: landlock.restrict(ro=["/no/such"], rw=[]))
attempt("afterwards", lambda: read("/etc/passwd"))
""")
    assert results == {"restrict": "ENOENT", "afterwards": "ok"}


@pytest.mark.parametrize(
    ("version", "asked", "lacking"),
    [
        (0, {}, "cannot hold files; version 3 is needed"),
        (2, {}, "cannot hold files; version 3 is needed"),
        (3, {"tcp_connect": [80]}, "cannot hold TCP; version 4 is needed"),
        (5, {"scopes": ["signals"]}, "signals and abstract sockets; version 6"),
        (1, {"tcp_connect": [], "scopes": ["signals"]}, "files and TCP and signals"),
    ],
)
def test_what_the_kernel_cannot_hold_is_an_error(monkeypatch, version, asked, lacking):
    monkeypatch.setattr(landlock, "abi", lambda: version)
    with pytest.raises(BackendUnavailableError, match=lacking):
        landlock.restrict(ro=[], rw=[], **asked)


@needs_landlock
@pytest.mark.parametrize("version", [3, 4])
def test_what_was_not_asked_for_and_is_not_held_is_reported(version):
    results = in_child(f"""
landlock.abi = lambda: {version}
results["gaps"] = list(landlock.restrict(ro=["/"], rw=[]))
attempt("write", lambda: write("/dev/null"))
""")
    assert results == {"gaps": ["ioctl on devices"], "write": "EACCES"}


def test_the_version_is_0_without_landlock(monkeypatch):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(landlock, "syscall", refuse)
    assert landlock.abi() == 0
