"""The versions of a kind, and the conversion of objects between them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, final, overload

import attrs
import msgspec

from appsdk_operator._generics import (
    OtherSpecT,
    OtherStatusT,
    SpecT,
    SpecT_co,
    StatusT,
    StatusT_co,
    subscript,
)
from appsdk_operator._lazy import lazy_pattern
from appsdk_operator.resource import _codec, _lossless
from appsdk_operator.resource._kind import Kind, check_kind
from appsdk_operator.resource._object import MutableObject, Object, type_fields

_MOST_WARNING_CHARACTERS: Final = 256
_CHANGEABLE: Final = ("labels", "annotations")
_PREFIX: Final = lazy_pattern(
    r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
_NAME: Final = lazy_pattern(r"(?=.{1,63}$)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class ConversionError(ValueError):
    """An object cannot be converted to another version; the text is for the client.

    A :data:`Converter` raises it to refuse an object. Its text reaches the client of the API
    server, as do the texts of :class:`DecodeError` and :class:`EncodeError`, but of no other
    exception.
    """


Converter: TypeAlias = Callable[
    [Object[SpecT, StatusT], MutableObject[OtherSpecT, OtherStatusT]],
    MutableObject[OtherSpecT, OtherStatusT] | Object[OtherSpecT, OtherStatusT] | None,
]
"""Converts an object to another version of its kind: ``convert(old, new)``.

``old`` is the object. ``new`` is a draft of the other version with the same metadata and fields. It
lacks a spec or status for which the other version has a type of its own. The function changes the
draft, or returns another object. It must be a pure function of ``old``: API servers convert one
object many times, in any order and in several threads.
"""


@attrs.frozen(kw_only=True)
class Spoke:
    """A version of a kind that is converted to and from the hub."""

    kind: Kind[Any, Any]
    """The version."""
    to_hub: Converter[Any, Any, Any, Any]
    """Converts it to the hub."""
    from_hub: Converter[Any, Any, Any, Any]
    """Converts the hub to it."""
    deprecated: str | bool = False
    """The warning that clients get; True for the API server's own text; False for none."""
    served: bool = True
    """Whether the API server serves the version."""
    annotation: str = ""
    """The annotation that holds the fields a conversion would lose; ``""``: they are lost."""


def _check_hub(_: object, __: object, value: object) -> None:
    check_kind(value, "hub")


@final
@attrs.frozen
class Versions(Generic[SpecT_co, StatusT_co]):
    """The versions of a kind: a hub, and others that are converted to and from the hub.

    The hub is the version that can hold everything, usually the newest. Objects are converted
    between two other versions through the hub. Immutable and thread-safe, if the functions are.

    Args:
        hub: the kind in its hub version.
        spokes: the other versions; :meth:`older` and :meth:`newer` add them.

    Raises:
        TypeError: ``hub`` is not a Kind.

    >>> V1 = Kind(group="example.com", version="v1", kind="Widget")
    >>> V1Alpha1 = Kind(group="example.com", version="v1alpha1", kind="Widget")
    >>> def up(old, new):
    ...     new.spec["size"] = int(old.spec["size"])
    >>> def down(old, new):
    ...     new.spec["size"] = str(old.spec["size"])
    >>> versions = Versions(V1).older(V1Alpha1, up=up, down=down, deprecated="use v1")
    >>> data = {"metadata": {"name": "web"}, "spec": {"size": "3"}}
    >>> versions.convert(Object.from_dict(V1Alpha1, data), V1).spec
    {'size': 3}
    """

    hub: Kind[SpecT_co, StatusT_co] = attrs.field(validator=_check_hub)
    """The kind in its hub version."""
    spokes: tuple[Spoke, ...] = attrs.field(default=(), kw_only=True)
    """The other versions, in the order in which they were added."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __attrs_post_init__(self) -> None:
        taken = {self.hub.version}
        annotations: set[str] = set()
        for spoke in self.spokes:
            _check_sibling(self.hub, spoke.kind)
            if spoke.kind.version in taken:
                raise ValueError(f"{spoke.kind} is given twice: give each version once")
            taken.add(spoke.kind.version)
            if spoke.annotation and spoke.annotation in annotations:
                raise ValueError(
                    f"{spoke.kind}: lossless={spoke.annotation!r} is the annotation of another "
                    "version: give each its own"
                )
            annotations.add(spoke.annotation)

    def older(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        up: Converter[SpecT, StatusT, SpecT_co, StatusT_co],
        down: Converter[SpecT_co, StatusT_co, SpecT, StatusT],
        deprecated: str | bool = False,
        served: bool = True,
        lossless: str | bool = False,
    ) -> Versions[SpecT_co, StatusT_co]:
        """These versions and one that is older than the hub.

        Args:
            kind: the kind in the other version; group, kind, plural and scope are the hub's.
            up: converts an object of ``kind`` to the hub, ``up(old, new)``; see
                :data:`Converter`.
            down: converts an object of the hub to ``kind``.
            deprecated: the warning for clients that use the version, of at most 256 characters;
                True for the API server's own text; default: the version is not deprecated.
            served: whether the API server serves the version; default True. A version that is
                stored but no longer served needs its functions, too.
            lossless: whether an annotation carries the fields that the other version cannot hold,
                or the name of this annotation; True means ``<group>/conversion-<version>``. The
                conversion back restores these fields and merges them with later changes; if both
                differ, the change wins. Default False: fields that ``up`` or ``down`` loses are
                lost.

        Raises:
            TypeError: ``kind`` is not a Kind; a function is missing, async or takes other
                arguments.
            ValueError: another version with this name; another group, kind, plural or scope; a
                warning or the name of an annotation that no API server accepts.
        """
        return self._with(kind, up, down, ("up", "down"), deprecated, served, lossless)

    def newer(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        up: Converter[SpecT_co, StatusT_co, SpecT, StatusT],
        down: Converter[SpecT, StatusT, SpecT_co, StatusT_co],
        deprecated: str | bool = False,
        served: bool = True,
        lossless: str | bool = False,
    ) -> Versions[SpecT_co, StatusT_co]:
        """These versions and one that is newer than the hub; see :meth:`older`.

        Args:
            kind: the kind in the other version.
            up: converts an object of the hub to ``kind``.
            down: converts an object of ``kind`` to the hub.
            deprecated: as for :meth:`older`.
            served: as for :meth:`older`.
            lossless: as for :meth:`older`.

        Raises:
            TypeError, ValueError: as :meth:`older`.
        """
        return self._with(kind, down, up, ("down", "up"), deprecated, served, lossless)

    def _with(
        self,
        kind: Kind[Any, Any],
        to_hub: Any,
        from_hub: Any,
        names: tuple[str, str],
        deprecated: str | bool,
        served: bool,
        lossless: str | bool,
    ) -> Versions[SpecT_co, StatusT_co]:
        check_kind(kind)
        for name, function in zip(names, (to_hub, from_hub), strict=True):
            _check_converter(f"{kind}: {name}", function)
        _check_flag("served", served)
        spoke = Spoke(
            kind=kind,
            to_hub=to_hub,
            from_hub=from_hub,
            deprecated=checked_warning(deprecated),
            served=served,
            annotation=_annotation_name(kind, lossless),
        )
        return attrs.evolve(self, spokes=(*self.spokes, spoke))

    @property
    def kinds(self) -> tuple[Kind[Any, Any], ...]:
        """The kind in all its versions, the hub first."""
        return (self.hub, *(spoke.kind for spoke in self.spokes))

    def kind(self, version: str) -> Kind[Any, Any]:
        """The kind in the version with this name.

        Raises:
            LookupError: there is no such version.
        """
        for kind in self.kinds:
            if kind.version == version:
                return kind
        raise LookupError(
            f"{self.hub.qualified_name} has no version {version}: it has "
            f"{', '.join(kind.version for kind in self.kinds)}"
        )

    @overload
    def convert(
        self, obj: Object[Any, Any], to: Kind[SpecT, StatusT]
    ) -> Object[SpecT, StatusT]: ...
    @overload
    def convert(
        self, obj: MutableObject[Any, Any], to: Kind[SpecT, StatusT]
    ) -> MutableObject[SpecT, StatusT]: ...
    def convert(self, obj: Object | MutableObject, to: Kind) -> Object | MutableObject:
        """The object in another version; an object of this version as it is.

        Of the metadata only labels and annotations may change. All other fields of the metadata are
        kept, unknown ones included.

        Args:
            obj: an object of one of these versions; it is not changed.
            to: the kind in the version to convert to.

        Raises:
            ConversionError: a function refused the object, changed other metadata, or returned
                something else than an object of its version; or the object does not fit its kind's
                types.
            WrongKindError: the object, or ``to``, is of none of these versions.
            DecodeError: the object has no metadata, or it is malformed.
            Exception: whatever a function raised; a note names the object.
        """
        check_kind(to, "to")
        if not isinstance(obj, (Object, MutableObject)):
            raise TypeError(f"obj is of type {type(obj).__name__}: give an Object or MutableObject")
        target = self._own(to)
        is_draft = isinstance(obj, MutableObject)
        found = obj.freeze() if isinstance(obj, MutableObject) else obj
        source = self._own(found.kind)
        found = found.viewed_as(source)
        if source != target:
            for step in self._route(source, target):
                found = step.convert(found)
        found = found.viewed_as(to)
        return found.mutable_copy() if is_draft else found

    def _own(self, kind: Kind) -> Kind[Any, Any]:
        """This kind as it was given here, with its types."""
        for known in self.kinds:
            if known == kind:
                return known
        raise _codec.WrongKindError(
            f"{kind} is not one of {', '.join(map(str, self.kinds))}: add it with older(…) or "
            "newer(…)"
        )

    def _route(self, source: Kind, target: Kind) -> list[_Step]:
        """The steps from one version to another, by way of the hub."""
        steps: list[_Step] = []
        for spoke in self.spokes:
            to_hub, from_hub, annotation = spoke.to_hub, spoke.from_hub, spoke.annotation
            if spoke.kind == source:
                steps.insert(0, _Step(source, self.hub, to_hub, from_hub, annotation, self))
            elif spoke.kind == target:
                steps.append(_Step(self.hub, target, from_hub, to_hub, annotation, self))
        return steps


def convert_parts(
    *,
    spec: Callable[[SpecT], OtherSpecT] | None = None,
    status: Callable[[StatusT], OtherStatusT] | None = None,
) -> Converter[SpecT, StatusT, OtherSpecT, OtherStatusT]:
    """A :data:`Converter` that converts spec and status separately, by functions of their values.

    Args:
        spec: returns the spec for the other version, a typed value or a mapping; not called for an
            object without one. Default: the spec stays as it is.
        status: the same for the status.

    Raises:
        TypeError: an argument is not a function of one value.

    >>> up = convert_parts(spec=lambda spec: {"size": int(spec["size"])})
    """
    functions: dict[str, Any] = {"spec": spec, "status": status}
    for name, function in functions.items():
        if function is not None:
            _check_signature(name, function, name)

    def convert(old: Object[SpecT, StatusT], new: MutableObject[OtherSpecT, OtherStatusT]) -> None:
        for name, function in functions.items():
            value = old.get(name)
            if value is None:
                continue
            if function is not None:
                new.data.pop(name, None)
                setattr(new, name, function(getattr(old, name)))
            else:
                new.data[name] = _codec.plain_copy(value, rename=new.kind.rename)

    return convert


class _Step(msgspec.Struct, frozen=True):
    """The conversion between the hub and a spoke, in one direction."""

    source: Kind
    target: Kind
    forward: Converter[Any, Any, Any, Any]
    back: Converter[Any, Any, Any, Any]
    annotation: str
    versions: Versions[Any, Any]

    def convert(self, obj: Object) -> Object:
        """The object in the other version.

        Raises:
            ConversionError: as :meth:`Versions.convert`.
        """
        if not self.annotation:
            return Object.from_dict(self.target, self.call(obj))
        text = obj.annotations.get(self.annotation)
        bare = obj
        if text is not None:
            metadata = _lossless.without_annotation(_plain(obj["metadata"]), self.annotation)
            bare = _object(self.source, metadata, _lossless.parts_of(obj.to_dict()))
        made = self.call(bare)
        metadata, parts = made["metadata"], _lossless.parts_of(made)
        lost, back = self._lost(bare, metadata, parts)
        if text is not None:
            try:
                merged = self._merged(bare, metadata, parts, text)
                # What was written in this version wins over what the annotation has.
                if merged is not None and (lost or not merged[1]):
                    parts, lost, back = merged
            except Exception:  # noqa: S110 - whoever may write the object may have written it
                pass
        if lost:
            metadata = self._with_annotation(bare, metadata, lost, back)
        return _object(self.target, metadata, parts)

    def _merged(
        self, bare: Object, metadata: Mapping[str, Any], parts: dict[str, Any], text: str
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None] | None:
        """The new parts merged with those of the annotation, with what :meth:`_lost` says of them.

        None if the annotation has nothing for the target. It may hold anything, so each of the
        user's functions that is called with it may raise what it likes.
        """
        stash = self._stash(bare, text)
        if stash is None:
            return None
        merged = self._restored(metadata, parts, stash)
        if not _lossless.fits(self.target, merged):
            return None
        return (merged, *self._lost(bare, metadata, merged))

    def call(self, obj: Object) -> dict[str, Any]:
        """The result of the function, without regard to the annotation."""
        return _call(self.forward, obj, self.target)

    def _reversed(self) -> _Step:
        return msgspec.structs.replace(
            self, source=self.target, target=self.source, forward=self.back, back=self.forward
        )

    def _lost(
        self, obj: Object, metadata: Mapping[str, Any], parts: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """The parts of ``obj`` that do not come back from its conversion, and all that come."""
        before = _lossless.parts_of(obj.to_dict())
        try:
            made = self._reversed().call(_object(self.target, metadata, parts))
        except ConversionError:  # it has no counterpart
            return before, None
        back = _lossless.parts_of(made)
        return _lossless.lost_parts(self.source, before, back), back

    def _stash(self, obj: Object, text: str) -> _lossless.Stash | None:
        """What the annotation has for the target; None if it has nothing."""
        found = _lossless.read_annotation(text)
        if found is None or found.version == self.target.api_version:
            return found
        # It is of a former hub.
        former = next((k for k in self.versions.kinds if k.api_version == found.version), None)
        if former is None or former == self.source:
            return None
        there = self.versions.convert(obj, former).to_dict()
        if found.instead is None:
            whole = {**there, **found.lost}
        else:
            parts = _lossless.restored(found.lost, found.instead, _lossless.parts_of(there))
            whole = {**type_fields(former), "metadata": there["metadata"], **parts}
        whole = {name: value for name, value in whole.items() if value is not None}
        here = self.versions.convert(Object.from_dict(former, whole), self.target)
        parts = _lossless.parts_of(here.to_dict())
        return _lossless.Stash(self.target.api_version, parts, None)

    def _restored(
        self, metadata: Mapping[str, Any], new: dict[str, Any], stash: _lossless.Stash
    ) -> dict[str, Any]:
        """The new parts merged with those of the annotation."""
        kept, known = stash.lost, stash.instead
        if known is None:
            before = {**new, **kept}
            before = {name: value for name, value in before.items() if value is not None}
            there = self._reversed().call(_object(self.target, metadata, before))
            known = _lossless.parts_of(self.call(Object.from_dict(self.source, there)))
        return _lossless.restored(kept, known, new)

    def _with_annotation(
        self,
        obj: Object,
        metadata: Mapping[str, Any],
        lost: dict[str, Any],
        back: dict[str, Any] | None,
    ) -> dict[str, Any]:
        annotations = dict(metadata.get("annotations") or {})
        text = _lossless.written_annotation(self.source.api_version, lost, back)
        annotations[self.annotation] = text
        size = _lossless.annotation_bytes(annotations)
        if size > _lossless.MOST_ANNOTATION_BYTES:
            raise ConversionError(
                f"{self._what(obj)}: the part that {self.target.version} cannot hold has "
                f"{len(text)} characters, so its annotations would have {size} bytes, and API "
                f"servers accept {_lossless.MOST_ANNOTATION_BYTES}: make the object smaller, or "
                f"use {self.source.version}"
            )
        return {**metadata, "annotations": annotations}

    def _what(self, obj: Object) -> str:
        return f"{obj} from {self.source.version} to {self.target.version}"


def _call(
    function: Converter[Any, Any, Any, Any], old: Object[Any, Any], target: Kind[Any, Any]
) -> dict[str, Any]:
    """The result of one function, with the metadata that it has to have."""
    what = f"{old} from {old.kind.version} to {target.version}"
    data = {**old.to_dict(), "apiVersion": target.api_version}
    for name, mine, other in (
        ("spec", target.spec_view, old.kind.spec_view),
        ("status", target.status_view, old.kind.status_view),
    ):
        if mine is not None and mine != other:
            data.pop(name, None)
    draft = MutableObject(target, data)
    # Decoded again, which is faster than a copy: the function may change the draft's.
    before: dict[str, Any] = _codec.decode_json(bytes(_codec.members(old.raw)["metadata"]))
    try:
        result: Any = function(old, draft)
    except ConversionError as error:
        text = str(error)
        raise ConversionError(text if text.startswith(what) else f"{what}: {text}") from error
    except (_codec.DecodeError, _codec.EncodeError) as error:
        raise ConversionError(f"{what}: {error}") from error
    except Exception as error:
        from appsdk_operator.runtime import add_note

        add_note(error, f"while converting {what}")
        raise
    made = _data_of(result, draft, target, what)
    is_draft = made is draft.data
    _check_type_fields(made, target, what)
    metadata = _checked_metadata(before, made.get("metadata"), is_draft=is_draft, what=what)
    return {**type_fields(target), "metadata": metadata, **_lossless.parts_of(made)}


def _data_of(result: Any, draft: MutableObject, target: Kind, what: str) -> dict[str, Any]:
    if result is None:
        return draft.data
    if isinstance(result, (Object, MutableObject)):
        if result.kind != target:
            raise ConversionError(
                f"{what}: the function returned an object of {result.kind}: return one of {target}"
            )
        return result.data if isinstance(result, MutableObject) else result.to_dict()
    if inspect.iscoroutine(result):
        result.close()  # an unawaited coroutine causes a warning
    raise ConversionError(
        f"{what}: the function returned a value of type {type(result).__name__}: return an Object "
        "or MutableObject of the other version, or nothing after changing the draft"
    )


def _check_type_fields(made: Mapping[str, Any], target: Kind, what: str) -> None:
    for name, wanted in type_fields(target).items():
        found = made.get(name) or wanted
        if found != wanted:
            raise ConversionError(f"{what}: the function set {name} to {found!r}: leave it alone")


def _checked_metadata(
    before: dict[str, Any], after: Any, *, is_draft: bool, what: str
) -> dict[str, Any]:
    """The metadata of a result: labels and annotations of ``after``, all else of ``before``.

    Fields that a new object does not have are filled in; from a draft they were removed.
    """
    if after is None and not is_draft:
        after = {}
    if not isinstance(after, Mapping):
        raise ConversionError(f"{what}: the function removed the metadata: leave it in the draft")
    for name in {**before, **after}:
        if name in _CHANGEABLE or (name not in after and not is_draft):
            continue
        if (before.get(name) or None) != (after.get(name) or None):
            raise ConversionError(
                f"{what}: the function changed metadata.{name}: only labels and annotations may "
                "change in a conversion"
            )
    made = dict(before)
    for name in _CHANGEABLE:
        if name not in after and not is_draft:
            continue
        value = after.get(name)
        if not value:
            if before.get(name):
                del made[name]
            continue
        if not isinstance(value, Mapping) or not all(
            isinstance(text, str) for pair in value.items() for text in pair
        ):
            raise ConversionError(
                f"{what}: the function set metadata.{name} to something else than a mapping of "
                "texts"
            )
        made[name] = dict(value)
    return made


def _object(kind: Kind, metadata: Mapping[str, Any], parts: Mapping[str, Any]) -> Object[Any, Any]:
    return Object.from_dict(kind, {**type_fields(kind), "metadata": metadata, **parts})


def _plain(value: Any) -> Any:
    return _codec.plain_copy(value)


def _check_sibling(hub: Kind, kind: Kind) -> None:
    for name in ("group", "kind", "plural", "scope"):
        mine, other = getattr(hub, name), getattr(kind, name)
        if mine != other:
            raise ValueError(
                f"{kind} has the {name} {other!r}, but the hub {hub} has {mine!r}: versions of a "
                "kind differ in version, spec and status only"
            )


def _check_converter(what: str, function: Any) -> None:
    from appsdk_operator.runtime.validation import check_plain

    check_plain(what, function, "but a conversion is a pure function of the object")
    _check_signature(what, function, "old", "new")


def _check_signature(what: str, function: Any, *arguments: str) -> None:
    wanted = f"give a function of ({', '.join(arguments)})"
    if not callable(function):
        raise TypeError(f"{what}={function!r} cannot be called: {wanted}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some of those written in C have none
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        name = getattr(function, "__qualname__", type(function).__name__)
        raise TypeError(f"{what}={name}{signature}: {error}: {wanted}") from None


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: give True or False")


def checked_warning(text: object) -> str | bool:
    """The deprecation warning of a version, checked.

    Raises:
        TypeError, ValueError: no API server accepts it.
    """
    if isinstance(text, bool):
        return text
    if not isinstance(text, str):
        raise TypeError(f"deprecated={text!r}: give the warning as text, True or False")
    if len(text) > _MOST_WARNING_CHARACTERS:
        raise ValueError(
            f"deprecated has {len(text)} characters: API servers accept at most "
            f"{_MOST_WARNING_CHARACTERS}"
        )
    if not text.strip() or not text.isprintable():
        raise ValueError(f"deprecated={text!r}: give one line of text, or True or False")
    return text


def _annotation_name(kind: Kind, lossless: object) -> str:
    if isinstance(lossless, bool):
        return f"{kind.group}/conversion-{kind.version}" if lossless else ""
    if not isinstance(lossless, str):
        raise TypeError(f"lossless={lossless!r}: give True, False or the name of an annotation")
    prefix, slash, name = lossless.rpartition("/")
    if not (slash and _PREFIX.fullmatch(prefix) and _NAME.fullmatch(name)):
        raise ValueError(
            f"lossless={lossless!r} is not a name of an annotation: use for example "
            f"'{kind.group}/conversion-{kind.version}'"
        )
    return lossless
