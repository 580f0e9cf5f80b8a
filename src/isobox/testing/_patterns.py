"""Glob patterns as regular expressions."""

from __future__ import annotations

import re

_WORDS = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|\{[^{}]*\}|.", re.DOTALL)
_PLAIN = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def glob_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a glob pattern; it is matched against a whole relative path."""
    return re.compile(_translated(pattern), re.DOTALL)


def _translated(pattern: str) -> str:
    return "".join(_word(word) for word in _WORDS.findall(pattern))


def _word(word: str) -> str:
    if word in _PLAIN:
        return _PLAIN[word]
    if len(word) > 2 and word.startswith("["):
        inner = word[1:-1].replace("\\", "\\\\")
        inner = f"^{inner[1:]}" if inner.startswith("!") else inner
        return f"(?!/)[{inner}]"
    if len(word) > 1 and word.startswith("{"):
        choices = "|".join(_translated(part) for part in word[1:-1].split(","))
        return f"(?:{choices})"
    return re.escape(word)
