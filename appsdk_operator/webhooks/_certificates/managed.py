"""Certificates that the replicas of an operator make, share, inject and rotate."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import attrs

from appsdk_operator.cache import Event, Health, Informer, ResourceAction
from appsdk_operator.client import (
    AlreadyExists,
    ApiError,
    ClientError,
    ClientLike,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RequestStopped,
    requests_end_with,
)
from appsdk_operator.resource import Kind, MutableObject, Object, kinds
from appsdk_operator.runtime import (
    NO_THREAD,
    Backoff,
    Clock,
    Family,
    Metrics,
    Sample,
    StopSignal,
    ThreadGroup,
    TokenBucket,
    Waiters,
    entered_metrics,
    get_logger,
    present_clock,
    present_metrics,
)
from appsdk_operator.runtime.validation import (
    check_client,
    check_environment,
    check_number,
    check_text,
    check_wait,
    checked_texts,
)
from appsdk_operator.serving import KeyPair
from appsdk_operator.webhooks._certificates import issuing, plan, secret
from appsdk_operator.webhooks._certificates.content import Content
from appsdk_operator.webhooks._certificates.targets import CertificateTarget, as_target

_log: Final = get_logger("appsdk_operator.webhooks")
_SECRET: Final = kinds.core.v1.Secret
_DAY: Final = 86400.0
_NAMESPACE_FILE: Final = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
_BACKOFF: Final = Backoff(initial=0.2, maximum=30.0)
_LOOKS: Final = 1.0
"""Looks a second in the long run, if somebody else changes what is injected again and again."""
_BURST: Final = 30
_MOST_REFUSALS: Final = 5
"""Refused writes in a row after which that is reported: replicas are not faster that often."""
_SHORTEST_LIFETIME: Final = 5.0
_LONGEST_LIFETIME: Final = 1000 * 365 * _DAY
"""In seconds; the last year of a certificate is 9999."""
_LONGEST_NAME: Final = 253

_EXPIRY: Final = Family(
    "managed_certificates_expiry_seconds",
    "gauge",
    "Seconds until the certificate in use expires",
    ("secret", "certificate"),
)
_ROTATIONS: Final = Family(
    "managed_certificates_rotations_total",
    "counter",
    "Certificates that this replica has made",
    ("secret", "certificate"),
)
_INJECTIONS: Final = Family(
    "managed_certificates_injections_total",
    "counter",
    "Configurations that this replica has given a caBundle or an annotation",
    ("secret", "kind", "name"),
)
_ERRORS: Final = Family(
    "managed_certificates_errors_total",
    "counter",
    "Requests that failed",
    ("secret", "operation"),
)
_OPERATIONS: Final = ("read", "store", "inject", "watch")


@final
class ManagedCertificates:
    """Certificates that the operator itself makes, stores in a Secret, injects and rotates.

    A source of certificates for an :class:`~appsdk_operator.manager.HTTPServer` and a
    ``WebhookServer``, which gives it the manager's client:

        certificates = ManagedCertificates(
            "widgets-webhooks",
            "widgets-webhooks-tls",
            namespace="widgets",
            inject=[
                (kinds.admissionregistration.v1.ValidatingWebhookConfiguration, "widgets"),
                (kinds.apiextensions.v1.CustomResourceDefinition, "widgets.example.com"),
            ],
        )
        server = WebhookServer(":9443", certificates=certificates)

    The first replica makes a CA and a serving certificate, and stores both with their keys in the
    Secret, of type ``kubernetes.io/tls``: ``tls.crt``, ``tls.key``, ``ca.crt`` with all CAs to
    trust, ``ca.key``, during a rotation ``next-ca.key``, and ``trusted``. Every replica reads the
    Secret. In the configurations of ``inject`` it sets ``ca.crt`` as the ``caBundle`` of each
    ``clientConfig`` that names the service. The certificate is for ``service``,
    ``service.namespace``, ``service.namespace.svc``, ``service.namespace.svc.cluster.local``, and
    ``names``.

    Guarantees:
        * A ready replica always serves a certificate that API servers accept: a new CA is in all
          configurations for ``propagation`` seconds before any replica serves a certificate that it
          signed, and a CA stays there until it has expired. Replicas never remove a valid
          certificate from a ``caBundle``, whoever put it there.
        * It recovers when the Secret was deleted, damaged or restored, when a configuration was
          recreated or reverted, and when all replicas were down for longer than a lifetime. It
          watches the Secret and the configurations, and also reads them every ``poll_interval``
          seconds.
        * Replicas never overwrite each other's writes: the server refuses a write if the object has
          changed since it was read.
        * No log, error, repr or file has a key.

    Caveats:
        * If somebody else overwrites a configuration, it trusts their CA until a replica sees the
          change and injects again. Have GitOps tools ignore ``caBundle``.
        * The clocks of replicas and API servers may differ by up to 15 minutes.
        * To distrust a CA at once, stop all replicas, delete the Secret, empty each ``caBundle``,
          and start again.

    The account needs these rules; :meth:`role_rules` and :meth:`cluster_role_rules` return them:

    ============================================  ==============================  ================
    resource                                      verbs                           resourceNames
    ============================================  ==============================  ================
    ``secrets`` in ``namespace``                  get, list, watch, update        the Secret
    ``secrets`` in ``namespace``                  create                          (cannot have any)
    ``mutatingwebhookconfigurations``,            get, list, watch, patch         those of
    ``validatingwebhookconfigurations``,                                          ``inject``
    ``customresourcedefinitions``,
    ``apiservices``
    ============================================  ==============================  ================

    ``create`` is not needed if you install an empty Secret with the operator.

    Thread-safe. Its metrics are ``managed_certificates_expiry_seconds``, ``…_rotations_total``,
    ``…_injections_total`` and ``…_errors_total``.

    Args:
        service: the name of the Service of the webhooks.
        secret: the name of the Secret.
        namespace: the namespace of both; default: this pod's.
        inject: the configurations, as pairs of kind and name, or as objects. The kinds are
            MutatingWebhookConfiguration, ValidatingWebhookConfiguration, CustomResourceDefinition
            (its conversion) and APIService.
        names: further DNS names and IP addresses of the server. A ``clientConfig`` whose ``url``
            has such a host also gets the ``caBundle``.
        lifetime: seconds until a serving certificate expires; default 90 days.
        ca_lifetime: seconds until a CA expires; default 365 days.
        rotate_at: the remaining fraction of its lifetime at which a certificate or CA is replaced;
            default 0.2.
        propagation: seconds after which every API server has read a changed configuration; default
            60.
        poll_interval: seconds between two reads of the Secret and the configurations if no watch
            reports a change; default 60.
        key_type: ``"EC-P256"``, the default, ``"EC-P384"``, ``"RSA-2048"`` or ``"RSA-4096"``.
        cert_manager: the ``namespace/name`` of a Certificate of cert-manager that has ``secret`` as
            its Secret. Then cert-manager makes and rotates the certificates and injects the CA.
            This source only reads the Secret, and sets the annotation
            ``cert-manager.io/inject-ca-from`` on the configurations. Default: no cert-manager.
        field_manager: the owner of the injected fields; default
            ``"appsdk-operator-certificates"``.
        client: the client for all requests; default: the manager's. All replicas write, so it must
            not be limited to the leader.
        clock: the clock of lifetimes and waits; default: the environment's.
        metrics: the metrics that it writes to; default: the manager's.

    Raises:
        ValueError, TypeError: an option cannot be used, or the namespace is not known.
        ImportError: the package ``cryptography`` is missing; the text names the extra.
    """

    def __init__(
        self,
        service: str,
        secret: str,
        *,
        namespace: str | None = None,
        inject: Iterable[tuple[Kind, str] | Object | MutableObject] = (),
        names: Iterable[str] = (),
        lifetime: float = 90 * _DAY,
        ca_lifetime: float = 365 * _DAY,
        rotate_at: float = 0.2,
        propagation: float = 60.0,
        poll_interval: float = 60.0,
        key_type: issuing.KeyType = "EC-P256",
        cert_manager: str | None = None,
        field_manager: str = "appsdk-operator-certificates",
        client: ClientLike | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """See the class."""
        for option, text in (("service", service), ("secret", secret), ("name", field_manager)):
            check_text(option, text, empty=False)
        if client is not None:
            check_client(client, "get", "create", "update", "patch")
        check_environment(clock=clock, metrics=metrics)
        _check_lifetimes(lifetime, ca_lifetime, rotate_at, propagation, poll_interval)
        if key_type not in issuing.KEY_TYPES:
            raise ValueError(f"key_type={key_type!r}: use one of {', '.join(issuing.KEY_TYPES)}")
        if cert_manager is not None and len(cert_manager.split("/")) != 2:
            raise ValueError(
                f"cert_manager={cert_manager!r}: give the Certificate as namespace/name"
            )
        issuing.check_cryptography()
        namespace = _own_namespace() if namespace is None else namespace
        self._service = (namespace, service)
        self._secret_name = secret
        self._targets: Final = _targets(inject)
        self._own_names = frozenset(map(_checked_name, checked_texts("names", names)))
        self._annotation = cert_manager or ""
        self._field_manager = field_manager
        self._policy = plan.Policy(
            names=frozenset(map(_checked_name, _names_of(service, namespace))) | self._own_names,
            lifetime=lifetime,
            rotate_at=rotate_at,
            propagation=propagation,
            poll_interval=poll_interval,
            is_read_only=cert_manager is not None,
        )
        self._issuer = issuing.X509Issuer(
            f"{namespace}/{secret}", key_type=key_type, ca_lifetime=ca_lifetime, lifetime=lifetime
        )
        self._client = client
        clock = present_clock(clock)
        self.clock: Clock = clock
        """The clock of lifetimes and waits."""
        self._metrics = entered_metrics(metrics)
        self._waiters = Waiters(self.clock)
        # Guards what follows; held for reads and writes of these fields only.
        self._lock = threading.Lock()
        self._memory = plan.Memory()
        self._missing: tuple[str, ...] = ("it has not started yet",)
        self._failure = ""
        self._is_running = False
        self._is_due = False
        self._wants_rotation = False
        self._seen: dict[tuple[Kind, str], str] = {}
        self._reported: dict[str, str] = {}
        self._refusals: dict[str, int] = {}
        """How often each write was refused in a row."""
        self._watch_errors: dict[tuple[Kind, str], str] = {}
        """The last error of each watch that has not worked since."""
        label = f"{namespace}/{secret}"
        self._label = label
        self._counts: dict[tuple[Family, tuple[str, ...]], int] = {
            **{(_ROTATIONS, (label, each)): 0 for each in ("ca", "serving")},
            **{(_INJECTIONS, (label, t.kind.kind, t.name)): 0 for t in self._targets},
            **{(_ERRORS, (label, each)): 0 for each in _OPERATIONS},
        }
        self._remove_source: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<ManagedCertificates {self._label} for {'/'.join(self._service)}>"

    # -- for servers ---------------------------------------------------------------------------

    def attach(
        self,
        *,
        client: ClientLike,
        metrics: object = None,
        clock: object = None,
        webhooks: object = None,
    ) -> None:
        """For servers: use ``client``, unless the constructor got one.

        Args:
            client: a client that may write on every replica, leader or not.
            metrics: not used.
            clock: not used either.
            webhooks: not used either.
        """
        del metrics, clock, webhooks
        if self._client is None:
            self._client = client

    def pair(self) -> KeyPair:
        """The certificate to serve.

        Raises:
            OSError: there is no certificate yet; the text says what is missing.
        """
        serving = self._memory.serving
        if serving is None:
            raise OSError(self.health().text)
        return serving.pair

    def run(self, stop: StopSignal, /) -> None:
        """Make, inject and rotate certificates until ``stop`` is set.

        Raises:
            RuntimeError: it has no client, or runs already.
        """
        client = self._client
        if client is None:
            raise RuntimeError(
                f"{self!r} has no client: give it to a WebhookServer of a Manager, or client=…"
            )
        with self._lock:
            if self._is_running:
                raise RuntimeError(f"{self!r} runs already: make one for each server")
            self._is_running = True
        self._remove_source = present_metrics(self._metrics).add_source(self._samples)
        own = stop.child()
        threads = ThreadGroup("managed-certificates")
        with contextlib.ExitStack() as exits:
            exits.callback(self._end)
            exits.callback(threads.join)
            exits.callback(own.set)
            for kind, name, namespace in self._objects():
                informer = self._informer(client, kind, name, namespace)
                try:
                    threads.start(f"{kind.kind} {name}", _runner(informer, own))
                except NO_THREAD as error:
                    self._watch_failed(kind, name, error)
            exits.enter_context(requests_end_with(own))
            self._look_again_and_again(client, own)

    def _end(self) -> None:
        with self._lock:
            self._is_running = False

    def close(self) -> None:
        """Remove its gauges from the metrics; its counters stay in the totals. Harmless when called
        twice."""
        self._remove_source()

    def wait_until_ready(self, stop: StopSignal, timeout: float | None = None, /) -> bool:
        """Wait until this replica serves a certificate that all configurations trust.

        Returns:
            False when stopped, or after ``timeout`` seconds; :meth:`health` says what is missing.
        """
        check_wait(stop, timeout)
        return self._waiters.wait(lambda: self.health().is_ready, stop, timeout)

    def health(self) -> Health:
        """Whether the certificates are ready; if not, the text says why.

        Once ready, it stays ready as long as it serves a valid certificate, even if a configuration
        is wrong: otherwise all replicas would become unready at once.
        """
        with self._lock:
            memory, missing, failure = self._memory, self._missing, self._failure
        now = self.clock.time()
        serving = memory.serving
        is_ready = memory.is_ready and serving is not None and serving.is_valid(now)
        reasons: list[str] = [*missing, *([failure] if failure else [])]
        parts = list(dict.fromkeys(reasons))
        if memory.is_ready and serving is not None and not is_ready:
            parts.insert(0, "the certificate has expired")
        if is_ready and serving is not None:
            parts.insert(0, f"valid for {_duration(serving.expires - now)}")
        return Health(is_ready, f"certificates of Secret {self._label}: {'; '.join(parts)}")

    # -- for users -----------------------------------------------------------------------------

    def ca_bundle(self) -> bytes | None:
        """The CAs that clients should trust, in PEM; None: there is none yet."""
        content = self._memory.content
        return None if content is None else _pem(content)

    def rotate(self) -> None:
        """Begin to replace the CA and the certificate now; returns at once.

        It takes at least ``propagation`` seconds. During a rotation this does nothing.

        Raises:
            RuntimeError: cert-manager makes the certificates.
        """
        if self._policy.is_read_only:
            raise RuntimeError("cert-manager makes these certificates: use 'cmctl renew'")
        with self._lock:
            self._wants_rotation = True
        self._wake()

    @property
    def namespace(self) -> str:
        """The namespace of the Service and of the Secret."""
        return self._service[0]

    def role_rules(self) -> list[dict[str, Any]]:
        """The rules that the account needs in the namespace, as in a Role."""
        rules: list[dict[str, Any]] = [
            {
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": [self._secret_name],
                "verbs": ["get", "list", "watch"],
            }
        ]
        if not self._policy.is_read_only:
            rules[0]["verbs"].append("update")
            rules.append({"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]})
        return rules

    def cluster_role_rules(self) -> list[dict[str, Any]]:
        """The rules that the account needs in the whole cluster, as in a ClusterRole."""
        names: dict[Kind, list[str]] = {}
        for target in self._targets:
            names.setdefault(target.kind, []).append(target.name)
        return [
            {
                "apiGroups": [kind.group],
                "resources": [kind.plural],
                "resourceNames": found,
                "verbs": ["get", "list", "watch", "patch"],
            }
            for kind, found in names.items()
        ]

    # -- when to look --------------------------------------------------------------------------

    def _objects(self) -> Iterator[tuple[Kind, str, str]]:
        yield _SECRET, self._secret_name, self._service[0]
        for target in self._targets:
            yield target.kind, target.name, ""

    def _informer(
        self, client: ClientLike, kind: Kind, name: str, namespace: str
    ) -> Informer[Any, Any]:
        informer: Informer[Any, Any] = Informer(
            kind,
            client,
            namespace=namespace,
            # With it, a Role may be limited to this name.
            field_selector={"metadata.name": name},
            metadata_only=True,
            on_error=lambda error: self._watch_failed(kind, name, error),
            clock=self.clock,
            # Those of informers are for the kinds of users.
            metrics=Metrics(),
        )
        informer.add_event_handler(_Bell(lambda obj: self._changed(kind, obj)))
        return informer

    def _changed(self, kind: Kind, obj: Object | None) -> None:
        with self._lock:
            if obj is not None:
                self._watch_errors.pop((kind, obj.name), None)
            if obj is not None and self._seen.get((kind, obj.name)) == obj.resource_version:
                return
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            self._is_due = True
        self._waiters.wake()

    def _look_again_and_again(self, client: ClientLike, stop: StopSignal) -> None:
        limit = TokenBucket(rate=_LOOKS, burst=_BURST, clock=self.clock)
        failures = 0
        while not stop.is_set():
            self._waiters.wait(lambda: False, stop, limit.reserve())
            if stop.is_set():
                return
            with self._lock:
                self._is_due = False
            wait, is_failure = self._look(client)
            if is_failure:
                wait = min(wait, _BACKOFF.delay(failures))
                failures += 1
            else:
                failures = 0
                self._reported.clear()
            self._waiters.wait(lambda: self._is_due, stop, wait)

    # -- one look ------------------------------------------------------------------------------

    def _look(self, client: ClientLike) -> tuple[float, bool]:
        """Read everything, decide, and write; the seconds until the next look, and a failure."""
        try:
            return self._read_and_write(client)
        except RequestStopped:
            return 0.0, False
        except Exception as error:
            self._failed("read", f"cannot read Secret {self._label}", error)
            self._waiters.wake()
            return math.inf, True

    def _read_and_write(self, client: ClientLike) -> tuple[float, bool]:
        # The targets first; see the plan.
        objects: dict[str, Object] = {}
        targets = [self._read_target(client, target, objects) for target in self._targets]
        present, reading = self._read_secret(client)
        observed = plan.Observed(
            content=reading.content,
            problem=reading.problem,
            authority=reading.authority,
            targets=tuple(targets),
        )
        with self._lock:
            memory = attrs.evolve(
                self._memory, rotation=self._memory.rotation or self._wants_rotation
            )
            self._wants_rotation = False
            self._seen = {
                (each.kind, each.name): each.resource_version for each in objects.values()
            }
            if present is not None:
                self._seen[_SECRET, present.name] = present.resource_version
        decision = plan.decide(
            self._policy,
            memory,
            observed,
            now=self.clock.time(),
            tick=self.clock.monotonic(),
            issuer=self._issuer,
        )
        was_ready = memory.is_ready
        with self._lock:
            self._memory, self._missing = decision.memory, decision.missing
            self._failure = ""
        if not was_ready and decision.memory.is_ready:
            _log.info("certificates of Secret %s are ready", self._label)
        self._waiters.wake()
        if decision.store is not None:
            is_stored = self._store(client, present, decision)
            return (0.0, False) if is_stored else (math.inf, True)
        is_failure = any(target.problem and not target.version for target in targets)
        for target in self._targets:
            obj = objects.get(str(target))
            if obj is not None and not self._write_target(client, target, obj, decision):
                is_failure = True
        return decision.wait, is_failure

    def _read_target(
        self, client: ClientLike, target: CertificateTarget, objects: dict[str, Object]
    ) -> plan.Target:
        try:
            obj = client.get(target.kind, target.name)
        except NotFound:
            return plan.Target(name=str(target))
        except RequestStopped:
            raise
        except ClientError as error:
            problem = self._failed("read", f"cannot read {target}", error)
            return plan.Target(name=str(target), problem=problem)
        objects[str(target)] = obj
        return target.read(obj, self._service, self._own_names, self._annotation)

    def _read_secret(self, client: ClientLike) -> tuple[Object | None, secret.Reading]:
        try:
            obj = client.get(_SECRET, self._secret_name, namespace=self._service[0])
        except NotFound:
            problem = f"Secret {self._label} does not exist"
            return None, secret.Reading(problem=problem)
        read = secret.read_foreign if self._policy.is_read_only else secret.read
        reading = read(obj.to_dict().get("data"))
        if reading.problem:
            problem = f"Secret {self._label} cannot be used: {reading.problem}"
            reading = attrs.evolve(reading, problem=problem)
        return obj, reading

    # -- writes --------------------------------------------------------------------------------

    def _store(self, client: ClientLike, present: Object | None, decision: plan.Decision) -> bool:
        """Write the Secret; whether that worked, or somebody else was faster."""
        content = decision.store
        assert content is not None
        data = secret.data_of(content)
        what = f"cannot store certificates in Secret {self._label}"
        try:
            if present is None:
                client.create(
                    MutableObject.new(
                        _SECRET,
                        self._secret_name,
                        namespace=self._service[0],
                        type=secret.SECRET_TYPE,
                        data={key: value for key, value in data.items() if value is not None},
                    ),
                    field_manager=self._field_manager,
                )
            else:
                client.update(_with_data(present, data), field_manager=self._field_manager)
        except RequestStopped:
            raise
        except ClientError as error:
            is_race = isinstance(error, (Conflict, AlreadyExists, NotFound))
            return self._refused("store", what, error, is_race)
        self._refusals.pop(what, None)
        if decision.is_restored:
            _log.info("restored Secret %s: it has its certificates again", self._label)
        for certificate in decision.news:
            self._count(_ROTATIONS, certificate)
            end = (content.next or content.authority).certificate.expires
            if certificate == "serving":
                end = content.pair.expires
            _log.info(
                "stored a new %s in Secret %s: valid for %s",
                "CA" if certificate == "ca" else "serving certificate",
                self._label,
                _duration(end - self.clock.time()),
            )
        return True

    def _write_target(
        self, client: ClientLike, target: CertificateTarget, obj: Object, decision: plan.Decision
    ) -> bool:
        """Inject what is to be injected; whether that worked, or somebody else was faster."""
        bundles = decision.inject.get(str(target))
        if bundles is not None:
            patch = target.patch(obj, bundles, self._service, self._own_names)
        elif str(target) in decision.annotate:
            patch = target.annotation_patch(obj, self._annotation)
        else:
            return True
        what = f"cannot inject the CA into {target}"
        try:
            client.patch(target.kind, target.name, patch, field_manager=self._field_manager)
        except RequestStopped:
            raise
        except ClientError as error:
            is_race = isinstance(error, (Conflict, NotFound)) or (
                isinstance(error, Invalid)  # the patch tests the version
                and not error.causes
                and self._has_changed(client, target, obj)
            )
            return self._refused("inject", what, error, is_race)
        self._refusals.pop(what, None)
        self._count(_INJECTIONS, target.kind.kind, target.name)
        part = "the CA of" if bundles is not None else "the annotation for"
        _log.info("injected %s Secret %s into %s", part, self._label, target)
        return True

    def _has_changed(self, client: ClientLike, target: CertificateTarget, obj: Object) -> bool:
        try:
            return client.get(target.kind, target.name).resource_version != obj.resource_version
        except ClientError:
            return False

    # -- problems and numbers ------------------------------------------------------------------

    def _failed(self, operation: str, what: str, error: Exception) -> str:
        """Count, log and remember a failure; its text."""
        text = f"{what}: {error}"
        if isinstance(error, Forbidden):
            text += (
                "; ManagedCertificates.role_rules() and cluster_role_rules() list the permissions "
                "that it needs"
            )
        self._count(_ERRORS, operation)
        with self._lock:
            is_news = self._reported.get(what) != text
            self._reported[what] = text
            self._failure = text
        if isinstance(error, (ClientError, OSError)):
            (_log.error if is_news else _log.debug)("%s", text)
        else:
            _log.exception("%s", what)
        return text

    def _refused(self, operation: str, what: str, error: ClientError, is_race: bool) -> bool:
        """Note a write that was refused; whether it is only that somebody else was faster."""
        self._refusals[what] = self._refusals.get(what, 0) + 1
        if is_race and self._refusals[what] < _MOST_REFUSALS:
            with self._lock:
                self._is_due = True
            return True
        self._failed(operation, what, error)
        return False

    def _watch_failed(self, kind: Kind, name: str, error: Exception) -> None:
        self._count(_ERRORS, "watch")
        text = str(error)
        with self._lock:
            is_news = self._watch_errors.get((kind, name)) != text
            self._watch_errors[kind, name] = text
        # Nothing is lost but time; what matters is found by the next look.
        is_shown = is_news and isinstance(error, (ApiError, *NO_THREAD))
        level = _log.warning if is_shown else _log.debug
        level(
            "cannot watch %s %s, which is looked at each %g s nevertheless: %s",
            kind.kind,
            name,
            self._policy.poll_interval,
            error,
        )

    def _count(self, family: Family, *labels: str) -> None:
        with self._lock:
            key = family, (self._label, *labels)
            self._counts[key] = self._counts.get(key, 0) + 1

    def _samples(self) -> Iterable[Sample]:
        with self._lock:
            memory, counts = self._memory, dict(self._counts)
        now = self.clock.time()
        for (family, labels), value in counts.items():
            yield Sample(family, labels, value)
        if memory.content is not None:
            end = memory.content.authority.certificate.expires
            yield Sample(_EXPIRY, (self._label, "ca"), end - now)
        if memory.serving is not None:
            yield Sample(_EXPIRY, (self._label, "serving"), memory.serving.expires - now)


@final
class _Bell:
    """Reports each event of an informer."""

    def __init__(self, ring: Callable[[Object | None], None]) -> None:
        self._ring = ring

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            self._ring(None if event.action is ResourceAction.DELETE else event.object)

    def on_initial_list_end(self) -> None:
        pass


def _runner(informer: Informer[Any, Any], stop: StopSignal) -> Callable[[], None]:
    return lambda: informer.run(stop)


def _with_data(present: Object, data: Mapping[str, str | None]) -> MutableObject:
    changed = present.mutable_copy()
    values = dict(changed.get("data") or {})
    values.update({key: value for key, value in data.items() if value is not None})
    for key, value in data.items():
        if value is None:
            values.pop(key, None)
    changed["data"] = values
    return changed


def _pem(content: Content) -> bytes:
    return b"".join(each.pem for each in content.trust)


def _targets(inject: object) -> tuple[CertificateTarget, ...]:
    if isinstance(inject, (str, bytes)) or not isinstance(inject, Iterable):
        raise TypeError(f"inject={inject!r}: give a list of pairs of kind and name")
    if isinstance(inject, (tuple, Object, MutableObject)) and any(
        isinstance(each, (str, Kind)) for each in inject
    ):
        raise TypeError("inject is a single pair or object: give a list, inject=[…]")
    return tuple(dict.fromkeys(as_target(each) for each in inject))


def _names_of(service: str, namespace: str) -> frozenset[str]:
    base = f"{service}.{namespace}"
    return frozenset([service, base, f"{base}.svc", f"{base}.svc.cluster.local"])


def _checked_name(name: str) -> str:
    if not name or len(name) > _LONGEST_NAME or not name.isascii() or not name.isprintable():
        raise ValueError(f"name {name!r}: use a DNS name in ASCII, or an IP address")
    if "%" in name:
        raise ValueError(
            f"name {name!r}: use the address without its zone: certificates have no zones"
        )
    return issuing.certified_name(name)


def _check_lifetimes(
    lifetime: float, ca_lifetime: float, rotate_at: float, propagation: float, poll_interval: float
) -> None:
    for name, seconds in (
        ("lifetime", lifetime),
        ("ca_lifetime", ca_lifetime),
        ("rotate_at", rotate_at),
        ("propagation", propagation),
        ("poll_interval", poll_interval),
    ):
        check_number(name, seconds)
        if not (math.isfinite(seconds) and seconds > 0):
            raise ValueError(f"{name}={seconds}: use more than 0")
    if lifetime < _SHORTEST_LIFETIME:
        raise ValueError(f"lifetime={lifetime}: use {_SHORTEST_LIFETIME:g} seconds or more")
    if ca_lifetime < lifetime:
        raise ValueError(f"ca_lifetime={ca_lifetime}: use lifetime={lifetime} or more")
    if ca_lifetime > _LONGEST_LIFETIME:
        raise ValueError(f"ca_lifetime={ca_lifetime}: use {_LONGEST_LIFETIME:g} seconds or less")
    if rotate_at >= 1:
        raise ValueError(f"rotate_at={rotate_at}: use a fraction of the lifetime, such as 0.2")
    if rotate_at * lifetime <= propagation:
        raise ValueError(
            f"propagation={propagation}: use less than rotate_at * lifetime = "
            f"{rotate_at * lifetime:g} seconds, or a new CA comes too late"
        )


def _own_namespace() -> str:
    try:
        namespace = Path(_NAMESPACE_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        namespace = ""
    if not namespace:
        raise ValueError(
            "this process does not run in a cluster, so the namespace of Service and Secret is not "
            "known: give ManagedCertificates(…, namespace=…); for an App that runs as a program, "
            "set APPSDK_WEBHOOK_SERVICE=NAMESPACE/NAME"
        )
    return namespace


def _duration(seconds: float) -> str:
    for length, unit in ((_DAY, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
