"""Names: words of the shell's grammar, and programs that people know."""

from __future__ import annotations

from typing import Final


def listed(text: str) -> frozenset[str]:
    """Names between blanks."""
    return frozenset(text.split())


RESERVED: Final = listed(
    "if then elif else fi do done case esac while until for select function { } !"
    " [[ ]] in"
)

BUILTINS: Final = listed(
    ". : [ alias bg bind break builtin caller cd command compgen complete compopt"
    " continue declare dirs disown echo enable eval exec exit export false fc fg"
    " getopts hash help history jobs kill let local logout mapfile popd printf"
    " pushd pwd read readarray readonly return set shift shopt source suspend test"
    " times trap true type typeset ulimit umask unalias unset wait"
)

#: Programs that a rule is likely to name, so that another one by the same name
#: is a trap: a function, or a file outside the system's directories.
KNOWN: Final = BUILTINS | listed(
    "apt apt-get awk base64 basename bash bat brew bun bundle bwrap bzip2 cargo"
    " cat chgrp chmod chown clang cmake cmp column comm composer conda cp crontab"
    " curl cut dash date dd df diff dig dirname dnf docker doas du ed egrep env"
    " eslint expr fd fgrep file find fmt fold g++ gawk gcc gdb gem gh git go gpg"
    " gradle grep groups gunzip gzip head helm hexdump host hostname iconv id"
    " install ip java javac join jq kubectl ksh less ln ls lsof lua make man"
    " md5sum mkdir mkfifo mktemp more mount mv mvn mypy nano nc ncat nice nl node"
    " nohup npm npx od openssl openat parallel paste patch perl php pgrep ping pip"
    " pip3 pipx pkill pnpm podman poetry pr ps pyright pytest python python3 rake"
    " readlink realpath rg rm rmdir rsync ruby ruff rustc scp sed seq service sh"
    " sha1sum sha256sum shred shuf sleep sort split sqlite3 ss ssh stat strace"
    " strings su sudo svn systemctl tac tail tar tee terraform time timeout tmux"
    " top touch tr tree tsc tsort uname uniq unlink unxz unzip uv vi vim watch wc"
    " wget which whoami xargs xxd xz yarn yes zcat zip zsh"
    " command_not_found_handle"
)

_SYSTEM: Final = (
    "/bin/",
    "/sbin/",
    "/usr/bin/",
    "/usr/sbin/",
    "/usr/local/bin/",
    "/usr/local/sbin/",
)


def basename(path: str) -> str:
    """The last part of a path."""
    return path.rsplit("/", 1)[-1]


def is_of_the_system(path: str) -> bool:
    """Whether a program is looked up, or is in a directory of the system."""
    directory, slash, _ = path.rpartition("/")
    return not slash or directory + "/" in _SYSTEM
