"""The work whose instructions are counted; :mod:`benchmarks.instructions` runs it under callgrind.

``python -m benchmarks._counted [--instrument] NAME…`` imports everything, makes what will be read,
and does each piece of work in a fork of its own. It prints a line of JSON for each: its name, the
process, and the number of its steps. What counts lies between the last two calls of ``getppid``,
before which callgrind writes what it has counted.

Two runs take the same instructions, because nothing depends on the time or on who comes first: the
clock stands still, and a thread goes on until it waits. Bytes come from memory, or from another
process, which does one thing at a time.
"""

from __future__ import annotations

import functools
import gc
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, final

from appsdk_operator import (
    App,
    Client,
    ClientConfig,
    InformerController,
    Kind,
    Object,
    Request,
    ResourceAction,
    SimpleWatcher,
    StopSignal,
)
from appsdk_operator.cache import Event, Informer, Overflow
from appsdk_operator.client import Hooks, InterceptedClient, MergePatch, WatchStream
from appsdk_operator.client import Request as HTTPCall
from appsdk_operator.client._transport.connection import Connection
from appsdk_operator.client._transport.transport import OpenResponse
from appsdk_operator.controllers import Controller, RequestQueue
from appsdk_operator.runtime import Metrics, ThreadGroup, environment
from appsdk_operator.serving import HTTPServer
from appsdk_operator.webhooks import Webhooks, webhook_for
from benchmarks._calibration import LOOPS
from benchmarks._measures import WIDGET, Feed, widget
from benchmarks._objects import FIRST_VERSION, NAMESPACE, Template, bookmark
from benchmarks._replay import ROOT, ReplayServer, Spec
from benchmarks._webhooks import PLAIN, review

__all__ = ["WORK"]

Work: TypeAlias = Callable[[], None]
"""Some steps to warm up, and those that count between the last two calls of :data:`mark`."""

Update: TypeAlias = Callable[[Object, Object], None]

mark: Final = os.getppid
"""Divides what is counted."""

_OBJECTS: Final = 100
_WARM: Final = 200
"""Steps before those that count: the interpreter has specialised the code by then."""


# -- what keeps two runs alike ---------------------------------------------------------------


@final
class StillClock:
    """A clock that stands still, and is read with as few instructions as the machine's."""

    monotonic: staticmethod[[], float] = staticmethod(itertools.repeat(1000.0).__next__)

    def time(self) -> float:
        """Always the same."""
        return 1_700_000_000.0

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:  # noqa: ARG002
        """Wait until notified: no time passes."""
        condition.wait()


@final
class Countdown:
    """Lets one thread wait until another has done so many steps."""

    def __init__(self) -> None:
        self._left = 0
        self._done = threading.Lock()
        self._done.acquire()

    def begin(self, count: int) -> None:
        """From now on so many."""
        self._left = count

    def step(self) -> None:
        """One less. After the last one this thread still goes on until it waits."""
        self._left -= 1
        if not self._left:
            self._done.release()

    def wait(self) -> None:
        """Wait for the last one."""
        self._done.acquire()


def settle() -> None:
    """Leave what was made so far out of what the garbage collector looks at."""
    gc.collect()
    gc.freeze()


# -- events of a watch, from the bytes to the callback ---------------------------------------


@final
class _Replayed(socket.socket):
    """A connection on which bytes come from memory, as many as are asked for."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._piece = b""
        self._at = 0

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """Nobody reads it."""

    def recv(self, limit: int, flags: int = 0, /) -> bytes:  # noqa: ARG002
        """The next bytes of the piece; none at the end."""
        if self._at == len(self._piece):
            self._piece, self._at = next(self._pieces, b""), 0
        began = self._at
        self._at = min(began + limit, len(self._piece))
        return self._piece[began : self._at]


@final
class _Watched:
    """A client whose only watch brings these pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def list_page(self, *_: Any, **__: Any) -> Any:
        """Not asked: lists are streamed."""
        raise NotImplementedError

    def watch(self, kind: Kind, **_: Any) -> WatchStream:
        """The watch."""
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection = Connection(_Replayed(itertools.chain([head], self._pieces)), 0)
        response = connection.exchange(b"GET / HTTP/1.1\r\n\r\n", None, method="GET")
        request = HTTPCall(method="GET", path="/", verb="watch")
        return WatchStream(kind, request, OpenResponse(connection, response), silence_limit=90.0)


def _follow(
    pieces: Iterator[bytes], watcher: SimpleWatcher, stop: StopSignal, *, workers: int = 1
) -> None:
    informer = Informer(WIDGET, _Watched(pieces), on_error=_end)
    # Each event counts, and none is merged.
    controller = InformerController(overflow=Overflow.BLOCK, max_pending=100_000, workers=workers)
    controller.add_informer(informer, WIDGET)
    controller.add_watcher(watcher, WIDGET)
    controller.run(stop)


@functools.cache
def _template() -> Template:
    return Template("widgets")


def _present(count: int) -> bytes:
    """The initial events, with the bookmark after them."""
    made = _template()
    events = (made.event("ADDED", index, FIRST_VERSION + index) for index in range(count))
    end = bookmark(made.names.api_version, made.names.kind, FIRST_VERSION + count)
    return _chunks(itertools.chain(events, [end]))


def _changes(first: int, count: int) -> bytes:
    """Changes of the objects, in turn."""
    make, version = _template().event, FIRST_VERSION + _OBJECTS + 1
    numbers = range(first, first + count)
    return _chunks(make("MODIFIED", n % _OBJECTS, version + n, 2 + n // _OBJECTS) for n in numbers)


def _chunks(lines: Iterator[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(line), line) for line in lines)


def _follow_in_app(
    pieces: Iterator[bytes], function: Update, stop: StopSignal, *, workers: int
) -> None:
    """The same for an ``on_update`` of an App."""
    replayed = _Watched(pieces)
    config = ClientConfig(server="http://localhost")  # nothing is sent there
    hooks = Hooks(watch=lambda _, kind, **options: replayed.watch(kind, **options))
    app = App("counted", workers=workers)
    app.on_update(WIDGET)(function)
    with Client(config) as client:
        manager = app.manager(
            InterceptedClient(client, hooks), health_server=None, metrics_server=None
        )
        with manager:
            manager.run(stop)


def watch(count: int, *, reads: bool = False, in_app: bool = False, workers: int = 1) -> Work:
    """Changes, of which the callback reads nothing or a field of the spec."""
    present, first, rest = _present(_OBJECTS), _changes(0, _WARM), _changes(_WARM, count)
    steps = Countdown()

    def untouched(_old: Object, _new: Object) -> None:
        steps.step()

    def read(_old: Object, new: Object) -> None:
        assert new.spec["field1"]
        steps.step()

    def work() -> None:
        stop = StopSignal()

        def pieces() -> Iterator[bytes]:
            yield present
            steps.begin(_WARM)
            yield first
            steps.wait()
            settle()
            steps.begin(count)
            mark()
            yield rest
            steps.wait()
            mark()
            stop.set()

        update = read if reads else untouched
        if in_app:
            _follow_in_app(pieces(), update, stop, workers=workers)
        else:
            _follow(pieces(), SimpleWatcher(update=update), stop, workers=workers)

    return work


def list_all(count: int) -> Work:
    """Objects of a list."""
    lists = [(objects, _present(objects)) for objects in (_WARM, count)]

    def listed(objects: int, present: bytes) -> None:
        steps, stop = Countdown(), StopSignal()

        def add(_: Object) -> None:
            steps.step()

        def pieces() -> Iterator[bytes]:
            settle()
            steps.begin(objects)
            mark()
            yield present
            steps.wait()
            mark()
            stop.set()

        _follow(pieces(), SimpleWatcher(add=add), stop)

    def work() -> None:
        for objects, present in lists:
            listed(objects, present)

    return work


# -- events from memory, for many watchers ---------------------------------------------------


@final
class _Updates:
    """A watcher that counts updates, or that they do not concern."""

    def __init__(self, steps: Countdown | None) -> None:
        self._steps = steps

    def add(self, obj: Object) -> None:
        """Never called."""

    def update(self, _old: Object, _new: Object) -> None:
        """One more."""
        assert self._steps is not None
        self._steps.step()

    def delete(self, obj: Object) -> None:
        """Never called."""

    def concerns(self, _old: Object, _new: Object) -> bool:
        """Whether it counts."""
        return self._steps is not None


def _updates(first: int, count: int) -> list[list[Event]]:
    """Events of updates, in batches."""
    numbers = range(first, first + count + _OBJECTS)
    states = [widget(n % _OBJECTS, 1 + n // _OBJECTS) for n in numbers]
    pairs = zip(states, states[_OBJECTS:], strict=False)
    events = [Event(ResourceAction.UPDATE, new, old) for old, new in pairs]
    return [events[at : at + 100] for at in range(0, len(events), 100)]


def filtered(count: int) -> Work:
    """Events for 100 watchers of which 99 are not concerned."""
    first, rest = _updates(0, _WARM), _updates(_WARM, count)

    def work() -> None:
        steps, stop = Countdown(), StopSignal()

        def batches() -> Iterator[Sequence[Event]]:
            for some, times in ((first, _WARM), (rest, count)):
                settle()
                steps.begin(times)
                mark()
                yield from some
                steps.wait()
            mark()
            stop.set()

        controller = InformerController(max_pending=100_000)
        controller.add_informer(Feed(batches()), WIDGET)
        for number in range(100):
            controller.add_watcher(_Updates(steps if number == 99 else None), WIDGET)
        controller.run(stop)

    return work


# -- reconciles, requests and reviews --------------------------------------------------------


@final
class _Asks:
    """A source of requests, in a thread of its own."""

    def __init__(self, ask: Callable[[RequestQueue[Request]], None]) -> None:
        self._ask = ask
        self.threads = ThreadGroup("asks")

    def start(self, inbox: RequestQueue[Request], _: StopSignal) -> None:
        """Begin."""
        self.threads.start("asks", lambda: self._ask(inbox))


def no_op(count: int) -> Work:
    """Reconciles that do nothing, from the queue to the reconciler."""
    requests = [Request("default", f"widget-{number}") for number in range(_WARM + count)]

    def work() -> None:
        steps, stop = Countdown(), StopSignal()

        def ask(inbox: RequestQueue[Request]) -> None:
            for some in (requests[:_WARM], requests[_WARM:]):
                settle()
                steps.begin(len(some))
                mark()
                for request in some:
                    inbox.add(request)
                steps.wait()
            mark()
            stop.set()

        source = _Asks(ask)
        controller: Controller[Request] = Controller("counted", lambda _: steps.step())
        controller.watch(source)
        controller.run(stop)
        source.threads.join()

    return work


def get_and_patch(count: int) -> Work:
    """A read and a write of a widget of 2 KB, on a connection that stays open."""
    patch, name = MergePatch({"spec": {"field1": "other"}}), _template().name(0)

    def work() -> None:
        with (
            ReplayServer(Spec(objects=1)) as server,
            Client(ClientConfig(server=server.url)) as client,
        ):
            for times in (_WARM // 4, count):
                settle()
                mark()
                for _ in range(times):
                    client.get(WIDGET, name, namespace=NAMESPACE)
                    client.patch(WIDGET, name, patch, namespace=NAMESPACE)
            mark()

    return work


def admission(count: int) -> Work:
    """Reviews of a widget of 2 KB, on a connection that stays open, without TLS."""
    one = review("validate")
    head = f"POST {one.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    text = f"{head}Content-Length: {len(one.body)}\r\n\r\n{one.body.decode()}"

    def check(obj: Object) -> None:
        assert obj.spec["size"]

    def work() -> None:
        webhooks, stop = Webhooks(), StopSignal()
        webhook_for(webhooks, PLAIN).validate(create=check).complete()
        server = HTTPServer("127.0.0.1:0", name="counted")
        server.add_handler("/", webhooks.answer, methods=None, is_prefix=True, limits=webhooks)
        threads = ThreadGroup("counted")
        threads.start("server", lambda: server.run(stop))
        asked = {"port": server.port, "request": text, "wanted": one.wanted}
        command, pipe = [sys.executable, "-m", "benchmarks._sender"], subprocess.PIPE
        with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as sender:
            assert sender.stdin is not None
            assert sender.stdout is not None
            sender.stdin.write(json.dumps(asked) + "\n")
            for times in (_WARM, count):
                settle()
                mark()
                sender.stdin.write(f"{times}\n")
                sender.stdin.flush()
                if sender.stdout.readline() != "sent\n":
                    raise RuntimeError("the sender of reviews has failed")
            mark()
            sender.stdin.close()
        stop.set()
        threads.join()

    return work


# -- the process -----------------------------------------------------------------------------


def _loop(loop: Callable[[int], None], count: int) -> Work:
    def work() -> None:
        for times in (_WARM, count):
            settle()
            mark()
            loop(times)
        mark()

    return work


WORK: Final[Mapping[str, tuple[Callable[[int], Work], int]]] = {
    "calls": (functools.partial(_loop, LOOPS["calls"]), 200),
    "containers": (functools.partial(_loop, LOOPS["containers"]), 200),
    "texts": (functools.partial(_loop, LOOPS["texts"]), 200),
    "objects": (functools.partial(_loop, LOOPS["objects"]), 100),
    "locks": (functools.partial(_loop, LOOPS["locks"]), 1000),
    "watch, untouched": (watch, 1000),
    "watch, spec read": (functools.partial(watch, reads=True), 1000),
    "watch, 8 workers": (functools.partial(watch, workers=8), 1000),
    "watch, on_update of an App, 8 workers": (
        functools.partial(watch, in_app=True, workers=8),
        1000,
    ),
    "100 watchers, 99 filtered": (filtered, 200),
    "no-op reconcile": (no_op, 1000),
    "get and patch": (get_and_patch, 100),
    "admission": (admission, 200),
    "list of 10,000": (list_all, 10_000),
}
"""By name: what makes the work, and how many steps of it count."""


def instrument() -> None:
    """Have callgrind count from now on. Until here it only ran the program, ten times as fast.

    Valgrind looks for commands from time to time while it executes something.
    """
    command = ["vgdb", f"--pid={os.getpid()}", "instrumentation", "on"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as asking:
        while asking.poll() is None:
            pass
    if asking.returncode:
        raise OSError("vgdb, a program of valgrind, did not reach this process")


def _end(error: BaseException) -> None:
    """End this process: nobody waits for what will not come."""
    traceback.print_exception(error)
    sys.stderr.flush()
    os._exit(1)


def _fork(work: Work) -> tuple[int, bool]:
    """Do the work in a process of its own: which one that was, and whether it has failed."""
    process = os.fork()
    if not process:
        try:
            work()
        except BaseException as error:
            _end(error)
        os._exit(0)
    _, status = os.waitpid(process, 0)
    return process, bool(status)


def main() -> None:
    """Do what the command line names."""
    names = sys.argv[1:]
    is_counted = names[:1] == ["--instrument"]
    # A thread goes on until it waits.
    sys.setswitchinterval(1e6)
    with environment(clock=StillClock(), metrics=Metrics()):
        made = []
        for name in names[is_counted:] or WORK:
            make, count = WORK[name]
            made.append((name, make(count), count))
        settle()
        if is_counted:
            instrument()
        for name, work, count in made:
            process, has_failed = _fork(work)
            done = {"name": name, "process": process, "steps": count, "failed": has_failed}
            print(json.dumps(done), flush=True)
    # Without what an interpreter does at its end, under callgrind.
    os._exit(0)


if __name__ == "__main__":
    main()
