"""Contracts on imports that import-linter does not bring along."""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

__all__ = ["NoPrivateImports"]


class NoPrivateImports(Contract):
    """No room imports a private module of another: what others need is public in its room."""

    type_name = "no_private_imports"

    package = fields.StringField()
    # Modules of the package itself that every room may use.
    shared_modules = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002
        """Look at each import between two rooms."""
        found = sorted(
            (importer, imported)
            for importer in graph.modules
            for imported in graph.find_modules_directly_imported_by(importer)
            if self._is_private(importer, imported)
        )
        return ContractCheck(kept=not found, metadata={"found": found})

    def _is_private(self, importer: str, imported: str) -> bool:
        package = str(self.package)
        if not imported.startswith(f"{package}.") or imported in set(self.shared_modules):  # type: ignore[call-overload]
            return False
        room, *inside = imported.removeprefix(f"{package}.").split(".")
        if importer == f"{package}.{room}" or importer.startswith(f"{package}.{room}."):
            return False
        return room.startswith("_") or any(part.startswith("_") for part in inside)

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each import and the way to do it."""
        found: list[tuple[Any, Any]] = check.metadata["found"]
        for importer, imported in found:
            output.print_error(f"{importer} imports {imported}", bold=False)
        output.print_error(
            "Import it from its room; what the room does not offer yet goes into its __init__.",
            bold=False,
        )
