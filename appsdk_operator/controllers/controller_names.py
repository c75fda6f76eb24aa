"""The controller names in use: controllers of one name would share their metrics."""

from __future__ import annotations

import gc
import threading
import weakref

from appsdk_operator.runtime import fork_safe

__all__ = ["claim", "release"]

# Re-entrant: a collection while it is held may run code that makes or ends a controller.
_lock = fork_safe(threading.RLock())
# Weak: a controller that never ran, and so never ends, gives its name back when it is collected.
_owners: weakref.WeakValueDictionary[str, object] = weakref.WeakValueDictionary()


def claim(name: str, owner: object) -> None:
    """Reserve ``name`` for ``owner`` until :func:`release`, or until ``owner`` is collected.

    Raises:
        ValueError: it is in use.
    """
    if _take(name, owner):
        return
    # Its owner may be part of a reference cycle that was not collected yet.
    gc.collect()
    if not _take(name, owner):
        raise ValueError(
            f"controller name {name!r} is in use in this process, and two controllers of one name "
            "would share their metrics: give this one another name, or set skip_name_validation"
        )


def release(name: str, owner: object) -> None:
    """Release ``name`` if ``owner`` has it."""
    with _lock:
        if _owners.get(name) is owner:
            del _owners[name]


def _take(name: str, owner: object) -> bool:
    with _lock:
        return _owners.setdefault(name, owner) is owner
