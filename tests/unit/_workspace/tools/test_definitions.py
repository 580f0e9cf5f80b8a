"""Tools and results have the shapes that the providers' interfaces take."""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import jsonschema
import pytest

from isobox import DataBlock, TextBlock, ToolResult
from isobox._workspace.tools import tools_of
from isobox._workspace.tools.session import Session
from isobox.testing.fake import MemoryWorkspace

_SPEC = spec_from_file_location("shapes", Path(__file__).with_name("shapes.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
shapes = module_from_spec(_SPEC)
_SPEC.loader.exec_module(shapes)

NAMES = [
    "Bash",
    "Read",
    "Write",
    "Edit",
    "Glob",
    "Grep",
    "BashOutput",
    "BashInput",
    "BashKill",
    "ApplyPatch",
]
TOOLS = tools_of(Session(MemoryWorkspace(), "default"))
each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)

TEXT = ToolResult(blocks=(TextBlock("text"),))
MIXED = ToolResult(
    blocks=(TextBlock("a picture"), DataBlock("image/png", b"\x89PNG")), is_error=True
)
each_result = pytest.mark.parametrize("result", [TEXT, MIXED], ids=["text", "mixed"])


def conforms(value, schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(json.dumps(value)), schema)


def test_the_tools_by_name():
    assert [tool.name for tool in TOOLS] == NAMES


@each_tool
@pytest.mark.parametrize("strict", [False, True])
def test_schema_is_strict_and_described(tool, strict):
    schema = tool.strict_schema if strict else tool.input_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    assert list(shapes.undescribed(schema)) == []


@each_tool
def test_strict_schema_keeps_to_what_openai_takes(tool):
    assert list(shapes.strict_problems(tool.strict_schema)) == []


@each_tool
def test_definitions(tool):
    conforms(tool.to_anthropic(), shapes.ANTHROPIC_TOOL)
    conforms(tool.to_openai(), shapes.OPENAI_RESPONSES_TOOL)
    conforms(tool.to_openai(api="chat"), shapes.OPENAI_CHAT_TOOL)
    conforms(tool.to_mcp(), shapes.MCP_TOOL)


@each_tool
def test_description_is_short(tool):
    assert 40 < len(tool.description) < 500


@each_result
def test_results(result):
    conforms(result.to_anthropic("toolu_1"), shapes.ANTHROPIC_RESULT)
    conforms(result.to_openai("call_1"), shapes.OPENAI_RESPONSES_RESULT)
    conforms(result.to_openai("call_1", api="chat"), shapes.OPENAI_CHAT_RESULT)
    conforms(result.to_mcp(), shapes.MCP_RESULT)


def test_an_id_may_be_added_later():
    assert "tool_use_id" not in TEXT.to_anthropic()
    assert "call_id" not in TEXT.to_openai()
    assert "tool_call_id" not in TEXT.to_openai(api="chat")


def test_chat_names_what_it_cannot_show():
    assert MIXED.to_openai("call_1", api="chat")["content"] == (
        "a picture\n[image/png, 4 bytes, cannot be shown here]"
    )


def test_the_text_of_a_result():
    assert MIXED.text == "a picture"
    assert "PNG" not in repr(MIXED)


def test_errors_are_marked():
    assert MIXED.to_anthropic()["is_error"] is True
    assert MIXED.to_mcp()["isError"] is True
    assert TEXT.to_mcp()["isError"] is False
