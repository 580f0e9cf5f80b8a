"""What a tool returns, and how the model providers' interfaces want it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Text of a result."""

    text: str


@dataclass(frozen=True, slots=True)
class DataBlock:
    """Bytes of a result, such as an image.

    Attributes:
        media_type: What they are, such as `image/png`.
        data: The bytes.
    """

    media_type: str
    data: bytes = field(repr=False)

    @property
    def base64(self) -> str:
        """The bytes as text."""
        return base64.b64encode(self.data).decode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool returns to a model.

    Attributes:
        blocks: What the model sees, in order.
        is_error: The tool could not do what was asked; the text says why and
            what to try. A command that ends with a non-zero status is no error.
        metadata: Facts for the program around the model, such as `exit_code`.
    """

    blocks: tuple[TextBlock | DataBlock, ...]
    is_error: bool = False
    metadata: Mapping[str, object] = field(default_factory=dict[str, object])

    def redacted(self, redact: Callable[[str], str]) -> ToolResult:
        """Return it with every text for the model changed by `redact`."""
        blocks = tuple(
            TextBlock(redact(block.text)) if isinstance(block, TextBlock) else block
            for block in self.blocks
        )
        return replace(self, blocks=blocks)

    @property
    def text(self) -> str:
        """All the text, without the data."""
        return "\n".join(
            block.text for block in self.blocks if isinstance(block, TextBlock)
        )

    def to_anthropic(self, tool_use_id: str | None = None) -> Json:
        """Return it as a `tool_result` block of Anthropic's Messages API.

        Args:
            tool_use_id: The id of the call; left out if None.
        """
        named = {} if tool_use_id is None else {"tool_use_id": tool_use_id}
        return {
            "type": "tool_result",
            **named,
            "content": [_anthropic(block) for block in self.blocks],
            "is_error": self.is_error,
        }

    def to_openai(
        self,
        call_id: str | None = None,
        *,
        api: Literal["responses", "chat"] = "responses",
    ) -> Json:
        """Return it as OpenAI's Responses or Chat Completions API wants it.

        Chat Completions takes text alone: there an image is only named.

        Args:
            call_id: The id of the call; left out if None.
            api: Which of the two.
        """
        if api == "chat":
            named = {} if call_id is None else {"tool_call_id": call_id}
            return {"role": "tool", **named, "content": self._as_text()}
        named = {} if call_id is None else {"call_id": call_id}
        return {
            "type": "function_call_output",
            **named,
            "output": [_openai(block) for block in self.blocks],
        }

    def to_mcp(self) -> Json:
        """Return it as the result of MCP's `tools/call`."""
        return {
            "content": [_mcp(block) for block in self.blocks],
            "isError": self.is_error,
        }

    def _as_text(self) -> str:
        return "\n".join(
            block.text if isinstance(block, TextBlock) else _named(block)
            for block in self.blocks
        )


def _named(block: DataBlock) -> str:
    return f"[{block.media_type}, {len(block.data)} bytes, cannot be shown here]"


def _anthropic(block: TextBlock | DataBlock) -> Json:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    source = {"type": "base64", "media_type": block.media_type, "data": block.base64}
    return {"type": "image", "source": source}


def _openai(block: TextBlock | DataBlock) -> Json:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text}
    url = f"data:{block.media_type};base64,{block.base64}"
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def _mcp(block: TextBlock | DataBlock) -> Json:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    return {"type": "image", "data": block.base64, "mimeType": block.media_type}
