"""Where chart values contain pods and a place for claims: one row for each chart. The plan and the edits use the same rows.

Follows bjw-s-labs/helm-charts dfaf83d1: charts/library/common/templates/lib/pod/_getOption.tpl, where an option of a controller's `pod`
replaces that of `defaultPodOptions`; immich-app/immich-charts 086caa9: 0.10.0 is the first with common 4.3; ray-project/kuberay feeaf72:
helm-chart/ray-cluster, ray-operator/controllers/ray/common/pod.go; otwld/ollama-helm eadf03e: templates/resourceclaimtemplate.yaml;
llm-d-incubation/llm-d-modelservice 3051935: templates/_helpers-dra.tpl.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.migration.chart_versions import minor_version
from analysis.migration.indirect import IndirectUse, drivers_of
from cluster.manifests import CannotEdit
from dra.pointer import mappings_in, split
from dra.raw import Object, containers_of, inside, items, mapping, text
from webhook.translate import resolve_pointer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from analysis.gitops import Release
    from analysis.migration.plan import Consumer

    Requests = Mapping[str, Sequence[Consumer]]  # of a pod, by the pointer from the pod to the container

OTHER_WAYS: Final = "use `extendedResourceName` (Kubernetes 1.36), a patch of its output, or ask its authors"
_AMOUNTS: Final = ("limits", "requests")
_AMOUNT: Final = r"/resources/(?:limits|requests)/[^/]+"
_GPU: Final = re.compile(r".*gpu|nvidia\.com/mig-.*")


class Switch(NamedTuple):
    """A map in the values by which a chart requests devices, or names a claim template instead."""

    place: str  # in the values
    keys: Mapping[str, str]  # the key that the chart requests, by its `type`

    def key(self, switch: Object) -> str:
        """Return the key that the chart requests; "" if no claim can replace the request."""
        is_counted = switch.get("enabled") is True and isinstance(switch.get("number", 1), int)
        is_whole = inside(switch, "mig").get("enabled") is not True
        return self.keys.get(text(switch.get("type")), "") if is_counted and is_whole else ""

    def uses_in(self, obj: Object) -> Iterator[IndirectUse]:
        """Yield the switches without a number of devices: their chart requests one."""
        for pointer, switch in mappings_in(obj.get("spec"), "/spec"):
            is_default = "number" not in switch and switch.get("draEnabled") is not True
            if pointer.endswith(self.place) and is_default and (key := self.key(switch)):
                yield IndirectUse(pointer, "gpu", "", drivers_of(key), is_requested=True)


class Chart(NamedTuple):
    """A chart whose values have a place for claims."""

    since: tuple[int, int]  # the first version with the place
    place: str  # for a person
    amount: re.Pattern[str] | None = (
        None  # of the pointer to an amount, with groups for values, pod and container; None: no edit
    )
    options: str = ""  # from a pod to the map with its claims
    options_of_all: str = ""  # from the values to the map with the claims of all pods without own ones
    number: tuple[str, str] = ("", "")  # a map of a pod, and its member with the number of GPUs
    switch: Switch | None = None

    def place_of(self, pointer: str) -> tuple[str, str, str] | None:
        """Return the pointers to the values, from there to the pod, and from there to the container of an amount; None if no lens leads there."""
        match = self.amount and self.amount.fullmatch(pointer)
        return (match["values"], match["pod"], match["container"]) if match else None

    def key_of(self, values: Object, key: str) -> str:
        """Return the key of a request or of the chart's switch; "" if the chart has no place for the claim."""
        own = self.switch.key(inside(values, *split(self.switch.place))) if self.switch else key
        return own if own == key or "/" not in key else ""


_COMMON: Final = Chart(
    (4, 3),
    "`controllers.NAME.pod.resourceClaims` and `controllers.NAME.containers.NAME.resources.claims`",
    re.compile(rf"(?P<values>.*)(?P<pod>/controllers/[^/]+)(?P<container>/(?:initContainers|containers)/[^/]+){_AMOUNT}"),
    options="/pod",
    options_of_all="/defaultPodOptions",
)  # fmt: skip
# By the name of a chart. `common` is the library of app-template, which other charts use, too, also below a prefix.
CHARTS: Final = {
    "app-template": _COMMON,
    "common": _COMMON,
    "immich": _COMMON._replace(since=(0, 10)),
    "ollama": Chart(
        (1, 25),
        "`ollama.gpu.draEnabled: true`, which creates a claim template, or names the one in `draExistingClaimTemplate`",
        re.compile(rf"(?P<values>.*?)(?P<pod>)(?P<container>)(?:/ollama/gpu(?:/.*)?|{_AMOUNT})"),
        switch=Switch("/ollama/gpu", {"": "nvidia.com/gpu", "nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}),
    ),
    "ray-cluster": Chart(
        (1, 6),
        "`resourceClaims`, `resources.claims` and `rayStartParams.num-gpus` of `head`, `worker` or `additionalWorkerGroups.NAME`",
        re.compile(rf"(?P<values>.*?)(?P<pod>/(?:head|worker|additionalWorkerGroups/[^/]+))(?P<container>){_AMOUNT}"),
        # KubeRay passes the number of GPUs to Ray from the limits, unless `rayStartParams` has it.
        number=("rayStartParams", "num-gpus"),
    ),
    "llm-d-modelservice": Chart(
        (0, 4),
        "`accelerator.dra: true`, which creates and names a claim template for each role, with as many devices as `parallelism` says; "
        "remove the keys from `resources`",
    ),
}


def why_by_hand(release: Release, obj: Object, pointer: str, key: str) -> str:
    """Return why the values of a release must be edited by hand, and where to write the claims; "" if the program edits them."""
    chart, name = CHARTS.get(release.chart), release.chart
    if chart is None and _COMMON.place_of(pointer):
        return (
            f"the values of chart {name} look like those of bjw-s' library common, and its version is not known: "
            f"if it is 4.3 or newer, write the claim beside the request: {_COMMON.place}"
        )
    if chart is None:
        return f"drawbridge knows no place for claims in chart {name}: {OTHER_WAYS}"
    if release.version and minor_version(release.version) < chart.since:
        return f"update chart {name} {release.version} to {'.'.join(map(str, chart.since))} or newer: {chart.place}"
    place = chart.place_of(pointer)
    if place is None or not chart.key_of(mapping(resolve_pointer(obj, place[0])), key):
        return f"drawbridge knows no place for this claim in the values of chart {name}: write {chart.place}"
    return ""


def pod_at(chart: Chart, values: Object, pod: str, requests: Requests, release: Release) -> Object:
    """Return the pod at a place in values: its containers with these requests, and its existing claims."""
    spec: dict[str, list[Object]] = {"initContainers": [], "containers": []}
    for container, consumers in requests.items():
        number = str(inside(values, *split(chart.switch.place)).get("number", 1)) if chart.switch else ""
        amounts = {chart.key_of(values, consumer.key): consumer.amount or number for consumer in consumers}
        resources: Object = {"limits": amounts}
        if claims := items(inside(values, *split(f"{pod}{container}/resources")), "claims"):
            resources["claims"] = claims
        kind = "initContainers" if container.startswith("/initContainers/") else "containers"
        spec[kind].append({"name": _name(container), "image": "image", "resources": resources})
    if not spec["containers"]:
        spec["containers"].append({"name": "without-requests", "image": "image"})
    own, of_all = inside(values, *split(pod + chart.options)), inside(values, *split(chart.options_of_all))
    if claims := items(own if "resourceClaims" in own or not chart.options_of_all else of_all, "resourceClaims"):
        spec["resourceClaims"] = claims
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": release.name, "namespace": release.namespace},
        "spec": spec,
    }


def put(chart: Chart, values: Object, pod: str, requests: Requests, translated: Object) -> Iterator[Object]:
    """Yield a JSON patch that replaces these requests of a pod in the values by the claims of a translated pod."""
    spec = inside(translated, "spec")
    containers = {container["name"]: container for container in containers_of(spec)}
    for container, consumers in requests.items():
        path = f"{pod}{container}/resources"
        kept = _without_keys(inside(values, *split(path)), {split(consumer.place)[-1] for consumer in consumers})
        claims = items(inside(containers[_name(container)], "resources"), "claims")
        if chart.switch is None:
            yield {"op": "add", "path": path, "value": {**kept, "claims": claims}}
        elif inside(values, *split(path)):
            yield {"op": "replace", "path": path, "value": kept} if kept else {"op": "remove", "path": path}
    if chart.switch:
        template = spec["resourceClaims"][0].get("resourceClaimTemplateName")
        if template is None:
            raise CannotEdit("its chart names claim templates, and no claims")
        for name, value in (("draEnabled", True), ("draExistingClaimTemplate", template)):
            yield {"op": "add", "path": f"{chart.switch.place}/{name}", "value": value}
        return
    path, claims = _options(chart, values, pod), spec["resourceClaims"]
    if inside(values, *split(path)):
        yield {"op": "add", "path": f"{path}/resourceClaims", "value": claims}
    else:
        yield {"op": "add", "path": path, "value": {"resourceClaims": claims}}
    field, number = chart.number
    gpus = [
        consumer.amount for consumers in requests.values() for consumer in consumers if _GPU.fullmatch(consumer.key)
    ]
    if field and gpus:
        parameters = inside(values, *split(f"{pod}/{field}"))
        yield {"op": "add", "path": f"{pod}/{field}", "value": {number: gpus[0], **parameters}}


def _options(chart: Chart, values: Object, pod: str) -> str:
    """Return the pointer to the map with a pod's claims. It is the map for all pods if the pod is the only one and has no map of its own."""
    own = pod + chart.options
    options, of_all = inside(values, *split(own)), inside(values, *split(chart.options_of_all))
    has_others = len(inside(values, *split(pod)[:-1])) > 1
    if not chart.options_of_all or has_others or "resourceClaims" in options:
        return own
    return own if options and "resourceClaims" not in of_all else chart.options_of_all


def _name(container: str) -> str:
    return split(container)[-1] if container else "main"


def _without_keys(resources: Object, removed: Collection[str]) -> Object:
    """Return a container's resources without these keys, and without maps that are then empty."""
    kept = dict(resources)
    for part in _AMOUNTS:
        amounts = inside(resources, part)
        if rest := {key: amount for key, amount in amounts.items() if key not in removed}:
            kept[part] = rest
        elif amounts:
            del kept[part]
    return kept
