from appsdk_operator.cache._cache.cache import (
    Cache as Cache,
)
from appsdk_operator.cache._cache.errors import (
    NotCachedError as NotCachedError,
    NotFollowedError as NotFollowedError,
    NotSyncedError as NotSyncedError,
)
from appsdk_operator.cache._cache.options import (
    CacheOptions as CacheOptions,
    NamespaceOptions as NamespaceOptions,
)
from appsdk_operator.cache._client.cached_client import (
    CachedClient as CachedClient,
)
from appsdk_operator.cache._delivery.delivery import (
    Delivery as Delivery,
    EventSource as EventSource,
    Handle as Handle,
    Overflow as Overflow,
)
from appsdk_operator.cache._events import (
    BatchHandler as BatchHandler,
    Event as Event,
    EventHandler as EventHandler,
    ResourceAction as ResourceAction,
)
from appsdk_operator.cache._informer.foreign import (
    ForeignStream as ForeignStream,
)
from appsdk_operator.cache._informer.health import (
    Health as Health,
)
from appsdk_operator.cache._informer.informer import (
    Informer as Informer,
    Registration as Registration,
)
from appsdk_operator.cache._informer.reflector import (
    EventStream as EventStream,
    ListWatchClient as ListWatchClient,
)
from appsdk_operator.cache._informer.store import (
    Lister as Lister,
    Store as Store,
)
from appsdk_operator.cache._informer.transforms import (
    drop_managed_fields as drop_managed_fields,
)

"""For other packages: not part of the public surface."""

from appsdk_operator.cache._cache.errors import (
    Remedies as Remedies,
)
from appsdk_operator.cache._cache.followed import (
    Followed as Followed,
)
from appsdk_operator.cache._cache.namespace_selection import (
    NamespaceSelection as NamespaceSelection,
)
from appsdk_operator.cache._cache.options import (
    checked_selection as checked_selection,
    kind_tuple as kind_tuple,
)
from appsdk_operator.cache._cache.registration import (
    CacheRegistration as CacheRegistration,
)
from appsdk_operator.cache._delivery.delivery import (
    DeliveryKey as DeliveryKey,
)
from appsdk_operator.cache._informer.handler_caller import (
    ErrorHandler as ErrorHandler,
)
from appsdk_operator.cache._informer.informer import (
    InformerStopped as InformerStopped,
)
from appsdk_operator.cache._informer.store import (
    IndexFunction as IndexFunction,
)
from appsdk_operator.cache._informer.transforms import (
    Transform as Transform,
)
