"""Programs end without a word on standard error, also those whose objects live in the module."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import appsdk_operator as op

kind = op.kinds.core.v1.ConfigMap
client = op.Client(op.ClientConfig(server="http://127.0.0.1:9", connect_timeout=1.0))
controller = op.InformerController()
controller.add_informer(op.KubernetesInformer(kind, client), kind)
controller.add_watcher(op.SimpleWatcher(add=lambda obj: None), kind)
operator = op.Operator()
operator.add_controller(controller)
try:
    client.get(kind, "a", namespace="b")
except op.TransportError:
    pass
stop = op.StopSignal()
stop.set()
operator.run(stop)
"""


def test_what_lives_until_the_interpreter_ends_goes_quietly() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
