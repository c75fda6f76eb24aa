"""An operator under development: ``python development_program.py KUBECONFIG [HOW]``."""

from __future__ import annotations

import signal
import sys

from appsdk_operator import ClientConfig, Manager, kinds
from appsdk_operator.resource import MutableObject, Object
from appsdk_operator.runtime import StopSignal
from appsdk_operator.webhooks import Denied, DevelopmentServer, webhook_for


def set_color(obj: MutableObject) -> None:
    """Every config map has a color."""
    obj.setdefault("data", {}).setdefault("color", "blue")


def check_color(obj: Object) -> None:
    """It must not be red."""
    if obj.to_dict()["data"]["color"] == "red":
        raise Denied("red is no color")


def main(kubeconfig: str, *rest: str) -> None:
    """Run until Ctrl-C."""
    config = ClientConfig.from_kubeconfig(kubeconfig)
    server = DevelopmentServer(config, "colors", host="127.0.0.1")
    with Manager(config, webhook_server=server) as manager:
        options = {"object_selector": {"matchLabels": {"colorful": "yes"}}}
        builder = webhook_for(manager, kinds.core.v1.ConfigMap)
        builder.default(set_color, **options).validate(create=check_color, **options).complete()

        def tell(stop: StopSignal) -> None:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            if "fail" in rest:
                raise OSError("this operator fails")
            stop.wait()

        manager.add(tell)
        manager.run(handle_signals="unhandled" not in rest)


if __name__ == "__main__":
    # A shell ignores Ctrl-C for what it starts in the background, as a run of all tests may be.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(*sys.argv[1:])
