"""What the package is made of, room by room: lines, docstrings, public names, classes of options.

Run it as ``python hack/census.py [FOLDER]``; with the folder of another checkout it counts that.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

COLUMNS = ("files", "lines", "code", "docstrings", "public names", "options")
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def census_of_file(source: str) -> Counter[str]:
    """The lines of a module, those with code, those of docstrings, and its classes of options."""
    docstrings: set[int] = set()
    options = 0
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", ())
        for statement in body if isinstance(body, list) else ():
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                docstrings.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
        options += isinstance(node, ast.ClassDef) and node.name.endswith("Options")
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    return Counter(
        files=1,
        lines=source.count("\n"),
        code=len(code - docstrings),
        docstrings=len(docstrings),
        options=options,
    )


def public_names(stub: Path) -> int:
    """The names that a stub of a room offers: those before a string among the imports."""
    count = 0
    for node in ast.parse(stub.read_text(encoding="utf-8")).body if stub.exists() else ():
        if not isinstance(node, ast.ImportFrom):
            break
        count += len(node.names)
    return count


def census(package: Path) -> dict[str, Counter[str]]:
    """The numbers of each room; of the modules beside the rooms as ``""``."""
    rooms: dict[str, Counter[str]] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        found = census_of_file(path.read_text(encoding="utf-8"))
        rooms.setdefault(parts[0] if len(parts) > 1 else "", Counter()).update(found)
    for room, found in rooms.items():
        found["public names"] = public_names(package / room / "__init__.pyi")
    return rooms


def main(arguments: list[str]) -> None:
    """Print the table."""
    root = Path(arguments[0]) if arguments else Path(__file__).parents[1]
    rooms = census(root / "appsdk_operator")
    rooms["all"] = sum(rooms.values(), Counter())
    print("room".ljust(14), *(column.rjust(12) for column in COLUMNS))
    for room, found in rooms.items():
        print((room or "(top)").ljust(14), *(str(found[column]).rjust(12) for column in COLUMNS))


if __name__ == "__main__":
    main(sys.argv[1:])
