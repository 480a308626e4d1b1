"""Reads which autoscalers are installed, and whether they create nodes for pods with resource claims.

| autoscaler | for a pending pod with claims |
|---|---|
| Karpenter before 1.7 | creates a node by CPU and memory, whatever devices it has |
| Karpenter from 1.7, with `--ignore-dra-requests` (the default) | creates no node |
| Karpenter from 1.7, with `--ignore-dra-requests=false` | considers the claims |
| cluster-autoscaler before 1.32 | creates no node |
| cluster-autoscaler 1.32 to 1.34, without `--enable-dynamic-resource-allocation` | creates no node |
| cluster-autoscaler 1.32 to 1.34 with this flag, and always from 1.35 | considers the claims; for an empty node group, only if the cloud provider knows the slices of its nodes |

Follows kubernetes-sigs/karpenter v1.6.0 to v1.14.1 (pkg/operator/options, pkg/controllers/provisioning/scheduling) and
kubernetes/autoscaler cluster-autoscaler-1.31.0 to 1.36.1 (config/flags, and its page on DRA), and kubernetes-sigs/cluster-autoscaler 33c3f97.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from allocator.pods import barriers
from dra.objects import Node, NodeSpec, Pod, PodSpec
from dra.raw import inside, items, strings
from dra.wire import WireError, convert
from webhook.dialects import NodeRequirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dra.raw import Object
    from webhook.dialects import Selected

KARPENTER, CLUSTER_AUTOSCALER = "Karpenter", "cluster-autoscaler"
STATUS = "cluster-autoscaler-status"  # the ConfigMap that the autoscaler writes in its namespace
_POOL = "karpenter.sh/nodepool"
# Labels that managed services set on the nodes of a pool. The service's autoscaler may leave no other trace in the cluster.
POOLS = (
    _POOL,
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "cluster.x-k8s.io/deployment-name",
)
# Labels that the cloud or Karpenter sets on a node. A node has another label only if the NodePool names it.
_CLOUD_LABEL = re.compile(
    r"(.*\.)?(kubernetes\.io|karpenter\.sh|karpenter\.k8s\.aws|karpenter\.azure\.com|eks\.amazonaws\.com)/.*"
)
_HOSTNAME = "kubernetes.io/hostname"
_VERSION = re.compile(r":v?1\.([0-9]{1,4})[.\w-]*$")
_TRUE = frozenset(("", "true", "1", "t", "T", "TRUE", "True"))
_MAX = 256  # maximum numbers that are read: NodePools, requirements of a NodePool, node groups of a status


class NodePool(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that Karpenter can create: their labels and taints."""

    name: str
    labels: Mapping[str, str] = {}
    requirements: tuple[NodeRequirement, ...] = ()
    node: Node = Node()

    def admits(self, selected: Selected, pod: Pod) -> bool:
        """Return whether a new node of the pool can run a pod, by labels and taints."""
        if next(barriers(pod)(self.node, {}), None):
            return False
        terms = selected.terms or ((),)
        return any(all(self._allows(selection) for selection in (*selected.always, *term)) for term in terms)

    def _allows(self, selection: NodeRequirement) -> bool:
        key, operator, values = selection
        if key == _HOSTNAME:
            return operator != "In"  # `In` names existing nodes
        only_value = self.name if key == _POOL else self.labels.get(key)
        own_requirements = [requirement for requirement in self.requirements if requirement.key == key]
        if only_value is None and not own_requirements:
            return operator in ("NotIn", "DoesNotExist") or bool(_CLOUD_LABEL.fullmatch(key))
        if operator == "DoesNotExist":
            return False
        possible = [
            value
            for value in values
            if only_value in (None, value) and all(_permits(requirement, value) for requirement in own_requirements)
        ]
        if operator == "In":
            return bool(possible)
        offered_values = (
            [value for requirement in own_requirements if requirement.operator == "In" for value in requirement.values]
            if only_value is None
            else [only_value]
        )
        return operator != "NotIn" or not offered_values or any(value not in values for value in offered_values)


class Autoscaler(msgspec.Struct, frozen=True, kw_only=True):
    """An autoscaler: its Deployment, its minor version if known, and whether it considers claims."""

    name: str
    where: str = ""
    minor: int | None = None
    considers_claims: bool = False
    pools: tuple[NodePool, ...] = ()
    # Node groups without nodes.
    empty: tuple[str, ...] = ()

    def neglects(self, selected: Selected, pod: Pod) -> str:
        """Return why a pending pod with claims gets no suitable node; "" if claims are considered, or no pool would serve the pod."""
        if self.considers_claims:
            return ""
        if self.name == KARPENTER:
            pool = next((pool.name for pool in self.pools if pool.admits(selected, pod)), "")
            if not pool:
                return ""
            if self.minor is not None and self.minor < 7:
                return f"Karpenter 1.{self.minor} (NodePool {pool}) ignores claims when it creates nodes"
            return f"Karpenter (NodePool {pool}) creates no node for a pod with claims"
        return f"{self.release} creates no node for a pod with claims"

    @property
    def release(self) -> str:
        """The autoscaler's name and version. If the version of cluster-autoscaler is unknown, the versions that may ignore claims."""
        if self.minor is not None:
            return f"{self.name} 1.{self.minor}"
        return self.name if self.name == KARPENTER else f"{self.name} before 1.35"

    @property
    def remedy(self) -> str:
        """What the administrator must change so that the autoscaler considers claims."""
        if self.name == KARPENTER:
            upgrade = "upgrade it and " if self.minor is not None and self.minor < 7 else ""
            return f"{upgrade}set --ignore-dra-requests=false"
        return "upgrade it to 1.35, or set --enable-dynamic-resource-allocation from 1.32 on"


def autoscalers(objects: Iterable[Object]) -> tuple[Autoscaler, ...]:
    pools: list[NodePool] = []
    by_name: dict[str, Autoscaler] = {}
    empty: list[str] = []
    for obj in objects:
        match obj.get("kind"):
            case "NodePool" if str(obj.get("apiVersion")).startswith("karpenter.sh/") and len(pools) < _MAX:
                pools.append(_pool(obj))
            case "Deployment":
                by_name |= {each.name: each for each in _deployed(obj)}
            case "ConfigMap" if inside(obj, "metadata").get("name") == STATUS:
                # The status as the autoscaler writes it from 1.30 on, in YAML.
                groups = items(inside(obj, "data", "status"), "nodeGroups")[:_MAX]
                empty = [
                    str(group.get("name"))
                    for group in groups
                    if (health := inside(group, "health")).get("cloudProviderTarget") == 0
                    and health.get("maxSize") != 0
                ]
    if pools:
        karpenter = by_name.get(KARPENTER, Autoscaler(name=KARPENTER))
        by_name[KARPENTER] = msgspec.structs.replace(karpenter, pools=tuple(pools))
    if empty:
        scaler = by_name.get(CLUSTER_AUTOSCALER, Autoscaler(name=CLUSTER_AUTOSCALER, considers_claims=True))
        by_name[CLUSTER_AUTOSCALER] = msgspec.structs.replace(scaler, empty=tuple(empty))
    return tuple(by_name.values())


def _deployed(deployment: Object) -> Iterator[Autoscaler]:
    """Recognize an autoscaler by the image of a Deployment, and read its flags and variables."""
    metadata = inside(deployment, "metadata")
    where = f"Deployment {metadata.get('namespace') or 'default'}/{metadata.get('name')}"
    for container in items(inside(deployment, "spec", "template", "spec"), "containers"):
        image = str(container.get("image")).partition("@")[0]
        version = _VERSION.search(image)
        minor = int(version[1]) if version else None
        folder, slash, name = image.rpartition("/")
        path = folder + slash + name.partition(":")[0]
        arguments = strings(container, "command", "args")
        if path.rpartition("/")[2].startswith("cluster-autoscaler"):
            is_enabled = _flag(arguments, "enable-dynamic-resource-allocation", "") in _TRUE
            considers_claims = is_enabled if minor is None else minor >= 35 or (minor >= 32 and is_enabled)
            yield Autoscaler(name=CLUSTER_AUTOSCALER, where=where, minor=minor, considers_claims=considers_claims)
        elif "karpenter" in path and path.endswith(("/controller", "/karpenter", "/karpenter-controller")):
            variables = {str(variable.get("name")): variable.get("value") for variable in items(container, "env")}
            flag = _flag(arguments, "ignore-dra-requests", variables.get("IGNORE_DRA_REQUESTS"))
            considers_claims = flag == "false" and not (minor is not None and minor < 7)
            yield Autoscaler(name=KARPENTER, where=where, minor=minor, considers_claims=considers_claims)


def _flag(arguments: Iterable[str], name: str, otherwise: object) -> str | None:
    """Return the last value of a flag; "" for a flag without a value, and `otherwise` without the flag."""
    value = otherwise if isinstance(otherwise, str) and otherwise else None
    for argument in arguments:
        flag, _, text = argument.partition("=")
        if flag in (f"--{name}", f"-{name}"):
            value = text
    return value


def _pool(obj: Object) -> NodePool:
    template = inside(obj, "spec", "template")
    spec = inside(template, "spec")
    requirements = tuple(
        NodeRequirement(str(item.get("key")), str(item.get("operator")), tuple(map(str, item.get("values") or ())))
        for item in items(spec, "requirements")[:_MAX]
        if isinstance(item.get("values") or [], list)
    )
    try:
        node = convert({"spec": {"taints": items(spec, "taints")}}, Node)
    except WireError:
        node = Node(spec=NodeSpec())
    labels = {key: value for key, value in inside(template, "metadata", "labels").items() if isinstance(value, str)}
    return NodePool(name=str(inside(obj, "metadata").get("name")), labels=labels, requirements=requirements, node=node)


def _permits(requirement: NodeRequirement, value: str) -> bool:
    if requirement.operator == "In":
        return value in requirement.values
    if requirement.operator == "NotIn":
        return value not in requirement.values
    return requirement.operator != "DoesNotExist"


def pod_with_tolerations(spec: Mapping[str, Any]) -> Pod:
    """Return a pod that has only the tolerations of a spec; without tolerations if they are malformed."""
    try:
        return Pod(spec=convert({"tolerations": spec.get("tolerations") or []}, PodSpec))
    except WireError:
        return Pod()
