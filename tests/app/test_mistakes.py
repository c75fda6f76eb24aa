"""Declarations and functions that mean something else than they say: the error names what to do."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from appsdk_operator import annotation, kinds, labels
from appsdk_operator.app import App, RunOptions
from appsdk_operator.cache import Cache, CacheOptions, Informer, NamespaceOptions
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.controllers import Result
from appsdk_operator.manager import CacheSetup
from appsdk_operator.resource import Kind, Object, Scope, field
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import APIServer, install_crds
from tests.app.test_app import BUCKET, CONFIG_MAP, nothing
from tests.app.test_managers import Calls, bucket, made, running
from tests.waiting import eventually


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("Team_A", "lower-case letters, digits and '-'"),
        ("a" * 64, "at most 63"),
        ("Team-*", "lower-case letters, digits and '-'|take patterns"),
    ],
)
def test_what_no_namespace_can_be_called_is_refused_wherever_namespaces_are_followed(
    name: str, remedy: str
) -> None:
    client = Client(ClientConfig(server="http://localhost"))
    makers: list[Callable[[], object]] = [
        lambda: App("bucket-operator", namespaces=["default", name]),
        lambda: App("bucket-operator").uses(CONFIG_MAP, namespace=name),
        lambda: RunOptions(namespaces=["default", name]),
        lambda: RunOptions.from_environment({"APPSDK_NAMESPACES": f"default,{name}"}),
        lambda: CacheOptions(namespaces={name: NamespaceOptions()}),
        lambda: Informer(CONFIG_MAP, client, namespace=name),
    ]
    for make in makers:
        with pytest.raises(ValueError, match=remedy):
            make()
    client.close()


@pytest.mark.parametrize("pattern", ["team-*", "team-[ab]", "*"])
def test_where_one_namespace_is_meant_a_pattern_is_refused(pattern: str) -> None:
    client = Client(ClientConfig(server="http://localhost"))
    makers: list[Callable[[], object]] = [
        lambda: App("bucket-operator").uses(CONFIG_MAP, namespace=pattern),
        lambda: CacheOptions(namespaces=[pattern]),
        lambda: Cache(client, namespaces={pattern: NamespaceOptions()}),
        lambda: Informer(CONFIG_MAP, client, namespace=pattern),
    ]
    for make in makers:
        with pytest.raises(ValueError, match=r"takes only names.*App\(namespaces=…\)"):
            make()
    client.close()


@pytest.mark.parametrize(
    ("namespaces", "problem"),
    [
        ([], r"namespaces is empty: name some, or leave it out"),
        ("team-*", "give a list of names"),
        (["team-*", ""], "'', which no name matches"),
        (["team-*", "Team"], "'Team', which is not a valid name"),
        (["team-*", "team-[a"], r"'team-\[a', which no name matches"),
        (["team-*", "!*"], "selects none"),
        (["a", "!a"], "selects none"),
        (["*", "a"], r"'\*' selects all namespaces"),
        (annotation("a"), r"annotation\('a'\).*are labels\(…\)"),
    ],
)
def test_patterns_of_namespaces_are_checked_when_they_are_given(
    namespaces: Any, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        App("bucket-operator", namespaces=namespaces)


@pytest.mark.parametrize("text", [",", " , ", " "])
def test_a_list_of_namespaces_without_a_name_does_not_mean_all(text: str) -> None:
    with pytest.raises(ValueError, match="has no name: give some, or '\\*' for all"):
        RunOptions(namespaces=text)
    with pytest.raises(ValueError, match="APPSDK_NAMESPACES: namespaces="):
        RunOptions.from_environment({"APPSDK_NAMESPACES": text})


def test_a_star_alone_is_all_namespaces() -> None:
    assert RunOptions(namespaces="*").namespaces == RunOptions(namespaces=["*"]).namespaces == ()
    app = App("bucket-operator", namespaces=["*"])
    assert app.namespaces == ()
    assert app.options.cache is not None
    assert app.options.cache.namespace_selector is None


def test_patterns_of_an_app_are_no_names() -> None:
    app = App("bucket-operator", namespaces=["infra", "team-*"])
    assert app.namespaces == ()
    assert app.options.cache is not None
    assert str(app.options.cache.namespace_selector) == "infra, team-*"
    assert RunOptions(namespaces="infra,team-*").namespaces == ("infra", "team-*")
    with pytest.raises(ValueError, match="give only one of them"):
        App("bucket-operator", namespaces=["a"], cache=CacheSetup(namespaces=["team-*"]))


def test_the_namespaces_of_a_manager_are_given_as_those_of_its_app() -> None:
    app = App("bucket-operator", namespaces=["infra"], cache=CacheSetup(lazy=True))
    server = ClientConfig(server="http://localhost")

    def setup(**options: Any) -> CacheSetup:
        manager = app.manager(server, metrics=Metrics(), **options)
        try:
            assert manager.options.cache is not None
            return manager.options.cache
        finally:
            manager.close()

    assert setup().namespace_names == ("infra",)
    other = setup(namespaces=["red", "green"])
    assert (other.namespace_names, other.lazy) == (("red", "green"), True)
    everywhere = setup(namespaces=["*"])
    assert (everywhere.namespace_names, everywhere.namespace_selector) == ((), None)
    assert str(setup(namespaces=["team-*"]).namespace_selector) == "team-*"
    assert not setup(namespaces=["red"], cache=CacheSetup()).lazy
    with pytest.raises(ValueError, match="namespaces is empty"):
        setup(namespaces=[])
    with pytest.raises(ValueError, match="give only one of them"):
        setup(namespaces=["red"], cache=CacheSetup(namespaces=["green"]))
    with pytest.raises(ValueError, match="lower-case letters"):
        setup(namespaces=["Red"])


def test_namespaces_that_a_selector_chooses_are_not_set_by_hand() -> None:
    client = Client(ClientConfig(server="http://localhost"))
    cache = Cache(client, namespaces=["team-*"])
    with pytest.raises(ValueError, match=r"selector team-\* chooses"):
        cache.set_namespaces(["a"])
    client.close()


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ({"workers": 0}, "workers=0: use 1 or more"),
        ({"retry_policy": 5}, "retry_policy=5 is not a function of (error, attempt)"),
        ({"error_handler": lambda: None}, "is not a function of (error, call)"),
        ({"resync": -1}, "resync=-1: use 0 for never, or seconds"),
    ],
)
def test_how_watchers_are_called_is_checked_when_the_app_is_made(
    option: dict[str, Any], problem: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(problem)):
        App("bucket-operator", **option)


@pytest.fixture
def config() -> Iterator[ClientConfig]:
    app = App("owner")
    app.own(BUCKET)
    with APIServer() as server, Client(ClientConfig(server=server.url)) as client:
        install_crds(client, app.crds())
        yield ClientConfig(server=server.url)


@attrs.frozen
class Mount:
    mount_path: str = ""
    read_only: bool = False


@attrs.frozen
class DiskSpec:
    size: int = 1
    mounts: list[Mount] = attrs.field(factory=list)
    labels: dict[str, str] = attrs.field(factory=dict)
    extra: Any = None


DISK = Kind(group="example.com", version="v1", kind="Disk", spec=DiskSpec, rename="camel")
PLAIN = Kind(group="example.com", version="v1", kind="Plain")


def changed(old: Object[Any, Any], new: Object[Any, Any]) -> None: ...


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        (
            "spec.sise",
            "no field 'sise', did you mean 'size'? There are extra, labels, mounts, size",
        ),
        ("spec.mounts[0].mountPaht", "spec.mounts[0] has no field 'mountPaht', did you mean"),
        ("spec.mounts[0].mount_paht", "did you mean 'mountPath'?"),
        ("spec.zzz", "spec of disks.v1.example.com has no field 'zzz'. There are"),
        ("spec.size.unit", "spec.size has no field 'unit'"),
        ("spce.size", "did you mean 'spec'?"),
    ],
)
def test_a_misspelt_field_is_refused_with_the_nearest_name(path: str, problem: str) -> None:
    app = App("bucket-operator")
    with pytest.raises(ValueError, match=re.escape(problem)):
        app.on_update(DISK, when=field(path).changed)(changed)


@pytest.mark.parametrize(
    "path",
    [
        *("spec", "spec.size", "spec.mounts", "spec.mounts[3].mountPath"),
        *("spec.mounts[0].mount_path", "spec.labels['a.b/c']", "spec.extra.any.thing[3]"),
    ],
)
def test_fields_that_the_class_has_or_leaves_open_are_accepted(path: str) -> None:
    App("bucket-operator").on_update(DISK, when=field(path).changed)(changed)


def test_a_field_is_checked_against_a_schema_that_is_declared_before_or_after() -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    }
    app = App("bucket-operator")
    app.own(PLAIN, schema=schema)
    app.on_update(PLAIN, when=field("spec.size").changed)(changed)
    with pytest.raises(ValueError, match="no field 'sise', did you mean 'size'"):
        app.on_update(PLAIN, when=field("spec.sise").changed)(changed)
    later = App("bucket-operator")
    later.on_update(PLAIN, when=field("spec.sise").changed)(changed)
    with pytest.raises(ValueError, match="no field 'sise', did you mean 'size'"):
        later.own(PLAIN, schema=schema)


def test_without_a_class_or_schema_any_field_is_accepted() -> None:
    app = App("bucket-operator")
    app.on_update(PLAIN, when=field("spec.anything").changed)(changed)
    app.on_update(CONFIG_MAP, when=field("data.key").changed)(changed)


def test_a_misspelt_field_of_a_built_in_kind_is_refused() -> None:
    app = App("bucket-operator")
    with pytest.raises(ValueError, match="did you mean 'data'"):
        app.on_update(CONFIG_MAP, when=field("dta.key").changed)(changed)
    deployment = kinds.apps.v1.Deployment
    with pytest.raises(ValueError, match=r"where: .* did you mean 'replicas'"):
        app.on_add(deployment, where=field("spec.replcas") == 1)(nothing)
    with pytest.raises(ValueError, match=r"result: .* status of deployments.v1.apps has no field"):
        app.on_add(deployment, result="status.url")(nothing)
    with pytest.raises(ValueError, match=r"index: .* did you mean 'nodeName'"):
        app.index(kinds.core.v1.Pod, "spec.nodename")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_value_that_a_function_returns_is_an_error_that_names_what_to_return(
    config: ClientConfig, caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    app, calls = App("bucket-operator"), Calls()

    def create(obj: Object[Any, Any]) -> dict[str, str]:
        calls.add("create")
        return {"url": "secret"}

    async def create_async(obj: Object[Any, Any]) -> dict[str, str]:
        calls.add("create")
        return {"url": "secret"}

    app.on_add(BUCKET)(create_async if is_async else create)
    with running(made(app, config)), Client(config) as client:
        client.create(bucket("a"))
        calls.wait_for("create")
        eventually(lambda: "returned dict" in caplog.text)
    (text,) = {record.message for record in caplog.records if "returned dict" in record.message}
    assert "test_a_value_that_a_function_returns" in text
    assert "return None" in text
    assert "result='status." in text
    assert "secret" not in text


def test_what_a_timer_returns_is_an_error_and_the_value_of_an_expression_a_by_product(
    config: ClientConfig, caplog: pytest.LogCaptureFixture
) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.every(3600.0)
    def tick() -> Result:
        return Result(requeue_after=5.0)

    app.every(3600.0, name="by-product")(lambda: calls.add("tick") or 5)
    with running(made(app, config)):
        calls.wait_for("tick")
        eventually(lambda: "returned Result" in caplog.text)
    text = next(each for each in caplog.messages if "returned Result" in each)
    assert ".tick failed for app: " in text
    assert "RetryAfter(seconds)" in text
    assert "<lambda>" not in caplog.text


OTHERS = [
    ("plural", Kind(group="example.com", version="v1", kind="Bucket", plural="bucketses")),
    ("plural", Kind(group="example.com", version="v2", kind="Bucket", plural="bucketses")),
    ("scope", Kind(group="example.com", version="v1", kind="Bucket", scope=Scope.CLUSTER)),
]


@pytest.mark.parametrize(("name", "other"), OTHERS)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_kind_with_two_plurals_or_scopes_is_refused_when_it_is_declared(
    name: str, other: Kind[Any, Any], *, is_first: bool
) -> None:
    one, two = (other, BUCKET) if is_first else (BUCKET, other)
    declarations: list[Callable[[App, Kind[Any, Any]], object]] = [
        lambda app, kind: app.own(kind),
        lambda app, kind: app.on_add(kind)(nothing),
        lambda app, kind: app.object_reconciler(kind)(nothing),
        lambda app, kind: app.object_reconciler(CONFIG_MAP, owns=[kind], name="owner")(nothing),
        lambda app, kind: app.every(60.0, kind)(nothing),
        lambda app, kind: app.uses(kind),
        lambda app, kind: app.validate(kind)(nothing),
    ]
    for first in declarations:
        for second in declarations:
            if first is second:
                continue  # some are refused for another reason, which comes first
            app = App("bucket-operator")
            first(app, one)
            with pytest.raises(ValueError, match=rf"Bucket.example.com is declared with {name}="):
                second(app, two)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("on", r"on.create is app.on_add\(KIND\), on.resume is app.on_sync"),
        ("on_create", r"app.on_add\(KIND\)"),
        ("on_resume", r"app.on_sync\(KIND\)"),
        ("on_field", r"app.on_update\(KIND, when=field"),
        ("on_event", r"app.watch\(KIND, SimpleWatcher"),
        ("on_mutate", "app.default"),
        ("on_startup", "app.lifespan"),
        ("timer", r"app.every\(60, KIND\)"),
        ("daemon", r"app.background\(KIND\)"),
        ("adopt", "set_controller_reference"),
    ],
)
def test_the_decorators_of_kopf_are_missing_with_the_word_for_them(name: str, remedy: str) -> None:
    with pytest.raises(AttributeError, match=f"an App has no '{name}': .*{remedy}"):
        getattr(App("bucket-operator"), name)


def test_any_other_missing_attribute_is_an_error_with_its_name() -> None:
    app = App("bucket-operator")
    assert not hasattr(app, "on_ad")
    with pytest.raises(AttributeError, match=r"^an App has no 'on_ad'$") as raised:
        getattr(app, "on_ad")  # noqa: B009 - not known to type checkers
    assert (raised.value.name, raised.value.obj) == ("on_ad", app)
    with pytest.raises(AttributeError, match="'_name'"):
        str(App.__new__(App).name)


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ({"labels": {"app": "web"}}, 'use where=labels("app=web")'),
        ({"annotations": {"a": "b"}}, "use where=annotation("),
        ({"field": "spec.size"}, 'use when=field("spec.size").changed, of on_update'),
        ({"value": 3}, 'use where=field("spec.size") == 1'),
        ({"retries": 3}, "use retry=ConstantBackoff(60, max_calls=3)"),
        ({"backoff": 10}, "use retry=ConstantBackoff(60)"),
        ({"timeout": 600}, "use time_limit="),
        ({"errors": None}, "use retry="),
        ({"id": "make"}, "use the name of the function"),
        ({"param": 5}, "use functools.partial"),
        ({"interval": 5.0}, "use app.every(60, KIND)"),
        ({"wehre": None}, "has no option wehre=: it has kind, where, retry, result, time_limit"),
    ],
)
def test_the_options_of_kopf_are_refused_with_the_word_for_them(
    option: dict[str, Any], remedy: str
) -> None:
    app = App("bucket-operator")
    with pytest.raises(TypeError, match=f"on_add has no option {re.escape(*option)}=") as raised:
        app.on_add(BUCKET, **option)
    assert remedy in str(raised.value)
    if option.keys() <= {"labels", "annotations", "retries", "backoff", "timeout", "id"}:
        decorators: list[Callable[..., Any]] = [
            app.on_sync,
            app.on_update,
            app.on_delete,
            functools.partial(app.every, 60),
            app.background,
        ]
        for decorator in decorators:
            with pytest.raises(TypeError, match=re.escape(remedy)):
                decorator(BUCKET, **option)


def test_a_background_function_says_why_it_has_no_time_limit() -> None:
    decorator: Any = App("bucket-operator").background
    with pytest.raises(TypeError, match=r"time_limit=: use .* runs as long as its object"):
        decorator(BUCKET, time_limit=5.0)


def test_a_watcher_filters_by_itself() -> None:
    watch: Any = App("bucket-operator").watch
    with pytest.raises(TypeError, match="watch has no option where=: use an if with the filter"):
        watch(BUCKET, nothing, where=labels("app=web"))


def test_an_interval_is_given_before_the_kind() -> None:
    every: Any = App("bucket-operator").every
    with pytest.raises(TypeError, match=r"the interval comes first, as in app.every\(60, KIND"):
        every(BUCKET, 60)
    with pytest.raises(TypeError, match=r"the interval comes first, as in app.every\(60, KIND"):
        every(BUCKET, interval=60)


def kopf_spec(spec: Any, **_: Any) -> None: ...


def kopf_many(body: Any, meta: Any, name: Any, **kwargs: Any) -> None: ...


def kopf_keywords(*, spec: Any, patch: Any, **_: Any) -> None: ...


def kopf_without_rest(body: Any, meta: Any, logger: Any) -> None: ...


def kopf_update(old: Any, new: Any, diff: Any, **_: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (kopf_spec, "spec is its .spec"),
        (kopf_many, "body is the object; meta is its .metadata; name is its .name"),
        (kopf_keywords, "spec is its .spec; patch is app.edit(obj)"),
        (kopf_without_rest, "meta is its .metadata; logger is logging.getLogger(__name__)"),
    ],
)
def test_functions_with_the_arguments_of_kopf_are_told_theirs(
    function: Callable[..., Any], arguments: str
) -> None:
    app = App("bucket-operator")
    decorators: list[tuple[str, Any, str]] = [
        ("on_add", app.on_add(BUCKET), "(obj)"),
        ("on_update", app.on_update(BUCKET), "(old, new)"),
        ("on_delete", app.on_delete(BUCKET), "(obj)"),
        ("every", app.every(60, BUCKET), "(obj)"),
        ("background", app.background(BUCKET), "(live, stop)"),
    ]
    for word, declare, ours in decorators:
        with pytest.raises(TypeError) as raised:
            declare(function)
        assert f"{word} calls {function.__name__} with {ours}: " in str(raised.value)
        assert arguments in str(raised.value)


def test_old_and_new_of_kopf_are_no_objects() -> None:
    declare: Any = App("bucket-operator").on_update(BUCKET)
    with pytest.raises(TypeError, match=r"old is old of on_update, an object; .* diff is old and"):
        declare(kopf_update)


@pytest.mark.parametrize(
    "function",
    [
        lambda spec: None,
        lambda *args, **kwargs: None,
        lambda obj, **_: None,
        lambda name, *rest: None,
        functools.partial(lambda body, name: None, name="a"),
    ],
)
def test_functions_that_can_be_called_with_an_object_are_taken(function: Any) -> None:
    App("bucket-operator").on_add(BUCKET)(function)


@pytest.mark.parametrize("calls", [3, 0])
def test_a_number_is_no_retry_policy(calls: int) -> None:
    number: Any = calls
    text = f"={calls} is not a function.*such as ConstantBackoff.10, max_calls={calls or 1}.$"
    with pytest.raises(TypeError, match=f"^retry{text}"):
        App("bucket-operator").on_add(BUCKET, retry=number)
    with pytest.raises(TypeError, match=f"^retry_policy{text}"):
        App("bucket-operator", retry_policy=number)


def test_a_read_of_a_kind_that_is_not_cached_names_the_client_that_reads_it(
    config: ClientConfig, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("bucket-operator")

    @app.on_add(BUCKET)
    def read(obj: Object[Any, Any]) -> None:
        app.client.get(CONFIG_MAP, "a", namespace="default")

    with running(made(app, config)), Client(config) as client:
        client.create(bucket("a"))
        eventually(lambda: "Or read it from the server: with app.live_client" in caplog.text)
