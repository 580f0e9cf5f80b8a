"""Names and paths, odd ones above all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from isobox.errors import (
    InvalidArgumentError,
    IsoboxError,
    PathOutsideError,
    SandboxLostError,
)
from isobox.testing.contract._base import SOON, Contract, names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from isobox import WorkspaceBase

_ODD = {
    "newline": "two\nlines",
    "quotes": 'it\'s "quoted" `here`',
    "leading_dash": "-rf",
    "double_dash": "--",
    "255_bytes": "x" * 255,
    "255_bytes_of_utf8": "ä" * 127 + "x",
    "not_utf8": b"\xff\xfe\x80".decode("utf-8", "surrogateescape"),
    "spaces": " a  b ",
    "pattern": "*?[a-z]{x}",
    "dollar": "$HOME $(id)",
    "backslash": "a\\n\\b",
    "unicode": "grüße 世界 🙂",
    "control": "\x01\x1b[31m\x7f",
    "dots": "...",
    "tilde": "~root",
    "carriage_return": "a\rb",
}

_CALLS: dict[str, Callable[[WorkspaceBase, str], Awaitable[Any]]] = {
    "read": lambda ws, path: ws.read_bytes(path),
    "write": lambda ws, path: ws.write(path, b"x"),
    "edit": lambda ws, path: ws.edit(path, "secret", "x"),
    "scan": lambda ws, path: ws.scan(path),
    "stat": lambda ws, path: ws.stat(path),
    "glob": lambda ws, path: ws.glob("*", path=path),
    "grep": lambda ws, path: ws.grep("secret", path=path),
    "remove": lambda ws, path: ws.remove(path),
    "run": lambda ws, path: ws.run(["true"], cwd=path),
    "download": lambda ws, path: ws.download(path, "never-made"),
    "upload": lambda ws, path: ws.upload(__file__, path),
}


class PathsContract(Contract):
    """Names and paths, odd ones above all."""

    @pytest.mark.parametrize("name", _ODD.values(), ids=_ODD)
    async def test_an_odd_name_is_written_and_read(
        self, workspace: WorkspaceBase, name: str
    ) -> None:
        entry = await workspace.write(name, b"content")
        assert entry.path == f"{workspace.root}/{name}"
        assert await workspace.read_bytes(name) == b"content"

    @pytest.mark.parametrize("name", _ODD.values(), ids=_ODD)
    async def test_an_odd_name_is_listed_and_found(
        self, workspace: WorkspaceBase, name: str
    ) -> None:
        await workspace.write(f"d/{name}", b"content")
        assert await names(workspace, "d") == [name]
        assert (await workspace.stat(f"d/{name}")).name == name
        found = await workspace.glob("d/*")
        assert [entry.name for entry in found.entries] == [name]
        lines = await workspace.grep("content")
        assert [line.path for line in lines.matches] == [f"{workspace.root}/d/{name}"]

    @pytest.mark.parametrize("name", _ODD.values(), ids=_ODD)
    async def test_an_odd_name_is_edited_and_removed(
        self, workspace: WorkspaceBase, name: str
    ) -> None:
        await workspace.write(name, b"content")
        await workspace.edit(name, "content", "changed")
        assert await workspace.read_bytes(name) == b"changed"
        await workspace.remove(name)
        assert await names(workspace) == []

    @pytest.mark.parametrize("name", _ODD.values(), ids=_ODD)
    async def test_an_odd_name_reaches_commands(
        self, workspace: WorkspaceBase, name: str
    ) -> None:
        await workspace.write(f"{name}/file", b"content")
        result = await workspace.run(["cat", f"./{name}/file"], cwd=".")
        assert result.stdout == "content"
        result = await workspace.run(["cat", "file"], cwd=name)
        assert result.stdout == "content"

    async def test_an_empty_path_is_refused(self, workspace: WorkspaceBase) -> None:
        with pytest.raises(InvalidArgumentError):
            await workspace.read_bytes("")

    @pytest.mark.parametrize("call", _CALLS)
    async def test_a_path_with_nul_is_refused(
        self, workspace: WorkspaceBase, call: str
    ) -> None:
        with pytest.raises(InvalidArgumentError):
            await _CALLS[call](workspace, "a\0b")

    @pytest.mark.parametrize("path", ["..", "../x", "a/../../x", "./../x"])
    @pytest.mark.parametrize("call", _CALLS)
    async def test_a_relative_path_does_not_climb_out(
        self, workspace: WorkspaceBase, call: str, path: str
    ) -> None:
        with pytest.raises(PathOutsideError):
            await _CALLS[call](workspace, path)

    async def test_an_outside_path_is_a_permission_error(
        self, workspace: WorkspaceBase
    ) -> None:
        with pytest.raises(PermissionError) as caught:
            await workspace.read_bytes("../x")
        assert "../x" in str(caught.value)

    async def test_dots_within_the_workspace_are_fine(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("a/file", b"x")
        for path in ("a/../a/file", "./a/./file", "a//file", "b/../a/file"):
            assert await workspace.read_bytes(path) == b"x"

    async def test_an_absolute_path_within_is_the_same(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("file", b"x")
        assert await workspace.read_bytes(f"{workspace.root}/file") == b"x"
        await workspace.write(f"{workspace.root}/new", b"y")
        assert await workspace.read_bytes("new") == b"y"

    async def test_a_neighbour_with_the_same_beginning_is_outside(
        self, workspace: WorkspaceBase
    ) -> None:
        name = workspace.root.rsplit("/", 1)[-1]
        with pytest.raises(PathOutsideError):
            await workspace.write(f"../{name}-other", b"x")

    async def test_a_path_that_is_too_long_is_an_error(
        self, workspace: WorkspaceBase
    ) -> None:
        with anyio.fail_after(SOON), pytest.raises((IsoboxError, OSError)) as caught:
            await workspace.write("/".join(["directory"] * 1000), b"x")
        assert not isinstance(caught.value, SandboxLostError)
        assert (await workspace.run(["echo", "hi"])).stdout == "hi\n"

    @pytest.mark.requires("isolated", "posix_shell")
    async def test_an_absolute_path_is_inside_the_sandbox(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("/tmp/file", b"x")
        assert (await workspace.run(["cat", "/tmp/file"])).stdout == "x"

    @pytest.mark.requires("confined")
    @pytest.mark.parametrize("call", _CALLS)
    async def test_an_absolute_path_outside_is_refused(
        self, workspace: WorkspaceBase, call: str
    ) -> None:
        with pytest.raises(PathOutsideError):
            await _CALLS[call](workspace, "/etc/passwd")

    @pytest.mark.requires("confined")
    @pytest.mark.parametrize(
        "call", ["read", "write", "edit", "scan", "stat", "glob", "grep", "download"]
    )
    async def test_a_link_does_not_lead_outside(
        self, workspace: WorkspaceBase, call: str
    ) -> None:
        await workspace.run(["ln", "-s", "/", "link"], check=True)
        with pytest.raises(PathOutsideError):
            await _CALLS[call](workspace, "link/tmp")

    @pytest.mark.requires("confined")
    async def test_a_relative_link_does_not_lead_outside(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["ln", "-s", "../../../../../../tmp", "link"], check=True)
        with pytest.raises(PathOutsideError):
            await workspace.scan("link")

    @pytest.mark.requires("confined")
    async def test_a_dangling_link_makes_nothing_outside(
        self, workspace: WorkspaceBase
    ) -> None:
        target = f"{workspace.root.rsplit('/', 1)[0]}/isobox-contract-outside"
        await workspace.run(["ln", "-s", target, "link"], check=True)
        with pytest.raises(PathOutsideError):
            await workspace.write("link", b"x")
        assert (await workspace.run(["cat", target])).exit_code == 1

    async def test_a_link_that_leads_outside_can_be_removed(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.run(["ln", "-s", "/", "link"], check=True)
        await workspace.remove("link")
        assert await names(workspace) == []

    async def test_an_absolute_link_within_is_followed(
        self, workspace: WorkspaceBase
    ) -> None:
        await workspace.write("target", b"x")
        target = f"{workspace.root}/target"
        await workspace.run(["ln", "-s", target, "link"], check=True)
        assert await workspace.read_bytes("link") == b"x"
