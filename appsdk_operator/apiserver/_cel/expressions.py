"""The Common Expression Language as Kubernetes uses it: compile once, evaluate often.

>>> program = compile("object.size > 3 && object.name.startsWith('a')", {"object": DYN})
>>> program.evaluate({"object": {"size": 5, "name": "abc"}})
True

Parser, checker and evaluator are the server's own: rules are checked against the types that a
schema declares, problems are told in cel-go's words, and costs are estimated; no library for
Python does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._cel.checker import check
from appsdk_operator.apiserver._cel.evaluation import COST_VARIABLE, Evaluator, base_cost, evaluator
from appsdk_operator.apiserver._cel.macros import MacroError
from appsdk_operator.apiserver._cel.parser import ParseError, parse, recursion_problem
from appsdk_operator.apiserver._cel.syntax_tree import Ident, Node, children, format_problems
from appsdk_operator.apiserver._cel.types import DYN, Type
from appsdk_operator.apiserver._cel.values import CelError, no_such_overload

__all__ = ["DYN", "PER_CALL_LIMIT", "CelError", "CompileError", "Program", "compile"]

PER_CALL_LIMIT: Final = 1_000_000
"""How many units of cost one evaluation may spend, as Kubernetes has it."""


class CompileError(ValueError):
    """An expression that makes no sense; the text tells where and why, as cel-go does."""


@final
@attrs.frozen
class Program:
    """An expression that can be evaluated; immutable, so any thread may do it."""

    expression: str
    type: Type
    root: Node
    _evaluator: Evaluator = attrs.field(alias="evaluator")
    _base_cost: int = attrs.field(alias="base_cost")

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """The value for these variables, given as JSON values.

        Raises:
            CelError: there is none, or it would cost too much.
        """
        return self.evaluate_with_cost(variables)[0]

    def evaluate_with_cost(self, variables: Mapping[str, Any]) -> tuple[Any, int]:
        """The value, and what it cost.

        Raises:
            CelError: there is none, or it would cost too much.
        """
        spent = [self._base_cost, PER_CALL_LIMIT]
        try:
            value = self._evaluator({**variables, COST_VARIABLE: spent})
        except RecursionError:
            raise CelError("operation cancelled: actual cost limit exceeded") from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # A value is not what the schema says: the checker could not know.
            raise no_such_overload() from None
        return value, spent[0]

    def uses(self, name: str) -> bool:
        """Whether the expression looks at that variable."""
        return _uses(self.root, name)


def _uses(node: Node, name: str) -> bool:
    if isinstance(node, Ident) and node.name.removeprefix(".") == name:
        return True
    return any(_uses(child, name) for child in children(node))


def compile(expression: str, variables: Mapping[str, Type]) -> Program:  # noqa: A001
    """Read and check an expression.

    Args:
        expression: its text.
        variables: the types of what it may refer to; ``DYN`` for anything.

    Raises:
        CompileError: it makes no sense.
    """
    try:
        root = parse(expression)
        problems = check(root, variables)
        if problems:
            raise CompileError(format_problems(expression, problems))
        return Program(expression, root.type, root, evaluator(root), base_cost(root))
    except ParseError as error:
        raise CompileError(format_problems(expression, error.problems)) from None
    except MacroError as error:
        raise CompileError(format_problems(expression, [error.problem])) from None
    except RecursionError:
        raise CompileError(format_problems(expression, [recursion_problem()])) from None
