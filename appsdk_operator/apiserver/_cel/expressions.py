"""CEL expressions as Kubernetes uses them: compile once, evaluate often.

>>> program = compile("object.size > 3 && object.name.startsWith('a')", {"object": DYN})
>>> program.evaluate({"object": {"size": 5, "name": "abc"}})
True

The package's docstring says why parser, checker and evaluation are own code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._cel.checker import check
from appsdk_operator.apiserver._cel.evaluation import COST_VARIABLE, Evaluator, base_cost, evaluator
from appsdk_operator.apiserver._cel.macros import MacroError
from appsdk_operator.apiserver._cel.overloads import guarded
from appsdk_operator.apiserver._cel.parser import ParseError, parse, recursion_problem
from appsdk_operator.apiserver._cel.syntax_tree import Ident, Node, format_problems, walk
from appsdk_operator.apiserver._cel.types import DYN, Type
from appsdk_operator.apiserver._cel.values import CelError

__all__ = ["DYN", "PER_CALL_LIMIT", "CelError", "CompileError", "Program", "compile"]

PER_CALL_LIMIT: Final = 1_000_000
"""The most cost units of one evaluation, as in Kubernetes."""


class CompileError(ValueError):
    """An expression that does not compile. The text says where and why, in cel-go's words."""


@final
@attrs.frozen
class Program:
    """A compiled expression. Immutable and thread-safe."""

    expression: str
    type: Type
    root: Node
    _evaluator: Evaluator = attrs.field(alias="evaluator")
    _base_cost: int = attrs.field(alias="base_cost")

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """Evaluate with these variables, which are JSON or CEL values.

        Raises:
            CelError: the evaluation fails or costs too much.
        """
        return self.evaluate_with_cost(variables)[0]

    def evaluate_with_cost(self, variables: Mapping[str, Any]) -> tuple[Any, int]:
        """Evaluate; return the value and its cost.

        Raises:
            CelError: the evaluation fails or costs too much.
        """
        spent = [self._base_cost, PER_CALL_LIMIT]
        try:
            value = self._evaluator({**variables, COST_VARIABLE: spent})
        except RecursionError:
            raise CelError("operation cancelled: actual cost limit exceeded") from None
        return value, spent[0]

    def uses(self, name: str) -> bool:
        """Whether the expression refers to this variable."""
        return any(
            isinstance(node, Ident) and node.name.removeprefix(".") == name
            for node in walk(self.root)
        )


def compile(expression: str, variables: Mapping[str, Type]) -> Program:  # noqa: A001
    """Parse and check an expression.

    Args:
        expression: its text.
        variables: the types of the variables; ``DYN`` for an unknown type.

    Raises:
        CompileError: it has a syntax or type error.
    """
    try:
        root = parse(expression)
        problems = check(root, variables)
        if problems:
            raise CompileError(format_problems(expression, problems))
        return Program(expression, root.type, root, guarded(evaluator(root)), base_cost(root))
    except ParseError as error:
        raise CompileError(format_problems(expression, error.problems)) from None
    except MacroError as error:
        raise CompileError(format_problems(expression, [error.problem])) from None
    except RecursionError:
        raise CompileError(format_problems(expression, [recursion_problem()])) from None
