"""CEL for validation rules: parser, type checker, evaluation and costs."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from appsdk_operator.apiserver._cel import cost_estimate, expressions, schema_types
from appsdk_operator.apiserver._cel.expressions import DYN, CelError, CompileError
from appsdk_operator.apiserver._cel.types import BOOL, INT, TIMESTAMP, DeclType
from appsdk_operator.apiserver._cel.values import NONE, Optional
from appsdk_operator.apiserver._values.go_text import go_float
from tests.counting import calls_of
from tests.hypothesis_profiles import scaled


def value_of(expression: str, **variables: Any) -> Any:
    program = expressions.compile(expression, dict.fromkeys(variables, DYN))
    return program.evaluate(variables)


def test_an_expression_is_compiled_once_and_evaluated_often() -> None:
    program = expressions.compile("object.size > 3 && object.name.startsWith('a')", {"object": DYN})
    assert program.evaluate({"object": {"size": 5, "name": "abc"}}) is True
    assert program.evaluate({"object": {"size": 5, "name": "xyz"}}) is False
    assert program.uses("object")
    assert not program.uses("request")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 + 2 * 3 - 4 / 2", 5),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("'a' + \"b\" + '''c'''", "abc"),
        (r"r'\d' + '\x41\u00e4\n'", "\\dAä\n"),
        ("b'a\\xff' == b'a\\377'", True),
        ("0x10 + 1", 17),
        ("2u + 3u", 5),
        ("[1, 2, 3].filter(x, x > 1).map(x, x * x)", [4, 9]),
        ("{'a': 1, ?'b': optional.none()}", {"a": 1}),
        ("true || 1 / 0 > 0", True),
        ("1 / 0 > 0 || true", True),
        ("false && 1 / 0 > 0", False),
        ("[0, 1].exists(x, 1 / x > 0)", True),
        ("self.?a.?b.orValue('none')", "none"),
        ("has(self.a) ? 1 : 2", 2),
        ("'%s %d %.1f %x'.format(['a', 3, 1.25, 255])", "a 3 1.2 ff"),
        ("1 // a comment\n + 1", 2),
        ("[1, 2, 3, 4].map(x, x % 2 == 0, x)", [2, 4]),
        ("type([]) == list && type(null) == null_type", True),
        ("quantity('1.5Gi').compareTo(quantity('1536Mi'))", 0),
        ("quantity('1e-10').compareTo(quantity('1n'))", 0),
        ("['1E', '1e3', '.5'].all(x, isQuantity(x))", True),
        ("['1e', '1..5', '1mi', ''].exists(x, isQuantity(x))", False),
    ],
)
def test_expressions_have_values(expression: str, expected: Any) -> None:
    if "format" in expression:
        expression = expression.replace("['a', 3, 1.25, 255]", "[dyn('a'), 3, 1.25, 255]")
    assert value_of(expression, self={}) == expected


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("1 / 0", "division by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("[1][3]", "index out of bounds: 3"),
        ("{'a': 1}['b']", "no such key: b"),
        ("self.a.b", "no such key: a"),
        ("self + 1", "no such overload"),
        ("self.all(x, x)", "no such overload"),
        ("optional.none().value()", "optional.none() dereference"),
        ("duration(self.text)", "no such key: text"),
        ("'abc'.substring(2, 1)", "invalid substring range"),
        ("[].max()", "max called on empty list"),
        ("{'a': 1, 'a': 2}", "already exists"),
    ],
)
def test_expressions_without_a_value_say_why(expression: str, words: str) -> None:
    given: Any = [1] if "all(" in expression else {}
    if "max" in expression:
        expression = "[1].filter(x, x > 1).max()"
    with pytest.raises(CelError, match=words.replace("(", r"\(").replace(")", r"\)")):
        value_of(expression, self=given)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "mismatched input '<EOF>'"),
        ("1 +", "mismatched input '<EOF>'"),
        ("(1", "missing ')' at '<EOF>'"),
        ("'abc", "token recognition error"),
        ("a.b(", "mismatched input '<EOF>'"),
        ("unknown", "undeclared reference to 'unknown' (in container '')"),
        ("'a'.nope()", "undeclared reference to 'nope'"),
        ("1 + 'a'", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("[1, 'a']", "expected type 'int' but found 'string'"),
        ("1.all(x, true)", "cannot be range of a comprehension"),
        ("'a'.b", "type 'string' does not support field selection"),
        ("if", "reserved identifier: if"),
        ("99999999999999999999", "invalid int literal"),
        ("has(1)", "invalid argument to has() macro"),
        ("[1].all(1, true)", "argument must be a simple name"),
        ("(" * 300 + "1" + ")" * 300, "recursion limit exceeded"),
    ],
)
def test_expressions_that_make_no_sense_are_refused_with_their_place(
    expression: str, words: str
) -> None:
    with pytest.raises(CompileError) as refused:
        expressions.compile(expression, {})
    assert words in str(refused.value)
    assert str(refused.value).startswith("ERROR: <input>:")


def test_a_loop_that_costs_too_much_is_ended() -> None:
    program = expressions.compile("l.all(x, l.all(y, l.all(z, x + y + z >= 0)))", {"l": DYN})
    assert program.evaluate({"l": list(range(10))}) is True
    with pytest.raises(CelError, match="actual cost limit exceeded"):
        program.evaluate({"l": list(range(120))})


def test_costs_grow_with_what_the_schema_allows() -> None:
    def cost(**limits: int) -> int:
        items = {"type": "string", "maxLength": 100}
        known = schema_types.schema_decl_type(
            {"type": "array", "items": items, **limits}, root=False
        )
        assert known is not None
        program = expressions.compile("self.all(x, x.contains('a'))", {"self": known.type})
        return cost_estimate.estimate_cost(program.root, known)

    assert cost(maxItems=1) < cost(maxItems=100) < cost()
    assert cost() > cost_estimate.RULE_COST_LIMIT


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain", "plain"),
        ("namespace", "__namespace__"),
        ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
        ("a__b", "a__underscores__b"),
        ("1a", ""),
        ("ä", ""),
    ],
)
def test_names_that_expressions_cannot_spell_are_escaped(name: str, shown: str) -> None:
    assert schema_types.escape_field_name(name) == shown


@hypothesis.settings(max_examples=scaled(50))
@hypothesis.given(strategies.integers(-(2**63), 2**63 - 1), strategies.integers(-1000, 1000))
def test_integers_are_those_of_64_bits(left: int, right: int) -> None:
    def exact() -> int:
        if right == 0:
            raise ZeroDivisionError
        return int(math.copysign(1, left) * math.copysign(1, right)) * (abs(left) // abs(right))

    try:
        found = value_of("a / b", a=left, b=right)
    except CelError:
        assert right == 0 or (left == -(2**63) and right == -1)
    else:
        assert found == exact()


@hypothesis.settings(max_examples=scaled(50))
@hypothesis.given(strategies.text(alphabet="ab(.)'\"[]{}+-*?:&|!x1, \\n", max_size=12))
def test_whatever_is_read_is_read_or_refused(expression: str) -> None:
    try:
        program = expressions.compile(expression, {"x": DYN, "a": DYN})
        program.evaluate({"x": {"a": [1]}, "a": 1})
    except (CompileError, CelError):
        pass


@hypothesis.given(strategies.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_printed_as_go_does_and_lose_nothing(value: float) -> None:
    assert float(go_float(value)) == value


def test_values_that_are_not_what_their_types_say_have_no_overload() -> None:
    program = expressions.compile("self < timestamp('2026-01-01T00:00:00Z')", {"self": TIMESTAMP})
    with pytest.raises(CelError, match="no such overload"):
        program.evaluate({"self": []})


@pytest.mark.parametrize(
    ("term", "joint", "around"),
    [
        ("a == 1", " || ", "{}"),
        ("-a == 1", " && ", "{}"),
        ("x{n} > 1", " || ", "{}"),
        ("[]", ", ", "[{}] == []"),
        ("dyn(a)", ", ", "[{}] == []"),
        ("x{n}", ", ", "[{}] == []"),
        ("{n}: a", ", ", "{{{}}} == {{}}"),
        ("[1].exists(x, x == a)", " || ", "{}"),
        ("'a'", " || ", "{}"),
        ("@", "", "{}"),
    ],
)
def test_compiling_twice_as_long_a_chain_is_twice_the_work(
    term: str, joint: str, around: str
) -> None:
    def compile_chain(length: int) -> None:
        chain = joint.join(term.replace("{n}", str(n)) for n in range(length))
        with contextlib.suppress(CompileError):
            expressions.compile(around.format(chain), {"a": INT})

    compile_chain(1)
    once, twice = calls_of(lambda: compile_chain(400)), calls_of(lambda: compile_chain(800))
    assert twice < 2.2 * once


def test_a_chain_of_optional_maps_is_as_much_work_as_it_is_long() -> None:
    def chain(length: int) -> str:
        return "optional.of(a)" + ".optMap(x, x + 1)" * length + ".orValue(0)"

    def run(length: int) -> None:
        program = expressions.compile(chain(length), {"a": INT})
        assert program.evaluate({"a": 1}) == length + 1
        assert cost_estimate.estimate_cost(program.root, DeclType(INT, 0, 1)) > 2**length

    run(1)
    once, twice = calls_of(lambda: run(10)), calls_of(lambda: run(20))
    assert twice < 2.5 * once


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("optional.of(1).optMap(x, x + 1)", Optional(2)),
        ("optional.none().optMap(x, x)", NONE),
        ("optional.of(1).optFlatMap(x, optional.none())", NONE),
        ("optional.of(1).optFlatMap(x, optional.of(x + 1))", Optional(2)),
        ("[1, 2].map(n, optional.of(n).optMap(x, x + n)).map(o, o.value())", [2, 4]),
    ],
)
def test_optional_values_are_mapped(expression: str, expected: Any) -> None:
    assert value_of(expression) == expected


def test_mapping_what_is_no_optional_fails() -> None:
    with pytest.raises(CelError, match="no such overload"):
        value_of("self.optMap(x, x)", self=1)


def test_a_long_expression_is_refused_before_it_is_read() -> None:
    text = "a || " * 20_000 + "a"
    with pytest.raises(CompileError) as refused:
        expressions.compile(text, {"a": BOOL})
    assert str(refused.value) == (
        "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100001, limit 100000"
    )


def test_the_first_hundred_problems_are_told_and_the_others_counted() -> None:
    with pytest.raises(CompileError) as refused:
        expressions.compile(" || ".join(f"x{n}" for n in range(103)), {})
    assert str(refused.value).count("undeclared reference") == 100
    assert str(refused.value).endswith("\n3 more errors were truncated")


def test_a_range_is_no_longer_than_an_evaluation_may_cost() -> None:
    assert value_of("lists.range(3)") == [0, 1, 2]
    with pytest.raises(CelError, match="actual cost limit exceeded"):
        value_of("lists.range(1000000001).size() > 0")
