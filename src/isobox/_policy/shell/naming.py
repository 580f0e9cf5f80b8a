"""Which program a name means, and which names tell that another program is run."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from isobox._policy.shell import interpreters, launchers, programs
from isobox._policy.shell.names import BUILTINS, KNOWN, basename, listed
from isobox._policy.shell.wrapper_table import WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from isobox._policy.shell.words import Word

#: `-12`, `3.11`, `-static`, `.exe`: what follows a name and is no part of it.
_VERSION: Final = re.compile(r"[-._]?[0-9][\w.+]*(?:-[\w-]+)?$")
_ENDING: Final = re.compile(
    r"[-._](?:athena|basic|bin|bsd|c|cgi|cli|coreutils|dbg|debug|dist|exe|fpm|full|gnome"
    r"|gnu|gtk|huge|intel64|minimal|multiarch|nightly|nox|openbsd|orig|posix|real|small"
    r"|stable|static|tiny|traditional)$"
)
#: What a script has, and a sentence has not; and what is between its words.
_SCRIPT: Final = re.compile(r"[;&|`]|\$\(")
_PUNCTUATION: Final = re.compile(r"[\s;&|()$`'\"=:,<>{}\[\]]+")
_LONGEST_TEXT: Final = 2_000
_MACHINE: Final = re.compile(r"(?:[\w.]+-)+(?:gnu|musl|linux|gnueabihf|mingw32)-")
_LOADER: Final = re.compile(r"ld(?:-linux.*|-musl.*|-[0-9.]+)\.so.*|ld64\.so.*")
_EMULATOR: Final = re.compile(r"qemu-(?!img|nbd|io|ga|storage|system).*")
#: Characters of the longest name that is looked at.
_LONGEST: Final = 80
#: Endings that a name loses at most.
_MOST: Final = 4

_TABLES: Final = frozenset(
    interpreters.SHELLS
    | WRAPPERS.keys()
    | interpreters.OTHERS.keys()
    | launchers.LAUNCHERS.keys()
    | programs.NAMES
    | {"git", "python"}
)
#: Programs that only look at what they are given, or keep it.
_PLAIN: Final = listed(
    "addr2line apk apropos apt-cache apt-file ansible-lint ar as asdf bat bazel black"
    " buf bzcat choco chsh cloc code coverage cspell ctags cypress delta diffstat dot"
    " dpkg-query emerge etags eza fc-list ffmpeg flake8 flit getent gpg hugo info isort"
    " jest ldd lintian locale lsb_release lsd mocha ng nm nox nproc objdump opkg otool"
    " pacman pkg-config playwright port pre-commit prettier protoc pycodestyle"
    " pydocstyle pyflakes pygmentize pylint ranlib readelf rspec rubocop sha512sum"
    " shellcheck shfmt size strip stylelint tldr turbo twine update-alternatives"
    " virtualenv vite vitest webpack whatis whereis xbps-install yum zypper"
)
#: Wrappers and interpreters whose names are words of other things too.
_WORDS: Final = listed(
    "R arch builtin bun chronic command deno env es exec expect faketime groovy guile"
    " i386 julia mono node nu octave onchange rc retry scala swift time tini trickle"
    " watch wine x86_64"
)
_RULED: Final = listed(
    "apt apt-get awk chmod chown crontab curl dd docker eval gawk gh git glab helm"
    " killall kubectl mkfs nc ncat netcat npm pip pip3 pkill pnpm podman psql pulumi"
    " python reboot rm rmdir rsync scp sed shred shutdown socat ssh su systemctl"
    " systemd-run terraform tofu twine unlink wget wipefs yarn"
)
#: A program that has one of these as an argument may run it.
_TELLING: Final = (
    interpreters.SHELLS | interpreters.OTHERS.keys() | WRAPPERS.keys() | _RULED
) - _WORDS


#: Programs that variables name for what they are.
_ORDINARY: Final = interpreters.OTHERS.keys() | listed("docker npm pip python yarn")


@lru_cache(maxsize=4096)
def kind_of(name: str) -> str:
    """The program that a name means: `perl5.36.0` is perl."""
    if len(name) > _LONGEST:
        return name
    if _LOADER.fullmatch(name):
        return "ld.so"
    if _EMULATOR.fullmatch(name):
        return "qemu"
    if name in ("original-awk", "bwk"):
        return "awk"
    return next(filter(_is_told, _shorter(name)), name)


def _is_told(name: str) -> bool:
    return name in _TABLES or name in KNOWN or name in _PLAIN


def _shorter(name: str) -> list[str]:
    """A name without its endings and its beginning, the longest first."""
    found = [*_without_endings(name), *_without_endings(_MACHINE.sub("", name))]
    of_gnu = [each.removeprefix("g") for each in found if each[:1] == "g"]
    small = [each.lower() for each in found]
    return list(dict.fromkeys(filter(None, (*found, *small, *of_gnu))))


def _without_endings(name: str) -> list[str]:
    found = [name]
    for _ in range(_MOST):
        last = found[-1]
        shorter = _VERSION.sub("", last)
        shorter = _ENDING.sub("", last) if shorter == last else shorter
        if shorter in ("", last):
            break
        found.append(shorter)
    return found


def is_known(name: str) -> bool:
    """Whether it is known what a program does with its arguments."""
    return _is_told(kind_of(name))


def is_disguised(name: str) -> bool:
    """Whether a name is a known program's with more changed than its version."""
    kind = kind_of(name)
    if kind == name or kind not in KNOWN - BUILTINS:
        return False
    return _VERSION.sub("", name) != kind


def tells(text: str) -> bool:
    """Whether a word names a program that runs others, or that rules are about."""
    for each in _named(text):
        name = basename(each)
        if kind_of(name) in _TELLING or ("/" in each and kind_of(name) in _TABLES):
            return True
    return False


def _named(text: str) -> Iterable[str]:
    """Words in a text that may be programs: all of it, where it looks like a script."""
    text = text[:_LONGEST_TEXT]
    words = _PUNCTUATION.split(text)
    if _SCRIPT.search(text):
        return words
    first = (text.split(maxsplit=1) or [""])[0]
    return (first, first.rpartition("=")[2], first.rpartition(":")[2])


def hands_on(words: tuple[Word, ...]) -> Word | None:
    """The first word that tells of a program, of those of an unknown one."""
    return next((each for each in words if tells(each.text)), None)


def runs(value: str) -> bool:
    """Whether the value of a variable looks like a command."""
    first, *rest = value.split()[:2] or [""]
    if not tells(first):
        return False
    return bool(rest) or kind_of(basename(first)) not in _ORDINARY
