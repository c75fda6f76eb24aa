"""Informers and caches: local copies of kinds, and events for handlers.

An :class:`Informer` lists and watches one kind through a client and keeps a local copy in a
:class:`Store` with indexes. It sends each :class:`Event` to handlers: an :class:`EventHandler` is
called in a thread of its own, through a :class:`Delivery`; a :class:`BatchHandler`, which only
queues, is called at once. A :class:`Cache` has the informers of several kinds and namespaces and
answers reads from them, and a :class:`CachedClient` is a client that reads from a cache.

>>> from appsdk_operator import Client, ClientConfig, Informer, MutableObject, StopSignal, kinds
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

from appsdk_operator.cache._cache.cache import Cache as Cache
from appsdk_operator.cache._cache.errors import NotCachedError as NotCachedError
from appsdk_operator.cache._cache.errors import NotFollowedError as NotFollowedError
from appsdk_operator.cache._cache.errors import NotSyncedError as NotSyncedError
from appsdk_operator.cache._cache.errors import Remedies as Remedies
from appsdk_operator.cache._cache.options import CacheOptions as CacheOptions
from appsdk_operator.cache._cache.options import NamespaceOptions as NamespaceOptions
from appsdk_operator.cache._cache.options import checked_namespaces as checked_namespaces
from appsdk_operator.cache._cache.options import kind_tuple as kind_tuple
from appsdk_operator.cache._cache.registration import CacheRegistration as CacheRegistration
from appsdk_operator.cache._client.cached_client import CachedClient as CachedClient
from appsdk_operator.cache._delivery.delivery import Delivery as Delivery
from appsdk_operator.cache._delivery.delivery import DeliveryKey as DeliveryKey
from appsdk_operator.cache._delivery.delivery import EventSource as EventSource
from appsdk_operator.cache._delivery.delivery import Handle as Handle
from appsdk_operator.cache._delivery.delivery import Overflow as Overflow
from appsdk_operator.cache._events import BatchHandler as BatchHandler
from appsdk_operator.cache._events import Event as Event
from appsdk_operator.cache._events import EventHandler as EventHandler
from appsdk_operator.cache._events import ResourceAction as ResourceAction
from appsdk_operator.cache._informer.foreign import ForeignStream as ForeignStream
from appsdk_operator.cache._informer.handler_caller import ErrorHandler as ErrorHandler
from appsdk_operator.cache._informer.health import Health as Health
from appsdk_operator.cache._informer.informer import Informer as Informer
from appsdk_operator.cache._informer.informer import InformerStopped as InformerStopped
from appsdk_operator.cache._informer.informer import Registration as Registration
from appsdk_operator.cache._informer.reflector import EventStream as EventStream
from appsdk_operator.cache._informer.reflector import ListWatchClient as ListWatchClient
from appsdk_operator.cache._informer.store import IndexFunction as IndexFunction
from appsdk_operator.cache._informer.store import Lister as Lister
from appsdk_operator.cache._informer.store import Store as Store
from appsdk_operator.cache._informer.transforms import Transform as Transform
from appsdk_operator.cache._informer.transforms import drop_managed_fields as drop_managed_fields

# What is imported above and not listed is for the other rooms of the kit.
__all__ = [
    "BatchHandler",
    "Cache",
    "CacheOptions",
    "CacheRegistration",
    "CachedClient",
    "Delivery",
    "DeliveryKey",
    "Event",
    "EventHandler",
    "EventSource",
    "EventStream",
    "ForeignStream",
    "Handle",
    "Health",
    "IndexFunction",
    "Informer",
    "ListWatchClient",
    "Lister",
    "NamespaceOptions",
    "NotCachedError",
    "NotFollowedError",
    "NotSyncedError",
    "Overflow",
    "Registration",
    "ResourceAction",
    "Store",
    "Transform",
    "drop_managed_fields",
]
