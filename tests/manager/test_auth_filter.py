"""The filter of the metrics: reviews by an API server, cached for a while, and no token shown."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import attrs
import pytest

from appsdk_operator.client import (
    Client,
    ClientConfig,
    ConnectionLost,
    Forbidden,
    Hooks,
    InterceptedClient,
    ServiceUnavailable,
    TooManyRequests,
)
from appsdk_operator.manager import (
    AuthFilter,
    HTTPRequest,
    HTTPResponse,
    MetricsServer,
    MetricsServerOptions,
    ProfileServer,
    ProfileServerOptions,
)
from appsdk_operator.resource import Kind, MutableObject, Object, kinds
from appsdk_operator.runtime import ManualClock, Metrics, system_clock
from appsdk_operator.testing import APIServer, ControlPlane
from tests.shared_plane import SharedPlane
from tests.waiting import eventually

TOKEN = "a-token-nobody-may-see"
REVIEWS = (kinds.authentication.v1.TokenReview, kinds.authorization.v1.SubjectAccessReview)


@attrs.define(eq=False)
class Reviewer:
    """A client that answers reviews by script, and counts them."""

    users: dict[str, dict[str, Any]] = attrs.field(
        factory=lambda: {TOKEN: {"username": "prometheus", "uid": "7", "groups": ["scrapers"]}}
    )
    allowed: bool = True
    problems: list[Exception] = attrs.field(factory=list)
    specs: list[dict[str, Any]] = attrs.field(factory=list)
    before: Callable[[dict[str, Any]], object] = lambda spec: None
    audiences: list[str] | None = None
    error: str = ""
    reason: str = ""

    def create(self, obj: MutableObject) -> Object:
        spec = obj.data["spec"]
        self.specs.append(spec)
        self.before(spec)
        if self.problems:
            raise self.problems.pop(0)
        status: dict[str, Any] = {"allowed": self.allowed, "reason": self.reason}
        if obj.kind.kind == "TokenReview":
            user = self.users.get(spec["token"])
            status = {"authenticated": user is not None, "user": user or {}, "error": self.error}
            if self.audiences is not None:
                status["audiences"] = self.audiences
        return Object.from_dict(obj.kind, {**obj.data, "status": status})

    def count(self) -> tuple[int, int]:
        """TokenReviews, SubjectAccessReviews."""
        tokens = sum("token" in spec for spec in self.specs)
        return tokens, len(self.specs) - tokens


def make(reviewer: Reviewer, **options: Any) -> AuthFilter:
    options.setdefault("clock", ManualClock())
    return AuthFilter(reviewer, rng=random.Random(1), **options)  # type: ignore[arg-type]


def request(
    token: str | None = TOKEN, path: str = "/metrics", method: str = "GET", peer: str = ""
) -> HTTPRequest:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return HTTPRequest(method=method, path=path, headers=headers, peer=peer)


def status(answer: HTTPResponse | None) -> int:
    return 200 if answer is None else answer.status


@pytest.fixture
def reviewer() -> Reviewer:
    return Reviewer()


# -- decisions -------------------------------------------------------------------------------------


def test_the_user_of_the_token_is_asked_about_with_verb_and_path(reviewer: Reviewer) -> None:
    reviewer.users[TOKEN]["extra"] = {"scope": ["a", "b"]}
    auth = make(reviewer)
    assert auth.check(request(method="POST", path="/extra")) is None
    assert reviewer.specs == [
        {"token": TOKEN},
        {
            "user": "prometheus",
            "uid": "7",
            "groups": ["scrapers"],
            "extra": {"scope": ["a", "b"]},
            "nonResourceAttributes": {"path": "/extra", "verb": "post"},
        },
    ]
    assert auth.close() == []


def test_a_token_that_is_not_known_is_401_and_a_user_without_the_right_403(
    reviewer: Reviewer,
) -> None:
    auth = make(reviewer)
    answer = auth.check(request("other"))
    assert answer is not None
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    reviewer.allowed = False
    assert status(auth.check(request())) == 403
    auth.close()


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic YTpi", "Bearer a b", "Bearer a, Bearer b", "Bearer é",
     "Bearer " + "x" * 70_000],
)  # fmt: skip
def test_without_a_well_formed_token_nobody_is_asked(reviewer: Reviewer, header: str) -> None:
    auth = make(reviewer)
    asked = HTTPRequest(method="GET", path="/metrics", headers={"authorization": header})
    assert status(auth.check(asked)) == 401
    assert status(auth.check(request(None))) == 401
    assert reviewer.specs == []


def test_a_token_has_to_be_meant_for_one_of_the_audiences(reviewer: Reviewer) -> None:
    for given, expected in ((None, 401), (["api"], 401), (["api", "metrics"], 200)):
        reviewer.audiences = given
        auth = make(reviewer, audiences=["metrics"])
        assert status(auth.check(request())) == expected
        auth.close()
    assert reviewer.specs[0] == {"token": TOKEN, "audiences": ["metrics"]}


# -- caches ---------------------------------------------------------------------------------------


def settled(auth: AuthFilter) -> None:
    """Wait for the reviews that nobody waits for."""
    assert auth._reviews._threads.join(10) == []


def test_results_are_cached_for_their_ttl(reviewer: Reviewer) -> None:
    clock = ManualClock()
    auth = make(reviewer, clock=clock, deny_ttl=20)
    assert auth.check(request()) is None
    for seconds, counts in ((44.9, (1, 1)), (15.1, (2, 1)), (100, (3, 1)), (100, (4, 2))):
        clock.advance(seconds)
        assert auth.check(request()) is None
        settled(auth)
        assert reviewer.count() == counts
    clock.advance(300)
    reviewer.allowed = False
    assert status(auth.check(request())) == 403
    assert reviewer.count() == (5, 3)
    clock.advance(19.9)
    assert status(auth.check(request())) == 403
    assert reviewer.count() == (5, 3)
    clock.advance(0.1)
    reviewer.allowed = True
    assert auth.check(request()) is None
    assert reviewer.count() == (5, 4)
    assert auth.check(request(path="/extra")) is None
    assert reviewer.count() == (5, 5)
    auth.close()


def test_a_user_in_use_is_refreshed_before_its_ttl_is_over(reviewer: Reviewer) -> None:
    clock = ManualClock()
    auth = make(reviewer, clock=clock)
    assert auth.check(request()) is None
    # An API server that does not answer: nobody waits for it, and only one asks.
    leave = threading.Event()
    reviewer.before = lambda spec: leave.wait(30)
    clock.advance(45)
    for _ in range(5):
        assert auth.check(request()) is None
    assert len(auth._reviews) == 1
    leave.set()
    settled(auth)
    assert reviewer.count() == (2, 1)
    clock.advance(44.9)
    assert auth.check(request()) is None
    assert reviewer.count() == (2, 1)
    # One that is known no more is out at once.
    clock.advance(0.1)
    reviewer.users.clear()
    assert auth.check(request()) is None
    settled(auth)
    assert status(auth.check(request())) == 401
    auth.close()


def test_a_permission_in_use_is_refreshed_before_its_ttl_is_over(reviewer: Reviewer) -> None:
    clock = ManualClock()
    auth = make(reviewer, clock=clock, token_ttl=10_000)
    assert auth.check(request()) is None
    clock.advance(225)
    reviewer.allowed = False
    assert auth.check(request()) is None
    settled(auth)
    assert status(auth.check(request())) == 403
    assert reviewer.count() == (1, 2)
    auth.close()


def test_cached_results_stay_in_use_where_no_thread_can_be_started(
    reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    clock = ManualClock()
    auth = make(reviewer, clock=clock)
    assert auth.check(request()) is None
    clock.advance(45)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert auth.check(request()) is None
    assert auth.check(request()) is None
    settled(auth)
    assert reviewer.count() == (2, 1)
    auth.close()


def test_cached_results_stay_in_use_while_the_api_server_fails(reviewer: Reviewer) -> None:
    clock = ManualClock()
    auth = make(reviewer, clock=clock)
    assert auth.check(request()) is None
    for seconds in (45, 10):
        clock.advance(seconds)
        reviewer.problems = [Forbidden("not now", status=403, reason="Forbidden")]
        assert auth.check(request()) is None
        settled(auth)
    assert reviewer.count() == (3, 1)
    clock.advance(0.1)
    reviewer.users, reviewer.error = {}, "the verifier is not ready"
    assert auth.check(request()) is None
    settled(auth)
    assert auth.check(request()) is None
    settled(auth)
    auth.close()


# -- many unknown tokens ---------------------------------------------------------------------------


class Hanging:
    """Unknown tokens whose reviews do not end before the test says so."""

    def __init__(self, reviewer: Reviewer, auth: AuthFilter) -> None:
        self.leave = threading.Event()
        self.asked = 0
        self.threads: list[threading.Thread] = []
        self.auth = auth
        reviewer.before = self.wait

    def wait(self, spec: dict[str, Any]) -> None:
        if str(spec.get("token", "")).startswith("guess"):
            self.asked += 1
            self.leave.wait(100)

    def ask(self, peer: str) -> None:
        """Ask with one more unknown token, and return when its review is asked for, or refused."""
        before = self.asked
        asked = request(f"guess-{len(self.threads)}", peer=peer)
        thread = threading.Thread(target=lambda: self.auth.check(asked))
        self.threads.append(thread)
        thread.start()
        eventually(lambda: self.asked > before or not thread.is_alive())

    def end(self) -> None:
        self.leave.set()
        for thread in self.threads:
            thread.join(10)
        self.auth.close()


def test_unknown_tokens_take_no_capacity_from_recently_known_ones(reviewer: Reviewer) -> None:
    clock = ManualClock()
    auth = make(reviewer, clock=clock, max_reviews=3)
    assert auth.check(request(peer="10.0.0.1")) is None
    clock.advance(3600)
    hanging = Hanging(reviewer, auth)
    for number in range(6):
        hanging.ask(f"10.0.1.{number}")
    assert len(auth._reviews) == 3
    # Its time is long over, and so is that of its user's right; from an address that was not seen.
    assert auth.check(request(peer="10.0.0.9")) is None
    assert reviewer.count() == (2 + 3, 2)
    # A renewed one of the same peer, and no other peer's.
    reviewer.users["renewed"] = reviewer.users["stranger"] = reviewer.users[TOKEN]
    assert auth.check(request("renewed", peer="10.0.0.1")) is None
    assert status(auth.check(request("stranger", peer="10.0.0.2"))) == 429
    # Of such a peer no more than one unknown one at once has the room of the known ones.
    hanging.ask("10.0.0.1")
    assert len(auth._reviews) == 4
    assert status(auth.check(request("stranger", peer="10.0.0.1"))) == 429
    assert auth.check(request(path="/extra", peer="10.0.0.1")) is None
    hanging.end()


def test_one_peer_has_a_small_quota_for_unknown_tokens(reviewer: Reviewer) -> None:
    auth = make(reviewer, max_reviews=4, max_reviews_by_peer=2)
    hanging = Hanging(reviewer, auth)
    for _ in range(4):
        hanging.ask("10.0.1.1")
    assert len(auth._reviews) == 2
    assert auth.check(request(peer="10.0.0.1")) is None
    answer = auth.check(request("guess", peer="10.0.1.1"))
    assert answer is not None
    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    assert b"too many reviews are under way" in answer.body
    hanging.end()


def test_a_token_known_more_than_an_hour_ago_counts_as_unknown(reviewer: Reviewer) -> None:
    clock = ManualClock()
    auth = make(reviewer, clock=clock, max_reviews=1)
    assert auth.check(request(peer="10.0.0.1")) is None
    clock.advance(3600 + 60)
    hanging = Hanging(reviewer, auth)
    hanging.ask("10.0.1.1")
    assert status(auth.check(request(peer="10.0.0.1"))) == 429
    hanging.end()


# -- what is said ----------------------------------------------------------------------------------


def test_a_refusal_is_logged_once_for_each_review(
    reviewer: Reviewer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    clock = ManualClock()
    auth = make(reviewer, clock=clock)
    reviewer.allowed, reviewer.reason = False, "no RBAC policy matched\nroot may everything"
    for _ in range(3):
        answer = auth.check(request(peer="10.0.0.1"))
        assert answer is not None
        assert answer.body == b"Authorization denied for user prometheus\n"
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.INFO] == [
        "user prometheus may not get '/metrics': 'no RBAC policy matched\\nroot may everything'"
    ]
    assert auth.check(request("other", peer="10.0.0.2")) is not None
    assert auth.check(request(None, peer="10.0.0.3")) is not None
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.DEBUG]
    assert "peer 10.0.0.2 may not get '/metrics': its token is not known" in said
    assert "peer 10.0.0.3 may not get '/metrics': no bearer token" in said
    auth.close()


def test_a_users_name_is_shown_on_one_line_and_not_too_long(reviewer: Reviewer) -> None:
    auth = make(reviewer)
    reviewer.allowed = False
    for name, shown in (("a\nb", "'a\\nb'"), ("x" * 300, "x" * 256 + "…")):
        reviewer.users[name[:1]] = {"username": name}
        answer = auth.check(request(name[:1]))
        assert answer is not None
        assert answer.body.decode() == f"Authorization denied for user {shown}\n"
    auth.close()


def test_the_user_whose_right_cannot_be_looked_at_is_named(
    reviewer: Reviewer, caplog: pytest.LogCaptureFixture
) -> None:
    auth = make(reviewer)
    assert auth.check(request()) is None
    reviewer.problems = [Forbidden("no", status=403, reason="Forbidden")]
    answer = auth.check(request(path="/extra"))
    assert answer is not None
    assert (answer.status, answer.body) == (500, b"Authorization for user prometheus failed\n")
    assert "Authorization for user prometheus failed: cannot decide whether it" in caplog.text
    auth.close()


def test_unknown_tokens_have_a_bounded_cache_of_their_own(reviewer: Reviewer) -> None:
    auth = make(reviewer, cache_size=3)
    assert auth.check(request()) is None
    for number in range(20):
        assert status(auth.check(request(f"guess-{number}"))) == 401
    assert len(auth._unknown_tokens) == 3
    assert reviewer.count() == (21, 1)
    assert status(auth.check(request("guess-19"))) == 401
    assert auth.check(request()) is None
    assert reviewer.count() == (21, 1)
    for number in range(20):
        auth.check(request(path=f"/{number}"))
    assert len(auth._permissions) == 3
    auth.close()


def test_a_token_whose_review_failed_is_reviewed_again(reviewer: Reviewer) -> None:
    auth = make(reviewer)
    users, reviewer.users, reviewer.error = reviewer.users, {}, "oidc: the verifier is not ready"
    assert status(auth.check(request())) == 401
    reviewer.users, reviewer.error = users, ""
    assert auth.check(request()) is None
    auth.close()


def test_tokens_are_in_no_cache(reviewer: Reviewer) -> None:
    auth = make(reviewer)
    auth.check(request())
    auth.check(request("guess"))
    kept = repr(
        [
            auth._users_by_token._entries,
            auth._unknown_tokens._entries,
            auth._permissions._entries,
            auth._trusted_peers._entries,
        ]
    )
    assert TOKEN not in kept
    assert "guess" not in kept
    assert len(auth._reviews) == 0
    auth.close()


def test_equal_reviews_at_the_same_time_share_one_request(reviewer: Reviewer) -> None:
    entered, leave = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        entered.set()
        leave.wait(10)

    reviewer.before = wait
    auth = make(reviewer)
    answers: list[int] = []
    askers = [
        threading.Thread(target=lambda: answers.append(status(auth.check(request()))))
        for _ in range(5)
    ]
    for asker in askers:
        asker.start()
    assert entered.wait(10)
    eventually(lambda: len(auth._reviews.stop._callbacks) == 5)
    leave.set()
    for asker in askers:
        asker.join()
    assert answers == [200] * 5
    assert reviewer.count()[0] == 1
    auth.close()


# -- what goes wrong -------------------------------------------------------------------------------


def unavailable(text: str = "away") -> ServiceUnavailable:
    return ServiceUnavailable(text, status=503, reason="ServiceUnavailable")


def checked_in_thread(auth: AuthFilter) -> tuple[threading.Thread, list[int]]:
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(status(auth.check(request()))))
    thread.start()
    return thread, answers


def test_transient_errors_are_retried_with_growing_waits(reviewer: Reviewer) -> None:
    reviewer.problems = [
        unavailable(),
        TooManyRequests("slow down", status=429, reason="TooManyRequests"),
        ConnectionLost("the connection broke"),
        unavailable(),
    ]
    clock = ManualClock()
    auth = make(reviewer, clock=clock)
    thread, answers = checked_in_thread(auth)
    rng, expected = random.Random(1), 0.5
    for number in range(1, 5):
        clock.block_until_waiting(2)  # the retry's wait, and the request's
        assert len(reviewer.specs) == number
        due = clock.next_deadline()
        assert due is not None
        wait = expected * (1 + 0.2 * rng.random())
        assert due - clock.monotonic() == pytest.approx(wait)
        clock.advance(wait + 1e-9)
        eventually(lambda number=number: len(reviewer.specs) > number)
        expected *= 1.5
    thread.join(10)
    assert answers == [200]
    auth.close()


def test_after_five_tries_and_for_lasting_errors_it_is_500(
    reviewer: Reviewer, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = Forbidden(f"cannot create tokenreviews with {TOKEN}", status=403, reason="Forbidden")
    reviewer.problems = [refusal]
    auth = make(reviewer)
    answer = auth.check(request())
    assert answer is not None
    assert (answer.status, answer.body) == (500, b"Authentication failed\n")
    assert len(reviewer.specs) == 1
    assert "TokenReview: 403 Forbidden: cannot create tokenreviews" in caplog.text
    assert TOKEN not in caplog.text
    reviewer.problems = [unavailable() for _ in range(9)]
    clock = ManualClock()
    auth = make(reviewer, clock=clock)
    thread, answers = checked_in_thread(auth)
    for number in range(1, 5):
        eventually(lambda number=number: len(reviewer.problems) == 9 - number)
        clock.block_until_waiting(2)  # the retry's wait, and the request's
        due = clock.next_deadline()
        assert due is not None
        clock.advance(due - clock.monotonic() + 1e-9)
    thread.join(10)
    assert answers == [500]
    assert len(reviewer.problems) == 4
    # An error is not kept: the next request asks again.
    reviewer.problems.clear()
    assert auth.check(request()) is None


def test_an_api_server_that_does_not_answer_costs_ten_seconds_and_few_threads(
    reviewer: Reviewer, caplog: pytest.LogCaptureFixture
) -> None:
    leave = threading.Event()
    caplog.set_level(logging.DEBUG)
    reviewer.before = lambda spec: leave.wait(30)
    clock = ManualClock()
    auth = make(reviewer, clock=clock, max_reviews=2)
    thread, answers = checked_in_thread(auth)
    clock.block_until_waiting(1)
    clock.advance(9.9)
    assert thread.is_alive()
    clock.advance(0.1)
    thread.join(10)
    assert answers == [500]
    assert "TokenReview: no answer from the API server within 10 s" in caplog.text
    other = threading.Thread(target=lambda: auth.check(request("b")))
    other.start()
    eventually(lambda: len(auth._reviews) == 2)
    answer = auth.check(request("c"))
    assert answer is not None
    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    assert "2 reviews of unknown tokens are under way (max_reviews)" in caplog.text
    assert len(auth.close(timeout=0.01)) == 2
    other.join(10)
    assert status(auth.check(request())) == 500
    leave.set()
    assert auth.close() == []


def test_options_out_of_range_are_refused(reviewer: Reviewer) -> None:
    for options in ({"token_ttl": -1}, {"timeout": 0}, {"cache_size": 0}, {"max_reviews": 0},
                    {"max_reviews_by_peer": 0}):  # fmt: skip
        with pytest.raises(ValueError, match=r"at least 0 seconds|more than 0"):
            make(reviewer, **options)
    with pytest.raises(TypeError, match="give a list"):
        make(reviewer, audiences="metrics")


# -- with API servers ------------------------------------------------------------------------------


def metrics_server(client: Any, **options: Any) -> MetricsServer:
    return MetricsServer(
        MetricsServerOptions(
            address="127.0.0.1:0",
            filter_provider=partial(AuthFilter, **options),
            extra_handlers={"/extra": lambda request: HTTPResponse(body=b"extra")},
        ),
        metrics=Metrics(),
        client=client,
    )


def profile_server(client: Any) -> ProfileServer:
    options = ProfileServerOptions(address="127.0.0.1:0", filter_provider=AuthFilter)
    return ProfileServer(options, client=client)


@pytest.mark.parametrize("hanging", REVIEWS, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("make_server", [metrics_server, profile_server])
def test_a_request_that_waits_for_a_review_is_answered_at_the_stop(
    make_server: Any, hanging: Kind, serve: Any
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hang(spec: dict[str, Any]) -> None:
        is_token = hanging is kinds.authentication.v1.TokenReview
        if ("token" in spec) is is_token:
            entered.set()
            leave.wait(30)

    served, answers = serve(make_server(Reviewer(before=hang))), []
    path = "/metrics" if make_server is metrics_server else "/debug"

    def ask() -> None:
        answers.append(served.get(path, Authorization=f"Bearer {TOKEN}").status)

    asker = threading.Thread(target=ask)
    asker.start()
    assert entered.wait(10)
    began = system_clock.monotonic()
    served.end()
    took = system_clock.monotonic() - began
    leave.set()
    asker.join(10)
    assert answers == [500]
    assert took < 4.0, "the time-out of a stop is 5 s"
    eventually(lambda: not any(t.name.startswith("auth") for t in threading.enumerate()))


def test_the_embedded_server_reviews_the_tokens_it_was_given(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    users = {
        "good": {"username": "prometheus", "groups": ["scrapers"]},
        "poor": {"username": "eve", "groups": []},
    }

    def may(spec: Any) -> bool:
        return "scrapers" in spec.get("groups", ()) and spec["nonResourceAttributes"] == {
            "path": "/metrics",
            "verb": "get",
        }

    with (
        caplog.at_level(logging.DEBUG),
        APIServer(users=users, authorizer=may, token="own") as api,
        Client(ClientConfig(server=api.url, token="own"), metrics=Metrics()) as client,
    ):
        served = serve(metrics_server(client))
        assert served.get("/metrics").status == 401
        assert served.get("/metrics", Authorization="Bearer wrong-token").status == 401
        assert served.get("/metrics", Authorization="Bearer poor").status == 403
        answer = served.get("/metrics", Authorization="bearer good")
        assert (answer.status, "process_open_fds" in answer.text) == (200, True)
        assert served.get("/extra", Authorization="Bearer good").status == 403
        assert served.get("/metrics", "HEAD", Authorization="Bearer good").status == 403
        api.stop()
        api.start()
        client_errors = served.get("/metrics", Authorization="Bearer good").status
        assert client_errors == 200  # it was kept
        served.end()
    assert "wrong-token" not in caplog.text


def test_reviews_of_the_embedded_server_know_only_tokens_of_users() -> None:
    with APIServer() as api, Client(ClientConfig(server=api.url), metrics=Metrics()) as client:
        auth = AuthFilter(client, audiences=())
        assert status(auth.check(request("whatever"))) == 401
        auth.close()
    with (
        APIServer(users={"t": {"username": "u"}}) as api,
        Client(api.client_config(), metrics=Metrics()) as client,
    ):
        auth = AuthFilter(client, audiences=["api"])
        assert auth.check(request("t")) is None
        assert status(auth.check(request("u"))) == 401
        auth.close()


def test_the_operators_own_missing_right_is_500_and_logged_with_the_remedy(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(client: Any, obj: Any, **options: Any) -> Any:
        raise Forbidden("no", status=403, reason="Forbidden")

    with APIServer() as api, Client(ClientConfig(server=api.url), metrics=Metrics()) as client:
        refusing = InterceptedClient(client, Hooks(create=refuse))
        served = serve(metrics_server(refusing))
        answer = served.get("/metrics", Authorization=f"Bearer {TOKEN}")
        served.end()
    assert answer.status == 500
    assert "TokenReview: 403 Forbidden: no" in caplog.text
    assert TOKEN not in caplog.text + answer.text


def test_reviews_of_oneself_are_answered_whatever_the_options() -> None:
    with (
        APIServer(authorizer=lambda spec: False) as api,
        Client(api.client_config(), metrics=Metrics()) as client,
    ):

        def review(kind: Kind, **spec: Any) -> Any:
            return client.create(MutableObject.new(kind, spec=spec)).to_dict()["status"]

        groups = kinds.authentication.v1, kinds.authorization.v1
        pods = {"verb": "get", "resource": "pods"}
        assert review(groups[0].SelfSubjectReview)["userInfo"]["username"] == "admin"
        rules = review(groups[1].SelfSubjectRulesReview, namespace="default")
        assert rules["incomplete"] is False
        assert review(groups[1].SelfSubjectAccessReview, resourceAttributes=pods) == {
            "allowed": True
        }
        assert review(groups[1].SubjectAccessReview, user="eve", resourceAttributes=pods) == {
            "allowed": False
        }


@pytest.fixture(scope="module")
def plane(shared_plane: SharedPlane) -> Iterator[ControlPlane]:
    with shared_plane.lent() as plane:
        yield plane


def account_token(client: Client, name: str) -> str:
    """A token of a new service account."""
    account = kinds.core.v1.ServiceAccount
    client.create(MutableObject.new(account, name, namespace="default"))
    kind = Kind(group="authentication.k8s.io", version="v1", kind="TokenRequest")
    answer = client.subresource("token").create(
        MutableObject.new(kind, spec={}), parent=account, name=name, namespace="default"
    )
    return str(answer.to_dict()["status"]["token"])


def grant(client: Client, account: str, name: str, rules: list[dict[str, Any]]) -> None:
    role, binding = kinds.rbac.v1.ClusterRole, kinds.rbac.v1.ClusterRoleBinding
    client.create(MutableObject.new(role, name, rules=rules))
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "default"}
    client.create(MutableObject.new(binding, name, roleRef=reference, subjects=[subject]))
    # The server's own cache of roles is behind the writes.
    [rule] = rules[:1]
    if "nonResourceURLs" in rule:
        attributes = {"path": rule["nonResourceURLs"][0], "verb": rule["verbs"][0]}
        spec: dict[str, Any] = {"nonResourceAttributes": attributes}
    else:
        names = {"group": "apiGroups", "resource": "resources", "verb": "verbs"}
        spec = {"resourceAttributes": {name: rule[field][0] for name, field in names.items()}}
    spec["user"] = f"system:serviceaccount:default:{account}"
    review = MutableObject.new(kinds.authorization.v1.SubjectAccessReview, spec=spec)
    eventually(lambda: client.create(review).to_dict()["status"]["allowed"])


@pytest.mark.real
def test_the_real_server_knows_accounts_and_their_roles(serve: Any, plane: ControlPlane) -> None:
    reviews = [
        {
            "apiGroups": [kind.group],
            "resources": [kind.plural],
            "verbs": ["create"],
        }
        for kind in REVIEWS
    ]
    with Client(plane.client_config(), metrics=Metrics()) as admin:
        tokens = {name: account_token(admin, name) for name in ("operator", "scraper", "other")}
        grant(admin, "operator", "reviews", reviews)
        urls = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
        grant(admin, "scraper", "metrics-reader", [urls])
        config = plane.client_config(token=tokens["operator"])
        with Client(config, metrics=Metrics()) as client:
            served = serve(metrics_server(client))
            assert served.get("/metrics").status == 401
            assert served.get("/metrics", Authorization="Bearer nonsense").status == 401
            other = f"Bearer {tokens['other']}"
            assert served.get("/metrics", Authorization=other).status == 403
            scraper = f"Bearer {tokens['scraper']}"
            assert served.get("/metrics", Authorization=scraper).status == 200
            assert served.get("/extra", Authorization=scraper).status == 403
            served.end()
        # Without the right to ask, nobody is let in.
        poor = plane.client_config(token=tokens["other"], max_retries=0)
        with Client(poor, metrics=Metrics()) as client:
            served = serve(metrics_server(client))
            assert served.get("/metrics", Authorization=scraper).status == 500
            served.end()
