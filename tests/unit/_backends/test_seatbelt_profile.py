"""The profile that macOS is given: read by a parser, asked by an evaluator."""

from __future__ import annotations

import itertools
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit._backends.seatbelt_language import Policy, Request, Symbol, parse

from isobox._backends.seatbelt import sbpl
from isobox._backends.seatbelt.profile import PACKAGES, SYSTEM, Grants, profile
from isobox._core.protected import ANYWHERE, IN_ROOT, SKIPPED
from isobox.errors import InvalidArgumentError

ROOT = "/Users/ada/.claude/work (1)/project"
PRIVATE = "/private/var/folders/x/T/isobox-1"
TMP, HOME, GUEST = f"{PRIVATE}/tmp", f"{PRIVATE}/home", f"{PRIVATE}/guest.pyc"
PREFIX = "/Users/ada/.local/share/uv/python/cpython-3.12"
GRANTS = Grants(
    root=ROOT,
    scratch=(TMP, HOME),
    readable=(PREFIX, "/Users/ada/data", f"{ROOT}/vendored"),
    files=(GUEST, "/Users/ada/notes.txt"),
    held=(f"{ROOT}/.git", f"{ROOT}/vendor/sub/.git", f"{ROOT}/real-git"),
)
READ, RUN = "file-read-data", "process-exec"
WRITE, MAKE, REMOVE = "file-write-data", "file-write-create", "file-write-unlink"
STAT = "file-read-metadata"


@pytest.fixture(scope="module")
def policy():
    return Policy(profile(GRANTS))


ALLOWED = [
    # Reading and running the system's programs.
    (READ, "/usr/bin/git"),
    (RUN, "/usr/bin/git"),
    (RUN, "/bin/bash"),
    (RUN, "/opt/homebrew/bin/node"),
    (RUN, "/opt/homebrew/Cellar/node/22/bin/node"),
    (RUN, "/Library/Developer/CommandLineTools/usr/bin/clang"),
    (RUN, "/Applications/Xcode.app/Contents/Developer/usr/bin/git"),
    (RUN, f"{PREFIX}/bin/python3.12"),
    (READ, f"{PREFIX}/lib/python3.12/os.py"),
    ("file-map-executable", "/usr/lib/libSystem.B.dylib"),
    ("file-map-executable", "/System/Cryptexes/OS/dyld_shared_cache_arm64e"),
    ("file-map-executable", f"{ROOT}/.venv/lib/python3.12/site-packages/x.so"),
    (READ, "/"),
    (READ, "/private/etc/passwd"),
    (READ, "/private/var/select/sh"),
    (READ, "/private/var/db/timezone/icutz/x.dat"),
    # Mounts and the guest.
    (READ, "/Users/ada/data/a/b"),
    (READ, "/Users/ada/notes.txt"),
    (READ, GUEST),
    # What is above can be looked up, no more.
    (STAT, "/Users"),
    (STAT, "/Users/ada"),
    ("file-test-existence", "/Users/ada/.claude"),
    (STAT, "/tmp"),
    (STAT, "/private/var/folders/x"),
    # The workspace, and its private places.
    (READ, ROOT),
    (READ, f"{ROOT}/src/a.py"),
    (READ, f"{ROOT}/.git/config"),
    (RUN, f"{ROOT}/build/a.out"),
    (WRITE, f"{ROOT}/src/a.py"),
    (MAKE, f"{ROOT}/new"),
    (MAKE, f"{ROOT}/a/b/c"),
    (REMOVE, f"{ROOT}/src/a.py"),
    (REMOVE, f"{ROOT}/src"),
    ("file-write-mode", f"{ROOT}/run.sh"),
    ("file-write-xattr", f"{ROOT}/a"),
    (MAKE, f"{ROOT}/.gitignore"),
    (MAKE, f"{ROOT}/.github-notes"),
    (MAKE, f"{ROOT}/git"),
    (MAKE, f"{ROOT}/src/.bashrc"),
    (MAKE, f"{ROOT}/node_modules/x/.idea/a.xml"),
    (MAKE, f"{ROOT}/sub/node_modules/x/.git/config"),
    (MAKE, f"{ROOT}/größe.txt"),
    (MAKE, f"{TMP}/a"),
    (MAKE, f"{TMP}/repository/.git/config"),
    (MAKE, f"{HOME}/.bashrc"),
    (REMOVE, f"{TMP}/a"),
    # Devices and terminals made in here.
    (READ, "/dev/urandom"),
    (WRITE, "/dev/null"),
    ("file-ioctl", "/dev/null"),
    (WRITE, "/dev/fd/1"),
    ("pseudo-tty", ""),
    ("file-ioctl", "/dev/ptmx"),
    # The machine.
    ("process-fork", ""),
    ("dynamic-code-generation", ""),
    # The guest finds what to kill by it; what they are stays hidden.
    ("process-info-listpids", ""),
    ("sysctl-read", "hw.ncpu"),
    ("sysctl-read", "hw.optional.arm.FEAT_AES"),
    ("sysctl-read", "kern.osrelease"),
    ("mach-lookup", "com.apple.system.opendirectoryd.libinfo"),
    ("mach-lookup", "com.apple.logd"),
    ("ipc-posix-sem", "/mp-abcd"),
    ("ipc-posix-shm-write-create", "/psm_1234"),
    ("ipc-posix-shm-read-data", "apple.shm.notification_center"),
    ("system-socket", "AF_UNIX"),
]

DENIED = [
    # The rest of the host.
    (READ, "/Users/ada/.ssh/id_ed25519"),
    (STAT, "/Users/ada/.ssh"),
    (READ, "/Users/ada"),
    (READ, "/Users"),
    (READ, "/Users/ada/.claude/settings.json"),
    (READ, f"{ROOT}-evil/a"),
    (WRITE, f"{ROOT}-evil/a"),
    (READ, "/Users/ada/Library/Keychains/login.keychain-db"),
    (READ, "/Library/Keychains/System.keychain"),
    (READ, "/private/etc/sudoers"),
    (READ, "/private/etc/ssh/ssh_host_rsa_key"),
    (READ, "/private/tmp/x"),
    (READ, "/private/var/db/sudo"),
    (READ, "/opt/homebrew/etc/secret.conf"),
    (READ, "/opt/homebrew/var/postgres/PG_VERSION"),
    (READ, "/Applications/Mail.app/Contents/Info.plist"),
    (RUN, "/Users/ada/bin/tool"),
    (RUN, "/Users/ada/notes.txt"),
    (RUN, "/Applications/Safari.app/Contents/MacOS/Safari"),
    (READ, "/Volumes/Backup/x"),
    (READ, f"{PRIVATE}/other"),
    (READ, "/private/var/folders/x/T/isobox-2/tmp/a"),
    (READ, "/Users/ada/notes.txt/x"),
    # Writing outside the workspace.
    (WRITE, "/usr/bin/git"),
    (MAKE, "/usr/local/bin/git"),
    (MAKE, "/opt/homebrew/bin/git"),
    (MAKE, "/Users/ada/x"),
    (WRITE, "/Users/ada/data/a"),
    (WRITE, "/Users/ada/notes.txt"),
    (WRITE, GUEST),
    (REMOVE, GUEST),
    (MAKE, f"{PRIVATE}/x"),
    (WRITE, f"{PREFIX}/lib/python3.12/os.py"),
    (WRITE, f"{ROOT}/vendored/a"),
    (REMOVE, f"{ROOT}/vendored"),
    (MAKE, "/private/tmp/x"),
    (WRITE, "/dev/disk0"),
    (READ, "/dev/disk0"),
    (WRITE, "/dev/random-other"),
    # Protected names, there or not.
    (WRITE, f"{ROOT}/.git/config"),
    (MAKE, f"{ROOT}/.git/hooks/pre-commit"),
    (REMOVE, f"{ROOT}/.git"),
    (MAKE, f"{ROOT}/.git"),
    (MAKE, f"{ROOT}/.GIT"),
    (MAKE, f"{ROOT}/.Git/hooks/pre-commit"),
    (MAKE, f"{ROOT}/.claude/settings.json"),
    (MAKE, f"{ROOT}/.mcp.json"),
    (MAKE, f"{ROOT}/.vscode/tasks.json"),
    (MAKE, f"{ROOT}/.v\u017fcode"),
    (MAKE, f"{ROOT}/.github/workflows/x.yml"),
    (MAKE, f"{ROOT}/Jenkinsfile"),
    (MAKE, f"{ROOT}/JENKINSFILE"),
    (MAKE, f"{ROOT}/.bashrc"),
    (MAKE, f"{ROOT}/sub/.git/hooks/pre-commit"),
    (MAKE, f"{ROOT}/a/b/c/.cursor/rules"),
    (MAKE, f"{ROOT}/.git/node_modules/hook"),
    (MAKE, f"{ROOT}/sub/.git/venv/hook"),
    ("file-write-mode", f"{ROOT}/.git/hooks/pre-commit"),
    ("file-write-xattr", f"{ROOT}/.vscode"),
    # Whatever is above them, and where a link of that name leads.
    (REMOVE, ROOT),
    (REMOVE, "/Users/ada/.claude"),
    (REMOVE, f"{ROOT}/vendor"),
    (REMOVE, f"{ROOT}/vendor/sub"),
    (REMOVE, TMP),
    (REMOVE, PRIVATE),
    (WRITE, f"{ROOT}/real-git/config"),
    (REMOVE, f"{ROOT}/real-git"),
    # Links and set-id bits, in the workspace too.
    ("file-link", f"{ROOT}/src/a.py"),
    ("file-link", "/Users/ada/data/a"),
    ("file-write-setugid", f"{ROOT}/a"),
    ("file-write-setugid", f"{TMP}/a"),
    # The network.
    ("network-outbound", "*:443"),
    ("network-outbound", "localhost:8080"),
    ("network-bind", "localhost:8080"),
    ("network-inbound", "localhost:8080"),
    ("network-outbound", "/private/var/run/mDNSResponder"),
    ("network-outbound", f"{ROOT}/socket"),
    ("network-bind", f"{TMP}/socket"),
    ("system-socket", "AF_SYSTEM"),
    # Services that start programs or hand out what is the user's.
    ("mach-lookup", "com.apple.coreservices.launchservicesd"),
    ("mach-lookup", "com.apple.SecurityServer"),
    ("mach-lookup", "com.apple.securityd.xpc"),
    ("mach-lookup", "com.apple.pasteboard.1"),
    ("mach-lookup", "com.apple.cfprefsd.agent"),
    ("mach-lookup", "com.apple.tccd"),
    ("mach-lookup", "com.apple.FSEvents"),
    ("mach-lookup", "com.apple.logd.admin"),
    ("mach-register", "com.apple.x"),
    ("appleevent-send", ""),
    ("lsopen", ""),
    ("job-creation", ""),
    ("iokit-open", "AppleHIDUserClient"),
    ("user-preference-read", "com.apple.dock"),
    # The kernel and other processes.
    ("sysctl-read", "kern.procargs2"),
    ("sysctl-read", "kern.proc.all"),
    ("sysctl-read", "kern.bootargs"),
    ("sysctl-read", "net.routetable"),
    ("sysctl-write", "kern.hostname"),
    ("mach-priv-task-port", ""),
    ("ipc-posix-sem", "/postgres"),
    ("ipc-posix-shm-read-data", "/other"),
    ("file-mknod", f"{ROOT}/disk"),
    ("file-mount", f"{ROOT}/m"),
    ("file-chroot", ROOT),
    ("nvram-set", ""),
    # Terminals of the user's.
    (READ, "/dev/ttys001"),
    (WRITE, "/dev/ttys001"),
    ("file-ioctl", "/dev/ttys001"),
]


def test_the_table_is_long():
    assert len({*ALLOWED, *DENIED}) == len(ALLOWED) + len(DENIED) >= 60


@pytest.mark.parametrize(("operation", "subject"), ALLOWED)
def test_allowed(policy, operation, subject):
    assert policy.allows(Request(operation, subject))


@pytest.mark.parametrize(("operation", "subject"), DENIED)
def test_denied(policy, operation, subject):
    assert not policy.allows(Request(operation, subject))


@pytest.mark.parametrize("operation", [READ, WRITE, "file-ioctl"])
def test_a_terminal_made_in_here_is_open_to_it(policy, operation):
    ours = frozenset(["com.apple.sandbox.pty"])
    assert policy.allows(Request(operation, "/dev/ttys001", extensions=ours))
    assert not policy.allows(Request(operation, "/dev/disk1", extensions=ours))


@pytest.mark.parametrize("operation", ["signal", "process-info-pidinfo"])
def test_only_processes_of_the_same_sandbox_are_reached(policy, operation):
    assert policy.allows(Request(operation, target="same-sandbox"))
    assert not policy.allows(Request(operation, target="others"))


# -- protected names --------------------------------------------------------------


def writes(path: str, **options: Any) -> bool:
    policy = Policy(profile(Grants(root=ROOT, scratch=(TMP,), **options)))
    return policy.allows(Request(MAKE, f"{ROOT}/{path}"))


@pytest.mark.parametrize("name", sorted(IN_ROOT))
def test_every_name_is_held_in_the_root_in_either_case(name, policy):
    for spelled in (name, name.upper(), name.lower(), name.swapcase()):
        for path in (spelled, f"{spelled}/x"):
            assert not policy.allows(Request(MAKE, f"{ROOT}/{path}"))


@pytest.mark.parametrize("name", sorted(ANYWHERE))
def test_names_of_every_directory_are_held_at_any_depth(name, policy):
    for path in (f"a/{name}", f"a/b/{name.upper()}/c"):
        assert not policy.allows(Request(MAKE, f"{ROOT}/{path}"))


@pytest.mark.parametrize("name", sorted(ANYWHERE))
def test_a_name_that_the_disk_takes_for_another_is_held(name, policy):
    lookalikes = {"k": "\u212a", "s": "\u017f", "fi": "\ufb01", "st": "\ufb06"}
    for plain, other in lookalikes.items():
        if plain in name:
            path = f"{ROOT}/{name.replace(plain, other, 1)}"
            assert not policy.allows(Request(MAKE, path))


def test_names_are_plain():
    used = set(itertools.chain.from_iterable(IN_ROOT | SKIPPED))
    assert used <= set(string.ascii_letters + string.digits + ".-_")


def test_unprotected_names_can_be_written_and_the_others_not():
    options = {"unprotected": frozenset([".git"])}
    assert writes(".git/config", **options)
    assert writes("sub/.git/config", **options)
    assert not writes(".vscode/tasks.json", **options)
    assert not writes(".gitmodules", **options)


def test_without_protection_every_name_can_be_written():
    assert writes(".git/config", protect=False)
    assert writes(".bashrc", protect=False)


def test_all_names_unprotected_is_a_profile_too():
    assert writes(".git/config", unprotected=IN_ROOT)
    assert writes("sub/.git/config", unprotected=IN_ROOT)


def test_no_rule_against_writing_can_be_left_out():
    lines = profile(GRANTS).split("\n(")
    against = [line for line in lines if line.startswith("deny file-write")]
    assert len(against) == 4
    for line in against:
        weaker = Policy("\n(".join(each for each in lines if each is not line))
        assert any(weaker.allows(Request(*each)) for each in DENIED), line


# -- quoting ------------------------------------------------------------------------

HOSTILE = [
    'a") (allow default) ("',
    "a\\",
    'a\\" b',
    'a\\\\" b',
    "a\nb",
    "a\n(allow default)",
    "a\t\rb",
    "a)b(c",
    "a;b",
    "a'b`c,d",
    '#"x"',
    "a*b?[c]{d}",
    "^a$|.*",
    "a b",
    "größe",
    "目录",
    "\u202etxt",
    "$HOME `id`",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_path_stays_one_string_whatever_it_holds(name):
    root, mount, held = f"/Users/ada/{name}", f"/data/{name}", f"/Users/ada/{name}/x"
    text = profile(Grants(root=root, scratch=(TMP,), readable=(mount,), held=(held,)))
    harmless = Grants(
        root="/Users/ada/r", scratch=(TMP,), readable=("/data/m",), held=("/Users/h",)
    )
    assert shape(parse(text)) == shape(parse(profile(harmless)))
    policy = Policy(text)
    assert policy.allows(Request(WRITE, f"{root}/a"))
    assert not policy.allows(Request(WRITE, f"{root}/.git/config"))
    assert not policy.allows(Request(WRITE, f"{held}/a"))
    assert not policy.allows(Request(WRITE, "/Users/ada/other"))
    assert policy.allows(Request(READ, f"{mount}/a"))


def shape(forms: list[Any]) -> list[Any]:
    """What a profile says, without the texts that its filters compare."""
    return [_kinds(form) for form in forms]


def _kinds(form: list[Any]) -> tuple[list[Symbol], list[str]]:
    words = [part for part in form if isinstance(part, Symbol)]
    inner = {str(_kinds(part)) for part in form if isinstance(part, list)}
    return words, sorted(inner)


@settings(database=None)
@given(
    st.text(
        st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('\n\t\r"\\()')
    )
)
def test_a_quoted_text_reads_as_itself(text):
    assert parse(f"(a {sbpl.string(text)} b)") == [["a", text, "b"]]


@pytest.mark.parametrize("text", ["a\0b", "a\x1bb", "a\x7fb", "a\x0bb", "\udcff"])
def test_what_cannot_be_written_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="cannot name"):
        sbpl.string(text)
    with pytest.raises(InvalidArgumentError, match="cannot name"):
        profile(Grants(root=f"/Users/{text}"))


def test_a_rule_without_filters_left_is_no_rule():
    assert sbpl.allow("file-write*", []) == ""
    assert sbpl.deny("network*") == "(deny network*)\n"


# -- what is refused ------------------------------------------------------------------


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/a//b", "/a/", "/a/."])
def test_a_path_that_is_not_normal_is_refused(path):
    with pytest.raises(InvalidArgumentError, match="not absolute, or not normal"):
        profile(Grants(root="/Users/ada/p", readable=(path,)))


@pytest.mark.parametrize(
    "root",
    [
        *("/", "/usr", "/usr/local", "/opt", "/System", "/Library", "/private", "/dev"),
        *(*SYSTEM, *PACKAGES),
    ],
)
def test_a_workspace_over_the_system_is_refused(root):
    with pytest.raises(InvalidArgumentError, match="overlaps"):
        profile(Grants(root=root))


def test_a_workspace_over_its_own_private_places_is_refused():
    with pytest.raises(InvalidArgumentError, match="overlaps"):
        profile(Grants(root="/private/var/folders", scratch=(TMP,)))


def test_the_same_grants_are_the_same_profile():
    assert profile(GRANTS) == profile(GRANTS)
