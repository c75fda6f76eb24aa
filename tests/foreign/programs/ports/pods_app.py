import logging

from appsdk_operator import App, Live, StopSignal, kinds

log = logging.getLogger(__name__)

app = App("pods")
Pod = kinds.core.v1.Pod
app.uses(Pod, verbs=["delete"])


@app.background(Pod, where=lambda pod: not pod.name.startswith("kube-"))
async def end(live: Live, stop: StopSignal) -> None:
    pod = live.object
    log.info("%s is watched", pod.name)
    if await stop.wait_async(float(pod.annotations["lives"])):
        log.info("%s: somebody else was first", pod.name)
    else:
        log.info("%s: its time is over", pod.name)
        await app.client.aio.delete(Pod, pod.name, namespace=pod.namespace)
