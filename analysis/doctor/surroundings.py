"""What is wrong around drawbridge, so that devices are not given, or held without use: what the API server stores, Kubernetes' own
controllers and schedulers, nodes, drivers, and what others refuse or keep. Pure: what was read in, findings out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from allocator.reservations import FINALIZER
from analysis.doctor.open_claims import open_claims
from analysis.installation import LEASES
from cluster.objects import ResourceQuota
from dra.finding import Finding, make_finding
from dra.objects import ResourceClaim, blocks, claim_keys, results_of
from dra.raw import Object, containers_of, inside, items, moment, text
from dra.stock import newest
from dra.texts import list_first
from webhook import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from analysis.doctor.diagnosis import Seen
    from dra.objects import DeviceRequest, DeviceToleration, Pod


FAILED_CREATE = "FailedCreate"
FAILED_CLAIM = "FailedResourceClaimCreation"
FAILED_PREPARE = "FailedPrepareDynamicResources"
FAILED_TEMPLATE = "FailedTemplateCreation"  # of drawbridge's own controller
FAILED_OF_PODS = (FAILED_CLAIM, FAILED_PREPARE, FAILED_TEMPLATE)
_SILENT = timedelta(seconds=45)  # nodes and API servers renew their leases every ten seconds, controllers every two
_WAITED = timedelta(seconds=30)  # what is looked at within milliseconds, and taken away within a second
_FRESH = timedelta(minutes=20)  # controllers try again after 17 minutes at the latest
_NAMED = 5
_QUOTED = 400
_OF_OURS = ".drawbridge.dev"
_AGAIN = "(combined from similar events): "
_DENIED = re.compile(r'admission webhook "([^"]+)" denied the request|failed calling webhook "([^"]+)"')
_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']+)'")
TEMPLATES = "count/resourceclaimtemplates.resource.k8s.io"
_OF_JOBS = "batch.kubernetes.io/job-tracking"  # taken off by kube-controller-manager, which has its own finding
_CONTROLLERS = {
    "kube-controller-manager": "no claim is created from a template, and no ReplicaSet or Job creates pods",
    "kube-scheduler": "no pod of its profiles is placed",
}


def nothing_stored(observed: Seen) -> Iterator[Finding]:
    """An API server that answers what it is asked, and stores nothing: not even its own lease."""
    renewed = {key: at for key, at in _renewals(observed).items() if key.rpartition("/")[2] not in LEASES}
    if not renewed:
        return
    last = max(renewed, key=lambda key: renewed[key])
    silent = observed.now - max(_renewals(observed).values())
    if silent > _SILENT:
        yield make_finding(
            "O020",
            f"Lease/{last}",
            f"no Lease was renewed for {silent.total_seconds():.0f} s: the API server answers but stores nothing, as when etcd has no space (NOSPACE) or no quorum",
        )


def idle_controllers(observed: Seen) -> Iterator[Finding]:
    """Kubernetes' own controllers and scheduler, of which no replica leads any more."""
    renewals = _renewals(observed)
    newest_ = max(renewals.values(), default=observed.now)
    for name, without in _CONTROLLERS.items():
        at = renewals.get(f"kube-system/{name}")
        # While nothing is stored no lease can be renewed.
        if at is not None and newest_ - at > _SILENT:
            yield make_finding(
                "O017",
                f"Lease/kube-system/{name}",
                f"no {name} has renewed it for {(observed.now - at).total_seconds():.0f} s: {without}",
                f"check that {name} runs on the control plane; its log, and the events of its pods, say what prevents it",
            )


def _renewals(observed: Seen) -> dict[str, Any]:
    """When each held Lease was renewed; one of the future, by a clock that is wrong, says nothing of the others."""
    leases = ((one.metadata.key, moment(one.spec.renew_time)) for one in observed.leases if one.spec.holder_identity)
    return {key: at for key, at in leases if at is not None and at - observed.now <= _SILENT}


def not_reached(observed: Seen) -> Iterator[Finding]:
    """A webhook that is registered, that the API server cannot reach."""
    if observed.unasked:
        yield make_finding(
            "O015",
            f"MutatingWebhookConfiguration/{names.NAME}",
            f"the API server cannot reach the webhook, as a dry-run pod showed: {observed.unasked[:_QUOTED]}",
            basis="a dry run of a pod",
        )


def nodes_away(observed: Seen) -> Iterator[Finding]:
    """Nodes that are not ready, with devices: what is held there is not given to others, and what is free is not given at all."""
    published = {piece.spec.node_name for piece in observed.stock.slices.values()}
    for node, condition in _unready(observed.nodes):
        node_pods = [pod for pod in observed.pods or () if pod.spec.node_name == node and not pod.has_ended]
        claims = {key: None for pod in node_pods for key in claim_keys(pod)}
        if not claims and node not in published:
            continue
        keeps = (
            f"claims {list_first(list(claims), _NAMED)} keep its devices" if claims else "none of its devices is given"
        )
        at, reason = text(condition.get("lastTransitionTime")), text(condition.get("reason"))
        since, why = f" since {at}" if at else "", f" ({reason})" if reason else ""
        yield make_finding(
            "O201",
            f"Node/{node}",
            f"it is not ready{since}{why}, and {keeps}",
            f"look at its kubelet; if the node is lost, delete it, or free its pods: `kubectl taint node {node} "
            "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute`",
        )


def not_made(observed: Seen) -> Iterator[Finding]:
    """Pods with devices that their controllers cannot make, because something else than drawbridge refuses them."""
    lacking: set[str] = set()
    for one in observed.owners:
        if _asks(one) and _lacks(one):
            meta = inside(one, "metadata")
            lacking.add(f"{one.get('kind')}/{meta.get('namespace')}/{meta.get('name')}")
    for about, message in latest(observed, FAILED_CREATE).items():
        if about not in lacking or _OF_OURS in message:
            continue
        yield make_finding(
            "O101",
            about,
            f"its pods cannot be created: {message[:_QUOTED]}",
            remedy_for(message),
            basis=f"an event {FAILED_CREATE}",
        )


def without_claim(observed: Seen) -> Iterator[Finding]:
    """Pods whose claims kube-controller-manager may not make."""
    waiting = {
        f"Pod/{pod.metadata.key}": pod for pod in observed.pods or () if not (pod.spec.node_name or pod.has_ended)
    }
    for about, message in latest(observed, FAILED_CLAIM).items():
        pod = waiting.get(about)
        # Where a template is not there yet, it looks again.
        if pod is None or "not found" in message:
            continue
        made = {one.name for one in pod.status.resource_claim_statuses}
        if all(one.name in made or not one.resource_claim_template_name for one in pod.spec.resource_claims):
            continue
        yield make_finding(
            "O106",
            about,
            f"its claim cannot be created: {message[:_QUOTED]}",
            remedy_for(message),
            basis=f"an event {FAILED_CLAIM}",
        )


def latest(observed: Seen, reason: str) -> dict[str, str]:
    """What the last event of a reason says, by what it is about; not of a pod that had the same name before."""
    messages: dict[str, str] = {}
    living = {pod.metadata.key: pod.metadata.uid for pod in observed.pods or ()}
    for event in sorted(observed.events, key=lambda one: one.last_timestamp):
        last = moment(event.last_timestamp)
        if event.reason == reason and (last is None or observed.now - last <= _FRESH):
            about = event.involved_object
            uid = living.get(f"{about.namespace}/{about.name}") if about.kind == "Pod" else ""
            if uid and about.uid and uid != about.uid:
                continue
            messages[f"{about.kind}/{about.namespace}/{about.name}"] = event.message.removeprefix(_AGAIN)
    return messages


def remedy_for(message: str) -> str:
    if found := _DENIED.search(message):
        name = found[1] or found[2]
        return f"webhook {name} is not drawbridge's: `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o yaml` shows whose it is"
    if found := _POLICY.search(message):
        return f"ask who keeps ValidatingAdmissionPolicy {found[1]}, or write the pod as it wants"
    if "PodSecurity" in message:
        return "write the pod as the namespace's pod-security.kubernetes.io/enforce wants, or have that label changed"
    if "exceeded quota" in message:
        return "have the ResourceQuota that is named raised, or give something back in its namespace"
    if "per Pod" in message or "per Container" in message:
        return "stay within the LimitRanges of the namespace (`kubectl get limitrange -o yaml`), or have them changed"
    return "do what it says, or ask who may change it"


def _asks(owner: Object) -> bool:
    """Whether the pods of a controller ask for devices, by whatever name."""
    spec = inside(owner, "spec", "template", "spec")
    if items(spec, "resourceClaims"):
        return True
    containers = containers_of(spec)
    keys = [key for one in containers for part in ("limits", "requests") for key in inside(one, "resources", part)]
    return any("/" in key for key in keys)


def _lacks(owner: Object) -> bool:
    """Whether a controller has fewer pods than it wants."""
    spec, status = inside(owner, "spec"), inside(owner, "status")
    match owner.get("kind"):
        case "DaemonSet":
            return _number(status, "currentNumberScheduled", 0) < _number(status, "desiredNumberScheduled", 0)
        case "Job":
            return not status.get("completionTime") and _number(status, "active", 0) < _number(spec, "parallelism", 1)
    return _number(status, "replicas", 0) < _number(spec, "replicas", 1)


def _number(value: Mapping[str, Any], name: str, default: int) -> int:
    found = value.get(name, default)
    return found if isinstance(found, int) else default


def no_scheduler(observed: Seen) -> Iterator[Finding]:
    """Pods with devices that no scheduler looks at, while none of its other pods that are younger was looked at either."""
    waiting: defaultdict[str, list[tuple[str, Pod]]] = defaultdict(list)
    served: dict[str, str] = {}
    existing = {claim.metadata.key for claim in observed.claims}
    for pod in observed.pods or ():
        name, born = pod.spec.scheduler_name or "default-scheduler", pod.metadata.creation_timestamp
        if any(one.type == "PodScheduled" for one in pod.status.conditions):
            served[name] = max(served.get(name, ""), born)
            continue
        resources = [one.resources for one in pod.spec.all_containers]
        resource_names = [key for one in resources for key in (*one.limits, *one.requests)]
        uses_devices = pod.spec.resource_claims or any("/" in key for key in resource_names)
        if uses_devices and not (pod.spec.node_name or pod.has_ended or pod.metadata.deletion_timestamp):
            # A scheduler does not look at a pod whose claims are not there yet.
            keys = claim_keys(pod)
            if len(keys) >= len(pod.spec.resource_claims) and existing.issuperset(keys):
                waiting[name].append((born, pod))
    for name, pods in waiting.items():
        born, first = min(pods, key=lambda one: (one[0], one[1].metadata.key))
        at = moment(born)
        if at is None or observed.now - at <= _WAITED or served.get(name, "") > born:
            continue
        bridge = observed.bridge.scheduler_name if observed.bridge is not None else ""
        yield make_finding(
            "O109",
            f"Pod/{first.metadata.key}",
            f"no scheduler called {name} has tried {list_first([one.metadata.key for _, one in pods], _NAMED)} for {(observed.now - at).total_seconds():.0f} s",
            f"check that {'Deployments drawbridge-allocator and drawbridge-scheduler run' if name == bridge else 'a scheduler with that profile runs'}, "
            "or correct schedulerName where the pod is created",
        )


def incomplete_pools(observed: Seen) -> Iterator[Finding]:
    """Pools of which slices are missing, or that have lost their devices."""
    with_devices: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for piece in observed.stock.slices.values():
        if piece.spec.devices:
            with_devices[piece.spec.driver, piece.spec.pool.name].append(piece.metadata.name)
    pools: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for piece in newest(observed.stock.slices.values()):
        pools[piece.spec.driver, piece.spec.pool.name].append(piece)
    for (driver, name), pieces in pools.items():
        wanted = max(piece.spec.pool.resource_slice_count for piece in pieces)
        generation = max(piece.spec.pool.generation for piece in pieces)
        if len(pieces) < wanted:
            yield make_finding(
                "O207",
                f"ResourceSlice/{pieces[0].metadata.name}",
                f"driver {driver} has published {len(pieces)} of {wanted} slices of pool {name}, generation {generation}, so the pool is not used",
            )
        elif (old := with_devices[driver, name]) and not any(piece.spec.devices for piece in pieces):
            yield make_finding(
                "O208",
                f"ResourceSlice/{pieces[0].metadata.name}",
                f"driver {driver} has published pool {name} without devices in generation {generation}, so those of {list_first(old, _NAMED)} do not count",
            )


def not_prepared(observed: Seen) -> Iterator[Finding]:
    """Pods on nodes whose driver does not prepare their claims."""
    running = {
        f"Pod/{pod.metadata.key}": pod for pod in observed.pods or () if pod.spec.node_name and not pod.has_ended
    }
    affected: dict[tuple[str, str], list[str]] = {}
    for about, message in latest(observed, FAILED_PREPARE).items():
        pod = running.get(about)
        if pod is None or pod.status.phase != "Pending" or pod.metadata.deletion_timestamp:
            continue
        claims = [observed.stock.claims.get(key) for key in claim_keys(pod)]
        drivers = ", ".join(sorted({result.driver for one in claims for result in results_of(one)}))
        affected.setdefault((pod.spec.node_name or "", drivers), []).append(f"{about}\n{message}")
    for (node, drivers), pods in affected.items():
        about, _, message = pods[0].partition("\n")
        unregistered = "not registered" in message or "not found in the list of registered" in message
        waiting = [one.partition("\n")[0].removeprefix("Pod/") for one in pods]
        yield make_finding(
            "O112",
            about,
            f"on node {node}, {drivers} does not prepare the devices of {list_first(waiting, _NAMED)}: {message[:_QUOTED]}",
            f"check that the driver's pod runs on {node}, and restart it: the kubelet tries again"
            if unregistered
            else f"the driver's log on {node} says more; the kubelet tries again",
            basis=f"an event {FAILED_PREPARE}",
        )


def tainted(observed: Seen, drivers: Mapping[str, str]) -> Iterator[Finding]:
    """Drivers of which every device is tainted, and claims and pods that wait for one and tolerate nothing."""
    taints: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for page in observed.stock.every_newest_page():
        taints[page.slice.spec.driver] += [device.taints for device in page.devices]

    def taint_of_all(driver: str, tolerations: tuple[DeviceToleration, ...]) -> str:
        blocking = [[taint.key for taint in of if blocks(taint, tolerations)] for of in taints.get(driver, ())]
        return blocking[0][0] if blocking and all(blocking) else ""

    waiting: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for requester, requests in open_claims(observed):
        for request in requests:
            for driver, key in kept_by(request, drivers, taint_of_all):
                # The fence and the marks of audit agents have findings of their own.
                if not key.startswith("drawbridge.dev/"):
                    waiting[driver, key][requester] = None
    for (driver, key), claims in waiting.items():
        rules = [
            one.metadata.name
            for one in observed.stock.rules.values()
            if one.spec.taint.key == key
            and (one.spec.device_selector is None or one.spec.device_selector.driver in (None, driver))
        ]
        yield make_finding(
            "O111",
            f"DeviceTaintRule/{rules[0]}" if rules else f"Driver/{driver}",
            f"every device of {driver} has the taint {key}, which is not tolerated by {list_first(list(claims), _NAMED)}",
            f"delete the rule once the devices may be used again: kubectl delete devicetaintrule {rules[0]}"
            if rules
            else "the driver reports it: see its log, and at what its devices report",
        )


def kept_by(
    request: DeviceRequest, drivers: Mapping[str, str], taint_of: Callable[[str, tuple[DeviceToleration, ...]], str]
) -> list[tuple[str, str]]:
    """Name driver and taint that keep a request from every device; nothing where one alternative has a device."""
    found: list[tuple[str, str]] = []
    for one in request.alternatives.values():
        driver = drivers.get(one.device_class_name, "")
        taint = taint_of(driver, one.tolerations) if driver else ""
        if not taint:
            return []
        found.append((driver, taint))
    return found


def in_deletion(observed: Seen) -> Iterator[Finding]:
    """Claims, pods with claims, and namespaces that are deleted, and that a finalizer keeps."""
    pods = [pod for pod in observed.pods or () if claim_keys(pod)]
    objects: list[ResourceClaim | Pod] = [*observed.claims, *pods]
    for one in objects:
        meta = one.metadata
        others = [name for name in meta.finalizers if name not in (FINALIZER, _OF_JOBS)]
        since = moment(meta.deletion_timestamp)
        if since is None or not others or observed.now - since <= _WAITED:
            continue
        keys = [meta.key] if isinstance(one, ResourceClaim) else claim_keys(one)
        claims = filter(None, map(observed.stock.claims.get, keys))
        devices = [f"{result.driver}/{result.pool}/{result.device}" for claim in claims for result in results_of(claim)]
        holding = f", with {list_first(devices, _NAMED)}" if devices else ""
        yield make_finding(
            "O215",
            f"{one.kind}/{meta.key}",
            f"it was deleted at {meta.deletion_timestamp}, and finalizer {', '.join(others)} keeps it{holding}",
            f"check that the controller that removes {others[0]} runs; if it is gone for good, remove it with kubectl edit",
        )
    having = {claim.metadata.namespace for claim in observed.claims}
    for space in observed.namespaces:
        meta = space.metadata
        since = moment(meta.deletion_timestamp)
        if since is None or meta.name not in having or observed.now - since <= _WAITED:
            continue
        messages = [one.message for one in space.status.conditions if one.status == "True" and one.message]
        yield make_finding(
            "O215",
            f"Namespace/{meta.name}",
            f"it was deleted at {meta.deletion_timestamp}, and is still there with claims in it: {'; '.join(messages)[:_QUOTED] or 'it gives no reason'}",
            "correct what prevents that, as shown above for claims; such a namespace admits no new pod",
        )


def full_quotas(observed: Seen) -> dict[str, str]:
    """The ResourceQuotas that allow no further template, by namespace."""
    found: dict[str, str] = {}
    for one in observed.limits:
        hard = one.status.hard.get(TEMPLATES) if isinstance(one, ResourceQuota) else None
        if (
            isinstance(one, ResourceQuota)
            and hard is not None
            and one.status.used.get(TEMPLATES, hard).nano >= hard.nano
        ):
            found[one.metadata.namespace] = one.metadata.name
    return found


def _unready(nodes: Iterable[Object]) -> Iterator[tuple[str, Object]]:
    """Give each node that is not ready, with the condition that says so."""
    for node in nodes:
        for one in items(inside(node, "status"), "conditions"):
            if one.get("type") == "Ready" and one.get("status") != "True":
                yield text(inside(node, "metadata").get("name")), one
