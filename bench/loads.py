"""What the egress bench measures, and how a result reads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from measure import MB, duration
from origin import LARGE, OPEN, SECRET, SMALL, VALUE
from table import Line

#: Targets: seconds that a request may take longer than without a filter, bytes a
#: second, requests a second.
ADDED = 1.5e-3
RATE = 300 * MB
REQUESTS = 2000

#: What the client says of a run, by name.
Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Way:
    """How a request gets to the server.

    Attributes:
        title: What the table calls it.
        to: The client's words for it, in the sandbox.
        direct: Who does the same without a filter.
        rival: Who does the same by mitmproxy.
        issuer: Who must have signed the certificate that the client sees.
    """

    title: str
    to: tuple[str, ...]
    direct: str
    rival: str | None = None
    issuer: str = ""


HTTP = (OPEN, "80")
HTTPS = ("-s", OPEN, "443")
KEYED = ("-s", SECRET, "443")

DIRECT = {
    "HTTP": HTTP,
    "HTTPS": HTTPS,
    "HTTPS with the key": ("-H", f"Authorization: {VALUE}", *KEYED),
}


def ways(proxy: str) -> list[Way]:
    """Return isobox's ways to the server."""
    return [
        Way("HTTP, caught", HTTP, "HTTP", "mitmproxy HTTP"),
        Way("HTTP, by the proxy", ("-p", proxy, *HTTP), "HTTP", "mitmproxy HTTP"),
        Way("HTTPS, passed through", HTTPS, "HTTPS", None, "bench"),
        Way(
            "HTTPS, read, key attached",
            KEYED,
            "HTTPS with the key",
            "mitmproxy HTTPS",
            "isobox workspace CA",
        ),
    ]


@dataclass(frozen=True, slots=True)
class Kind:
    """What is measured.

    Attributes:
        title: What the table calls it.
        load: The client's words for it.
        path: What is asked for.
        value: What is taken of the client's report; larger is better unless it
            is a time.
    """

    title: str
    load: tuple[str, ...]
    path: str
    value: Callable[[Report], float]
    time: bool = False
    target: float | None = None


def _rate(report: Report) -> float:
    rate: float = report["requests"] / report["seconds"]
    return rate


KINDS = {
    "kept": Kind(
        "a request on a kept connection",
        ("-k", "-n", "1000"),
        SMALL,
        lambda report: report["median"],
        time=True,
        target=ADDED,
    ),
    "new": Kind(
        "a request on a new connection",
        ("-n", "300"),
        SMALL,
        lambda report: report["median"],
        time=True,
        target=ADDED,
    ),
    "stream": Kind(
        "one stream of 1 GB",
        ("-n", "1"),
        LARGE,
        lambda report: report["bytes"] / report["seconds"],
        target=RATE,
    ),
    "many": Kind(
        "32 kept connections",
        ("-k", "-c", "32", "-n", "6000"),
        SMALL,
        _rate,
        target=REQUESTS,
    ),
    "many-new": Kind(
        "32 new connections at a time", ("-c", "32", "-n", "1500"), SMALL, _rate
    ),
}


def said(kind: Kind, value: float) -> str:
    """Return a value with its unit."""
    if kind.time:
        return duration(value)
    if kind.path == LARGE:
        return f"{value / MB:.0f} MB/s"
    return f"{value:.0f}/s"


def line(kind: Kind, way: Way, found: dict[str, float]) -> Line:
    """Hold isobox's median against its target, and against the others'."""
    ours, direct = found[way.title], found[way.direct]
    theirs = None if way.rival is None else found[way.rival]
    others = f"direct: {said(kind, direct)}"
    ratio = (
        f"+ {duration(ours - direct)}" if kind.time else f"{ours / direct:.2f} x direct"
    )
    target, met = _target(kind, ours, direct)
    if theirs is not None:
        others += f"; mitmproxy: {said(kind, theirs)}"
        gain = theirs / ours if kind.time else ours / theirs
        ratio += f", {gain:.1f} x faster"
        target = f"{target}, faster" if target else "faster"
        met = (met is not False) and gain > 1
    work = f"{kind.title}: {way.title}"
    return Line(work, said(kind, ours), others, ratio, target, met)


def _target(kind: Kind, ours: float, direct: float) -> tuple[str, bool | None]:
    if kind.target is None:
        return "", None
    if kind.time:
        return f"≤ + {duration(kind.target)}", ours - direct <= kind.target
    return f"≥ {said(kind, kind.target)}", ours >= kind.target
