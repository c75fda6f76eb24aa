"""From kopf's names of resources to Kinds."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs

from appsdk_operator.cli._kopf.names import is_none
from appsdk_operator.resource import Scope
from appsdk_operator.resource.kinds import builtin_kinds

_KEYWORDS: Final = ("group", "version", "kind", "plural", "singular", "shortcut", "category")


@attrs.frozen
class Known:
    """A kind that a CRD or the table of built-in kinds describes."""

    group: str
    version: str
    kind: str
    plural: str
    is_namespaced: bool = True
    names: frozenset[str] = frozenset()
    """Every name by which kopf finds it."""
    expression: str = ""
    """How it is written, if it needs no declaration."""


@attrs.frozen
class Declared:
    """A Kind as the translated program names it."""

    expression: str
    """The name of the constant, or ``kinds.core.v1.Pod``."""
    declaration: str = ""
    """The constant's declaration, without its TODO."""
    todo: str = ""
    """What is not known of it."""
    reason: str = ""
    """Why it is not the one that the decorator means."""


def known_of_crds(crds: Iterable[Mapping[str, Any]]) -> list[Known]:
    """The kinds of CustomResourceDefinitions: of each the version that is stored comes first."""
    found: list[Known] = []
    for crd in crds:
        spec = crd["spec"]
        names = spec["names"]
        versions = spec.get("versions") or [{"name": spec.get("version", "v1"), "storage": True}]
        called = {names["plural"], names["kind"], names.get("singular") or names["kind"].lower()}
        found += [
            Known(
                group=spec["group"],
                version=version["name"],
                kind=names["kind"],
                plural=names["plural"],
                is_namespaced=spec.get("scope") != "Cluster",
                names=frozenset({*called, *names.get("shortNames", ())}),
            )
            for version in sorted(versions, key=lambda one: not one.get("storage"))
        ]
    return found


def _builtin() -> list[Known]:
    return [
        Known(
            group=each.kind.group,
            version=each.kind.version,
            kind=each.kind.kind,
            plural=each.kind.plural,
            is_namespaced=each.kind.scope is Scope.NAMESPACED,
            names=frozenset({each.kind.plural, each.kind.kind, each.singular, *each.short_names}),
            expression=".".join(
                (
                    "kinds",
                    each.kind.group.partition(".")[0] or "core",
                    each.kind.version,
                    each.kind.kind,
                )
            ),
        )
        for each in builtin_kinds()
    ]


class Kinds:
    """The kinds of a program: found by selectors, declared once each.

    Args:
        known: the kinds of its CRDs.
        taken: whether a name is used in the program.
    """

    def __init__(self, known: Iterable[Known], taken: Callable[[str], bool]) -> None:
        self._known = [*known, *_builtin()]
        self._taken = taken
        self._by_text: dict[str, Declared] = {}
        self.declared: dict[str, Declared] = {}
        """Those that need a declaration, by the name of their constant."""

    def find(
        self, call: ast.Call, text: Callable[[ast.AST], str], value: Callable[[ast.expr], Any]
    ) -> Declared:
        """The Kind that a decorator selects; one to be corrected where that is not known.

        Args:
            call: the decorator's call.
            text: the source of an expression.
            value: the value of a constant expression; None if it is not constant.
        """
        parts: list[tuple[str, str | None]] = []
        for arg in call.args:
            if isinstance(arg, ast.Starred):
                several = value(arg.value)
                if not isinstance(several, (list, tuple)):
                    return self.unknown(text(arg))
                parts += [(repr(one), one) for one in several]
            else:
                parts.append((text(arg), value(arg)))
        named: dict[str | None, tuple[str, str | None]] = {
            k.arg: (text(k.value), value(k.value))
            for k in call.keywords
            if k.arg in _KEYWORDS and not is_none(k.value)
        }
        if any(t.endswith("EVERYTHING") for t, _ in parts) or "category" in named:
            return self._unknown("", "it selects all kinds: declare a function for each kind")
        if any(v is None and t.startswith("lambda") for t, v in parts):
            return self._unknown(
                "", "a function selects the kinds: declare a function for each kind"
            )
        selected = _selected(parts, named)
        if not selected:
            return self._unknown("", "the decorator names no kind: correct the Kind")
        key = repr(sorted(selected.items()))
        if key not in self._by_text:
            self._by_text[key] = self._declare(selected)
        return self._by_text[key]

    def unknown(self, text: str) -> Declared:
        """A Kind in place of one whose selector has a value that is not known.

        Args:
            text: the selector's expression.
        """
        return self._unknown(
            text, f"the kind is {' '.join(text.split())}, whose value is unknown: correct the Kind"
        )

    def _unknown(self, text: str, reason: str) -> Declared:
        """A Kind in place of one that is not known, named for the expression."""
        name = next((one for one in re.findall(r"\w+", text) if one[0].isupper()), "Unknown")
        words = "".join(word.capitalize() if word.isupper() else word for word in name.split("_"))
        made = self._constant(words, group='"example.com"', version='"v1"', plural=None)
        return attrs.evolve(made, reason=reason)

    def _declare(self, selected: Mapping[str, tuple[str, str | None]]) -> Declared:
        matches = [one for one in self._known if _fits(one, selected)]
        if matches:
            one = matches[0]
            if one.expression:
                return Declared(one.expression)
            return self._constant(
                one.kind,
                group=repr(one.group),
                version=repr(one.version),
                plural=one.plural,
                is_namespaced=one.is_namespaced,
            )
        name_text, name = selected["name"]
        group = selected.get("group", ('"example.com"', "example.com"))
        version = selected.get("version", ('"v1"', "v1"))
        _, kind = selected.get("kind", ("", None))
        unknown = [what for what in ("group", "version") if what not in selected]
        plural: str | None = name
        if kind is None and name is not None and name[:1].isupper() and name.isalnum():
            kind, plural = name, None
        elif kind is None:
            unknown.append("kind")
            kind = _guessed(name or re.sub(r"\W", "", name_text.rpartition(".")[2]).lower())
        elif name == kind:
            plural = None
        todo = ""
        if unknown:
            verb = "is a guess" if len(unknown) == 1 else "are guesses"
            todo = f"{' and '.join(unknown)} {verb}: give the CRD with --crd, or correct the Kind"
        return self._constant(
            kind,
            group=group[0],
            version=version[0],
            plural=plural,
            plural_text=name_text if name is None else "",
            todo=todo,
        )

    def _constant(
        self,
        kind: str,
        *,
        group: str,
        version: str,
        plural: str | None,
        plural_text: str = "",
        is_namespaced: bool = True,
        todo: str = "",
    ) -> Declared:
        words = [f"group={_double(group)}", f"version={_double(version)}", f'kind="{kind}"']
        if plural_text:
            words.append(f"plural={plural_text}")
        elif plural is not None and plural != f"{kind.lower()}s":
            words.append(f'plural="{plural}"')
        if not is_namespaced:
            words.append("scope=Scope.CLUSTER")
        value = f"Kind({', '.join(words)})"
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).upper()
        while self._taken(name) or name in self.declared:
            known = self.declared.get(name)
            if known and known.declaration == f"{name} = {value}":
                return known
            name += "_KIND"
        self.declared[name] = Declared(name, f"{name} = {value}", todo)
        return self.declared[name]


def _double(text: str) -> str:
    """A text literal as formatters like it."""
    return f'"{text[1:-1]}"' if text[:1] == "'" and '"' not in text else text


def _selected(
    parts: list[tuple[str, str | None]], named: Mapping[str | None, tuple[str, str | None]]
) -> dict[str, tuple[str, str | None]]:
    """Group, version, kind and name of a selector, each with its text and its value."""
    found: dict[str, tuple[str, str | None]] = {}
    if len(parts) == 1:
        text, value = parts[0]
        name, _, rest = (value or "").partition(".")
        found["name"] = (repr(name), name) if value else (text, None)
        if rest:
            version, _, group = rest.partition(".")
            if re.fullmatch(r"v\d+((alpha|beta)\d+)?", version) and group:
                found["version"], found["group"] = (repr(version), version), (repr(group), group)
            else:
                found["group"] = repr(rest), rest
    elif len(parts) == 2:
        found["name"], found["group"] = parts[1], parts[0]
        group, slash, version = (parts[0][1] or "").partition("/")
        if slash:
            found["group"], found["version"] = (repr(group), group), (repr(version), version)
        elif parts[0][1] == "v1":
            found["group"], found["version"] = ("''", ""), ("'v1'", "v1")
    elif len(parts) == 3:
        found["group"], found["version"], found["name"] = parts
    for word in ("group", "version", "kind"):
        if word in named:
            found[word] = named[word]
    group, slash, version = (found.get("group", ("", ""))[1] or "").partition("/")
    if slash:
        found["group"], found["version"] = (repr(group), group), (repr(version), version)
    for word in ("plural", "singular", "shortcut", "kind"):
        if word in named:
            found.setdefault("name", named[word])
    return found if "name" in found else {}


def _fits(one: Known, selected: Mapping[str, tuple[str, str | None]]) -> bool:
    name = selected["name"][1]
    if name is None or name not in one.names:
        return False
    for word in ("group", "version", "kind"):
        value = selected[word][1] if word in selected else None
        if value is not None and value != getattr(one, word):
            return False
    # Without a group the core's kinds and those of CRDs go before others.
    return True


def _guessed(plural: str) -> str:
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("s", "")):
        if plural.endswith(ending):
            plural = plural[: -len(ending)] + instead
            break
    words = re.split(r"[^A-Za-z0-9]+", plural)
    return "".join(word[:1].upper() + word[1:] for word in words) or "Unknown"
