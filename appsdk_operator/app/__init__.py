"""What an operator is, as one value: its name, its kinds, and the functions that handle them.

An :class:`App` is a thin layer over the packages below it. Functions are declared with decorators,
or with plain calls; :meth:`App.manager` makes a Manager that runs them, and :meth:`App.run` is the
whole program. From the same declarations come the CustomResourceDefinitions, the webhooks and the
permissions that the operator needs, without a cluster.

Guarantees:
    * Two Apps of a process share nothing, and nothing is registered globally.
    * A declared function stays the plain function that it was.
    * What is declared is checked when it is declared.
    * What is generated depends on the declarations alone: the same ones give the same objects.

Caveats:
    * An App takes no declarations after its first Manager was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appsdk_operator._lazy import homes, loader

if TYPE_CHECKING:
    from appsdk_operator.app._app import App as App
    from appsdk_operator.app._app import functions_of as functions_of
    from appsdk_operator.app._app import handled_kinds as handled_kinds
    from appsdk_operator.app._app import observed_manager as observed_manager
    from appsdk_operator.app._app import timers_of as timers_of
    from appsdk_operator.app._assembly import Observer as Observer
    from appsdk_operator.app._declarations import Handler as Handler
    from appsdk_operator.app._declarations import Timer as Timer
    from appsdk_operator.app._permission import Permission as Permission
    from appsdk_operator.app._permission import merged as merged
    from appsdk_operator.app._run import ENVIRONMENT as ENVIRONMENT
    from appsdk_operator.app._run import ExitStatus as ExitStatus
    from appsdk_operator.app._run import RunOptions as RunOptions
    from appsdk_operator.app._run import run_program as run_program
    from appsdk_operator.app._run import start_logging as start_logging

_MODULES: dict[str, tuple[str, ...]] = {
    "app._app": ("App",),
    "app._permission": ("Permission",),
    "app._run": ("ExitStatus", "RunOptions"),
}

# Not part of the public surface.
_FOR_OTHER_ROOMS: dict[str, tuple[str, ...]] = {
    "app._permission": ("merged",),
    "app._app": ("functions_of", "handled_kinds", "observed_manager", "timers_of"),
    "app._assembly": ("Observer",),
    "app._declarations": ("Handler", "Timer"),
    "app._run": ("ENVIRONMENT", "run_program", "start_logging"),
}

_HOMES = homes(_MODULES, _FOR_OTHER_ROOMS)

__all__ = [*homes(_MODULES)]  # noqa: PLE0604 - strings, all of them

if not TYPE_CHECKING:  # which would take any name for one of the package's
    __getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
