"""Managers and operators: they run controllers together, in order, and report which one failed.

A :class:`Manager` has the cache and the clients that controllers share, takes part in the leader
election, serves health and metrics, and starts and stops everything in order. An :class:`Operator`
is the small form: controllers that start, fail and stop together.

Guarantees:
    * A runnable that fails stops all others, and its error is raised. A stop starts nothing.
    * A dependency, such as the cache, starts first, is ready before its users start, and ends after
      them.
    * The leader's Lease is held until everything that runs on the leader only has ended. Once it
      has expired by this process' clock, the manager's clients refuse to write.

Caveats:
    * A function that ignores its stop signal cannot be ended: after a stop or a lost Lease the
      process lives on until it returns. A second signal ends such a process.
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
