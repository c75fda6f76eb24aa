"""Watchers: functions that are called for the events of objects, as in grafana-app-sdk.

An :class:`InformerController` connects informers with watchers by kind. The watchers of a kind run
one after another, in the order in which they were added. When one raises, its call is retried as
the :class:`RetryPolicy` says. An :class:`OpinionatedWatcher` adds a finalizer, so that it misses no
deletion, even if no process runs at the time.

A reconciler (:class:`ResourceReconciler`) is called like a watcher, but has one method for all
actions and may ask for another call. :meth:`InformerController.add_cache` takes events from the
informers of a shared cache.

Guarantees, for watchers and reconcilers:
    1. Events of one object come in resourceVersion order; for one event the watchers run in add
       order, the next one after the previous has returned.
    2. Calls for one object never overlap: neither two events nor an event and a retry.
    3. With one worker the order is global; with more, different objects are handled in parallel.
    4. A failing watcher does not keep the event from the others; its retry runs when it is due.
    5. When events stop and the handlers succeed, every watcher's last seen state is the store's.
    6. An OpinionatedWatcher never releases an object whose delete callback has not succeeded, never
       changes another finalizer, and calls add for each object at least once.

Caveats:
    * 5 needs a retry policy that does not give up, or a resync.
    * A callback that blocks occupies its worker; give the controller more workers.
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
