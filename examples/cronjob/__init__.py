"""An operator for CronJobs: the project of the kubebuilder book, written with this kit.

* :mod:`api`: the kind in two versions; :mod:`conversion` between them.
* :mod:`schedule`: which start times have passed, and which is next; pure.
* :mod:`controller`: the reconciler, which makes jobs and cleans up after them.
"""
