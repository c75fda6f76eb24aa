"""The decisions about managed certificates: what to write where, what to serve, when to look again.

Each replica of an operator looks at the Secret and at the configurations ("targets") whose
``caBundle`` tells the API servers whom to trust, and :func:`decide` says what to do. There is no
agreement between replicas but the Secret. A replica writes it, and each target, only in the
version that it has read, and reads the targets first.

The promise: at every moment each ready replica serves a certificate that every API server accepts
whose configurations are at most ``propagation`` seconds old. It rests on these rules:

1. **A new authority is trusted before it signs.** It is stored as the next one first. It signs the
   first pair when a replica has seen, at least ``propagation`` seconds ago, that all targets had
   it, and they have not changed since. Until then every API server has read a version with it.
2. **Nothing that is valid loses trust.** An authority stays in the Secret, and in each target,
   until it has expired by every clock; no pair outlives its authority. So nobody has to know which
   replica still serves an old pair, because it was paused or cannot reach the server: as long as
   the pair is valid, it is trusted. A replica that works with an old state of the Secret can
   therefore not take away what another one has added, and neither can a Secret that was restored.
3. **A replica keeps its pair until the new one is trusted.** It takes a pair from the Secret when
   that is recorded as trusted and the targets have its authority, or when it has seen itself, for
   ``propagation`` seconds, that they have. So a Secret that was deleted and made anew by a replica
   that has just started does not change what the others serve, until they may.
4. **The first pair of a replica** is the one in the Secret; it has no other. It is ready when the
   targets have the authority and no other replica can be serving something that the API servers
   trust already: the pair is recorded as trusted, or no other authority is in the targets, or
   ``propagation`` seconds have passed.
5. **Who has seen the Secret can bring it back.** A Secret that is gone or unreadable is written
   again as it was last seen; only without any memory a new authority is made.
6. **What is not valid yet is as good as expired.** A replica whose clock was ahead may have written
   it. Others replace it, but at most once each ``poll_interval`` seconds: if it comes back, such a
   replica still runs, and nobody gains by a contest.

With cert-manager the bundles are not ours: its cainjector replaces the authority at once. Then a
replica serves what more of the targets trust now, the pair that it has or the one in the Secret.

What it cannot promise: a target that somebody else has just overwritten trusts what they wrote,
until it is written again, which takes as long as the watch. And if the targets cannot be written
for the whole last fifth of an authority's life, its successor signs without being trusted, because
the old pair has expired anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs

from appsdk_operator.webhooks._certificates.content import (
    Authority,
    Certificate,
    Content,
    Issuer,
    Pair,
    merged,
)

_SOON: Final = 0.0


@final
@attrs.frozen(kw_only=True)
class Policy:
    """The options that decisions depend on."""

    names: frozenset[str]
    """The DNS names and IP addresses of the server."""
    lifetime: float
    """Seconds for which a pair is valid."""
    rotate_at: float = 0.2
    """The fraction of its lifetime that is left when a pair or an authority is replaced."""
    propagation: float = 60.0
    """Seconds within which every API server has read a changed configuration."""
    poll_interval: float = 60.0
    """Seconds after which it looks again although nothing is due."""
    is_read_only: bool = False
    """Whether somebody else writes the Secret and the bundles: cert-manager."""


@final
@attrs.frozen(kw_only=True)
class Target:
    """A configuration, as it was read."""

    name: str
    """For texts, for example ``ValidatingWebhookConfiguration widgets``."""
    version: str = ""
    """Another value means that the configuration has changed; ``""``: it does not exist."""
    problem: str = ""
    """Why it could not be read, or why nothing in it is ours; ``""``: no problem."""
    bundles: tuple[tuple[Certificate, ...], ...] = ()
    """For each ``clientConfig`` of our service, the authorities in its ``caBundle``."""
    is_clean: bool = True
    """Whether the bundles have nothing else in them, such as garbage."""
    is_annotated: bool = True
    """Whether it has cert-manager's annotation, if it needs it."""

    def holds(self, fingerprint: str) -> bool:
        """Whether all its bundles have this authority."""
        return all(any(c.fingerprint == fingerprint for c in bundle) for bundle in self.bundles)

    def trusts(self, fingerprint: str) -> bool:
        """Whether it exists, is ours, and has this authority."""
        return bool(self.bundles) and self.holds(fingerprint)


@final
@attrs.frozen(kw_only=True)
class Observed:
    """The Secret and the targets, as they were read."""

    content: Content | None
    """What the Secret holds; None: there is none, or it cannot be used."""
    problem: str = ""
    """Why there is no content."""
    authority: Authority | None = None
    """An authority in a Secret that cannot be used otherwise."""
    targets: tuple[Target, ...] = ()


@final
@attrs.frozen(kw_only=True)
class Memory:
    """What a replica remembers; empty after a start."""

    content: Content | None = None
    """The last usable content of the Secret."""
    trust: tuple[Certificate, ...] = ()
    """All authorities that were in the Secret and have not expired."""
    serving: Pair | None = None
    """The pair that is in use."""
    held: Mapping[str, float] = attrs.field(factory=dict)
    """Since when, by the monotonic clock, all targets have been seen with an authority."""
    versions: Mapping[str, str] = attrs.field(factory=dict)
    """The versions of the targets at the last look."""
    is_ready: bool = False
    """Whether it was ready once, and has served a valid pair since."""
    rotation: bool = False
    """Whether somebody asked for a new authority and pair."""
    corrected: float | None = None
    """When, by the monotonic clock, it last replaced what was not valid yet."""


@final
@attrs.frozen(kw_only=True)
class Decision:
    """What to do now."""

    memory: Memory
    store: Content | None = None
    """What to write into the Secret; then look again."""
    news: tuple[str, ...] = ()
    """What ``store`` changes: ``"ca"``, ``"serving"``; for logs and metrics."""
    is_restored: bool = False
    """Whether ``store`` brings back what the Secret had before it was deleted or spoiled."""
    inject: Mapping[str, tuple[tuple[Certificate, ...], ...]] = attrs.field(factory=dict)
    """New bundles by target."""
    annotate: tuple[str, ...] = ()
    """The targets that need cert-manager's annotation."""
    missing: tuple[str, ...] = ()
    """What keeps it from being complete."""
    wait: float
    """Seconds until the next look, if nothing changes before."""


def decide(
    policy: Policy, memory: Memory, observed: Observed, *, now: float, tick: float, issuer: Issuer
) -> Decision:
    """What to do about what was observed.

    Args:
        policy: the options.
        memory: that of the last decision.
        observed: the targets, and the Secret, which was read after them. So what a target gets is
            at least as new as what is in it, if it is written in the version that was read.
        now: the time in seconds since 1970, which certificates are compared with.
        tick: the time of a monotonic clock in seconds, taken after the reads.
        issuer: makes authorities and pairs.
    """
    memory = _remembered(memory, observed, now, tick)
    content = observed.content
    if memory.serving is not None and not memory.serving.is_valid(now):
        # What replaces it need not be trusted yet, as after a start.
        memory = attrs.evolve(memory, is_ready=False)
    store = None if policy.is_read_only else _stored(policy, memory, observed, now, tick, issuer)
    if content is not None:
        if store is not None and _has_early(content, now):
            memory = attrs.evolve(memory, corrected=tick)
        memory = attrs.evolve(memory, serving=_served(policy, memory, content, observed, now, tick))
    missing = _missing(policy, memory, observed, now, tick)
    memory = attrs.evolve(memory, is_ready=memory.is_ready or not missing)
    # Not what the Secret has: one that was deleted is not a reason to speak of a rotation.
    news = _news(memory.content, store)
    inject: dict[str, tuple[tuple[Certificate, ...], ...]] = {}
    if content is not None and not policy.is_read_only:
        for target in observed.targets:
            bundles = _wanted_bundles(target, content, now)
            if bundles is not None:
                inject[target.name] = bundles
    return Decision(
        memory=memory,
        store=store,
        news=news,
        is_restored=store is not None and content is None and not news,
        inject=inject,
        annotate=tuple(t.name for t in observed.targets if t.version and not t.is_annotated),
        missing=missing,
        wait=_SOON if store is not None else _wait(policy, memory, content, now, tick),
    )


# -- what was seen ---------------------------------------------------------------------------------


def _remembered(memory: Memory, observed: Observed, now: float, tick: float) -> Memory:
    content = observed.content
    versions = {target.name: target.version for target in observed.targets}
    # A change between two looks may have taken an authority away for a while.
    held = dict(memory.held) if versions == memory.versions else {}
    known: set[str] = set()
    if content is not None:
        known = {
            content.authority.fingerprint,
            *([content.next.fingerprint] if content.next else ()),
        }
        if memory.serving is not None:
            known.add(memory.serving.authority)
    all_held = {name for name in known if _all_hold(observed.targets, name)}
    trust = merged(memory.trust, () if content is None else content.trust)
    return attrs.evolve(
        memory,
        content=content or memory.content,
        trust=tuple(each for each in trust if not each.has_gone(now)),
        held={name: held.get(name, tick) for name in all_held},
        versions=versions,
        rotation=memory.rotation and not (content is not None and content.next is not None),
    )


def _all_hold(targets: tuple[Target, ...], fingerprint: str) -> bool:
    """Whether all targets have the authority; one that does not exist has no caller."""
    return all(t.holds(fingerprint) and (t.version or not t.problem) for t in targets)


def _has_propagated(policy: Policy, memory: Memory, fingerprint: str, tick: float) -> bool:
    since = memory.held.get(fingerprint)
    return since is not None and tick - since >= policy.propagation


# -- the Secret ------------------------------------------------------------------------------------


def _stored(
    policy: Policy, memory: Memory, observed: Observed, now: float, tick: float, issuer: Issuer
) -> Content | None:
    """The content that the Secret should have; None: it needs no change."""
    content = observed.content
    if content is None:
        return _restored(policy, memory, observed, now, issuer)
    if _has_early(content, now) and not _may_correct(policy, memory, tick):
        return None
    wanted = _with_rotation(policy, memory, content, now, tick, issuer)
    known = [each for each in memory.trust if now < each.expires]
    kept = [each for each in wanted.trust if not each.has_gone(now)]
    trust = merged(kept, known, _own(wanted))
    if {c.fingerprint for c in trust} != {c.fingerprint for c in wanted.trust}:
        wanted = attrs.evolve(wanted, trust=trust)
    fingerprint = wanted.authority.fingerprint
    if wanted.trusted != fingerprint and _has_propagated(policy, memory, fingerprint, tick):
        wanted = attrs.evolve(wanted, trusted=fingerprint)
    return None if wanted == content else wanted


def _restored(
    policy: Policy, memory: Memory, observed: Observed, now: float, issuer: Issuer
) -> Content:
    """The content of a Secret that is gone or unusable: as it was, or a new one."""
    if memory.content is not None and memory.content.authority.certificate.is_valid(now):
        return attrs.evolve(memory.content, trust=merged(memory.trust, _own(memory.content)))
    authority = observed.authority
    if authority is None or _is_due(policy, authority.certificate, now):
        authority = issuer.authority(now)
    return _fresh(policy, memory, authority, now, issuer)


def _fresh(
    policy: Policy, memory: Memory, authority: Authority, now: float, issuer: Issuer
) -> Content:
    pair = issuer.pair(authority, policy.names, now)
    return Content(
        authority=authority, pair=pair, trust=merged(memory.trust, [authority.certificate])
    )


def _own(content: Content) -> list[Certificate]:
    """The authorities that have to be trusted in any case."""
    return [each.certificate for each in (content.authority, content.next) if each is not None]


def _with_rotation(
    policy: Policy, memory: Memory, content: Content, now: float, tick: float, issuer: Issuer
) -> Content:
    """``content`` with the next step of a rotation, if one is due."""
    staged = content.next
    if staged is not None and staged.certificate.is_early(now):
        content, staged = attrs.evolve(content, next=None), None
    if staged is not None and not _is_due(policy, staged.certificate, now):
        if _may_sign(policy, memory, content, staged, now, tick):
            return attrs.evolve(
                content,
                authority=staged,
                pair=issuer.pair(staged, content.pair.names | policy.names, now),
                next=None,
            )
    elif memory.rotation or _is_due(policy, content.authority.certificate, now):
        staged = issuer.authority(now)
        content = attrs.evolve(
            content, next=staged, trust=merged(content.trust, [staged.certificate])
        )
        if not content.authority.certificate.is_valid(now):
            # Nothing that it signed is valid: there is nothing to wait for.
            return _fresh(policy, memory, staged, now, issuer)
        return content
    return _with_new_pair(policy, content, now, issuer)


def _may_sign(
    policy: Policy, memory: Memory, content: Content, staged: Authority, now: float, tick: float
) -> bool:
    """Whether the next authority may sign: all trust it, or nobody can have a valid pair."""
    if not content.authority.certificate.is_valid(now):
        return True
    return _has_propagated(policy, memory, staged.fingerprint, tick)


def _with_new_pair(policy: Policy, content: Content, now: float, issuer: Issuer) -> Content:
    """``content`` with a new pair of the same authority, if one is due, or names are missing."""
    pair, end = content.pair, content.authority.certificate.expires
    if not content.authority.certificate.is_valid(now):
        return content
    lasts_longer = min(now + policy.lifetime, end) >= pair.expires + 1
    is_due = pair.is_early(now) or (lasts_longer and _is_due(policy, pair, now))
    if not is_due and policy.names <= pair.names:
        return content
    # Due, it forgets former names; for a new name it keeps them: another version of the operator
    # may want them, and would write its own again.
    names = policy.names if is_due else pair.names | policy.names
    return attrs.evolve(content, pair=issuer.pair(content.authority, names, now))


def _is_due(policy: Policy, what: Pair | Certificate, now: float) -> bool:
    return what.is_early(now) or now >= _due(policy, what)


def _has_early(content: Content, now: float) -> bool:
    """Whether something in the content is valid only later."""
    signers = (content.authority, content.next)
    return content.pair.is_early(now) or any(
        each is not None and each.certificate.is_early(now) for each in signers
    )


def _may_correct(policy: Policy, memory: Memory, tick: float) -> bool:
    return memory.corrected is None or tick - memory.corrected >= policy.poll_interval


def _due(policy: Policy, what: Pair | Certificate) -> float:
    return what.expires - policy.rotate_at * (what.expires - what.issued)


def _news(before: Content | None, after: Content | None) -> tuple[str, ...]:
    if after is None:
        return ()
    if before is None:
        return "ca", "serving"
    signers = {each.fingerprint for each in (before.authority, before.next) if each is not None}
    own = {each.fingerprint for each in (after.authority, after.next) if each is not None}
    found = ["ca"] if own - signers else []
    return (*found, *(["serving"] if after.pair != before.pair else []))


# -- the targets -----------------------------------------------------------------------------------


def _wanted_bundles(
    target: Target, content: Content, now: float
) -> tuple[tuple[Certificate, ...], ...] | None:
    """The bundles that the target should have; None: it needs no change."""
    if not target.version or target.problem:
        return None
    needed = [c for c in content.trust if now < c.expires]
    wanted = tuple(
        merged([c for c in bundle if not c.has_gone(now)], needed) for bundle in target.bundles
    )
    is_same = all(
        {c.fingerprint for c in new} == {c.fingerprint for c in old}
        for new, old in zip(wanted, target.bundles, strict=True)
    )
    return None if is_same and target.is_clean else wanted


# -- what to serve ---------------------------------------------------------------------------------


def _served(
    policy: Policy, memory: Memory, content: Content, observed: Observed, now: float, tick: float
) -> Pair:
    """The pair to serve: the one of the Secret, or still the one before."""
    current, candidate = memory.serving, content.pair
    if current is None or not current.is_valid(now):
        return candidate
    if not candidate.is_valid(now):
        return current
    name = candidate.authority
    if name == current.authority or _has_propagated(policy, memory, name, tick):
        return candidate
    if policy.is_read_only:
        trusting = [sum(t.trusts(a) for t in observed.targets) for a in (name, current.authority)]
        return candidate if trusting[0] > trusting[1] else current
    return candidate if content.trusted == name and name in memory.held else current


def _missing(
    policy: Policy, memory: Memory, observed: Observed, now: float, tick: float
) -> tuple[str, ...]:
    """What is missing for a replica that has just started to be ready."""
    pair, content = memory.serving, observed.content
    found: list[str] = []
    if observed.problem:
        found.append(observed.problem)
    if pair is None:
        return (*found, "there is no certificate yet") if not found else tuple(found)
    if not pair.is_valid(now):
        found.append("the certificate has expired" if now >= pair.expires else _NOT_YET)
    for target in observed.targets:
        if target.problem:
            found.append(target.problem)
        elif not target.version:
            found.append(f"{target.name} does not exist")
        elif not target.holds(pair.authority):
            found.append(f"{target.name} has no caBundle with the authority of the certificate yet")
    if not found and not _is_safe_to_start(policy, memory, content, observed, now, tick):
        found.append(f"API servers have {policy.propagation:g} s to read the new caBundles")
    return tuple(found)


_NOT_YET: Final = "the certificate is not valid yet: compare the clocks of the nodes"


def _is_safe_to_start(
    policy: Policy,
    memory: Memory,
    content: Content | None,
    observed: Observed,
    now: float,
    tick: float,
) -> bool:
    """Whether nobody but this replica is trusted by API servers that do not yet trust it."""
    assert memory.serving is not None
    own = memory.serving.authority
    if memory.is_ready or (content is not None and content.trusted == own):
        return True
    if _has_propagated(policy, memory, own, tick):
        return True
    return not any(
        c.fingerprint != own and not c.has_gone(now)
        for target in observed.targets
        for bundle in target.bundles
        for c in bundle
    )


# -- when ------------------------------------------------------------------------------------------


def _wait(
    policy: Policy, memory: Memory, content: Content | None, now: float, tick: float
) -> float:
    """Seconds until something is due."""
    waits = [policy.poll_interval]
    if content is not None and not policy.is_read_only:
        waits += [
            _due(policy, each) - now
            for each in (content.pair, content.authority.certificate)
            if not _is_due(policy, each, now)
        ]
        waits += [end - now for end in (content.pair.expires,) if end > now]
        waits += [
            since + policy.propagation - tick
            for since in memory.held.values()
            if since + policy.propagation > tick
        ]
    return max(_SOON, min(waits))
