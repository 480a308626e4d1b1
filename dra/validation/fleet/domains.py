"""Rules about ComputeDomains of NVIDIA's driver and the objects that use their channels. They apply if the input has ComputeDomains.

NVIDIA's controller creates a ResourceClaimTemplate for a ComputeDomain. Pods name this template to use the domain's channel, and the
template's parameters name the domain by uid. All channel claims on a node are for channel 0, so each pod with such a template needs a
node of its own (cmd/compute-domain-kubelet-plugin of kubernetes-sigs/dra-driver-nvidia-gpu).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dra.finding import Finding, Findings, finding_at
from dra.objects import is_compute_domain, template_site
from dra.pointer import look_up, text_at
from dra.raw import Object, members
from dra.validation.parameters.entries import recognise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dra.objects import DeviceClaim

    _Key = tuple[str, str]  # namespace, name

# Claims for daemons are created by the driver in its own namespace.
_CHANNEL: Final = "ComputeDomainChannelConfig"
# Kinds whose spec has the number of concurrent pods.
_COUNTED: Final = frozenset(("Deployment", "Job", "ReplicaSet", "StatefulSet"))
_TEMPLATE: Final = "/spec/channel/resourceClaimTemplate/name"


class Domain(NamedTuple):
    """A ComputeDomain. `number` is its position among the judged objects; None if it is in the inventory."""

    number: int | None
    namespace: str
    name: str
    uid: str
    template: str
    nodes: int


class ComputeDomains:
    """The ComputeDomains of the input, in order, with the indexes by which other objects are compared with them."""

    def __init__(self, judged: Iterable[Object] = (), inventory: Iterable[Object] = ()) -> None:
        self.all: list[Domain] = []
        self.by_uid: dict[str, Domain] = {}
        self.by_namespace: dict[str, list[Domain]] = {}
        # The key has the namespace and the name of the template.
        self.by_template: dict[_Key, list[Domain]] = {}
        for number, value in (*enumerate(judged), *((None, value) for value in inventory)):
            if not is_compute_domain(value):
                continue
            namespace = text_at(value, "/metadata/namespace") or "default"
            name = text_at(value, "/metadata/name")
            uid = text_at(value, "/metadata/uid")
            template = text_at(value, _TEMPLATE)
            node_count = look_up(value, "/spec/numNodes")
            nodes = node_count if type(node_count) is int else 0
            domain = Domain(number, namespace, name, uid, template, nodes)
            self.all.append(domain)
            self.by_namespace.setdefault(namespace, []).append(domain)
            if uid:
                self.by_uid[uid] = domain
            if template:
                self.by_template.setdefault((namespace, template), []).append(domain)


def channel_problems(devices: DeviceClaim, path: str, namespace: str, domains: ComputeDomains) -> Findings:
    """Check that the ComputeDomain that a claim's parameters name exists; yield nothing if the input has no ComputeDomain."""
    for index, config in enumerate(devices.config if domains.all else ()):
        recognised = recognise(config.opaque)
        uid = (
            text_at(recognised.parameters, "/domainID")
            if recognised is not None and recognised.name == _CHANNEL
            else ""
        )
        if not uid:
            continue
        pointer = f"{path}/config/{index}/opaque/parameters/domainID"
        domain = domains.by_uid.get(uid)
        in_namespace = domains.by_namespace.get(namespace, [])
        if domain is not None and domain.namespace != namespace:
            message = f"the ComputeDomain {domain.name!r} is in namespace {domain.namespace}"
            hint = "create the claim in that namespace: the driver refuses claims of other namespaces"
            yield finding_at("D710", pointer, message, hint)
        elif domain is None and in_namespace:
            message = f"no ComputeDomain of the input has the uid {uid!r}; the API server sets the uid of a ComputeDomain on creation"
            hint = f"let the pods use the template that the ComputeDomain creates: {in_namespace[0].template}"
            yield finding_at("D710", pointer, message, hint)


def domain_problems(objects: Sequence[Object], domains: ComputeDomains) -> Iterator[tuple[int, Finding]]:
    """Judge ComputeDomains against templates, other ComputeDomains, and the workloads that use their channels."""
    if not domains.all:
        return
    # The objects that contain the name of a domain's template, except claims and ComputeDomains.
    using: dict[_Key, list[Object]] = {key: [] for key in domains.by_template}
    for value in objects:
        namespace = text_at(value, "/metadata/namespace") or "default"
        if value.get("kind") in ("ComputeDomain", "ResourceClaim") or namespace not in domains.by_namespace:
            continue
        texts: set[str] = set()
        pending: list[Any] = [value]
        while pending:
            member = pending.pop()
            if isinstance(member, str):
                texts.add(member)
            elif isinstance(member, dict | list):
                pending += member.values() if isinstance(member, dict) else member
        for text in texts:
            if (namespace, text) in using:
                using[namespace, text].append(value)
    owners = {(text_at(value, "/kind"), text_at(value, "/metadata/name")) for value in objects}
    for key, makers in domains.by_template.items():
        for domain in makers:
            if domain.number is None:
                continue
            same_template = [other.name for other in makers[:2] if other.name != domain.name]
            if same_template:
                message = f"the ComputeDomain {same_template[0]!r} also creates a template {domain.template!r}"
                hint = "give each ComputeDomain its own template name"
                yield (domain.number, finding_at("D711", _TEMPLATE, message, hint))
                continue
            # A template with a uid was read from a cluster, where NVIDIA's controller created it.
            for value in using[key]:
                is_written_by_hand = value.get("kind") == "ResourceClaimTemplate" and not text_at(
                    value, "/metadata/uid"
                )
                if is_written_by_hand and text_at(value, "/metadata/name") == domain.template:
                    message = (
                        f"the ComputeDomain creates the template {domain.template!r}, which is among the manifests"
                    )
                    yield (domain.number, finding_at("D711", _TEMPLATE, message, "leave the template out"))
                    break
            # The domain's numNodes is compared with the number of its pods only if the input has all of these pods.
            counts = [_pods(value, domain, owners) for value in using[key]] if domain.nodes > 0 else []
            pods = sum(count or 0 for count in counts)
            if pods and None not in counts and pods != domain.nodes:
                number = "fewer" if pods < domain.nodes else "more"
                message = (
                    f"numNodes is {domain.nodes}, and {pods} pods use the channel, each on its own node: "
                    f"{number} nodes join the domain than it expects"
                )
                hint = f"write numNodes: {pods}, or leave numNodes out, as the driver's documentation recommends"
                yield (domain.number, finding_at("D711", "/spec/numNodes", message, hint))


def _pods(value: Object, domain: Domain, owners: set[tuple[str, str]]) -> int | None:
    """Return the number of an object's pods that use the channel of a domain; None if the input does not determine it."""
    site = template_site(value)
    if site is None:
        return 0 if value.get("kind") == "ResourceClaimTemplate" else None
    entries = members(look_up(value, f"{site.path}/spec/resourceClaims"))
    template_names = [text_at(entry, "/resourceClaimTemplateName") for entry in entries]
    if domain.template not in template_names:
        return 0
    owner_references = members(look_up(value, "/metadata/ownerReferences"))
    owner_keys = [(text_at(owner, "/kind"), text_at(owner, "/name")) for owner in owner_references]
    if owner_keys:  # its pods are counted for its owner
        return 0 if owners.issuperset(owner_keys) else None
    if not site.path:
        return 1
    if value.get("kind") not in _COUNTED:
        return None
    count = look_up(value, f"{site.path.rpartition('/')[0]}/{site.size}")
    if count is None:
        return 1
    return count if type(count) is int else None
