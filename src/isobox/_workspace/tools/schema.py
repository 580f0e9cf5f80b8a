"""A tool's arguments, described once: their JSON Schema and their check."""

from __future__ import annotations

import dataclasses
import difflib
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Schema = dict[str, object]
T = TypeVar("T")

_SHAPE: Final = "isobox"
_LONGEST_SHOWN: Final = 60
#: The largest offset: what every JSON reader takes exactly.
FARTHEST: Final = 2**53 - 1


class BadArgumentsError(Exception):
    """What was given does not fit; the text tells a model what would."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape(ABC):
    """What one argument may be."""

    description: str
    required: bool
    default: object = None

    def schema(self) -> Schema:
        """Return its JSON Schema."""
        schema = {**self._type(), "description": self.description}
        if not self.required and self.default is not None:
            schema["default"] = self.default
        return schema

    def nullable(self) -> Schema:
        """Return its JSON Schema where every argument must be given."""
        schema = {**self._strict_type(), "description": self.description}
        if not self.required:
            schema["type"] = [schema["type"], "null"]
            if isinstance(choices := schema.get("enum"), list):
                schema["enum"] = [*cast("list[object]", choices), None]
            if self.default is not None:
                schema["description"] = f"{self.description} {self._otherwise()}"
        return schema

    def _otherwise(self) -> str:
        return f"null is {shown(self.default)}."

    @abstractmethod
    def _type(self) -> Schema: ...

    def _strict_type(self) -> Schema:
        return self._type()

    @abstractmethod
    def check(self, value: object, name: str) -> object:
        """Return the value as the tool takes it.

        Raises:
            BadArgumentsError: It does not fit.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Text(Shape):
    choices: tuple[str, ...] = ()
    empty: bool = True

    @override
    def _type(self) -> Schema:
        least: Schema = {} if self.empty else {"minLength": 1}
        return {**self._strict_type(), **least}

    @override
    def _strict_type(self) -> Schema:
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        return {"type": "string"}

    @override
    def check(self, value: object, name: str) -> object:
        if not isinstance(value, str):
            raise _unfit(name, value, "is no string; give a string")
        if self.choices and value not in self.choices:
            raise _unfit(
                name, value, f"is not allowed; give one of {_any_of(self.choices)}"
            )
        if not value and not self.empty:
            raise _unfit(name, value, "is empty; give some text")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadArgumentsError(
                f"{name}: character {error.start} is half of a surrogate pair; "
                "give whole Unicode characters"
            ) from None
        # Models leave text out by giving none.
        return value if value or self.required else self.default


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Number(Shape):
    whole: bool
    minimum: float | None = None
    maximum: float | None = None

    @override
    def _type(self) -> Schema:
        schema: Schema = {"type": "integer" if self.whole else "number"}
        if self.minimum is not None:
            schema["minimum"] = self.minimum
        if self.maximum is not None:
            schema["maximum"] = self.maximum
        return schema

    @override
    def check(self, value: object, name: str) -> object:
        kind = "whole number" if self.whole else "number"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _unfit(name, value, f"is no {kind}; give {self._allowed(kind)}")
        if self.whole and isinstance(value, float) and not value.is_integer():
            raise _unfit(name, value, f"is no {kind}; give {self._allowed(kind)}")
        low = -math.inf if self.minimum is None else self.minimum
        high = math.inf if self.maximum is None else self.maximum
        if not low <= value <= high:
            raise _unfit(name, value, f"is out of range; give {self._allowed(kind)}")
        return int(value) if self.whole else value

    def _allowed(self, kind: str) -> str:
        if self.minimum is not None and self.maximum is not None:
            return f"a {kind} from {self.minimum} to {self.maximum}"
        if self.minimum is not None:
            return f"a {kind}, at least {self.minimum}"
        return f"a {kind}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Flag(Shape):
    @override
    def _type(self) -> Schema:
        return {"type": "boolean"}

    @override
    def check(self, value: object, name: str) -> object:
        if not isinstance(value, bool):
            raise _unfit(name, value, "is no boolean; give true or false")
        return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Records(Shape):
    """A list of objects with named fields."""

    of: type[Any]
    least: int
    most: int

    @override
    def _type(self) -> Schema:
        return self._listed(schema_of(self.of))

    @override
    def _strict_type(self) -> Schema:
        return self._listed(strict_schema_of(self.of))

    def _listed(self, items: Schema) -> Schema:
        bounds = {"minItems": self.least, "maxItems": self.most}
        return {"type": "array", "items": items, **bounds}

    @override
    def check(self, value: object, name: str) -> object:
        if not isinstance(value, list | tuple):
            raise _unfit(name, value, "is no list; give a list of objects")
        given = cast("Sequence[object]", value)
        if not self.least <= len(given) <= self.most:
            raise BadArgumentsError(
                f"{name}: holds {len(given)}; give {self.least} to {self.most}"
            )
        return tuple(
            parsed(self.of, each, where=f"{name}[{index}]")
            for index, each in enumerate(given)
        )


def _field(shape: Shape) -> Any:  # noqa: ANN401 - as dataclasses.field has it
    if shape.required:
        return dataclasses.field(metadata={_SHAPE: shape})
    return dataclasses.field(default=shape.default, metadata={_SHAPE: shape})


def text(
    description: str, *, choices: tuple[str, ...] = (), empty: bool = False
) -> Any:  # noqa: ANN401 - as dataclasses.field has it
    """Describe a string that must be given."""
    return _field(
        _Text(description=description, required=True, choices=choices, empty=empty)
    )


def optional_text(
    description: str,
    *,
    default: str | None = None,
    choices: tuple[str, ...] = (),
) -> Any:  # noqa: ANN401 - as dataclasses.field has it
    """Describe a string that may be left out."""
    return _field(
        _Text(
            description=description,
            required=False,
            default=default,
            choices=choices,
        )
    )


def whole(
    description: str,
    *,
    default: int | None,
    minimum: int | None = None,
    maximum: int | None = None,
) -> Any:  # noqa: ANN401 - as dataclasses.field has it
    """Describe a whole number that may be left out."""
    return _field(
        _Number(
            description=description,
            required=False,
            default=default,
            whole=True,
            minimum=minimum,
            maximum=maximum,
        )
    )


def number(description: str, *, default: float, minimum: float, maximum: float) -> Any:  # noqa: ANN401 - as dataclasses.field has it
    """Describe a number that may be left out."""
    return _field(
        _Number(
            description=description,
            required=False,
            default=default,
            whole=False,
            minimum=minimum,
            maximum=maximum,
        )
    )


def flag(description: str) -> Any:  # noqa: ANN401 - as dataclasses.field has it
    """Describe a switch that is off unless given."""
    return _field(_Flag(description=description, required=False, default=False))


def records(description: str, of: type[Any], *, most: int) -> Any:  # noqa: ANN401 - as dataclasses.field has it
    """Describe a list, not empty, of objects of the class `of`."""
    return _field(
        _Records(description=description, required=True, of=of, least=1, most=most)
    )


def schema_of(of: type[Any]) -> Schema:
    """Return the JSON Schema of a class of arguments."""
    shapes = _shapes(of)
    return {
        "type": "object",
        "properties": {name: shape.schema() for name, shape in shapes.items()},
        "required": [name for name, shape in shapes.items() if shape.required],
        "additionalProperties": False,
    }


def strict_schema_of(of: type[Any]) -> Schema:
    """Return the JSON Schema in which everything is given, null for nothing.

    It keeps to the keywords that OpenAI takes with `strict`.
    """
    shapes = _shapes(of)
    return {
        "type": "object",
        "properties": {name: shape.nullable() for name, shape in shapes.items()},
        "required": list(shapes),
        "additionalProperties": False,
    }


def parsed(of: type[T], given: object, *, where: str = "") -> T:
    """Return the arguments as an object of the class `of`.

    Raises:
        BadArgumentsError: They do not fit; every problem is told.
    """
    if not isinstance(given, dict):
        raise _unfit(where, given, "is no object; give one with named fields")
    named = cast("Mapping[object, object]", given)
    shapes = _shapes(of)
    inside = where + "." if where else ""
    problems = list(_strangers(named, shapes, inside))
    values: dict[str, object] = {}
    for name, shape in shapes.items():
        value = named.get(name)
        if value is not None:
            try:
                values[name] = shape.check(value, inside + name)
            except BadArgumentsError as error:
                problems += error.problems
        elif shape.required:
            problems.append(f"{inside}{name}: is missing; {shape.description}")
    if problems:
        raise BadArgumentsError(*problems)
    return of(**values)


_known: dict[type, Mapping[str, Shape]] = {}


def _shapes(of: type[Any]) -> Mapping[str, Shape]:
    found = _known.get(of)
    if found is None:
        fields = dataclasses.fields(of)
        found = _known[of] = {each.name: each.metadata[_SHAPE] for each in fields}
    return found


def _strangers(
    named: Mapping[object, object], shapes: Mapping[str, Shape], inside: str
) -> Iterator[str]:
    for name in named:
        if name not in shapes:
            near = difflib.get_close_matches(str(name), shapes, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            yield (
                f"{inside}{clipped(str(name))}: there is no such argument; {hint}"
                f"there are {', '.join(shapes)}"
            )


def _unfit(name: str, value: object, why: str) -> BadArgumentsError:
    subject = f"{name}: " if name else ""
    return BadArgumentsError(f"{subject}{shown(value)} {why}")


def _any_of(choices: Iterable[str]) -> str:
    return ", ".join(f'"{choice}"' for choice in choices)


def shown(value: object) -> str:
    """Return a value as a model would write it, shortened."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f'"{clipped(value)}"'
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int):
        return str(value) if abs(value) < 10**15 else "the number"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else "this"


def clipped(text: str) -> str:
    """Return a text, shortened."""
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."
