"""No link of the documentation leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)(?:#[^)]*)?\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page):
    text = FENCE.sub("", page.read_text())
    targets = [found[1] for found in LINK.finditer(text)]
    assert [each for each in targets if not (page.parent / each).exists()] == []


def test_every_page_is_linked_from_another():
    linked = {
        (page.parent / found[1]).resolve()
        for page in PAGES
        for found in LINK.finditer(page.read_text())
    }
    orphans = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]
    assert [str(page) for page in orphans if page.resolve() not in linked] == []
