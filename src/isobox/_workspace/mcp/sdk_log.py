"""What the official client logs of a server, kept from the host's own log."""

from __future__ import annotations

import contextlib
import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Generator

    from isobox._workspace.mcp.log import Log

#: The client's loggers that tell of what a server sent.
_LOGGERS: Final = (
    "client",
    "mcp.client.client",
    "mcp.client.sse",
    "mcp.client.streamable_http",
    "mcp.shared._httpx_utils",
    "mcp.shared.jsonrpc_dispatcher",
)
#: Characters of one line.
_LONGEST: Final = 1000

_LOG: ContextVar[Log | None] = ContextVar("isobox_mcp_log", default=None)


@contextlib.contextmanager
def kept_in(log: Log) -> Generator[None]:
    """Put what the client logs in here, and in tasks from here, into a log."""
    token = _LOG.set(log)
    try:
        yield
    finally:
        _LOG.reset(token)


class _Keeping(logging.Filter):
    @override
    def filter(self, record: logging.LogRecord) -> bool:
        log = _LOG.get()
        if log is None:
            return True
        # SAFETY: a server would write to the host's terminal, without an end.
        log.line(record.getMessage()[:_LONGEST])
        return False


for _name in _LOGGERS:
    logging.getLogger(_name).addFilter(_Keeping())
