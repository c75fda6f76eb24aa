"""What type checkers take for the arguments of an attrs class is what it takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import appsdk_operator

PACKAGE = Path(appsdk_operator.__file__).parent


def names_of(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


def without_alias(module: Path) -> Iterator[str]:
    """The fields that attrs strips of their underscore and a type checker does not."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ClassDef):
            continue
        if not any(names_of(each).startswith("attrs.") for each in node.decorator_list):
            continue
        for field in node.body:
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            name, value = field.target.id, field.value
            given = (
                {keyword.arg: keyword.value for keyword in value.keywords}
                if isinstance(value, ast.Call) and names_of(value) == "attrs.field"
                else {}
            )
            is_set_inside = isinstance(init := given.get("init"), ast.Constant) and not init.value
            if name.startswith("_") and "alias" not in given and not is_set_inside:
                yield f"{module}:{field.lineno}: {node.name}.{name}"


def test_each_private_field_of_an_attrs_class_says_how_its_argument_is_called() -> None:
    missing = [each for module in PACKAGE.rglob("*.py") for each in without_alias(module)]
    assert not missing, "give attrs.field(alias=...) or init=False to " + ", ".join(missing)


def test_a_private_field_without_an_alias_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "@attrs.frozen(kw_only=True)\n"
        "class A:\n"
        "    _bare: int\n"
        "    _other: int = attrs.field(default=1)\n"
        "    _told: int = attrs.field(alias='told')\n"
        "    _own: int = attrs.field(init=False)\n"
        "    plain: int\n"
    )
    assert [each.rpartition(" ")[2] for each in without_alias(module)] == ["A._bare", "A._other"]
