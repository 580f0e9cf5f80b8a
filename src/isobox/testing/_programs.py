"""The programs of the memory sandbox: few, small, and like their namesakes."""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isobox._core.paths import resolve
from isobox.errors import PathError, StorageError
from isobox.testing._tree import encoded, require_file, require_readable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from isobox.abc import ByteStream
    from isobox.testing._pipes import Output
    from isobox.testing._tree import Tree

_PIECE = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A program's whole world."""

    name: str
    args: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    tree: Tree
    stdin: ByteStream
    stdout: Output
    stderr: Output
    running: Callable[[], list[str]]

    def path(self, name: str) -> str:
        """Return a name as an absolute path."""
        return resolve(name, root=self.cwd if name[:1] != "/" else "/", confined=False)

    async def say(self, text: str) -> None:
        """Print one line."""
        await self.stdout.put(encoded(text) + b"\n")

    async def complain(self, text: str) -> int:
        """Print one line of error and return a failure's status."""
        await self.stderr.put(encoded(f"{self.name}: {text}\n"))
        return 1


async def _true(call: Call) -> int:
    del call
    return 0


async def _false(call: Call) -> int:
    del call
    return 1


async def _echo(call: Call) -> int:
    await call.say(" ".join(call.args))
    return 0


async def _printf(call: Call) -> int:
    shape, values = encoded(call.args[0]), [encoded(part) for part in call.args[1:]]
    shape = re.sub(rb"\\([0-7]{1,3}|n|t|r|\\)", lambda found: _escape(found[1]), shape)
    rounds = max(1, -(-len(values) // max(1, shape.count(b"%s"))))
    left = iter(values)
    for _ in range(rounds if b"%s" in shape else 1):
        text = re.sub(rb"%s", lambda _: next(left, b""), shape)
        await call.stdout.put(text)
    return 0


def _escape(code: bytes) -> bytes:
    named = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"\\": b"\\"}
    return named.get(code) or bytes([int(code, 8) & 0xFF])


async def _cat(call: Call) -> int:
    status = 0
    for name in call.args or ["-"]:
        try:
            async for piece in _content(call, name):
                await call.stdout.put(piece)
        except (PathError, StorageError) as error:
            status = await call.complain(str(error))
    return status


async def _content(call: Call, name: str) -> AsyncIterator[bytes]:
    if name == "-":
        async for piece in call.stdin:
            yield piece
        return
    node = call.tree.node(call.path(name))
    while node.kind == "device" and call.path(name) == "/dev/zero":
        yield bytes(_PIECE)
    if node.kind != "device":
        require_file(node, name)
        require_readable(node, name)
    yield node.data


async def _head(call: Call) -> int:
    left = int(call.args[1])
    async for piece in _content(call, call.args[2]):
        await call.stdout.put(piece[:left])
        left -= min(left, len(piece))
        if not left:
            break
    return 0


async def _sleep(call: Call) -> int:
    await asyncio.sleep(float(call.args[0]))
    return 0


async def _pwd(call: Call) -> int:
    await call.say(call.cwd)
    return 0


async def _printenv(call: Call) -> int:
    if not call.args:
        for name, value in call.env.items():
            await call.say(f"{name}={value}")
        return 0
    for name in call.args:
        if name in call.env:
            await call.say(call.env[name])
    return 0 if all(name in call.env for name in call.args) else 1


async def _yes(call: Call) -> int:
    text = encoded(" ".join(call.args) or "y") + b"\n"
    many = text * (_PIECE // len(text) or 1)
    while True:
        await call.stdout.put(many)


async def _seq(call: Call) -> int:
    first, last = int(call.args[0]), int(call.args[1])
    for start in range(first, last + 1, 1000):
        numbers = range(start, min(start + 1000, last + 1))
        await call.stdout.put("".join(f"{number}\n" for number in numbers).encode())
    return 0


async def _wc(call: Call) -> int:
    total = 0
    async for piece in call.stdin:
        total += len(piece)
    await call.say(str(total))
    return 0


async def _sha256sum(call: Call) -> int:
    for name in call.args or ["-"]:
        digest = hashlib.sha256()
        async for piece in _content(call, name):
            digest.update(piece)
        await call.say(f"{digest.hexdigest()}  {name}")
    return 0


async def _mkdir(call: Call) -> int:
    for name in call.args:
        if name != "-p":
            call.tree.make_directories(call.path(name))
    return 0


async def _mkfifo(call: Call) -> int:
    for name in call.args:
        call.tree.make(call.path(name), "fifo")
    return 0


async def _ln(call: Call) -> int:
    _, target, name = call.args
    call.tree.make(call.path(name), "symlink", target=target)
    return 0


async def _chmod(call: Call) -> int:
    for name in call.args[1:]:
        call.tree.node(call.path(name)).mode = int(call.args[0], 8)
    return 0


async def _touch(call: Call) -> int:
    _, moment, *names = call.args
    for name in names:
        place = call.tree.place(call.path(name))
        node = place.node or call.tree.make(place.path, "file")
        node.mtime_ns = int(moment.removeprefix("@")) * 10**9
    return 0


async def _ps(call: Call) -> int:
    for line in call.running():
        await call.say(line)
    return 0


PROGRAMS: Mapping[str, Callable[[Call], Awaitable[int]]] = {
    "cat": _cat,
    "chmod": _chmod,
    "echo": _echo,
    "false": _false,
    "head": _head,
    "ln": _ln,
    "mkdir": _mkdir,
    "mkfifo": _mkfifo,
    "printenv": _printenv,
    "printf": _printf,
    "ps": _ps,
    "pwd": _pwd,
    "seq": _seq,
    "sha256sum": _sha256sum,
    "sleep": _sleep,
    "touch": _touch,
    "true": _true,
    "wc": _wc,
    "yes": _yes,
}
