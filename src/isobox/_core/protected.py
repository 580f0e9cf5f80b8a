"""Names that the host executes, or takes its configuration from.

What a sandbox writes under one of these would run later with the rights of the
person who owns the directory: at the next commit, when an editor opens the
folder, when an agent starts there. Sources: CVE-2026-25725 and CVE-2025-59536
(agents' settings), CVE-2026-48124 (editors' tasks), and the lists of
sandbox-runtime and codex.
"""

from __future__ import annotations

from typing import Final

#: Raised whenever the lists change.
VERSION: Final = 1

#: Read wherever a directory is opened: version control (hooks, filters and
#: pagers are programs), editors and agents.
_EVERYWHERE = (
    ".agents", ".claude", ".codex", ".cursor", ".devcontainer", ".envrc",
    ".gemini", ".git", ".idea", ".mcp.json", ".vscode",
)  # fmt: skip

#: The same of tools that fewer people have: held where they exist, put aside when
#: the sandbox ends where they do not. A stand-in for each costs every start.
_RARER = (
    ".cline", ".continue", ".exrc", ".hg", ".kiro", ".nvim.lua", ".roo", ".vs",
    ".windsurf", ".zed",
)  # fmt: skip

#: Hooks and continuous integration, read in a repository's root.
_REPOSITORY = (
    ".circleci", ".githooks", ".github", ".gitlab-ci.yml", ".gitmodules", ".husky",
)  # fmt: skip

#: Held where they exist. Where they do not, a stand-in would break the tools
#: that read them, or nobody reads them but from a home directory; they are kept
#: from coming back from a private view all the same.
_IF_PRESENT = (
    ".aider.conf.yml", ".bash_login", ".bash_logout", ".bash_profile", ".bashrc",
    ".buildkite", ".direnv", ".drone.yml", ".fleet", ".gdbinit", ".gitconfig",
    ".inputrc", ".jj", ".lefthook.yml", ".lldbinit", ".netrc", ".npmrc",
    ".nvimrc", ".pre-commit-config.yaml", ".profile", ".pypirc", ".ripgreprc",
    ".svn", ".tmux.conf", ".travis.yml", ".vimrc", ".yarnrc", ".yarnrc.yml",
    ".zlogin", ".zprofile", ".zshenv", ".zshrc", "Jenkinsfile",
    "azure-pipelines.yml", "lefthook.yml",
)  # fmt: skip

#: Protected at any depth.
ANYWHERE: Final = frozenset(_EVERYWHERE + _RARER)
#: Protected in the workspace's root.
IN_ROOT: Final = frozenset(_EVERYWHERE + _RARER + _REPOSITORY + _IF_PRESENT)
#: Of these in the root, the ones that must not even be created.
ABSENT: Final = frozenset(_EVERYWHERE + _REPOSITORY)
#: Nobody opens an editor or a repository in what tools generate.
SKIPPED: Final = frozenset(
    ("node_modules", ".venv", "venv", "__pycache__", "target", ".tox", ".nox")
)


def rule_for(path: str, *, unprotected: frozenset[str] = frozenset()) -> str | None:
    """Return the protected name that a relative path has or lies below.

    Names are compared without regard to case, since some file systems do so.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for depth, part in enumerate(parts):
        names = IN_ROOT if depth == 0 else ANYWHERE
        name = _FOLDED.get(part.casefold())
        if name in names and name not in unprotected:
            return name
    return None


def known(name: str) -> bool:
    """Whether `unprotected` may name this: a protected name, or a path below.

    A path is that of a directory which is protected for being on the PATH.
    """
    return name in IN_ROOT or "/" in name


_FOLDED = {name.casefold(): name for name in IN_ROOT}
