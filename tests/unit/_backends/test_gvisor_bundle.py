"""What runsc is given: nothing of it is written or read through a link."""

from __future__ import annotations

import json
import os

import pytest

from isobox._backends.gvisor import bounds, bundle
from isobox.abc import Limits
from isobox.errors import InvalidArgumentError


@pytest.fixture
def tree(tmp_path):
    made = bundle.Tree(bundle.made(str(tmp_path / "root")), "/stage")
    yield made
    for fd in made.descriptors:
        os.close(fd)


def test_a_file_takes_the_place_of_a_link(tree, tmp_path):
    target = tmp_path / "target"
    target.write_text("kept")
    tree.link("/etc/hosts", str(target))
    tree.file("/etc/hosts", b"made")
    assert target.read_text() == "kept"
    assert not os.path.islink(f"{tree.path}/etc/hosts")


@pytest.mark.parametrize("place", ["/var/lib", "/var"])
def test_nothing_is_made_below_a_link(tree, tmp_path, place):
    tree.link("/var", str(tmp_path))
    with pytest.raises(InvalidArgumentError, match="reached by the link '/var'"):
        tree.directory(place)
    assert os.listdir(tmp_path) == ["root"]


def test_a_private_place_is_of_a_size_and_of_so_many_files(tree):
    tree.scratch("/tmp", 8 << 20, "1777")
    assert {"size=8388608", "nr_inodes=2048"} <= set(tree.mounts[0]["options"])
    tree.scratch("/home", 1 << 20, "0700")
    assert "nr_inodes=1024" in tree.mounts[1]["options"]


def test_everybody_may_read_it_whatever_the_umask(tree):
    before = os.umask(0o077)
    try:
        tree.file("/etc/deep/file", b"text")
    finally:
        os.umask(before)
    assert os.stat(f"{tree.path}/etc/deep").st_mode & 0o777 == 0o755
    assert os.stat(f"{tree.path}/etc/deep/file").st_mode & 0o777 == 0o644


def test_a_root_directory_is_one_of_a_system(tree, tmp_path):
    with pytest.raises(InvalidArgumentError, match="debootstrap"):
        bundle.programs(tree, str(tmp_path))


def test_a_root_directory_without_secrets_and_others_places(tree, tmp_path):
    root = tmp_path / "system"
    for name in ("usr/bin", "etc/ssl", "home/user", "opt", "run", "var/lib"):
        (root / name).mkdir(parents=True)
    (root / "etc/shadow").write_text("secret")
    (root / "etc/shadow").chmod(0o600)
    (root / "etc/issue").write_text("text")
    (root / "lib").symlink_to("usr/lib")
    bundle.programs(tree, str(root))
    assert sorted(tree.steady) == ["/etc/ssl", "/lib", "/opt", "/usr", "/var/lib"]
    assert sorted(os.listdir(f"{tree.path}/etc")) == ["issue", "ssl"]
    assert tree.links == {"/lib"}


def test_the_description_gives_no_more_than_is_needed(tree, tmp_path):
    bundle.programs(tree, None)
    bundle.places(tree, 1 << 20)
    tree.bind_opened(str(tmp_path), "/data")
    made = json.loads(bundle.description(tree, ["a"], {"B": "c"}, "name"))
    assert made["root"] == {"path": "root", "readonly": True}
    assert made["process"]["noNewPrivileges"]
    given = {each for kind in made["process"]["capabilities"].values() for each in kind}
    assert given == {"CAP_CHOWN"}
    binds = {m["destination"]: m for m in made["mounts"] if m["type"] == "bind"}
    assert all("ro" in mount["options"] for mount in binds.values())
    sources = set(made["annotations"].values())
    assert binds["/usr"]["source"] in sources
    assert binds["/data"]["source"] not in sources
    tmp = next(m for m in made["mounts"] if m["destination"] == "/tmp")
    assert f"size={1 << 20}" in tmp["options"]


def test_private_places_do_not_fill_the_memory_alone():
    assert bounds.fitted(Limits(tmp=1 << 30)) == 1 << 30
    assert bounds.fitted(Limits(tmp=1 << 30, memory=600 << 20)) == 100 << 20
