"""Controllers: reconcilers that bring the current state to the desired one.

A reconciler gets the *key* of an object, not the *event*. It reads the current state and makes the
missing changes. So events can be merged, missed and repeated without harm, and the next call
corrects a failure. If each event matters, use :mod:`appsdk_operator.watchers` instead.

An event takes these steps. A source (a cached kind, a channel, a timer) delivers it; predicates
filter it; a handler turns it into requests. The queue merges the requests of one object, holds them
until they are due, and passes them to workers by priority. A worker calls the reconciler, and the
result decides on the next call:

* None, or ``Result()``: done, until the next event;
* ``Result(requeue_after=seconds)``: after that time, or earlier at the next event;
* an exception: after a delay that grows with each failure;
* ``RetryAfter(seconds)``: after that time; the delay does not grow;
* ``TerminalError``: no retry, until the next event.

>>> from appsdk_operator.controllers import Controller, Request, Result
>>> def reconcile(request: Request) -> Result:
...     print("look at", request)
...     return Result(requeue_after=60.0)
>>> class Once:
...     def start(self, queue, stop):
...         queue.add(Request("default", "web"), reason="example")
>>> controller = Controller("example", reconcile)
>>> controller.watch(Once())
>>> controller.process_next()  # a program calls run(stop), or adds it to a Manager
look at default/web
True
>>> controller.close()

Guarantees:
    * Reconciles of one request never overlap, with any number of workers.
    * A request is reconciled until a reconcile succeeds, is given up (``max_attempts``) or fails
      terminally. A request that is added meanwhile is reconciled once more.
    * No reconcile starts before every source has added its initial requests.
    * No request is reconciled before it is due, and no request waits for another one's backoff.

Caveats:
    * A reconciler must be idempotent: it may be called again after a half-done try.
    * A constant stream of requests with a high priority delays those with a lower one.
    * Plain Python code cannot be interrupted: at a deadline or a stop a reconciler has to check
      ``reconcile_context().stop``.
    * A read from a cache may be older than the reconciler's last write, unless it reads through
      the manager's client.

Errors: the controller logs, counts and retries an error of a reconciler. :meth:`Controller.run`
raises when a source fails or does not sync in time, when threads outlive the stop, and, with
``recover_exceptions=False``, at a bug in a reconciler. Constructors refuse wrong options.
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
