"""An operator for CronJobs: the project of the kubebuilder book, written with this kit.

* :mod:`api`: the kind in two versions; :mod:`conversion` between them.
* :mod:`webhooks`: defaults, and checks.
* :mod:`schedule`: which start times have passed, and which is next; pure.
* :mod:`controller`: the reconciler, which makes jobs and cleans up after them.
* :mod:`program`: all of it in one manager, to be run in a cluster.

``python -m examples.cronjob`` runs it on an API server in the process, and plays its user.
"""
