"""What an MCP server answers, as a model is to see it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import mimetypes
from typing import TYPE_CHECKING, Final

import mcp_types as types

from isobox._workspace.tools.result import DataBlock, TextBlock, ToolResult
from isobox._workspace.tools.wording import MOST_TEXT, clean, cut, note
from isobox.errors import IsoboxError, McpError

if TYPE_CHECKING:
    from isobox._workspace.tools.session import Session

#: Bytes of an image that models' interfaces take.
_MOST_DATA: Final = 5 << 20
#: Blocks of one answer.
_MOST_BLOCKS: Final = 200
#: What models can look at.
_SHOWN: Final = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))


async def shown(result: types.CallToolResult, session: Session) -> ToolResult:
    """Return an answer for a model; what is long or no text is kept in a file.

    Raises:
        McpError: It holds what is not what it says it is.
    """
    blocks = [await _block(each, session) for each in result.content[:_MOST_BLOCKS]]
    blocks = await _fitting(blocks, session)
    if len(result.content) > _MOST_BLOCKS:
        more = len(result.content) - _MOST_BLOCKS
        blocks.append(TextBlock(note(f"{more} more blocks are left out")))
    if not blocks:
        blocks = await _structured(result, session)
    return ToolResult(
        blocks=tuple(blocks),
        is_error=result.is_error is True,
        metadata={"mcp": True},
    )


async def _fitting(
    blocks: list[TextBlock | DataBlock], session: Session
) -> list[TextBlock | DataBlock]:
    """Return blocks with no more text than one may have."""
    texts = [each.text for each in blocks if isinstance(each, TextBlock)]
    if len(texts) < 2 or sum(map(len, texts)) <= MOST_TEXT:
        return blocks
    every = await _text("\n".join(texts), session)
    return [every, *(each for each in blocks if isinstance(each, DataBlock))]


async def _structured(
    result: types.CallToolResult, session: Session
) -> list[TextBlock | DataBlock]:
    if result.structured_content is None:
        return [TextBlock(note("the server answered nothing"))]
    # Without an indent, which makes much of little that is nested deeply.
    told = json.dumps(result.structured_content, ensure_ascii=False)
    return [await _text(told, session)]


async def _block(block: types.ContentBlock, session: Session) -> TextBlock | DataBlock:
    match block:
        case types.TextContent():
            return await _text(block.text, session)
        case types.ImageContent() | types.AudioContent():
            return await _data(_decoded(block.data), block.mime_type, session)
        case types.ResourceLink():
            about = f": {block.description}" if block.description else ""
            return await _text(
                note(f"resource {block.uri} {block.name}{about}"), session
            )
        case types.EmbeddedResource():
            return await contents(block.resource, session)


async def contents(
    resource: types.TextResourceContents | types.BlobResourceContents,
    session: Session,
) -> TextBlock | DataBlock:
    """Return the content of a resource for a model.

    Raises:
        McpError: It is no base64.
    """
    if isinstance(resource, types.TextResourceContents):
        return await _text(resource.text, session)
    kind = resource.mime_type or "application/octet-stream"
    return await _data(_decoded(resource.blob), kind, session)


async def _text(text: str, session: Session) -> TextBlock:
    text = clean(text)
    if len(text) <= MOST_TEXT:
        return TextBlock(text)
    path = session.offload_path()
    where = await _kept(session, path, text.encode())
    return TextBlock(cut(text, f"{len(text):,} characters; {where}"))


async def _data(data: bytes, kind: str, session: Session) -> TextBlock | DataBlock:
    if kind in _SHOWN and len(data) <= _MOST_DATA:
        return DataBlock(kind, data)
    name = hashlib.sha256(data).hexdigest() + (mimetypes.guess_extension(kind) or "")
    path = f"{session.workspace.root.rstrip('/')}/data/{name}"
    where = await _kept(session, path, data)
    return TextBlock(clean(note(f"{len(data):,} bytes of {kind[:100]}; {where}")))


async def _kept(session: Session, path: str, data: bytes) -> str:
    try:
        await session.workspace.write(path, data)
    except IsoboxError as error:
        return f"they could not be kept: {error.message}"
    return f"all of it is in {session.shown(path)}"


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise McpError(f"the server sent data that is no base64: {error}") from error
