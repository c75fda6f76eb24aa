"""OpenTelemetry spans for the calls and requests of an operator.

:class:`Tracing` is an observer of a Manager: it makes a span for each reconcile, each call of a
watcher, each review of a webhook, and each attempt of a request to an API server, which gets the
span's ``traceparent``.

Guarantees:
    * Without it nothing of OpenTelemetry is imported, and nothing costs.
    * Failures of spans and exporters have no effect on the operator.

Caveats:
    * It needs the packages of ``pip install 'appsdk-operator[tracing]'``.
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
