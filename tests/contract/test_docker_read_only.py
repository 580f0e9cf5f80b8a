"""Containers whose workspace cannot be written, with the guest and by a shell."""

from __future__ import annotations

import os

import pytest
from tests.security.test_read_only import COMMANDS, WRITES

from isobox import DockerWorkspace, Policy
from isobox.errors import PolicyDeniedError

pytestmark = pytest.mark.anyio


@pytest.fixture
def files(tmp_path):
    """A directory of another user than root, with one file."""
    place = tmp_path / "work"
    place.mkdir()
    (place / "file").write_text("old\n")
    for path in (place, place / "file"):
        os.chown(path, 4321, 4322)
    return place


@pytest.mark.parametrize("python", ["image", "none"])
async def test_nothing_in_the_directory_changes(engine, python_image, files, python):
    options = {"image": python_image, "engine": engine.url, "python": python}
    async with DockerWorkspace(
        files, policy=Policy.preset("read_only"), **options
    ) as workspace:
        for write in WRITES.values():
            with pytest.raises(PolicyDeniedError, match="read-only"):
                await write(workspace)
        for command in COMMANDS:
            assert (await workspace.run(command)).exit_code != 0, command
        assert (await workspace.run("cat file; echo x > /tmp/x")).stdout == "old\n"
        assert await workspace.read_text("file") == "old\n"
    assert [path.name for path in files.iterdir()] == ["file"]
    assert (files / "file").read_text() == "old\n"


@pytest.mark.parametrize("python", ["image", "none"])
async def test_an_ephemeral_workspace_starts_as_well(engine, python_image, python):
    options = {"image": python_image, "engine": engine.url, "python": python}
    async with DockerWorkspace(
        policy=Policy.preset("read_only"), **options
    ) as workspace:
        assert not (await workspace.run("touch new")).ok
        assert (await workspace.run("touch ~/new /tmp/new")).ok
