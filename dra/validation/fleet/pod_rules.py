"""Rules about the device requests of pods and workloads (validatePodResourceClaims, validateResourceClaimNames).

Errors are errors of the API server. Warnings are about mistakes that the API server accepts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dra import names
from dra.finding import Finding, Findings, finding_at
from dra.objects import ObjectMeta, PodSpec, amount_problem, is_extended, template_site
from dra.pointer import look_up, member, text_at
from dra.validation.fields import pod_schema, shape
from dra.validation.fields.limits import list_or_none, required, wrong_format
from dra.validation.fields.metadata import annotation_map, label_map, metadata
from dra.validation.parameters.reach import strategy_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.objects import DeviceClaim, PodResourceClaim, ResourceRequirements
    from dra.validation.fleet.world import World

_MIRROR: Final = "kubernetes.io/config.mirror"
_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")


def pod_problems(value: dict[str, Any], world: World, *, complete: bool) -> list[Finding]:
    """Judge a pod or a workload. `complete` says that a claim or template that is not in `world` does not exist."""
    site = template_site(value)
    if site is None:
        return []
    path = site.path
    template = look_up(value, path)
    fields = pod_schema.check(value)
    problems = [*_meta(value, "", template=False), *fields]
    if isinstance(template, dict) and path:
        problems += _meta(template, path, template=True)
    problems = [problem for problem in problems if not _is_of_a_tool(problem, value)]
    if not isinstance(template, dict):
        return problems
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return problems
    # `pod_schema` has checked every field of PodSpec. If it has no findings, no value of the spec has a wrong type.
    if any(problem.code == "D001" for problem in (shape.check(spec, PodSpec) if fields else ())):
        return problems
    typed = shape.convert_checked(spec, PodSpec)
    if not typed.containers:
        problems.append(finding_at("D101", f"{path}/spec/containers", "a pod needs at least one container"))
    problems += _extended_problems(typed, f"{path}/spec")
    # Ephemeral containers can only be added to an existing pod, so they are valid only in a pod with a uid.
    if spec.get("ephemeralContainers") and (path or not look_up(value, "/metadata/uid")):
        where = "in a pod template" if path else "on a pod that is created"
        message = f"ephemeral containers can't be {where}"
        problems.append(finding_at("D210", f"{path}/spec/ephemeralContainers", message))
    judge = _PodJudge(typed, f"{path}/spec", world, text_at(value, "/metadata/namespace") or "default")
    annotations = look_up(template, "/metadata/annotations")
    if isinstance(annotations, dict) and _MIRROR in annotations and typed.resource_claims:
        where, message = f"{path}/spec/resourceClaims", "a static pod cannot have claims"
        problems.append(finding_at("D203", where, message, "remove the claims from the pod"))
    else:
        problems += judge.entries()
    problems += judge.containers()
    count = look_up(value, f"{path.rpartition('/')[0]}/{site.size}") if site.size else None
    several_pods = value.get("kind") == "DaemonSet" or (isinstance(count, int) and count > 1)
    problems += judge.advice(several_pods=several_pods, complete=complete)
    return problems


def _is_of_a_tool(problem: Finding, value: dict[str, Any]) -> bool:
    """Whether a problem is about a patch (`$patch`) or an expression of a test tool (`(length(x)): 1`, `replicas: ($n)`)."""
    if problem.code == "D002":
        return not problem.path.rpartition("/")[2][:1].isalpha()
    value_at_path = look_up(value, problem.path)
    if isinstance(value_at_path, dict):
        return any(str(key).startswith("(") for key in value_at_path)
    return isinstance(value_at_path, str) and value_at_path.startswith("(") and value_at_path.endswith(")")


def _meta(value: Mapping[str, Any], path: str, *, template: bool) -> list[Finding]:
    """Judge the metadata of a pod or workload, or of a pod template, which needs no name."""
    raw = value.get("metadata")
    if raw is None and template:
        return []
    problems = shape.check({} if raw is None else raw, ObjectMeta, f"{path}/metadata")
    if any(problem.code == "D001" for problem in problems):
        return problems
    meta = shape.convert_checked({} if raw is None else raw, ObjectMeta)
    if template:
        problems += label_map(meta.labels, f"{path}/metadata/labels")
        problems += annotation_map(meta.annotations, f"{path}/metadata/annotations")
    else:
        problems += metadata(meta, f"{path}/metadata", namespaced=True)
    return problems


class _PodJudge:
    """Judges one pod spec."""

    def __init__(self, spec: PodSpec, path: str, world: World, namespace: str) -> None:
        self._spec = spec
        self._path = path
        self._world = world
        self._namespace = namespace
        self._entries = {entry.name: entry for entry in spec.resource_claims}

    def entries(self) -> Findings:
        """Judge spec.resourceClaims."""
        earlier_names: set[str] = set()
        for index, entry in enumerate(self._spec.resource_claims):
            pointer = f"{self._path}/resourceClaims/{index}"
            if entry.name and entry.name in earlier_names:
                yield finding_at("D105", f"{pointer}/name", f"claim {entry.name!r} is given twice")
            else:
                yield from required(entry.name, f"{pointer}/name", names.dns_label, names.suggestion)
            earlier_names.add(entry.name)
            claim, template = entry.resource_claim_name, entry.resource_claim_template_name
            if claim is None and template is None:
                yield finding_at("D201", pointer, "one of resourceClaimName and resourceClaimTemplateName is required")
            if claim is not None and template is not None:
                message = "only one of resourceClaimName and resourceClaimTemplateName may be set"
                hint = "keep resourceClaimTemplateName for a claim of the pod's own, or resourceClaimName for a shared claim"
                yield finding_at("D203", pointer, message, hint)
            for name, value in (("resourceClaimName", claim), ("resourceClaimTemplateName", template)):
                if value is not None:
                    yield from wrong_format(value, names.dns_subdomain, f"{pointer}/{name}")

    def containers(self) -> Findings:
        """Judge resources.claims of all containers."""
        for kind, containers in (("containers", self._spec.containers), ("initContainers", self._spec.init_containers)):
            for number, container in enumerate(containers):
                whole_claims: set[str] = set()
                requests_by_claim: dict[str, set[str]] = {}
                for index, use in enumerate(container.resources.claims):
                    pointer = f"{self._path}/{kind}/{number}/resources/claims/{index}"
                    if not use.name:
                        yield finding_at("D101", f"{pointer}/name", "name is required")
                        continue
                    used_requests = requests_by_claim.get(use.name, set())
                    if use.name in whole_claims or use.request in used_requests or (used_requests and not use.request):
                        yield finding_at("D105", pointer, f"claim {use.name!r} is used twice by one container")
                    elif use.request:
                        yield from wrong_format(use.request, names.dns_label, f"{pointer}/request")
                    if use.request:
                        requests_by_claim.setdefault(use.name, set()).add(use.request)
                    else:
                        whole_claims.add(use.name)
                    if use.name not in self._entries:
                        message = f"the pod has no claim {use.name!r}, it has {list_or_none(self._entries)}"
                        yield finding_at("D202", f"{pointer}/name", message, shape.guess(use.name, self._entries))
                    elif use.request and (devices := self._devices(self._entries[use.name])) is not None:
                        request_names = [request.name for request in devices.requests]
                        if use.request not in request_names:
                            message = f"the claim has no request {use.request!r}, it has {list_or_none(request_names)}"
                            yield finding_at("D205", f"{pointer}/request", message)

    def _devices(self, entry: PodResourceClaim) -> DeviceClaim | None:
        """Return the devices that the claim of an entry requests; None if the claim is not known."""
        if entry.resource_claim_name is not None:
            claim = self._world.claims.get((self._namespace, entry.resource_claim_name))
            return claim.spec.devices if claim is not None else None
        template = self._world.templates.get((self._namespace, entry.resource_claim_template_name or ""))
        return template.spec.spec.devices if template is not None else None

    def advice(self, *, several_pods: bool, complete: bool) -> Findings:
        """Report mistakes that the API server accepts."""
        users: dict[str, dict[str, None]] = {use.name: {} for use in self._spec.resources.claims}
        for container in (*self._spec.containers, *self._spec.init_containers):
            for use in container.resources.claims:
                users.setdefault(use.name, {})[container.name] = None
        for index, entry in enumerate(self._spec.resource_claims):
            pointer = f"{self._path}/resourceClaims/{index}"
            if entry.name and entry.name not in users:
                message = f"no container uses the claim {entry.name!r}: its devices reach the containers only if the driver serves the whole pod, as network drivers do"
                yield finding_at("D204", pointer, message)
            devices = self._devices(entry)
            is_created = (self._namespace, entry.resource_claim_template_name or "") in self._world.made_templates
            if complete and devices is None and not is_created:
                for field, name in (
                    ("resourceClaimName", entry.resource_claim_name),
                    ("resourceClaimTemplateName", entry.resource_claim_template_name),
                ):
                    if not name:
                        continue
                    elsewhere = [space for space in self._world.homes.get(name, ()) if space != self._namespace]
                    where = f"it exists in namespace {list_or_none(elsewhere)}: a pod can use only claims and templates of its own namespace"
                    message = f"{name!r} is not among the manifests in namespace {self._namespace}"
                    yield finding_at("D206", f"{pointer}/{field}", message, where if elsewhere else "")
            # It is a mistake if the claim of a template has settings for sharing and only one container uses the claim.
            strategy = strategy_of(devices) if devices is not None and entry.resource_claim_template_name else ""
            if strategy and len(users.get(entry.name, ())) == 1:
                message = f"the claim {entry.name!r} is set up for sharing ({strategy}), and only the container {next(iter(users[entry.name]))!r} uses it"
                hint = "a template gives every pod its own claim: only the pod's containers share the devices"
                yield finding_at("D708", pointer, message, hint)
            if several_pods and entry.resource_claim_name is not None:
                message = f"all pods of this workload share the one claim {entry.resource_claim_name!r}, and so its devices and its node"
                yield finding_at("D207", f"{pointer}/resourceClaimName", message)
        if self._spec.node_name and self._spec.resource_claims:
            message = "with nodeName set the pod bypasses the scheduler, and it is the scheduler that allocates devices"
            yield finding_at("D208", f"{self._path}/nodeName", message)


def _extended_problems(spec: PodSpec, path: str) -> Findings:
    """Judge amounts of extended resources (nvidia.com/gpu: 2) as the API server does.

    Their names have a domain, their amounts are whole numbers, request and limit are equal, and they belong to containers
    (pkg/apis/core/validation, ValidateContainerResourceRequirements and validatePodResources). Amounts of cpu, memory and huge pages
    are not judged here.
    """
    for kind, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            pointer = f"{path}/{kind}/{index}/resources"
            yield from _amount_problems(container.resources, pointer)
    for part, amounts in (("limits", spec.resources.limits), ("requests", spec.resources.requests)):
        for name in filter(is_extended, amounts):
            pointer = member(f"{path}/resources/{part}", name)
            message = f"{name} cannot be requested at pod level"
            yield finding_at("R001", pointer, message, "request a resource in a container")


def _amount_problems(resources: ResourceRequirements, path: str) -> Findings:
    limits, requests = resources.limits, resources.requests
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if name in _STANDARD:
                continue
            pointer = member(f"{path}/{part}", name)
            misspelt = names.label_key(name)
            message = f"{name} is not a resource that a container can request"
            if misspelt:
                yield finding_at("D213", pointer, f"{message}: it {misspelt}")
            elif not is_extended(name):
                # The native resources that a container can request (validateContainerResourceName).
                if name.startswith("requests.") if "/" in name else not name.startswith("hugepages-"):
                    yield finding_at("D213", pointer, message)
            elif problem := amount_problem(amount):
                hint = "write a whole number; a part of a device has other keys, which `drawbridge dialects` lists"
                yield finding_at("R001", pointer, f"{amount} of {name} {problem}", hint)
    for name, amount in requests.items():
        if not is_extended(name):
            continue
        pointer = member(f"{path}/requests", name)
        limit = limits.get(name)
        if limit is None:
            yield finding_at("R001", pointer, f"{name} has a request and no limit", f"set limits: {{{name}: {amount}}}")
        elif limit != amount:
            yield finding_at(
                "R001", pointer, f"the request of {name}, {amount}, is not its limit, {limit}", "use one amount"
            )
