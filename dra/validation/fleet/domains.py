"""ComputeDomains of NVIDIA's driver beside what uses their channels, as far as the input shows both.

A ComputeDomain makes a ResourceClaimTemplate, and pods reach its channel by that template's name; the entry in it names the domain by uid. All of a node's
channel claims are for channel 0, so the pods that use a domain's template are on as many nodes (cmd/compute-domain-kubelet-plugin of kubernetes-sigs/dra-driver-nvidia-gpu).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from dra.objects import template_site
from dra.pointer import split
from dra.validation.parameters.judge import recognise
from dra.validation.problem import Located, Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dra.objects import DeviceClaim, TemplateSite

    _Object = dict[str, Any]

_API: Final = "resource.nvidia.com/"
# The claims of daemons are the driver's own, in its namespace.
_CHANNEL: Final = "ComputeDomainChannelConfig"
# Kinds that say how many pods they have at once.
_COUNTED: Final = frozenset(("Deployment", "Job", "ReplicaSet", "StatefulSet"))
_TEMPLATE: Final = "/spec/channel/resourceClaimTemplate/name"


class Domain(NamedTuple):
    """A ComputeDomain, and its number among the judged objects if it is one of them."""

    number: int | None
    namespace: str
    name: str
    uid: str
    template: str
    nodes: int


def domains_of(judged: Iterable[_Object], inventory: Iterable[_Object]) -> list[Domain]:
    """Find the ComputeDomains of the input."""
    numbered = [*enumerate(judged), *((None, value) for value in inventory)]
    return [_read(number, value) for number, value in numbered if _is_domain(value)]


def _is_domain(value: _Object) -> bool:
    return value.get("kind") == "ComputeDomain" and str(value.get("apiVersion")).startswith(_API)


def _read(number: int | None, value: _Object) -> Domain:
    nodes = _member(value, "/spec/numNodes")
    return Domain(
        number,
        _text(value, "/metadata/namespace") or "default",
        _text(value, "/metadata/name"),
        _text(value, "/metadata/uid"),
        _text(value, _TEMPLATE),
        nodes if type(nodes) is int else 0,
    )


def _text(value: _Object, path: str) -> str:
    found = _member(value, path)
    return found if isinstance(found, str) else ""


def _member(value: Any, path: str) -> Any:
    for name in split(path):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def channel_problems(devices: DeviceClaim, path: str, namespace: str, domains: Sequence[Domain]) -> Problems:
    """Judge which ComputeDomain the entries of a claim name; nothing where the input holds none."""
    if not domains:
        return
    for index, config in enumerate(devices.config):
        if config.opaque is None:
            continue
        known = recognise(config.opaque)
        if known is None or known.name != _CHANNEL:
            continue
        uid = _text(known.parameters, "/domainID")
        at = f"{path}/config/{index}/opaque/parameters/domainID"
        if uid:
            yield from _named(uid, at, namespace, domains)


def _named(uid: str, at: str, namespace: str, domains: Sequence[Domain]) -> Problems:
    here = [one for one in domains if one.namespace == namespace]
    for domain in domains:
        if domain.uid == uid:
            if domain.namespace != namespace:
                message = f"the ComputeDomain {domain.name!r} is in namespace {domain.namespace}"
                hint = "make the claim there: the driver refuses those of other namespaces"
                yield Problem("D710", at, message, hint)
            return
    if here:
        by_name = [one for one in here if one.name == uid]
        made = (by_name or here)[0].template
        message = f"no ComputeDomain of the input has the uid {uid!r}, which the API server gives when one is created"
        hint = f"let the pods use the template that the ComputeDomain makes: {made}"
        yield Problem("D710", at, message, hint)


def domain_problems(objects: Sequence[_Object], domains: Sequence[Domain]) -> list[Located]:
    """Judge ComputeDomains beside templates, each other, and the workloads that use their channels."""
    found: list[Located] = []
    for domain in domains:
        if domain.number is not None and domain.template:
            problems = [*_same_name(domain, domains), *_template(domain, objects), *_nodes(domain, objects)]
            found += [Located(domain.number, problem) for problem in problems]
    return found


def _same_name(domain: Domain, domains: Sequence[Domain]) -> Problems:
    for other in domains:
        same = (other.namespace, other.template) == (domain.namespace, domain.template)
        if same and other.name != domain.name:
            message = f"the ComputeDomain {other.name!r} makes a template {domain.template!r} as well"
            yield Problem("D711", _TEMPLATE, message, "give each ComputeDomain a template name of its own")
            return


def _template(domain: Domain, objects: Sequence[_Object]) -> Problems:
    """Complain about a template that is written by hand although the domain makes it; one from a cluster was made."""
    for value in objects:
        place = _text(value, "/metadata/namespace") or "default", _text(value, "/metadata/name")
        by_hand = value.get("kind") == "ResourceClaimTemplate" and not _text(value, "/metadata/uid")
        if by_hand and place == (domain.namespace, domain.template):
            message = f"the ComputeDomain makes the template {domain.template!r}, which is among the manifests"
            yield Problem("D711", _TEMPLATE, message, "leave the template out")


def _nodes(domain: Domain, objects: Sequence[_Object]) -> Problems:
    """Compare the nodes that a domain waits for with the pods that use its channel, where the input shows them all."""
    if domain.nodes < 1:
        return
    owners = {(value.get("kind"), _text(value, "/metadata/name")) for value in objects}
    pods = 0
    for value in objects:
        if not _mentions(value, domain):
            continue
        count = _pods(value, domain, owners)
        if count is None:
            return
        pods += count
    if pods and pods != domain.nodes:
        wrong = "it never has them all" if pods < domain.nodes else "more nodes join than it knows of"
        message = f"numNodes is {domain.nodes}, and {pods} pods use its channel, each on a node of its own: {wrong}"
        hint = f"write numNodes: {pods}, or leave it out, as its driver recommends"
        yield Problem("D711", "/spec/numNodes", message, hint)


def _mentions(value: _Object, domain: Domain) -> bool:
    """Whether an object other than templates and ComputeDomains has the name of the domain's template in it."""
    if value.get("kind") in ("ComputeDomain", "ResourceClaim", "ResourceClaimTemplate"):
        return False
    at_home = (_text(value, "/metadata/namespace") or "default") == domain.namespace
    return at_home and domain.template.encode() in msgspec.json.encode(value, enc_hook=str)


def _pods(value: _Object, domain: Domain, owners: set[tuple[Any, str]]) -> int | None:
    """How many pods of an object use the channel of a domain; None if nobody can tell."""
    site = template_site(value)
    if site is None:
        return None
    entries = _member(value, f"{site.path}/spec/resourceClaims")
    names = [_text(entry, "/resourceClaimTemplateName") for entry in _list(entries)]
    if domain.template not in names:
        return 0
    by = [
        (_text(owner, "/kind"), _text(owner, "/name")) for owner in _list(_member(value, "/metadata/ownerReferences"))
    ]
    if by:  # counted where its owner is
        return 0 if owners.issuperset(by) else None
    return _size(value, site)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _size(value: _Object, site: TemplateSite) -> int | None:
    if not site.path:
        return 1
    if value.get("kind") not in _COUNTED:
        return None
    count = _member(value, f"{site.path.rpartition('/')[0]}/{site.size}")
    if count is None:
        return 1
    return count if type(count) is int else None
