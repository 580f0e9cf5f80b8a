"""The examples of docs/images.md, on a real engine."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import types
from pathlib import Path

import pytest
from tests.engines import PYTHON_IMAGE

PAGE = (Path(__file__).parents[2] / "docs" / "images.md").read_text()
BASE = "debian:bookworm-slim"


def fence(kind):
    found = re.search(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


@pytest.mark.timeout(300)
def test_the_description_is_built_and_used(
    engine, docker_host, python_image, tmp_path, monkeypatch, capsys
):
    engine.call("tag", PYTHON_IMAGE, BASE)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "check").write_text("#!/bin/sh\ncat /etc/motd; git --version")
    # The engine of the tests has no network of its own.
    text = fence("toml").replace("network = true", 'network = "host"')
    (tmp_path / "image.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(fence("python fragment"), "images.md", "exec", flags)
    returned = types.FunctionType(code, {"__name__": "__main__"})()
    assert inspect.iscoroutine(returned)
    asyncio.run(returned)
    assert re.match(r"Made by isobox\.\ngit version 2", capsys.readouterr().out)
