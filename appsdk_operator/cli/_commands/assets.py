"""Get the binaries of a real control plane, for tests."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appsdk_operator.cli import _frame

if TYPE_CHECKING:
    from appsdk_operator.cli._assets import Archive, Item, Platform, Selector, Store


@_frame.command(
    "assets",
    examples=(
        "appsdk-operator assets use 1.36.x --index releases/envtest-releases.yaml",
        "appsdk-operator assets path --installed 1.36",
        "appsdk-operator assets list --installed",
        "appsdk-operator assets sideload 1.36.1 < releases/envtest.tar.gz",
        "appsdk-operator assets cleanup '<1.30'",
    ),
)
@click.argument("action", type=click.Choice(["list", "use", "path", "sideload", "cleanup"]))
@click.argument("version", default="")
@click.option(
    "-i",
    "--installed",
    "--installed-only",
    is_flag=True,
    envvar="ENVTEST_INSTALLED_ONLY",
    help="Use what is installed; ask no index.",
)
@click.option(
    "--index",
    metavar="URL",
    envvar="APPSDK_ASSETS_INDEX",
    help="Index of the releases on a mirror, or a file: controller-tools' envtest-releases.yaml, "
    "or one like it. Without it, only installed versions are available.",
)
@click.option(
    "--bin-dir",
    metavar="FOLDER",
    help="Folder of the binaries; default: that of setup-envtest.",
)
@click.option("--os", "system", metavar="OS", help="Operating system, such as linux; * for any.")
@click.option("--arch", metavar="ARCH", help="Architecture, such as amd64; * for any.")
@click.option("--force", is_flag=True, help="Download even what is installed.")
@click.option(
    "--use-env",
    is_flag=True,
    envvar="ENVTEST_USE_ENV",
    help="Take KUBEBUILDER_ASSETS if it has the binaries.",
)
@click.option(
    "-p",
    "--print",
    "form",
    type=click.Choice(["overview", "path", "env"]),
    default="overview",
    help="What 'use' prints.",
)
def command(
    action: str,
    version: str,
    installed: bool,
    index: str | None,
    bin_dir: str | None,
    system: str | None,
    arch: str | None,
    force: bool,
    use_env: bool,
    form: str,
) -> None:
    """Get etcd, kube-apiserver and kubectl for tests, as setup-envtest does, and in its folders.

    \b
    list      prints the installed versions, and those of the index
    use       downloads a version unless it is installed, and prints its folder
    path      the same, but prints only the folder, for KUBEBUILDER_ASSETS
    sideload  installs a version from an archive on standard input
    cleanup   deletes versions

    VERSION is 1.36.1; 1.36 or 1.36.x for any patch; ~1.36.1 for that patch or a later one; <1.30 or
    <=1.30.2 for older ones; nothing or 'latest' for the newest of the index. With ! at the end the
    index is asked for the newest one although another is installed.

    Downloads are checked by the SHA-512 of the index.
    """
    from appsdk_operator.cli import _assets

    here = _assets.this_platform()
    platform = _assets.Platform(system or here.os, arch or here.arch)
    store = _assets.Store(Path(bin_dir) if bin_dir else _assets.default_folder())
    source = None if installed else index
    if installed and force:
        raise click.UsageError("--installed and --force: give only one of them")
    try:
        selector = _assets.Selector.parse(version)
        if action == "list":
            _list(selector, platform, store, source)
        elif action == "cleanup":
            _clean_up(selector, platform, store, version)
        elif action == "sideload":
            _show(_sideloaded(selector, platform, store), store, form)
        elif use_env and _is_usable(os.environ.get("KUBEBUILDER_ASSETS", "")):
            _print(Path(os.environ["KUBEBUILDER_ASSETS"]), form if action == "use" else "path")
        else:
            item = _used(selector, platform, store, source, force)
            _show(item, store, form if action == "use" else "path")
    except (_assets.AssetsError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _list(selector: Selector, platform: Platform, store: Store, index: str | None) -> None:
    for item in store.items(selector, platform):
        click.echo(f"(installed)  v{item.number}  {item.platform}")
    for archive in _available(selector, platform, index):
        click.echo(f"(available)  v{archive.item.number}  {archive.item.platform}")


def _clean_up(selector: Selector, platform: Platform, store: Store, version: str) -> None:
    if not version:
        raise click.UsageError("give the versions to delete: 1.30, '<1.30', or latest-on-disk")
    found = store.items(selector, platform)
    # All versions match what stands for the newest of them.
    for item in found[:1] if version.startswith("latest") else found:
        store.remove(item)
        click.echo(f"removed v{item.number}  {item.platform}")


def _sideloaded(selector: Selector, platform: Platform, store: Store) -> Item:
    from appsdk_operator.cli._assets import Item

    if selector.exact is None or "*" in (platform.os, platform.arch):
        raise click.UsageError(
            "give the version of the archive, such as 1.36.1, and one --os and --arch"
        )
    item = Item(selector.exact, platform)
    store.add(item, sys.stdin.buffer)
    return item


def _used(
    selector: Selector, platform: Platform, store: Store, index: str | None, force: bool
) -> Item:
    """An installed version; it is downloaded if need be."""
    from appsdk_operator.cli._assets import AssetsError, download

    if "*" in (platform.os, platform.arch):
        raise click.UsageError("give one --os and one --arch")
    present = store.items(selector, platform)
    asks = index is not None and (force or not present or selector.asks_index)
    found = _available(selector, platform, index) if asks else []
    newest = found[0] if found else None
    if newest is not None and (force or not present or newest.item.version > present[0].version):
        download(newest, store)
        return newest.item
    if present and not force:
        return present[0]
    if index is None:
        raise AssetsError(
            f"no version {selector.text} for {platform} is installed: give the index of a mirror "
            "with --index or APPSDK_ASSETS_INDEX, or install an archive with 'assets sideload'"
        )
    raise AssetsError(
        f"{index} has no version {selector.text} for {platform}: 'assets list' shows what it has"
    )


def _available(selector: Selector, platform: Platform, index: str | None) -> list[Archive]:
    from appsdk_operator.cli._assets import fits, read_index

    if index is None:
        return []
    return [each for each in read_index(index) if fits(each.item, selector, platform)]


def _is_usable(folder: str) -> bool:
    from appsdk_operator.cli._assets import PROGRAMS

    return bool(folder) and all((Path(folder) / name).is_file() for name in PROGRAMS)


def _show(item: Item, store: Store, form: str) -> None:
    if form == "overview":
        click.echo(f"Version: {item.number}\nOS/Arch: {item.platform}")
    _print(store.path(item), form)


def _print(path: Path, form: str) -> None:
    texts = {
        "overview": f"Path: {path}",
        "path": str(path),
        "env": f"export KUBEBUILDER_ASSETS={shlex.quote(str(path))}",
    }
    click.echo(texts[form])
