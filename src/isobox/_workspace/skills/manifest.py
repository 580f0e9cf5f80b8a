"""What a SKILL.md says of its skill, as the Agent Skills format has it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from yaml.events import Event

#: Bytes of the front matter, with its marks, and of a whole SKILL.md.
LARGEST_FRONT: Final = 8 << 10
LARGEST: Final = 1 << 20
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_LONGEST_NAME: Final = 64
_LONGEST_DESCRIPTION: Final = 1024
_LONGEST_COMPATIBILITY: Final = 500
_DEEPEST: Final = 4
_MOST_BRACKETS: Final = 200
_TOOL: Final = re.compile(r"[^\s(),]+(?:\([^)]*\))?")
_FRONT: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE
)
#: Joins and styles characters, as in emoji and in Persian: one behind another sign.
_JOINERS: Final = re.compile(
    "(?<=[0-9#*\u00a9-\u200b\u200e-\ufdff\ufe10-\U000dffff])[\ufe0e\ufe0f]"
    "|(?<=[\u00a9-\u200b\u200e-\U000dffff])[\u200c\u200d]"
)
#: Letters and marks that Unicode calls printable and that nobody sees: enough of them
#: hold any text.
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)

#: Front matter: text, lists and mappings; numbers and dates stay text.
Value: TypeAlias = "str | list[Value] | dict[str, Value]"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The front matter of a SKILL.md.

    Attributes:
        name: As the file has it, "" if it has none.
        description: What the skill does and when to use it, on one line.
        problems: What is wrong with the file, "" if nothing.
        license: A licence's name, or that of a file in the skill.
        compatibility: What the skill needs.
        metadata: More of it, by name.
        allowed_tools: Tools that the skill would like to use; nothing is allowed
            by it.
    """

    name: str = ""
    description: str = ""
    problems: tuple[str, ...] = ()
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    allowed_tools: tuple[str, ...] = ()


class _BadError(ValueError):
    """The front matter cannot be read; the text says why."""


def manifest_of(data: bytes, directory: str | None = None) -> Manifest:
    """Return what a SKILL.md, or its beginning, says; it never fails.

    Args:
        data: The file, or at least its first `LARGEST_FRONT` bytes.
        directory: The name of the directory that it is in, which must be the
            skill's; any if None.
    """
    try:
        fields = _fields(data)
    except _BadError as error:
        return Manifest(problems=(str(error),))
    described = _line(fields.get("description"))
    return Manifest(
        name=_line(fields.get("name")),
        description=described,
        problems=tuple(_problems(fields, directory)),
        license=_line(fields.get("license")) or None,
        compatibility=_line(fields.get("compatibility")) or None,
        metadata=_metadata(fields.get("metadata")),
        allowed_tools=_tools(fields.get("allowed-tools")),
    )


def is_name(text: str) -> bool:
    """Return whether a skill may be called so."""
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


def body_of(text: str) -> str:
    """Return a SKILL.md without its front matter."""
    raw = text.encode("utf-8", "surrogatepass")
    found = _FRONT.match(raw)
    rest = raw[found.end() :] if found else raw
    return rest.decode("utf-8", "surrogatepass").strip("\r\n")


def _fields(data: bytes) -> dict[str, Value]:
    # SAFETY: the file is the sandbox's; its front is bounded before it is parsed.
    found = _FRONT.match(data[:LARGEST_FRONT])
    if found is None:
        raise _BadError(
            "SKILL.md does not begin with front matter between two lines of `---`, "
            f"of at most {LARGEST_FRONT} bytes"
        )
    try:
        text = found[1].decode()
    except UnicodeDecodeError:
        raise _BadError("the front matter is not UTF-8") from None
    fields = _parsed(text)
    if not isinstance(fields, dict):
        raise _BadError("the front matter is no mapping of names to values")
    return fields


def _parsed(text: str) -> Value:
    # SAFETY: the parser takes time that grows with the square of open brackets.
    if sum(map(text.count, "[{")) > _MOST_BRACKETS:
        raise _BadError("the front matter has too many brackets")
    # YAML is needed for skills alone.
    import yaml  # noqa: PLC0415

    events = yaml.parse(text, Loader=yaml.BaseLoader)
    try:
        return _value(_Events(event for event in events if not _is_frame(event)), 0)
    except _BadError:
        raise
    # SAFETY: escapes and versions whose number is no character's, or no number's,
    # raise the latter two.
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise _BadError(f"the front matter is no YAML: {_line(problem)}") from None


class _Events:
    """The events of a YAML text, each looked at before it is taken."""

    def __init__(self, events: Iterator[Event]) -> None:
        self._events = events

    def take(self) -> Event | None:
        """Return the next; None at the end."""
        event = next(self._events, None)
        # SAFETY: a few lines of aliases stand for more than any memory holds.
        if getattr(event, "anchor", None) is not None:
            raise _BadError(
                "the front matter has anchors or aliases, which are refused"
            )
        return event


def _is_frame(event: Event) -> bool:
    import yaml  # noqa: PLC0415

    frames = (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentStartEvent)
    return isinstance(event, (*frames, yaml.DocumentEndEvent))


def _value(events: _Events, depth: int) -> Value:
    value = _next(events, depth)
    return "" if value is None else value


def _next(events: _Events, depth: int) -> Value | None:
    """Return the next value; None where a collection, or all, ends."""
    import yaml  # noqa: PLC0415

    if depth > _DEEPEST:
        raise _BadError(f"the front matter is over {_DEEPEST} levels deep")
    event = events.take()
    if isinstance(event, yaml.ScalarEvent):
        return str(event.value)
    if isinstance(event, yaml.SequenceStartEvent):
        return list(iter(lambda: _next(events, depth + 1), None))
    if not isinstance(event, yaml.MappingStartEvent):
        return None
    fields: dict[str, Value] = {}
    for key in iter(lambda: _next(events, depth + 1), None):
        if not isinstance(key, str) or key in fields:
            raise _BadError("the front matter has a name twice, or one that is no text")
        fields[key] = _value(events, depth + 1)
    return fields


def _problems(fields: dict[str, Value], directory: str | None) -> Iterator[str]:
    for name in ("name", "description", "license", "compatibility"):
        value = fields.get(name, "")
        if not isinstance(value, str):
            yield f"{name} is no text"
        elif not _is_seen(value):
            yield f"{name} holds characters that are not seen"
    yield from _of_name(_line(fields.get("name")), directory)
    described = _line(fields.get("description"))
    if not 0 < len(described) <= _LONGEST_DESCRIPTION:
        yield f"description must have 1 to {_LONGEST_DESCRIPTION} characters"
    if len(_line(fields.get("compatibility"))) > _LONGEST_COMPATIBILITY:
        yield f"compatibility has over {_LONGEST_COMPATIBILITY} characters"
    if not isinstance(fields.get("metadata", {}), dict):
        yield "metadata is no mapping"


def _of_name(name: str, directory: str | None) -> Iterator[str]:
    if not is_name(name):
        yield (
            f"name must be 1 to {_LONGEST_NAME} lower-case letters, digits and single "
            "hyphens between them"
        )
    elif directory is not None and name != directory:
        yield f"name is {name!r}, and that of the directory another"


def _is_seen(text: str) -> bool:
    # SAFETY: a person reads the list, and what is unseen could steer a model.
    rest = _JOINERS.sub("", " ".join(text.split()))
    return rest.isprintable() and not _BLANK.search(rest)


def _line(value: Value | None) -> str:
    """Return a text on one line, bounded; "" for what is none."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return text if _is_seen(text) else ""


def _metadata(value: Value | None) -> dict[str, str]:
    given = value if isinstance(value, dict) else {}
    return {_line(name): _line(each) for name, each in given.items()}


def _tools(value: Value | None) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    found = (each for each in texts if isinstance(each, str))
    return tuple(tool for each in found for tool in _TOOL.findall(_line(each)))
