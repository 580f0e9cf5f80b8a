"""What the tools of one session remember between calls."""

from __future__ import annotations

import itertools
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from isobox._core.paths import within
from isobox._workspace.offload.names import folder_of
from isobox._workspace.tools.wording import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from isobox._workspace.base import WorkspaceBase
    from isobox._workspace.tools.jobs import Job

_MOST_SEEN: Final = 10_000
_MOST_TEXTS: Final = 64
_LONGEST_TEXT: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as the session last read or wrote it.

    Attributes:
        digest: SHA-256 of the content in hex.
        newline: How its lines ended.
        encoding: How it was encoded.
    """

    digest: str
    newline: str = "\n"
    encoding: str = "utf-8"


@dataclass(frozen=True, slots=True)
class Lines:
    """A text that few ask for, and so is not made yet.

    Attributes:
        lines: Its lines, without their ends.
        end: What stands after the last one.
        size: Bytes of the file that it is from.
    """

    lines: Sequence[str]
    end: str
    size: int

    def __len__(self) -> int:
        return self.size

    def joined(self) -> str:
        """Return it whole."""
        return "\n".join(self.lines) + self.end


class Session:
    """What one conversation knows of its workspace.

    Attributes:
        workspace: Where its tools work.
        id: Names it; its shell has the same name.
        jobs: Its commands in the background, by id.
    """

    def __init__(self, workspace: WorkspaceBase, session_id: str) -> None:
        self.workspace = workspace
        self.id = session_id
        self.jobs: dict[str, Job] = {}
        self._numbers: Iterator[int] = itertools.count(1)
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._texts: OrderedDict[str, str | Lines] = OrderedDict()

    def new_job_id(self) -> str:
        """Return an id that no job of this session has had."""
        return f"job-{next(self._numbers)}"

    def offload_path(self) -> str:
        """Return a fresh absolute path for output that is long."""
        # A shell may stand anywhere: only an absolute path leads there from all.
        root = self.workspace.root.rstrip("/")
        name = f"tool_result-{secrets.token_hex(4)}.txt"
        return f"{root}/{folder_of(self.id)}/{name}"

    def seen(self, path: str) -> Seen | None:
        """Return what the file at an absolute path was when last seen."""
        return self._seen.get(path)

    def text(self, path: str) -> str | None:
        """Return its whole text as last seen, if it is still remembered."""
        found = self._texts.get(path)
        return found.joined() if isinstance(found, Lines) else found

    def note(self, path: str, seen: Seen, text: str | Lines | None = None) -> None:
        """Remember a file, and its whole text where that is known and short."""
        self._seen[path] = seen
        self._seen.move_to_end(path)
        self._texts.pop(path, None)
        if text is not None and len(text) <= _LONGEST_TEXT:
            self._texts[path] = text
        if len(self._seen) > _MOST_SEEN:
            self._texts.pop(self._seen.popitem(last=False)[0], None)
        if len(self._texts) > _MOST_TEXTS:
            self._texts.popitem(last=False)

    def forget(self, path: str) -> None:
        """Forget a file that is gone."""
        self._seen.pop(path, None)
        self._texts.pop(path, None)

    def absolute(self, path: str) -> str:
        """Return a path as the workspace's operations take it."""
        return self.workspace._path(path)

    def shown(self, path: str) -> str:
        """Return a path as a model should name it: relative below the root.

        It stays in its line, and is no note of a tool.
        """
        root = self.workspace.root
        if path != root and within(path, root):
            path = path[len(root.rstrip("/")) + 1 :]
        if path.startswith("[") and path.endswith("]"):
            path = f"./{path}"
        return plain(path)
