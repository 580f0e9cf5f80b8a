"""What is recognised in what was found, by tables of facts."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from isobox._backends.bubblewrap import binary, machine
from isobox._backends.bubblewrap.machine import Facts, recognise
from isobox.errors import BackendUnavailableError

FINE = Facts()
DOCKER = Facts(
    container="docker",
    seccomp=2,
    masks=("/proc/bus", "/proc/sys", "/proc/keys"),
    capabilities=0xA80425FB,
)
WSL1 = "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com) (gcc) #1237"
WSL2 = "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@x) (gcc) #1 SMP"
APPARMOR = {"kernel.apparmor_restrict_unprivileged_userns": "1"}

BWRAP_BLOCKED = "bwrap: No permissions to create new namespace, likely because ..."
BWRAP_NO_PROC = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted"
BWRAP_UID_MAP = "bwrap: setting up uid map: Permission denied"


@pytest.mark.parametrize(
    ("facts", "cause", "says", "fix", "leaves"),
    [
        pytest.param(
            replace(FINE, system="Darwin"),
            "system",
            "Darwin",
            "Linux",
            None,
            id="macos",
        ),
        pytest.param(
            replace(FINE, version=WSL1),
            "wsl1",
            "WSL 1",
            "wsl --set-version DISTRIBUTION 2",
            None,
            id="wsl1",
        ),
        pytest.param(
            replace(FINE, openat2=False, release=(5, 4)),
            "kernel",
            "openat2 is missing or blocked; Linux 5.6 has it, this is 5.4",
            "Linux 5.6",
            None,
            id="old-kernel",
        ),
        pytest.param(
            replace(FINE, user_namespaces=False),
            "user_namespaces",
            "built without user namespaces",
            "CONFIG_USER_NS=y",
            "landlock",
            id="no-user-namespaces",
        ),
        pytest.param(
            replace(FINE, sysctls={"user.max_user_namespaces": "0"}),
            "sysctl",
            "user.max_user_namespaces",
            "sysctl -w user.max_user_namespaces=15000",
            "landlock",
            id="no-more-user-namespaces",
        ),
        pytest.param(
            replace(
                FINE,
                sysctls={
                    "kernel.unprivileged_userns_clone": "0",
                    "user.max_user_namespaces": "0",
                },
            ),
            "sysctl",
            "kernel.unprivileged_userns_clone, user.max_user_namespaces",
            "sysctl -w kernel.unprivileged_userns_clone=1 "
            "user.max_user_namespaces=15000",
            "landlock",
            id="both-settings",
        ),
        pytest.param(
            replace(FINE, sysctls=APPARMOR),
            "apparmor",
            "Ubuntu 23.10",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
            "landlock",
            id="ubuntu",
        ),
        pytest.param(
            DOCKER,
            "seccomp",
            "this docker container's seccomp profile blocks user namespaces",
            "docker run --security-opt seccomp=unconfined "
            "--security-opt systempaths=unconfined ...",
            "landlock",
            id="docker",
        ),
        pytest.param(
            replace(DOCKER, apparmor="docker-default"),
            "apparmor",
            "docker-default",
            "--security-opt apparmor=unconfined",
            "landlock",
            id="docker-on-ubuntu",
        ),
        pytest.param(
            replace(DOCKER, container="podman", seccomp=0),
            "proc_masked",
            "/proc/bus, /proc/sys, /proc/keys",
            "podman run --security-opt unmask=ALL ...",
            "no_proc",
            id="podman",
        ),
        pytest.param(
            replace(DOCKER, container="kubernetes"),
            "seccomp",
            "this kubernetes container",
            "procMount: Unmasked",
            "landlock",
            id="kubernetes",
        ),
        pytest.param(
            replace(FINE, seccomp=2),
            "seccomp",
            "a seccomp filter that we inherit",
            "RestrictNamespaces=",
            "landlock",
            id="systemd",
        ),
        pytest.param(
            replace(DOCKER, seccomp=0),
            "proc_masked",
            "parts of /proc are masked",
            "docker run --security-opt systempaths=unconfined ...",
            "no_proc",
            id="masked-proc",
        ),
        pytest.param(
            replace(FINE, proc_options=frozenset({"rw", "hidepid=invisible"})),
            "proc_hidden",
            "hides other users' processes (hidepid=invisible)",
            "mount -o remount,hidepid=0 /proc",
            "no_proc",
            id="hidepid",
        ),
        pytest.param(
            replace(FINE, proc_options=frozenset({"rw", "subset=pid"})),
            "proc_hidden",
            "subset=pid",
            "mount -t proc proc /proc",
            "landlock",
            id="subset",
        ),
        pytest.param(
            replace(FINE, root=True),
            "root_in_container",
            "root without CAP_SYS_ADMIN",
            "ordinary user",
            None,
            id="root-in-a-container",
        ),
        pytest.param(
            replace(FINE, root=True, capabilities=1 << 21, release=(5, 10)),
            "id_maps",
            "id-mapped mounts need Linux 5.12, this is 5.10",
            "ordinary user",
            None,
            id="no-id-maps",
        ),
        pytest.param(
            replace(FINE, root=True, capabilities=1 << 21, user_ids=1),
            "user_ids",
            "no user id besides root's",
            "outside of it",
            None,
            id="one-user",
        ),
    ],
)
def test_each_cause_is_recognised(facts, cause, says, fix, leaves):
    found = {each.cause: each for each in recognise(facts)}
    assert says in found[cause].message
    assert fix in found[cause].fix
    assert found[cause].leaves == leaves


@pytest.mark.parametrize(
    "facts",
    [
        FINE,
        replace(FINE, root=True, capabilities=1 << 21),
        replace(FINE, version=WSL2),
        replace(FINE, container="docker"),
        replace(FINE, sysctls={"user.max_user_namespaces": "15000"}),
        replace(FINE, proc_options=frozenset({"rw", "nosuid", "hidepid=0"})),
    ],
)
def test_nothing_is_recognised_where_all_is_well(facts):
    assert recognise(facts) == []


@pytest.mark.parametrize(
    ("complaint", "facts", "cause"),
    [
        (BWRAP_BLOCKED, DOCKER, "seccomp"),
        (BWRAP_BLOCKED, replace(FINE, sysctls=APPARMOR), "apparmor"),
        (BWRAP_BLOCKED, replace(FINE, user_namespaces=False), "user_namespaces"),
        (BWRAP_NO_PROC, replace(DOCKER, seccomp=0), "proc_masked"),
        (BWRAP_UID_MAP, replace(FINE, sysctls=APPARMOR), "apparmor"),
        (
            "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
            replace(FINE, sysctls=APPARMOR),
            "apparmor",
        ),
        (
            "bwrap: cannot open /proc/sys/user/max_user_namespaces: Read-only",
            replace(DOCKER, seccomp=0),
            "proc_masked",
        ),
        (
            "isobox-launch: id-map descriptor 7: Function not implemented",
            replace(FINE, root=True, capabilities=1 << 21, release=(5, 4)),
            "id_maps",
        ),
    ],
)
def test_a_complaint_is_explained_by_its_cause(complaint, facts, cause):
    finding = next(each for each in recognise(facts) if each.cause == cause)
    error = binary.diagnosis(complaint, facts)
    assert error.message.startswith(f"{finding.message}: ")
    assert error.fix == finding.fix
    assert error.message.endswith(f"\n  fix: {finding.fix}") or error.fix is None
    if finding.leaves:
        assert f'min_isolation="{finding.leaves}"' in error.message


def test_a_complaint_without_a_known_cause_is_passed_on():
    error = binary.diagnosis(BWRAP_BLOCKED, FINE)
    assert BWRAP_BLOCKED in error.message
    assert error.fix is None


@pytest.mark.parametrize(
    ("version", "root", "lacks"),
    [
        (0, True, "not there"),
        (2, True, "truncated"),
        (3, True, ""),
        (5, False, "signals"),
        (6, False, ""),
    ],
)
def test_what_landlock_lacks_alone(version, root, lacks):
    found = machine.landlock_lacks(version, root=root)
    assert lacks in found
    assert bool(found) == bool(lacks)


def test_without_landlock_nothing_is_left():
    found = recognise(replace(DOCKER, landlock=0))
    assert next(each for each in found if each.cause == "seccomp").leaves is None


MOUNTS = """\
22 27 0:21 / /proc rw,nosuid shared:5 - proc proc rw,hidepid=invisible
40 22 0:30 / /proc/sys/fs/binfmt_misc rw,relatime - autofs systemd-1 rw
44 22 0:40 /sys /proc/sys ro,nosuid - proc proc rw
49 22 0:41 /null /proc/keys rw,nosuid - tmpfs tmpfs rw,size=65536k
50 27 0:41 / /procession rw - tmpfs tmpfs rw
"""


def test_masks_and_options_are_read_from_mountinfo():
    masks, options = machine.proc_mounts(MOUNTS)
    assert masks == ("/proc/sys", "/proc/keys")
    assert options == {"rw", "nosuid", "hidepid=invisible"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("6.18.44-fc", (6, 18)), ("5.4.0-generic", (5, 4)), ("unknown", (0, 0))],
)
def test_a_release_is_two_numbers(text, wanted):
    assert machine.release(text) == wanted


def test_this_machine_is_read():
    found = machine.facts()
    assert found.root == (os.geteuid() == 0)
    assert found.release > (3, 0)
    assert found.user_ids > 0
    assert found.openat2


def fake_bwrap(path, features, *, mode=0o755):
    path.write_text(f"#!/bin/sh\necho '{' '.join(features)} '\n")
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("features", "mode", "says", "fix"),
    [
        (binary._FEATURES[1:], 0o755, "it lacks --bind-fd", "apt-get install"),
        (binary._FEATURES, 0o4755, "set-uid bit", "chmod u-s"),
    ],
)
def test_a_bwrap_that_will_not_do(tmp_path, monkeypatch, features, mode, says, fix):
    path = fake_bwrap(tmp_path / "bwrap", features, mode=mode)
    monkeypatch.setattr(binary, "_candidates", lambda: [path])
    with pytest.raises(BackendUnavailableError, match=says) as caught:
        binary.find()
    assert fix in caught.value.fix


def test_the_first_bwrap_that_will_do_is_taken(tmp_path, monkeypatch):
    old = fake_bwrap(tmp_path / "old", [])
    good = fake_bwrap(tmp_path / "good", binary._FEATURES)
    monkeypatch.setattr(binary, "_candidates", lambda: [old, good])
    assert binary.find() == good


def test_no_bwrap(monkeypatch):
    monkeypatch.setattr(binary, "_candidates", list)
    with pytest.raises(BackendUnavailableError, match="not installed") as caught:
        binary.find()
    assert "apt-get install bubblewrap" in caught.value.fix
