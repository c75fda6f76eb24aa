#!/bin/sh
# Build etcd and kube-apiserver in the versions of go.mod, once, into the user's cache folder, and
# print that folder: export KUBEBUILDER_ASSETS=$(make -s control-plane)
set -eu
cd "$(dirname "$0")"

if ! command -v go >/dev/null; then
  echo "control-plane: there is no Go toolchain on the PATH: install Go $(sed -n 's/^go //p' go.mod)" \
    "or newer (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver" >&2
  exit 1
fi

version=$(sed -n 's|.*k8s.io/kubernetes v\([^ ]*\).*|\1|p' go.mod)
content=$(cat go.mod go.sum build.sh | cksum | cut -d ' ' -f 1)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/appsdk-operator/control-plane"
target="$cache/$version-$(go env GOOS)-$(go env GOARCH)-$content"
if [ -x "$target/kube-apiserver" ]; then
  echo "$target"
  exit
fi

mkdir -p "$cache"
draft=$(mktemp -d "$cache/draft.XXXXXX")
trap 'rm -rf "$draft"' EXIT
trap 'exit 1' INT TERM
echo "control-plane: building Kubernetes $version: several minutes, and a gigabyte of modules" >&2
export CGO_ENABLED=0
build() {
  nice go build -mod=readonly -trimpath -buildvcs=false \
    -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$version" -o "$draft/$1" "$2" >&2
}
build etcd go.etcd.io/etcd/server/v3
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
chmod 755 "$draft"
# All of it or nothing; if somebody else was quicker, theirs is as good.
[ -e "$target" ] || mv "$draft" "$target"
echo "$target"
