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
    from appsdk_operator.project._files import write_below as write_below
    from appsdk_operator.project._manifests.bindings import added_permissions as added_permissions
    from appsdk_operator.project._manifests.manifests import helm_chart as helm_chart
    from appsdk_operator.project._manifests.manifests import manifests as manifests
    from appsdk_operator.project._manifests.options import ManifestOptions as ManifestOptions
    from appsdk_operator.project._models._builtin import builtin_models as builtin_models
    from appsdk_operator.project._models._crds import models as models
    from appsdk_operator.project._models._crds import read_crds as read_crds
    from appsdk_operator.project._models._module import ModelStyle as ModelStyle
    from appsdk_operator.project._models._schemas import ModelError as ModelError
    from appsdk_operator.project._rbac.grants import Grants as Grants
    from appsdk_operator.project._rbac.record_file import RECORD_FILE as RECORD_FILE
    from appsdk_operator.project._rbac.record_file import dump_permissions as dump_permissions
    from appsdk_operator.project._rbac.record_file import load_permissions as load_permissions
    from appsdk_operator.project._rbac.recording import Recording as Recording
    from appsdk_operator.project._rbac.roles import Roles as Roles
    from appsdk_operator.project._rbac.roles import roles as roles
    from appsdk_operator.project._uninstall import UninstallAction as UninstallAction
    from appsdk_operator.project._uninstall import UninstallError as UninstallError
    from appsdk_operator.project._uninstall import UninstallStep as UninstallStep
    from appsdk_operator.project._uninstall import uninstall as uninstall

_MODULES: dict[str, tuple[str, ...]] = {
    "project._compatibility": ("Finding", "breaking_changes"),
    "project._files": ("FileChange", "FileOutcome", "GeneratedFiles"),
    "project._manifests.manifests": ("helm_chart", "manifests"),
    "project._manifests.options": ("ManifestOptions",),
    "project._models._builtin": ("builtin_models",),
    "project._models._crds": ("models", "read_crds"),
    "project._models._module": ("ModelStyle",),
    "project._models._schemas": ("ModelError",),
    "project._rbac.grants": ("Grants",),
    "project._rbac.record_file": ("dump_permissions", "load_permissions"),
    "project._rbac.recording": ("Recording",),
    "project._rbac.roles": ("Roles", "roles"),
    "project._uninstall": ("UninstallAction", "UninstallError", "UninstallStep", "uninstall"),
}

# Not part of the public surface.
_FOR_OTHER_ROOMS: dict[str, tuple[str, ...]] = {
    "project._files": ("write_below",),
    "project._manifests.bindings": ("added_permissions",),
    "project._rbac.record_file": ("RECORD_FILE",),
}

_HOMES = homes(_MODULES, _FOR_OTHER_ROOMS)

__all__ = [*homes(_MODULES)]  # noqa: PLE0604 - strings, all of them

if not TYPE_CHECKING:  # which would take any name for one of the package's
    __getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
