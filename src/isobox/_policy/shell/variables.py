"""Variables that make a harmless program run something else."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_STEERS: Final = re.compile(
    r"(?:LD_|DYLD_|BASH_FUNC_|GIT_CONFIG|npm_config_|NPM_CONFIG_|PIP_CONFIG).*"
    r"|BASH_ENV|ENV|PROMPT_COMMAND|PATH|IFS|SHELLOPTS|BASHOPTS|PS[0-4]|SHELL|CDPATH"
    r"|GLOBIGNORE|HOME|XDG_CONFIG_HOME|XDG_CONFIG_DIRS|BASH_COMPAT|POSIXLY_CORRECT"
    r"|BASH_LOADABLES_PATH|HISTFILE|GCONV_PATH|TERMINFO|TERMCAP|INPUTRC"
    r"|GIT_(?:SSH|SSH_COMMAND|PAGER|EDITOR|SEQUENCE_EDITOR|EXTERNAL_DIFF|ASKPASS"
    r"|PROXY_COMMAND|EXEC_PATH|TEMPLATE_DIR|DIR|WORK_TREE|ALLOW_PROTOCOL)"
    r"|PAGER|MANPAGER|MANOPT|SYSTEMD_PAGER|BAT_PAGER|EDITOR|VISUAL|BROWSER|FCEDIT"
    r"|SSH_ASKPASS|SUDO_ASKPASS|SUDO_EDITOR|RSYNC_RSH|CVS_RSH|SVN_EDITOR|HGEDITOR"
    r"|LESSOPEN|LESSCLOSE|LESSEDIT|LESS|MORE|RIPGREP_CONFIG_PATH|TAR_OPTIONS"
    r"|TAPE|ZIPOPT|UNZIP|GREP_OPTIONS|MAKEFLAGS|GNUMAKEFLAGS|MAKEFILES|FZF_.*"
    r"|PYTHON(?:STARTUP|HOME|BREAKPOINT|INSPECT|WARNINGS|USERBASE|EXECUTABLE)"
    r"|PERL5(?:OPT|LIB|DB|SHELL)|PERLLIB|RUBYOPT|RUBYLIB|RUBYSHELL|NODE_OPTIONS"
    r"|NODE_PATH|PHPRC|PHP_INI_SCAN_DIR|LUA_INIT.*|LUA_PATH.*|LUA_CPATH.*|AWKPATH"
    r"|AWKLIBPATH|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|_JAVA_OPTIONS|MAVEN_OPTS"
    r"|GRADLE_OPTS|RUSTC_WRAPPER|RUSTC_WORKSPACE_WRAPPER|OPENSSL_CONF|CURL_HOME"
    r"|WGETRC|DOCKER_HOST|VIMINIT|EXINIT|TMPPREFIX|ZDOTDIR|FPATH|READNULLCMD|NULLCMD"
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")


def steers(name: str) -> bool:
    """Whether a variable decides which programs or settings others use."""
    return _STEERS.fullmatch(name) is not None


def names_in(expression: str) -> set[str]:
    """The variables that an arithmetic expression reads."""
    return set(_NAME.findall(expression))


@dataclass(slots=True)
class Variables:
    """What the variables of a script hold, and which are calculated with.

    A shell evaluates a variable in an expression again as an expression, and
    an expression can hold a command: `x='a[$(id)]'; echo $((x))` runs `id`.
    """

    texts: set[str] = field(default_factory=set[str])
    sums: set[str] = field(default_factory=set[str])

    def hold(self, name: str, value: str | None) -> None:
        """A variable is set; None is a value that is not known."""
        if value is None or (value and not _NUMBER.fullmatch(value)):
            self.texts.add(name)

    def calculated(self) -> set[str]:
        """Variables that hold text and are calculated with."""
        return self.texts & self.sums
