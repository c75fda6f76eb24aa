import logging
from typing import Any

import kopf

log = logging.getLogger(__name__)


def is_web(value: Any, spec: kopf.Spec, **_: Any) -> bool:
    return value == "web" and "color" in spec


@kopf.on.create("widgets", labels={"app": "web"})
def label_equals(**_: Any) -> None:
    log.info("label equals")


@kopf.on.create("widgets", labels={"app": kopf.PRESENT})
def label_is_there(**_: Any) -> None:
    log.info("label is there")


@kopf.on.create("widgets", labels={"old": kopf.ABSENT})
def label_is_not_there(**_: Any) -> None:
    log.info("label is not there")


@kopf.on.create("widgets", labels={"app": is_web})
def label_passes(**_: Any) -> None:
    log.info("label passes")


@kopf.on.create("widgets", annotations={"note": "new"})
def annotation_equals(**_: Any) -> None:
    log.info("annotation equals")


@kopf.on.create("widgets", annotations={"note": kopf.PRESENT})
def annotation_is_there(**_: Any) -> None:
    log.info("annotation is there")


@kopf.on.create("widgets", annotations={"other": kopf.ABSENT})
def annotation_is_not_there(**_: Any) -> None:
    log.info("annotation is not there")


@kopf.on.create("widgets", when=lambda name, **_: name == "web")
def function_passes(**_: Any) -> None:
    log.info("function passes")


@kopf.on.create("widgets", when=lambda **_: False)
def never(**_: Any) -> None:
    log.info("never")


@kopf.on.create("widgets", field="spec.color", value="red")
def field_equals(**_: Any) -> None:
    log.info("field equals")


@kopf.on.create("widgets", field="spec.color", value="green")
def field_equals_another(**_: Any) -> None:
    log.info("field equals another")


@kopf.on.create("widgets", field="spec.color", value=kopf.PRESENT)
def field_is_there(**_: Any) -> None:
    log.info("field is there")


@kopf.on.create("widgets", field="spec.weight", value=kopf.PRESENT)
def other_field_is_there(**_: Any) -> None:
    log.info("other field is there")


@kopf.on.update("widgets", field="spec.color", old="red", new="blue")
def from_red_to_blue(**_: Any) -> None:
    log.info("from red to blue")


@kopf.daemon("widgets", field="spec.color", value="red")
def while_red(name: str, stopped: kopf.DaemonStopped, **_: Any) -> None:
    log.info("%s is red", name)
    while not stopped:
        stopped.wait(10)
    log.info("%s is red no more", name)
