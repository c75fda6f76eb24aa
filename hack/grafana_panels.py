"""The panels of the Grafana dashboards: what each shows, of which query, in which unit.

In a query ``@`` stands for the selection by the variables of the dashboard, ``@,`` for the same
before further matchers, and ``$rate`` for the range of a rate.
"""

from __future__ import annotations

import attrs

OWN = '{namespace=~"$namespace",job=~"$operator",instance=~"$instance"}'
RATE = "[$__rate_interval]"


@attrs.frozen
class Query:
    expression: str
    legend: str

    def text(self) -> str:
        """The query as Grafana gets it."""
        whole = self.expression.replace("@,", OWN[:-1] + ",").replace("@", OWN)
        return whole.replace("$controllers", 'controller=~"$controller"').replace("$rate", RATE)


@attrs.frozen
class Panel:
    title: str
    description: str
    unit: str
    """The id of a unit of Grafana."""
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    """``timeseries``, ``stat`` or ``table``."""
    bad_from: float | None = None
    """From which value on it is red."""


@attrs.frozen
class Row:
    title: str
    panels: tuple[Panel, ...]


@attrs.frozen
class Board:
    name: str
    title: str
    description: str
    rows: tuple[Row, ...]


def q(expression: str, legend: str = "") -> Query:
    return Query(expression, legend)


def many(title: str, description: str, unit: str, *queries: Query) -> Panel:
    return Panel(title, description, unit, queries)


def one(
    title: str, description: str, unit: str, expression: str, *, bad_from: float | None = None
) -> Panel:
    return Panel(title, description, unit, (q(expression, title),), "stat", bad_from)


def quantiles(metric: str, by: str, legend: str, matchers: str = "@") -> tuple[Query, ...]:
    """The median and the 99th percentile of a histogram."""
    return tuple(
        q(
            f"histogram_quantile({share}, sum by ({by}, le) "
            f"(rate({metric}_bucket{matchers}$rate)))",
            f"{legend} {name}",
        )
        for share, name in ((0.5, "median"), (0.99, "99 %"))
    )


def per_second(metric: str, by: str, legend: str, matchers: str = "@") -> Query:
    return q(f"sum by ({by}) (rate({metric}{matchers}$rate))", legend)


C = "@,$controllers}"
"""The selection of the controllers that are chosen."""

OVERVIEW = Board(
    "overview",
    "Overview",
    "Whether operators are well, and how much they do.",
    (
        Row(
            "Health",
            (
                one(
                    "Alerts that fire",
                    "Alerts of the rule file; docs/runbooks.md says what to do.",
                    "short",
                    'count(ALERTS{alertname=~"Operator.*",alertstate="firing"}) or vector(0)',
                    bad_from=1,
                ),
                one("Pods that answer", "Pods that Prometheus reaches.", "short", "sum(up@)"),
                one(
                    "Informers synced",
                    "Informers that have had a complete local copy, of those that run.",
                    "percentunit",
                    "sum(informer_synced@) / sum(informers@)",
                ),
                one(
                    "Leaders",
                    "Leases that are held: one for each leader election, shard and member.",
                    "short",
                    "sum(leader_election_master_status@) or vector(0)",
                ),
                one(
                    "Oldest work",
                    "How long the key waits that no worker has taken for longest.",
                    "s",
                    "max(workqueue_oldest_item_age_seconds@)",
                    bad_from=300,
                ),
                one(
                    "Given up in an hour",
                    "Failed calls and reconciles that are not retried.",
                    "short",
                    "sum(increase(watcher_given_up_total@[1h])) "
                    "+ (sum(increase(reconciler_given_up_total@[1h])) or vector(0)) "
                    "+ (sum(increase(controller_runtime_terminal_reconcile_errors_total@[1h])) "
                    "or vector(0))",
                    bad_from=1,
                ),
            ),
        ),
        Row(
            "Work",
            (
                many(
                    "Reconciles and calls",
                    "Reconciles of controllers, and calls of watchers and reconcilers beside them.",
                    "ops",
                    per_second("controller_runtime_reconcile_total", "job", "{{job}} reconciles"),
                    per_second("watcher_process_duration_seconds_count", "job", "{{job}} watchers"),
                    per_second(
                        "reconciler_process_duration_seconds_count", "job", "{{job}} reconcilers"
                    ),
                ),
                many(
                    "Failures",
                    "Reconciles and calls that failed.",
                    "ops",
                    per_second(
                        "controller_runtime_reconcile_errors_total", "job", "{{job}} reconciles"
                    ),
                    per_second("watcher_errors_total", "job", "{{job}} watchers"),
                    per_second("reconciler_errors_total", "job", "{{job}} reconcilers"),
                ),
                many(
                    "Waiting",
                    "Keys that are ready and retries that wait for their time.",
                    "short",
                    q("sum by (job) (workqueue_depth@)", "{{job}} ready"),
                    q("sum by (job) (retry_processor_pending_total@)", "{{job}} retries"),
                ),
                many(
                    "Requests to the API server",
                    "Requests, and those that failed with 5xx or had no answer.",
                    "reqps",
                    per_second("rest_client_requests_total", "job", "{{job}}"),
                    q(
                        'sum by (job) (rate(rest_client_requests_total@,code=~"5..|<error>"}$rate))'
                        " or 0 * sum by (job) (rate(rest_client_requests_total@$rate))",
                        "{{job}} failed",
                    ),
                ),
                many(
                    "Objects in local copies",
                    "Objects that informers hold.",
                    "short",
                    q("sum by (job) (informer_objects@)", "{{job}}"),
                ),
                many(
                    "Memory",
                    "Resident memory of each process.",
                    "bytes",
                    q("process_resident_memory_bytes@", "{{job}} {{instance}}"),
                ),
            ),
        ),
        Row(
            "Versions",
            (
                Panel(
                    "Versions",
                    "How many pods run which version of the kit.",
                    "short",
                    (q("count by (namespace, job, version) (appsdk_operator_info@)"),),
                    "table",
                ),
                Panel(
                    "Apps",
                    "How many pods run which App.",
                    "short",
                    (q("count by (namespace, job, app) (app_info@)"),),
                    "table",
                ),
            ),
        ),
    ),
)

CONTROLLERS = Board(
    "controllers",
    "Controllers",
    "Reconciles, their queues, and what feeds them.",
    (
        Row(
            "Reconciles",
            (
                many(
                    "Reconciles by result",
                    "requeue_after: the reconciler asked for another one at a time.",
                    "ops",
                    per_second(
                        "controller_runtime_reconcile_total",
                        "controller, result",
                        "{{controller}} {{result}}",
                        C,
                    ),
                ),
                many(
                    "Duration of reconciles",
                    "From the first line of the reconciler to its end.",
                    "s",
                    *quantiles(
                        "controller_runtime_reconcile_time_seconds",
                        "controller",
                        "{{controller}}",
                        C,
                    ),
                ),
                many(
                    "Failures",
                    "Errors are retried with growing delays; terminal ones are not; panics are "
                    "bugs; timeouts took longer than reconcile_timeout.",
                    "ops",
                    *(
                        per_second(
                            f"controller_runtime_{name}_total",
                            "controller",
                            f"{{{{controller}}}} {legend}",
                            C,
                        )
                        for name, legend in (
                            ("reconcile_errors", "errors"),
                            ("terminal_reconcile_errors", "terminal"),
                            ("reconcile_panics", "panics"),
                            ("reconcile_timeouts", "timeouts"),
                        )
                    ),
                ),
                many(
                    "Workers",
                    "Reconciles that run now, and how many may. At the maximum, work waits.",
                    "short",
                    q(
                        f"sum by (controller) (controller_runtime_active_workers{C})",
                        "{{controller}} active",
                    ),
                    q(
                        f"sum by (controller) (controller_runtime_max_concurrent_reconciles{C})",
                        "{{controller}} maximum",
                    ),
                ),
            ),
        ),
        Row(
            "Work queue",
            (
                many(
                    "Ready keys",
                    "Keys that wait for a worker, by priority.",
                    "short",
                    q(
                        f"sum by (controller, priority) (workqueue_depth{C})",
                        "{{controller}} priority {{priority}}",
                    ),
                ),
                many(
                    "Age of the oldest key",
                    "How long the key waits that has been ready for longest.",
                    "s",
                    q(
                        f"max by (controller) (workqueue_oldest_item_age_seconds{C})",
                        "{{controller}}",
                    ),
                ),
                many(
                    "Keys that became ready, and delays",
                    "Adds count how often a key became ready, delays how often one was queued for "
                    "later: after a failure, or because the reconciler asked.",
                    "ops",
                    per_second("workqueue_adds_total", "controller", "{{controller}} adds", C),
                    per_second("workqueue_retries_total", "controller", "{{controller}} delays", C),
                ),
                many(
                    "Time in the queue",
                    "From ready to handed out to a worker.",
                    "s",
                    *quantiles(
                        "workqueue_queue_duration_seconds", "controller", "{{controller}}", C
                    ),
                ),
                many(
                    "Time of work",
                    "From handed out to done.",
                    "s",
                    *quantiles(
                        "workqueue_work_duration_seconds", "controller", "{{controller}}", C
                    ),
                ),
                many(
                    "Calls beyond their time limit",
                    "Calls that run beyond it now, for each of which a spare worker stands in, and "
                    "how many have come to that within an hour.",
                    "short",
                    q(f"sum by (controller) (calls_over_time_limit{C})", "{{controller}} now"),
                    q(
                        f"sum by (controller) (increase(time_limits_exceeded_total{C}[1h]))",
                        "{{controller}} in an hour",
                    ),
                ),
                many(
                    "Requests given up now",
                    "Requests whose last reconcile failed, and which only an event repeats.",
                    "short",
                    q(
                        f"sum by (controller) (controller_requests_given_up{C})",
                        "{{controller}}",
                    ),
                ),
                many(
                    "Work under way",
                    "The longest call that runs now, and all of them together. A line that rises "
                    "for minutes is a call that hangs.",
                    "s",
                    q(
                        f"max by (controller) (workqueue_longest_running_processor_seconds{C})",
                        "{{controller}} longest",
                    ),
                    q(
                        f"sum by (controller) (workqueue_unfinished_work_seconds{C})",
                        "{{controller}} together",
                    ),
                ),
            ),
        ),
        Row(
            "Sources",
            (
                many(
                    "Events of sources",
                    "Events that came, and those that predicates held back.",
                    "ops",
                    per_second("source_events_total", "source", "{{source}}"),
                    per_second("source_filtered_events_total", "source", "{{source}} filtered"),
                ),
                many(
                    "Failures of sources",
                    "Predicates, handlers, map functions, timers and polls that raised.",
                    "ops",
                    per_second("source_predicate_errors_total", "source", "{{source}} predicates"),
                    per_second("source_handler_errors_total", "source", "{{source}} handlers"),
                    per_second("source_errors_total", "source", "{{source}} functions"),
                ),
                many(
                    "Events that wait",
                    "Events that wait for a handler, and those that are tried again.",
                    "short",
                    q("sum by (source) (source_pending_events@)", "{{source}} waiting"),
                    q("sum by (source) (source_retrying_events@)", "{{source}} again"),
                ),
            ),
        ),
    ),
)


def _of_calls(role: str, name: str) -> Row:
    return Row(
        name,
        (
            many(
                f"Calls of {role}s",
                "Calls by what happened, retries included.",
                "ops",
                per_second(
                    f"{role}_process_duration_seconds_count",
                    "kind, event_type",
                    "{{kind}} {{event_type}}",
                ),
            ),
            many(
                f"Duration of a {role}'s call",
                "From the call to its return.",
                "s",
                *quantiles(f"{role}_process_duration_seconds", "kind", "{{kind}}"),
            ),
            many(
                f"Failed calls of {role}s",
                "Failed calls, and those of them that are not retried.",
                "ops",
                per_second(f"{role}_errors_total", "kind, event_type", "{{kind}} {{event_type}}"),
                per_second(
                    f"{role}_given_up_total", "kind, event_type", "{{kind}} {{event_type}} given up"
                ),
            ),
        ),
    )


WATCHERS = Board(
    "watchers",
    "Watchers and retries",
    "Calls of watchers and of reconcilers beside them, and what becomes of those that fail.",
    (
        _of_calls("watcher", "Watchers"),
        _of_calls("reconciler", "Reconcilers beside watchers"),
        Row(
            "Events",
            (
                many(
                    "Duration of an event",
                    "All watchers and reconcilers of an event together, without retries.",
                    "s",
                    *quantiles("informer_reconcile_duration_seconds", "kind", "{{kind}}"),
                ),
                many(
                    "Under way",
                    "Calls that run now, and the events that they are for.",
                    "short",
                    q("sum by (kind) (ongoing_reconcile_processes@)", "{{kind}} calls"),
                    q("sum by (kind) (ongoing_reconcile_events@)", "{{kind}} events"),
                ),
                many(
                    "Requeues",
                    "Calls that reconcilers asked for with requeue_after.",
                    "ops",
                    per_second("reconciler_requeues_total", "kind", "{{kind}}"),
                ),
            ),
        ),
        Row(
            "Retries",
            (
                many(
                    "Retries that wait",
                    "Failed calls that wait for their time. A line that only rises is a cause that "
                    "lasts.",
                    "short",
                    q("sum by (job, instance) (retry_processor_pending_total@)", "{{job}}"),
                ),
                many(
                    "Retries planned and made",
                    "Each failure plans one; an event of the object may take its place.",
                    "ops",
                    per_second("retry_processor_enqueued_total", "kind", "{{kind}} planned"),
                    per_second("retry_processor_executions_total", "kind", "{{kind}} made"),
                ),
                many(
                    "Delay of retries",
                    "From the moment a retry was due to the moment it was made.",
                    "s",
                    *quantiles("retry_processor_queue_wait_duration_seconds", "kind", "{{kind}}"),
                ),
                many(
                    "Calls given up now",
                    "Failed calls that wait for a change of their object, a resync or a restart.",
                    "short",
                    q("sum by (kind) (calls_given_up@)", "{{kind}}"),
                ),
                many(
                    "Clean-ups given up",
                    "Calls for objects that go, or are gone, that failed and are not retried.",
                    "short",
                    q("sum by (kind) (increase(cleanups_given_up_total@[1h]))", "{{kind}}"),
                ),
            ),
        ),
    ),
)

INFORMERS = Board(
    "informers",
    "Informers and client",
    "Local copies, their watches, and all requests to the API server.",
    (
        Row(
            "Local copies",
            (
                many(
                    "Objects",
                    "Objects in the local copies.",
                    "short",
                    q("sum by (kind) (informer_objects@)", "{{kind}}"),
                ),
                many(
                    "Size of local copies",
                    "Bytes of JSON; the process needs about twice as much.",
                    "bytes",
                    q("sum by (kind) (informer_object_bytes@)", "{{kind}}"),
                ),
                many(
                    "Informers not synced",
                    "Informers that have had no complete local copy yet.",
                    "short",
                    q("sum by (kind) (informers@) - sum by (kind) (informer_synced@)", "{{kind}}"),
                ),
                many(
                    "Unreadable objects",
                    "Objects of the server that cannot be read, and are not reconciled.",
                    "short",
                    q("sum by (kind) (informer_undecodable_objects@)", "{{kind}}"),
                ),
                many(
                    "Own writes that have not come back",
                    "Objects that a CachedClient wrote and shows before the watch does; those that "
                    "it gave up to show because there were too many.",
                    "short",
                    q("sum by (kind) (cache_overlay_objects@)", "{{kind}}"),
                    q("sum(increase(cache_overlay_dropped_total@[1h]))", "dropped in an hour"),
                ),
            ),
        ),
        Row(
            "Watches",
            (
                many(
                    "Events of watches",
                    "As the API server sends them.",
                    "ops",
                    per_second(
                        "kubernetes_client_watch_events_total",
                        "kind, event_type",
                        "{{kind}} {{event_type}}",
                    ),
                ),
                many(
                    "Lists",
                    "Complete lists. More than one for an informer means that a watch could not go "
                    "on where it ended.",
                    "ops",
                    per_second("informer_lists_total", "kind", "{{kind}}"),
                ),
                many(
                    "Problems",
                    "Lists and watches that failed, by cause, and lines that are no events.",
                    "ops",
                    per_second("informer_errors_total", "kind, cause", "{{kind}} {{cause}}"),
                    per_second("kubernetes_client_watch_errors_total", "kind", "{{kind}} garbled"),
                ),
                many(
                    "Events handed over",
                    "Events for watchers and reconcilers, by what happened.",
                    "ops",
                    per_second(
                        "informer_events_total", "kind, event_type", "{{kind}} {{event_type}}"
                    ),
                ),
                many(
                    "Events that wait",
                    "Events that wait for watchers, and for event handlers of informers and "
                    "caches.",
                    "short",
                    q("sum by (controller) (informer_pending_events@)", "{{controller}}"),
                    q("sum by (kind) (informer_handler_pending_events@)", "{{kind}} handlers"),
                    q("sum by (kind) (cache_handler_pending_events@)", "{{kind}} of caches"),
                ),
                many(
                    "Events merged",
                    "Events merged into others of their object, because too many waited.",
                    "ops",
                    per_second("informer_merged_events_total", "controller", "{{controller}}"),
                    per_second("informer_handler_merged_events_total", "kind", "{{kind}} handlers"),
                    per_second("cache_handler_merged_events_total", "kind", "{{kind}} of caches"),
                ),
            ),
        ),
        Row(
            "Requests",
            (
                many(
                    "Requests by code",
                    "<error>: there was no answer.",
                    "reqps",
                    per_second("rest_client_requests_total", "method, code", "{{method}} {{code}}"),
                ),
                many(
                    "API server unreachable",
                    "For how long it has not answered; 0: it answers.",
                    "s",
                    q(
                        "max by (job, server) (api_server_unreachable_seconds@)",
                        "{{job}} {{server}}",
                    ),
                ),
                many(
                    "Outages of the API server",
                    "How often it stopped answering for ten seconds or more, in an hour.",
                    "short",
                    q(
                        "max by (job, server) (increase(api_server_outages_total@[1h]))",
                        "{{job}} {{server}}",
                    ),
                ),
                many(
                    "Requests by kind",
                    "By verb, resource and subresource; spec is the resource itself.",
                    "reqps",
                    per_second(
                        "kubernetes_client_requests_total",
                        "verb, kind, subresource",
                        "{{verb}} {{kind}} {{subresource}}",
                    ),
                ),
                many(
                    "Duration of requests",
                    "From sending to the answer, watches excepted.",
                    "s",
                    *quantiles(
                        "kubernetes_client_request_duration_seconds",
                        "verb, kind",
                        "{{verb}} {{kind}}",
                    ),
                ),
            ),
        ),
        Row(
            "Requests in detail: ClientConfig(detailed_metrics=True)",
            (
                many(
                    "Duration by verb",
                    "From sending to the answer.",
                    "s",
                    *quantiles("rest_client_request_duration_seconds", "verb", "{{verb}}"),
                ),
                many(
                    "Bytes",
                    "Bytes sent and received.",
                    "Bps",
                    per_second("rest_client_request_size_bytes_sum", "verb", "{{verb}} sent"),
                    per_second("rest_client_response_size_bytes_sum", "verb", "{{verb}} received"),
                ),
                many(
                    "Waits for the client's own limit",
                    "How long requests wait because of qps and burst.",
                    "s",
                    *quantiles("rest_client_rate_limiter_duration_seconds", "verb", "{{verb}}"),
                ),
                many(
                    "Requests sent again",
                    "Retries of requests, by the code that caused them.",
                    "reqps",
                    per_second("rest_client_request_retries_total", "code", "{{code}}"),
                ),
            ),
        ),
    ),
)

WEBHOOKS = Board(
    "webhooks",
    "Webhooks and certificates",
    "Admission, conversion and authentication webhooks, and the certificates of servers.",
    (
        Row(
            "Requests",
            (
                many(
                    "Requests by code",
                    "500: the handler failed or was late.",
                    "reqps",
                    per_second(
                        "controller_runtime_webhook_requests_total",
                        "webhook, code",
                        "{{webhook}} {{code}}",
                    ),
                ),
                many(
                    "Latency",
                    "Every write of such an object waits for it.",
                    "s",
                    *quantiles(
                        "controller_runtime_webhook_latency_seconds", "webhook", "{{webhook}}"
                    ),
                ),
                many(
                    "In flight",
                    "Requests that are being answered.",
                    "short",
                    q(
                        "sum by (webhook) (controller_runtime_webhook_requests_in_flight@)",
                        "{{webhook}}",
                    ),
                ),
                many(
                    "Panics",
                    "Handlers that raised something that is no verdict.",
                    "ops",
                    per_second("controller_runtime_webhook_panics_total", "job", "{{job}}"),
                    per_second(
                        "controller_runtime_conversion_webhook_panics_total",
                        "job",
                        "{{job}} conversion",
                    ),
                ),
            ),
        ),
        Row(
            "Certificates",
            (
                many(
                    "Time until certificates expire",
                    "It jumps up at each renewal. A line that only falls is not renewed.",
                    "s",
                    q(
                        "min by (secret, certificate) (managed_certificates_expiry_seconds@)",
                        "{{secret}} {{certificate}}",
                    ),
                    q("min by (file) (certwatcher_certificate_expiry_seconds@)", "{{file}}"),
                ),
                many(
                    "Certificates made and distributed",
                    "Rotations, and configurations that were given the authority, in an hour.",
                    "short",
                    q(
                        "sum by (secret, certificate) "
                        "(increase(managed_certificates_rotations_total@[1h]))",
                        "{{secret}} {{certificate}}",
                    ),
                    q(
                        "sum by (kind, name) "
                        "(increase(managed_certificates_injections_total@[1h]))",
                        "{{kind}} {{name}}",
                    ),
                ),
                many(
                    "Reads of certificate files",
                    "Reads, and those of which nothing came.",
                    "ops",
                    per_second("certwatcher_read_certificate_total", "job", "{{job}}"),
                    per_second(
                        "certwatcher_read_certificate_errors_total", "job", "{{job}} failed"
                    ),
                ),
                many(
                    "Failed requests for certificates",
                    "Requests for the Secret and for webhook configurations that failed.",
                    "ops",
                    per_second(
                        "managed_certificates_errors_total",
                        "secret, operation",
                        "{{secret}} {{operation}}",
                    ),
                ),
            ),
        ),
    ),
)

LEADER = Board(
    "leader",
    "Leader and shards",
    "Who leads, and who holds which share.",
    (
        Row(
            "Leader election",
            (
                many(
                    "Leader",
                    "1 for the replica that holds the Lease.",
                    "short",
                    q("leader_election_master_status@", "{{name}} {{instance}}"),
                ),
                many(
                    "Changes of the leader",
                    "How often the Lease has changed hands. Steps at each release are normal.",
                    "short",
                    q("max by (job, name) (leader_election_lease_transitions@)", "{{name}}"),
                ),
                many(
                    "Renewals that needed a read first",
                    "Somebody else writes to the Lease, or requests are lost.",
                    "ops",
                    per_second("leader_election_slowpath_total", "name", "{{name}}"),
                ),
                many(
                    "Paused",
                    "1 while somebody has paused the operator; its Lease says who, why and until "
                    "when.",
                    "short",
                    q("max by (job, name) (operator_paused@)", "{{name}}"),
                ),
                many(
                    "Paused objects",
                    "By kind: those that somebody has marked, so that an App leaves them alone.",
                    "short",
                    q("max by (job, app, kind) (app_paused_objects@)", "{{app}} {{kind}}"),
                ),
            ),
        ),
        Row(
            "Shards",
            (
                many(
                    "Shards held",
                    "By replica; shares differ by one at most.",
                    "short",
                    q("shards_held@", "{{name}} {{instance}}"),
                ),
                many(
                    "Shards that nobody holds",
                    "More than 0 for longer than a lease means that objects are not reconciled.",
                    "short",
                    q(
                        "max by (job, name) (shards@) - sum by (job, name) (shards_held@)",
                        "{{name}}",
                    ),
                ),
                many(
                    "Replicas",
                    "Live replicas, as each counts them.",
                    "short",
                    q("shards_members@", "{{name}} {{instance}}"),
                ),
            ),
        ),
    ),
)

RUNTIME = Board(
    "runtime",
    "Runtime",
    "The processes: memory, CPU, garbage collection; and the event recorder.",
    (
        Row(
            "Process",
            (
                many(
                    "CPU",
                    "Cores in use.",
                    "short",
                    q("rate(process_cpu_seconds_total@$rate)", "{{job}} {{instance}}"),
                ),
                many(
                    "Memory",
                    "Resident and virtual memory.",
                    "bytes",
                    q("process_resident_memory_bytes@", "{{job}} {{instance}}"),
                    q("process_virtual_memory_bytes@", "{{job}} {{instance}} virtual"),
                ),
                many(
                    "Open files",
                    "Files and sockets, of those that are allowed.",
                    "percentunit",
                    q("process_open_fds@ / process_max_fds@", "{{job}} {{instance}}"),
                ),
                many(
                    "Uptime",
                    "Time since the process started.",
                    "s",
                    q("time() - process_start_time_seconds@", "{{job}} {{instance}}"),
                ),
                Panel(
                    "Python",
                    "How many pods run which Python.",
                    "short",
                    (q("count by (namespace, job, implementation, version) (python_info@)"),),
                    "table",
                ),
            ),
        ),
        Row(
            "Garbage collection",
            (
                many(
                    "Collections",
                    "Runs of the cyclic collector by generation. Many of generation 2 cost time.",
                    "ops",
                    per_second(
                        "python_gc_collections_total", "job, generation", "{{job}} {{generation}}"
                    ),
                ),
                many(
                    "Objects collected",
                    "Objects in cycles; those that cannot be freed are a leak.",
                    "ops",
                    per_second("python_gc_objects_collected_total", "job", "{{job}}"),
                    per_second("python_gc_objects_uncollectable_total", "job", "{{job}} not freed"),
                ),
            ),
        ),
        Row(
            "Kubernetes Events",
            (
                many(
                    "Events recorded",
                    "Taken in, refused because of floods, and given up after failures.",
                    "ops",
                    per_second("event_recorder_recorded_total", "job", "{{job}} recorded"),
                    per_second("event_recorder_dropped_total", "job", "{{job}} dropped"),
                    per_second("event_recorder_failed_total", "job", "{{job}} failed"),
                ),
                many(
                    "Events that wait",
                    "Events that wait to be written.",
                    "short",
                    q("sum by (job) (event_recorder_pending@)", "{{job}}"),
                ),
            ),
        ),
    ),
)

BOARDS = (OVERVIEW, CONTROLLERS, WATCHERS, INFORMERS, WEBHOOKS, LEADER, RUNTIME)
