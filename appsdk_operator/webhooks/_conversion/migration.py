"""The migration of stored objects to the storage version of their CRD."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, final

import attrs

from appsdk_operator.client import (
    ApiError,
    BadRequest,
    ClientLike,
    Conflict,
    Expired,
    Gone,
    MergePatch,
    NotFound,
    RequestStopped,
)
from appsdk_operator.resource import Kind, Object, Versions, check_kind
from appsdk_operator.resource.kinds import apiextensions
from appsdk_operator.runtime import Clock, StopSignal, TokenBucket, get_logger
from appsdk_operator.runtime.validation import (
    check_callable,
    check_client,
    check_count,
    check_environment,
    check_number,
    checked_seconds,
)

_log: Final = get_logger("appsdk_operator.webhooks")
_CRD: Final = apiextensions.v1.CustomResourceDefinition
_ANNOTATION: Final = "appsdk-operator.io/storage-migration"
_MOST_SHOWN: Final = 10


@attrs.frozen(kw_only=True)
class MigrationProgress:
    """The progress of a migration to a storage version."""

    storage_version: str
    """The version in which objects are stored."""
    stored_versions: tuple[str, ...]
    """``status.storedVersions`` of the CRD, as last read."""
    visited: int = 0
    """The number of objects that this pass has rewritten, or that need no rewrite."""
    remaining: int | None = None
    """The number of remaining objects; None if the server does not say."""
    failed: tuple[str, ...] = ()
    """The first ten objects that could not be rewritten, each with its error."""
    is_complete: bool = False
    """Whether all objects are stored in the storage version, and the CRD says so."""


class MigrationError(Exception):
    """Some objects could not be rewritten, so they are still stored in old versions.

    The text names the first ten of them.
    """

    def __init__(self, text: str, progress: MigrationProgress) -> None:
        super().__init__(text)
        self.progress = progress
        """The progress so far."""


def migrate_stored_versions(
    client: ClientLike,
    kind: Kind | Versions,
    *,
    stop: StopSignal | None = None,
    per_second: float = 50.0,
    page_size: int = 500,
    settle: float = 10.0,
    on_progress: Callable[[MigrationProgress], object] | None = None,
    clock: Clock | None = None,
) -> MigrationProgress:
    """Rewrite all objects of a kind in the storage version, so that old versions can be removed.

    An object stays stored in the version in which it was last written. A version may be removed
    from a CRD only if ``status.storedVersions`` does not have it. This function writes each object
    without a change: it sends an empty patch with the uid and resource version that it read. If the
    object was changed or deleted in the meantime, it needs no other write. After a complete pass it
    sets ``status.storedVersions`` to the storage version. If the CRD has changed since the
    beginning of the pass, it makes another pass instead.

    After each page it writes its position to the annotation
    ``appsdk-operator.io/storage-migration`` of the CRD. A later call, also in another process,
    continues from there unless the CRD has changed. Concurrent calls do no harm. In a manager:

        manager.add(lambda stop: migrate_stored_versions(manager.client, WIDGET, stop=stop))

    It needs the permissions to get, list and patch the kind, to get and patch its CRD, and to patch
    ``customresourcedefinitions/status``.

    Args:
        client: a client that reads and writes live.
        kind: the kind in a version that is served, or its versions.
        stop: ends it early once set.
        per_second: the most writes in a second; default 50.
        page_size: the number of objects in a page; default 500.
        settle: seconds to wait before a pass, until each API server has seen the last change of the
            CRD; default 10. Until then a server would still store the old version.
        on_progress: called after each page and at the end.
        clock: the clock of the pace and of the wait.

    Returns:
        The last progress; ``is_complete`` unless ``stop`` was set.

    Raises:
        MigrationError: some objects could not be rewritten; all others were.
        NotFound: there is no CRD of this kind.
        ApiError: the CRD cannot be changed, or objects cannot be listed, for example because one
            cannot be converted.
        TransportError: the API server cannot be reached.
    """
    check_client(client, "get", "list_page", "patch")
    if isinstance(kind, Versions):
        kind = kind.hub
    check_kind(kind)
    check_count("page_size", page_size, 1)
    check_number("per_second", per_second)
    if not per_second > 0:
        raise ValueError(f"per_second={per_second}: use more than 0 writes a second")
    checked_seconds("settle", settle)
    check_callable("on_progress", on_progress, "progress")
    check_environment(stop=stop, clock=clock)
    migration = _Migration(
        client=client,
        kind=kind,
        stop=stop or StopSignal(clock=clock),
        bucket=TokenBucket(rate=per_second, burst=1, clock=clock),
        page_size=page_size,
        settle=settle,
        on_progress=on_progress,
    )
    return migration.run()


@attrs.frozen(kw_only=True)
class _Definition:
    """What a migration has to know of the CRD."""

    uid: str
    generation: int
    storage: str
    """The name of the storage version."""
    is_storage_served: bool
    stored: tuple[str, ...]
    resource_version: str
    place: str
    """The annotation with the place where another call has ended."""

    @classmethod
    def of(cls, crd: Object) -> _Definition:
        versions = crd["spec"]["versions"]
        storage = next(version for version in versions if version["storage"])
        return cls(
            uid=crd.uid,
            generation=crd.generation,
            storage=storage["name"],
            is_storage_served=storage["served"],
            stored=tuple(crd.get("status", {}).get("storedVersions") or ()),
            resource_version=crd.resource_version,
            place=crd.annotations.get(_ANNOTATION, ""),
        )

    def is_same_as(self, other: _Definition) -> bool:
        """Whether no change of the definition is between the two."""
        return (self.uid, self.generation) == (other.uid, other.generation)


@final
@attrs.define(kw_only=True)
class _Migration:
    client: ClientLike
    kind: Kind
    stop: StopSignal
    bucket: TokenBucket
    page_size: int
    settle: float
    on_progress: Callable[[MigrationProgress], object] | None
    visited: int = 0
    remaining: int | None = None
    failed: list[str] = attrs.field(factory=list)
    failures: int = 0

    @property
    def name(self) -> str:
        """The name of the CRD."""
        return self.kind.qualified_name

    def run(self) -> MigrationProgress:
        while True:
            crd = self._definition()
            if set(crd.stored) <= {crd.storage}:
                self._forget_place(crd)
                return self._report(crd, is_complete=True)
            _log.info(
                "%s: the migration rewrites all objects in the storage version %s; the stored "
                "versions so far are %s",
                self.name,
                crd.storage,
                ", ".join(crd.stored),
            )
            if not self._pass(crd):
                return self._report(crd)
            if self.failures:
                raise MigrationError(
                    f"{self.failures} object{'s' * (self.failures > 1)} of {self.name} could not "
                    f"be rewritten in version {crd.storage}, so {', '.join(crd.stored)} stay in "
                    f"status.storedVersions: fix or delete {'them' if self.failures > 1 else 'it'} "
                    f"and call again. {'; '.join(self.failed)}",
                    self._report(crd),
                )
            if self._trim(crd):
                after = self._definition()
                if after.is_same_as(crd) and set(after.stored) > {crd.storage}:
                    raise MigrationError(
                        f"{self.name}: status.storedVersions is still {', '.join(after.stored)} "
                        "after it was set: give a client that writes, without dry run",
                        self._report(after),
                    )
                _log.info("%s: all objects are stored in version %s", self.name, crd.storage)

    def _definition(self) -> _Definition:
        return _Definition.of(self.client.get(_CRD, self.name))

    def _report(self, crd: _Definition, *, is_complete: bool = False) -> MigrationProgress:
        progress = MigrationProgress(
            storage_version=crd.storage,
            stored_versions=crd.stored,
            visited=self.visited,
            remaining=0 if is_complete else self.remaining,
            failed=tuple(self.failed),
            is_complete=is_complete,
        )
        if self.on_progress is not None:
            self.on_progress(progress)
        return progress

    # -- A pass over all objects ----------------------------------------------------------------

    def _pass(self, crd: _Definition) -> bool:
        """Rewrite all objects; returns whether it came to the end before the stop."""
        token, self.visited = self._place(crd)
        kept = token
        self.failed, self.failures, self.remaining = [], 0, None
        kind = self.kind
        if crd.is_storage_served:  # which needs the fewest conversions
            kind = Kind(
                group=kind.group,
                version=crd.storage,
                kind=kind.kind,
                plural=kind.plural,
                scope=kind.scope,
            )
        if self.stop.wait(self.settle):
            return False
        while True:
            try:
                page = self.client.list_page(
                    kind,
                    limit=self.page_size,
                    continue_token=token,
                    metadata_only=True,
                    stop=self.stop,
                )
            except RequestStopped:
                if self.stop.is_set():
                    return False
                raise
            except (BadRequest, Expired, Gone) as error:
                if not token or (isinstance(error, BadRequest) and token != kept):
                    raise
                # The token for the rest as it is now. Objects that were created meanwhile, and
                # would be missed, are stored in the new version.
                token = error.continue_token
                if not token:
                    self.visited = 0
                continue
            for obj in page.items:
                if self.stop.wait(self.bucket.reserve()):
                    return False
                self._rewrite(kind, obj)
            for unreadable in page.undecodable:
                self._note_failure(str(unreadable))
            token, self.remaining = page.continue_token, page.remaining
            if not token:
                return True
            # A pass with failures begins again: its end must not forget them.
            if not self.failures:
                self._keep_place(crd, token)
            self._report(crd)
            if self.stop.is_set():
                return False

    def _rewrite(self, kind: Kind, obj: Object) -> None:
        patch = {"metadata": {"uid": obj.uid, "resourceVersion": obj.resource_version}}
        try:
            self.client.patch(kind, obj.name, MergePatch(patch), namespace=obj.namespace)
        except ApiError as error:
            # A webhook may answer with each code, so the code alone does not say what happened.
            if not isinstance(error, (Conflict, NotFound)) or self._is_as_read(kind, obj):
                self._note_failure(f"{obj.key}: {error}")
                return
        self.visited += 1

    def _is_as_read(self, kind: Kind, obj: Object) -> bool:
        """Whether nobody has written or deleted the object since it was read."""
        try:
            now = self.client.get(kind, obj.name, namespace=obj.namespace)
        except NotFound:
            return False
        except ApiError:
            return True  # which is unknown, so it counts as a failure
        return (now.uid, now.resource_version) == (obj.uid, obj.resource_version)

    def _note_failure(self, text: str) -> None:
        self.failures += 1
        if len(self.failed) < _MOST_SHOWN:
            self.failed.append(text)

    # -- The CRD --------------------------------------------------------------------------------

    def _trim(self, crd: _Definition) -> bool:
        """Set ``status.storedVersions``; False if the CRD was changed during the pass."""
        while True:
            now = self._definition()
            if not now.is_same_as(crd):
                _log.info(
                    "%s was changed meanwhile: the migration visits all objects again", self.name
                )
                return False
            patch = {
                "metadata": {"uid": now.uid, "resourceVersion": now.resource_version},
                "status": {"storedVersions": [crd.storage]},
            }
            try:
                self.client.status.patch(_CRD, self.name, MergePatch(patch))
            except Conflict:
                continue
            return True

    def _place(self, crd: _Definition) -> tuple[str, int]:
        """The continue token and the number of objects of an earlier call for the same CRD."""
        try:
            place = json.loads(crd.place)
            if (place["uid"], place["generation"]) == (crd.uid, crd.generation):
                return str(place["continue"]), int(place["visited"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            pass
        return "", 0

    def _keep_place(self, crd: _Definition, token: str) -> None:
        place = {
            "uid": crd.uid,
            "generation": crd.generation,
            "continue": token,
            "visited": self.visited,
        }
        self._annotate(crd, json.dumps(place))

    def _forget_place(self, crd: _Definition) -> None:
        if crd.place:
            self._annotate(crd, None)

    def _annotate(self, crd: _Definition, text: Any) -> None:
        patch = {"metadata": {"uid": crd.uid, "annotations": {_ANNOTATION: text}}}
        self.client.patch(_CRD, self.name, MergePatch(patch))
