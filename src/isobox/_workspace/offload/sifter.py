"""Messages as lines of JSON, with what is large or binary set aside."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, cast, runtime_checkable

from isobox._core.paths import reference
from isobox._workspace.offload.names import data_name
from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from isobox._egress.redact import Redactor

#: Characters of a text that stays where it is.
LONGEST_TEXT: Final = 256 << 10
#: Levels of what lies in one another.
DEEPEST: Final = 64
_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w.=+-]+)*;base64,")
#: What ends a line for some readers, as the escapes that JSON has.
_ENDS: Final = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_MEDIA_TYPE: Final = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}", re.ASCII)
#: The media type of bytes of which nothing is known.
ANY_BYTES: Final = "application/octet-stream"
#: What says of itself that its `data` is Base64: sources of two APIs, MCP's content.
#: The `blob` of MCP's resources always is.
_BINARY: Final = ("base64", "image", "audio")
#: What a media type is called: on the wire of an API, of MCP, and by MCP's client.
_KINDS: Final = ("media_type", "mimeType", "mime_type")


@runtime_checkable
class Model(Protocol):
    """A message of a library that says itself what it is as JSON."""

    def model_dump(self, *, mode: str) -> object:
        """Return it as mappings, lists and texts."""
        ...


class Sifter:
    """Sets aside what does not belong in a line of text.

    Attributes:
        aside: What was set aside, by its name in `data/`.
    """

    def __init__(self, redactor: Redactor | None) -> None:
        self.aside: dict[str, bytes] = {}
        self._redactor = redactor

    def line(self, message: object) -> bytes:
        """Return a message as one line, with its end.

        Raises:
            InvalidArgumentError: It is nothing that JSON can hold.
        """
        text = self.json(message).translate(_ENDS)
        return text.encode("utf-8", "backslashreplace") + b"\n"

    def json(self, value: object) -> str:
        """Return a value as JSON on one line.

        Raises:
            InvalidArgumentError: It is nothing that JSON can hold.
        """
        try:
            sifted = self._sifted(value, 0)
            # Half a surrogate pair becomes an escape that JSON has, see `line`.
            return json.dumps(sifted, ensure_ascii=False, allow_nan=False)
        except InvalidArgumentError:
            raise
        except ValueError as error:
            raise InvalidArgumentError(f"no message of JSON: {error}") from None

    def text(self, text: str) -> str:
        """Return a text without the values of secrets."""
        return text if self._redactor is None else self._redactor.redact_text(text)

    def kind(self, media_type: str) -> str:
        """Return a media type without what would be none, or a secret."""
        kind = media_type.partition(";")[0].strip()
        return self.text(kind) if _MEDIA_TYPE.fullmatch(kind) else ANY_BYTES

    def put(self, data: bytes, media_type: str) -> str:
        """Set bytes aside and return the reference to them."""
        if self._redactor is not None:
            data = self._redactor.mask(data)
        name = data_name(data, media_type)
        self.aside[name] = data
        return reference(f"data/{name}")

    def _sifted(self, value: object, depth: int) -> object:
        if depth > DEEPEST:
            raise InvalidArgumentError(f"a message is over {DEEPEST} levels deep")
        if isinstance(value, str):
            return self._string(value)
        if (data := bytes_of(value)) is not None:
            return self.put(data, ANY_BYTES)
        if value is None or isinstance(value, bool | int | float):
            return self._number(value)
        if isinstance(value, Mapping):
            return self._mapping(cast("Mapping[object, object]", value), depth)
        if isinstance(value, Sequence):
            items = cast("Sequence[object]", value)
            return [self._sifted(item, depth + 1) for item in items]
        if isinstance(value, Model):
            return self._sifted(value.model_dump(mode="json"), depth + 1)
        raise InvalidArgumentError(
            f"a message holds a {type(value).__name__}, which JSON cannot"
        )

    def _number(self, value: float | None) -> object:
        shown = self.text(str(value)) if self._redactor and value is not None else ""
        return shown if "*" in shown else value

    def _string(self, text: str) -> str:
        if found := _URL.match(text):
            data = _decoded(text[found.end() :])
            if data is not None:
                return self.put(data, found[1] or ANY_BYTES)
        if len(text) > LONGEST_TEXT:
            return self.put(text.encode("utf-8", "backslashreplace"), "text/plain")
        return self.text(text)

    def _mapping(self, given: Mapping[object, object], depth: int) -> object:
        fields = {self.text(str(key)): value for key, value in given.items()}
        media_type = next((fields[key] for key in _KINDS if key in fields), None)
        name = "data" if fields.get("type") in _BINARY else "blob"
        data = fields.get(name)
        if isinstance(data, str) and isinstance(media_type, str):
            content = _decoded(data)
            if content is not None:
                del fields[name]
                fields["url"] = self.put(content, media_type)
                if fields.get("type") == "base64":
                    fields["type"] = "url"
        return {key: self._sifted(value, depth + 1) for key, value in fields.items()}


def bytes_of(value: object) -> bytes | None:
    """Return the bytes that a value is; None if it is something else."""
    buffers = (bytes, bytearray, memoryview)
    return bytes(cast("bytes", value)) if isinstance(value, buffers) else None


def _decoded(text: str) -> bytes | None:
    """Return what Base64 stands for; None if it is none."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
