#!/bin/sh
# Build helm in the version of go.mod, once, into the user's cache folder, and print the path of the
# program. The tests of charts are skipped without it.
set -eu
cd "$(dirname "$0")"

if ! command -v go >/dev/null; then
  echo "helm: there is no Go toolchain on the PATH: install Go $(sed -n 's/^go //p' go.mod) or newer" \
    "(https://go.dev/dl)" >&2
  exit 1
fi

version=$(sed -n 's|^.*helm.sh/helm/v4 v\([^ ]*\).*|\1|p' go.mod)
content=$(cat go.mod go.sum build.sh | cksum | cut -d ' ' -f 1)
target="${XDG_CACHE_HOME:-$HOME/.cache}/appsdk-operator/helm/$version-$content/helm"
if [ ! -x "$target" ]; then
  echo "helm: building $version: some minutes" >&2
  mkdir -p "$(dirname "$target")"
  draft="$target.$$"
  trap 'rm -f "$draft"' EXIT
  CGO_ENABLED=0 nice go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w" -o "$draft" \
    helm.sh/helm/v4/cmd/helm >&2
  # All of it or nothing; if somebody else was quicker, theirs is as good.
  mv "$draft" "$target"
fi
echo "$target"
