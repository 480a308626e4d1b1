"""The role of each place in an object that has a key: whether the key is requested there, or limited, described, offered, repeated.

    members   below these members of a kind: `custompodresources` of an AppWrapper repeats
    kinds     a ResourceQuota limits, a NodeFeatureRule describes
    forms     in a kind that no table has, and in values of charts: `nominalQuota` limits, `allocatable` describes

The first of these that has an answer counts, in the innermost object: an object in a Template or a List is read as itself. Kinds whose
controllers create pods consume (`webhook.translate.workload_kind`). In all other places, the role is unknown.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from dra.objects import template_site
from dra.pointer import split
from dra.raw import mapping
from webhook.reading.suppliers import PLUGIN_KINDS, is_supplying_release
from webhook.translate import COPIES, RENDERED, group_kind, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.raw import Object
    from dra.wire import Json


class PlaceRole(StrEnum):
    """What a place does with the key that it has."""

    CONSUMES = "consumes"  # a pod gets the device
    SUPPLIES = "supplies"  # settings of a device plugin, a driver or an operator
    LIMITS = "limits"
    DESCRIBES = "describes"  # nodes, and templates for nodes
    OFFERS = "offers"  # to the authors of workloads
    REPEATS = "repeats"  # a request that stands elsewhere
    ATTACHES = "attaches"  # a network to a pool of devices
    WEIGHS = "weighs"  # for a scheduler
    UNKNOWN = "unknown"

    @property
    def may_request(self) -> bool:
        return self in (PlaceRole.CONSUMES, PlaceRole.UNKNOWN)


class Place(NamedTuple):
    """The role of a place, with the reason why a key that does not request stays."""

    role: PlaceRole
    why: str = ""
    versions: tuple[str, ...] = ()  # the versions of the API for which this is true; () for all
    # For a kind that names a pool without a domain: where, and the domain that the operator adds; "" is the domain that the SR-IOV network
    # operator has in this cluster.
    pool: tuple[str, str] | None = None

    def is_true_of(self, obj: Mapping[str, Json]) -> bool:
        return not self.versions or str(obj.get("apiVersion")).rpartition("/")[2] in self.versions


_SUPPLIES: Final = Place(
    PlaceRole.SUPPLIES, "it is a setting of what supplies or watches devices, and requests nothing"
)
_NODES: Final = Place(PlaceRole.DESCRIBES, "it describes nodes, and requests nothing")
_OFFERS: Final = Place(PlaceRole.OFFERS, "it offers the key to the authors of workloads, and requests nothing")
_WEIGHS: Final = Place(PlaceRole.WEIGHS, "an extender of the scheduler reads it, and no claims")
_REPEATS: Final = Place(PlaceRole.REPEATS, "it repeats a request of another place")
_NODE_LIMITS: Final = Place(PlaceRole.LIMITS, "it limits the nodes that are created, and requests nothing")
_NETWORK: Final = Place(PlaceRole.ATTACHES, "pods on this network get the key from the network resources injector, and the webhook decides about these pods", pool=("/spec/resourceName", ""))  # fmt: skip

# The kinds of each place, as group/kind.
_ROWS: Final = (
    (Place(PlaceRole.LIMITS, "it limits the key, which claims would bypass: write a DeviceQuota, or a quota of the class"), "/ResourceQuota"),
    (Place(PlaceRole.LIMITS, "it limits or defaults the key: pods in its namespace keep it"), "/LimitRange"),
    (Place(PlaceRole.LIMITS, "it limits the key by a ResourceQuota, which claims would bypass: write a DeviceQuota"), "kubeflow.org/Profile"),
    (Place(PlaceRole.LIMITS, "it counts the key: map the DeviceClass to a resource in Kueue's configuration"), "kueue.x-k8s.io/ClusterQueue kueue.x-k8s.io/ProvisioningRequestConfig kueue.x-k8s.io/Cohort config.kueue.x-k8s.io/Configuration"),
    (Place(PlaceRole.LIMITS, "it counts the key, and does not count claims"), "scheduling.volcano.sh/Queue scheduling.volcano.sh/PodGroup scheduling.sigs.k8s.io/ElasticQuota scheduling.x-k8s.io/ElasticQuota nos.nebuly.com/ElasticQuota nos.nebuly.com/CompositeElasticQuota quota.codeflare.dev/QuotaSubtree quota.koordinator.sh/ElasticQuotaProfile"),
    (Place(PlaceRole.LIMITS, "it limits the GPUs of a queue, and KAI counts claims only with its feature gate for them"), "scheduling.run.ai/Queue"),
    (Place(PlaceRole.LIMITS, "it limits the nodes that are created by this key, and no node has the key without its device plugin: limit the nodes of the pool"), "autoscaling.openshift.io/ClusterAutoscaler"),
    (Place(PlaceRole.LIMITS, "it limits what an autoscaler sets, and requests nothing"), "autoscaling.k8s.io/VerticalPodAutoscaler"),
    (Place(PlaceRole.LIMITS, "it permits the device to virtual machines, and requests nothing"), "kubevirt.io/KubeVirt"),
    (_NODE_LIMITS, "karpenter.sh/NodePool"),
    (_NODE_LIMITS._replace(versions=("v1alpha5",)), "karpenter.sh/Provisioner"),  # aws/karpenter v0.32 and before
    (_NODES, "nfd.k8s-sigs.io/NodeFeatureRule nfd.k8s-sigs.io/NodeFeature cloud.google.com/ComputeClass karpenter.sh/NodeOverlay kueue.x-k8s.io/ResourceFlavor kueue.x-k8s.io/Topology kai.scheduler/Topology topology.volcano.sh/HyperNode topology.node.k8s.io/NodeResourceTopology kind.x-k8s.io/Cluster machine.openshift.io/MachineSet machine.openshift.io/Machine machine.openshift.io/ControlPlaneMachineSet"),
    (_NODES._replace(pool=_NETWORK.pool), "sriovnetwork.openshift.io/SriovNetworkNodePolicy"),
    (_OFFERS, "infrastructure.opendatahub.io/HardwareProfile dashboard.opendatahub.io/HardwareProfile dashboard.opendatahub.io/AcceleratorProfile"),
    (_WEIGHS, "kubescheduler.config.k8s.io/KubeSchedulerConfiguration /Policy"),  # kube-scheduler read a Policy before 1.23
    (_NETWORK, "sriovnetwork.openshift.io/SriovNetwork sriovnetwork.openshift.io/SriovIBNetwork sriovnetwork.openshift.io/OVSNetwork"),
    (_NETWORK._replace(pool=("/spec/resourceName", "nvidia.com")), "mellanox.com/HostDeviceNetwork"),
    (_NETWORK._replace(pool=("/metadata/annotations/k8s.v1.cni.cncf.io~1resourceName", "")), "k8s.cni.cncf.io/NetworkAttachmentDefinition"),
    (_SUPPLIES, "nvidia.com/NVIDIADriver mellanox.com/NicClusterPolicy pci.resource.kubevirt.io/DeviceClassParameters cro.hpsys.ibm.ie.com/ComposabilityRequest cro.hpsys.ibm.ie.com/ComposableResource inference.codeflare.dev/Instaslice inference.redhat.com/Instaslice tensor-fusion.ai/ProviderConfig tensor-fusion.ai/GPUNode tensor-fusion.ai/GPU"),
)  # fmt: skip
_KINDS: Final[dict[tuple[str, ...], Place]] = {
    **dict.fromkeys(PLUGIN_KINDS, _SUPPLIES),
    **dict.fromkeys(COPIES, _REPEATS),
    **{tuple(full_kind.split("/")): place for place, kinds in _ROWS for full_kind in kinds.split()},
}
# By group: members that only repeat what is requested: the objects and results that a test expects, what MCAD counts of a template, and
# patches, which are read with the object that they change (`analysis.gitops.patches`).
_MEMBERS: Final[dict[str, dict[str, Place]]] = {
    "chainsaw.kyverno.io": dict.fromkeys(("assert", "error", "check", "expect"), _REPEATS),
    "kustomize.toolkit.fluxcd.io": dict.fromkeys(("patches", "patchesStrategicMerge", "patchesJson6902"), _REPEATS),
    "helm.toolkit.fluxcd.io": {"postRenderers": _REPEATS},
    "argoproj.io": {"kustomize": _REPEATS},
    # project-codeflare/multi-cluster-app-dispatcher d47de4a43
    "workload.codeflare.dev": {"custompodresources": _REPEATS._replace(versions=("v1beta1",))},
}
# By the name of a member, in lower case. These count in kinds that no table has, and in values of charts.
_FORMS: Final = {
    name: place
    for place, names in (
        (Place(PlaceRole.LIMITS, "it limits the key, and requests nothing"), "hard quota quotas resourcequota nominalquota borrowinglimit lendinglimit deserved guarantee capability resourcelimits maxallowed minallowed maxresources minresources"),
        (_NODES, "allocatable capacity nodepools nodegroups machinepools nodetemplate nodetemplates"),
        (_OFFERS, "identifiers acceleratorprofiles resourceprofiles"),
        (_WEIGHS, "managedresources extenders pluginconfig"),
        (_SUPPLIES, "timeslicing migmanager resourcelist"),
    )
    for name in names.split()
}  # fmt: skip


def place_of(obj: Mapping[str, Json]) -> Place:
    """Return the role of a whole object, by its kind and chart."""
    full_kind = group_kind(obj)
    place = _KINDS.get(full_kind)
    if place is not None and place.is_true_of(obj):
        return place
    if full_kind not in RENDERED and (kind_of(obj) or template_site(obj)):
        return Place(PlaceRole.CONSUMES)
    return _SUPPLIES if is_supplying_release(obj) else Place(PlaceRole.UNKNOWN)


def place_in(obj: Object, pointer: str) -> Place:
    """Return the role of the place at a pointer into an object."""
    place, of_form, repeated = place_of(obj), None, repeated_members(obj)
    value: Json = obj
    for name in split(pointer):
        if isinstance(value, list):
            value = value[int(name)] if name.isdecimal() and int(name) < len(value) else None
        else:
            value = mapping(value).get(name)
            if name in repeated:
                return repeated[name]
            of_form = of_form or _FORMS.get(name.lower())
        if is_object(value):
            place, of_form, repeated = place_of(mapping(value)), None, repeated_members(mapping(value))
    return of_form if of_form is not None and place.role is PlaceRole.UNKNOWN else place


def is_object(value: Json) -> bool:
    """Return whether a value is an object of the API, such as one in a Template."""
    return isinstance(value, dict) and isinstance(value.get("apiVersion"), str) and isinstance(value.get("kind"), str)


def repeated_members(obj: Mapping[str, Json]) -> dict[str, Place]:
    """Return the members of an object that only repeat requests, by name."""
    members = _MEMBERS.get(group_kind(obj)[0], {})
    return {name: place for name, place in members.items() if place.is_true_of(obj)}
