"""The base of all other packages: clock, stop signal, threads, work queue, metrics.

Nothing here knows Kubernetes. Everything that waits takes a :class:`Clock` and obeys a
:class:`StopSignal` or a shut-down, so that tests control the time and a stop is prompt.

Guarantees:
    * Only the machine's clock (:data:`system_clock`) reads or waits for the time.
    * No thread is a daemon; every thread belongs to a group that joins it.
    * Locks are held for short operations on data only, never while user code runs.
    * Errors of the program's logging handlers never reach the caller.
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
