"""From kopf's filters to ``where=`` and ``when=``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from appsdk_operator.cli._kopf.fields import dotted, value_at
from appsdk_operator.cli._kopf.names import Function, arguments
from appsdk_operator.cli._kopf.rewriting import Rewriter, Scope

FILTERS: Final = ("labels", "annotations", "field", "value", "old", "new", "when")
"""The options of kopf's decorators that filter."""
OBJECT_ARGUMENTS: Final = (
    "spec", "meta", "status", "name", "namespace", "uid", "labels", "annotations", "body",
    "resource", "memo", "logger",
)  # fmt: skip
_CHANGE: Final = ("old", "new", "diff")


@attrs.frozen
class Condition:
    """One condition of an object, or of a change."""

    test: Callable[[str], str]
    """The expression that checks an object."""
    atom: str = ""
    """The same as a filter of the kit."""
    change: str = ""
    """An expression that checks ``old`` and ``new`` instead."""
    needs_brackets: bool = False
    """Whether the atom does, next to ``&``."""


def expressions_of(subject: str, app: str) -> dict[str, str]:
    """What kopf's arguments about an object are, by the object's expression."""
    return {
        "spec": f"{subject}.spec",
        "meta": f"{subject}.metadata",
        "status": f"({subject}.status or {{}})",
        "body": subject,
        "resource": f"{subject}.kind",
        "memo": f"{app}.memo({subject})",
        "logger": "logger",
        **{
            name: f"{subject}.{name}"
            for name in ("name", "namespace", "uid", "labels", "annotations")
        },
    }


class Filters:
    """The filters of one decorator.

    Args:
        rewriter: rewrites their expressions.
        options: the decorator's keywords.
        is_update: whether the decorator is one for changes.
        as_tests: whether only :meth:`test` is needed.
    """

    def __init__(
        self,
        rewriter: Rewriter,
        options: Mapping[str, ast.expr],
        *,
        is_update: bool = False,
        as_tests: bool = False,
    ) -> None:
        self._as_tests = as_tests
        self.further: dict[str, str] = {}
        """Expressions for further arguments of functions."""
        self._rewriter = rewriter
        self._module = rewriter.module
        self._options = options
        self._is_update = is_update
        self.path = self._path()
        """The keys of the field; empty without one."""
        self.conditions: list[Condition] = [*self._labels(), *self._annotations(), *self._field()]
        when = options.get("when")
        if when is not None:
            self.conditions.append(self._when(when))

    # As options of the kit.

    def where(self) -> str:
        """The filter of objects; empty if there is none."""
        return self._joined([one for one in self.conditions if not one.change], "obj")

    def when(self) -> str:
        """The filter of changes; empty if there is none."""
        changes = [one for one in self.conditions if one.change]
        atoms = [one for one in changes if one.atom]
        plain = [one.change for one in changes if not one.atom]
        found = [
            f"({one.atom})" if one.needs_brackets and len(changes) > 1 else one.atom
            for one in atoms
        ]
        if plain:
            text = f"lambda old, new: {' and '.join(plain)}"
            found.append(f"({text})" if found else text)
        return " & ".join(found)

    def test(self, subject: str) -> str:
        """The expression that checks an object; empty if there is no filter."""
        return " and ".join(one.test(subject) for one in self.conditions if not one.change)

    def _joined(self, conditions: Sequence[Condition], subject: str) -> str:
        atoms = [one for one in conditions if one.atom]
        plain = [one.test(subject) for one in conditions if not one.atom]
        several = len(conditions) > 1
        found = [f"({one.atom})" if several and one.needs_brackets else one.atom for one in atoms]
        if plain:
            text = f"lambda {subject}: {' and '.join(plain)}"
            found.append(f"({text})" if found else text)
        return " & ".join(found)

    # Each.

    def _labels(self) -> Iterator[Condition]:
        given = self._options.get("labels")
        plain: list[tuple[str, str, str]] = []
        for key, value in self._items(given, "labels"):
            if self._is(value, "PRESENT"):
                plain.append((key, key, "is not None"))
            elif self._is(value, "ABSENT"):
                plain.append((f"!{key}", key, "is None"))
            elif isinstance(value, ast.Constant) and isinstance(value.value, str):
                plain.append((f"{key}={value.value}", key, f'== "{value.value}"'))
            else:
                yield self._entry("labels", f'"{key}"', value)
        yield from self._computed("labels")
        if plain:
            word = self._rewriter.words.word("labels") if not self._as_tests else ""
            yield Condition(
                lambda subject: " and ".join(
                    f'{subject}.labels.get("{key}") {test}' for _, key, test in plain
                ),
                f'{word}("{",".join(text for text, *_ in plain)}")' if word else "",
            )

    def _annotations(self) -> Iterator[Condition]:
        given = self._options.get("annotations")
        for key, value in self._items(given, "annotations"):
            if (
                isinstance(value, ast.Constant)
                or self._is(value, "PRESENT")
                or self._is(value, "ABSENT")
            ):
                word = "" if self._as_tests else self._rewriter.words.word("annotation")
                path = ("metadata", "annotations", key)
                yield self._compared(f'{word}("{key}")' if word else "", path, value)
            else:
                yield self._entry("annotations", f'"{key}"', value)
        yield from self._computed("annotations")

    def _entry(self, what: str, key: str, value: ast.expr) -> Condition:
        def found(subject: str) -> str:
            return f"{subject}.{what}.get({key})"

        if self._is(value, "PRESENT"):
            return Condition(lambda subject: f"{found(subject)} is not None")
        if self._is(value, "ABSENT"):
            return Condition(lambda subject: f"{found(subject)} is None")
        if self._is_function(value):
            return Condition(lambda subject: self._called(value, found(subject), subject))
        text = self._rewriter.operand(value)
        return Condition(lambda subject: f"{found(subject)} == {text}")

    def _items(self, given: ast.expr | None, what: str) -> Iterator[tuple[str, ast.expr]]:
        given = self._constant(given)
        if given is None:
            return
        if not isinstance(given, ast.Dict):
            self._rewriter.todo(f"{what}=: select the objects with where=")
            return
        for key, value in zip(given.keys, given.values, strict=True):
            constant = self._constant(key)
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                resolved = self._constant(value)
                is_text = isinstance(resolved, ast.Constant)
                yield constant.value, resolved if is_text and resolved is not None else value

    def _computed(self, what: str) -> Iterator[Condition]:
        """The entries whose key is not a constant."""
        given = self._constant(self._options.get(what))
        if isinstance(given, ast.Dict):
            for key, value in zip(given.keys, given.values, strict=True):
                if key is None:
                    self._rewriter.todo(f"{what}=: select the objects with where=")
                elif not isinstance(self._constant(key), ast.Constant):
                    yield self._entry(what, self._rewriter.text(key), value)

    def _field(self) -> Iterator[Condition]:
        if not self.path:
            return
        path = self.path
        name = dotted(path)
        atom = ""
        if path[:2] == ("metadata", "annotations") and len(path) == 3:
            atom = f'annotation("{path[2]}")'
        elif name:
            atom = f'field("{name}")'
        if atom and not self._as_tests:
            word, _, rest = atom.partition("(")
            atom = f"{self._rewriter.words.word(word)}({rest}"
        elif self._as_tests:
            atom = ""

        def found(subject: str) -> str:
            return value_at(subject, path)

        value, old, new = (self._options.get(word) for word in ("value", "old", "new"))
        if not self._is_update:
            if value is None:
                yield Condition(
                    lambda subject: f"{found(subject)} is not None",
                    f"{atom}.exists" if atom else "",
                )
            else:
                yield self._compared(atom, path, value)
            return
        before, after = found("old"), found("new")
        if value is not None:
            yield self._either(atom, value, before, after)
            return
        parts = []
        for word, given, expression in (("left", old, before), ("became", new, after)):
            if given is not None:
                parts.append((word, given, expression))
        is_plain = all(isinstance(given, ast.Constant) for _, given, _ in parts)
        if atom and not parts:
            yield Condition(str, f"{atom}.changed", f"{before} != {after}")
        elif atom and is_plain:
            texts = [f"{atom}.{word}({self._rewriter.text(given)})" for word, given, _ in parts]
            yield Condition(str, " & ".join(texts), "-")
        else:
            tests = [self._test_of(given, expression, "new") for _, given, expression in parts]
            yield Condition(str, "", " and ".join([f"{before} != {after}", *tests]))

    def _either(self, atom: str, value: ast.expr, before: str, after: str) -> Condition:
        if atom and isinstance(value, ast.Constant):
            text = self._rewriter.text(value)
            return Condition(str, f"{atom}.became({text}) | {atom}.left({text})", "-", True)
        one, other = (self._test_of(value, each, "new") for each in (before, after))
        return Condition(str, "", f"{before} != {after} and ({one} or {other})")

    def _compared(self, atom: str, path: Sequence[str], value: ast.expr) -> Condition:
        def found(subject: str) -> str:
            return value_at(subject, path)

        if self._is(value, "PRESENT"):
            return Condition(
                lambda subject: f"{found(subject)} is not None", f"{atom}.exists" if atom else ""
            )
        if self._is(value, "ABSENT"):
            return Condition(
                lambda subject: f"{found(subject)} is None", f"~{atom}.exists" if atom else ""
            )
        if self._is_function(value):
            return Condition(lambda subject: self._called(value, found(subject), subject))
        text = self._rewriter.operand(value)
        return Condition(
            lambda subject: f"{found(subject)} == {text}",
            f"{atom} == {text}" if atom else "",
            needs_brackets=True,
        )

    def _test_of(self, value: ast.expr, expression: str, subject: str) -> str:
        if self._is(value, "PRESENT"):
            return f"{expression} is not None"
        if self._is(value, "ABSENT"):
            return f"{expression} is None"
        if self._is_function(value):
            return self._called(value, expression, subject)
        return f"{expression} == {self._rewriter.operand(value)}"

    def _when(self, given: ast.expr) -> Condition:
        name = self._module.kopf_name(given.func) if isinstance(given, ast.Call) else ""
        if isinstance(given, ast.Call) and name in ("all_", "any_", "none_", "not_"):
            return self._combined(name, given)
        if not self._is_function(given):
            self._rewriter.todo("when=: select the objects with where=")
            return Condition(lambda _: "True")
        function = self._function(given)
        takes_change = any(a.arg in _CHANGE for a in arguments(function)) if function else False
        if takes_change and self._is_update:
            return Condition(str, "", self._called(given, None, "new", old="old"))
        return Condition(lambda subject: self._called(given, None, subject))

    def _combined(self, name: str, call: ast.Call) -> Condition:
        first = call.args[0] if call.args else None
        several = first.elts if isinstance(first, (ast.List, ast.Tuple)) else call.args
        parts = [self._when(each) for each in several]
        joint = " or " if name in ("any_", "none_") else " and "
        negated = "not " if name in ("none_", "not_") else ""
        if any(one.change for one in parts):
            texts = [one.change or one.test("new") for one in parts]
            return Condition(str, "", f"{negated}({joint.join(texts)})")
        return Condition(
            lambda subject: f"{negated}({joint.join(one.test(subject) for one in parts)})"
        )

    # Functions.

    def _called(self, value: ast.expr, first: str | None, subject: str, old: str = "") -> str:
        """The expression that asks a function of kopf's arguments."""
        rewriter, function = self._rewriter, self._function(value)
        if function is None:
            rewriter.todo(
                f"{rewriter.source.segment(value)} gets only the object: pass the arguments that "
                "it takes"
            )
            return f"{rewriter.text(value)}({first or subject})"
        expressions = expressions_of(subject, rewriter.words.app) | self.further
        if old:
            expressions |= {"old": old, "new": subject}
        positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        leading = positional[0] if first is not None and positional else None
        scope = Scope(expressions=expressions, subject=subject, old=old)
        if "diff" in (a.arg for a in arguments(function)) and old:
            expressions["diff"] = f"{rewriter.words.helper('changes')}({old}, {subject})"
        with rewriter.entered(scope):
            if isinstance(function, ast.Lambda):
                if leading is not None and first is not None:
                    expressions[leading] = first
                scope.expressions = {
                    k: v
                    for k, v in expressions.items()
                    if k in {a.arg for a in arguments(function)}
                }
                text = rewriter.text(function.body)
                is_loose = isinstance(
                    function.body, (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr)
                )
                return f"({text})" if is_loose else text
            given = {leading} if leading else set()
            words = [first] if first is not None else []
            words += rewriter.filled(function, {*given})
        return f"{rewriter.text(value)}({', '.join(words)})"

    def _function(self, value: ast.expr) -> Function | ast.Lambda | None:
        if isinstance(value, ast.Lambda):
            return value
        if isinstance(value, ast.Name):
            return self._module.functions.get(value.id)
        return None

    def _is_function(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Lambda):
            return True
        if not isinstance(value, ast.Name):
            return isinstance(value, ast.Call)
        is_imported = value.id in self._module.imports and not value.id.isupper()
        return value.id in self._module.functions or is_imported

    def _is(self, value: ast.expr, name: str) -> bool:
        return self._module.kopf_name(value) == name

    def _constant(self, value: ast.expr | None) -> ast.expr | None:
        return None if value is None else self._rewriter.words.resolved(value)

    def _path(self) -> tuple[str, ...]:
        given = self._constant(self._options.get("field"))
        if given is None:
            return ()
        found: Any = None
        if isinstance(given, ast.Constant) and isinstance(given.value, str):
            found = given.value.split(".")
        elif isinstance(given, (ast.List, ast.Tuple)):
            keys = [self._constant(each) for each in given.elts]
            found = [k.value for k in keys if isinstance(k, ast.Constant)]
            found = (
                found
                if len(found) == len(keys) and all(isinstance(k, str) for k in found)
                else None
            )
        if not found:
            self._rewriter.todo("field=: it is not a constant path: select the changes with when=")
            return ()
        return tuple(found)
