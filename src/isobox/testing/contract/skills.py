"""Skills: installed, listed, loaded and removed."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from typing import TYPE_CHECKING

import anyio
import pytest

from isobox.errors import (
    ArchiveError,
    InvalidArgumentError,
    PathExistsError,
    PathMissingError,
    WorkspaceClosedError,
)
from isobox.testing.contract._base import SOON, Contract, Factory, names

if TYPE_CHECKING:
    from pathlib import Path

    from isobox import Tool, WorkspaceBase

_shell = pytest.mark.requires("posix_shell")


def manual(name: str, description: str = "Does it.", body: str = "Do it.") -> str:
    """Return a SKILL.md."""
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}\n"


def tar_of(*members: tuple[str, bytes] | tarfile.TarInfo, gz: bool = False) -> bytes:
    """Return a tar of files and of members that are made by hand."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz" if gz else "w") as archive:
        for each in members:
            if isinstance(each, tarfile.TarInfo):
                archive.addfile(each)
                continue
            info = tarfile.TarInfo(each[0])
            info.size = len(each[1])
            archive.addfile(info, io.BytesIO(each[1]))
    return buffer.getvalue()


def zip_of(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    """Return a zip of files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def directory(
    place: Path, name: str = "sums", text: str | None = None, **files: str
) -> str:
    """Make a skill on the host and return its path."""
    folder = place / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(manual(name) if text is None else text)
    for file, content in files.items():
        (folder / file).write_text(content)
    return str(folder)


async def tool(workspace: WorkspaceBase, session_id: str = "default") -> Tool | None:
    """Return the Skill tool, if there is one."""
    tools = await workspace.list_tools(session_id=session_id)
    return next((each for each in tools if each.name == "Skill"), None)


class SkillsContract(Contract):
    """Skills: installed, listed, loaded and removed."""

    async def test_without_skills_there_is_no_list_and_no_tool(
        self, workspace: WorkspaceBase
    ) -> None:
        assert await workspace.list_skills() == []
        assert await tool(workspace) is None
        assert "Skill" not in await workspace.get_instructions()

    async def test_a_skill_comes_from_a_directory(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        source = directory(tmp_path, add="1 + 1 = 2\n")
        os.chmod(os.path.join(source, "add"), 0o700)
        added = await workspace.add_skill(source)
        assert await workspace.list_skills() == [added]
        assert (added.name, added.description) == ("sums", "Does it.")
        assert (added.path, added.problems) == (f"{workspace.root}/skills/sums", ())
        assert await workspace.read_text("skills/sums/add") == "1 + 1 = 2\n"
        assert (await workspace.stat("skills/sums/add")).mode & 0o777 == 0o755
        assert await names(workspace, "skills") == ["sums"]

    @pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
    @pytest.mark.parametrize("top", ["", "anything/"])
    async def test_a_skill_comes_from_an_archive(
        self, workspace: WorkspaceBase, tmp_path: Path, kind: str, top: str
    ) -> None:
        members = [
            (f"{top}SKILL.md", manual("sums").encode()),
            (f"{top}deep/er/data", b"\0\1"),
        ]
        made = zip_of(*members) if kind == "zip" else tar_of(*members, gz=kind != "tar")
        archive = tmp_path / "archive"
        archive.write_bytes(made)
        assert (await workspace.add_skill(archive)).name == "sums"
        assert await workspace.read_bytes("skills/sums/deep/er/data") == b"\0\1"
        await workspace.add_skill(made, replace=True)
        assert await names(workspace, "skills/sums") == ["SKILL.md", "deep"]

    async def test_a_large_skill_comes_in_pieces(
        self, workspace: WorkspaceBase
    ) -> None:
        data = os.urandom(9 << 20)
        await workspace.add_skill(
            tar_of(("SKILL.md", manual("large").encode()), ("data", data))
        )
        assert await workspace.read_bytes("skills/large/data") == data

    async def test_a_second_of_its_name_is_refused_unless_it_replaces(
        self, workspace: WorkspaceBase
    ) -> None:
        first = tar_of(("SKILL.md", manual("sums", "One.").encode()), ("old", b""))
        second = tar_of(("SKILL.md", manual("sums", "Two.").encode()), ("new", b""))
        await workspace.add_skill(first)
        with pytest.raises(PathExistsError, match="replace=True"):
            await workspace.add_skill(second)
        assert (await workspace.list_skills())[0].description == "One."
        assert (await workspace.add_skill(second, replace=True)).description == "Two."
        assert await names(workspace, "skills/sums") == ["SKILL.md", "new"]
        assert await names(workspace, "skills") == ["sums"]

    @pytest.mark.parametrize(
        "member",
        [
            pytest.param("../out", id="traversal"),
            pytest.param("/out", id="absolute"),
            pytest.param("a/../../out", id="traversal-below"),
            pytest.param("a\\b", id="backslash"),
        ],
    )
    async def test_a_member_that_leaves_is_named_and_nothing_is_installed(
        self, workspace: WorkspaceBase, member: str
    ) -> None:
        skill = ("SKILL.md", manual("sums").encode())
        for made in (tar_of(skill, (member, b"")), zip_of(skill, (member, b""))):
            with pytest.raises(ArchiveError, match=r"out|b") as refused:
                await workspace.add_skill(made)
            assert refused.value.path == member
        assert not await workspace.exists("skills")

    @pytest.mark.parametrize(
        "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
    )
    async def test_a_member_of_another_kind_is_refused(
        self, workspace: WorkspaceBase, kind: bytes
    ) -> None:
        info = tarfile.TarInfo("odd")
        info.type, info.linkname = kind, "SKILL.md"
        with pytest.raises(ArchiveError, match="odd"):
            await workspace.add_skill(
                tar_of(("SKILL.md", manual("sums").encode()), info)
            )
        assert await workspace.list_skills() == []

    async def test_a_link_in_a_directory_is_refused(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        source = directory(tmp_path)
        os.symlink("/etc/passwd", os.path.join(source, "users"))
        with pytest.raises(ArchiveError, match="users: it is a link"):
            await workspace.add_skill(source)
        assert await workspace.list_skills() == []

    async def test_a_bomb_is_refused(self, workspace: WorkspaceBase) -> None:
        bomb = ("zeros", bytes(8 << 20))
        skill = ("SKILL.md", manual("sums").encode())
        for made in (zip_of(skill, bomb), tar_of(skill, bomb, gz=True)):
            with pytest.raises(ArchiveError, match="zeros"):
                await workspace.add_skill(made)
        assert await workspace.list_skills() == []

    async def test_what_is_no_skill_is_refused(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        with pytest.raises(PathMissingError):
            await workspace.add_skill(tmp_path / "missing")
        with pytest.raises(ArchiveError, match="neither a zip"):
            await workspace.add_skill(b"nonsense")
        with pytest.raises(InvalidArgumentError, match="no SKILL"):
            await workspace.add_skill(tar_of(("README.md", b"")))
        for text in (manual("Sums"), manual("sums", ""), "no front matter"):
            with pytest.raises(InvalidArgumentError, match="no skill"):
                await workspace.add_skill(tar_of(("SKILL.md", text.encode())))
        assert await workspace.list_skills() == []

    async def test_a_bad_one_hides_no_other(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        await workspace.add_skill(directory(tmp_path))
        await workspace.write("skills/another/SKILL.md", manual("sums"))
        await workspace.write("skills/bytes/SKILL.md", b"---\nname: \xff\n---\n")
        await workspace.write("skills/empty/other", b"")
        await workspace.write("skills/file", b"")
        await workspace.write("skills/huge/SKILL.md", bytes(2 << 20))
        await workspace.write("skills/tree/SKILL.md/file", b"")
        found = {skill.name: skill.problems for skill in await workspace.list_skills()}
        assert list(found) == ["another", "bytes", "empty", "huge", "sums", "tree"]
        assert [name for name, problems in found.items() if not problems] == ["sums"]

    @_shell
    async def test_what_is_no_regular_file_is_not_opened(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        await workspace.add_skill(directory(tmp_path))
        await workspace.run(
            "mkdir skills/fifo skills/linked; mkfifo skills/fifo/SKILL.md; "
            "ln -s /etc/passwd skills/linked/SKILL.md; ln -s sums skills/alias",
            check=True,
        )
        with anyio.fail_after(SOON):
            found = {each.name: each.problems for each in await workspace.list_skills()}
            load = await tool(workspace)
            assert load is not None
            for name in ("alias", "fifo", "linked"):
                assert (await load(name=name)).is_error
        assert list(found) == ["alias", "fifo", "linked", "sums"]
        assert [name for name, problems in found.items() if not problems] == ["sums"]

    async def test_a_skill_is_removed(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        await workspace.add_skill(directory(tmp_path))
        await workspace.remove_skill("sums")
        assert await workspace.list_skills() == []
        with pytest.raises(PathMissingError, match="no skill"):
            await workspace.remove_skill("sums")
        for name in ("", ".", "..", "a/b", "../data"):
            with pytest.raises(InvalidArgumentError):
                await workspace.remove_skill(name)

    async def test_the_tool_shows_what_a_skill_says(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        text = manual("sums", "Adds numbers.", "Use `add`.")
        await workspace.add_skill(directory(tmp_path, text=text, add="1"))
        load = await tool(workspace)
        assert load is not None
        assert "sums" in load.description
        result = await load(name="sums")
        assert not result.is_error
        assert "Use `add`." in result.text
        assert "Adds numbers." not in result.text
        assert f"{workspace.root}/skills/sums" in result.text
        assert "SKILL.md, add" in result.text
        for name in ("nothing", "../data", "Sums"):
            refused = await load(name=name)
            assert refused.is_error
            assert "there are: sums" in refused.text

    async def test_the_prompt_has_names_and_descriptions_alone(
        self, workspace: WorkspaceBase, tmp_path: Path
    ) -> None:
        text = manual("sums", ">\n  Adds\n  numbers.", "Secret steps.")
        await workspace.add_skill(directory(tmp_path, text=text))
        await workspace.write("skills/bad/SKILL.md", "Obey me.")
        prompt = await workspace.get_instructions()
        assert "- sums: Adds numbers." in prompt
        assert "Secret steps" not in prompt
        assert "Obey" not in prompt

    async def test_a_workspace_begins_with_skills(
        self, fresh_workspace: Factory, tmp_path: Path
    ) -> None:
        seeds = [directory(tmp_path), tar_of(("SKILL.md", manual("more").encode()))]
        workspace = await fresh_workspace(skills=seeds)
        found = [skill.name for skill in await workspace.list_skills()]
        assert found == ["more", "sums"]

    async def test_a_bad_seed_leaves_nothing_open(self, tmp_path: Path) -> None:
        seed = directory(tmp_path, text="nothing")
        workspace = self.make_workspace(skills=[seed])
        with pytest.raises(InvalidArgumentError, match="no skill"):
            await workspace.initialize()
        with pytest.raises(WorkspaceClosedError):
            await workspace.list_skills()
