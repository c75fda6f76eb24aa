"""CEL for validation rules: parser, type checker, evaluation and costs."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from appsdk_operator.apiserver._cel import cost_estimate, expressions, schema_types
from appsdk_operator.apiserver._cel.expressions import DYN, CelError, CompileError
from appsdk_operator.apiserver._cel.function_table import functions
from appsdk_operator.apiserver._cel.overloads import Overload
from appsdk_operator.apiserver._cel.types import BOOL, INT, TIMESTAMP, DeclType, Type
from appsdk_operator.apiserver._cel.values import (
    NONE,
    Duration,
    Lookup,
    MapList,
    NullsHidden,
    Optional,
    SetList,
    Timestamp,
    TypeValue,
    Uint,
    equal,
)
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


NUMBERS = [0, 1, -1, 2**63 - 1, -(2**63)]
TIMES = [
    Timestamp(0),
    Timestamp.parse("9999-12-31T23:59:59Z"),
    Timestamp.parse("0001-01-01T00:00:00Z"),
]
SPANS = [Duration(0), Duration(2**63 - 1), Duration(-(2**63))]
FLOATS = [0.0, -0.0, 1.5, -1e308, 1e308, math.inf, math.nan]
TEXTS = [
    "",
    "a",
    "1",
    " 1",
    "-1",
    "1_0",
    "é\U0001f600",
    "(",
    "%s",
    "%d%z",
    "1.2.3",
    "::1",
    "1Gi",
    "UTC",
]
TEXTS += ["1h", "2024-01-02T03:04:05Z", "http://a", "%", "10.0.0.0/8", "+25:00", "../x", "a:b"]
BYTES = [b"", b"\xff", b"a"]
VALUES: dict[str, list[Any]] = {
    "int": NUMBERS,
    "uint": [Uint(0), Uint(2**64 - 1)],
    "double": FLOATS,
    "string": TEXTS,
    "bytes": BYTES,
    "bool": [True, False],
    "timestamp": TIMES,
    "duration": SPANS,
    "null_type": [None],
    "type": [TypeValue("int")],
}
ANYTHING = [value for values in VALUES.values() for value in values]
ANYTHING += [[], [1, "a"], [[1], None], {}, {"a": 1}, {1: True}, Optional(1), NONE, SetList(["a"])]
ANYTHING += [MapList([{"k": 1}], ("k",)), NullsHidden({"a": None})]


def arguments_for(type_: Type) -> strategies.SearchStrategy[Any]:
    """Values of a type, with anything at all where evaluation cannot know: in lists and maps."""
    anything = strategies.sampled_from(ANYTHING)
    match type_.name:
        case "list":
            return strategies.lists(anything, max_size=4)
        case "map":
            keys = strategies.sampled_from(["a", "", 1, True, Uint(1)])
            return strategies.dictionaries(keys, anything, max_size=3)
        case "optional_type":
            return anything.map(Optional) | strategies.just(NONE)
        case name if name in OPAQUE:
            return strategies.sampled_from(OPAQUE[name])
        case name:
            return strategies.sampled_from(VALUES.get(name, ANYTHING))


OPAQUE: dict[str, list[Any]] = {
    value_of(f"type({call})").name: [value_of(call)]
    for call in (
        *("quantity('1Gi')", "url('http://a:80/b?c=d')", "ip('::1')", "cidr('10.0.0.0/8')"),
        *("semver('1.2.3-a')", "format.dns1123Label()"),
    )
}
OVERLOADS = [overload for overloads in functions().values() for overload in overloads]


@pytest.mark.parametrize("overload", OVERLOADS, ids=lambda overload: overload.id)
@hypothesis.settings(max_examples=scaled(40))
@hypothesis.given(data=strategies.data())
def test_every_function_has_a_value_of_its_type_or_fails_with_an_error_of_cel(
    overload: Overload, data: strategies.DataObject
) -> None:
    args = [data.draw(arguments_for(param)) for param in overload.params]
    try:
        value = overload.call(*args)
    except CelError:
        return
    variable = overload.result.kind == "variable"
    # What is in a list is not what its type says.
    inner = any(param.name in ("list", "map", "optional_type") for param in overload.params)
    assert (
        variable or inner or Overload("", "", False, (overload.result,), DYN, str).accepts([value])
    )
    if isinstance(value, int) and not isinstance(value, (bool, Uint)):
        assert -(2**63) <= value < 2**63


@pytest.mark.parametrize(
    "failing",
    [
        "[self.p, self.q].max() == self.p",
        "string(timestamp('9999-12-31T23:59:59Z') + duration('10h')) != ''",
        "self.p[self.q] == 1",
        "self.p.q == 1",
        "{[1]: 2}.size() == 1",
        "[?self.p].size() == 1",
        "{?'a': self.p}.size() == 1",
        "self.l.filter(x, self.p).size() == 1",
        "self.l.exists_one(x, self.p)",
        "self.p.?q.hasValue()",
        "self.l[?self.q].hasValue()",
        "self.l.map(x, x + self.q).size() == 1",
        "self.l.transformMapEntry(i, v, self.p).size() == 1",
        "-self.q == 1",
        "duration(self.q) > duration('1s')",
    ],
)
def test_an_error_within_a_rule_is_absorbed_whatever_raised_it(failing: str) -> None:
    self = {"p": 1, "q": "a", "l": [1]}
    assert value_of(f"({failing}) || true", self=self)
    assert value_of(f"true || ({failing})", self=self)
    assert not value_of(f"({failing}) && false", self=self)
    assert value_of(f"[1, 2].exists(i, ({failing}) || i == 2)", self=self)
    with pytest.raises(CelError):
        value_of(failing, self=self)


SIMPLE = [0, 1, 1.0, Uint(1), True, math.nan, "a", "1", b"a", None]


def lists_of_values(simple: strategies.SearchStrategy[Any]) -> strategies.SearchStrategy[Any]:
    values = strategies.recursive(
        simple,
        lambda inner: (
            strategies.lists(inner, max_size=3)
            | strategies.lists(inner, max_size=3).map(SetList)
            | strategies.dictionaries(strategies.sampled_from("ab"), inner, max_size=2)
        ),
        max_leaves=6,
    )
    return strategies.lists(values, max_size=6)


@hypothesis.settings(max_examples=scaled(300))
@hypothesis.given(
    lists_of_values(strategies.sampled_from(SIMPLE)),
    lists_of_values(strategies.sampled_from(SIMPLE)),
)
def test_values_are_found_by_equality(items: list[Any], others: list[Any]) -> None:
    known = Lookup(items)
    for item in [*items, *others]:
        assert (item in known) is any(equal(item, other) for other in items)


@pytest.mark.parametrize(
    "expression",
    [
        "sets.contains(a, b)",
        "sets.equivalent(a, b)",
        "sets.intersects(a, c)",
        "a.distinct().size() == a.size()",
        "s == t",
        "(s + t).size() == s.size()",
    ],
)
def test_comparing_long_lists_takes_time_linear_in_their_length(expression: str) -> None:
    items = [str(number) for number in range(20_000)]
    lists = {"a": items, "b": items[::-1], "c": [f"x{text}" for text in items]}
    began = time.process_time()
    value_of(expression, **lists, s=SetList(items), t=SetList(items[::-1]))
    # A quadratic one takes a minute.
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (r"'\ud800' == 'a'", "1:1: invalid unicode code point"),
        (r"'\U00110000' == 'a'", "1:1: invalid unicode code point"),
        (r"b'\ud800' == b'a'", "1:1: unable to unescape string"),
        (r"b'\u00ff' == b'a'", "1:1: unable to unescape string"),
        (r"'\x+1' == 'a'", r"1:1: Syntax error: token recognition error at: ''\x+'"),
        (r"'\400' == 'a'", r"1:1: Syntax error: token recognition error at: ''\4'"),
        (r"'\08' == 'a'", r"1:1: Syntax error: token recognition error at: ''\08'"),
    ],
)
def test_escapes_that_stand_for_no_character_are_refused(expression: str, words: str) -> None:
    with pytest.raises(CompileError) as refusal:
        expressions.compile(expression, {})
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1.0 / -0.0", -math.inf),
        ("double('1_0')", 10.0),
        ("type([1u, 2u].sum()) == uint", True),
        ("quantity('12345678901234567890.123456789').add(1).isInteger()", False),
        ("sign(quantity('1000000000000000000000000000001').sub(quantity('1e30')))", 1),
    ],
)
def test_numbers_keep_their_sign_type_and_digits(expression: str, expected: Any) -> None:
    assert value_of(expression) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "double(' 1.5 ')",
        "double('1e400')",
        "uint('+1')",
        "uint(-0.5)",
        "-9223372036854775808 % -1",
        "duration('2562047h') + duration('1h')",
        "timestamp(253402300800)",
        "timestamp('2024-01-02t03:04:' + '05z')",
    ],
)
def test_numbers_and_times_out_of_range_are_refused(expression: str) -> None:
    with pytest.raises(CelError):
        value_of(expression)
