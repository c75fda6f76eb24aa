"""What surrounds the code of an operator: files made from it, brought up to date with each change.

Everything here is a function of an App and options: the same input gives the same text, byte for
byte. Nothing here overwrites what a person edited: :class:`GeneratedFiles` merges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appsdk_operator._lazy import homes, loader

if TYPE_CHECKING:
    from appsdk_operator.project._compatibility import Finding as Finding
    from appsdk_operator.project._compatibility import breaking_changes as breaking_changes
    from appsdk_operator.project._files import FileChange as FileChange
    from appsdk_operator.project._files import FileOutcome as FileOutcome
    from appsdk_operator.project._files import GeneratedFiles as GeneratedFiles
    from appsdk_operator.project._manifests.manifests import helm_chart as helm_chart
    from appsdk_operator.project._manifests.manifests import manifests as manifests
    from appsdk_operator.project._manifests.options import ManifestOptions as ManifestOptions

_MODULES: dict[str, tuple[str, ...]] = {
    "project._compatibility": ("Finding", "breaking_changes"),
    "project._files": ("FileChange", "FileOutcome", "GeneratedFiles"),
    "project._manifests.manifests": ("helm_chart", "manifests"),
    "project._manifests.options": ("ManifestOptions",),
}

_HOMES = homes(_MODULES)

__all__ = [*_HOMES]  # noqa: PLE0604 - strings, all of them

if not TYPE_CHECKING:  # which would take any name for one of the package's
    __getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
