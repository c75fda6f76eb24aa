"""All files of an App's deployment."""

from __future__ import annotations

from appsdk_operator.app import App
from appsdk_operator.project._manifests.chart import chart_texts
from appsdk_operator.project._manifests.dockerfile import dockerfile, dockerignore
from appsdk_operator.project._manifests.kustomize import kustomize_texts
from appsdk_operator.project._manifests.options import ManifestOptions
from appsdk_operator.project._manifests.values import Deployed
from appsdk_operator.runtime import validation


def manifests(app: App, options: ManifestOptions | None = None) -> dict[str, str]:
    """The kustomize manifests of an App and its Dockerfile, as texts by path.

    The same App and options give the same texts. ``base`` has all objects but those of Prometheus'
    operator, which ``components/monitoring`` has. ``overlays/development`` and
    ``overlays/production`` use the base, with :attr:`ManifestOptions.monitoring` the latter both.

    Args:
        app: the App.
        options: what its declarations do not say; default: all defaults.

    Raises:
        ValueError: as :attr:`App.kinds` and :meth:`App.crds`.

    >>> from appsdk_operator.app import App
    >>> sorted(manifests(App("buckets")))[:2]
    ['Dockerfile', 'Dockerfile.dockerignore']
    """
    deployed = Deployed(app=app, options=options or ManifestOptions())
    return {
        "Dockerfile": dockerfile(deployed),
        "Dockerfile.dockerignore": dockerignore(deployed),
        **kustomize_texts(deployed),
    }


def helm_chart(
    app: App, options: ManifestOptions | None = None, *, version: str = "0.1.0"
) -> dict[str, str]:
    """A Helm chart that deploys an App, in the folder ``chart``, and its Dockerfile.

    The objects are those of :func:`manifests`; its values are what one changes of them.

    Args:
        app: the App.
        options: what its declarations do not say; default: all defaults.
        version: the version of the chart; default 0.1.0.

    Raises:
        TypeError: the version is not text.
        ValueError: it is empty; as :attr:`App.kinds` and :meth:`App.crds`.

    >>> from appsdk_operator.app import App
    >>> sorted(helm_chart(App("buckets")))[3]
    'chart/Chart.yaml'
    """
    validation.check_text("version", version, empty=False)
    deployed = Deployed(app=app, options=options or ManifestOptions())
    return {
        "Dockerfile": dockerfile(deployed),
        "Dockerfile.dockerignore": dockerignore(deployed),
        **chart_texts(deployed, version),
    }
