"""Pods and workloads, as far as they ask for devices (validatePodResourceClaims, validateResourceClaimNames).

Errors are what the API server answers; the rest is what it takes without a word and what never works.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from dra.objects import ObjectMeta, PodSpec, template_site
from dra.pointer import split
from dra.validation.fields import names, shape
from dra.validation.fields.limits import some, wrong_format
from dra.validation.fields.metadata import annotation_map, label_map, metadata
from dra.validation.objects.extended_resources import extended_problems
from dra.validation.parameters.reach import strategy_of
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dra.objects import ContainerClaim, DeviceClaim, PodResourceClaim, TemplateSite
    from dra.validation.fleet.world import World

_MIRROR: Final = "kubernetes.io/config.mirror"


def pod_problems(value: dict[str, Any], world: World, *, complete: bool) -> list[Problem]:
    """Judge a pod or a workload. `complete` says that what the world does not have does not exist."""
    site = template_site(value)
    if site is None:
        return []
    path = site.path
    template = _member(value, path)
    found = _meta(value, "", template=False)
    if not isinstance(template, dict):
        return found
    if path:
        found += _meta(template, path, template=True)
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return found
    shapes = shape.check(spec, PodSpec, f"{path}/spec")
    found += shapes
    if any(problem.code == "D001" for problem in shapes):
        return found
    namespace = _metadata(value).get("namespace")
    home = namespace if isinstance(namespace, str) and namespace else "default"
    typed = shape.read(spec, PodSpec)
    found += extended_problems(typed, f"{path}/spec")
    found += _ephemeral(value, spec, path)
    judge = _Judge(typed, f"{path}/spec", world, home)
    found += judge.entries(mirror=_MIRROR in _annotations(template))
    found += judge.containers()
    found += judge.advice(many=_many(value, site), complete=complete)
    return found


def _ephemeral(value: Mapping[str, Any], spec: Mapping[str, Any], path: str) -> Problems:
    """Debug containers come to a pod that is there already: what has a uid was read from a cluster, where they may stand."""
    if spec.get("ephemeralContainers") and (path or not _metadata(value).get("uid")):
        where = "in a pod template" if path else "on a pod that is created"
        yield Problem("D210", f"{path}/spec/ephemeralContainers", f"ephemeral containers can't stand {where}")


def _meta(value: Mapping[str, Any], path: str, *, template: bool) -> list[Problem]:
    """Judge the metadata of a workload or of its template, which needs no name."""
    raw = value.get("metadata")
    if raw is None and template:
        return []
    found = shape.check({} if raw is None else raw, ObjectMeta, f"{path}/metadata")
    if any(problem.code == "D001" for problem in found):
        return found
    meta = shape.read({} if raw is None else raw, ObjectMeta)
    if template:
        found += label_map(meta.labels, f"{path}/metadata/labels")
        found += annotation_map(meta.annotations, f"{path}/metadata/annotations")
    else:
        found += metadata(meta, f"{path}/metadata", namespaced=True)
    return found


def _metadata(value: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = value.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _annotations(template: Mapping[str, Any]) -> Mapping[str, Any]:
    annotations = _metadata(template).get("annotations")
    return annotations if isinstance(annotations, dict) else {}


def _many(value: Mapping[str, Any], site: TemplateSite) -> bool:
    """Say whether a workload makes more than one pod."""
    if value.get("kind") == "DaemonSet":
        return True
    parent = _member(value, site.path.rpartition("/")[0])
    count = parent.get(site.size) if isinstance(parent, dict) else None
    return isinstance(count, int) and count > 1


def _member(value: Any, path: str) -> Any:
    for name in split(path):
        value = value.get(name) if isinstance(value, dict) else None
    return value


class _Judge:
    """One pod spec with what is known around it."""

    def __init__(self, spec: PodSpec, path: str, world: World, namespace: str) -> None:
        self._spec = spec
        self._path = path
        self._world = world
        self._namespace = namespace
        self._entries = {entry.name: entry for entry in spec.resource_claims}
        self._names = list(self._entries)
        self._known = some(self._names)

    def entries(self, *, mirror: bool) -> Problems:
        """Judge spec.resourceClaims."""
        path = f"{self._path}/resourceClaims"
        if mirror and self._spec.resource_claims:
            yield Problem("D203", path, "a static pod cannot have claims")
            return
        seen: set[str] = set()
        for index, entry in enumerate(self._spec.resource_claims):
            at = f"{path}/{index}"
            if not entry.name:
                yield Problem("D101", f"{at}/name", "name is required")
            elif entry.name in seen:
                yield Problem("D105", f"{at}/name", f"claim {entry.name!r} is given twice")
            else:
                yield from wrong_format(entry.name, names.dns_label(entry.name), f"{at}/name", names.suggestion)
            seen.add(entry.name)
            yield from self._source(entry, at)

    def _source(self, entry: PodResourceClaim, at: str) -> Problems:
        claim, template = entry.resource_claim_name, entry.resource_claim_template_name
        if claim is None and template is None:
            yield Problem("D201", at, "one of resourceClaimName and resourceClaimTemplateName is required")
        if claim is not None and template is not None:
            message = "only one of resourceClaimName and resourceClaimTemplateName may be set"
            yield Problem(
                "D203", at, message, "keep the template for a claim of the pod's own, the claim for a shared one"
            )
        for name, value in (("resourceClaimName", claim), ("resourceClaimTemplateName", template)):
            if value is not None:
                yield from wrong_format(value, names.dns_subdomain(value), f"{at}/{name}")

    def containers(self) -> Problems:
        """Judge resources.claims of all containers."""
        for kind, containers in (("containers", self._spec.containers), ("initContainers", self._spec.init_containers)):
            for index, container in enumerate(containers):
                path = f"{self._path}/{kind}/{index}/resources/claims"
                yield from self._uses(container.resources.claims, path)

    def _uses(self, uses: Sequence[ContainerClaim], path: str) -> Problems:
        whole: set[str] = set()
        parts: dict[str, set[str]] = {}
        for index, use in enumerate(uses):
            at = f"{path}/{index}"
            if not use.name:
                yield Problem("D101", f"{at}/name", "name is required")
                continue
            used = parts.get(use.name, set())
            if use.name in whole or use.request in used or (used and not use.request):
                yield Problem("D105", at, f"claim {use.name!r} is used twice by one container")
            elif use.request:
                yield from wrong_format(use.request, names.dns_label(use.request), f"{at}/request")
            if use.request:
                parts.setdefault(use.name, set()).add(use.request)
            else:
                whole.add(use.name)
            if use.name not in self._entries:
                near = shape.nearest(use.name, self._names)
                hint = f"did you mean {near}?" if near else ""
                yield Problem("D202", f"{at}/name", f"the pod has no claim {use.name!r}, it has {self._known}", hint)
            elif use.request:
                yield from self._request(use, at)

    def _request(self, use: ContainerClaim, at: str) -> Problems:
        devices = self._devices(self._entries[use.name])
        if devices is None:
            return
        requests = [request.name for request in devices.requests]
        if use.request not in requests:
            yield Problem("D205", f"{at}/request", f"the claim has no request {use.request!r}, it has {some(requests)}")

    def _devices(self, entry: PodResourceClaim) -> DeviceClaim | None:
        if entry.resource_claim_name is not None:
            return self._world.claim_spec(self._namespace, entry.resource_claim_name)
        if entry.resource_claim_template_name is not None:
            return self._world.template_spec(self._namespace, entry.resource_claim_template_name)
        return None

    def advice(self, *, many: bool, complete: bool) -> Problems:
        """Say what the API server takes and what does not work all the same."""
        used = {
            use.name
            for container in (*self._spec.containers, *self._spec.init_containers)
            for use in container.resources.claims
        } | {use.name for use in self._spec.resources.claims}
        for index, entry in enumerate(self._spec.resource_claims):
            at = f"{self._path}/resourceClaims/{index}"
            if entry.name and entry.name not in used:
                yield Problem(
                    "D204",
                    at,
                    f"no container uses the claim {entry.name!r}: only a driver that serves the whole pod, as network drivers do, makes use of it",
                )
            if complete and self._devices(entry) is None and not self._is_made(entry):
                yield from self._absent(entry, at)
            yield from self._alone(entry, at)
            if many and entry.resource_claim_name is not None:
                message = f"all pods of this workload share the one claim {entry.resource_claim_name!r}, and so its devices and its node"
                yield Problem("D207", f"{at}/resourceClaimName", message)
        if self._spec.node_name and self._spec.resource_claims:
            yield Problem(
                "D208",
                f"{self._path}/nodeName",
                "with nodeName set the pod bypasses the scheduler, and it is the scheduler that allocates devices",
            )

    @cached_property
    def _users(self) -> dict[str, dict[str, None]]:
        """The containers that use each claim."""
        users: dict[str, dict[str, None]] = {}
        for container in (*self._spec.containers, *self._spec.init_containers):
            for use in container.resources.claims:
                of_claim = users.setdefault(use.name, {})
                of_claim[container.name] = None
        return users

    def _alone(self, entry: PodResourceClaim, at: str) -> Problems:
        """Point out a claim of the pod's own that is set up for sharing, and that one container alone uses."""
        devices = self._devices(entry) if entry.resource_claim_template_name is not None else None
        strategy = strategy_of(devices) if devices is not None else ""
        users = self._users.get(entry.name, ())
        if strategy and len(users) == 1:
            message = f"the claim {entry.name!r} is set up for sharing ({strategy}), and container {next(iter(users))!r} alone uses it"
            hint = "every pod gets a claim of its own from a template: only its own containers share the devices"
            yield Problem("D708", at, message, hint)

    def _is_made(self, entry: PodResourceClaim) -> bool:
        return (self._namespace, entry.resource_claim_template_name or "") in self._world.made

    def _absent(self, entry: PodResourceClaim, at: str) -> Problems:
        for kind, name in (
            ("resourceClaimName", entry.resource_claim_name),
            ("resourceClaimTemplateName", entry.resource_claim_template_name),
        ):
            if name:
                elsewhere = [space for space in self._world.homes.get(name, ()) if space != self._namespace]
                where = f"it exists in namespace {some(elsewhere)}: a pod can use only what is in its own namespace"
                message = f"{name!r} is not among the manifests in namespace {self._namespace}"
                yield Problem("D206", f"{at}/{kind}", message, where if elsewhere else "")
