"""Keep a local copy of a kind, and tell handlers what happens to its objects.

An :class:`Informer` lists and watches through a client, decodes only what identifies each object,
keeps them in a :class:`Store` with indexes, and hands :class:`Event`s to handlers: to queues at
once (:class:`BatchHandler`), to other code through a :class:`Delivery` of its own.

Guarantees:
    * The store is updated before handlers run.
    * The events of one object come in order, never two at once.
    * Errors are values: reported, counted and part of :meth:`Informer.health`; none stops it.
    * A connection that goes silent is noticed and replaced.

Caveats:
    * What waits for a slow handler is merged object by object beyond a bound, unless the handler
      was added with :attr:`Overflow.BLOCK`.
    * After an etcd restore the server's versions go back; the list that follows is taken as true.
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
