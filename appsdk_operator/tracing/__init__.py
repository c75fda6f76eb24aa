"""Spans of OpenTelemetry for what an operator does.

:class:`Tracing` is an observer of a Manager: it makes a span for each reconcile, each call of a
watcher, each review of a webhook, and each attempt of a request to an API server, which gets the
span's ``traceparent``.

Guarantees:
    * Without it nothing of OpenTelemetry is imported, and nothing costs.
    * Failures of spans and exporters have no effect on the operator.

Caveats:
    * It needs the packages of ``pip install 'appsdk-operator[tracing]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appsdk_operator._lazy import homes, loader

if TYPE_CHECKING:
    from appsdk_operator.tracing._export import otlp_tracing as otlp_tracing
    from appsdk_operator.tracing._log_fields import TraceFields as TraceFields
    from appsdk_operator.tracing._tracing import Tracing as Tracing

_MODULES: dict[str, tuple[str, ...]] = {
    "tracing._export": ("otlp_tracing",),
    "tracing._log_fields": ("TraceFields",),
    "tracing._tracing": ("Tracing",),
}

_HOMES = homes(_MODULES)

__all__ = [*homes(_MODULES)]  # noqa: PLE0604 - strings, all of them

if not TYPE_CHECKING:  # which would take any name for one of the package's
    __getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
