"""Single decisions about managed certificates, and the format of the Secret."""

from __future__ import annotations

import base64
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.resource import Object, kinds
from appsdk_operator.webhooks import ManagedCertificates
from appsdk_operator.webhooks._certificates import plan, secret
from appsdk_operator.webhooks._certificates.content import Content
from appsdk_operator.webhooks._certificates.issuing import X509Issuer, certified_name
from appsdk_operator.webhooks._certificates.targets import as_target
from tests.hypothesis_profiles import scaled
from tests.webhooks.certificate_model import LAG, POLICY, FakeIssuer

Mutating = kinds.admissionregistration.v1.MutatingWebhookConfiguration
NOW = 1_000_000.0


def first(issuer: FakeIssuer, **fields: Any) -> Content:
    authority = issuer.authority(NOW)
    pair = issuer.pair(authority, POLICY.names, NOW)
    return Content(authority=authority, pair=pair, trust=(authority.certificate,), **fields)


def target(content: Content, version: str = "1", **fields: Any) -> plan.Target:
    return plan.Target(name="t", version=version, bundles=(content.trust,), **fields)


def decide(memory: plan.Memory, tick: float, content: Content | None, *targets: plan.Target) -> Any:
    observed = plan.Observed(content=content, targets=targets)
    now = NOW + tick
    return plan.decide(POLICY, memory, observed, now=now, tick=tick, issuer=FakeIssuer())


def test_a_changed_target_is_watched_for_the_whole_time_again() -> None:
    content = first(FakeIssuer())
    name = content.authority.fingerprint
    memory = decide(plan.Memory(), 0.0, content, target(content)).memory
    assert memory.held == {name: 0.0}
    memory = decide(memory, 20.0, content, target(content)).memory
    assert memory.held == {name: 0.0}
    decision = decide(memory, 25.0, content, target(content, version="2"))
    assert decision.memory.held == {name: 25.0}
    assert decision.store is None
    assert decision.wait == LAG
    decision = decide(decision.memory, 25.0 + LAG, content, target(content, version="2"))
    assert decision.store.trusted == name


def test_a_record_of_trust_is_believed_only_while_the_targets_show_it() -> None:
    issuer = FakeIssuer()
    old, new = first(issuer), first(issuer)
    memory = decide(plan.Memory(), 0.0, old, target(old)).memory
    recorded = attrs.evolve(new, trusted=new.authority.fingerprint)
    memory = decide(memory, 1.0, recorded, target(old, version="2")).memory
    assert memory.serving == old.pair
    both = attrs.evolve(recorded, trust=(*new.trust, *old.trust))
    memory = decide(memory, 2.0, recorded, target(both, version="3")).memory
    assert memory.serving == new.pair


def test_a_restored_secret_gets_back_what_replicas_have_seen_in_it() -> None:
    issuer = FakeIssuer()
    old, new = first(issuer), first(issuer)
    memory = decide(plan.Memory(), 0.0, new, target(new)).memory
    decision = decide(memory, 1.0, old, target(new))
    assert set(decision.store.trust) == {*old.trust, *new.trust}
    assert decision.store.pair == old.pair
    # Expired ones are not.
    decision = decide(
        memory,
        49_999.0,
        attrs.evolve(old, pair=issuer.pair(old.authority, POLICY.names, NOW + 40_000)),
        target(new),
    )
    assert new.authority.certificate in decision.store.trust
    decision = decide(memory, 50_001.0, None, target(new))
    assert decision.store.authority.certificate.issued == NOW + 50_001.0


def test_a_target_that_cannot_be_read_stops_a_rotation_and_one_that_is_gone_does_not() -> None:
    issuer = FakeIssuer()
    content = attrs.evolve(first(issuer), next=issuer.authority(NOW))
    assert content.next is not None
    content = attrs.evolve(content, trust=(*content.trust, content.next.certificate))
    unreadable = plan.Target(name="u", problem="Forbidden")
    for other, is_stopped in ((unreadable, True), (plan.Target(name="u"), False)):
        memory = plan.Memory()
        for tick in (0.0, LAG):
            decision = decide(memory, tick, content, target(content), other)
            memory = decision.memory
        assert (decision.store is None) is is_stopped


def test_a_staged_authority_that_no_target_trusts_signs_only_when_all_else_has_expired() -> None:
    issuer = FakeIssuer()
    content = attrs.evolve(first(issuer), next=issuer.authority(NOW + 40_000.0))
    unreadable = plan.Target(name="u", problem="Forbidden")
    pair = content.pair
    while True:
        decision = decide(plan.Memory(), pair.expires - NOW - 1.0, content, unreadable)
        content = decision.store or content
        if content.pair == pair:
            break
        assert content.pair.authority == content.authority.fingerprint == "ca-1"
        pair = content.pair
    assert pair.expires == content.authority.certificate.expires
    decision = decide(plan.Memory(), pair.expires - NOW, content, unreadable)
    assert decision.store.pair.authority == content.next.fingerprint  # type: ignore[union-attr]
    assert decision.store.trusted == ""


@pytest.fixture(scope="module")
def stored() -> tuple[Content, dict[str, str | None]]:
    issuer = X509Issuer("a/b", key_type="EC-P256", ca_lifetime=1000.0, lifetime=100.0)
    authority, following = issuer.authority(NOW), issuer.authority(NOW + 5.5)
    content = Content(
        authority=authority,
        pair=issuer.pair(authority, frozenset({"a.test", "10.0.0.1", "::1"}), NOW),
        trust=(following.certificate, authority.certificate),
        next=following,
        trusted=authority.fingerprint,
    )
    return content, secret.data_of(content)


def test_what_is_written_into_the_secret_is_read_from_it(stored: Any) -> None:
    content, data = stored
    assert secret.read(data).content == content
    assert (content.pair.issued, content.pair.expires) == (NOW, NOW + 100.0)
    without = attrs.evolve(content, next=None)
    assert secret.data_of(without)["next-ca.key"] is None
    assert "next" in repr(content)
    assert b"PRIVATE".decode() not in repr(content)


@pytest.mark.parametrize(
    ("key", "value", "problem", "is_authority_usable"),
    [
        ("tls.crt", b"", "tls.crt was not signed with ca.key", True),
        (
            "tls.crt",
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
            "signed",
            True,
        ),
        ("tls.key", b"", "tls.key is not the key of tls.crt", True),
        ("tls.key", b"garbage", "tls.key is not the key of tls.crt", True),
        ("ca.key", b"garbage", "ca.key is not the key of a certificate in ca.crt", False),
        ("ca.crt", b"", "ca.key is not the key of a certificate in ca.crt", False),
    ],
)
def test_a_secret_that_cannot_be_used_says_why(
    stored: Any, key: str, value: bytes, problem: str, is_authority_usable: bool
) -> None:
    content, data = stored
    reading = secret.read({**data, key: base64.b64encode(value).decode()})
    assert reading.content is None
    assert problem in reading.problem
    assert (reading.authority == content.authority) is is_authority_usable


def test_other_wrong_secrets_are_problems_and_no_errors(stored: Any) -> None:
    content, data = stored
    assert secret.read(None).problem == "it is empty"
    assert secret.read({"tls.crt": "", "tls.key": ""}).problem == "it is empty"
    assert secret.read({"tls.crt": "%%%"}).problem == "tls.crt is not in base64"
    assert secret.read({"tls.crt": 7}).problem == "tls.crt is not in base64"
    # The key of the next authority only matters if there is one.
    for value in (data["ca.key"], base64.b64encode(b"garbage").decode()):
        found = secret.read({**data, "next-ca.key": value}).content
        assert found == attrs.evolve(content, next=None)
    assert "use an issuer that has a CA" in secret.read_foreign({**data, "ca.crt": ""}).problem


def test_an_authority_in_a_spoiled_secret_signs_again(stored: Any) -> None:
    content, _ = stored
    observed = plan.Observed(content=None, problem="spoiled", authority=content.authority)
    issuer = X509Issuer("a/b", key_type="EC-P256", ca_lifetime=1000.0, lifetime=100.0)
    decision = plan.decide(POLICY, plan.Memory(), observed, now=NOW + 1.0, tick=0.0, issuer=issuer)
    assert decision.store is not None
    assert decision.store.authority == content.authority


def test_only_what_matters_of_an_api_service_is_a_change_of_it() -> None:
    kind = kinds.apiregistration.v1.APIService
    read = as_target((kind, "v1.a.test")).read

    def version(**fields: Any) -> str:
        service = {"service": {"namespace": "a", "name": "b"}, **fields.pop("spec", {})}
        metadata = {"name": "v1.a.test", "uid": "u", **fields}
        obj = Object.from_dict(kind, {"metadata": metadata, "spec": service})
        return read(obj, ("a", "b"), frozenset(), "").version

    assert version(resourceVersion="1") == version(resourceVersion="2")
    assert version(spec={"caBundle": "AAAA"}) != version(spec={"caBundle": "AAAB"}) != version()
    assert version(uid="v") != version()


# Letter cases, zeros and forms of one address: what a certificate shows is one of them.
written_names = (
    st.ip_addresses(v=4).map(str)
    | st.ip_addresses(v=6).flatmap(
        lambda address: st.sampled_from(
            [str(address), address.exploded, address.exploded.upper(), str(address).upper()]
        )
    )
    | st.from_regex(
        r"[A-Za-z0-9][A-Za-z0-9-]{0,10}(\.[A-Za-z][A-Za-z0-9]{0,5}){0,3}", fullmatch=True
    )
)


@settings(max_examples=scaled(50))
@given(names=st.lists(written_names, min_size=1, max_size=3))
def test_a_certificate_shows_the_names_that_it_was_made_for(names: list[str]) -> None:
    """Else names would be missing at each look, and each look would make another certificate."""
    issuer = X509Issuer("ns/tls", key_type="EC-P256", ca_lifetime=9e6, lifetime=9e6)
    wanted = frozenset(map(certified_name, names))
    assert issuer.pair(issuer.authority(NOW), wanted, NOW).names == wanted
    assert frozenset(map(certified_name, wanted)) == wanted


def test_an_address_with_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="use the address without its zone"):
        ManagedCertificates("hooks", "tls", namespace="a", names=["fe80::1%eth0"])


def test_a_url_names_its_host_in_any_form() -> None:
    managed = ManagedCertificates(
        "hooks", "tls", namespace="a", names=["2001:DB8::1", "Hooks.Test"], inject=[(Mutating, "m")]
    )
    urls = ["https://[2001:db8:0::1]:8443/a", "https://HOOKS.test/b", "https://other.test/c"]
    webhooks = [{"name": f"w{n}.test", "clientConfig": {"url": url}} for n, url in enumerate(urls)]
    obj = Object.from_dict(Mutating, {"metadata": {"name": "m"}, "webhooks": webhooks})
    (target,) = managed._targets
    found = target.read(obj, ("a", "hooks"), managed._own_names, "")
    assert len(found.bundles) == 2


# -- cert-manager ----------------------------------------------------------------------------------

FOREIGN = attrs.evolve(POLICY, is_read_only=True)
_CERT_MANAGER = st.one_of(
    st.just(("renew",)),
    st.just(("renew by the same authority",)),
    st.tuples(st.just("inject"), st.integers(0, 1)),
    st.tuples(st.just("pass"), st.sampled_from([0.1, LAG / 2, LAG, 10 * LAG])),
)


@given(st.lists(_CERT_MANAGER, max_size=20))
@settings(max_examples=scaled(200))
def test_with_cert_manager_a_ready_replica_serves_what_targets_trust_now(
    actions: list[tuple[Any, ...]],
) -> None:
    issuer, tick = FakeIssuer(), 0.0
    content = first(issuer)
    targets = [plan.Target(name=str(n), version="1", bundles=(content.trust,)) for n in (0, 1)]
    memory = plan.Memory()

    def look() -> None:
        nonlocal memory
        observed = plan.Observed(content=content, targets=tuple(targets))
        memory = plan.decide(
            FOREIGN, memory, observed, now=NOW + tick, tick=tick, issuer=issuer
        ).memory

    def inject(number: int) -> None:
        version = str(int(targets[number].version) + 1)
        targets[number] = attrs.evolve(targets[number], version=version, bundles=(content.trust,))

    def trusting(authority: str) -> int:
        return sum(each.holds(authority) for each in targets)

    look()
    for action in [*actions, ("inject", 0), ("inject", 1)]:
        match action:
            case ("renew",):
                authority = issuer.authority(NOW + tick)
                content = Content(
                    authority=authority,
                    pair=issuer.pair(authority, POLICY.names, NOW + tick),
                    trust=(authority.certificate,),  # as of an issuer of type selfSigned
                )
            case ("renew by the same authority",):
                pair = issuer.pair(content.authority, POLICY.names, NOW + tick)
                content = attrs.evolve(content, pair=pair)
            case ("inject", number):
                inject(number)
            case ("pass", seconds):
                tick += seconds
        look()
        assert memory.serving is not None
        if memory.is_ready:
            assert trusting(memory.serving.authority) >= trusting(content.pair.authority)
    assert memory.is_ready
    assert memory.serving == content.pair


# -- clocks that are ahead -------------------------------------------------------------------------

_AHEAD = st.sampled_from([0.0, 600.0, 2000.0, 15_000.0, 40_000.0])


@given(_AHEAD, _AHEAD, st.booleans())
def test_what_a_replica_with_a_fast_clock_has_made_is_replaced(
    authority_ahead: float, pair_ahead: float, is_staged: bool
) -> None:
    issuer = FakeIssuer()
    authority = issuer.authority(NOW + authority_ahead)
    content = Content(
        authority=authority,
        pair=issuer.pair(authority, POLICY.names, NOW + max(pair_ahead, authority_ahead)),
        trust=(authority.certificate,),
    )
    if is_staged:
        staged = issuer.authority(NOW + pair_ahead)
        content = attrs.evolve(content, next=staged, trust=(staged.certificate, *content.trust))
    memory, tick, held = plan.Memory(), 0.0, content.trust
    for number in range(12):
        observed = plan.Observed(
            content=content,
            targets=(plan.Target(name="t", version=str(len(held)), bundles=(held,)),),
        )
        decision = plan.decide(POLICY, memory, observed, now=NOW + tick, tick=tick, issuer=issuer)
        memory, content = decision.memory, decision.store or content
        held = next(iter(decision.inject.values()), (held,))[0]
        tick += LAG / 2
        assert number < 8 or memory.is_ready
    assert content.pair.is_valid(NOW + tick)
    assert content.authority.certificate.is_valid(NOW + tick)
    assert content.next is None or content.next.certificate.is_valid(NOW + tick)


def test_a_replica_with_a_fast_clock_that_goes_on_is_not_contested_at_each_look() -> None:
    issuer = FakeIssuer()
    early = first(FakeIssuer())
    early = attrs.evolve(early, pair=issuer.pair(early.authority, POLICY.names, NOW + 9000.0))
    memory, writes = plan.Memory(), 0
    for tick in range(int(3 * POLICY.poll_interval)):
        decision = decide(memory, float(tick), early, target(early))
        memory = decision.memory
        writes += decision.store is not None
    assert writes == 3
