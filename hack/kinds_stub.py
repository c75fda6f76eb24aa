"""Writes appsdk_operator/resource/_builtin_names.py: the built-in kinds for type checkers.

The table in appsdk_operator/resource/kinds.py is read when the program runs, so a type checker
cannot see what is in it. Run this after a change of the table: `python hack/kinds_stub.py`.
"""

from __future__ import annotations

from pathlib import Path

from appsdk_operator.resource import kinds

STUB = Path(kinds.__file__).with_name("_builtin_names.py")
HEAD = """# The built-in kinds by name, for type checkers; made by hack/kinds_stub.py.

from appsdk_operator.resource._builtin_groups import Group, Version
from appsdk_operator.resource._kind import Kind


"""


def stub() -> str:
    """The text of the stub."""
    groups: dict[str, dict[str, list[str]]] = {}
    for name in kinds.__all__:
        group = getattr(kinds, name)
        if isinstance(group, kinds.Group):
            versions = [version for version in dir(group) if version != "name"]
            groups[name] = {
                version: [kind.kind for kind in getattr(group, version)] for version in versions
            }
    parts = []
    for group_name, by_version in groups.items():
        group_class = f"_{group_name.capitalize()}"
        for version, names in by_version.items():
            members = "".join(f"    {name}: Kind\n" for name in names)
            parts.append(f"class {group_class}{version.capitalize()}(Version):\n{members}")
        members = "".join(
            f"    {version}: {group_class}{version.capitalize()}\n" for version in by_version
        )
        parts.append(f"class {group_class}(Group):\n{members}")
    parts.append("".join(f"{name}: _{name.capitalize()}\n" for name in groups))
    return HEAD + "\n\n".join(parts)


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
