"""Filters: which objects, and which changes of them, concern a function."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    TypeAlias,
    final,
    overload,
)

import msgspec

from appsdk_operator._generics import (
    SpecT,
    SpecT_contra,
    StatusT,
    StatusT_contra,
    subscript,
)
from appsdk_operator.resource._json.values import deep_copy, equal_numbers
from appsdk_operator.resource._kind import Kind
from appsdk_operator.resource._object import Object
from appsdk_operator.resource._selectors import (
    FieldSelector,
    FieldTerm,
    LabelSelector,
    Operator,
    Requirement,
    selector_of,
)
from appsdk_operator.runtime import callback_name
from appsdk_operator.runtime.validation import check_callable, check_plain, no_awaitable

Where: TypeAlias = Callable[[Object[SpecT, StatusT]], bool]
"""A :class:`Filter`, or a plain function of an object."""

Test: TypeAlias = Callable[..., bool]

FilterMetadata: TypeAlias = tuple[str, str, str]
"""A label or an annotation that makes a difference to a filter: ``labels`` or ``annotations``, the
key, and a value."""

HIDDEN_FIELDS: Final = ("data", "stringData", "binaryData")
"""Fields whose values may be secret; filters are named in logs."""
_HIDDEN_VALUE: Final = "…"
_IN_MEMORY: Final = (
    "but it is called for every event: it may only read its arguments and memory, such as a cache, "
    "and other work belongs in the handler"
)


class Atom(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a part of a filter looks at, for the checks of paths and for selectors."""

    steps: Callable[[Kind[Any, Any]], tuple[str | int, ...]] | None = None
    """The path of the field, with the names on the wire."""
    field: str = ""
    """The path as it was written."""
    selector: LabelSelector | None = None
    """What matches the same objects by their labels."""
    term: FieldTerm | None = None
    """What matches the same objects by a field."""
    metadata: tuple[FilterMetadata, ...] = ()
    """Labels and annotations that make a difference to it."""


_UNKNOWN: Final = Atom()


class FilterScope(enum.IntEnum):
    """What a filter looks at, from the least to the most general."""

    OBJECT = 0
    CHANGE = 1
    EVENT = 2


class FilterTree(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A filter as a tree of parts: how it is called, checked and printed."""

    text: str
    scope: FilterScope
    test: Test | None = None
    """The function of what has no parts; returns True or False."""
    function: Callable[..., Any] | None = None
    """The user's function that ``test`` calls, if any."""
    atom: Atom = _UNKNOWN
    operator: str = ""
    """``&``, ``|`` or ``~`` of its parts."""
    parts: tuple[FilterTree, ...] = ()
    needs_brackets: bool = False
    """Whether the text does, in a longer one."""

    @classmethod
    def joined(cls, operator: str, parts: Iterable[FilterTree], scope: FilterScope) -> FilterTree:
        """The parts joined by ``&`` or ``|``, or the only one negated by ``~``."""
        flat: list[FilterTree] = []
        for part in parts:
            is_same = part.operator == operator and len(part.parts) > 1
            flat += part.parts if is_same else (part,)
        texts = [f"({each.text})" if each.needs_brackets else each.text for each in flat]
        return cls(
            text=f"~{texts[0]}" if operator == "~" else f" {operator} ".join(texts),
            scope=scope,
            operator=operator,
            parts=tuple(flat),
            needs_brackets=operator != "~",
        )

    def compiled(self, adapt: Callable[[FilterScope, Test], Test]) -> Test:
        """The function of the whole; ``adapt`` changes the arguments of those without parts."""
        if self.test is not None:
            return adapt(self.scope, self.test)
        tests = [part.compiled(adapt) for part in self.parts]
        if len(tests) == 1:
            (test,) = tests
            return (lambda *given: not test(*given)) if self.operator == "~" else test
        if len(tests) == 2:
            one, two = tests
            if self.operator == "&":
                return lambda *given: one(*given) and two(*given)
            return lambda *given: one(*given) or two(*given)
        if self.operator == "&":
            return lambda *given: all(test(*given) for test in tests)
        return lambda *given: any(test(*given) for test in tests)

    def leaves(self) -> Iterator[FilterTree]:
        """The trees without parts, in order."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()

    def is_same(self, other: FilterTree) -> bool:
        """Whether both pass the same for certain: they are made alike, of the same functions."""
        if self is other:
            return True
        if (self.scope, self.operator, len(self.parts)) != (
            other.scope,
            other.operator,
            len(other.parts),
        ):
            return False
        if self.parts:
            return all(map(FilterTree.is_same, self.parts, other.parts))
        if self.function is not None or other.function is not None:
            return self.function is other.function
        # A text without the value may stand for another one.
        return self.text == other.text and _HIDDEN_VALUE not in self.text

    def conjuncts(self) -> Iterator[FilterTree]:
        """The trees that all must hold."""
        if self.operator != "&":
            yield self
            return
        for part in self.parts:
            yield from part.conjuncts()


class FilterExpression:
    """What filters of objects, of changes and of events have in common: a text, and ``& | ~``.

    A combination is as general as its most general part: what combines a filter of an object with
    one of a change is a filter of changes.
    """

    __slots__ = ("_call", "_tree")

    scope: ClassVar[FilterScope]
    arguments: ClassVar[tuple[str, ...]]
    """The names of the arguments of its functions."""

    def __init__(self, function: Any, *, name: str | None = None) -> None:
        """A filter by a function.

        Args:
            function: returns whether its arguments pass.
            name: for logs and errors; default: the function's name.

        Raises:
            TypeError: it is not a plain function of these arguments.
        """
        if not isinstance(function, FilterTree):
            self.check(type(self).__name__, function)
            function = self._tree_of(function, name)
        self._tree: FilterTree = function
        self._call: Test = function.compiled(self.adapted)

    @classmethod
    def _tree_of(cls, function: Any, name: str | None) -> FilterTree:
        if isinstance(function, FilterExpression):
            tree = function.tree
            if name is None:
                return tree
            return FilterTree(text=name, scope=cls.scope, operator="&", parts=(tree,))
        text = name or callback_name(function)
        test = _checked(text, function)
        return FilterTree(text=text, scope=cls.scope, test=test, function=function)

    @classmethod
    def adapted(cls, scope: FilterScope, test: Test) -> Test:
        """A function of a part, for the arguments of this class."""
        del scope
        return test

    @property
    def tree(self) -> FilterTree:
        """Its parts."""
        return self._tree

    @classmethod
    def check(cls, option: str, function: Any) -> None:
        """Refuse what is not a plain function of the arguments, and no filter that can be adapted.

        Raises:
            TypeError: the text says what to give.
        """
        if isinstance(function, FilterExpression):
            if function.scope > cls.scope:
                raise TypeError(f"{option}: {function} looks at {_SCOPES[function.scope]}")
            return
        shown = f"{option}: {_text_of(function)}"
        arguments = cls.arguments

        def explain(mismatch: TypeError | None) -> str:
            problem = "cannot be called" if mismatch is None else f"does not fit: {mismatch}"
            return (
                f"{shown} {problem}: give a function of ({', '.join(arguments)}), or a filter such "
                "as labels('app=web') or field('spec.size') == 3, with == in brackets next to & "
                "and |"
            )

        refuse_unfinished(option, function)
        check_callable(
            option, function, *arguments, required=True, is_awaited=True, explain=explain
        )
        check_plain(shown, function, _IN_MEMORY)

    def _with(self, operator: str, other: Any, *, is_first: bool) -> Any:
        # An annotation's combinations are plain filters.
        general: Any = Filter if isinstance(self, Filter) else type(self)
        if not isinstance(other, FilterExpression):
            texts = [str(self), _text_of(other)]
            general.check(f" {operator} ".join(texts if is_first else texts[::-1]), other)
            other = general(other)
        elif other.scope > self.scope:
            return NotImplemented
        trees = (self.tree, other.tree) if is_first else (other.tree, self.tree)
        return general(FilterTree.joined(operator, trees, general.scope))

    def _negated(self) -> Any:
        general: Any = Filter if isinstance(self, Filter) else type(self)
        return general(FilterTree.joined("~", (self.tree,), general.scope))

    def __bool__(self) -> bool:
        raise TypeError(
            f"filter {self} is not true or false before it has seen an object: combine filters "
            "with &, | and ~ instead of and, or and not, and put == in brackets next to them"
        )

    def __str__(self) -> str:
        return self._tree.text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


_SCOPES: Final = {
    FilterScope.CHANGE: (
        "a change, but this option takes filters of one object: give it as when=, or compare with "
        "a value, as in field('spec.size') == 3"
    ),
    FilterScope.EVENT: "events, but this option has none: give it as predicates=",
}


class Filter(FilterExpression, Generic[SpecT_contra, StatusT_contra]):
    """A filter of objects: a function of one object that can be combined with others.

    Make one with :func:`labels`, :func:`annotation` or :func:`field`, or of a function. Combine
    filters with ``&``, ``|`` and ``~``; either side may be a plain function of an object.

    As a filter of changes it looks at the new object. As a predicate of a controller it looks at
    the object of the event. An update also passes if the old object passes, so the controller sees
    an object that leaves the filter once more.

    Immutable and thread-safe. Functions are called often, must not wait, and cannot be
    ``async def``.

    >>> from appsdk_operator import annotation, field, labels
    >>> large = field("spec.size") == 3
    >>> large & labels("app=web") & ~annotation("example.com/paused")
    <Filter (field('spec.size') == 3) & labels('app=web') & ~annotation('example.com/paused')>

    Raises:
        TypeError: the function is not a plain function of an object, or the filter is used as a
            truth value, as in ``a and b``.
    """

    __slots__ = ()
    scope: ClassVar[FilterScope] = FilterScope.OBJECT
    arguments: ClassVar[tuple[str, ...]] = ("obj",)

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    if TYPE_CHECKING:

        def __init__(
            self, function: Where[SpecT_contra, StatusT_contra], *, name: str | None = None
        ) -> None: ...

    def __call__(self, obj: Object[SpecT_contra, StatusT_contra], /) -> bool:
        """Whether the object passes.

        Raises:
            Exception: what a function raised.
        """
        return self._call(obj)

    def __and__(
        self, other: Where[SpecT_contra, StatusT_contra]
    ) -> Filter[SpecT_contra, StatusT_contra]:
        made: Filter[SpecT_contra, StatusT_contra] = self._with("&", other, is_first=True)
        return made

    def __rand__(
        self, other: Where[SpecT_contra, StatusT_contra]
    ) -> Filter[SpecT_contra, StatusT_contra]:
        made: Filter[SpecT_contra, StatusT_contra] = self._with("&", other, is_first=False)
        return made

    def __or__(
        self, other: Where[SpecT_contra, StatusT_contra]
    ) -> Filter[SpecT_contra, StatusT_contra]:
        made: Filter[SpecT_contra, StatusT_contra] = self._with("|", other, is_first=True)
        return made

    def __ror__(
        self, other: Where[SpecT_contra, StatusT_contra]
    ) -> Filter[SpecT_contra, StatusT_contra]:
        made: Filter[SpecT_contra, StatusT_contra] = self._with("|", other, is_first=False)
        return made

    def __invert__(self) -> Filter[SpecT_contra, StatusT_contra]:
        made: Filter[SpecT_contra, StatusT_contra] = self._negated()
        return made

    @property
    def label_selector(self) -> LabelSelector | None:
        """The label selector that matches the same objects; None if there is none.

        Only filters made by :func:`labels`, alone or joined by ``&``, have one.
        """
        found = [each.atom.selector for each in self.tree.conjuncts()]
        if any(each is None for each in found):
            return None
        return LabelSelector(tuple(one for each in found if each for one in each.requirements))

    @property
    def field_selector(self) -> FieldSelector | None:
        """The field selector that matches the same objects; None if there is none.

        Only ``field(path) == text`` and ``field(path) != text``, alone or joined by ``&``, have
        one. Which paths a server can select by depends on the kind.
        """
        found = [each.atom.term for each in self.tree.conjuncts()]
        return None if None in found else FieldSelector(tuple(each for each in found if each))


@final
class ChangeFilter(FilterExpression, Generic[SpecT_contra, StatusT_contra]):
    """A filter of changes: a function of the old object and the new one.

    Make one with ``field("spec.size").changed``, ``.became(3)`` or ``.left(3)``, or of a function.
    Combine them with ``&``, ``|`` and ``~``, also with a :class:`Filter`, which then looks at the
    new object.

    As a predicate of a controller it checks updates and resyncs. It passes creations, deletions,
    generic events, and updates that replace an object by another one with the same name; its
    negation drops all of these.

    Immutable and thread-safe. Functions are called often, must not wait, and cannot be
    ``async def``.

    >>> from appsdk_operator import field, labels
    >>> field("spec.size").changed & labels("app=web")
    <ChangeFilter field('spec.size').changed & labels('app=web')>

    Raises:
        TypeError: as for :class:`Filter`.
    """

    __slots__ = ()
    scope: ClassVar[FilterScope] = FilterScope.CHANGE
    arguments: ClassVar[tuple[str, ...]] = ("old", "new")

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    if TYPE_CHECKING:

        def __init__(
            self, function: When[SpecT_contra, StatusT_contra], *, name: str | None = None
        ) -> None: ...

        def __call__(
            self,
            old: Object[SpecT_contra, StatusT_contra],
            new: Object[SpecT_contra, StatusT_contra],
            /,
        ) -> bool:
            """Whether the change passes.

            Raises:
                Exception: what a function raised.
            """
            ...

    else:

        def __call__(self, *given):
            """Whether the change passes."""
            if len(given) != 2:
                raise TypeError(
                    f"{self} is a filter already: write it without (…), or call it with (old, new)"
                )
            return self._call(*given)

    @classmethod
    def adapted(cls, scope: FilterScope, test: Test) -> Test:
        """A function of a part, for the old object and the new one."""
        return (lambda _old, new: test(new)) if scope is FilterScope.OBJECT else test

    def __and__(
        self, other: When[SpecT_contra, StatusT_contra]
    ) -> ChangeFilter[SpecT_contra, StatusT_contra]:
        made: ChangeFilter[SpecT_contra, StatusT_contra] = self._with("&", other, is_first=True)
        return made

    def __rand__(
        self, other: When[SpecT_contra, StatusT_contra]
    ) -> ChangeFilter[SpecT_contra, StatusT_contra]:
        made: ChangeFilter[SpecT_contra, StatusT_contra] = self._with("&", other, is_first=False)
        return made

    def __or__(
        self, other: When[SpecT_contra, StatusT_contra]
    ) -> ChangeFilter[SpecT_contra, StatusT_contra]:
        made: ChangeFilter[SpecT_contra, StatusT_contra] = self._with("|", other, is_first=True)
        return made

    def __ror__(
        self, other: When[SpecT_contra, StatusT_contra]
    ) -> ChangeFilter[SpecT_contra, StatusT_contra]:
        made: ChangeFilter[SpecT_contra, StatusT_contra] = self._with("|", other, is_first=False)
        return made

    def __invert__(self) -> ChangeFilter[SpecT_contra, StatusT_contra]:
        made: ChangeFilter[SpecT_contra, StatusT_contra] = self._negated()
        return made


When: TypeAlias = (
    Filter[SpecT, StatusT] | Callable[[Object[SpecT, StatusT], Object[SpecT, StatusT]], bool]
)
"""A :class:`ChangeFilter`, a :class:`Filter` for the new object, or a plain function of the old
object and the new one."""


def labels(selector: LabelSelector | Mapping[str, str] | str) -> Filter[Any, Any]:
    """Passes objects that a label selector matches.

    Args:
        selector: ``"app=web,!old"``, ``{"app": "web"}``, or a :class:`LabelSelector`. Its syntax is
            that of ``kubectl --selector``.

    Raises:
        SelectorError: it cannot be parsed, or a key or value is not allowed.
        TypeError: it has another form.

    >>> labels("app=web,!old")
    <Filter labels('app=web,!old')>
    """
    instead, example = "LabelSelector.from_object for matchLabels", '"app=web,!old"'
    parsed = selector_of(selector, "selector", LabelSelector, instead, example)
    if parsed is None:
        raise TypeError('selector=None: give one, or "" for all objects')
    matches = parsed.matches
    atom = Atom(
        selector=parsed,
        metadata=tuple(
            ("labels", each.key, value)
            for each in parsed.requirements
            for value in _label_values(each)
        ),
    )
    return _of_object(f"labels({str(parsed)!r})", lambda obj: matches(obj.labels), atom)


def _label_values(requirement: Requirement) -> Sequence[str]:
    match requirement.operator:
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            return ("yes",)
        case Operator.GREATER_THAN:
            return (str(int(requirement.values[0]) + 1),)
        case Operator.LESS_THAN:
            return (str(max(0, int(requirement.values[0]) - 1)),)
        case _:
            return requirement.values


class FieldConditions:
    """The filters on one value of an object.

    A missing value and null are the same. Values are compared as JSON: 1 is 1.0, and not true.
    """

    __slots__ = ()

    def _described(self) -> tuple[str, Callable[[Any], Any], Atom, bool]:
        """Its text, the function from an object to the value, and whether that may be secret."""
        raise NotImplementedError

    @property
    def exists(self) -> Filter[Any, Any]:
        """Passes objects that have it, with another value than null."""
        name, read, atom, _ = self._described()
        return _of_object(f"{name}.exists", lambda obj: read(obj) is not None, atom)

    @property
    def changed(self) -> ChangeFilter[Any, Any]:
        """Passes changes of it."""
        name, read, atom, _ = self._described()

        def test(old: Any, new: Any) -> bool:
            return not equal_numbers(read(old), read(new))

        return _of_change(f"{name}.changed", test, atom)

    def became(self, value: JsonValue, /) -> ChangeFilter[Any, Any]:
        """Passes changes of it to ``value``; with None, changes that remove it.

        Raises:
            TypeError: ``value`` is not a JSON value.
        """
        name, read, atom, is_hidden = self._described()
        wanted = _json_value(name, value)

        def test(old: Any, new: Any) -> bool:
            return equal_numbers(read(new), wanted) and not equal_numbers(read(old), wanted)

        atom = _with_values(atom, wanted)
        return _of_change(f"{name}.became({_shown(wanted, is_hidden)})", test, atom)

    def left(self, value: JsonValue, /) -> ChangeFilter[Any, Any]:
        """Passes changes of it from ``value`` to another value; with None, changes that add it.

        Raises:
            TypeError: ``value`` is not a JSON value.
        """
        name, read, atom, is_hidden = self._described()
        wanted = _json_value(name, value)

        def test(old: Any, new: Any) -> bool:
            return equal_numbers(read(old), wanted) and not equal_numbers(read(new), wanted)

        atom = _with_values(atom, wanted)
        return _of_change(f"{name}.left({_shown(wanted, is_hidden)})", test, atom)

    def isin(self, values: Iterable[JsonValue], /) -> Filter[Any, Any]:
        """Passes objects in which it is one of ``values``; with None among them also objects
        without it.

        Raises:
            TypeError: ``values`` is text, or one is not a JSON value.
        """
        name, read, atom, is_hidden = self._described()
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
            raise TypeError(f"{name}.isin({values!r}): give a list of values")
        wanted = [_json_value(name, each) for each in values]

        def test(obj: Any) -> bool:
            value = read(obj)
            return any(equal_numbers(value, each) for each in wanted)

        atom = _with_values(atom, *wanted)
        return _of_object(f"{name}.isin({_shown(wanted, is_hidden)})", test, atom)

    def _equals(self, value: Any) -> Filter[Any, Any]:
        name, read, atom, is_hidden = self._described()
        wanted = _json_value(name, value)

        def test(obj: Any) -> bool:
            return equal_numbers(read(obj), wanted)

        atom = _with_values(atom, wanted)
        atom = msgspec.structs.replace(atom, term=_term(atom.field, wanted, negated=False))
        return _of_object(f"{name} == {_shown(wanted, is_hidden)}", test, atom, brackets=True)

    def _differs(self, value: Any) -> Filter[Any, Any]:
        name, read, atom, is_hidden = self._described()
        wanted = _json_value(name, value)

        def test(obj: Any) -> bool:
            return not equal_numbers(read(obj), wanted)

        atom = _with_values(atom, wanted)
        atom = msgspec.structs.replace(atom, term=_term(atom.field, wanted, negated=True))
        return _of_object(f"{name} != {_shown(wanted, is_hidden)}", test, atom, brackets=True)


def _with_values(atom: Atom, *values: Any) -> Atom:
    """With values that an annotation is compared with, and others that it is not."""
    if not atom.metadata:
        return atom
    (part, key, other), *_ = atom.metadata
    texts = [each for each in values if isinstance(each, str)]
    return msgspec.structs.replace(
        atom, metadata=tuple((part, key, each) for each in dict.fromkeys((*texts, other)))
    )


def _of_object(text: str, test: Test, atom: Atom, *, brackets: bool = False) -> Filter[Any, Any]:
    tree: Any = FilterTree(
        text=text, scope=FilterScope.OBJECT, test=test, atom=atom, needs_brackets=brackets
    )
    return Filter(tree)


def _of_change(text: str, test: Test, atom: Atom) -> ChangeFilter[Any, Any]:
    tree: Any = FilterTree(text=text, scope=FilterScope.CHANGE, test=test, atom=atom)
    return ChangeFilter(tree)


def _shown(value: Any, is_hidden: bool) -> str:
    return _HIDDEN_VALUE if is_hidden else repr(value)


JsonValue: TypeAlias = str | float | bool | Sequence[Any] | Mapping[str, Any] | None
"""A value that JSON has."""


@final
class AnnotationFilter(FieldConditions, Filter[Any, Any]):
    """Passes objects that have an annotation; :func:`annotation` makes it.

    It has the filters of a :func:`field`, too: ``annotation("x") == "yes"``, ``.changed``.
    """

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        """Use :func:`annotation`."""
        self._key = key
        tree: Any = FilterTree(
            text=f"annotation({key!r})",
            scope=FilterScope.OBJECT,
            test=lambda obj: key in obj.annotations,
            atom=_of_annotation(key, "yes"),
        )
        super().__init__(tree)

    @overload  # type: ignore[override]
    def __eq__(self, other: FilterExpression, /) -> bool: ...
    @overload
    def __eq__(self, other: JsonValue, /) -> Filter[Any, Any]: ...
    def __eq__(self, other: Any, /) -> Any:
        """Passes objects in which it has this value."""
        if isinstance(other, FilterExpression):
            return self is other
        return self._equals(_text(str(self), other))

    @overload  # type: ignore[override]
    def __ne__(self, other: FilterExpression, /) -> bool: ...
    @overload
    def __ne__(self, other: JsonValue, /) -> Filter[Any, Any]: ...
    def __ne__(self, other: Any, /) -> Any:
        """Passes objects in which it has another value, or none."""
        if isinstance(other, FilterExpression):
            return self is not other
        return self._differs(_text(str(self), other))

    def __hash__(self) -> int:
        return object.__hash__(self)

    def _described(self) -> tuple[str, Callable[[Any], Any], Atom, bool]:
        key = self._key
        atom = _of_annotation(key, "yes", "no")
        return str(self), lambda obj: obj.annotations.get(key), atom, False


def _of_annotation(key: str, *values: str) -> Atom:
    return Atom(
        steps=lambda _: ("metadata", "annotations", key),
        metadata=tuple(("annotations", key, each) for each in values),
    )


def annotation(key: str, /) -> AnnotationFilter:
    """Passes objects that have the annotation ``key``, whatever its value.

    It has the filters of a :func:`field`, too: ``annotation("x") == "yes"``, ``!=``, ``.isin``,
    ``.changed``, ``.became`` and ``.left``. Values of annotations are text.

    Raises:
        TypeError: ``key`` is not text.
        ValueError: it is empty.

    >>> ~annotation("example.com/paused")
    <Filter ~annotation('example.com/paused')>
    """
    if not isinstance(key, str):
        raise TypeError(f"annotation({key!r}): give the key of an annotation as text")
    if not key:
        raise ValueError("annotation(''): give the key of an annotation")
    return AnnotationFilter(key)


def filter_of(given: Any, option: str = "where") -> Filter[Any, Any]:
    """A filter of objects, from one or from a plain function.

    Args:
        given: what the user gave.
        option: its name, for error texts.

    Raises:
        TypeError: it is neither, or looks at changes; the text says what to give.
    """
    if type(given) is Filter:  # one of an annotation has another equality
        return given
    Filter.check(option, given)
    return Filter(given)


def change_filter_of(given: Any, option: str = "when") -> ChangeFilter[Any, Any]:
    """A filter of changes, from one, from a filter of the new object or from a plain function.

    Args:
        given: what the user gave.
        option: its name, for error texts.

    Raises:
        TypeError: it is not one of these; the text says what to give.
    """
    if isinstance(given, ChangeFilter):
        return given
    ChangeFilter.check(option, given)
    return ChangeFilter(given)


def refuse_unfinished(option: str, given: Any) -> None:
    """Refuse what makes a filter, but is not one yet.

    Raises:
        TypeError: the text says what to write.
    """
    if isinstance(given, FieldConditions) and not isinstance(given, FilterExpression):
        name = given._described()[0]  # noqa: SLF001 - of this module
        raise TypeError(
            f"{option}: {name} names a field and is not a filter: write {name}.exists, {name} == "
            f"value or {name}.changed, with == in brackets next to & and |"
        )
    if given is labels or given is annotation:
        name = callback_name(given)
        raise TypeError(f"{option}: {name} makes a filter: call it, {name}('example.com/x')")


def _checked(text: str, function: Callable[..., Any]) -> Test:
    """The function, whose result is a truth value; an awaitable is refused."""

    def test(*given: Any) -> bool:
        passes = function(*given)
        if passes is True or passes is False:
            return passes
        return bool(no_awaitable(f"filter {text}", passes))

    return test


def _text_of(function: Any) -> str:
    if isinstance(function, FilterExpression) or not callable(function):
        return str(function)[:80]
    return callback_name(function)


def _json_value(name: str, value: Any) -> Any:
    """A copy of a JSON value; those of enums are taken for their members."""

    def leaf(item: Any) -> Any:
        if isinstance(item, enum.Enum):
            return item.value
        raise TypeError(
            f"{name} is compared with a {type(item).__name__}: give a JSON value, that is text, a "
            "number, True, False, None, a list or a dict"
        )

    return deep_copy(value, leaf)


def _text(name: str, value: Any) -> Any:
    value = _json_value(name, value)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} is compared with {value!r}: its values are text")
    return value


def _term(path: str, value: Any, *, negated: bool) -> FieldTerm | None:
    """The condition of a field selector that matches the same objects, if there is one."""
    # To a server a missing field is "".
    if not path or "[" in path or not isinstance(value, str) or not value:
        return None
    return FieldTerm(path, value, negated)
