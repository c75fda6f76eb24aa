"""Options of a command that are the fields of a class."""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import attrs
import click

_F = TypeVar("_F", bound=Callable[..., Any])


def class_options(
    cls: type,
    *,
    by_hand: Collection[str] = (),
    metavars: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
) -> Callable[[_F], _F]:
    """Add an option for each field of a class; the function gets None for what is not given.

    The help is the first paragraph below the field.

    Args:
        cls: an attrs class.
        by_hand: the fields whose options the command has itself.
        metavars: what stands for the value of a text or number, by field; default: ``NAME``.
        environment: the environment variables, by field.
    """

    def add(function: _F) -> _F:
        types, texts = get_type_hints(cls), _texts(cls)
        for field in reversed(attrs.fields(cls)):
            if field.name in by_hand:
                continue
            type_ = types[field.name]
            option = f"--{field.name.replace('_', '-')}"
            declared: dict[str, Any] = {"metavar": metavars.get(field.name, "NAME")}
            if get_origin(type_) is Literal:
                choices = [each for each in get_args(type_) if each]
                declared = {"type": click.Choice(choices, case_sensitive=False)}
            elif bool in (type_, *get_args(type_)):
                option, declared = f"{option}/--no-{option[2:]}", {}
            elif int in (type_, *get_args(type_)):
                declared["type"] = int
            function = click.option(
                option,
                default=None,
                envvar=(environment or {}).get(field.name),
                help=texts.get(field.name),
                **declared,
            )(function)
        return function

    return add


def _texts(cls: type) -> dict[str, str]:
    """The first paragraph below each field of a class; none without its source."""
    try:
        module = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    except OSError:
        return {}
    found = {}
    for node in module.body:
        if not isinstance(node, ast.ClassDef) or node.name != cls.__name__:
            continue
        for field, text in itertools.pairwise(node.body):
            match field, text:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(value))):
                    first = inspect.cleandoc(value).partition("\n\n")[0]
                    found[name] = " ".join(first.replace("`", "").split())
    return found
