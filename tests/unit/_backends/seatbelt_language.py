"""Seatbelt's language, read and obeyed: as much of it as isobox writes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: What a profile may name; a word that macOS does not know would stop it.
OPERATIONS = words("""
    default dynamic-code-generation file-ioctl file-link file-map-executable
    file-read* file-test-existence file-read-metadata file-write* file-write-data
    file-write-setugid file-write-unlink ipc-posix-sem ipc-posix-shm*
    ipc-posix-shm-read-data mach-lookup network* process-exec* process-fork
    process-info-listpids process-info* pseudo-tty signal sysctl-read system-socket
""")


class Symbol(str):
    """A bare word."""

    __slots__ = ()


def parse(text: str) -> list[Any]:
    """Return the forms of a text; strings as str, words as Symbol."""
    forms, at = _forms(text, 0)
    if at != len(text):
        raise ValueError(f"a parenthesis too many at {at}")
    return forms


def _forms(text: str, at: int) -> tuple[list[Any], int]:
    forms: list[Any] = []
    while at < len(text):
        char = text[at]
        if char.isspace():
            at += 1
        elif char == "(":
            inner, at = _forms(text, at + 1)
            if text[at : at + 1] != ")":
                raise ValueError("a list without an end")
            forms.append(inner)
            at += 1
        elif char == ")":
            break
        elif char == '"':
            word, at = _string(text, at + 1)
            forms.append(word)
        elif char in ";'`,#":
            raise ValueError(f"{char!r} is no part of what isobox writes")
        else:
            found = re.compile(r'[^\s()";]+').match(text, at)
            assert found is not None
            forms.append(Symbol(found[0]))
            at = found.end()
    return forms, at


_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


def _string(text: str, at: int) -> tuple[str, int]:
    out: list[str] = []
    while text[at] != '"':
        if text[at] == "\\":
            at += 1
            out.append(_ESCAPED[text[at]])
        else:
            out.append(text[at])
        at += 1
    return "".join(out), at + 1


@dataclass(frozen=True)
class Request:
    """What a process asks the kernel for."""

    operation: str
    subject: str = ""
    extensions: frozenset[str] = frozenset()
    target: str = ""


class Policy:
    """A profile that answers requests: of the rules that match, the last one."""

    def __init__(self, text: str) -> None:
        version, *rules = parse(text)
        assert version == ["version", "1"]
        self.rules = rules
        for rule in rules:
            assert rule[0] in ("allow", "deny")
            assert self._operations(rule) <= OPERATIONS, rule

    @staticmethod
    def _operations(rule: list[Any]) -> set[str]:
        return {part for part in rule[1:] if isinstance(part, Symbol)}

    def allows(self, request: Request) -> bool:
        """Whether the request is granted."""
        verdict = None
        for rule in self.rules:
            named = any(_covers(o, request.operation) for o in self._operations(rule))
            filters = [part for part in rule[1:] if isinstance(part, list)]
            if named and (not filters or any(_matches(f, request) for f in filters)):
                verdict = rule[0]
        assert verdict is not None, "no default"
        return bool(verdict == "allow")


def _covers(pattern: str, operation: str) -> bool:
    if pattern == "default":
        return True
    if pattern.endswith("*"):
        # `file-read*` does not cover `file-test-existence`; `network*` covers all.
        return operation == pattern[:-1] or operation.startswith(pattern[:-1] + "-")
    return operation == pattern


def _matches(form: list[Any], request: Request) -> bool:
    name, *values = form
    match name:
        case "require-all":
            return all(_matches(each, request) for each in values)
        case "literal" | "global-name" | "sysctl-name" | "ipc-posix-name":
            return bool(request.subject == values[0])
        case "subpath":
            inside = values[0].rstrip("/") + "/"
            return bool(request.subject == values[0]) or request.subject.startswith(
                inside
            )
        case "regex" | "ipc-posix-name-regex":
            return re.search(values[0], request.subject, re.DOTALL) is not None
        case "sysctl-name-prefix":
            return request.subject.startswith(values[0])
        case "target":
            return bool(request.target == values[0])
        case "socket-domain":
            return bool(request.subject == values[0])
        case "extension":
            return values[0] in request.extensions
        case _:
            raise AssertionError(f"unknown filter {name}")
