"""Errors of the fields of an object, in the words of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, final

import attrs

from appsdk_operator.resource._typed.go_text import Verbatim, go_quote, go_value

OMITTED: Final = Verbatim("")
"""In place of a value that an error should not show, such as a password."""


@final
@attrs.frozen
class FieldError:
    """What is wrong with one field, as :class:`FieldPath` makes it.

    A value, no exception: :meth:`Invalid.of <appsdk_operator.client.Invalid.of>` makes an exception
    of one or several.

    >>> error = field("spec")["replicas"].invalid(-1, "must not be negative")
    >>> str(error)
    'spec.replicas: Invalid value: -1: must not be negative'
    >>> error.reason, error.field
    ('FieldValueInvalid', 'spec.replicas')
    """

    reason: str
    """For programs, for example ``FieldValueInvalid``: the reason of the cause in a ``Status``."""
    field: str
    """The path, for example ``spec.containers[0].name``."""
    message: str
    """For people, without the path: ``Invalid value: "x": must be a number``."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def field(name: str, /, *more: str | int) -> FieldPath:
    """The path of a field, to make errors with.

    Args:
        name: a field at the top of the object, such as ``spec``.
        more: names of fields and indexes below it, as for :class:`FieldPath`'s ``[...]``.

    >>> print(field("spec")["jobs"][0]["name"])
    spec.jobs[0].name
    >>> print(field("metadata", "annotations").key("example.com/color"))
    metadata.annotations[example.com/color]
    """
    path = FieldPath(_checked_name(name))
    for step in more:
        path = path[step]
    return path


@final
@attrs.frozen
class FieldPath:
    """The path of a field, and the errors that it can have; :func:`field` makes it.

    ``path["name"]`` is a field of an object, ``path[0]`` an item of a list, and ``path.key("…")`` a
    value in a map with free keys, such as labels. ``str(path)`` is the path as Kubernetes prints
    it. Paths are immutable, equal by their text, and safe to share between threads.

    The errors have the words of Kubernetes 1.36 (``k8s.io/apimachinery``'s package ``field``),
    in which values look as Go prints them: strings in quotes, others as JSON. Dicts have sorted
    keys; instances of classes have the order of their fields, without those that are None. Values
    end up in answers and logs: give :data:`OMITTED` instead of a secret.

    Older servers use other words for a few: of a value that is too long, 1.20 says ``must have at
    most 63 bytes``.
    """

    text: str
    """The path as Kubernetes prints it."""

    def __getitem__(self, step: str | int) -> FieldPath:
        if isinstance(step, int) and not isinstance(step, bool):
            return FieldPath(f"{self.text}[{step}]")
        return FieldPath(f"{self.text}.{_checked_name(step)}")

    # Python would otherwise try the indexes from 0 on, without an end.
    __iter__ = None
    __contains__ = None

    def key(self, key: str, /) -> FieldPath:
        """The value of a map's key: ``metadata.labels[app.kubernetes.io/name]``."""
        return FieldPath(f"{self.text}[{key}]")

    def __str__(self) -> str:
        return self.text

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
        """A field that may not be set or changed, whatever its value, in this state of things."""
        return self._error("FieldValueForbidden", "Forbidden", why)

    def not_supported(self, value: Any, supported: Iterable[Any]) -> FieldError:
        """A value that is none of the supported ones.

        Args:
            value: the given value.
            supported: the supported ones, shown in this order; those of a set are sorted.

        >>> print(field("spec")["policy"].not_supported("Sometimes", ["Always", "Never"]))
        spec.policy: Unsupported value: "Sometimes": supported values: "Always", "Never"

        Raises:
            TypeError: ``supported`` is text.
        """
        if isinstance(supported, (str, bytes)):
            raise TypeError("supported is text: give a list of the supported values")
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
            value: not used, so that a call reads as those of the other errors do.
            limit: the longest length; None does not name it.
            unit: what is counted.

        >>> print(field("metadata")["name"].too_long("x" * 99, 63))
        metadata.name: Too long: may not be more than 63 bytes
        """
        why = "value is too long"
        if limit is not None:
            why = f"may not be more than {_counted(limit, unit)}"
        return self._error("FieldValueTooLong", "Too long", why)

    def too_short(self, value: Any, limit: int | None) -> FieldError:  # noqa: ARG002 - as above
        """Text with fewer characters than ``limit``; it is not shown. None does not name the
        limit."""
        why = "value is too short"
        if limit is not None:
            why = f"must be at least {_counted(limit, 'characters')}"
        return self._error("FieldValueTooShort", "Too short", why)

    def too_many(self, actual: int | None, limit: int | None) -> FieldError:
        """A list with more items than allowed.

        Args:
            actual: the number of items; None does not name it.
            limit: the largest number; None does not name it.
        """
        shown = _shown(OMITTED if actual is None else actual)
        why = "has too many items"
        if limit is not None:
            why = f"must have at most {_counted(limit, 'items')}"
        return self._error("FieldValueTooMany", f"Too many{shown}", why)

    def too_few(self, actual: int | None, limit: int | None) -> FieldError:
        """A list with fewer items than needed; the arguments are those of :meth:`too_many`."""
        shown = _shown(OMITTED if actual is None else actual)
        why = "has too few items"
        if limit is not None:
            why = f"must have at least {_counted(limit, 'items')}"
        return self._error("FieldValueTooFew", f"Too few{shown}", why)

    def internal(self, error: Exception | str) -> FieldError:
        """A check that could not be made: not the user's fault."""
        return self._error("InternalError", "Internal error", str(error))

    def _error(self, reason: str, message: str, why: str = "") -> FieldError:
        return FieldError(reason, self.text, f"{message}: {why}" if why else message)


def joined_errors(errors: Iterable[object]) -> str:
    """The texts of errors as Go's aggregates print them: each once, several in brackets."""
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _shown(value: Any) -> str:
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
