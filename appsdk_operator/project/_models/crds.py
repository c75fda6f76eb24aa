"""Modules of typed classes from CustomResourceDefinitions."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from appsdk_operator.project._models.classes import Classes
from appsdk_operator.project._models.layout import Group, Node, Text, string
from appsdk_operator.project._models.module import (
    STYLES,
    KindText,
    ModelStyle,
    module_text,
    named,
    reserved_fields,
)
from appsdk_operator.project._models.names import class_words, constant, unused
from appsdk_operator.project._models.schemas import (
    ModelError,
    SchemaReader,
    check_forms,
    kit_name,
    rules,
)
from appsdk_operator.resource import Kind, Scope, load_yaml

_DEEPEST_JSON: Final = 300


def read_crds(source: str | Path) -> list[dict[str, Any]]:
    """The CustomResourceDefinitions in YAML or JSON, in all documents and lists of it.

    Args:
        source: a file; a folder, of which each file with the ending ``.yaml``, ``.yml`` or
            ``.json`` is read, in the alphabet's order, with those in folders below; or ``"-"`` for
            standard input. Other documents than CRDs are passed over.

    Raises:
        ModelError: there is no CRD in it, or a file is not YAML.
        OSError: it cannot be read.
    """
    if source == "-":
        texts: dict[str, str | bytes] = {"standard input": sys.stdin.read()}
    elif Path(source).is_dir():
        endings = (".yaml", ".yml", ".json")
        paths = sorted(path for path in Path(source).rglob("*") if path.suffix in endings)
        texts = {str(path): path.read_bytes() for path in paths if path.is_file()}
    else:
        texts = {str(source): Path(source).read_bytes()}
    found = []
    for name, text in texts.items():
        try:
            documents = load_yaml(text)
        except ValueError as error:
            raise ModelError(f"{name}: {error}") from error
        for document in documents:
            found += _crds_in(document, name)
    if not found:
        raise ModelError(
            f"{source}: there is no CustomResourceDefinition in it: give files or folders with "
            "CustomResourceDefinitions"
        )
    return found


def _crds_in(document: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(document, dict):
        return []
    if isinstance(document.get("items"), list):
        return [crd for item in document["items"] for crd in _crds_in(item, name)]
    if document.get("kind") != "CustomResourceDefinition":
        return []
    if document.get("apiVersion") != "apiextensions.k8s.io/v1":
        raise ModelError(
            f"{name}: a CustomResourceDefinition has the apiVersion {document.get('apiVersion')}, "
            "which API servers no longer serve: give one of apiextensions.k8s.io/v1"
        )
    return [document]


@attrs.frozen
class _Resource:
    """One version of a custom resource."""

    kind: Kind
    schema: Mapping[str, Any]
    is_main: bool


def models(crds: Iterable[Mapping[str, Any]], *, style: ModelStyle = "attrs") -> str:
    """A Python module with typed classes for custom resources, and their kinds.

    A pure function: the same CRDs give the same text. Descriptions become docstrings, and nothing
    in a CRD becomes code: names are made of its letters, everything else stands in literals.

    Args:
        crds: CustomResourceDefinitions as plain JSON values; one that is there twice counts once.
            All served versions are in the module. The version that is stored has the plain names,
            ``WidgetSpec`` and ``WIDGET``; others end with theirs, ``WidgetSpecV1alpha1`` and
            ``WIDGET_V1ALPHA1``. What a schema says of whole objects is in ``WIDGET_DESCRIPTION``
            and ``WIDGET_RULES``, for the options of ``custom_resource_definition``.
        style: ``attrs`` (default), ``dataclass``, ``msgspec`` or ``pydantic``.

    Raises:
        ModelError: a CRD or a schema that no API server accepts, or two that are in each other's
            way; the text names it.
        ValueError: another style.
    """
    check_style(style)
    resources = _resources(crds)
    classes = Classes()
    kinds: list[KindText] = []
    names = _names(resources)
    groups: dict[str, list[str]] = {}
    for one, own in zip(resources, names, strict=True):
        version = "" if one.is_main else one.kind.version
        reader = SchemaReader(classes, version=version, reserved=reserved_fields(style))
        kinds.append(_kind_text(one, own, reader, style))
        groups.setdefault(own.stem, []).append(own.constant)
    taken = {kind.name for kind in kinds}
    texts = [
        text
        for one, kind in zip(resources, kinds, strict=True)
        for text in (kind, *_of_root(one, kind.name, taken))
    ]
    for stem, listed in groups.items():
        if len(listed) > 1:
            value = Group(Text(""), "()", tuple(("", Text(name)) for name in listed))
            doc = f"The versions of {stem}, the one that is stored first."
            texts.append(_constant(f"{constant(stem)}_VERSIONS", value, doc, taken))
    made = classes.all()
    named(made, taken)
    about = sorted({one.kind.qualified_name for one in resources})
    what = about[0] if len(about) == 1 else f"{len(about)} kinds: {', '.join(about)}"
    doc = f"Typed classes of {what}.\n\nGenerated by `appsdk-operator models`."
    return module_text(doc=doc, classes=made, kinds=texts, style=style)


def check_style(style: str) -> None:
    """Refuse a style that there is not.

    Raises:
        ValueError: the text lists those that there are.
    """
    if style not in STYLES:
        raise ValueError(f"style={style!r}: use one of {', '.join(STYLES)}")


def _resources(crds: Iterable[Mapping[str, Any]]) -> list[_Resource]:
    """The served versions, by kind and group, that which is stored first."""
    by_name: dict[tuple[str, str], Mapping[str, Any]] = {}
    for crd in crds:
        name, key = _identity(crd)
        _check_depth(name, crd)
        if by_name.setdefault(key, crd) != crd:
            raise ModelError(
                f"there are two different CustomResourceDefinitions {name}: give only one of them"
            )
    return [one for key in sorted(by_name) for one in _versions(by_name[key])]


def _check_depth(name: str, crd: Mapping[str, Any]) -> None:
    level: list[Any] = [crd]
    for _ in range(_DEEPEST_JSON):
        level = [
            inner
            for one in level
            if isinstance(one, (Mapping, list))
            for inner in (one.values() if isinstance(one, Mapping) else one)
        ]
        if not level:
            return
    raise ModelError(f"{name} is nested more than {_DEEPEST_JSON} levels deep")


def _identity(crd: Mapping[str, Any]) -> tuple[str, tuple[str, str]]:
    try:
        name = str(crd["metadata"]["name"])
        return name, (str(crd["spec"]["names"]["kind"]), str(crd["spec"]["group"]))
    except (KeyError, TypeError) as error:
        raise ModelError(
            "a CustomResourceDefinition has no metadata.name, spec.group or spec.names.kind"
        ) from error


def _versions(crd: Mapping[str, Any]) -> list[_Resource]:
    spec = crd["spec"]
    found = []
    given = spec.get("versions")
    listed = [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
    served = [one for one in listed if one.get("served", True)] or listed
    ordered = sorted(served, key=lambda one: not one.get("storage"))
    name = crd["metadata"]["name"]
    for one in ordered:
        try:
            kind = Kind(
                group=str(spec["group"]),
                version=str(one["name"]),
                kind=str(spec["names"]["kind"]),
                plural=str(spec["names"]["plural"]),
                scope=Scope(spec["scope"]),
            )
        except (KeyError, ValueError) as error:
            raise ModelError(f"{name}: {error}") from error
        around = one.get("schema")
        schema = around.get("openAPIV3Schema") if isinstance(around, Mapping) else None
        if not isinstance(schema, Mapping):
            raise ModelError(f"{name}: version {kind.version} has no schema")
        check_forms(schema, f"{name}: version {kind.version}")
        found.append(_Resource(kind, schema, one is ordered[0]))
    if not found:
        raise ModelError(f"{name} has no versions")
    return found


@attrs.frozen
class _Names:
    """The names in the module that one version of a kind has."""

    stem: str
    """What the names of its classes begin with, ``Widget``; the same for all versions."""
    constant: str
    """The name of the kind, ``WIDGET``."""
    classes: Mapping[str, str]
    """The names of its classes by the part of the object: ``{"spec": "WidgetSpec"}``."""


def _names(resources: Sequence[_Resource]) -> list[_Names]:
    """The names of each; no two are the same, and those of versions that are stored are plain."""
    stems = _stems(list(dict.fromkeys((one.kind.group, one.kind.kind) for one in resources)))
    taken: set[str] = set()
    found: dict[int, _Names] = {}
    for number in sorted(range(len(resources)), key=lambda number: not resources[number].is_main):
        kind, is_main = resources[number].kind, resources[number].is_main
        stem = stems[kind.group, kind.kind]
        own = constant(stem) if is_main else f"{constant(stem)}_{constant(kind.version)}"
        suffix = "" if is_main else class_words(kind.version)
        classes = {part: f"{stem}{part.capitalize()}{suffix}" for part in ("spec", "status")}
        found[number] = made = _Names(
            stem,
            unused(own, taken),
            {part: unused(name, taken, "") for part, name in classes.items()},
        )
        taken |= {made.constant, *made.classes.values()}
    return [found[number] for number in range(len(resources))]


def _stems(pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """What names of each group and kind begin with: also with the group where two are alike.

    Alike are those with the same constant, such as ``HTTPRoute`` and ``HttpRoute``.
    """
    plain = {pair: class_words(pair[1]) for pair in pairs}
    alike = Counter(constant(stem) for stem in plain.values())
    found = {pair: stem for pair, stem in plain.items() if alike[constant(stem)] == 1}
    taken = {constant(stem) for stem in found.values()}
    for group, kind in pairs:
        if (group, kind) in found:
            continue
        own = plain[group, kind]
        others = [g for g, k in pairs if constant(plain[g, k]) == constant(own)]
        labels = group.split(".")
        words = 1
        while words < len(labels) and any(
            g != group and g.split(".")[:words] == labels[:words] for g in others
        ):
            words += 1
        prefix = "".join(class_words(label) for label in labels[:words])
        number, stem = 1, prefix + own
        while constant(stem) in taken:
            number += 1
            stem = f"{prefix}{own}{number}"
        found[group, kind] = stem
        taken.add(constant(stem))
    return found


def _kind_text(one: _Resource, own: _Names, reader: SchemaReader, style: ModelStyle) -> KindText:
    kind = one.kind
    properties = one.schema.get("properties") or {}
    items: list[tuple[str, Node]] = [
        ("group=", Text(string(kind.group))),
        ("version=", Text(string(kind.version))),
        ("kind=", Text(string(kind.kind))),
        ("plural=", Text(string(kind.plural))),
    ]
    if kind.scope is Scope.CLUSTER:
        items.append(("scope=", attrs.evolve(kit_name("Scope"), text="Scope.CLUSTER")))
    is_typed = False
    for part in ("spec", "status"):
        schema = properties.get(part)
        if isinstance(schema, Mapping):
            found = reader.root(schema, own.classes[part], (own.stem, part.capitalize()))
            if found is not None:
                items.append((f"{part}=", found))
                is_typed = True
    if is_typed and style != "msgspec":
        items.append(("rename=", Text('"camel"')))
    doc = str(one.schema.get("description") or "")
    others = sorted(properties.keys() - {"apiVersion", "kind", "metadata", "spec", "status"})
    if others:
        more = (
            f"Apart from spec and status its objects have {', '.join(others)}, which are not typed."
        )
        doc = f"{doc}\n\n{more}" if doc else more
    return KindText(name=own.constant, value=Group(kit_name("Kind"), "()", tuple(items)), doc=doc)


def _of_root(one: _Resource, name: str, taken: set[str]) -> list[KindText]:
    """What a schema says of whole objects, as options of ``custom_resource_definition``."""
    found = []
    if text := str(one.schema.get("description") or ""):
        doc = f"The description of {name} in its CRD."
        found.append(_constant(f"{name}_DESCRIPTION", Text(string(text)), doc, taken))
    if listed := rules(one.schema):
        value = Group(Text(""), "()", tuple(("", rule) for rule in listed))
        doc = f"The rules for whole objects of {name} in its CRD."
        found.append(_constant(f"{name}_RULES", value, doc, taken))
    return found


def _constant(name: str, value: Node, doc: str, taken: set[str]) -> KindText:
    """A constant in a module of kinds, whose name may be that of another kind."""
    own = unused(name, taken)
    taken.add(own)
    return KindText(name=own, value=value, doc=doc)
