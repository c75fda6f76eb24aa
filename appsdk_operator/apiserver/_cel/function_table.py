"""The table of all functions, which the checker and the evaluation look calls up in."""

from __future__ import annotations

import functools

from appsdk_operator.apiserver._cel.overloads import Overload, overloads_of


@functools.cache
def functions() -> dict[str, list[Overload]]:
    """The overloads of each function that Kubernetes offers custom resources, by name."""
    # Imported here because most servers never evaluate an expression.
    from appsdk_operator.apiserver._cel.libraries.kubernetes import KUBERNETES_FUNCTIONS
    from appsdk_operator.apiserver._cel.libraries.standard import STANDARD_FUNCTIONS
    from appsdk_operator.apiserver._cel.libraries.strings import STRING_FUNCTIONS

    table: dict[str, list[Overload]] = {}
    for overload in overloads_of([*STANDARD_FUNCTIONS, *STRING_FUNCTIONS, *KUBERNETES_FUNCTIONS]):
        table.setdefault(overload.name, []).append(overload)
    return table
