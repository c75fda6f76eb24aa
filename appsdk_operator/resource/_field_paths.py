"""The path of a field: the filters on it, and the errors that it can have."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Optional, final, overload

import attrs
import msgspec

from appsdk_operator.resource._codec import DECODE_ERRORS, decode_large
from appsdk_operator.resource._field_names import wire_steps
from appsdk_operator.resource._filters import (
    HIDDEN_FIELDS,
    Atom,
    FieldConditions,
    Filter,
    JsonValue,
)
from appsdk_operator.resource._json.frozen import freeze
from appsdk_operator.resource._kind import Kind
from appsdk_operator.resource._object import Object

if TYPE_CHECKING:
    from appsdk_operator.resource._typed.errors import FieldError

Steps = tuple[str | int, ...]

_NAME: Final = re.compile(r"[A-Za-z_][-\w]*")
_STEP: Final = re.compile(
    r"""\.?(?P<name>[A-Za-z_][-\w]*)|\['(?P<single>[^']+)'\]|\["(?P<double>[^"]+)"\]"""
    r"""|\[(?P<index>\d+)\]"""
)
_QUOTED: Final = re.compile(r"""\[(?:'([^']+)'|"([^"]+)")\]""")
_EXAMPLE: Final = (
    "write for example spec.replicas, spec.containers[0].image or metadata.labels['app']"
)


def field(name: str, /, *more: str | int) -> FieldPath:
    """The path of a field, for filters and for errors.

    Filters of objects: ``field("spec.size") == 3``, ``!= 3``, ``.exists``, ``.isin([1, 2])``.
    Filters of changes: ``.changed``, ``.became(3)``, ``.left(3)``. An error:
    ``field("spec.size").invalid(3, "must be at most 2")``.

    Args:
        name: names with dots between them, indexes and keys in brackets: ``spec.size``,
            ``spec.containers[0].image``, ``metadata.labels['app.kubernetes.io/name']``. A field of
            a kind's class may have its name on the wire or its name in Python.
        more: further names and indexes below it, as in ``path[…]`` of a :class:`FieldPath`.

    Raises:
        TypeError: a name is not text.
        ValueError: a name is empty. Other mistakes in a path raise when the first filter is made of
            it.

    >>> field("spec.size").became(3)
    <ChangeFilter field('spec.size').became(3)>
    >>> print(field("spec")["jobs"][0]["name"])
    spec.jobs[0].name
    >>> print(field("metadata", "annotations").key("example.com/color"))
    metadata.annotations[example.com/color]
    """
    path = _path(_QUOTED.sub(r"[\1\2]", _checked_name(name)), name)
    for step in more:
        path = path[step]
    return path


@final
@attrs.frozen(eq=False)
class FieldPath(FieldConditions):
    """The path of a field, its filters and the errors that it can have; :func:`field` makes it.

    ``path["name"]`` is a field of an object, ``path[0]`` an item of a list, and ``path.key("…")`` a
    value in a map with free keys, such as labels. ``str(path)`` is the path as Kubernetes prints
    it. Paths are immutable, equal by their text, and safe to share between threads.

    In filters a missing field equals null. Values are compared as JSON: 1 equals 1.0, but not true.
    Between two paths ``==`` compares the paths; with any other value it makes a filter. A path
    itself is not a filter, and has no truth value.

    The errors have the words of Kubernetes 1.36 (``k8s.io/apimachinery``'s package ``field``). They
    show values as Go prints them: strings in quotes, others as JSON, dicts with sorted keys,
    instances of classes in the order of their fields, without fields that are None. Responses and
    logs show these values: give :data:`OMITTED` instead of a secret.

    Older servers word a few errors differently: for a value that is too long, 1.20 says ``must have
    at most 63 bytes``.
    """

    text: str
    """The path as Kubernetes prints it."""
    _written: str = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda self: self.text, takes_self=True)
    )
    """The path as :func:`field` takes it."""

    def __getitem__(self, step: str | int) -> FieldPath:
        if isinstance(step, int) and not isinstance(step, bool):
            return _path(f"{self.text}[{step}]", f"{self._written}[{step}]")
        name = _checked_name(step)
        written = f".{name}" if _NAME.fullmatch(name) else _bracketed(name)
        return _path(f"{self.text}.{name}", self._written + written)

    # Python would otherwise try the indexes from 0 on, without an end.
    __iter__ = None
    __contains__ = None

    def key(self, key: str, /) -> FieldPath:
        """The path of a key in a map: ``metadata.labels[app.kubernetes.io/name]``."""
        return _path(f"{self.text}[{key}]", self._written + _bracketed(key))

    def __str__(self) -> str:
        return self.text

    # Filters.

    @overload  # type: ignore[override]
    def __eq__(self, other: FieldPath, /) -> bool: ...
    @overload
    def __eq__(self, other: JsonValue, /) -> Filter[Any, Any]: ...
    def __eq__(self, other: Any, /) -> Any:
        """Passes objects in which it has this value; None: no value."""
        if isinstance(other, FieldPath):
            return self.text == other.text
        return self._equals(other)

    @overload  # type: ignore[override]
    def __ne__(self, other: FieldPath, /) -> bool: ...
    @overload
    def __ne__(self, other: JsonValue, /) -> Filter[Any, Any]: ...
    def __ne__(self, other: Any, /) -> Any:
        """Passes objects in which it has another value, or none."""
        if isinstance(other, FieldPath):
            return self.text != other.text
        return self._differs(other)

    def __hash__(self) -> int:
        return hash((FieldPath, self.text))

    def __bool__(self) -> bool:
        raise TypeError(
            f"field({self._written!r}) names a field and is neither true nor false: write .exists, "
            "== value or .changed for a filter, and read the value from an object"
        )

    def value(self, obj: Object[Any, Any]) -> Any:
        """The value of the field in ``obj``; None when it is missing.

        Raises:
            ValueError: it is not a path.
        """
        return freeze(self._reader()(obj))

    def steps_of(self, kind: Kind[Any, Any]) -> Steps:
        """Its names on the wire, and its indexes.

        Raises:
            ValueError: it is not a path.
        """
        return wire_steps(kind, steps_of_text(self._written))

    @property
    def root(self) -> str:
        """The first name of the path.

        Raises:
            ValueError: it is not a path.
        """
        return str(steps_of_text(self._written)[0])

    def _reader(self) -> Callable[[Object[Any, Any]], Any]:
        steps = steps_of_text(self._written)
        return lambda obj: _value_at(obj, wire_steps(obj.kind, steps))

    def _described(self) -> tuple[str, Callable[[Any], Any], Atom, bool]:
        read = self._reader()
        atom = Atom(steps=self.steps_of, field=self._written)
        return f"field({self._written!r})", read, atom, self.root in HIDDEN_FIELDS

    # Errors.

    def invalid(self, value: Any, why: str) -> FieldError:
        """A value of the right type that is not valid.

        >>> print(field("spec")["schedule"].invalid("* * *", "must have five fields"))
        spec.schedule: Invalid value: "* * *": must have five fields
        """
        return self._error("FieldValueInvalid", f"Invalid value{_shown(value)}", why)

    def required(self, why: str = "") -> FieldError:
        """A missing or empty value."""
        return self._error("FieldValueRequired", "Required value", why)

    def forbidden(self, why: str) -> FieldError:
        """A field that may not be set or changed at this time, whatever its value."""
        return self._error("FieldValueForbidden", "Forbidden", why)

    def not_supported(self, value: Any, supported: Iterable[Any]) -> FieldError:
        """A value that is not one of the supported values.

        Args:
            value: the given value.
            supported: the supported values, shown in this order; a set is sorted.

        >>> print(field("spec")["policy"].not_supported("Sometimes", ["Always", "Never"]))
        spec.policy: Unsupported value: "Sometimes": supported values: "Always", "Never"

        Raises:
            TypeError: ``supported`` is text.
        """
        if isinstance(supported, (str, bytes)):
            raise TypeError("supported is text: give a list of the supported values")
        from appsdk_operator.resource._typed.go_text import go_quote

        names = [_name_of(one) for one in supported]
        if isinstance(supported, (set, frozenset)):
            names.sort()
        why = f"supported values: {', '.join(map(go_quote, names))}" if names else ""
        return self._error("FieldValueNotSupported", f"Unsupported value{_shown(value)}", why)

    def duplicate(self, value: Any, why: str = "") -> FieldError:
        """A value that occurs twice where each may occur once."""
        return self._error("FieldValueDuplicate", f"Duplicate value{_shown(value)}", why)

    def not_found(self, value: Any, why: str = "") -> FieldError:
        """The name of something that does not exist."""
        return self._error("FieldValueNotFound", f"Not found{_shown(value)}", why)

    def type_invalid(self, value: Any, why: str) -> FieldError:
        """A value of the wrong type."""
        return self._error("FieldValueTypeInvalid", f"Invalid value{_shown(value)}", why)

    def too_long(
        self,
        value: Any,  # noqa: ARG002 - as in Kubernetes, so that all errors are written alike
        limit: int | None,
        *,
        unit: Literal["bytes", "characters"] = "bytes",
    ) -> FieldError:
        """A value that is too long; it is not shown.

        Args:
            value: not used; it is there so that all errors are called alike.
            limit: the largest length; None: the error does not name it.
            unit: the unit of ``limit``.

        >>> print(field("metadata")["name"].too_long("x" * 99, 63))
        metadata.name: Too long: may not be more than 63 bytes
        """
        why = "value is too long"
        if limit is not None:
            why = f"may not be more than {_counted(limit, unit)}"
        return self._error("FieldValueTooLong", "Too long", why)

    def too_short(self, value: Any, limit: int | None) -> FieldError:  # noqa: ARG002 - as above
        """Text with fewer characters than ``limit``; the error does not show it. With None the
        error does not name the limit."""
        why = "value is too short"
        if limit is not None:
            why = f"must be at least {_counted(limit, 'characters')}"
        return self._error("FieldValueTooShort", "Too short", why)

    def too_many(self, actual: int | None, limit: int | None) -> FieldError:
        """A list with more items than allowed.

        Args:
            actual: the number of items; None: the error does not name it.
            limit: the largest number; None: the error does not name it.
        """
        shown = "" if actual is None else _shown(actual)
        why = "has too many items"
        if limit is not None:
            why = f"must have at most {_counted(limit, 'items')}"
        return self._error("FieldValueTooMany", f"Too many{shown}", why)

    def too_few(self, actual: int | None, limit: int | None) -> FieldError:
        """A list with fewer items than needed; the arguments are as for :meth:`too_many`."""
        shown = "" if actual is None else _shown(actual)
        why = "has too few items"
        if limit is not None:
            why = f"must have at least {_counted(limit, 'items')}"
        return self._error("FieldValueTooFew", f"Too few{shown}", why)

    def internal(self, error: Exception | str) -> FieldError:
        """A check that could not run, through no fault of the user."""
        return self._error("InternalError", "Internal error", str(error))

    def _error(self, reason: str, message: str, why: str = "") -> FieldError:
        from appsdk_operator.resource._typed.errors import FieldError

        return FieldError(reason, self.text, f"{message}: {why}" if why else message)


def steps_of_text(text: str) -> Steps:
    """The names and indexes of a path.

    Raises:
        TypeError: it is not text.
        ValueError: it is not a path; the text shows the part that cannot be parsed.
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is not a path to a field: {_EXAMPLE}")
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        found = _STEP.match(text, position)
        # A name needs a dot before it, but not at the start.
        if found is None or (found["name"] and (text[position] == ".") is not bool(steps)):
            raise ValueError(
                f"{text!r} is not a path to a field: cannot parse {text[position:]!r}; {_EXAMPLE}"
            )
        name = found["name"] or found["single"] or found["double"]
        steps.append(name or int(found["index"]))
        position = found.end()
    if not steps or not isinstance(steps[0], str):
        raise ValueError(f"{text!r} does not begin with a field of the object: {_EXAMPLE}")
    if steps[0] == "metadata" and steps[1:2] in (["labels"], ["annotations"]) and len(steps) > 3:
        # Keys of labels have dots, and what lies below a label's value never changes.
        key = ".".join(map(str, steps[2:]))
        raise ValueError(
            f"{text!r}: the key of a label or annotation goes in brackets: write "
            f"metadata.{steps[1]}['{key}']"
        )
    return tuple(steps)


def _value_at(obj: Object[Any, Any], steps: Steps) -> Any:
    """The value at a path, of plain JSON; None when it is missing."""
    try:
        names, decode = _decoder(steps)
        value = decode_large(decode, obj.raw)
    except (AttributeError, ValueError, *DECODE_ERRORS):
        # A changeable object, text instead of a mapping, or a name that is escaped in JSON.
        return _below(obj.get(str(steps[0])), steps[1:])
    value = value.inner
    if value is None:
        return _below(obj.get(str(steps[0])), steps[1:])  # it may have metadata only
    for _ in range(names - 1):
        value = value.inner
        if value is None:
            return None
    return _below(value, steps[names:])


def _below(value: Any, steps: Steps) -> Any:
    for step in steps:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, Mapping) else None
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else None
    return value


@functools.lru_cache(maxsize=1024)
def _decoder(steps: Steps) -> tuple[int, Callable[[bytes], Any]]:
    """The number of names that a path begins with, and a decoder that skips all other fields."""
    names = [*map(str, itertools.takewhile(lambda step: isinstance(step, str), steps))]
    view: Any = Any
    for name in reversed(names):
        inner: Any = Optional[view]  # noqa: UP045 - made at run time
        view = msgspec.defstruct("Part", [("inner", inner, None)], rename={"inner": name}, gc=False)
    return len(names), msgspec.json.Decoder(view).decode


def _path(text: str, written: str) -> FieldPath:
    path = FieldPath(text)
    object.__setattr__(path, "_written", written)
    return path


def _bracketed(key: str) -> str:
    return f'["{key}"]' if "'" in key else f"['{key}']"


def _shown(value: Any) -> str:
    from appsdk_operator.resource._typed.errors import OMITTED
    from appsdk_operator.resource._typed.go_text import go_value

    return "" if value is OMITTED else f": {go_value(value)}"


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit.removesuffix('s') if count == 1 else unit}"


def _name_of(value: Any) -> str:
    return str.__str__(value) if isinstance(value, str) else str(value)


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(
            f"a step of a field path is a {type(name).__name__}: give a field's name as text, or "
            "an index as int"
        )
    if not name:
        raise ValueError("a field's name is empty: write path.key('') for the empty key of a map")
    return name
