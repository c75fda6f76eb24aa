"""Informers and caches: local copies of kinds, and events for handlers.

An :class:`Informer` lists and watches one kind through a client and keeps a local copy in a
:class:`Store` with indexes. It sends each :class:`Event` to handlers: an :class:`EventHandler` is
called in a thread of its own, through a :class:`Delivery`; a :class:`BatchHandler`, which only
queues, is called at once. A :class:`Cache` has the informers of several kinds and namespaces and
answers reads from them, and a :class:`CachedClient` is a client that reads from a cache.

>>> from appsdk_operator import Client, ClientConfig, MutableObject, StopSignal, kinds
>>> from appsdk_operator.cache import Informer
>>> from appsdk_operator.testing import APIServer, running
>>> server = APIServer().start()
>>> client = Client(ClientConfig(server=server.url))
>>> ConfigMap = kinds.core.v1.ConfigMap
>>> _ = client.create(MutableObject.new(ConfigMap, "a", namespace="default", data={}))
>>> informer = Informer(ConfigMap, client, namespace="default")
>>> with running(informer):
...     informer.wait_for_sync(StopSignal(), timeout=10)
...     [obj.name for obj in informer.store.list()]
True
['a']
>>> client.close(); server.stop()

Guarantees:
    * The store is updated before handlers run.
    * A handler gets the events of one object in order, never two at once.
    * Errors do not stop an informer: they are reported, counted, and part of
      :meth:`Informer.health`.
    * A silent connection is noticed and replaced.

Caveats:
    * Beyond a bound, pending events of a slow handler are merged, object by object, unless the
      handler was added with :attr:`Overflow.BLOCK`.
    * After an etcd restore the server's versions go back; the list that follows is trusted.

Errors:
    * :class:`NotCachedError`: a read of a kind that the cache does not hold;
      :class:`NotFollowedError`: of a namespace that it does not follow; :class:`NotSyncedError`: of
      a local copy that is not complete yet.
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
