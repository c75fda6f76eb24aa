"""A model of replicas that share shards, driven by one thread and a seed.

What is real: ``Shards`` with its looks, decisions, claims, gates for reconciles and fence;
``decide`` and ``ObservedLeases``; the ``LeaseState`` of each Lease, of shards and members; the
sharded reconciler. What is modelled, since it blocks in threads: the loop of ``Elector.run`` (as
for the promises of an election), that of ``Shards.run`` with its stop (``_leave_all``), what
``_hold`` does when an elector ends, and ``_be_member``. Who changes those has to change the model.
A list has its latency before the look that uses it; a look itself takes no time.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
from collections.abc import Callable, Generator
from typing import Any

import attrs

from appsdk_operator.manager import Elector, LeaderElection, LeadershipLost, Shards
from appsdk_operator.manager._election.lease_state import (
    CandidatePhase,
    ObservedLease,
    ReadLease,
    Wait,
    WriteLease,
)
from appsdk_operator.manager._shards.reconciler import ShardClaim
from appsdk_operator.resource import ObjectKey
from appsdk_operator.runtime import Metrics, StopSignal
from tests.manager.shards_parts import (
    FAULTS_END,
    LONGEST,
    STOP_TIMEOUT,
    ListedLease,
    Network,
    Replica,
    Run,
    Work,
    pause,
)


def in_time(options: LeaderElection, drift: float = 0.0) -> float:
    """Seconds within which a write has to be carried out after the last look, as the docs say."""
    if not drift:
        return options.margin
    takes_over = options.record_duration / (1 + drift)
    begins_last = (options.lease_duration - options.margin) / (1 - drift)
    return max(0.0, min(takes_over - begins_last, options.margin / (1 + drift)))


class ShardsWorld(Network):
    """Replicas in their network, and a check of the promises at each step."""

    def __init__(
        self,
        seed: int,
        replicas: int,
        count: int,
        options: LeaderElection,
        *,
        faults: bool = True,
        drift: float = 0.0,
        shards: Any = Shards,
        on_their_way: float | None = None,
        is_busy: bool = False,
    ) -> None:
        super().__init__(seed, faults=faults)
        self.options = options
        self.on_their_way = in_time(options, drift) if on_their_way is None else on_their_way
        self.count = count
        self.is_busy = is_busy
        """Many short reconciles that lose many answers, and shards that move all the time."""
        self.has_drift = drift > 0.0
        self.make = shards
        self.gained: list[tuple[float, int, str]] = []
        self.given: list[tuple[float, int, str]] = []
        self.terms: dict[int, int] = {}
        self.writes = self.fenced = self.reconciles = 0
        self.works: set[Work] = set()
        self.coroutines: dict[Any, contextvars.Context] = {}
        self.keys: dict[int, ObjectKey] = {}
        self.replicas: list[Replica] = []
        for _ in range(replicas):
            self.join(self.rng.uniform(0.0, 3.0), 1.0 + self.rng.uniform(-drift, drift))
        for number in itertools.count():
            key = ObjectKey("default", f"object-{number}")
            self.keys.setdefault(self.replicas[0].shards.shard_of(key), key)
            if len(self.keys) == count:
                break
        if faults:
            self.at(self.rng.uniform(0.0, 20.0), self.touch)

    def join(self, delay: float, rate: float = 1.0) -> Replica:
        replica = Replica(len(self.replicas), rate, world=self)
        self.replicas.append(replica)
        self.begin_life(replica)
        self.at(self.now + delay, lambda: self.start(replica))
        return replica

    def close(self) -> None:
        for coroutine, context in self.coroutines.items():
            context.run(coroutine.close)
        self.coroutines.clear()

    # -- what can be seen ------------------------------------------------------------------------

    @property
    def living(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.alive]

    def shares(self) -> list[int]:
        return [len(self.believed(replica)) for replica in self.living]

    def believed(self, replica: Replica) -> set[int]:
        return {t.shard for t in replica.shards._held_now() if t.elector.may_write()}

    def is_fair(self) -> bool:
        shares = self.shares()
        return sum(shares) == self.count and max(shares) - min(shares) <= 1

    def until_fair(self, limit: float) -> float:
        """Go on until shares are fair; how long that took."""
        start = self.now
        while not self.is_fair():
            assert self.now - start <= limit, f"after {limit:g} s: {self.shares()}"
            self.run(self.now + 0.1)
        return self.now - start

    # -- lives -----------------------------------------------------------------------------------

    def begin_life(self, replica: Replica) -> None:
        replica.life += 1
        replica.offset = self.rng.uniform(-1e6, 1e6)
        replica.shards = self.make(
            replica,
            attrs.evolve(self.options, identity=replica.identity),
            self.count,
            clock=replica,
            rng=self.rng,
            metrics=Metrics(),
            stop_timeout=STOP_TIMEOUT,
        )

    def start(self, replica: Replica) -> None:
        replica.alive = True
        replica.awake_at = self.now
        replica.is_stopping = replica.has_left = False
        replica.runs = 0
        replica.shards._threads = _Threads(self, replica)
        replica.member_stop = StopSignal()
        # The API cannot be reached when it starts, sometimes.
        is_deaf = self.is_troubled and self.rng.random() < 0.3
        replica.deaf_until = self.now + self.rng.uniform(0.0, 15.0) if is_deaf else 0.0
        if self.has_faults:
            self.disturb(replica)
        self.be_member(replica)
        self.look(replica, replica.life)
        self.at(self.now, lambda life=replica.life: self.work(replica, life))

    def is_life(self, replica: Replica, life: int) -> bool:
        return replica.alive and replica.life == life

    def disturb(self, replica: Replica) -> None:
        life, after = replica.life, self.now + self.rng.expovariate(1 / 20.0)
        if after < FAULTS_END:
            what = self.rng.choice([self.sleep, self.sleep, self.deafen, self.crash, self.leave])
            if self.is_busy:
                what = self.rng.choice([self.sleep, self.leave, self.leave, self.leave])
            self.at(after, lambda: what(replica) if self.is_life(replica, life) else None)

    def sleep(self, replica: Replica) -> None:
        replica.awake_at = self.now + self.rng.choice([0.3, 2.0, 8.0, 40.0]) * self.rng.random()
        self.disturb(replica)

    def deafen(self, replica: Replica) -> None:
        replica.deaf_until = self.now + self.rng.choice([2.0, 8.0, 30.0]) * self.rng.random()
        self.disturb(replica)

    def crash(self, replica: Replica) -> None:
        self.end(replica)

    def end(self, replica: Replica, *, comes_back: bool | None = None) -> None:
        """It ends; usually it is started anew, as another member."""
        replica.alive = False
        self.works -= {work for work in self.works if work.replica is replica}
        if comes_back is None:
            comes_back = replica.number == 0 or self.rng.random() < 0.8
        if comes_back:
            self.begin_life(replica)
            self.at(self.now + self.rng.uniform(0.1, 15.0), lambda: self.start(replica))

    def leave(self, replica: Replica, *, comes_back: bool | None = None) -> None:
        """It is told to stop; a look that is under way ends first."""
        replica.is_stopping = True
        replica.comes_back = comes_back
        turn = replica.look_turn
        self.at(self.now, lambda: self.look(replica, replica.life, turn))

    # -- looks, as in Shards.run -----------------------------------------------------------------

    def look(self, replica: Replica, life: int, turn: int | None = None) -> None:
        if not self.is_life(replica, life) or turn not in (None, replica.look_turn):
            return
        if self.now < replica.awake_at:
            self.at(replica.awake_at, lambda: self.look(replica, life, turn))
            return
        replica.look_turn += 1
        if replica.is_stopping:
            self.leave_all(replica)
            return
        waiting = [True]

        def answer(leases: Any, is_good: bool) -> None:
            if not waiting or not self.is_life(replica, life):
                return
            if self.now < replica.awake_at:
                self.at(replica.awake_at, lambda: answer(leases, is_good))
                return
            waiting.clear()
            replica.listed = leases if is_good else None
            replica.shards._sync(replica.member_stop)
            replica.look_turn += 1
            this, wait = replica.look_turn, 0.8 + 0.4 * self.rng.random()
            if replica.is_stopping:
                wait = 0.0
            when = replica.when(replica.monotonic() + self.options.retry_period * wait)
            self.at(when, lambda: self.look(replica, life, this))

        def perform() -> list[ListedLease]:
            named = ((name, server.lease) for name, server in self.servers.items())
            return [ListedLease(name, lease) for name, lease in named if lease is not None]

        late = replica.when(replica.monotonic() + self.options.request_timeout)
        self.at(late, lambda: answer(None, False))
        self.send(replica, perform, answer)

    def leave_all(self, replica: Replica) -> None:
        shards, life = replica.shards, replica.life
        shards._is_stopping = True
        for claim in list(shards._claims.values()):
            shards._hand_over(claim)

        def give_up() -> None:
            if not self.is_life(replica, life) or replica.has_left:
                return
            for claim in [claim for claim in shards._claims.values() if claim.running]:
                claim.elector.keep_lease()
                claim.stop.set()
            self.left(replica)

        self.at(replica.when(replica.monotonic() + STOP_TIMEOUT), give_up)
        if not shards._claims:
            self.left(replica)

    def left(self, replica: Replica) -> None:
        replica.has_left = True
        replica.member_stop.set()

    # -- runs of electors ------------------------------------------------------------------------

    def be_member(self, replica: Replica) -> None:
        shards = replica.shards
        self.begin(replica, Run(shards._elector(shards._member), replica.member_stop, None))

    def begin(self, replica: Replica, run: Run) -> None:
        replica.runs += 1
        life = replica.life

        def poke() -> None:
            run.request += 1  # what is under way is not waited for
            mine = run.request
            self.at(self.now, lambda: self.step(replica, run, life, mine))

        run.stop.on_set(poke)
        self.at(self.now, lambda: self.step(replica, run, life, run.request))

    def step(self, replica: Replica, run: Run, life: int, request: int) -> None:
        if not self.is_life(replica, life) or request != run.request or run.is_over:
            return
        if self.now < replica.awake_at:
            self.at(replica.awake_at, lambda: self.step(replica, run, life, request))
            return
        state: Any = run.elector._state
        if state.phase is CandidatePhase.LEADING and not run.was_leading:
            run.was_leading = True
            if run.claim is not None:
                self.gained.append((self.now, run.claim.shard, replica.identity))
                replica.shards._gained(run.claim)
        if run.stop.is_set():
            if run.elector._keeps_lease:
                state.abandon()
            else:
                state.stop(replica.monotonic(), run.elector.last_write)
        wall = self.rng.choice([0.0, 1e9, 1e9 + self.now, 1e9 + self.rng.uniform(-1e5, 1e5)])
        action = state.next(replica.monotonic(), wall)
        run.request += 1
        mine = run.request

        def again(after: Callable[[], None] = lambda: None) -> None:
            if not self.is_life(replica, life) or mine != run.request:
                return
            if self.now < replica.awake_at:
                self.at(replica.awake_at, lambda: again(after))
                return
            after()
            self.check_belief(replica, run)
            self.step(replica, run, life, mine)

        if action is None:
            self.finish(replica, run)
        elif isinstance(action, Wait):
            self.at(replica.when(action.until), again)
        else:
            failed = lambda: state.on_failure(replica.monotonic())  # noqa: E731
            self.at(replica.when(action.deadline), lambda: again(failed))
            self.ask(replica, run, action, again)

    def ask(
        self, replica: Replica, run: Run, action: ReadLease | WriteLease, again: Callable[..., None]
    ) -> None:
        name, identity, state = run.elector.options.id, replica.identity, run.elector._state

        def perform() -> ObservedLease | None:
            server = self.server(name)
            if isinstance(action, ReadLease):
                return server.lease
            done = server.write(identity, action)
            if done is not None and run.claim is not None and action.record.holder == "":
                self.check_release(run.claim, identity)
            return done

        def answer(done: Any, is_good: bool) -> None:
            now = replica.monotonic
            if not is_good:
                again(lambda: state.on_failure(now()))
            elif isinstance(action, ReadLease):
                again(lambda: state.on_read(now(), done))
            elif done is None:
                again(lambda: state.on_conflict(now()))
            else:
                again(lambda: state.on_write(now(), done))

        self.send(replica, perform, answer)

    def finish(self, replica: Replica, run: Run) -> None:
        run.elector._state.abandon()
        run.elector.retire()
        run.is_over = True
        replica.runs -= 1
        shards = replica.shards
        if run.claim is not None:
            run.claim.is_held = False
            shards._claims.pop(run.claim.shard, None)
            if replica.is_stopping and shards._is_stopping and not shards._claims:
                self.left(replica)
        elif not run.stop.is_set():
            self.be_member(replica)
        else:
            self.delete(replica, shards._member, None)
        if replica.has_left and replica.runs == 0:
            self.end(replica, comes_back=replica.comes_back)

    # -- reconciles ------------------------------------------------------------------------------

    def work(self, replica: Replica, life: int) -> None:
        """Begin reconciles, some for shards that are not its own."""
        if not self.is_life(replica, life):
            return
        if self.now >= replica.awake_at:
            shard = self.rng.randrange(self.count)
            context = contextvars.copy_context()

            async def reconcile(key: ObjectKey) -> None:
                await self.reconcile(replica, key)

            coroutine = replica.shards.reconciler(reconcile).reconcile(self.keys[shard])
            self.coroutines[coroutine] = context
            self.drive(replica, life, coroutine)
        often = 20.0 if self.is_busy else 2.0
        self.at(self.now + self.rng.expovariate(often), lambda: self.work(replica, life))

    def drive(self, replica: Replica, life: int, coroutine: Any) -> None:
        if not self.is_life(replica, life):
            return
        if self.now < replica.awake_at:
            self.at(replica.awake_at, lambda: self.drive(replica, life, coroutine))
            return
        try:
            seconds = self.coroutines[coroutine].run(coroutine.send, None)
        except StopIteration:
            del self.coroutines[coroutine]
            return
        self.at(self.now + seconds, lambda: self.drive(replica, life, coroutine))

    async def reconcile(self, replica: Replica, key: ObjectKey) -> None:
        shards: Shards = replica.shards
        shard = shards.shard_of(key)
        elector = shards._claims[shard].elector
        work = Work(replica, shard, elector, replica.identity, replica.life)
        self.check_alone(work)
        self.works.add(work)
        self.reconciles += 1
        longest = self.rng.choice([0.1, 1.0, 3.0, 15.0]) if self.is_troubled else LONGEST
        longest = 0.1 if self.is_busy else longest
        try:
            for _ in range(3):
                await pause(longest / 3 * self.rng.random())
                sent = shards.track_write()
                try:
                    sent.begin()
                except LeadershipLost:
                    self.fenced += 1
                else:
                    seconds, is_lost = self.write(shard, shards.term())
                    await pause(seconds)
                    sent.end(is_lost=is_lost)
        finally:
            self.works.discard(work)

    def write(self, shard: int, term: int) -> tuple[float, bool]:
        """Send bytes; how long the answer is awaited, and whether it was given up.

        From the look at the fence until the server carries it out it takes no longer than
        ``on_their_way``, whatever of that is a pause of the process, the network or the server.
        """

        def arrive() -> None:
            assert term >= self.terms.get(shard, 0), f"shard {shard}: a write of an earlier term"
            self.terms[shard] = term
            self.writes += 1

        seconds = self.on_their_way * self.rng.random() * (1.0 if self.is_troubled else 0.1)
        self.at(self.now + seconds, arrive)
        if self.is_troubled and self.rng.random() < 0.3:
            # The connection broke, or a time-out ran out: the bytes go on.
            return seconds * self.rng.random() * (0.1 if self.is_busy else 1.0), True
        return seconds, False

    # -- promises --------------------------------------------------------------------------------

    def believes(self, elector: Elector) -> bool:
        return elector.may_write() if self.has_drift else elector.is_leader

    def check_belief(self, replica: Replica, run: Run) -> None:
        if run.claim is None or not self.believes(run.elector):
            return
        shard = run.claim.shard
        for other in self.living:
            claim = other.shards._claims.get(shard)
            if other is not replica and claim is not None:
                assert not self.believes(claim.elector), (
                    f"{replica.identity} and {other.identity} hold shard {shard} at {self.now}"
                )

    def check_alone(self, work: Work) -> None:
        for other in self.works:
            if other.shard == work.shard and other.replica is not work.replica:
                assert not self.believes(other.elector), (
                    f"{other.identity} still works on shard {work.shard}, and {work.identity} does"
                )

    def check_release(self, claim: ShardClaim, identity: str) -> None:
        self.given.append((self.now, claim.shard, identity))
        for work in self.works:
            # One of an earlier claim, which was lost, may still run: it is fenced.
            assert work.elector is not claim.elector, (
                f"{identity} gives up shard {claim.shard} in the middle of a reconcile"
            )


class _Threads:
    """In place of the threads of electors: their runs in the model."""

    def __init__(self, world: ShardsWorld, replica: Replica) -> None:
        self._world = world
        self._replica = replica

    def start(self, name: str, target: Any) -> None:
        (claim,) = target.args
        assert name == f"shard-{claim.shard}"
        self._world.begin(self._replica, Run(claim.elector, claim.stop, claim))


@contextlib.contextmanager
def world(*args: Any, **options: Any) -> Generator[ShardsWorld, None, None]:
    """A world that leaves nothing behind."""
    made = ShardsWorld(*args, **options)
    try:
        yield made
    finally:
        made.close()
