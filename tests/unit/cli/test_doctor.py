"""`isobox doctor`."""

from __future__ import annotations

import json

import anyio
import pytest

from isobox import _registry
from isobox._backends.bubblewrap import machine
from isobox.abc import Availability
from isobox.cli import doctor
from isobox.errors import BackendMissingError

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Fixed:
    """A provider whose answer is known."""

    def __init__(self, availability):
        self._availability = availability

    async def probe(self):
        return self._availability


@pytest.fixture
def backends(monkeypatch):
    def install(**answers):
        def provider(name):
            if isinstance(answers[name], Exception):
                raise answers[name]
            return Fixed(answers[name])

        monkeypatch.setattr(_registry, "names", lambda: list(answers))
        monkeypatch.setattr(_registry, "provider", provider)

    return install


def works(name):
    return Availability(backend=name, ok=True, reason="it runs")


def fails(name):
    return Availability(backend=name, ok=False, reason="blocked [x]", fix="sysctl -w y")


async def test_a_working_sandbox_is_0(backends, capsys):
    backends(local=works("local"), bubblewrap=works("bubblewrap"))
    assert await doctor.doctor() == 0
    assert "it runs" in capsys.readouterr().out


async def test_local_alone_is_1_and_the_fix_is_shown(backends, capsys):
    backends(local=works("local"), bubblewrap=fails("bubblewrap"))
    assert await doctor.doctor() == 1
    shown = capsys.readouterr().out
    assert "blocked [x]" in shown
    assert "sysctl -w y" in shown


async def test_json(backends, capsys):
    backends(
        bubblewrap=fails("bubblewrap"),
        cloud=BackendMissingError("needs an extra: pip install 'isobox[cloud]'"),
    )
    assert await doctor.doctor(as_json=True) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["backends"] == [
        {
            "backend": "bubblewrap",
            "ok": False,
            "reason": "blocked [x]",
            "fix": "sysctl -w y",
        },
        {
            "backend": "cloud",
            "ok": False,
            "reason": "needs an extra: pip install 'isobox[cloud]'",
            "fix": None,
        },
    ]
    assert {"kernel", "user namespaces", "bubblewrap", "python", "ripgrep"} <= set(
        report["machine"]
    )


@pytest.mark.parametrize(
    ("name", "fix"),
    [("docker", "pip install 'isobox[docker]'"), ("local", None), ("cloud", None)],
)
async def test_what_installs_a_missing_extra_is_the_fix(backends, capsys, name, fix):
    backends(**{name: BackendMissingError("it is not there")})
    assert await doctor.doctor(as_json=True) == 1
    report = json.loads(capsys.readouterr().out)
    assert [each["fix"] for each in report["backends"]] == [fix]


DOCKER = machine.Facts(container="docker", seccomp=2, masks=("/proc/sys",))


async def test_what_may_be_in_the_way_is_explained(backends, monkeypatch, capsys):
    monkeypatch.setattr(machine, "facts", lambda: DOCKER)
    backends(local=works("local"), bubblewrap=fails("bubblewrap"))
    assert await doctor.doctor() == 1
    shown = capsys.readouterr().out
    assert "container's seccomp profile blocks user namespaces" in shown
    assert "    docker run --security-opt seccomp=unconfined" in shown
    assert await doctor.doctor(as_json=True) == 1
    report = json.loads(capsys.readouterr().out)
    causes = {each["cause"]: each["leaves"] for each in report["causes"]}
    assert causes == {"seccomp": "landlock", "proc_masked": "no_proc"}
    assert report["machine"]["user namespaces"] == "may be blocked: a seccomp filter"
    assert report["machine"]["/proc"] == "masked: /proc/sys"


async def test_where_a_sandbox_works_nothing_is_in_the_way(
    backends, monkeypatch, capsys
):
    monkeypatch.setattr(machine, "facts", lambda: DOCKER)
    backends(bubblewrap=works("bubblewrap"))
    assert await doctor.doctor(as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["causes"] == []


async def test_a_backend_that_hangs_is_not_waited_for(backends, monkeypatch, capsys):
    class Hanging:
        async def probe(self):
            await anyio.sleep_forever()

    backends(bubblewrap=None)
    monkeypatch.setattr(_registry, "provider", lambda _: Hanging())
    monkeypatch.setattr(doctor, "_PATIENCE", 0.05)
    assert await doctor.doctor(as_json=True) == 1
    assert "did not answer" in capsys.readouterr().out


async def test_this_machine(capsys):
    status = await doctor.doctor(as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert [each["backend"] for each in report["backends"]] == _registry.names()
    usable = {each["backend"] for each in report["backends"] if each["ok"]}
    assert (status == 0) == bool(usable - {"local"})
    assert all(each["reason"] for each in report["backends"])
