"""What SIGINT and SIGTERM do to a manager's process."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import signal, threading
from appsdk_operator.client import ClientConfig
from appsdk_operator.manager import HealthServerOptions, Manager

def work(stop):
    print("running", flush=True)
    stop.wait()
    print("stopping", flush=True)
    {at_stop}
    print("stopped", flush=True)

before = signal.getsignal(signal.SIGTERM)
with Manager(
    ClientConfig(server="http://127.0.0.1:1"),
    health_server=HealthServerOptions(address="127.0.0.1:0"),
    graceful_shutdown_timeout=None,
) as manager:
    manager.add(work)
    manager.run(handle_signals=True)
assert signal.getsignal(signal.SIGTERM) == before
left = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
assert not left, left
print("ended", flush=True)
"""


def _start(at_stop: str) -> subprocess.Popen[str]:
    text = textwrap.dedent(PROGRAM).format(at_stop=at_stop)
    return subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_everything_in_order(number: signal.Signals) -> None:
    process = _start("pass")
    assert _line(process) == "running"
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert output.split() == ["stopping", "stopped", "ended"], errors
    assert process.returncode == 0, errors


def test_the_second_signal_ends_the_process_at_once() -> None:
    process = _start("threading.Event().wait(60)")
    assert _line(process) == "running"
    process.send_signal(signal.SIGTERM)
    assert _line(process) == "stopping"
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert "stopped" not in output
    assert process.returncode == -signal.SIGTERM, errors
