"""The objects that the generators and charts of a Git tree make, as far as they show how device plugins are set up.

A chart is not rendered: the values that its objects copy are written into these objects. Follows NVIDIA/gpu-operator v26.7:
deployments/gpu-operator; NVIDIA/k8s-device-plugin v0.20: deployments/helm; intel/helm-charts: charts/gpu-device-plugin; bjw-s' app-template.
"""

from __future__ import annotations

from posixpath import basename, dirname, join
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.gitops.argo_values import merged, parsed
from analysis.gitops.kustomizations import is_kustomization
from analysis.gitops.sources import APPLICATION, RELEASE
from analysis.gitops.values_files import ValuesFile, ValuesFiles
from dra.raw import Object, inside, items, mapping, strings, text
from webhook.names import PLUGIN_FOLDER
from webhook.translate import group_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from analysis.gitops.tree import Tree
    from cluster.manifests import Document

_SOURCES: Final = ("OCIRepository", "HelmChart")
_INTEL: Final = {"intel-device-plugins-gpu": "GpuDevicePlugin", "intel-device-plugins-qat": "QatDevicePlugin"}


class Release(NamedTuple):
    """A chart with values, which Flux, Argo CD or kustomize renders."""

    kind: str
    name: str
    namespace: str
    chart: str
    values: Object
    version: str = ""  # of the chart; "" if it is not in the tree
    number: int = 0  # of the document
    files: tuple[ValuesFile, ...] = ()  # whose values are among `values`, also those in a kustomization

    @property
    def reference(self) -> Object:
        """The owner reference of what the chart makes."""
        return {"kind": self.kind, "name": self.name, "controller": True}


def made_objects(documents: Sequence[Document], tree: Tree) -> list[Object]:
    """Return the ConfigMaps that kustomizations generate, and the settings of device plugins that charts install.

    `tree` is the tree of the documents.
    """
    content = _contents(documents, tree)
    made: list[Object] = []
    for number, document in enumerate(documents):
        if is_kustomization(document):
            made += _generated(document, tree.namespace_of(number), content)
    for release in releases(documents, tree):
        made += _of_chart(release)
    return made


def _contents(documents: Sequence[Document], tree: Tree) -> Callable[[str], str]:
    """Return a function: the text of a file with one document, "" for any other."""
    by_file: dict[str, list[Document]] = {}
    for document in documents:
        by_file.setdefault(document.file, []).append(document)
    by_path = {tree.absolute(file): of_file for file, of_file in by_file.items()}

    def content(path: str) -> str:
        of_file = by_path.get(tree.absolute(path), [])
        return of_file[0].text if len(of_file) == 1 else ""

    return content


def releases(documents: Sequence[Document], tree: Tree) -> Iterator[Release]:
    """Yield the charts of HelmReleases and Applications, of kustomizations with `helmCharts`, and charts in the tree with their values."""
    values_files = ValuesFiles(documents, tree)
    charts: dict[tuple[str, str], tuple[str, str]] = {}  # chart and version, by kind and name of the source
    for document in documents:
        kind, spec = group_kind(document.object)[1], inside(document.object, "spec")
        if kind in _SOURCES:
            name = text(inside(document.object, "metadata").get("name"))
            ref = inside(spec, "ref")
            version = text(ref.get("semver")) or text(ref.get("tag")) or text(spec.get("version"))
            charts[kind, name] = basename(text(spec.get("url"))) or text(spec.get("chart")), version
    for number, document in enumerate(documents):
        for release in _releases_in(number, document, values_files, charts, tree.namespace_of(number)):
            values: Object = {}
            for file in release.files:
                values = merged(values, file.values)
            yield release._replace(number=number, values=merged(values, release.values) if values else release.values)


def _releases_in(
    number: int,
    document: Document,
    values_files: ValuesFiles,
    charts: Mapping[tuple[str, str], tuple[str, str]],
    set_namespace: str,
) -> Iterator[Release]:
    obj = document.placed
    metadata, spec = inside(obj, "metadata"), inside(obj, "spec")
    name, namespace = text(metadata.get("name")), text(metadata.get("namespace")) or "default"
    match group_kind(obj):
        case of_kind if of_kind == RELEASE and name:
            reference = inside(spec, "chartRef")
            source = text(reference.get("kind")), text(reference.get("name"))
            own = inside(spec, "chart", "spec")
            chart, version = charts.get(source, (source[1], ""))
            yield Release(
                "HelmRelease",
                name,
                text(spec.get("targetNamespace")) or namespace,
                basename(text(own.get("chart")) or chart),
                inside(spec, "values"),
                text(own.get("version")) or version,
                files=tuple(values_files.of_references(number, spec)),
            )
        case of_kind if of_kind == APPLICATION and name:
            target = text(inside(spec, "destination").get("namespace")) or namespace
            sources = (inside(spec, "source"), *items(spec, "sources"))
            for part in sources:
                files = tuple(values_files.of_application(document, part, sources))
                if (chart := text(part.get("chart"))) or files:
                    helm = inside(part, "helm")
                    written = helm.get("values")
                    values = inside(helm, "valuesObject") or mapping(written) or parsed(text(written))
                    version = text(part.get("targetRevision")) if chart else ""
                    yield Release("Application", name, target, chart, values, version, files=files)
    if basename(document.file) == "Chart.yaml":
        for chart, version, file in values_files.of_chart(document):
            name = basename(dirname(document.file)) or chart
            yield Release("Chart", name, set_namespace or "default", chart, {}, version, files=(file,))
    charts_of_kustomization = items(obj, "helmCharts") if is_kustomization(document) else []
    for index, part in enumerate(charts_of_kustomization):
        of_chart = text(part.get("namespace")) or text(obj.get("namespace")) or "default"
        chart = text(part.get("name"))
        name = text(part.get("releaseName")) or chart
        path = text(part.get("valuesFile"))
        files = tuple(values_files.at(join(dirname(document.file), path))) if path else ()
        if inline := inside(part, "valuesInline"):
            files += (ValuesFile(number, f"/helmCharts/{index}/valuesInline", inline),)
        yield Release("Kustomization", name, of_chart, chart, inline, text(part.get("version")), files=files)


def _generated(kustomization: Document, namespace: str, content: Callable[[str], str]) -> Iterator[Object]:
    folder, obj = dirname(kustomization.file), kustomization.object
    for generator in items(obj, "configMapGenerator"):
        data: dict[str, str] = {}
        for entry in strings(generator, "files"):
            key, separator, path = entry.partition("=")
            data[key if separator else basename(key)] = content(join(folder, path if separator else key))
        for entry in strings(generator, "literals"):
            key, _, data[key] = entry.partition("=")
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": text(generator.get("name")),
                "namespace": namespace or text(generator.get("namespace")) or "default",
            },
            "data": data,
        }


def _of_chart(release: Release) -> Iterator[Object]:
    values = release.values
    if kind := _INTEL.get(release.chart):
        yield {
            "apiVersion": "deviceplugin.intel.com/v1",
            "kind": kind,
            "metadata": {"name": text(values.get("name")) or release.name, "ownerReferences": [release.reference]},
            "spec": {name: values[name] for name in ("sharedDevNum", "nodeSelector") if name in values},
        }
    elif release.chart == "gpu-operator":
        policy = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"}}
        yield policy | {"spec": values}
        config = inside(values, "devicePlugin", "config")
        if config.get("create") is True:
            yield _config_map(release, text(config.get("name")), inside(config, "data"))
    elif release.chart == "nvidia-device-plugin":
        config = inside(values, "config")
        name = text(config.get("name")) or f"{release.name}-configs"
        if maps := inside(config, "map"):
            yield _config_map(release, name, maps)
        env = [{"name": "CONFIG_FILE", "value": "/config/config.yaml"}, {"name": "NODE_LABEL", "value": "set"}]
        env += [{"name": "DEFAULT_CONFIG", "value": config["default"]}] if config.get("default") else []
        container = {"name": "plugin", "image": "nvcr.io/nvidia/k8s-device-plugin", "env": env}
        yield _daemon_set(
            release, release.name, [container], [{"name": "configs", "configMap": {"name": name}}], values
        )
    elif _serves_kubelet(values):
        for name, controller in inside(values, "controllers").items():
            if mapping(controller).get("type") == "daemonset":
                containers = [
                    {**container, "name": key, "image": text(inside(container, "image").get("repository"))}
                    for key, container in inside(controller, "containers").items()
                    if isinstance(container, dict)
                ]
                pod = inside(controller, "pod") or inside(values, "defaultPodOptions")
                yield _daemon_set(release, name, containers, [], pod)


def _config_map(release: Release, name: str, data: Object) -> Object:
    metadata = {"name": name, "namespace": release.namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _daemon_set(release: Release, name: str, containers: list[Object], volumes: list[Object], pod: Object) -> Object:
    plugins = {"name": "plugins", "hostPath": {"path": PLUGIN_FOLDER}}
    spec = {
        "nodeSelector": inside(pod, "nodeSelector"),
        "containers": containers,
        "volumes": [plugins, *volumes],
    }
    metadata = {"name": name, "namespace": release.namespace, "ownerReferences": [release.reference]}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {"template": {"spec": spec}}}


def _serves_kubelet(values: Object) -> bool:
    """Return whether app-template mounts the folder of kubelet's device plugins."""
    return any(
        text(mapping(volume).get("hostPath")).startswith(PLUGIN_FOLDER)
        for volume in inside(values, "persistence").values()
    )
