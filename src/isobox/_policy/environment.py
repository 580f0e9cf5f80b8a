"""Variables that make a harmless program run something else."""

from __future__ import annotations

import re
from typing import Final

#: Families in which most variables do: the others are named below.
_FAMILIES: Final = re.compile(
    r"(?:BASH|PYTHON|PERL|RUBY|LESS|GROFF|LUA|AWK|KUBE|EMACS|VIM|TEXTDOMAIN).*"
    r"|(?:LD|DYLD|GIT|NODE|PHP|R|JULIA|OCTAVE|GUILE|GTK|GDK|GIO|QT|XDG|FZF|BAT|UV"
    r"|PIP|NPM|YARN|RUST|CGO|CCACHE|DISTCC|PYTEST|OPENSSL|SUDO|SVN|CVS|MAVEN|GRADLE"
    r"|SBT|PSQL|GDB|RSYNC|GLIBC|GCC|NIX|BUNDLE|CPAN|ZSH|YASH)_.*"
)
_HARMLESS: Final = re.compile(
    r"PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE|IOENCODING|HASHSEED|UTF8|FAULTHANDLER"
    r"|ASYNCIODEBUG|DEVMODE|TRACEMALLOC|OPTIMIZE|SAFEPATH|NOUSERSITE|VERBOSE|DEBUG)"
    r"|PYTHON_VERSION|PERLIO|LESSCHARSET|BASH_XTRACEFD|BAT_THEME|QT_QPA_PLATFORM"
    r"|GIT_(?:(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)|TERMINAL_PROMPT|OPTIONAL_LOCKS"
    r"|ADVICE|LITERAL_PATHSPECS|MERGE_AUTOEDIT|LFS_SKIP_SMUDGE|SHA|COMMIT|BRANCH|TAG)"
    r"|NODE_(?:ENV|NO_WARNINGS|DISABLE_COLORS|VERSION)|NPM_TOKEN|CGO_ENABLED"
    r"|RUST_(?:LOG|BACKTRACE|TEST_THREADS)|UV_(?:CACHE_DIR|LINK_MODE|OFFLINE|NO_.*)"
    r"|PIP_(?:NO_.*|DISABLE_PIP_VERSION_CHECK|CACHE_DIR|QUIET|DEFAULT_TIMEOUT)"
    r"|XDG_(?:RUNTIME_DIR|CACHE_HOME)|RUBY_VERSION"
)
_STEERS: Final = re.compile(
    r"ENV|PROMPT_.*|PATH|IFS|SHELLOPTS|PS[0-4]|CDPATH|GLOBIGNORE|EXECIGNORE|HOME"
    r"|POSIXLY_CORRECT|HISTFILE|GCONV_PATH|LOCPATH|NLSPATH|TERMINFO.*|TERMCAP|INPUTRC"
    r"|MAIL|MAILPATH|TAPE|ZIP|ZIPOPT|UNZIP|ZIPINFO|GREP_OPTIONS|XZ_OPT|MORE|MANPATH"
    r"|MANPAGER|MANOPT|MANROFF.*|MAKEFLAGS|GNUMAKEFLAGS|MFLAGS|MAKEFILES|MAKESHELL"
    r"|RIPGREP_CONFIG_PATH|CURL_HOME|WGETRC|SYSTEM_WGETRC|FPATH|ZDOTDIR|TMPPREFIX"
    r"|READNULLCMD|NULLCMD|FCEDIT|CLASSPATH|JAVA_HOME|_JAVA_OPTIONS|GOFLAGS|GOENV"
    r"|GOROOT|MYVIMRC|EXINIT|COMPILER_PATH|LIBRARY_PATH|CONFIG_SITE|GEM_HOME|GEM_PATH"
    r"|TCLLIBPATH|GNUPGHOME|npm_config_.*|NPM_CONFIG_.*|RUST(?:C|DOC|UP|FMT|FLAGS).*"
    r"|RUSTDOCFLAGS|CARGO_(?:HOME|BUILD_RUST.*|ENCODED_RUSTFLAGS|REGISTR.*)"
    r"|CMAKE_(?:TOOLCHAIN_FILE|PREFIX_PATH|MODULE_PATH|GENERATOR|.*COMPILER|PROGRAM.*)"
    r"|AWS_(?:CONFIG_FILE|SHARED_CREDENTIALS_FILE)|DOCKER_(?:HOST|CONFIG|CONTEXT)"
    r"|HG(?:RCPATH|EDITOR|PLAIN)|.*_SYMBOLIZER_PATH|QUILT_.*|SYSTEMD_.*"
    r"|(?:.*_)?(?:PAGER|EDITOR|VISUAL|BROWSER|ASKPASS|RSH|SHELL|WRAPPER|LAUNCHER"
    r"|RUNNER|LINKER|PRELOAD|OPTS|OPTIONS|ADDOPTS|PLUGINS|PLUGIN_PATH|MODULES"
    r"|SSH_COMMAND)"
)
#: What shows or edits text, and values of it that run nothing of note.
_SHOWS: Final = re.compile(r"(?:.*_)?(?:MANPAGER|PAGER|EDITOR|VISUAL|BROWSER)")
_NOTHING: Final = frozenset({"", "cat", "true", "false", ":", "/bin/cat", "/bin/true"})


def steers(name: str, value: str | None = None) -> bool:
    """Whether a variable decides which programs or settings others use.

    Args:
        name: The variable.
        value: What it is set to, where the script tells.
    """
    if value in _NOTHING and _SHOWS.fullmatch(name):
        return False
    if name == "PYTHONPATH" and value is not None and _is_below(value):
        # What it leads to, `python3 FILE` runs as well.
        return False
    if _STEERS.fullmatch(name):
        return True
    return bool(_FAMILIES.fullmatch(name)) and not _HARMLESS.fullmatch(name)


def _is_below(paths: str) -> bool:
    parts = [part for path in paths.split(":") for part in path.split("/")]
    absolute = any(path.startswith(("/", "~")) for path in paths.split(":"))
    return not absolute and ".." not in parts
