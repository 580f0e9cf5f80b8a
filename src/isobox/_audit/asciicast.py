"""Recordings of terminals as asciicast v2, which asciinema plays."""

from __future__ import annotations

import codecs
import json
import os
import time
from typing import TYPE_CHECKING, Final, Literal

from typing_extensions import override

from isobox._audit.files import Descriptor
from isobox._core.wrapped import WrappedProcess, WrappedStream

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from isobox._core.results import ByteStream, Process

Code = Literal["o", "i", "m", "r"]

#: Bytes that a recording has at most, unless somebody says otherwise.
MAX_BYTES: Final = 64 << 20
_SMALLEST: Final = 4096


class Recorder:
    """Writes what a terminal shows to a new file of mode 0600, with times.

    Playing a recording sends to a terminal what the program sent.

    Args:
        path: The file; it must not exist.
        columns: Width of the terminal, in characters.
        rows: Its height.
        title: What the recording is called.
        keys: Keep what is typed too: passwords that are not shown are in it.
        redact: Masks secrets in a text. It sees one piece at a time; what a
            workspace's own processes print is masked before it comes here.
        max_bytes: The file's limit, at least 4,096; a marker says that the
            recording ends there, and the program goes on.

    Raises:
        OSError: The file is there already, or cannot be made.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        columns: int = 80,
        rows: int = 24,
        title: str | None = None,
        keys: bool = False,
        redact: Callable[[str], str] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.path = os.path.abspath(path)
        self._redact = redact
        self._keys = keys
        self._room = max(max_bytes, _SMALLEST)
        self._file = Descriptor(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._began = time.monotonic()
        self._texts = {code: _decoder() for code in ("o", "e", "i")}
        self._is_full = False
        header: dict[str, object] = {
            "version": 2,
            "width": columns,
            "height": rows,
            "timestamp": int(time.time()),
        }
        if title is not None:
            header["title"] = title if redact is None else redact(title)
        self._write(header)

    def output(self, data: bytes) -> None:
        """Record what the program printed.

        Raises:
            OSError: It cannot be written.
        """
        self._text("o", "o", data)

    def errors(self, data: bytes) -> None:
        """Record what it printed as errors; characters do not mix with its output.

        Raises:
            OSError: It cannot be written.
        """
        self._text("e", "o", data)

    def typed(self, data: bytes) -> None:
        """Record what was typed, if keys are kept.

        Raises:
            OSError: It cannot be written.
        """
        if self._keys:
            self._text("i", "i", data)

    def resize(self, columns: int, rows: int) -> None:
        """Record a new size of the terminal.

        Raises:
            OSError: It cannot be written.
        """
        self._event("r", f"{columns}x{rows}")

    def close(self) -> None:
        """Close the file; safe to call again."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _text(self, stream: str, code: Code, data: bytes) -> None:
        # A character may come in two pieces.
        if text := self._texts[stream].decode(data):
            self._event(code, text if self._redact is None else self._redact(text))

    def _event(self, code: Code, data: str) -> None:
        if not self._is_full:
            self._write([round(time.monotonic() - self._began, 6), code, data])

    def _write(self, value: object) -> None:
        line = _line(value)
        if len(line) > self._room - _SMALLEST // 2:
            self._is_full = True
            seconds = round(time.monotonic() - self._began, 6)
            line = _line([seconds, "m", "the recording reached its limit"])
        self._room -= len(line)
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._file.number, rest) :]


class RecordedProcess(WrappedProcess):
    """A process whose terminal is recorded, and that is as it was otherwise.

    What nobody reads is not recorded. Closing it closes the recording.
    """

    def __init__(self, inner: Process, recorder: Recorder) -> None:
        super().__init__(
            inner,
            stdout=_RecordedStream(inner.stdout, recorder.output),
            stderr=_RecordedStream(inner.stderr, recorder.errors),
        )
        self._recorder = recorder

    @override
    async def write(self, data: bytes) -> None:
        self._recorder.typed(data)
        await self._inner.write(data)

    @override
    async def resize(self, columns: int, rows: int) -> None:
        self._recorder.resize(columns, rows)
        await self._inner.resize(columns, rows)

    @override
    async def aclose(self) -> None:
        self._recorder.close()
        await self._inner.aclose()


class _RecordedStream(WrappedStream):
    def __init__(self, inner: ByteStream, record: Callable[[bytes], None]) -> None:
        super().__init__(inner)
        self._record = record

    @override
    async def receive(self) -> bytes:
        return self._noted(await self._inner.receive())

    @override
    def receive_nowait(self) -> bytes:
        return self._noted(self._inner.receive_nowait())

    def _noted(self, piece: bytes) -> bytes:
        if piece:
            self._record(piece)
        return piece


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


def _line(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=True, separators=(", ", ": "))
    return text.encode("ascii") + b"\n"
