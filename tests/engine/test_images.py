"""Images made on a real engine."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys

import pytest
from tests.engines import BUSYBOX_IMAGE, PYTHON_IMAGE

from isobox import images
from isobox._images import making
from isobox.errors import (
    BackendUnavailableError,
    CommandFailedError,
    ConflictError,
    InvalidArgumentError,
    PathMissingError,
    TimedOutError,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def _engine(docker_host, busybox_image):
    pass


def spec(text, directory="."):
    return images.parse(text.encode(), directory=str(directory))


def run(engine, image, *command):
    options = ("run", "--rm", "--network", "none", image.name)
    return engine.call(*options, *command).stdout


def config(engine, image):
    return json.loads(engine.call("image", "inspect", image.name).stdout)[0]["Config"]


SMALL = f"""
name = "small"
base = "{BUSYBOX_IMAGE}"
user = "1000:1000"
env = {{ GREETING = 'it''s "$HOME" \\ ', OTHER = "two\\nlines" }}
files = [
  {{ to = "/opt/new/place/tool", content = "#!/bin/sh\\necho ran", mode = "0755" }},
  {{ to = "/bin/more-of-it", from = "data/it" }},
]
""".replace("it''s", "its")


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "it").write_bytes(b"of the host\0")
    return tmp_path


async def test_files_variables_and_user_are_in_it(engine, directory):
    image = await images.build(spec(SMALL, directory))
    assert image.made
    assert run(engine, image, "/opt/new/place/tool") == "ran\n"
    assert run(engine, image, "cat", "/bin/more-of-it") == "of the host\0"
    assert run(engine, image, "id", "-u") == "1000\n"
    variables = run(engine, image, "env")
    assert 'GREETING=its "$HOME" \\ \n' in variables
    assert "OTHER=two\nlines\n" in variables
    shown = run(engine, image, "stat", "-c", "%u %a", "/opt/new", "/opt/new/place/tool")
    assert shown == "0 755\n0 755\n"


async def test_nothing_is_made_twice(engine, directory):
    first = await images.build(spec(SMALL, directory))
    again = await images.build(spec(SMALL, directory))
    assert (again.name, again.made) == (first.name, False)
    (directory / "data" / "it").write_bytes(b"something else")
    other = await images.build(spec(SMALL, directory))
    assert other.made
    assert other.name != first.name
    assert engine.containers() == []


async def test_the_entry_point_of_the_base_is_not_kept(engine):
    engine.call(
        *("import", "--change", 'ENTRYPOINT ["/bin/false"]', "--change", "USER 7"),
        *("--change", "ENV KEPT=1", "-", "hostile-base"),
        check=False,
    )
    made = engine.call("create", BUSYBOX_IMAGE, "/bin/true").stdout.strip()
    engine.call(
        *("commit", "--change", 'ENTRYPOINT ["/bin/false"]', "--change", "USER 7"),
        *("--change", "ENV KEPT=1", made, "hostile-base"),
    )
    engine.call("rm", made)
    image = await images.build(spec('name = "x"\nbase = "hostile-base"'))
    assert run(engine, image, "id", "-u") == "7\n"
    assert not config(engine, image)["Entrypoint"]
    assert "KEPT=1" in config(engine, image)["Env"]


async def test_scratch_is_empty(engine):
    text = 'name = "s"\nbase = "scratch"\nfiles = [{ to = "/a/b", content = "c" }]'
    image = await images.build(spec(text))
    made = engine.call("create", image.name, "/none").stdout.strip()
    listing = subprocess.run(
        ["docker", "--host", engine.url, "export", made],
        capture_output=True,
        check=True,
    )
    names = subprocess.run(
        ["tar", "-tf", "-"], input=listing.stdout, capture_output=True, check=True
    ).stdout.decode()
    engine.call("rm", made)
    assert "a/b" in names
    assert "bin/" not in names


async def test_a_base_that_the_engine_lacks_is_not_fetched():
    with pytest.raises(InvalidArgumentError, match="docker pull not/there"):
        await images.build(spec('name = "x"\nbase = "not/there"'))


async def test_packages_without_a_network_fail_with_what_was_said(engine, python_image):
    text = f'name="p"\nbase="{PYTHON_IMAGE}"\nmanager="apt"\npackages=["hello"]'
    with pytest.raises(CommandFailedError, match="hello") as caught:
        await images.build(spec(text))
    assert caught.value.result.exit_code != 0
    assert engine.containers() == []


async def test_packages_that_take_too_long_leave_nothing(engine, python_image):
    text = f'name="p"\nbase="{PYTHON_IMAGE}"\nmanager="apt"\npackages=["hello"]'
    with pytest.raises(TimedOutError):
        await images.build(spec(text), timeout=0.01)
    assert engine.containers() == []


async def test_packages_are_installed_where_a_network_is_asked_for(
    engine, python_image
):
    text = (
        f'name="p"\nbase="{PYTHON_IMAGE}"\nmanager="apt"\n'
        'packages=["hello"]\nnetwork="host"\npython=true'
    )
    image = await images.build(spec(text))
    assert run(engine, image, "hello") == "Hello, world!\n"


@pytest.fixture
def root(tmp_path):
    """A root file system with what must not get into an image as it is."""
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "etc").mkdir()
    (root / "etc" / "secret").symlink_to(tmp_path / "outside")
    (tmp_path / "outside").write_text("of the host")
    (root / "etc" / "first").write_text("once")
    os.link(root / "etc" / "first", root / "etc" / "second")
    (root / "bin" / "su").write_text("set-id")
    (root / "bin" / "su").chmod(0o4755)
    os.chown(root / "etc" / "first", 1234, 70000)
    os.setxattr(root / "bin", "user.left", b"behind")
    os.mknod(root / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(root / "socket"))
    (root / os.fsdecode(b"not-\xff-utf8")).write_text("")
    (root / ("long-" * 40)).write_text("")
    return root


async def test_a_directory_becomes_an_image(engine, root, tmp_path, busybox_tree):
    subprocess.run(
        ["cp", "-a", f"{busybox_tree}/bin/busybox", root / "bin"], check=True
    )
    image = await images.from_rootfs(root, "mine")
    assert (image.made, image.skipped) == (True, 3)
    box = "/bin/busybox"
    about = ("stat", "-c", "%u %g %a %h %F")
    assert run(engine, image, box, *about, "/etc/second") == (
        "1234 70000 644 2 regular file\n"
    )
    assert run(engine, image, box, *about, "/bin/su") == "0 0 755 1 regular file\n"
    where = run(engine, image, box, "readlink", "/etc/secret")
    assert where == f"{tmp_path}/outside\n"
    found = run(engine, image, box, "find", "/", "-xdev", "-type", "f")
    assert "of the host" not in found
    assert "long-long-" in found
    again = await images.from_rootfs(root, "mine")
    assert (again.name, again.made) == (image.name, False)


async def test_set_id_bits_are_kept_where_they_are_asked_for(
    engine, root, busybox_tree
):
    subprocess.run(
        ["cp", "-a", f"{busybox_tree}/bin/busybox", root / "bin"], check=True
    )
    image = await images.from_rootfs(root, "mine", set_id=True)
    shown = run(engine, image, "/bin/busybox", "stat", "-c", "%a", "/bin/su")
    assert shown == "4755\n"


async def test_a_rootfs_of_a_description_is_one(engine, tmp_path, busybox_tree):
    subprocess.run(["cp", "-a", busybox_tree, tmp_path / "tree"], check=True)
    before = everything(engine)
    text = 'name = "r"\nrootfs = "tree"\nuser = "5:6"'
    image = await images.build(spec(text, tmp_path))
    assert run(engine, image, "id", "-g") == "6\n"
    await images.remove(image.name)
    assert everything(engine) == before


async def test_they_are_listed_and_removed(engine, directory):
    image = await images.build(spec(SMALL, directory))
    assert image.name in [each.name for each in await images.images()]
    await images.remove(image.name)
    assert image.name not in [each.name for each in await images.images()]
    with pytest.raises(PathMissingError):
        await images.remove(image.name)


async def test_another_image_is_not_removed(engine):
    for name in (BUSYBOX_IMAGE, f"isobox/{BUSYBOX_IMAGE}", "isobox/../x", ""):
        with pytest.raises(InvalidArgumentError, match="no image of isobox's"):
            await images.remove(name)
    assert engine.call("image", "inspect", BUSYBOX_IMAGE, check=False).returncode == 0


async def test_one_that_is_used_is_not_removed(engine, directory):
    image = await images.build(spec(SMALL, directory))
    made = engine.call(
        "run", "--detach", "--network", "none", image.name, "sleep", "60"
    ).stdout.strip()
    try:
        with pytest.raises(ConflictError, match="in use"):
            await images.remove(image.name)
    finally:
        engine.call("rm", "--force", made)


def everything(engine):
    return set(engine.call("images", "--all", "--quiet", "--no-trunc").stdout.split())


async def test_what_the_engine_refuses_leaves_nothing(engine, tmp_path, monkeypatch):
    (tmp_path / "tree").mkdir()
    before = everything(engine)
    monkeypatch.setattr(making, "_NEEDED", ("NO_SUCH_CAPABILITY",))
    with pytest.raises(BackendUnavailableError, match="refused"):
        await images.build(spec('name="r"\nrootfs="tree"', tmp_path))
    assert everything(engine) == before
    assert engine.containers() == []


MAIN = "from isobox.cli import main; main()"


def isobox(*arguments):
    return subprocess.run(
        [sys.executable, "-c", MAIN, "image", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_line_does_it_all(directory):
    (directory / "image.toml").write_text(SMALL)
    made = isobox("build", str(directory / "image.toml"))
    assert made.stderr == ""
    name = made.stdout.strip()
    assert json.loads(
        isobox("build", "--json", str(directory / "image.toml")).stdout
    ) == {
        "name": name,
        "size": pytest.approx(2e6, rel=0.5),
        "made": False,
        "skipped": 0,
    }
    assert name in isobox("ls").stdout.splitlines()
    assert isobox("rm", name).returncode == 0
    refused = isobox("rm", name)
    assert refused.returncode == 125
    assert f"there is no image {name}" in refused.stderr
