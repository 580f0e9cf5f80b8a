"""What a container is made of."""

from __future__ import annotations

import pytest

from isobox._backends.docker.options import DockerOptions
from isobox._backends.docker.places import Place
from isobox._backends.docker.recipe import Image, Recipe
from isobox._core.spec import Mount, SandboxSpec

USUAL = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def recipe(path, *, mounts=(), **options):
    env = {} if path is None else {"PATH": path}
    image = Image(id="sha256:0", env=env, user="", machine="amd64")
    place = Place("unix:///nowhere/socket", "a test")
    spec = SandboxSpec(id="one", mounts=mounts)
    return Recipe(spec, DockerOptions(image="x", **options), image, place)


def searched(made):
    env = made.config(["python3"], "key", "image")["Env"]
    return [each.removeprefix("PATH=") for each in env if each.startswith("PATH=")]


@pytest.mark.parametrize(
    ("path", "safe"),
    [
        (None, USUAL),
        ("/opt/conda/bin:/usr/bin", "/opt/conda/bin:/usr/bin"),
        ("/workspace/.venv/bin:/usr/bin", "/usr/bin"),
        ("/workspace:/home/agent/bin:/tmp/x:/var/tmp:/run/x:/bin", "/bin"),
        (":bin:./bin:~/bin:/bin", "/bin"),
        ("/usr/../workspace/bin:/usr/./bin:/bin", "/bin"),
        ("//workspace/bin:/usr//bin:/bin/", "/bin/"),
        ("/proc/self/cwd/bin:/proc/1/root/workspace:/dev/shm:/bin", "/bin"),
        ("/workspace-of-the-image/bin", "/workspace-of-the-image/bin"),
        ("/workspace/bin", USUAL),
        ("", USUAL),
    ],
)
def test_isobox_starts_nothing_that_commands_can_write(path, safe):
    made = recipe(path)
    assert searched(made) == [safe]
    if path is not None:
        assert made.environment()["PATH"] == path.encode()


def test_nor_anything_of_the_host(tmp_path):
    mounts = (Mount(source=str(tmp_path), target="/opt/tools"),)
    made = recipe("/opt/tools/bin:/opt/tools:/opt/toolsmith:/bin", mounts=mounts)
    assert searched(made) == ["/opt/toolsmith:/bin"]


def test_nor_what_an_image_gives_to_users_where_its_root_is_written():
    made = recipe("/home/user/.local/bin:/usr/bin", read_only_root=False)
    assert searched(made) == ["/usr/bin"]


def test_a_container_that_searches_elsewhere_is_another():
    one, other = recipe("/bin").digests(), recipe("/usr/bin").digests()
    assert [name for name in one if one[name] != other[name]] == ["hardening"]


def test_a_turn_holds_nothing():
    assert "Mounts" not in recipe("/bin").turn()["HostConfig"]
