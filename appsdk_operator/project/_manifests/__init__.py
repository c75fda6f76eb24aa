"""Manifests of an App: kustomize, a Helm chart and a Dockerfile, as texts by their paths."""
