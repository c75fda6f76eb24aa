"""A kit for writing Kubernetes operators.

The names that a program usually needs are here; each is documented in its package. The packages,
lowest first: :mod:`~appsdk_operator.runtime` (clock, stop signal, work queue, metrics),
:mod:`~appsdk_operator.resource` (kinds and objects), :mod:`~appsdk_operator.client` (requests to an
API server), :mod:`~appsdk_operator.cache` (informers and a local copy),
:mod:`~appsdk_operator.controllers` (reconcilers), :mod:`~appsdk_operator.watchers` (callbacks for
events), :mod:`~appsdk_operator.webhooks` (defaults, validation, conversion, certificates),
:mod:`~appsdk_operator.manager` (start, stop, leader election, health),
:mod:`~appsdk_operator.app` (a whole operator as one value), and :mod:`~appsdk_operator.testing` (an
API server for tests).

Each name is imported on first use, so that importing the package costs next to nothing.
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
