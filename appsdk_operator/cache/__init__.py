"""Informers and caches: local copies of kinds, and events for handlers.

An :class:`Informer` lists and watches one kind through a client and keeps a local copy in a
:class:`Store` with indexes. It sends each :class:`Event` to handlers. It calls an
:class:`EventHandler` in a separate thread, through a :class:`Delivery`, and a
:class:`BatchHandler`, which only queues, at once. A :class:`Cache` has the informers of several
kinds and namespaces and answers reads from them. A :class:`CachedClient` is a client that reads
from a cache.

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
    * If a handler is slow and too many events are pending, the informer merges them, object by
      object, unless the handler was added with :attr:`Overflow.BLOCK`.
    * After an etcd restore the server's versions go back; the informer trusts the next list.

Errors:
    * :class:`NotCachedError`: the cache does not hold the kind of a read.
    * :class:`NotFollowedError`: the cache does not follow the namespace of a read.
    * :class:`NotSyncedError`: the local copy is not complete yet.
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
