"""Finds charts on this machine, and compares what helm renders from them before and after a move.

Charts may be untrusted. A packed chart is given to helm as it is, and nothing is unpacked here; only a part of an archive is read, for the
version of the chart.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import tarfile
import tempfile
import time
import zlib
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from analysis.migration import newest, rendering
from cli.outside import can_render, render_offline
from cluster.manifests import InputProblem, ManifestError, parse
from dra.raw import Object, text
from dra.texts import list_first
from webhook.translate import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_ALL_SECONDS: Final = 60.0  # for all charts of a command
_READ: Final = 1 << 20  # bytes of a packed chart; helm writes Chart.yaml first
_CHART: Final = "Chart.yaml"
_LISTED: Final = 3  # differences in an error
_INCLUDES: Final = re.compile(r"(?<=template: ).*>: error calling include: template: ", re.DOTALL)
_LONGEST: Final = 300  # characters of a reason
_UNREADABLE: Final = (OSError, EOFError, ValueError, zlib.error, tarfile.TarError, ManifestError)
_REMEDY: Final = (
    "edit this release by hand first, or set `verdict: by hand` for it in a plan, and give that with --plan"
)


class _UncomparedError(Exception):
    """Why a release is not compared."""


class ChartFolder:
    """The packed and unpacked charts in a folder, or in helm's cache if no folder is given."""

    def __init__(self, folder: str) -> None:
        self._name = folder or "helm's cache"
        self._folders = [Path(folder)] if folder else _caches()
        self._found: dict[str, dict[str, Path]] = {}  # by name and version

    def find(self, name: str, version: str) -> str:
        """Return the path of the chart with this version, or the newest one in this range. Raises _UncomparedError."""
        if not version:
            raise _UncomparedError(f"no file of the tree has the version of chart {name}")
        if name not in self._found:
            charts = [(path, _metadata(path)) for path in self._paths(name)]
            self._found[name] = {text(of.get("version")): path for path, of in charts if of.get("name") == name}
        of_name = self._found[name]
        wanted = newest(version, of_name)
        if not wanted:
            raise _UncomparedError(f"no chart {name} {version} in {self._name}")
        return str(of_name[wanted])

    def _paths(self, name: str) -> Iterator[Path]:
        """Yield the files and folders that may have a chart with this name."""
        for folder in self._folders:
            yield from (path for path in sorted(folder.glob("*.tgz")) if path.name.startswith(f"{name}-"))
            yield from (path.parent for path in sorted(folder.glob(f"*/{_CHART}")))
            yield from sorted(folder.glob("*/*.chart"))


def _caches() -> list[Path]:
    """Return the folders in which helm 3 and helm 4 keep charts (helm/helm v3.22.0: pkg/action/install.go; e9b85e4de: pkg/downloader/cache.go)."""
    base = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    cache = os.environ.get("HELM_CACHE_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or base, "helm")
    return [
        Path(os.environ.get(variable) or Path(cache, name))
        for variable, name in (("HELM_REPOSITORY_CACHE", "repository"), ("HELM_CONTENT_CACHE", "content"))
    ]


def _metadata(path: Path) -> Object:
    """Return the Chart.yaml of a packed or unpacked chart; {} if it cannot be read."""
    file = path / _CHART if path.is_dir() else path
    with suppress(*_UNREADABLE):
        if file.is_file():
            for document in parse(_start_of(file) if path.is_dir() else _packed(file)):
                return document.object
    return {}


def _start_of(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(_READ)


def _packed(file: Path) -> bytes:
    """Return the Chart.yaml of an archive."""
    with gzip.open(file) as stream:
        start = BytesIO(stream.read(_READ))
    with tarfile.open(fileobj=start, mode="r:") as archive:
        for member in archive:
            folder, _, name = member.name.removeprefix("./").partition("/")
            if member.isreg() and folder and name == _CHART:
                content = archive.extractfile(member)
                return content.read(_READ) if content else b""
    return b""


def compare_charts(changed: Sequence[rendering.ChangedRelease], charts: ChartFolder) -> list[tuple[str, str]]:
    """Render releases before and after a move. Return the reasons why some were not compared, each with the release.

    Raises ManifestError if a release would change otherwise than the plan says.
    """
    until = time.monotonic() + _ALL_SECONDS
    uncompared = []
    for release in changed:
        try:
            _compare(release, charts, until)
        except _UncomparedError as reason:
            uncompared.append((str(reason), release.name))
    return uncompared


def _compare(release: rendering.ChangedRelease, charts: ChartFolder, until: float) -> None:
    if not release.keys:
        raise _UncomparedError(f"chart {release.chart}: only charts of consumers are rendered")
    if not can_render():
        raise _UncomparedError(f"helm is not installed, so chart {release.chart} was not rendered")
    chart = charts.find(release.release.chart, release.release.version)
    if time.monotonic() > until:
        raise _UncomparedError(f"the charts before {release.chart} took longer than {_ALL_SECONDS:.0f} s")
    before = _render_before(chart, release)
    try:
        after = _render(chart, release, release.new_values)
    except ManifestError as error:
        raise _problem(release, f"cannot be rendered after the move: {_reason(error)}") from error
    changes = rendering.unplanned_changes(release, before, after)
    if changes:
        again = _render_before(chart, release)
        if again.keys() != before.keys():
            raise _UncomparedError(f"chart {release.chart}: its objects have other names each time")
        changes = rendering.unplanned_changes(release, before, after, again)
    if changes:
        raise _problem(release, f"would change otherwise than the plan says: {list_first(changes, _LISTED, '; ')}")
    if not rendering.loses_a_key(release, before, after):
        raise _UncomparedError(f"chart {release.chart}: no container requests {', '.join(sorted(release.keys))}")


def _render_before(chart: str, release: rendering.ChangedRelease) -> dict[str, Object]:
    """Return the objects of a chart before the move. Raises _UncomparedError if they are not known."""
    try:
        return _render(chart, release, release.values)
    except ManifestError as error:
        raise _UncomparedError(f"chart {release.chart}: {_reason(error)}") from error


def _render(chart: str, release: rendering.ChangedRelease, values: Object) -> dict[str, Object]:
    """Return the objects of a chart, by their names. Raises ManifestError."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(msgspec.json.encode(values))
        file.flush()
        of_release = release.release
        rendered = render_offline(chart, of_release.name, of_release.namespace, release.kubernetes, file.name)
    return {name_of(document.object): document.object for document in parse(rendered, chart)}


def _reason(error: ManifestError) -> str:
    """Return why a chart cannot be rendered, without the templates that include the one that fails."""
    message = _INCLUDES.sub("", error.problems[0].message)
    return message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"


def _problem(release: rendering.ChangedRelease, why: str) -> ManifestError:
    return ManifestError([InputProblem(release.file, f"{release.name}: chart {release.chart} {why}", _REMEDY)])
