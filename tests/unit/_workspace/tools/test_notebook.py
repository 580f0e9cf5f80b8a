"""Notebooks are read as data that anybody may have written."""

from __future__ import annotations

import base64
import json

import pytest

from isobox import DataBlock, TextBlock
from isobox._workspace.tools.notebook import cells_of, shown

PNG = b"\x89PNG\r\n\x1a\n"


def notebook(*cells):
    return json.dumps({"cells": list(cells), "nbformat": 4}).encode()


def code(source, *outputs, count=1):
    return {
        "cell_type": "code",
        "execution_count": count,
        "source": source,
        "outputs": list(outputs),
    }


def text_of(*cells, first=1):
    (block,) = shown(cells_of(notebook(*cells)), first)
    assert isinstance(block, TextBlock)
    return block.text


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ({"cell_type": "markdown", "source": "# Hi"}, "[cell 1: markdown]\n# Hi"),
        (code(["a = 1\n", "a"]), "[cell 1: code, In [1]]\na = 1\na"),
        (code("x", count=None), "[cell 1: code]\nx"),
        (
            code("x", {"output_type": "stream", "text": ["one\n", "two\n"]}),
            "[cell 1: code, In [1]]\nx\n[output]\none\ntwo",
        ),
        (
            code("x", {"output_type": "execute_result", "data": {"text/plain": "1"}}),
            "[cell 1: code, In [1]]\nx\n[output]\n1",
        ),
        (
            code(
                "x", {"output_type": "error", "traceback": ["\x1b[31mBad\x1b[0m", "y"]}
            ),
            "[cell 1: code, In [1]]\nx\n[error]\nBad\ny",
        ),
        (
            code("x", {"output_type": "stream", "text": "y" * 3000}),
            "[cell 1: code, In [1]]\nx\n[output]\n"
            + "y" * 2000
            + "\n[1,000 characters more]",
        ),
        (code(7, 7, {"data": 7}, {"text": 7}), "[cell 1: code, In [1]]\n\n[output]\n"),
        ({}, "[cell 1: None]\n"),
    ],
)
def test_cells(cell, text):
    assert text_of(cell) == text


def test_cells_are_numbered_from_the_first():
    assert text_of(code("x"), first=7).startswith("[cell 7: ")


def test_images_are_data():
    image = {"output_type": "display_data", "data": {"image/png": encoded(PNG)}}
    blocks = shown(cells_of(notebook(code("plot", image), code("x"))), 1)
    assert blocks == (
        TextBlock("[cell 1: code, In [1]]\nplot"),
        DataBlock("image/png", PNG),
        TextBlock("[cell 2: code, In [1]]\nx"),
    )


def test_a_broken_image_is_left_out():
    image = {"output_type": "display_data", "data": {"image/png": "***"}}
    assert text_of(code("x", image)) == "[cell 1: code, In [1]]\nx"


def test_many_images_are_counted():
    image = {"output_type": "display_data", "data": {"image/png": encoded(PNG)}}
    blocks = shown(cells_of(notebook(code("x", *[image] * 12))), 1)
    assert sum(isinstance(block, DataBlock) for block in blocks) == 10
    assert blocks[-1] == TextBlock("[2 images more]")


def test_many_outputs_are_counted():
    text = text_of(code("x", *[{"text": "y\n"}] * 50_000))
    assert text.count("[output]\ny\n") == 200
    assert text.endswith("[output]\ny\n[49,800 outputs more]")


def test_a_long_cell_is_cut_as_any_text():
    text = text_of(code("x" * 7_000_000))
    head, _, tail = text.rpartition("\n")
    assert len(head) == 250_001
    assert tail == (
        "[cell 1 is cut, a result holds 250,000 characters; see the rest of it with "
        "Bash]"
    )


def test_after_a_cut_it_goes_on_with_the_next_cell():
    cells = [code("a"), code("b" * 300_000), code("c")]
    text = text_of(*cells, first=3)
    assert text.endswith("with Bash; go on with offset=5]")
    assert "c" not in text.rpartition("b")[2].partition("\n")[0]


def test_the_outputs_of_many_cells_are_cut_together():
    cells = [code("x", *[{"text": "y" * 2000}] * 100)] * 50
    text = text_of(*cells)
    assert len(text) < 251_000
    assert text.endswith("go on with offset=3]")


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"7", b"\xff\xfe", b'{"cells": 7}', b"[" * 100_000],
)
def test_what_is_no_notebook(data):
    assert cells_of(data) is None


def encoded(data):
    return base64.b64encode(data).decode()
