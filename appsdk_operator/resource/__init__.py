"""Kubernetes objects: kinds, metadata, JSON and YAML, selectors, filters and patches.

The bytes of a client or a watch become an :class:`Object`, an immutable view that threads and
caches share. :meth:`Object.mutable_copy` makes a :class:`MutableObject`, which can be changed and
sent. Nothing here does I/O or starts a thread.

Guarantees:
    * A round trip preserves unknown fields, the order of keys and the value of every number.
    * Reading from any thread is safe; an attempt to change an :class:`Object` raises
      :class:`ReadOnlyError`, which says what to do instead.

Caveats:
    * Labels, spec, status and other fields are decoded at each access.

Errors:
    :class:`DecodeError` (with :class:`WrongKindError`), :class:`EncodeError`,
    :class:`ReadOnlyError`.
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
