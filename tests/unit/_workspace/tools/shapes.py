"""What the model providers' interfaces accept, as JSON Schemas."""

from __future__ import annotations

NAME = {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"}
PARAMETERS = {
    "type": "object",
    "properties": {"type": {"const": "object"}, "properties": {"type": "object"}},
    "required": ["type", "properties"],
}


def exactly(required, **optional):
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


BASE64 = {"type": "string", "pattern": "^[A-Za-z0-9+/]+={0,2}$"}
IMAGE_TYPE = {"enum": ["image/jpeg", "image/png", "image/gif", "image/webp"]}

ANTHROPIC_TOOL = exactly(
    {
        "name": NAME,
        "description": {"type": "string", "minLength": 1},
        "input_schema": PARAMETERS,
    }
)
ANTHROPIC_RESULT = exactly(
    {
        "type": {"const": "tool_result"},
        "tool_use_id": {"type": "string"},
        "content": {
            "type": "array",
            "items": {
                "oneOf": [
                    exactly({"type": {"const": "text"}, "text": {"type": "string"}}),
                    exactly(
                        {
                            "type": {"const": "image"},
                            "source": exactly(
                                {
                                    "type": {"const": "base64"},
                                    "media_type": IMAGE_TYPE,
                                    "data": BASE64,
                                }
                            ),
                        }
                    ),
                ]
            },
        },
        "is_error": {"type": "boolean"},
    }
)

#: Of the keywords that JSON Schema has, those that `strict` takes.
STRICT_KEYWORDS = {
    "type",
    "description",
    "properties",
    "required",
    "additionalProperties",
    "enum",
    "items",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
}
OPENAI_FUNCTION = {
    "name": NAME,
    "description": {"type": "string"},
    "parameters": PARAMETERS,
    "strict": {"const": True},
}
OPENAI_RESPONSES_TOOL = exactly({"type": {"const": "function"}, **OPENAI_FUNCTION})
OPENAI_CHAT_TOOL = exactly(
    {"type": {"const": "function"}, "function": exactly(OPENAI_FUNCTION)}
)
OPENAI_RESPONSES_RESULT = exactly(
    {
        "type": {"const": "function_call_output"},
        "call_id": {"type": "string"},
        "output": {
            "type": "array",
            "items": {
                "oneOf": [
                    exactly(
                        {"type": {"const": "input_text"}, "text": {"type": "string"}}
                    ),
                    exactly(
                        {
                            "type": {"const": "input_image"},
                            "image_url": {
                                "type": "string",
                                "pattern": "^data:image/(png|jpeg|gif|webp);base64,",
                            },
                            "detail": {"enum": ["low", "high", "auto"]},
                        }
                    ),
                ]
            },
        },
    }
)
OPENAI_CHAT_RESULT = exactly(
    {
        "role": {"const": "tool"},
        "tool_call_id": {"type": "string"},
        "content": {"type": "string"},
    }
)

MCP_TOOL = exactly(
    {
        "name": NAME,
        "description": {"type": "string"},
        "inputSchema": PARAMETERS,
        "annotations": exactly(
            {},
            title={"type": "string"},
            readOnlyHint={"type": "boolean"},
            destructiveHint={"type": "boolean"},
            idempotentHint={"type": "boolean"},
            openWorldHint={"type": "boolean"},
        ),
    }
)
MCP_RESULT = exactly(
    {
        "content": {
            "type": "array",
            "items": {
                "oneOf": [
                    exactly({"type": {"const": "text"}, "text": {"type": "string"}}),
                    exactly(
                        {
                            "type": {"const": "image"},
                            "data": BASE64,
                            "mimeType": {"type": "string"},
                        }
                    ),
                ]
            },
        },
        "isError": {"type": "boolean"},
    }
)


def strict_problems(schema, where="$"):
    """Say where a schema leaves what OpenAI takes with `strict`."""
    if unknown := schema.keys() - STRICT_KEYWORDS:
        yield f"{where}: {sorted(unknown)}"
    if schema["type"] == "object":
        if schema["additionalProperties"] is not False:
            yield f"{where}: additionalProperties"
        if schema["required"] != list(schema["properties"]):
            yield f"{where}: required"
        for name, each in schema["properties"].items():
            yield from strict_problems(each, f"{where}.{name}")
    if "items" in schema:
        yield from strict_problems(schema["items"], f"{where}[]")


def undescribed(schema, where="$"):
    """Say which properties have no description."""
    for name, each in schema.get("properties", {}).items():
        if not each.get("description"):
            yield f"{where}.{name}"
        yield from undescribed(each.get("items", {}), f"{where}.{name}[]")
