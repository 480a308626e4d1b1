"""Autoscalers, and whether they make nodes for pods that ask by claims. Pure.

| autoscaler | what becomes of a pod with claims |
|---|---|
| Karpenter before 1.7 | a node for its cpu and memory, whatever devices it has |
| Karpenter from 1.7, `--ignore-dra-requests` as it is by default | no node is made for it |
| ... `--ignore-dra-requests=false` | its claims are considered |
| cluster-autoscaler before 1.32 | no node is made for it |
| ... 1.32 to 1.34, without `--enable-dynamic-resource-allocation` | no node is made for it |
| ... with it, and from 1.35 on always | its claims are considered; of a group without nodes only if its provider tells its slices |

Looked at were kubernetes-sigs/karpenter v1.6.0 to v1.14.1 (pkg/operator/options, pkg/controllers/provisioning/scheduling) and
kubernetes/autoscaler cluster-autoscaler-1.31.0 to 1.36.0 (config/flags, and its page on DRA).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from allocator.pods import refusal
from dra.objects import Node, NodeSpec, Pod, PodSpec
from dra.raw import inside, items, strings
from dra.wire import WireError, convert
from webhook.dialects import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dra.raw import Object
    from webhook.dialects import Selected

KARPENTER, CLUSTER_AUTOSCALER = "Karpenter", "cluster-autoscaler"
STATUS = "cluster-autoscaler-status"  # the ConfigMap that the autoscaler keeps in its namespace
_POOL = "karpenter.sh/nodepool"
# Labels that a cloud gives its nodes, whatever a NodePool says. Others have to stand in the NodePool.
_CLOUDS = re.compile(
    r"(.*\.)?(kubernetes\.io|karpenter\.sh|karpenter\.k8s\.aws|karpenter\.azure\.com|eks\.amazonaws\.com)/.*"
)
_HOSTNAME = "kubernetes.io/hostname"
_VERSION = re.compile(r":v?1\.([0-9]{1,4})[.\w-]*(?:@.*)?$")
_TAG = re.compile(r"(?::[^/:@]*)?(?:@.*)?$")
_TRUE = frozenset(("", "true", "1", "t", "T", "TRUE", "True"))
_MOST = 256  # pools, and groups of a status


class NodePool(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that Karpenter makes: what it promises of their labels, and their taints."""

    name: str
    labels: Mapping[str, str] = {}
    requirements: tuple[Selection, ...] = ()
    node: Node = Node()

    def admits(self, selected: Selected, pod: Pod) -> bool:
        """Say whether a node of the pool can be one that a pod demands, as far as labels and taints tell."""
        if refusal(pod, self.node, {}):
            return False
        terms = selected.terms or ((),)
        return any(all(self._allows(one) for one in (*selected.always, *term)) for term in terms)

    def _allows(self, selection: Selection) -> bool:
        key, operator, values = selection
        if key == _HOSTNAME:
            return operator != "In"  # a node that is there
        fixed = self.name if key == _POOL else self.labels.get(key)
        own = [one for one in self.requirements if one.key == key]
        if fixed is None and not own:
            return operator in ("NotIn", "DoesNotExist") or bool(_CLOUDS.fullmatch(key))
        if operator == "DoesNotExist":
            return False
        possible = [value for value in values if fixed in (None, value) and all(_permits(one, value) for one in own)]
        if operator == "In":
            return bool(possible)
        # Of a list of values, one that is not shut out.
        offered = (
            [fixed] if fixed is not None else [value for one in own if one.operator == "In" for value in one.values]
        )
        return operator != "NotIn" or not offered or any(value not in values for value in offered)


class Autoscaler(msgspec.Struct, frozen=True, kw_only=True):
    """An autoscaler: where it stands, its minor version if that is known, and whether it considers claims."""

    name: str
    where: str = ""
    minor: int | None = None
    considers: bool = False
    pools: tuple[NodePool, ...] = ()
    # Node groups that have no node.
    empty: tuple[str, ...] = ()

    def neglects(self, selected: Selected, pod: Pod) -> str:
        """Say what becomes of a pod with claims whose node would have to be made; "" if the claims are considered, or it makes none for it."""
        if self.considers:
            return ""
        if self.name == KARPENTER:
            pool = next((pool.name for pool in self.pools if pool.admits(selected, pod)), "")
            if not pool:
                return ""
            if self.minor is not None and self.minor < 7:
                return f"Karpenter 1.{self.minor} (NodePool {pool}) makes nodes without a look at claims"
            return f"Karpenter (NodePool {pool}) makes no node for a pod with claims"
        version = "" if self.minor is None else f" 1.{self.minor}"
        return f"cluster-autoscaler{version} makes no node for a pod with claims"

    @property
    def remedy(self) -> str:
        """Say what has it consider claims."""
        if self.name == KARPENTER:
            upgrade = "upgrade it and " if self.minor is not None and self.minor < 7 else ""
            return f"{upgrade}set --ignore-dra-requests=false"
        return "upgrade it to 1.35, or set --enable-dynamic-resource-allocation from 1.32 on"


def autoscalers(objects: Iterable[Object]) -> tuple[Autoscaler, ...]:
    """Read which autoscalers there are among some objects."""
    pools: list[NodePool] = []
    found: dict[str, Autoscaler] = {}
    empty: tuple[str, ...] = ()
    for one in objects:
        match one.get("kind"):
            case "NodePool" if str(one.get("apiVersion")).startswith("karpenter.sh/") and len(pools) < _MOST:
                pools.append(_pool(one))
            case "Deployment":
                found |= {each.name: each for each in _deployed(one)}
            case "ConfigMap" if inside(one, "metadata").get("name") == STATUS:
                empty = tuple(_empty_groups(one))
    if pools:
        karpenter = found.get(KARPENTER, Autoscaler(name=KARPENTER))
        found[KARPENTER] = msgspec.structs.replace(karpenter, pools=tuple(pools))
    if empty:
        scaler = found.get(CLUSTER_AUTOSCALER, Autoscaler(name=CLUSTER_AUTOSCALER, considers=True))
        found[CLUSTER_AUTOSCALER] = msgspec.structs.replace(scaler, empty=empty)
    return tuple(found.values())


def _deployed(deployment: Object) -> Iterator[Autoscaler]:
    """Read the autoscaler of a Deployment, if it is one, by its image, variables and arguments."""
    metadata = inside(deployment, "metadata")
    where = f"Deployment {metadata.get('namespace') or 'default'}/{metadata.get('name')}"
    for container in items(inside(deployment, "spec", "template", "spec"), "containers"):
        image = str(container.get("image"))
        version = _VERSION.search(image)
        minor = int(version[1]) if version else None
        path = _TAG.sub("", image)
        said = strings(container, "command", "args")
        if path.endswith("/cluster-autoscaler") or path.startswith("cluster-autoscaler"):
            flag = _flag(said, "enable-dynamic-resource-allocation", "")
            asked = flag is not None and flag in _TRUE
            considers = minor is not None and (minor >= 35 or (minor >= 32 and asked))
            yield Autoscaler(
                name=CLUSTER_AUTOSCALER, where=where, minor=minor, considers=considers or (minor is None and asked)
            )
        elif "karpenter" in path and path.endswith(("/controller", "/karpenter", "/karpenter-controller")):
            variables = {str(one.get("name")): one.get("value") for one in items(container, "env")}
            flag = _flag(said, "ignore-dra-requests", variables.get("IGNORE_DRA_REQUESTS"))
            considers = flag == "false" and not (minor is not None and minor < 7)
            yield Autoscaler(name=KARPENTER, where=where, minor=minor, considers=considers)


def _flag(words: Iterable[str], name: str, otherwise: object) -> str | None:
    """Give the value of a flag, of two the last; "" where it stands alone."""
    value = otherwise if isinstance(otherwise, str) and otherwise else None
    for word in words:
        said, _, text = word.partition("=")
        if said in (f"--{name}", f"-{name}"):
            value = text
    return value


def _pool(obj: Object) -> NodePool:
    template = inside(obj, "spec", "template")
    spec = inside(template, "spec")
    requirements = tuple(
        Selection(str(one.get("key")), str(one.get("operator")), tuple(map(str, one.get("values") or ())))
        for one in items(spec, "requirements")[:_MOST]
        if isinstance(one.get("values") or [], list)
    )
    try:
        node = convert({"spec": {"taints": items(spec, "taints")}}, Node)
    except WireError:
        node = Node(spec=NodeSpec())
    labels = {key: value for key, value in inside(template, "metadata", "labels").items() if isinstance(value, str)}
    return NodePool(name=str(inside(obj, "metadata").get("name")), labels=labels, requirements=requirements, node=node)


def _permits(requirement: Selection, value: str) -> bool:
    if requirement.operator == "In":
        return value in requirement.values
    if requirement.operator == "NotIn":
        return value not in requirement.values
    return requirement.operator != "DoesNotExist"


def _empty_groups(config_map: Object) -> Iterator[str]:
    """Name the groups without a node in the status that the autoscaler writes (from 1.30 on, as YAML)."""
    for one in items(inside(config_map, "data", "status"), "nodeGroups")[:_MOST]:
        health = inside(one, "health")
        if health.get("cloudProviderTarget") == 0 and health.get("maxSize") != 0:
            yield str(one.get("name"))


def placed(spec: Mapping[str, Any]) -> Pod:
    """Give a pod with those tolerations alone that a spec has; none where they are not readable."""
    try:
        return Pod(
            spec=PodSpec(tolerations=convert({"tolerations": spec.get("tolerations") or []}, PodSpec).tolerations)
        )
    except WireError:
        return Pod()
