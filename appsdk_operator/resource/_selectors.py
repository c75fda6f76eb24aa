"""Label and field selectors, with the syntax and the checks of the API server.

A selector is a frozen value; ``str(selector)`` is its form in requests.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import attrs

from appsdk_operator._lazy import lazy_pattern

_NAME: Final = lazy_pattern(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DNS_SUBDOMAIN: Final = lazy_pattern(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
_PATH: Final = lazy_pattern(r"[^\s=!,\\]+")
_INTEGER: Final = lazy_pattern(r"[-+]?[0-9]{1,20}")


class SelectorError(ValueError):
    """A selector that no API server accepts; the text says what to write instead."""


class Operator(enum.Enum):
    """The operator of a label requirement; the values are those of ``matchExpressions``."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    EQUALS = "Equals"
    NOT_EQUALS = "NotEquals"
    GREATER_THAN = "Gt"
    LESS_THAN = "Lt"


_SINGLE: Final = {
    Operator.EQUALS: "=",
    Operator.NOT_EQUALS: "!=",
    Operator.GREATER_THAN: ">",
    Operator.LESS_THAN: "<",
}


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise SelectorError(f"values={values!r} is one text: give a tuple of values, ({values!r},)")
    try:
        return tuple(sorted(set(values), key=str))
    except TypeError:
        raise SelectorError(f"values={values!r}: give a tuple of texts") from None


@attrs.frozen
class Requirement:
    """One condition of a label selector.

    Args:
        key: the label's key, with or without a prefix.
        operator: how to compare.
        values: the operands; none for ``EXISTS`` and ``DOES_NOT_EXIST``, one for
            equality and order, one or more for ``IN`` and ``NOT_IN``.

    Raises:
        SelectorError: Kubernetes does not allow the key, a value or the number of values.
    """

    key: str
    operator: Operator
    values: tuple[str, ...] = attrs.field(default=(), converter=_distinct)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.operator, Operator):
            raise SelectorError(
                f"operator={self.operator!r} on {self.key!r} is not an Operator: use "
                "Operator.EQUALS, Operator.IN or another of them"
            )
        _check_key(self.key)
        for value in self.values:
            _check_value(self.key, value)
        if self.operator in _SINGLE:
            if len(self.values) != 1:
                raise SelectorError(
                    f"{self.operator.value} on {self.key!r} needs exactly one value, "
                    f"got {len(self.values)}: use In or NotIn for several"
                )
            if self.operator in (Operator.GREATER_THAN, Operator.LESS_THAN):
                _check_integer(self.key, self.values[0])
        elif self.operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
            if self.values:
                raise SelectorError(
                    f"{self.operator.value} on {self.key!r} takes no values: leave them out"
                )
        elif not self.values:
            raise SelectorError(
                f"{self.operator.value} on {self.key!r} needs at least one value: "
                "use Exists or DoesNotExist to ask for the key alone"
            )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` meet the condition.

        A missing label meets ``NOT_IN``, ``NOT_EQUALS`` and ``DOES_NOT_EXIST`` only.
        """
        value = labels.get(self.key)
        match self.operator:
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.IN | Operator.EQUALS:
                return value is not None and value in self.values
            case Operator.NOT_IN | Operator.NOT_EQUALS:
                return value is None or value not in self.values
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                return self._orders(value)

    def _orders(self, value: str | None) -> bool:
        number = _integer(value) if value is not None else None
        if number is None:
            return False
        bound = int(self.values[0])
        return number > bound if self.operator is Operator.GREATER_THAN else number < bound

    def __str__(self) -> str:
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN:
                word = "in" if self.operator is Operator.IN else "notin"
                return f"{self.key} {word} ({','.join(self.values)})"
            case _:
                return f"{self.key}{_SINGLE[self.operator]}{self.values[0]}"


def _by_key(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    if isinstance(requirements, (str, Mapping)):
        form = "parse" if isinstance(requirements, str) else "from_mapping"
        raise TypeError(
            f"LabelSelector({requirements!r}): it is made of Requirements; use "
            f"LabelSelector.{form}({requirements!r})"
        )
    given = tuple(requirements)
    for requirement in given:
        if not isinstance(requirement, Requirement):
            raise TypeError(f"LabelSelector({given!r}): {requirement!r} is not a Requirement")
    return tuple(sorted(given, key=lambda r: (r.key, r.operator.value, r.values)))


@attrs.frozen
class LabelSelector:
    """A set of conditions on labels, all of which must hold.

    >>> selector = LabelSelector.parse("tier in (web,api), env!=test, !canary")
    >>> selector.matches({"tier": "web"})
    True
    >>> str(selector)
    '!canary,env!=test,tier in (api,web)'
    >>> LabelSelector().matches({}), LabelSelector().empty
    (True, True)
    """

    requirements: tuple[Requirement, ...] = attrs.field(
        default=(),
        # Sorted, so that equal selectors compare and print equal in any order.
        converter=_by_key,
    )

    @classmethod
    def parse(cls, text: str) -> LabelSelector:
        """Read the syntax of ``kubectl --selector``: ``a=b,c!=d,e in (x,y),f notin (z),g,!h``.

        Raises:
            SelectorError: ``text`` is not such a selector; the message names the wrong part.
            TypeError: it is not text.
        """
        _check_text("LabelSelector.parse", text)
        return cls(_Parser(text).requirements())

    @classmethod
    def from_mapping(cls, labels: Mapping[str, str]) -> LabelSelector:
        """A selector for exactly these values of these labels.

        Raises:
            SelectorError: a key or a value that Kubernetes does not allow; the text names the key.
            TypeError: ``labels`` is not a mapping.
        """
        _check_mapping("LabelSelector.from_mapping", labels)
        return cls(tuple(Requirement(k, Operator.EQUALS, (v,)) for k, v in labels.items()))

    @classmethod
    def from_object(cls, selector: Mapping[str, Any] | None) -> LabelSelector:
        """Read a ``LabelSelector`` object, with ``matchLabels`` and ``matchExpressions``.

        An empty object selects everything, as in Kubernetes. So does None: if a missing selector
        selects nothing in your field, check for None first.

        Raises:
            SelectorError: an unknown field or operator, or a value that Kubernetes does not allow.
        """
        if selector is None:
            return cls()
        _check_mapping("LabelSelector.from_object", selector)
        unknown = set(selector) - {"matchLabels", "matchExpressions"}
        if unknown:
            raise SelectorError(
                f"{', '.join(sorted(map(str, unknown)))} is not a field of a LabelSelector: use "
                "matchLabels and matchExpressions, or LabelSelector.from_mapping for plain labels"
            )
        found = list(cls.from_mapping(selector.get("matchLabels") or {}).requirements)
        for expression in selector.get("matchExpressions") or ():
            if not isinstance(expression, Mapping):
                raise SelectorError(
                    f"{expression!r} in matchExpressions is not a mapping with key, operator, "
                    "values"
                )
            word = expression.get("operator")
            if word not in ("In", "NotIn", "Exists", "DoesNotExist"):
                raise SelectorError(
                    f"{word!r} is not an operator of matchExpressions: use In, NotIn, Exists or "
                    "DoesNotExist"
                )
            values = expression.get("values") or ()
            found.append(Requirement(expression.get("key", ""), Operator(word), values))
        return cls(tuple(found))

    @property
    def empty(self) -> bool:
        """Whether the selector has no conditions and matches everything."""
        return not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` meet every condition."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


@attrs.frozen
class FieldTerm:
    """One condition of a field selector: ``path=value`` or ``path!=value``.

    Raises:
        SelectorError: the path contains syntax, or the value is not text.
    """

    path: str
    value: str
    negated: bool = False

    def __attrs_post_init__(self) -> None:
        path: Any = self.path
        if not isinstance(path, str) or not _PATH.fullmatch(path):
            raise SelectorError(
                f"field {self.path!r} is not a path that can be selected by: use names with dots "
                "between them, for example 'metadata.name'"
            )
        if not isinstance(self.value, str):
            raise SelectorError(
                f"value {self.value!r} of field {self.path!r} is a {type(self.value).__name__}: "
                + _instead_of(self.value, "'' to ask for objects without the field")
            )

    def __str__(self) -> str:
        value = re.sub(r"([\\,=])", r"\\\1", self.value)
        return f"{self.path}{'!=' if self.negated else '='}{value}"


def _terms(terms: Iterable[FieldTerm]) -> tuple[FieldTerm, ...]:
    if isinstance(terms, (str, Mapping)):
        form = "parse" if isinstance(terms, str) else "from_mapping"
        raise TypeError(f"FieldSelector({terms!r}): use FieldSelector.{form}({terms!r})")
    given = tuple(terms)
    for term in given:
        if not isinstance(term, FieldTerm):
            raise TypeError(f"FieldSelector({given!r}): {term!r} is not a condition on a field")
    return given


@attrs.frozen
class FieldSelector:
    """A set of conditions on fields, all of which must hold.

    Which paths a server can select by differs from kind to kind; ``metadata.name`` and
    ``metadata.namespace`` always work.

    >>> selector = FieldSelector.parse("metadata.name=web,spec.nodeName!=a")
    >>> selector.matches({"metadata": {"name": "web"}, "spec": {"nodeName": "b"}})
    True
    >>> str(selector)
    'metadata.name=web,spec.nodeName!=a'
    """

    terms: tuple[FieldTerm, ...] = attrs.field(default=(), converter=_terms)

    @classmethod
    def parse(cls, text: str) -> FieldSelector:
        r"""Read the syntax of ``kubectl --field-selector``; ``\,``, ``\=`` and ``\\`` are literal.

        Raises:
            SelectorError: a condition that is not ``path=value``, ``path==value`` or
                ``path!=value``.
            TypeError: it is not text.
        """
        _check_text("FieldSelector.parse", text)
        return cls(tuple(_field_term(part, text) for part in _split_unescaped(text) if part))

    @classmethod
    def from_mapping(cls, fields: Mapping[str, str]) -> FieldSelector:
        """A selector for exactly these values at these paths.

        Raises:
            SelectorError: a path or a value that no selector can have; the text names the path.
            TypeError: ``fields`` is not a mapping.
        """
        _check_mapping("FieldSelector.from_mapping", fields)
        return cls(tuple(FieldTerm(path, value) for path, value in fields.items()))

    @property
    def empty(self) -> bool:
        """Whether the selector has no conditions and matches everything."""
        return not self.terms

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the conditions, in order."""
        return tuple(term.path for term in self.terms)

    def matches(self, fields: Callable[[str], str] | Mapping[str, Any]) -> bool:
        """Whether every condition holds.

        Args:
            fields: the object as nested mappings, or a function from a path to its value. A
                missing field counts as ``""``, as on the server.
        """
        get = fields if callable(fields) else field_getter(fields)
        return all((get(term.path) == term.value) is not term.negated for term in self.terms)

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))


def field_getter(fields: Mapping[str, Any]) -> Callable[[str], str]:
    """The function from a path to the text of the value there; ``""`` where there is none."""

    def get(path: str) -> str:
        value: Any = fields
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            return ""
        return str(value).lower() if isinstance(value, bool) else str(value)

    return get


def _split_unescaped(text: str) -> Iterable[str]:
    part = ""
    escaped = False
    for char in text:
        if char == "," and not escaped:
            yield part
            part = ""
            continue
        part += char
        escaped = char == "\\" and not escaped
    yield part


def _field_term(part: str, text: str) -> FieldTerm:
    found = re.match(r"([^=!]*?)(!=|==|=)(.*)", part, re.DOTALL)
    if found is None or not found[1].strip():
        raise SelectorError(
            f"{part!r} in field selector {text!r} is not a condition: "
            "write path=value or path!=value, for example metadata.name=web"
        )
    value = re.sub(r"\\([\\,=])", r"\1", found[3])
    return FieldTerm(found[1].strip(), value, found[2] == "!=")


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what}({value!r}): give the selector as text")


def _check_mapping(what: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"{what}({value!r}): give a mapping")


def _instead_of(value: object, absent: str) -> str:
    return f"use {absent}" if value is None else f"write {str(value)!r}"


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise SelectorError(
            f"label key {key!r} is a {type(key).__name__}: label keys are text, for example "
            "'app' or 'example.com/tier'"
        )
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _DNS_SUBDOMAIN.fullmatch(prefix)):
        raise SelectorError(
            f"label key {key!r} has no valid prefix: use a DNS name before the '/', "
            "for example 'example.com/tier'"
        )
    if len(name) > 63 or not _NAME.fullmatch(name):
        raise SelectorError(
            f"label key {key!r} is not valid: use up to 63 letters, digits, '-', '_' and '.', "
            "starting and ending with a letter or digit"
        )


def _check_value(key: str, value: object) -> None:
    if not isinstance(value, str):
        raise SelectorError(
            f"value {value!r} of label {key!r} is a {type(value).__name__}: label values are text, "
            + _instead_of(value, f"the selector {key!r} for objects with the label, or '!{key}'")
        )
    if len(value) > 63 or (value and not _NAME.fullmatch(value)):
        raise SelectorError(
            f"value {value!r} of label {key!r} is not valid: use up to 63 letters, digits, '-', "
            "'_' and '.', starting and ending with a letter or digit, or nothing"
        )


def _check_integer(key: str, value: str) -> None:
    if _integer(value) is None:
        raise SelectorError(
            f"value {value!r} of label {key!r} is compared with < or >: use an integer"
        )


def _integer(text: str) -> int | None:
    """A 64-bit integer as servers parse it, without the spaces and ``_`` that Python accepts."""
    if not _INTEGER.fullmatch(text) or not -(1 << 63) <= (number := int(text)) < 1 << 63:
        return None
    return number


_TOKEN: Final = lazy_pattern(r"\s*(?:(==|!=|[=!<>(),])|([^\s=!<>(),]+))", re.ASCII)


class _Parser:
    """A recursive-descent parser of label selectors."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._parts: list[str] = []
        position = 0
        while (found := _TOKEN.match(text, position)) is not None:
            self._parts.append(found[1] or found[2])
            position = found.end()
        self._at = 0

    def requirements(self) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        if not self._parts:
            return ()
        while True:
            found.append(self._requirement())
            part = self._take()
            if part is None:
                return tuple(found)
            if part != ",":
                raise self._error(part, "',' or the end")
            if self._peek() is None:
                raise self._error(None, "a label key after ','")

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._at += 1
            return Requirement(self._word("a label key"), Operator.DOES_NOT_EXIST)
        key = self._word("a label key")
        part = self._peek()
        if part is None or part == ",":
            return Requirement(key, Operator.EXISTS)
        self._at += 1
        if part in ("in", "notin"):
            return Requirement(key, Operator.IN if part == "in" else Operator.NOT_IN, self._set())
        operators = {
            "=": Operator.EQUALS,
            "==": Operator.EQUALS,
            "!=": Operator.NOT_EQUALS,
            ">": Operator.GREATER_THAN,
            "<": Operator.LESS_THAN,
        }
        if part not in operators:
            raise self._error(part, "one of = == != in notin < >")
        value = self._peek()
        if value is None or value == ",":
            return Requirement(key, operators[part], ("",))
        return Requirement(key, operators[part], (self._word("a value"),))

    def _set(self) -> tuple[str, ...]:
        if (part := self._take()) != "(":
            raise self._error(part, "'('")
        values: list[str] = []
        value = ""
        while True:
            part = self._take()
            if part in (",", ")"):
                values.append(value)
                value = ""
                if part == ")":
                    return tuple(values)
            elif part is None or value or not self._is_word(part):
                raise self._error(part, "',' or ')'")
            else:
                value = part

    def _word(self, wanted: str) -> str:
        part = self._take()
        if part is None or not self._is_word(part):
            raise self._error(part, wanted)
        return part

    @staticmethod
    def _is_word(part: str) -> bool:
        return part[0] not in "=!<>(),"

    def _peek(self) -> str | None:
        return self._parts[self._at] if self._at < len(self._parts) else None

    def _take(self) -> str | None:
        part = self._peek()
        self._at += 1
        return part

    def _error(self, part: str | None, wanted: str) -> SelectorError:
        found = "the end" if part is None else repr(part)
        return SelectorError(
            f"label selector {self._text!r}: found {found}, expected {wanted}; write for example "
            "'tier=web,env in (prod,test),!canary'"
        )


_SelectorT = TypeVar("_SelectorT", LabelSelector, FieldSelector)


def selector_of(
    selector: _SelectorT | Mapping[str, str] | str | None,
    option: str,
    form: type[_SelectorT],
    instead: str,
    example: str,
) -> _SelectorT | None:
    """A selector of class ``form``; ``instead`` and ``example`` are for error texts.

    Raises:
        SelectorError: it cannot be parsed, or a key or value is not allowed.
        TypeError: it has another form.
    """
    if isinstance(selector, str):
        return form.parse(selector)
    if isinstance(selector, Mapping):
        _check_plain(option, selector, instead)
        return form.from_mapping(selector)
    if selector is None or isinstance(selector, form):
        return selector
    raise TypeError(
        f"{option}={selector!r}: give it as text, as a mapping or as a {form.__name__}, for "
        f"example {option}={example}"
    )


def _check_plain(option: str, selector: Mapping[Any, Any], instead: str) -> None:
    for key, value in selector.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(
                f"{option}={selector!r}: at {key!r}, keys and values must be text; use {instead}"
            )
