from appsdk_operator import App, Kind, Object, kinds

app = App("indexes")
Widget = app.own(Kind(group="example.com", version="v1", kind="Widget"))
Pod = kinds.core.v1.Pod
app.index(Pod, "status.phase")
app.index(Pod, "label", lambda pod: [f"{label}={value}" for label, value in pod.labels.items()])


@app.every(0.1, Widget)
def report(widget: Object) -> None:
    running = app.client.list(Pod, field_selector={"status.phase": "Running"})
    web = app.client.list(Pod, field_selector={"label": "app=web"})
    with app.edit(widget) as draft:
        draft["status"] = {
            "running": sorted(pod.name for pod in running),
            "web": sorted(pod.name for pod in web),
        }
