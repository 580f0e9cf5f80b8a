"""The ladder inside real containers: which rung, and why not a higher one."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.timeout(240)

DEFAULT: tuple[str, ...] = ()
NO_FILTER = ("--security-opt", "seccomp=unconfined")
OPEN = (*NO_FILTER, "--security-opt", "systempaths=unconfined")

ALL = ("full", "no_proc", "landlock")
ROOT, AGENT = 0, 1000

BLOCKED = "this docker container's seccomp profile blocks user namespaces"
MASKED = "parts of /proc are masked here"
FIX_BLOCKED = (
    "docker run --security-opt seccomp=unconfined "
    "--security-opt systempaths=unconfined ..."
)
FIX_MASKED = "docker run --security-opt systempaths=unconfined ..."


def rung_of(found):
    mechanism = found["isolation"]["process"]["mechanism"]
    name = mechanism.partition(":")[0]
    return name if name in ALL else "full"


def assert_held(found, user):
    assert found["tries"] == ["nothing"]
    assert found["timed_out"]
    assert found["left"] == 0
    if rung_of(found) == "landlock":
        assert int(found["uid"]) == user or (user == ROOT and int(found["uid"]) > 1000)
        assert found["isolation"]["process"]["level"] == "partial"
    else:
        assert found["uid"] == "1000"
        assert found["isolation"]["process"]["level"] == "strong"


def assert_refused(found, cause, offered, fix):
    assert found["error"] == "BackendUnavailableError"
    assert found["message"].startswith(cause)
    assert f'min_isolation="{offered}"' in found["message"]
    assert found["message"].endswith(f"fix: {fix}")


@pytest.mark.parametrize("user", [ROOT, AGENT])
def test_a_default_container_leaves_landlock(container, user):
    found = container(user).report(*ALL)
    assert_refused(found["full"], BLOCKED, "landlock", FIX_BLOCKED)
    assert_refused(found["no_proc"], BLOCKED, "landlock", FIX_BLOCKED)
    assert rung_of(found["landlock"]) == "landlock"
    assert_held(found["landlock"], user)


@pytest.mark.parametrize("user", [ROOT, AGENT])
def test_without_the_filter_all_but_proc_is_reached(container, user):
    found = container(user, *NO_FILTER).report(*ALL)
    assert_refused(found["full"], MASKED, "no_proc", FIX_MASKED)
    for asked in ("no_proc", "landlock"):
        assert rung_of(found[asked]) == "no_proc"
        assert_held(found[asked], user)


@pytest.mark.parametrize("user", [ROOT, AGENT])
def test_with_an_open_proc_all_is_reached(container, user):
    found = container(user, *OPEN).report(*ALL)
    for asked in ALL:
        assert rung_of(found[asked]) == "full"
        assert_held(found[asked], user)


@pytest.mark.parametrize(
    ("options", "cause", "offered", "fix"),
    [
        (DEFAULT, BLOCKED, "landlock", FIX_BLOCKED),
        (NO_FILTER, MASKED, "no_proc", FIX_MASKED),
    ],
)
def test_doctor_names_the_cause_and_the_fix(container, options, cause, offered, fix):
    here = container(AGENT, *options)
    plain = here.isobox("doctor")
    assert plain.returncode == 1
    assert cause in plain.stdout
    assert f"\n  {fix}\n" in plain.stdout
    result = here.isobox("doctor", "--json")
    assert result.returncode == 1
    report = json.loads(result.stdout)
    backend = next(b for b in report["backends"] if b["backend"] == "bubblewrap")
    assert backend["reason"].startswith(cause)
    assert f'min_isolation="{offered}" starts with less' in backend["reason"]
    assert backend["fix"] == fix
    assert fix in [each["fix"] for each in report["causes"]]
    assert report["machine"]["container"] == "docker"


def test_doctor_is_content_where_all_is_reached(container):
    result = container(AGENT, *OPEN).isobox("doctor", "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout)["causes"] == []
